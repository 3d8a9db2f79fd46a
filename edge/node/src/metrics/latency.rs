//! [`Latency`]: how long requests took, counted by bounds; and the plain numbers beside it.

use kumo_cluster::control::LATENCY_MICROS_BOUNDS;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows. One thread writes it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One that stands there already: a sum.
    pub fn of(count: u64) -> Counter {
        Counter(AtomicU64::new(count))
    }

    pub fn add(&self, count: u64) {
        // One writer: no need for a locked instruction.
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How something stands.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Requests by how long they took.
#[derive(Debug, Default)]
pub struct Latency {
    /// One a bound, and one for those beyond the last.
    buckets: [Counter; BUCKETS],
    sum_micros: Counter,
}

impl Latency {
    pub fn record(&self, micros: u64) {
        let bucket = LATENCY_MICROS_BOUNDS.partition_point(|&bound| bound < micros);
        self.buckets[bucket].add(1);
        self.sum_micros.add(micros);
    }

    /// What several threads recorded, together.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Latency>) -> Latency {
        let sum = Latency::default();
        for one in all {
            for (total, bucket) in sum.buckets.iter().zip(&one.buckets) {
                total.add(bucket.get());
            }
            sum.sum_micros.add(one.sum_micros.get());
        }
        sum
    }

    pub fn buckets(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.buckets[bucket].get())
    }

    pub fn sum_seconds(&self) -> f64 {
        self.sum_micros.get() as f64 / 1e6
    }
}

pub const BUCKETS: usize = LATENCY_MICROS_BOUNDS.len() + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_holds_what_is_not_above_it() {
        let latency = Latency::default();
        let (first, last) = (LATENCY_MICROS_BOUNDS[0], LATENCY_MICROS_BOUNDS[BUCKETS - 2]);
        for micros in [0, first, first + 1, last, last + 1, u64::MAX / 2] {
            latency.record(micros);
        }
        let buckets = latency.buckets();
        assert_eq!((buckets[0], buckets[1]), (2, 1));
        assert_eq!((buckets[BUCKETS - 2], buckets[BUCKETS - 1]), (1, 2));
        assert_eq!(buckets.iter().sum::<u64>(), 6);
    }

    #[test]
    fn a_sum_has_what_each_recorded() {
        let (one, other) = (Latency::default(), Latency::default());
        one.record(7);
        other.record(7);
        other.record(1_000_000);
        let sum = Latency::sum([&one, &other].into_iter());
        let expected: [u64; BUCKETS] = std::array::from_fn(|at| one.buckets()[at] + other.buckets()[at]);
        assert_eq!((sum.buckets(), sum.sum_seconds()), (expected, 1.000_014));
    }
}
