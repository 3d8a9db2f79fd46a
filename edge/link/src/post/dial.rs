//! [`Dials`]: whom this process wants a connection with, and when to try next.

use super::Target;
use kumo_paxos::Time;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tracing::{info, warn};

/// Everybody who is dialled, with a pause that grows while it leads to nothing.
pub struct Dials {
    wanted: BTreeMap<Target, Dial>,
    noise: u64,
}

struct Dial {
    /// When to dial; none: under way, or connected.
    at: Option<Time>,
    failures: u32,
    /// Why the last one led to nothing. Said once, not at every dial.
    reason: Option<String>,
    /// When a person was last told that it leads to nothing.
    warned: Option<Time>,
}

impl Dials {
    pub fn new(noise: u64) -> Dials {
        Dials { wanted: BTreeMap::new(), noise: noise | 1 }
    }

    pub fn want(&mut self, now: Time, target: Target) {
        self.wanted.entry(target).or_insert(Dial { at: Some(now), failures: 0, reason: None, warned: None });
    }

    pub fn drop(&mut self, target: Target) {
        self.wanted.remove(&target);
    }

    pub fn managers(&self) -> impl Iterator<Item = SocketAddr> {
        self.wanted.keys().filter_map(|target| match target {
            Target::Manager(address) => Some(*address),
            Target::Server(_) => None,
        })
    }

    /// Everything is dialled again, servers only when they are wanted anew.
    pub fn restart(&mut self) {
        self.wanted.retain(|target, _| matches!(target, Target::Manager(_)));
        for dial in self.wanted.values_mut() {
            dial.at = Some(Time(0));
        }
    }

    /// Those to dial now.
    pub fn due(&mut self, now: Time) -> Vec<Target> {
        let due = |dial: &Dial| dial.at.is_some_and(|at| at <= now);
        if !self.wanted.values().any(due) {
            return Vec::new();
        }
        let mut targets = Vec::new();
        for (&target, dial) in &mut self.wanted {
            if due(dial) {
                dial.at = None;
                targets.push(target);
            }
        }
        targets
    }

    pub fn succeeded(&mut self, target: Target) {
        if let Some(dial) = self.wanted.get_mut(&target) {
            if dial.reason.take().is_some() {
                info!(?target, "connected again");
            }
            (dial.at, dial.failures, dial.warned) = (None, 0, None);
        }
    }

    pub fn failed(&mut self, now: Time, target: Target, reason: String) {
        let jitter = self.jitter();
        let Some(dial) = self.wanted.get_mut(&target) else { return };
        dial.warn(now, target, &reason);
        if dial.reason.as_ref() != Some(&reason) {
            info!(?target, reason, "not connected");
            dial.reason = Some(reason);
        }
        // At once the first time: most often a process was restarted, or a connection reset.
        let pause = PAUSE_MICROS_MIN << dial.failures.min(PAUSE_DOUBLINGS_MAX);
        dial.failures += 1;
        dial.at = Some(now.plus_micros(pause + jitter % (pause / 4 + 1)));
    }

    pub fn deadline(&self) -> Option<Time> {
        self.wanted.values().filter_map(|dial| dial.at).min()
    }

    /// The next of a sequence of numbers (xorshift).
    fn jitter(&mut self) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        self.noise >> 11
    }
}

impl Dial {
    /// Without its managers a process does nothing: who started it must see why, and not at every dial.
    fn warn(&mut self, now: Time, target: Target, reason: &str) {
        let Target::Manager(manager) = target else { return };
        let again = self.warned.is_none_or(|at| now.since(at) >= WARN_MICROS);
        if self.failures >= WARN_FAILURES && again {
            warn!(%manager, reason, "the manager is not reached");
            self.warned = Some(now);
        }
    }
}

/// Failures in a row before a person is told: more than a second, longer than a restart takes.
const WARN_FAILURES: u32 = 8;

/// Ten minutes between two warnings of one manager.
const WARN_MICROS: u64 = 600_000_000;

/// The pause after the first failure; it doubles up to a quarter of a second, so that a server that is back is
/// found well within a lease.
const PAUSE_MICROS_MIN: u64 = 10_000;
const PAUSE_DOUBLINGS_MAX: u32 = 5;
