//! [`Tally`]: what a client counted.

use crate::failure::Failure;
use hdrhistogram::Histogram;
use std::time::Duration;

pub struct Tally {
    /// Of operations that succeeded.
    pub latency_us: Histogram<u64>,
    pub errors: u64,
    /// Results that cannot be right.
    pub wrong: u64,
    /// Results that were looked at.
    pub verified: u64,
}

impl Tally {
    pub fn new() -> Tally {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are in order");
        Tally { latency_us, errors: 0, wrong: 0, verified: 0 }
    }

    pub fn success(&mut self, latency: Duration) {
        self.latency_us.saturating_record(latency.as_micros() as u64);
    }

    pub fn check(&mut self, right: bool) {
        self.verified += 1;
        if !right {
            self.wrong += 1;
        }
    }

    /// Errors are counted only, as long as something succeeds: a load may run across a failure.
    pub fn verdict(&self) -> Result<(), Failure> {
        if self.wrong > 0 {
            return Err(Failure::refused(format!("{} results were wrong", self.wrong)));
        }
        if self.latency_us.is_empty() && self.errors > 0 {
            return Err(Failure::refused(format!("no request succeeded, {} failed", self.errors)));
        }
        Ok(())
    }

    pub fn add(&mut self, other: &Tally) {
        self.latency_us.add(&other.latency_us).expect("all have the same bounds");
        self.errors += other.errors;
        self.wrong += other.wrong;
        self.verified += other.verified;
    }
}

/// Ten minutes: longer than any operation is waited for.
const LATENCY_US_MAX: u64 = 600_000_000;
