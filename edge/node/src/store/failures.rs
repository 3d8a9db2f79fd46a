//! [`FailureWatch`]: of requests that failed together the first are named in the text log, and the others counted.

use kumo_cluster::{GatewayError, Operation};
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
    reads: u64,
    writes: u64,
}

impl FailureWatch {
    /// Whether this one is to be named: whoever asks on and on for what cannot be done must not fill the disk.
    pub fn failed(&mut self, operation: &Operation, error: &GatewayError) -> bool {
        let count = match (error, operation) {
            (GatewayError::Busy, _) => &mut self.since.refused,
            (_, Operation::Get) => &mut self.since.reads,
            _write => &mut self.since.writes,
        };
        *count += 1;
        *count <= NAMED_MAX
    }

    /// Tells a person of those that came together.
    pub fn look(&mut self, now: Time) {
        let Failures { refused, reads, writes } = self.judge(now);
        if refused > 0 {
            let unrecorded = refused.saturating_sub(NAMED_MAX);
            warn!(requests = refused, unrecorded, "refused: too many requests under way");
        }
        let unnamed = reads.saturating_sub(NAMED_MAX) + writes.saturating_sub(NAMED_MAX);
        if unnamed > 0 {
            warn!(requests = unnamed, "more requests failed than are named");
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
        let (mut told, mut named) = (Vec::new(), [0, 0, 0]);
        let delete = Operation::Delete { unique: None };
        for second in 0..30 {
            named[0] += (0..100).filter(|_| watch.failed(&delete, &GatewayError::Busy)).count();
            named[1] += (0..1000).filter(|_| watch.failed(&Operation::Get, &GatewayError::AllLost)).count();
            named[2] += (0..10).filter(|_| watch.failed(&delete, &GatewayError::AllLost)).count();
            told.push(watch.judge(Time(second * 1_000_000)));
        }
        told.push(watch.judge(Time(60_000_000)));
        told.retain(|one| *one != Failures::default());
        let counts: Vec<[u64; 3]> = told.iter().map(|one| [one.refused, one.reads, one.writes]).collect();
        let whole = [1000, 10_000, 100];
        assert_eq!(counts, [[100, 1000, 10], whole, whole, [900, 9000, 90]]);
        assert_eq!(named, [100 + 3 * 256, 4 * 256, 300], "reads do not crowd out writes");
    }
}
