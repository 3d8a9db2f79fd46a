//! [`Strangers`]: what the log says of connections and requests that were refused. Nobody may fill it with them.

use kumo_paxos::Time;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use tracing::warn;

/// Which refusals were told, by host and reason: each once, and then how many more there were in a period.
#[derive(Debug, Default)]
pub struct Strangers {
    /// With the number that came after the one that was told.
    told: BTreeMap<(IpAddr, String), u64>,
    /// Beyond the bounds: of whom and why is not remembered.
    others: u64,
    until: Option<Time>,
}

impl Strangers {
    pub fn tell(&mut self, now: Time, from: SocketAddr, what: &str, reason: &str) {
        if self.is_new(now, from.ip(), reason) {
            warn!(%from, reason, "{what}");
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        self.until
    }

    /// Tells the counts of a period that is over.
    pub fn expire(&mut self, now: Time) {
        if self.until.is_none_or(|until| now < until) {
            return;
        }
        for (from, reason, count) in self.turn(now) {
            match from {
                Some(from) => warn!(%from, reason, count, "refused again"),
                None => warn!(count, "others refused"),
            }
        }
    }

    /// Whether nothing like it was told in this period. Otherwise it is counted.
    fn is_new(&mut self, now: Time, host: IpAddr, reason: &str) -> bool {
        self.until.get_or_insert(now.plus_micros(PERIOD_MICROS));
        if let Some(count) = self.told.get_mut(&(host, reason.to_owned())) {
            *count += 1;
            return false;
        }
        // What a stranger sends may be in the reason: also one with ever new reasons has its bounds.
        let of_host = self.told.range((host, String::new())..).take_while(|((of, _), _)| *of == host).count();
        if of_host >= HOST_REASONS_MAX || self.told.len() >= REASONS_MAX {
            self.others += 1;
            return false;
        }
        self.told.insert((host, reason.to_owned()), 0);
        true
    }

    /// Ends a period: what there was more than told. Who goes on is counted on, who has stopped may be told anew.
    fn turn(&mut self, now: Time) -> Vec<(Option<IpAddr>, String, u64)> {
        self.told.retain(|_, count| *count > 0);
        let told = self.told.iter_mut();
        let mut counts: Vec<_> = told
            .map(|((host, reason), count)| (Some(*host), reason.clone(), std::mem::take(count)))
            .collect();
        if self.others > 0 {
            counts.push((None, String::new(), std::mem::take(&mut self.others)));
        }
        self.until = (!counts.is_empty()).then(|| now.plus_micros(PERIOD_MICROS));
        counts
    }
}

/// So often counts are told.
const PERIOD_MICROS: u64 = 60_000_000;

/// Reasons told of one host in a period: more than there are kinds of mistakes.
const HOST_REASONS_MAX: usize = 32;

/// Reasons told of all hosts: with the counts, a few lines a second.
const REASONS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time(7);
    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn the_same_is_told_once_and_then_counted() {
        let mut strangers = Strangers::default();
        let told = (0..1000).filter(|_| strangers.is_new(START, ONE, "wrong magic")).count();
        assert_eq!(told, 1);
        assert!(strangers.is_new(START, TWO, "wrong magic"));
        assert!(strangers.is_new(START, ONE, "not a greeting"));
        let later = START.plus_micros(PERIOD_MICROS);
        assert_eq!(strangers.deadline(), Some(later));
        assert_eq!(strangers.turn(later), [(Some(ONE), "wrong magic".to_owned(), 999)]);
        // Who goes on gets no new line, who stopped does.
        assert!(!strangers.is_new(later, ONE, "wrong magic"));
        assert!(strangers.is_new(later, ONE, "not a greeting"));
        let end = later.plus_micros(PERIOD_MICROS);
        assert_eq!(strangers.turn(end), [(Some(ONE), "wrong magic".to_owned(), 1)]);
        assert!(strangers.turn(end).is_empty() && strangers.deadline().is_none());
    }

    #[test]
    fn ever_new_reasons_are_bounded_and_do_not_hide_other_hosts() {
        let mut strangers = Strangers::default();
        let told =
            (0..1000).filter(|number| strangers.is_new(START, ONE, &format!("version {number}"))).count();
        assert_eq!(told, HOST_REASONS_MAX);
        assert!(strangers.is_new(START, TWO, "wrong magic"));
        let counts = strangers.turn(START.plus_micros(PERIOD_MICROS));
        assert_eq!(counts, [(None, String::new(), 1000 - HOST_REASONS_MAX as u64)]);
        let hosts = (0..=255).map(|low| IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, low)));
        let told = hosts.filter(|host| strangers.is_new(START, *host, "wrong magic")).count();
        assert_eq!(told, REASONS_MAX);
    }
}
