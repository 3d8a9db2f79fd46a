//! Linearizability of one register: a file that is written, compared, deleted and read as a whole.

use super::Verdict;
use super::order::{self, Object};
use std::collections::{BTreeMap, BTreeSet};

/// A file's content: a number that no two writes share. [`ABSENT`]: no file.
pub type Value = u64;

/// No file.
pub const ABSENT: Value = 0;

/// One operation on the register.
pub type Step = order::Step<Action>;

/// What the operation did, as its result says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Write(Value),
    /// Written because the file had that version (0: was not there).
    CompareAndWrite {
        version: u64,
        value: Value,
    },
    /// Refused, because the file had this version.
    Mismatch {
        actual: u64,
    },
    Delete,
    /// Read, or refused because it is absent.
    Read(Value),
}

/// Whether some order of the steps explains all results. `versions`: of each value that anybody saw. A version
/// that only a refusal named belongs to a value that nobody saw.
pub fn check(steps: &[Step], versions: &BTreeMap<Value, u64>) -> Verdict {
    order::check(&Register { versions }, &ABSENT, relevant(steps, versions))
}

/// Leaves out what cannot help to explain anything: writes of unknown outcome whose value nobody
/// saw, unless something was there that nobody saw.
fn relevant(steps: &[Step], versions: &BTreeMap<Value, u64>) -> Vec<Step> {
    let mut seen: BTreeSet<Value> = BTreeSet::new();
    let mut unseen = false;
    for step in steps {
        match &step.action {
            Action::Read(value) => {
                seen.insert(*value);
            }
            Action::CompareAndWrite { version: expected, .. } | Action::Mismatch { actual: expected } => {
                let same = versions.iter().filter(|(_, version)| *version == expected);
                seen.extend(same.map(|(value, _)| *value));
                unseen |= *expected != 0 && !versions.values().any(|version| version == expected);
            }
            // There was something to delete, whatever it was.
            Action::Delete => unseen = true,
            Action::Write(_) => {}
        }
    }
    let helps = |step: &&Step| match &step.action {
        Action::Write(value) | Action::CompareAndWrite { value, .. } => {
            !step.unclear || unseen || seen.contains(value)
        }
        Action::Read(_) | Action::Mismatch { .. } => !step.unclear,
        Action::Delete => true,
    };
    steps.iter().filter(helps).cloned().collect()
}

/// A file that holds one value.
struct Register<'a> {
    versions: &'a BTreeMap<Value, u64>,
}

impl Object for Register<'_> {
    type State = Value;
    type Action = Action;

    fn after(&self, value: &Value, action: &Action) -> Option<Value> {
        let value = *value;
        let is = |expected: &u64| match self.versions.get(&value) {
            _ if value == ABSENT => *expected == 0,
            Some(version) => version == expected,
            None => *expected != 0 && !self.versions.values().any(|version| version == expected),
        };
        match action {
            Action::Write(new) => Some(*new),
            Action::CompareAndWrite { version: expected, value: new } => is(expected).then_some(*new),
            Action::Mismatch { actual } => is(actual).then_some(value),
            Action::Delete => (value != ABSENT).then_some(ABSENT),
            Action::Read(seen) => (*seen == value).then_some(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(invoked: u64, settled: u64, action: Action) -> Step {
        Step { invoked, settled: Some(settled), unclear: false, turn: None, action }
    }

    fn perhaps(invoked: u64, settled: Option<u64>, action: Action) -> Step {
        Step { invoked, settled, unclear: true, turn: None, action }
    }

    fn versions() -> BTreeMap<Value, u64> {
        (1..10).map(|value| (value, value * 10)).collect()
    }

    #[test]
    fn overlapping_writes_may_go_either_way() {
        let steps = [
            step(0, 10, Action::Write(1)),
            step(5, 15, Action::Write(2)),
            step(20, 25, Action::Read(1)),
            step(20, 25, Action::Read(1)),
        ];
        check(&steps, &versions()).unwrap();
    }

    #[test]
    fn a_stale_read_is_found() {
        let steps =
            [step(0, 10, Action::Write(1)), step(11, 15, Action::Write(2)), step(20, 25, Action::Read(1))];
        check(&steps, &versions()).unwrap_err();
    }

    #[test]
    fn a_value_that_comes_and_goes_is_found() {
        let steps = [
            step(0, 10, Action::Write(1)),
            perhaps(11, None, Action::Write(2)),
            step(20, 25, Action::Read(2)),
            step(30, 35, Action::Read(1)),
        ];
        check(&steps, &versions()).unwrap_err();
    }

    #[test]
    fn an_unknown_write_may_come_late_or_never() {
        let late = [
            step(0, 10, Action::Write(1)),
            perhaps(11, None, Action::Write(2)),
            step(20, 25, Action::Read(1)),
            step(30, 35, Action::Read(2)),
        ];
        check(&late, &versions()).unwrap();
        check(&late[..3], &versions()).unwrap();
    }

    #[test]
    fn what_was_over_may_not_come_late() {
        let steps = [
            step(0, 10, Action::Write(1)),
            perhaps(11, Some(15), Action::Write(2)),
            step(20, 25, Action::Read(1)),
            step(30, 35, Action::Read(2)),
        ];
        check(&steps, &versions()).unwrap_err();
    }

    #[test]
    fn two_winners_of_one_version_are_found() {
        let swap = |value| Action::CompareAndWrite { version: 10, value };
        let steps = [step(0, 10, Action::Write(1)), step(11, 30, swap(2)), step(12, 31, swap(3))];
        check(&steps[..2], &versions()).unwrap();
        check(&steps, &versions()).unwrap_err();
    }

    #[test]
    fn a_refusal_must_name_the_version_there_was() {
        let steps = [step(0, 10, Action::Write(1)), step(11, 12, Action::Mismatch { actual: 10 })];
        check(&steps, &versions()).unwrap();
        let steps = [step(0, 10, Action::Write(1)), step(11, 12, Action::Mismatch { actual: 20 })];
        check(&steps, &versions()).unwrap_err();
    }

    #[test]
    fn a_version_that_only_a_refusal_named_is_that_of_an_unseen_write() {
        let steps = [
            step(0, 10, Action::Write(1)),
            perhaps(11, None, Action::Write(99)),
            step(20, 25, Action::Mismatch { actual: 15 }),
        ];
        check(&steps, &versions()).unwrap();
        check(&[steps[0].clone(), steps[2].clone()], &versions()).unwrap_err();
    }

    #[test]
    fn what_was_deleted_may_be_an_unseen_write() {
        let steps = [perhaps(0, None, Action::Write(99)), step(20, 25, Action::Delete)];
        check(&steps, &versions()).unwrap();
        check(&steps[1..], &versions()).unwrap_err();
    }

    #[test]
    fn deleted_stays_deleted() {
        let steps = [
            step(0, 10, Action::Write(1)),
            step(11, 12, Action::Delete),
            step(13, 14, Action::Read(ABSENT)),
            step(15, 16, Action::Read(1)),
        ];
        check(&steps[..3], &versions()).unwrap();
        check(&steps, &versions()).unwrap_err();
    }
}
