//! [`CrowdWatch`]: says how many requests were refused because too many are under way, without a line for each.

use kumo_paxos::Time;
use tracing::warn;

/// Of one worker.
#[derive(Default)]
pub struct CrowdWatch {
    told: Option<Time>,
    /// Refused, and not told of yet.
    refused: u64,
}

impl CrowdWatch {
    /// Whether this one is to be in the binary log: a client that asks for too much must not fill the disk.
    pub fn refused(&mut self) -> bool {
        self.refused += 1;
        self.refused <= RECORDED_MAX
    }

    /// Tells a person of those that came together.
    pub fn look(&mut self, now: Time) {
        if let Some(requests) = self.judge(now) {
            let unrecorded = requests.saturating_sub(RECORDED_MAX);
            warn!(requests, unrecorded, "refused: too many requests under way");
        }
    }

    fn judge(&mut self, now: Time) -> Option<u64> {
        if self.refused == 0 || self.told.is_some_and(|told| now.since(told) < TELL_MICROS) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.refused))
    }
}

/// Requests that are recorded for each line of the text log.
const RECORDED_MAX: u64 = 256;

/// Between two lines: a gateway may refuse very many in a second.
const TELL_MICROS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_lines_are_rare() {
        let mut watch = CrowdWatch::default();
        assert_eq!(watch.judge(Time(0)), None);
        let (mut told, mut recorded) = (Vec::new(), 0);
        for second in 0..30 {
            recorded += (0..100).filter(|_| watch.refused()).count();
            told.extend(watch.judge(Time(second * 1_000_000)));
        }
        told.extend(watch.judge(Time(60_000_000)));
        assert_eq!(told, [100, 1000, 1000, 900]);
        assert_eq!(recorded, 100 + 3 * 256);
    }
}
