//! What clients of a load may read: [`Register`] and [`Counter`] as the one who writes knows them, [`History`] as
//! whoever else reads may find it.

use std::collections::BTreeSet;

/// What one key may hold. A set or a delete without an answer may take effect at any time, once.
#[derive(Clone, Default)]
pub struct Register {
    /// 0 is no value.
    now: u64,
    unknown: BTreeSet<u64>,
    /// Without a known outcome.
    deletes: u64,
}

impl Register {
    pub fn sending(&mut self, number: u64) {
        self.unknown.insert(number);
    }

    pub fn stored(&mut self, number: u64) {
        self.unknown.remove(&number);
        self.now = number;
    }

    pub fn read(&mut self, key: &str, value: Option<u64>) {
        let found = value.unwrap_or(0);
        if found == 0 && self.now != 0 && self.deletes > 0 {
            self.deletes -= 1;
            self.now = 0;
        }
        if found != self.now {
            let seen = self.unknown.remove(&found);
            assert!(seen, "{key} is {found}, not {} or one of {:?}", self.now, self.unknown);
            self.now = found;
        }
    }

    pub fn deleting(&mut self) {
        self.deletes += 1;
    }

    /// A delete was answered. That there was nothing is true only of a key that may be without a value.
    pub fn deleted(&mut self, key: &str, was_there: bool) {
        self.deletes -= 1;
        match was_there {
            true => {
                let some = self.now != 0 || !self.unknown.is_empty();
                assert!(some, "{key} was deleted, but it had no value");
            }
            false => {
                let none = self.now == 0 || self.deletes > 0;
                assert!(none, "{key} is {}, but a delete found nothing", self.now);
            }
        }
        self.now = 0;
    }
}

/// A number that only grows.
#[derive(Clone, Default)]
pub struct Counter {
    pub acknowledged: u64,
    pub unknown: u64,
}

impl Counter {
    pub fn read(&self, key: &str, value: u64) {
        let most = self.acknowledged + self.unknown;
        assert!(
            (self.acknowledged..=most).contains(&value),
            "{key} is {value}, not {} to {most}",
            self.acknowledged
        );
    }
}

/// All writes of one key, numbered from 1 in the order in which its one client asked for them, one after another. The
/// value of a set is its number.
#[derive(Default)]
pub struct History {
    writes: Vec<Write>,
    /// The last write that was acknowledged, or seen by somebody.
    floor: u64,
}

struct Write {
    is_delete: bool,
    /// It may take effect at any later time.
    is_unknown: bool,
}

impl History {
    pub fn begin(&mut self, is_delete: bool) -> u64 {
        self.writes.push(Write { is_delete, is_unknown: false });
        self.writes.len() as u64
    }

    pub fn acknowledged(&mut self, number: u64) {
        self.floor = self.floor.max(number);
    }

    pub fn unknown(&mut self, number: u64) {
        self.writes[number as usize - 1].is_unknown = true;
    }

    /// What whoever begins to read now must find, if nothing newer.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Judges what was read by somebody who began when the floor was that.
    pub fn read(&mut self, key: &str, floor: u64, value: Option<u64>) {
        let newer = (floor..=self.writes.len() as u64).find(|&number| self.is(number, value));
        match newer {
            // From now on nobody may find less. Of several deletes it may have been the first.
            Some(number) => self.floor = self.floor.max(number),
            None => {
                let late = (1..floor).any(|number| self.is(number, value) && self.write(number).is_unknown);
                assert!(late, "{key} was read as {value:?}, which is older than write {floor}");
            }
        }
    }

    fn is(&self, number: u64, value: Option<u64>) -> bool {
        match (number, value) {
            // Before the first write there is nothing.
            (0, _) => value.is_none(),
            (_, None) => self.write(number).is_delete,
            (_, Some(value)) => value == number && !self.write(number).is_delete,
        }
    }

    fn write(&self, number: u64) -> &Write {
        &self.writes[number as usize - 1]
    }
}

/// Values are numbers.
pub fn number(value: Option<&str>) -> Option<u64> {
    value.map(|value| value.parse().expect("values are numbers"))
}

#[test]
#[should_panic(expected = "k was read as Some(1), which is older than write 3")]
fn what_was_overwritten_is_not_read_again() {
    let mut history = History::default();
    history.read("k", 0, None);
    let first = history.begin(false);
    // It is under way: seen or not, but not unseen again.
    history.read("k", 0, None);
    history.read("k", 0, Some(first));
    assert_eq!(history.floor(), first);
    history.acknowledged(first);
    let deleted = history.begin(true);
    history.unknown(deleted);
    let last = history.begin(false);
    history.acknowledged(last);
    let floor = history.floor();
    history.read("k", floor, Some(last));
    // The delete without an answer may come late; what it followed may not come back.
    history.read("k", floor, None);
    history.read("k", floor, Some(first));
}
