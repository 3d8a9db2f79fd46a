//! Linearizability of one key, after Wing and Gong: search an order of the calls that fits their times and their
//! answers, remembering the dead ends.

use super::Verdict;
use super::steps::{Act, Step, blur_unseen, clock_of, explain, in_likely_order, settle_seen, twins};
use crate::check::fingerprint;
use crate::store::history::{Call, Flush, Loss};
use bytes::Bytes;
use kumo_cluster::{Answer, Operation, Reply};
use std::collections::{BTreeMap, HashSet};

/// Whether some order of the calls, and of the flushes of the key, explains all answers. A value whose expiry is below
/// `far` may vanish, and after a loss the key is as it was at some moment of it, or is gone.
pub fn check<'a>(
    calls: impl Iterator<Item = &'a Call>,
    flushes: impl Iterator<Item = &'a Flush>,
    losses: &[Loss],
    far: i64,
) -> Verdict {
    let mut steps: Vec<Step> = calls.filter_map(Step::of).chain(flushes.filter_map(Step::of_flush)).collect();
    steps.extend(losses.iter().flat_map(Step::of_loss));
    settle_seen(&mut steps);
    blur_unseen(&mut steps, far);
    in_likely_order(&mut steps);
    // Few of the unknown calls explain most of what was seen: whoever tries many of them first searches long.
    for run_max in [1, 3, usize::MAX] {
        let mut search = Search::new(&steps, far, run_max);
        let mut done = vec![0u64; steps.len().div_ceil(64)];
        match search.place(&mut done, State::default(), None, 0) {
            Outcome::Found => break,
            Outcome::None | Outcome::TooMuch if run_max < usize::MAX => {}
            Outcome::None => return Err(explain(&steps, search.placed, search.stuck)),
            Outcome::TooMuch => {
                let why = explain(&steps, search.placed, search.stuck);
                return Err(format!("given up after {STATES_MAX} states: {why}"));
            }
        }
    }
    Ok(())
}

/// What a key holds, and what it would hold after the loss of power that comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    now: Version,
    kept: Option<Version>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Version {
    /// 0: nothing.
    content: u32,
    /// The version's, or one that it is not below.
    clock: u64,
    /// It is the version's: somebody was told.
    told: bool,
    flags: u32,
    /// It may vanish.
    fleeting: bool,
}

impl Version {
    fn may_have(&self, clock: u64) -> bool {
        if self.told { self.clock == clock } else { self.clock <= clock }
    }
}

/// What came before the unknown calls that were placed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Before {
    state: State,
    /// How many they are.
    run: usize,
}

enum Outcome {
    Found,
    None,
    TooMuch,
}

struct Search<'a> {
    steps: &'a [Step<'a>],
    twins: Vec<Option<usize>>,
    far: i64,
    /// Unknown calls that are placed one after another.
    run_max: usize,
    contents: Vec<Bytes>,
    numbers: BTreeMap<Bytes, u32>,
    /// Fingerprints of the places seen.
    dead: HashSet<u128>,
    /// The most calls that could be put into order, and the first that could not then: for the explanation.
    placed: usize,
    stuck: usize,
}

