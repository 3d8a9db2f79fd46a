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
    /// Since when it is dialled, and no connection lasted.
    since: Option<Time>,
    /// Since when there is a connection.
    up: Option<Time>,
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
        self.wanted.entry(target).or_insert(Dial {
            at: Some(now),
            failures: 0,
            since: None,
            up: None,
            reason: None,
            warned: None,
        });
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
                dial.since.get_or_insert(now);
                targets.push(target);
            }
        }
        targets
    }

    pub fn succeeded(&mut self, now: Time, target: Target) {
        if let Some(dial) = self.wanted.get_mut(&target) {
            if dial.reason.take().is_some() {
                info!(?target, "connected again");
            }
            (dial.at, dial.up) = (None, Some(now));
        }
    }

    pub fn failed(&mut self, now: Time, target: Target, reason: String) {
        let jitter = self.jitter();
        let Some(dial) = self.wanted.get_mut(&target) else { return };
        // One that is greeted and closed again and again leads to nothing either.
        if dial.up.take().is_some_and(|up| now.since(up) >= LASTING_MICROS) {
            (dial.failures, dial.since, dial.warned) = (0, None, None);
        }
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
        if now.since(*self.since.get_or_insert(now)) >= WARN_AFTER_MICROS && again {
            warn!(%manager, reason, "the manager is not reached");
            self.warned = Some(now);
        }
    }
}

/// A connection that was of use.
const LASTING_MICROS: u64 = 1_000_000;

/// Before a person is told: longer than a restart takes.
const WARN_AFTER_MICROS: u64 = 1_250_000;

/// Ten minutes between two warnings of one manager.
const WARN_MICROS: u64 = 600_000_000;

/// The pause after the first failure; it doubles up to a quarter of a second, so that a server that is back is
/// found well within a lease.
const PAUSE_MICROS_MIN: u64 = 10_000;
const PAUSE_DOUBLINGS_MAX: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    const MANAGER: Target =
        Target::Manager(SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1));

    /// Dials of two seconds in which each connection lasts that long.
    fn dials(lasting: u64) -> usize {
        let (mut dials, mut now, mut count) = (Dials::new(7), Time(0), 0);
        dials.want(now, MANAGER);
        while now < Time(2_000_000) {
            now = now.max(dials.deadline().expect("it is dialled again"));
            count += dials.due(now).len();
            dials.succeeded(now, MANAGER);
            now = now.plus_micros(lasting);
            dials.failed(now, MANAGER, "closed".to_owned());
        }
        count
    }

    #[test]
    fn who_greets_and_hangs_up_is_not_dialled_all_the_time() {
        assert!(dials(100) < 15, "{}", dials(100));
        // Ten milliseconds after the end of one that lasted.
        assert_eq!(dials(999_999), 2);
        assert_eq!(dials(LASTING_MICROS), 2);
    }

    #[test]
    fn who_says_nothing_at_all_is_told_of_at_once() {
        let mut dials = Dials::new(7);
        dials.want(Time(0), MANAGER);
        dials.due(Time(0));
        dials.failed(Time(5_000_000), MANAGER, "no greeting".to_owned());
        assert_eq!(dials.wanted[&MANAGER].warned, Some(Time(5_000_000)));
    }
}
