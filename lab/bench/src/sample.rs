//! [`Sample`]: what one run of a load tells.

use crate::failure::{Failure, Result};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub ops_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    /// The longest time in which no client had a success.
    pub gap_us_max: f64,
    pub errors: u64,
    /// Per operation.
    pub client_cpu_us: f64,
    /// Of all processes that serve, per operation; not known of a run in which they are killed.
    pub server_cpu_us: Option<f64>,
}

impl Sample {
    /// From what `kumo bench --format json` prints.
    pub fn read(value: &Value) -> Result<Sample> {
        let number = |name: &str| {
            value[name].as_f64().ok_or_else(|| Failure::new(format!("kumo bench reports no {name}: {value}")))
        };
        Ok(Sample {
            ops_s: number("ops_s")?,
            p50_us: number("p50_us")?,
            p99_us: number("p99_us")?,
            max_us: number("max_us")?,
            gap_us_max: number("gap_us_max")?,
            // A miss is no answer to be fast with.
            errors: number("errors")? as u64 + value["misses"].as_u64().unwrap_or(0),
            client_cpu_us: number("client_cpu_us")?,
            server_cpu_us: value["server_cpu_us"].as_f64(),
        })
    }

    /// From what a load of our own counted.
    pub fn counted(counted: &Counted) -> Sample {
        let per_op = |time: Duration| time.as_micros() as f64 / counted.operations.max(1) as f64;
        let latency = |part: f64| counted.latency_us.value_at_quantile(part) as f64;
        Sample {
            ops_s: counted.operations as f64 / counted.spent.as_secs_f64().max(f64::EPSILON),
            p50_us: latency(0.5),
            p99_us: latency(0.99),
            max_us: counted.latency_us.max() as f64,
            gap_us_max: counted.gap.as_micros() as f64,
            errors: counted.errors,
            client_cpu_us: per_op(counted.client_cpu),
            server_cpu_us: counted.server_cpu.map(per_op),
        }
    }

    pub fn value(&self) -> Value {
        json!({
            "ops_s": self.ops_s.round(),
            "p50_us": self.p50_us,
            "p99_us": self.p99_us,
            "max_us": self.max_us,
            "gap_us_max": self.gap_us_max,
            "errors": self.errors,
            "client_cpu_us": self.client_cpu_us,
            "server_cpu_us": self.server_cpu_us,
        })
    }
}

/// The counts of a load of our own.
pub struct Counted {
    pub operations: u64,
    pub latency_us: Histogram<u64>,
    pub spent: Duration,
    pub gap: Duration,
    pub errors: u64,
    pub client_cpu: Duration,
    pub server_cpu: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_kumo_bench_is_read_and_a_foreign_one_refused() {
        let mut report = json!({
            "ops_s": 10.0, "p50_us": 1, "p99_us": 2, "max_us": 3, "gap_us_max": 4, "errors": 1, "misses": 2,
            "client_cpu_us": 5.5, "server_cpu_us": null,
        });
        let sample = Sample::read(&report).unwrap();
        assert_eq!((sample.ops_s, sample.errors, sample.server_cpu_us), (10.0, 3, None));
        report["p99_us"] = json!("soon");
        assert!(Sample::read(&report).is_err());
    }
}
