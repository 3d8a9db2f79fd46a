//! [`Rates`]: requests a second and how long they took, from two reports of one server.

use kumo_cluster::control::{LATENCY_MICROS_BOUNDS, ServerReport};
use serde_json::{Value, json};

/// Between two looks.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    gets: f64,
    sets: f64,
    deletes: f64,
    /// Requests answered, by how long it took.
    latency: Vec<u64>,
}

/// None for another life of a server: it counts from zero.
pub fn rates(now: &ServerReport, before: &ServerReport, seconds: f64) -> Option<Rates> {
    if now.server != before.server || now.pid != before.pid || seconds <= 0.0 {
        return None;
    }
    let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let counts = now.latency.iter().zip(&before.latency);
    Some(Rates {
        gets: per_second(now.gets, before.gets),
        sets: per_second(now.sets, before.sets),
        deletes: per_second(now.deletes, before.deletes),
        latency: counts.map(|(now, before)| now.saturating_sub(*before)).collect(),
    })
}

/// Of all servers together; none when none is known.
pub fn add_up(all: &[Rates]) -> Option<Rates> {
    let (first, rest) = all.split_first()?;
    let mut sum = first.clone();
    for one in rest {
        sum.gets += one.gets;
        sum.sets += one.sets;
        sum.deletes += one.deletes;
        for (sum, count) in sum.latency.iter_mut().zip(&one.latency) {
            *sum = sum.saturating_add(*count);
        }
    }
    Some(sum)
}

impl Rates {
    pub fn value(&self) -> Value {
        json!({
            "gets": self.gets,
            "sets": self.sets,
            "deletes": self.deletes,
            "p50_ms": quantile(&self.latency, 0.5),
            "p99_ms": quantile(&self.latency, 0.99),
        })
    }
}

/// In milliseconds, as if requests lay evenly between two bounds. None: there were none.
fn quantile(counts: &[u64], quantile: f64) -> Option<f64> {
    let total: f64 = counts.iter().map(|&count| count as f64).sum();
    if total == 0.0 {
        return None;
    }
    let rank = quantile * total;
    let mut below = 0.0;
    for (bucket, &count) in counts.iter().enumerate() {
        let count = count as f64;
        if count > 0.0 && below + count >= rank {
            let lower = bucket.checked_sub(1).map_or(0, bound) as f64;
            let upper = bound(bucket) as f64;
            return Some((lower + (upper - lower) * (rank - below) / count) / 1000.0);
        }
        below += count;
    }
    None
}

/// Beyond the last one nothing is known but that it was exceeded.
fn bound(bucket: usize) -> u64 {
    LATENCY_MICROS_BOUNDS[bucket.min(LATENCY_MICROS_BOUNDS.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_between_the_bounds_of_its_bucket() {
        let mut counts = vec![0; LATENCY_MICROS_BOUNDS.len() + 1];
        assert_eq!(quantile(&counts, 0.99), None);
        counts[3] = 100;
        let middle = quantile(&counts, 0.5).expect("there were some");
        assert!((0.05..=0.1).contains(&middle), "{middle}");
        counts[9] = 2;
        let high = quantile(&counts, 0.99).expect("there were some");
        assert!((5.0..=10.0).contains(&high), "{high}");
        counts[LATENCY_MICROS_BOUNDS.len()] = 1_000_000;
        assert_eq!(quantile(&counts, 0.99), Some(10_000.0));
    }
}
