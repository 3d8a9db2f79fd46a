//! [`TroubleWatch`]: says what fails behind the back of all requests: compaction, syncs at intervals, the room for notes.

use super::binary_log::{Value, record};
use kumo_cluster::Fault;
use kumo_paxos::Time;
use tracing::{error, info};

/// No request fails of it, so nobody else would hear of it.
#[derive(Default)]
pub struct TroubleWatch {
    told: Option<(Fault, Time)>,
    /// When it was last there.
    seen: Time,
}

impl TroubleWatch {
    /// Looks at what the engine says, and tells a person, once of each trouble and again in a while.
    pub fn look(&mut self, now: Time, trouble: Option<Fault>) {
        match self.judge(now, trouble) {
            Some(Said::Trouble(fault)) => {
                error!(%fault, "the store is in trouble in the background; requests are served");
                record("store trouble", || vec![("what", Value::text(fault))]);
            }
            Some(Said::Over) => info!("the store's trouble is over"),
            None => {}
        }
    }

    fn judge(&mut self, now: Time, trouble: Option<Fault>) -> Option<Said> {
        let Some(fault) = trouble else {
            // One job fails while another one does not: it is over when it stays away.
            let over = self.told.is_some() && now.since(self.seen) >= CALM_MICROS;
            return over.then(|| self.told = None).map(|()| Said::Over);
        };
        self.seen = now;
        let known =
            self.told.as_ref().is_some_and(|(told, at)| *told == fault && now.since(*at) < TELL_MICROS);
        if known {
            return None;
        }
        self.told = Some((fault.clone(), now));
        Some(Said::Trouble(fault))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Said {
    Trouble(Fault),
    Over,
}

/// Between two lines about the same trouble: often enough for whoever looks at the log, too rare to fill it.
const TELL_MICROS: u64 = 600_000_000;

/// How long trouble must stay away: longer than the engine takes to try everything again.
const CALM_MICROS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_is_told_once_and_its_end_when_it_stays_away() {
        let mut watch = TroubleWatch::default();
        let one = || Some(Fault::Io("sync /store/1: broken".to_owned()));
        let other = || Some(Fault::Full);
        let second = |count: u64| Time(count * 1_000_000);
        assert_eq!(watch.judge(second(1), None), None);
        assert_eq!(watch.judge(second(2), one()), one().map(Said::Trouble));
        assert_eq!(watch.judge(second(3), one()), None);
        // It comes and goes.
        assert_eq!(watch.judge(second(4), None), None);
        assert_eq!(watch.judge(second(5), one()), None);
        assert_eq!(watch.judge(second(6), other()), other().map(Said::Trouble));
        assert_eq!(watch.judge(second(15), None), None);
        assert_eq!(watch.judge(second(16), None), Some(Said::Over));
        assert_eq!(watch.judge(second(17), None), None);
        assert_eq!(watch.judge(second(18), one()), one().map(Said::Trouble));
        assert_eq!(watch.judge(second(618), one()), one().map(Said::Trouble), "again in a while");
    }
}
