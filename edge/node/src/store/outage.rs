//! [`OutageWatch`]: when a server whose store refuses every record is given up.

use kumo_cluster::Fault;
use kumo_paxos::Time;

/// A full disk gets room again, and until then its server reads. What cannot be written for another reason, such as a
/// folder that is gone, leaves every write of this server's keys waiting for it: the others go on only when it is lost.
#[derive(Default)]
pub struct OutageWatch {
    since: Option<Time>,
}

impl OutageWatch {
    /// Looks at why the engine refuses records. A fault: it has for long, and this server had better end.
    pub fn given_up(&mut self, now: Time, failing: Option<Fault>) -> Option<Fault> {
        let Some(fault) = failing else {
            self.since = None;
            return None;
        };
        let since = *self.since.get_or_insert(now);
        (now.since(since) >= OUTAGE_MICROS).then_some(fault)
    }
}

/// How long it may last: want of descriptors or memory may be over soon, and writes wait no longer than for a server that
/// hangs.
const OUTAGE_MICROS: u64 = 3_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_given_up_and_what_passes_is_not() {
        let mut watch = OutageWatch::default();
        let fault = || Some(Fault::Io("create /store/7: no such file".to_owned()));
        let at = |millis: u64| Time(millis * 1_000);
        assert_eq!(watch.given_up(at(1_000), fault()), None);
        assert_eq!(watch.given_up(at(3_900), fault()), None);
        assert_eq!(watch.given_up(at(3_950), None), None, "it was over for a moment");
        assert_eq!(watch.given_up(at(4_000), fault()), None);
        assert_eq!(watch.given_up(at(6_999), fault()), None);
        assert_eq!(watch.given_up(at(7_000), fault()), fault());
    }
}
