//! [`FailureWatch`]: of requests that failed together the first are named in the logs, and the others counted.

use kumo_cluster::GatewayError;
use kumo_paxos::Time;
use tracing::warn;

/// Of one worker.
#[derive(Default)]
pub struct FailureWatch {
    told: Option<Time>,
    since: Failures,
}

/// Not told of yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Failures {
    /// Too many were under way.
    refused: u64,
    /// For any other reason: all servers of their keys are lost, say.
    failed: u64,
}

impl FailureWatch {
    /// Whether this one is to be named: whoever asks on and on for what cannot be done must not fill the disk.
    pub fn failed(&mut self, error: &GatewayError) -> bool {
        let count = match error {
            GatewayError::Busy => &mut self.since.refused,
            _ => &mut self.since.failed,
        };
        *count += 1;
        *count <= NAMED_MAX
    }

    /// Tells a person of those that came together.
    pub fn look(&mut self, now: Time) {
        let Failures { refused, failed } = self.judge(now);
        if refused > 0 {
            let unrecorded = refused.saturating_sub(NAMED_MAX);
            warn!(requests = refused, unrecorded, "refused: too many requests under way");
        }
        if failed > NAMED_MAX {
            warn!(requests = failed - NAMED_MAX, "more requests failed than are named");
        }
    }

    fn judge(&mut self, now: Time) -> Failures {
        if self.since == Failures::default() || self.told.is_some_and(|told| now.since(told) < TELL_MICROS) {
            return Failures::default();
        }
        self.told = Some(now);
        std::mem::take(&mut self.since)
    }
}

/// Requests that are named between two looks.
const NAMED_MAX: u64 = 256;

/// Between two looks: very many may fail in a second.
const TELL_MICROS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_first_are_named() {
        let mut watch = FailureWatch::default();
        assert_eq!(watch.judge(Time(0)), Failures::default());
        let (mut told, mut named) = (Vec::new(), [0, 0]);
        for second in 0..30 {
            named[0] += (0..100).filter(|_| watch.failed(&GatewayError::Busy)).count();
            named[1] += (0..1000).filter(|_| watch.failed(&GatewayError::AllLost)).count();
            told.push(watch.judge(Time(second * 1_000_000)));
        }
        told.push(watch.judge(Time(60_000_000)));
        told.retain(|one| *one != Failures::default());
        let counts: Vec<(u64, u64)> = told.iter().map(|one| (one.refused, one.failed)).collect();
        assert_eq!(counts, [(100, 1000), (1000, 10_000), (1000, 10_000), (900, 9000)]);
        assert_eq!(named, [100 + 3 * 256, 4 * 256]);
    }
}