impl<'a> Search<'a> {
    fn new(steps: &'a [Step<'a>], far: i64, run_max: usize) -> Search<'a> {
        let contents = vec![Bytes::new()];
        Search {
            steps,
            twins: twins(steps),
            far,
            run_max,
            contents,
            numbers: BTreeMap::new(),
            dead: HashSet::new(),
            placed: 0,
            stuck: 0,
        }
    }

    /// Puts the remaining calls into order from here, if that can be done. What is unknown is only worth placing for
    /// the sake of what comes next: `before` is the state before the last unknown ones, in which the next did not fit.
    fn place(&mut self, done: &mut Vec<u64>, state: State, before: Option<Before>, count: usize) -> Outcome {
        let open = |done: &[u64], index: usize| done[index / 64] >> (index % 64) & 1 == 0;
        let must = |index: &usize| open(done, *index) && !self.steps[*index].is_open();
        // Nothing may come before a call that was over before it began.
        let earliest = (0..self.steps.len()).filter(must).min_by_key(|&index| self.steps[index].settled);
        let Some(first) = earliest else { return Outcome::Found };
        let bound = self.steps[first].settled;
        if count > self.placed {
            (self.placed, self.stuck) = (count, first);
        }
        if self.dead.len() > STATES_MAX {
            return Outcome::TooMuch;
        }
        if !self.dead.insert(fingerprint(&(&*done, state, before))) {
            return Outcome::None;
        }
        let may = |step: &Step, index: usize| open(done, index) && step.invoked <= bound;
        let candidates: Vec<usize> =
            (0..self.steps.len()).filter(|&index| may(&self.steps[index], index)).collect();
        // What fits and changes nothing may as well stand here: no other order would do better. A flush that finds
        // nothing may have been meant for what comes.
        for &index in &candidates {
            let step = &self.steps[index];
            if !step.is_open() && step.act == Act::Call && self.fits(state, before, step) == Some(state) {
                return self.place_one(done, index, state, None, count);
            }
        }
        for index in candidates {
            let step = &self.steps[index];
            let run = before.map_or(0, |before| before.run);
            if self.twins[index].is_some_and(|twin| open(done, twin)) || step.is_open() && run >= self.run_max
            {
                continue;
            }
            let Some(next) = self.fits(state, before, step) else { continue };
            let state = before.map_or(state, |before| before.state);
            // Where their number is not limited it is no part of the place.
            let run = if self.run_max == usize::MAX { 0 } else { run + 1 };
            let before = step.is_open().then_some(Before { state, run });
            let found = self.place_one(done, index, next, before, count);
            if matches!(found, Outcome::Found | Outcome::TooMuch) {
                return found;
            }
        }
        Outcome::None
    }

    fn place_one(
        &mut self,
        done: &mut Vec<u64>,
        index: usize,
        next: State,
        before: Option<Before>,
        count: usize,
    ) -> Outcome {
        done[index / 64] |= 1 << (index % 64);
        let found = self.place(done, next, before, count + 1);
        done[index / 64] &= !(1 << (index % 64));
        found
    }

    /// The state after that step, if it is worth placing: what is known must not have fitted before the unknown ones
    /// that were placed for it.
    fn fits(&mut self, state: State, before: Option<Before>, step: &Step) -> Option<State> {
        let next = self.after(state, step)?;
        // What is kept, is kept with the unknown ones before it or without them. What is appended to nothing shows
        // that all before it was deleted, by calls that nothing else shows.
        let anew = matches!(*step.operation, Operation::Append { .. })
            && self.contents[state.now.content as usize].is_empty();
        let early = before
            .filter(|_| !step.is_open() && step.act != Act::Kept && !anew)
            .is_some_and(|before| self.after(before.state, step).is_some());
        (!early).then_some(next)
    }

    fn after(&mut self, state: State, step: &Step) -> Option<State> {
        let State { now, kept } = state;
        match step.act {
            Act::Call => self.called(now, step).map(|now| State { now, kept }),
            Act::Flushed => Some(State { now: Version::default(), kept }),
            Act::Kept => Some(State { now, kept: Some(now) }),
            Act::Back => kept.map(|now| State { now, kept: None }),
            Act::Gone => Some(State { now: Version::default(), kept }),
        }
    }

    /// The version after that call, if the call gives its answer in this one; of an unknown call, if it changes
    /// anything.
    fn called(&mut self, state: Version, step: &Step) -> Option<Version> {
        let next = match step.answer {
            None => self.effect(state, &step.operation, None).filter(|next| *next != state),
            Some(answer) => self.answered(state, &step.operation, answer),
        };
        if next.is_some() || !state.fleeting || state.content == 0 {
            return next;
        }
        self.called(Version::default(), step)
    }

    fn answered(&mut self, state: Version, operation: &Operation, answer: &Answer) -> Option<Version> {
        let there = state.content != 0;
        let holds = match (answer, operation) {
            (Answer::Reply(reply), Operation::Get) => return self.seen(state, reply),
            (Answer::Reply(reply), _) => return self.effect(state, operation, Some(reply)),
            (Answer::Missing, _) => !there,
            (Answer::NotStored, Operation::Add { .. }) => there,
            (
                Answer::NotStored,
                Operation::Append { .. } | Operation::Prepend { .. } | Operation::Replace { .. },
            ) => !there,
            (Answer::Exists, _) => {
                let other = |unique| !state.told || state.clock != unique;
                there && operation_unique(operation).is_some_and(other)
            }
            (Answer::NotNumeric, _) => there && self.number(state).is_none(),
            (Answer::NotStored | Answer::TooLarge | Answer::WrongSpace { .. }, _) => false,
            (Answer::Wait | Answer::Unknown | Answer::Refused { .. }, _) => false,
        };
        holds.then_some(state)
    }

    /// What a read showed is what is there.
    fn seen(&mut self, state: Version, reply: &Reply) -> Option<Version> {
        let Reply::Value { clock, flags, data, .. } = reply else { return None };
        let same = state.content != 0
            && self.contents[state.content as usize] == *data
            && state.flags == *flags
            && state.may_have(*clock);
        same.then_some(Version { clock: *clock, told: true, ..state })
    }

    /// What a write leaves behind, if its condition holds; with its reply, if that is right.
    fn effect(&mut self, state: Version, operation: &Operation, reply: Option<&Reply>) -> Option<Version> {
        let there = state.content != 0;
        // A version's clock is above that of the version it replaces.
        let (clock, told) = match reply {
            Some(reply) => (clock_of(reply), true),
            None => (state.clock + 1, false),
        };
        if there && clock <= state.clock {
            return None;
        }
        if operation_unique(operation).is_some_and(|unique| !there || !state.may_have(unique)) {
            return None;
        }
        let state = Version { clock, told, ..state };
        let old = self.contents[state.content as usize].clone();
        match operation {
            Operation::Get => None,
            Operation::Set { flags, expiry, data } => self.version(state, data, *flags, *expiry),
            Operation::Add { flags, expiry, data } if !there => self.version(state, data, *flags, *expiry),
            Operation::Replace { flags, expiry, data } | Operation::Cas { flags, expiry, data, .. }
                if there =>
            {
                self.version(state, data, *flags, *expiry)
            }
            Operation::Append { data, .. } if there => {
                let content = self.content([&old[..], data].concat().into());
                Some(Version { content, ..state })
            }
            Operation::Prepend { data, .. } if there => {
                let content = self.content([data, &old[..]].concat().into());
                Some(Version { content, ..state })
            }
            Operation::Delete { .. } if there => Some(Version::default()),
            Operation::Touch { expiry } if there => {
                let right = match reply {
                    // Its flags are not looked at: writes that no read saw are all taken for the same one.
                    Some(Reply::Touched { .. }) => true,
                    Some(Reply::Done { .. } | Reply::Number { .. } | Reply::Value { .. }) => false,
                    None => true,
                };
                right.then_some(Version { fleeting: self.fleeting(*expiry), ..state })
            }
            Operation::GetAndTouch { expiry } if there => {
                let shown = match reply {
                    Some(Reply::Value { data, flags, .. }) => *data == old && *flags == state.flags,
                    Some(Reply::Done { .. } | Reply::Number { .. } | Reply::Touched { .. }) => false,
                    None => true,
                };
                shown.then_some(Version { fleeting: self.fleeting(*expiry), ..state })
            }
            Operation::Add64 { delta, initial, .. } => {
                let number = match (there, initial) {
                    (true, _) => self.number(state)?.wrapping_add(*delta),
                    (false, Some(initial)) => initial.value,
                    (false, None) => return None,
                };
                if matches!(reply, Some(Reply::Number { number: told, .. }) if *told != number) {
                    return None;
                }
                let content = self.content(number.to_string().into());
                Some(Version { content, ..state })
            }
            Operation::Add { .. }
            | Operation::Replace { .. }
            | Operation::Cas { .. }
            | Operation::Append { .. }
            | Operation::Prepend { .. }
            | Operation::Delete { .. }
            | Operation::Touch { .. }
            | Operation::GetAndTouch { .. } => None,
        }
    }

    fn version(&mut self, state: Version, data: &Bytes, flags: u32, expiry: i64) -> Option<Version> {
        let (content, fleeting) = (self.content(data.clone()), self.fleeting(expiry));
        Some(Version { content, flags, fleeting, ..state })
    }

    fn fleeting(&self, expiry: i64) -> bool {
        expiry != 0 && expiry < self.far
    }

    fn number(&self, state: Version) -> Option<u64> {
        std::str::from_utf8(&self.contents[state.content as usize]).ok()?.parse().ok()
    }

    /// Contents are numbered from 1.
    fn content(&mut self, data: Bytes) -> u32 {
        if let Some(number) = self.numbers.get(&data) {
            return *number;
        }
        let number = self.contents.len() as u32;
        self.contents.push(data.clone());
        self.numbers.insert(data, number);
        number
    }
}

