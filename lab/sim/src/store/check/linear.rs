//! Linearizability of one key, after Wing and Gong: search an order of the calls that fits their times and their
//! answers, remembering the dead ends.

use super::Verdict;
use crate::store::history::{Call, Ending, tokens};
use bytes::Bytes;
use kumo_cluster::{Answer, Operation, Reply};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// Whether some order of the calls explains all answers. A value whose expiry is below `far` may vanish.
pub fn check<'a>(calls: impl Iterator<Item = &'a Call>, far: i64) -> Verdict {
    let mut steps: Vec<Step> = calls.filter_map(Step::of).collect();
    settle_seen(&mut steps);
    blur_unseen(&mut steps);
    in_likely_order(&mut steps);
    let mut search = Search::new(&steps, far);
    let mut done = vec![0u64; steps.len().div_ceil(64)];
    match search.place(&mut done, State::default(), None, 0) {
        Outcome::Found => Ok(()),
        Outcome::None => Err(explain(&steps, search.placed, search.stuck)),
        Outcome::TooMuch => Err(format!(
            "given up after {STATES_MAX} states: {}",
            explain(&steps, search.placed, search.stuck)
        )),
    }
}

/// One call, as far as it matters.
#[derive(Clone)]
struct Step<'a> {
    invoked: u64,
    /// The end of time for a call that may take effect at any later time.
    settled: u64,
    operation: Cow<'a, Operation>,
    /// `None`: nobody was told whether it took effect.
    answer: Option<&'a Answer>,
    /// It did, as a read shows, and its version's clock is at most this.
    happened: Option<u64>,
}

impl Step<'_> {
    fn of(call: &Call) -> Option<Step<'_>> {
        let (settled, answer) = match &call.ending {
            Some((settled, Ending::Answer(answer))) => (*settled, Some(answer)),
            Some((_, Ending::Nothing(_))) => return None,
            Some((_, Ending::Unknown(_))) | None if call.is_read() => return None,
            Some((_, Ending::Unknown(_))) | None => (u64::MAX, None),
        };
        Some(Step { invoked: call.invoked, settled, operation: Cow::Borrowed(&call.operation), answer, happened: None })
    }

    /// Whether it took effect is not known.
    fn is_open(&self) -> bool {
        self.answer.is_none() && self.happened.is_none()
    }

    /// Its value is empty: nobody can tell whose it was.
    fn writes_nothing(&self) -> bool {
        matches!(self.operation.as_ref(), Operation::Set { data, .. } | Operation::Add { data, .. } if data.is_empty())
    }

    /// Of the version it made or saw.
    fn clock(&self) -> Option<u64> {
        let Some(answer) = self.answer else { return self.happened };
        match answer {
            Answer::Reply(reply) => Some(clock_of(reply)),
            Answer::Missing
            | Answer::NotStored
            | Answer::Exists
            | Answer::NotNumeric
            | Answer::TooLarge
            | Answer::WrongSpace { .. }
            | Answer::Wait
            | Answer::Unknown
            | Answer::Refused { .. } => None,
        }
    }
}

/// A call of unknown outcome whose value somebody saw did happen, before the end of that read; if the read shows the
/// very version it made, its clock is known too.
fn settle_seen(steps: &mut [Step]) {
    // By token: the end of the first read that shows it, and the clock of the first version that has it.
    let mut seen: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for step in steps.iter() {
        if let Some(Answer::Reply(Reply::Value { data, clock, .. })) = step.answer {
            for token in tokens(data).unwrap_or_default() {
                let (settled, first) = seen.entry(token).or_insert((u64::MAX, u64::MAX));
                (*settled, *first) = ((*settled).min(step.settled), (*first).min(*clock));
            }
        }
    }
    for step in steps.iter_mut().filter(|step| step.answer.is_none()) {
        let (Operation::Set { data, .. }
        | Operation::Add { data, .. }
        | Operation::Replace { data, .. }
        | Operation::Cas { data, .. }
        | Operation::Append { data, .. }
        | Operation::Prepend { data, .. }) = step.operation.as_ref()
        else {
            continue;
        };
        let token = tokens(data).ok().and_then(|tokens| tokens.first().copied());
        if let Some((settled, clock)) = token.and_then(|token| seen.get(&token)).copied() {
            (step.settled, step.happened) = (settled, Some(clock));
        }
    }
}

