//! [`Text`]: numbers as Prometheus reads them.

use super::{Counter, Latency};
use crate::clock;
use kumo_cluster::control::LATENCY_MICROS_BOUNDS;
use kumo_paxos::Time;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;

/// What a kind of process measures, and whether it serves.
pub trait Metrics: fmt::Debug + Send + Sync + 'static {
    /// `manager`, `server`, ..
    fn kind(&self) -> &'static str;

    /// Why it does not serve, if it does not.
    fn hindrance(&self) -> Option<&'static str>;

    fn tell(&self, text: &mut Text) -> fmt::Result;
}

/// Everything there is to scrape of a process. `began`: when it did.
pub fn write(metrics: &Arc<dyn Metrics>, began: Time) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Told { metrics: metrics.clone(), began }));
    let mut out = String::new();
    encode_registry(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Told {
    metrics: Arc<dyn Metrics>,
    began: Time,
}

impl Collector for Told {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut text = Text(encoder);
        let labels = [("kind", self.metrics.kind()), ("version", env!("CARGO_PKG_VERSION"))];
        let mut info =
            text.0.encode_descriptor("kumo_build_info", "What runs here.", None, MetricType::Gauge)?;
        info.encode_family(&labels)?.encode_gauge(&1u64)?;
        let up = clock::now().since(self.began) as f64 / 1e6;
        text.gauge_f64("kumo_uptime_seconds", "Since this process began to serve.", up)?;
        if let Some(bytes) = resident_bytes() {
            text.gauge("process_resident_memory_bytes", "Resident memory.", bytes)?;
        }
        let ready = u64::from(self.metrics.hindrance().is_none());
        text.gauge("kumo_ready", "1: it serves; /ready says why not.", ready)?;
        self.metrics.tell(&mut text)
    }
}

/// Where metrics are written, one family at a time. This is the older text format, which `promtool check metrics`
/// reads too: there the name of a counter with its `_total` is the name of its family.
pub struct Text<'a>(DescriptorEncoder<'a>);

impl Text<'_> {
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    pub fn gauge_f64(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Counter)?.encode_gauge(&value)
    }

    pub fn gauges(&mut self, name: &str, help: &str, label: &str, values: &[(&str, u64)]) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for &(what, value) in values {
            family.encode_family(&[(label, what)])?.encode_gauge(&value)?;
        }
        Ok(())
    }

    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        names: &[&str],
        counters: &[Counter],
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (what, counter) in names.iter().zip(counters) {
            family.encode_family(&[(label, *what)])?.encode_gauge(&counter.get())?;
        }
        Ok(())
    }

    /// What never happened is left out: a histogram is twenty lines.
    pub fn latencies(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        names: &[&str],
        latencies: &[Latency],
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (what, latency) in names.iter().zip(latencies) {
            let counts = latency.buckets();
            let count = counts.iter().sum();
            if count == 0 {
                continue;
            }
            let bounds = LATENCY_MICROS_BOUNDS.iter().map(|&micros| micros as f64 / 1e6);
            let bounds = bounds.chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            let labels = [(label, *what)];
            let mut one = family.encode_family(&labels)?;
            one.encode_histogram::<NoLabelSet>(latency.sum_seconds(), count, &buckets, None)?;
        }
        Ok(())
    }
}

/// None where there is no /proc.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