fn operation_unique(operation: &Operation) -> Option<u64> {
    match operation {
        Operation::Cas { unique, .. } => Some(*unique),
        Operation::Append { unique, .. }
        | Operation::Prepend { unique, .. }
        | Operation::Delete { unique }
        | Operation::Add64 { unique, .. } => *unique,
        Operation::Get
        | Operation::GetAndTouch { .. }
        | Operation::Set { .. }
        | Operation::Add { .. }
        | Operation::Replace { .. }
        | Operation::Touch { .. } => None,
    }
}

/// States visited before the search is given up: some hundred megabytes.
const STATES_MAX: usize = 3_000_000;

#[cfg(test)]
mod tests {
    use super::super::samples::{FAR, call, done, flush, get, perhaps, set, value, verdict};
    use super::*;
    use crate::store::history::token;

    #[test]
    fn overlapping_sets_go_the_way_of_their_clocks() {
        let calls = [call((0, 10), set(1), done(5)), call((5, 15), set(2), done(4)), get((20, 25), 5, 1)];
        verdict(&calls).unwrap();
        let calls = [call((0, 10), set(1), done(4)), call((5, 15), set(2), done(5)), get((20, 25), 4, 1)];
        verdict(&calls).unwrap_err();
    }

    #[test]
    fn a_stale_read_is_found() {
        let calls = [call((0, 10), set(1), done(4)), call((11, 15), set(2), done(5)), get((20, 25), 4, 1)];
        verdict(&calls).unwrap_err();
    }