/// Calls of unknown outcome whose value nobody saw differ in nothing that matters: all of them write the same unseen
/// value, and those of a kind are twins.
fn blur_unseen(steps: &mut [Step]) {
    let (flags, unseen) = (0, Bytes::from_static(b"unseen"));
    for step in steps.iter_mut().filter(|step| step.is_open() && !step.writes_nothing()) {
        let operation = match step.operation.as_ref() {
            Operation::Set { expiry, .. } => {
                Operation::Set { flags, expiry: *expiry, data: unseen.clone() }
            }
            Operation::Add { expiry, .. } => {
                Operation::Add { flags, expiry: *expiry, data: unseen.clone() }
            }
            Operation::Replace { expiry, .. } | Operation::Cas { expiry, .. } => {
                Operation::Replace { flags, expiry: *expiry, data: unseen.clone() }
            }
            Operation::Append { .. } | Operation::Prepend { .. } => {
                Operation::Append { unique: None, data: unseen.clone() }
            }
            operation => operation.clone(),
        };
        step.operation = Cow::Owned(operation);
    }
}

/// For each step the one before it that is unknown too and does the same: which of them happened makes no difference,
/// so it is always the one that was called first.
fn twins(steps: &[Step]) -> Vec<Option<usize>> {
    let twin = |index: usize| {
        let same = |other: &usize| {
            steps[*other].is_open() && steps[*other].operation == steps[index].operation
        };
        (0..index).rev().find(same).filter(|_| steps[index].is_open())
    };
    (0..steps.len()).map(twin).collect()
}

/// By the time of the answers, and those that name a clock by their clocks: nearly always that is the order there was.
/// What is unknown comes last.
fn in_likely_order(steps: &mut Vec<Step>) {
    steps.sort_by_key(|step| (step.is_open(), step.settled, step.invoked));
    let places: Vec<usize> = (0..steps.len()).filter(|&index| steps[index].clock().is_some()).collect();
    let mut clocked: Vec<Step> = places.iter().map(|&place| steps[place].clone()).collect();
    clocked.sort_by_key(|step| (step.clock(), *step.operation.as_ref() == Operation::Get));
    for (place, step) in places.into_iter().zip(clocked) {
        steps[place] = step;
    }
}

/// What a key holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
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

impl State {
    fn may_have(&self, clock: u64) -> bool {
        if self.told { self.clock == clock } else { self.clock <= clock }
    }
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
    contents: Vec<Bytes>,
    numbers: BTreeMap<Bytes, u32>,
    dead: HashSet<(Vec<u64>, State, Option<State>)>,
    /// The most calls that could be put into order, and the first that could not then: for the explanation.
    placed: usize,
    stuck: usize,
}

