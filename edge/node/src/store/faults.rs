//! [`FaultWatch`]: which faults of a store the logs were told of lately. What is tried again and again, on a disk that is
//! full or damaged, fails again and again: once a minute is enough.

use kumo_paxos::Time;
use std::collections::BTreeMap;

/// Of one server.
#[derive(Default)]
pub struct FaultWatch {
    told: BTreeMap<String, Time>,
}

impl FaultWatch {
    /// Whether that was not told lately.
    pub fn is_news(&mut self, now: Time, what: &str) -> bool {
        if self.told.get(what).is_some_and(|told| now.since(*told) < TELL_MICROS) {
            return false;
        }
        self.told.retain(|_, told| now.since(*told) < TELL_MICROS);
        // Ever new ones, of a disk that fails everywhere: there are enough of them in the log.
        let news = self.told.len() < TOLD_MAX;
        if news {
            self.told.insert(what.to_owned(), now);
        }
        news
    }
}

/// Between two lines that say the same.
const TELL_MICROS: u64 = 60_000_000;

/// Lines in that time that say different things.
const TOLD_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_a_minute_and_not_too_much_of_all() {
        let mut watch = FaultWatch::default();
        let told = (0..180).filter(|second| watch.is_news(Time(second * 1_000_000), "full")).count();
        assert_eq!(told, 3);
        let later = Time(1_000_000_000);
        let told = (0..1000).filter(|number| watch.is_news(later, &format!("damaged at {number}"))).count();
        assert_eq!(told, TOLD_MAX);
    }
}