    #[test]
    fn an_unknown_set_may_come_late_or_never_but_does_not_go_away() {
        let late = [
            call((0, 10), set(1), done(4)),
            perhaps(11, set(2)),
            get((20, 25), 4, 1),
            get((30, 35), 6, 2),
            get((40, 45), 4, 1),
        ];
        verdict(&late[..3]).unwrap();
        verdict(&late[..4]).unwrap();
        verdict(&late).unwrap_err();
    }

    #[test]
    fn deleted_stays_deleted() {
        let delete = Operation::Delete { unique: None };
        let calls = [
            call((0, 10), set(1), done(4)),
            call((11, 12), delete, done(5)),
            call((13, 14), Operation::Get, Answer::Missing),
            get((15, 16), 4, 1),
        ];
        verdict(&calls[..3]).unwrap();
        verdict(&calls).unwrap_err();
    }

    #[test]
    fn a_flush_that_is_done_has_deleted_what_was_there_before_it() {
        let calls = [call((0, 10), set(1), done(4)), get((50, 60), 4, 1)];
        check(calls.iter(), [flush(20, Some(30))].iter(), &[], FAR).unwrap_err();
        // They overlap: the flush was first.
        check(calls.iter(), [flush(5, Some(30))].iter(), &[], FAR).unwrap();
        // Nobody knows whether it was.
        check(calls.iter(), [flush(20, None)].iter(), &[], FAR).unwrap();
    }

    #[test]
    fn a_flush_deletes_once() {
        let missing = |times| call(times, Operation::Get, Answer::Missing);
        let calls = [
            call((0, 10), set(1), done(4)),
            missing((31, 40)),
            call((41, 50), set(2), done(5)),
            missing((51, 60)),
        ];
        for settled in [Some(30), None] {
            check(calls[..3].iter(), [flush(20, settled)].iter(), &[], FAR).unwrap();
            check(calls.iter(), [flush(20, settled)].iter(), &[], FAR).unwrap_err();
            check(calls.iter(), [flush(20, settled), flush(21, None)].iter(), &[], FAR).unwrap();
        }
    }