impl<'a> Search<'a> {
    fn new(steps: &'a [Step<'a>], far: i64) -> Search<'a> {
        let contents = vec![Bytes::new()];
        Search { steps, twins: twins(steps), far, contents, numbers: BTreeMap::new(), dead: HashSet::new(), placed: 0, stuck: 0 }
    }

    /// Puts the remaining calls into order from here, if that can be done. What is unknown is only worth placing for
    /// the sake of what comes next: `before` is the state before the last unknown ones, in which the next did not fit.
    fn place(&mut self, done: &mut Vec<u64>, state: State, before: Option<State>, count: usize) -> Outcome {
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
        if !self.dead.insert((done.clone(), state, before)) {
            return Outcome::None;
        }
        for index in 0..self.steps.len() {
            let step = &self.steps[index];
            let second = self.twins[index].is_some_and(|twin| open(done, twin));
            if !open(done, index) || second || step.invoked > bound {
                continue;
            }
            let Some(next) = self.after(state, step) else { continue };
            let unknown = step.is_open();
            if !unknown && before.is_some_and(|before| self.after(before, step).is_some()) {
                continue;
            }
            done[index / 64] |= 1 << (index % 64);
            let before = unknown.then(|| before.unwrap_or(state));
            let found = self.place(done, next, before, count + 1);
            if matches!(found, Outcome::Found | Outcome::TooMuch) {
                return found;
            }
            done[index / 64] &= !(1 << (index % 64));
            // What fits and changes nothing may as well stand here: no other order would do better.
            if next == state && !unknown {
                return Outcome::None;
            }
        }
        Outcome::None
    }

    /// The state after that call, if the call gives its answer in this one; of an unknown call, if it changes
    /// anything.
    fn after(&mut self, state: State, step: &Step) -> Option<State> {
        let next = match step.answer {
            None => self.effect(state, &step.operation, None).filter(|next| *next != state),
            Some(answer) => self.answered(state, &step.operation, answer),
        };
        if next.is_some() || !state.fleeting || state.content == 0 {
            return next;
        }
        self.after(State::default(), step)
    }

    fn answered(&mut self, state: State, operation: &Operation, answer: &Answer) -> Option<State> {
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
                there && operation_unique(operation).is_some_and(|unique| state.clock != unique)
            }
            (Answer::NotNumeric, _) => there && self.number(state).is_none(),
            (Answer::NotStored | Answer::TooLarge | Answer::WrongSpace { .. }, _) => false,
            (Answer::Wait | Answer::Unknown | Answer::Refused { .. }, _) => false,
        };
        holds.then_some(state)
    }

    /// What a read showed is what is there.
    fn seen(&mut self, state: State, reply: &Reply) -> Option<State> {
        let Reply::Value { clock, flags, data, .. } = reply else { return None };
        let same = state.content != 0
            && self.contents[state.content as usize] == *data
            && state.flags == *flags
            && state.may_have(*clock);
        same.then_some(State { clock: *clock, told: true, ..state })
    }

    /// What a write leaves behind, if its condition holds; with its reply, if that is right.
    fn effect(&mut self, state: State, operation: &Operation, reply: Option<&Reply>) -> Option<State> {
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
        let state = State { clock, told, ..state };
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
                Some(State { content, ..state })
            }
            Operation::Prepend { data, .. } if there => {
                let content = self.content([data, &old[..]].concat().into());
                Some(State { content, ..state })
            }
            Operation::Delete { .. } if there => Some(State::default()),
            Operation::Touch { expiry } if there => Some(State { fleeting: self.fleeting(*expiry), ..state }),
            Operation::GetAndTouch { expiry } if there => {
                let shown = match reply {
                    Some(Reply::Value { data, flags, .. }) => *data == old && *flags == state.flags,
                    Some(Reply::Done { .. } | Reply::Number { .. }) => false,
                    None => true,
                };
                shown.then_some(State { fleeting: self.fleeting(*expiry), ..state })
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
                Some(State { content, ..state })
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

    fn version(&mut self, state: State, data: &Bytes, flags: u32, expiry: i64) -> Option<State> {
        let (content, fleeting) = (self.content(data.clone()), self.fleeting(expiry));
        Some(State { content, flags, fleeting, ..state })
    }

    fn fleeting(&self, expiry: i64) -> bool {
        expiry != 0 && expiry < self.far
    }

    fn number(&self, state: State) -> Option<u64> {
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

fn clock_of(reply: &Reply) -> u64 {
    let (Reply::Done { clock } | Reply::Number { clock, .. } | Reply::Value { clock, .. }) = reply;
    *clock
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

fn explain(steps: &[Step], placed: usize, stuck: usize) -> String {
    let mut text = format!("no order explains these {} calls (at most {placed} fit", steps.len());
    if let Some(step) = steps.get(stuck) {
        text.push_str(&format!(
            ", then not {:?} = {:?} called at {:.6}",
            step.operation,
            step.answer,
            step.invoked as f64 / 1e6
        ));
    }
    text.push_str("):");
    for step in steps {
        let settled = match step.settled {
            u64::MAX => "?".to_owned(),
            settled => format!("{:.6}", settled as f64 / 1e6),
        };
        text.push_str(&format!(
            "\n  {:>10.6} .. {settled:>10} {:?} = {:?}",
            step.invoked as f64 / 1e6,
            step.operation,
            step.answer
        ));
    }
    text
}

/// States visited before the search is given up: some hundred megabytes.
const STATES_MAX: usize = 300_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::history::token;

    const FAR: i64 = 1_000_000;

    fn call(times: (u64, u64), operation: Operation, answer: Answer) -> Call {
        let ending = Some((times.1, Ending::Answer(answer)));
        Call { key: 0, caller: 0, operation, invoked: times.0, ending }
    }

    fn perhaps(invoked: u64, operation: Operation) -> Call {
        Call { key: 0, caller: 0, operation, invoked, ending: None }
    }

    fn set(number: u64) -> Operation {
        Operation::Set { flags: 0, expiry: 0, data: token(number) }
    }

    fn done(clock: u64) -> Answer {
        Answer::Reply(Reply::Done { clock })
    }

    fn value(clock: u64, data: &[u8]) -> Answer {
        let data = Bytes::copy_from_slice(data);
        Answer::Reply(Reply::Value { clock, flags: 0, ttl: None, data })
    }

    fn get(times: (u64, u64), clock: u64, number: u64) -> Call {
        call(times, Operation::Get, value(clock, &token(number)))
    }

    fn verdict(calls: &[Call]) -> Verdict {
        check(calls.iter(), FAR)
    }

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
        let number = |clock, number| Answer::Reply(Reply::Number { clock, number });
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