    #[test]
    fn what_builds_on_the_value_before_is_before_the_flush_or_finds_nothing() {
        let append = Operation::Append { unique: None, data: token(2) };
        let calls = [
            call((0, 10), set(1), done(4)),
            call((20, 40), append.clone(), done(5)),
            call((50, 60), Operation::Get, value(5, b"<1><2>")),
        ];
        check(calls.iter(), [flush(15, Some(45))].iter(), &[], FAR).unwrap_err();
        let gone = [calls[0].clone(), calls[1].clone(), call((50, 60), Operation::Get, Answer::Missing)];
        check(gone.iter(), [flush(15, Some(45))].iter(), &[], FAR).unwrap();
        let late = [calls[0].clone(), call((20, 40), append, Answer::NotStored)];
        check(late.iter(), [flush(15, Some(45))].iter(), &[], FAR).unwrap();
    }

    #[test]
    fn an_append_may_follow_a_flush_and_an_add_that_nobody_knows_of() {
        let add = Operation::Add { flags: 0, expiry: 0, data: Bytes::new() };
        let append = |number| Operation::Append { unique: None, data: token(number) };
        let calls = [
            call((0, 10), add.clone(), done(4)),
            call((11, 12), append(1), done(5)),
            perhaps(13, add),
            call((20, 30), append(2), done(6)),
            call((40, 50), Operation::Get, value(6, b"<2>")),
        ];
        check(calls.iter(), [flush(14, None)].iter(), &[], FAR).unwrap();
        verdict(&calls).unwrap_err();
    }

    #[test]
    fn one_version_has_one_winner() {
        let cas = |number| Operation::Cas { unique: 4, flags: 0, expiry: 0, data: token(number) };
        let calls = [
            call((0, 10), set(1), done(4)),
            call((11, 30), cas(2), done(5)),
            call((12, 31), cas(3), Answer::Exists),
        ];
        verdict(&calls).unwrap();
        let calls = [calls[0].clone(), calls[1].clone(), call((12, 31), cas(3), done(6))];
        verdict(&calls).unwrap_err();
    }

    #[test]
    fn counting_twice_is_found() {
        let up = || Operation::Add64 { unique: None, delta: 3, down: false, initial: None, touch: None };
        let number = |clock, number| Answer::Reply(Reply::Number { clock, number, ttl: None });
        let zero = Operation::Set { flags: 0, expiry: 0, data: Bytes::from_static(b"0") };
        let calls = [call((0, 1), zero, done(1)), perhaps(2, up()), call((5, 6), up(), number(3, 6))];
        verdict(&calls).unwrap();
        let twice = [calls[0].clone(), calls[1].clone(), call((5, 6), up(), number(4, 9))];
        verdict(&twice).unwrap_err();
    }

    #[test]
    fn an_append_needs_something_to_append_to() {
        let append = |number| Operation::Append { unique: None, data: token(number) };
        let calls = [
            call((0, 1), append(1), Answer::NotStored),
            call((2, 3), set(2), done(2)),
            call((4, 5), append(3), done(3)),
            call((6, 7), Operation::Get, value(3, b"<2><3>")),
        ];
        verdict(&calls).unwrap();
        let calls = [calls[0].clone(), call((2, 3), append(3), done(3))];
        verdict(&calls).unwrap_err();
    }

    #[test]
    fn what_may_vanish_does_not_come_back() {
        let fleeting = Operation::Set { flags: 0, expiry: FAR - 1, data: token(1) };
        let calls = [
            call((0, 1), fleeting, done(2)),
            get((2, 3), 2, 1),
            call((4, 5), Operation::Get, Answer::Missing),
            get((6, 7), 2, 1),
        ];
        verdict(&calls[..3]).unwrap();
        verdict(&calls).unwrap_err();
        let lasting = [call((0, 1), set(1), done(2)), call((4, 5), Operation::Get, Answer::Missing)];
        verdict(&lasting).unwrap_err();
    }
}
