//! [`Step`]: a call as the search for an order wants it, and what is known of it before the search begins.

use crate::store::history::{Call, Ending, Flush, Loss, tokens};
use bytes::Bytes;
use kumo_cluster::{Answer, Operation, Reply};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// One call, as far as it matters.
#[derive(Clone)]
pub struct Step<'a> {
    pub invoked: u64,
    /// The end of time for a call that may take effect at any later time.
    pub settled: u64,
    pub operation: Cow<'a, Operation>,
    /// `None`: nobody was told whether it took effect.
    pub answer: Option<&'a Answer>,
    /// It did, as a read shows, and its version's clock is at most this.
    happened: Option<u64>,
    pub act: Act,
}

/// What a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// What its operation says.
    Call,
    /// A flush that is done: whether there was anything to delete, nobody was told.
    Flushed,
    /// What is there now is what the disks keep of a time at whose end the power fails.
    Kept,
    /// The power is back, and what was kept is there.
    Back,
    /// An operator gave up all copies.
    Gone,
}

impl Step<'_> {
    pub fn of(call: &Call) -> Option<Step<'_>> {
        let (settled, answer) = match &call.ending {
            Some((settled, Ending::Answer(answer))) => (*settled, Some(answer)),
            Some((_, Ending::Nothing(_))) => return None,
            Some((_, Ending::Unknown(_))) | None if call.is_read() => return None,
            Some((_, Ending::Unknown(_))) | None => (u64::MAX, None),
        };
        Some(Step {
            invoked: call.invoked,
            settled,
            operation: Cow::Borrowed(&call.operation),
            answer,
            happened: None,
            act: Act::Call,
        })
    }

    /// What a flush does to one key. One of unknown outcome is like a delete of unknown outcome.
    pub fn of_flush(flush: &Flush) -> Option<Step<'_>> {
        let (settled, answer) = match &flush.ending {
            Some((settled, Ending::Answer(answer))) => (*settled, Some(answer)),
            Some((_, Ending::Nothing(_))) => return None,
            Some((_, Ending::Unknown(_))) | None => (u64::MAX, None),
        };
        Some(Step {
            invoked: flush.invoked,
            settled,
            operation: Cow::Owned(Operation::Delete { unique: None }),
            answer,
            happened: None,
            act: if answer.is_some() { Act::Flushed } else { Act::Call },
        })
    }

    /// What a loss does to the key.
    pub fn of_loss<'b>(loss: &Loss) -> Vec<Step<'b>> {
        let step = |invoked, settled, act| Step {
            invoked,
            settled,
            operation: Cow::Owned(Operation::Get),
            answer: Some(&Answer::Missing),
            happened: None,
            act,
        };
        match *loss {
            Loss::Back { from, upto } => vec![step(from, upto, Act::Kept), step(upto, upto, Act::Back)],
            Loss::Gone { at } => vec![step(at, at, Act::Gone)],
        }
    }

    /// Whether it took effect is not known.
    pub fn is_open(&self) -> bool {
        self.answer.is_none() && self.happened.is_none()
    }

    /// What tells its value from all others.
    fn token(&self) -> Option<u64> {
        let (Operation::Set { data, .. }
        | Operation::Add { data, .. }
        | Operation::Replace { data, .. }
        | Operation::Cas { data, .. }
        | Operation::Append { data, .. }
        | Operation::Prepend { data, .. }) = self.operation.as_ref()
        else {
            return None;
        };
        tokens(data).ok()?.first().copied()
    }

    /// Its value is empty: nobody can tell whose it was.
    fn writes_nothing(&self) -> bool {
        matches!(self.operation.as_ref(), Operation::Set { data, .. } | Operation::Add { data, .. } if data.is_empty())
    }

    /// Of the version it made or saw.
    fn clock(&self) -> Option<u64> {
        let Some(answer) = self.answer.filter(|_| self.act == Act::Call) else { return self.happened };
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

/// A call of unknown outcome whose value somebody saw did happen, before the end of that read, and before whatever was
/// appended behind it; so its version's clock is at most so much.
pub fn settle_seen(steps: &mut [Step]) {
    let writers: BTreeMap<u64, usize> =
        (0..steps.len()).filter_map(|index| Some((steps[index].token()?, index))).collect();
    // Versions whose writer was told so: whatever else is seen in one of them is older.
    let made: BTreeSet<u64> = steps
        .iter()
        .filter(|step| *step.operation != Operation::Get && step.answer.is_some())
        .filter_map(Step::clock)
        .collect();
    // By token: the earliest end, and the least clock, of what came after it.
    let mut seen: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for step in steps.iter() {
        let Some(Answer::Reply(Reply::Value { data, clock, .. })) = step.answer else { continue };
        let read = (step.settled, *clock);
        let mut bound = read;
        for token in tokens(data).unwrap_or_default().into_iter().rev() {
            let writer = writers.get(&token).map(|&index| &steps[index]);
            if writer.is_none_or(|writer| matches!(*writer.operation, Operation::Prepend { .. })) {
                bound = read;
            }
            let entry = seen.entry(token).or_insert(bound);
            *entry = (entry.0.min(bound.0), entry.1.min(bound.1));
            bound = match writer {
                Some(writer) if matches!(*writer.operation, Operation::Append { .. }) => {
                    let known = writer.answer.and(writer.clock()).unwrap_or(entry.1);
                    (entry.0.min(writer.settled), known.min(entry.1).saturating_sub(1))
                }
                Some(_) | None => read,
            };
        }
    }
    for step in steps.iter_mut().filter(|step| step.answer.is_none()) {
        if let Some((settled, clock)) = step.token().and_then(|token| seen.get(&token)).copied() {
            let clock = if made.contains(&clock) { clock.saturating_sub(1) } else { clock };
            (step.settled, step.happened) = (settled, Some(clock));
        }
    }
}

/// Calls of unknown outcome whose value nobody saw differ in nothing that matters: all of them write the same unseen
/// value, and those of a kind are twins.
pub fn blur_unseen(steps: &mut [Step], far: i64) {
    let (flags, unseen) = (0, Bytes::from_static(b"unseen"));
    let expires = |expiry: &i64| i64::from(*expiry != 0 && *expiry < far);
    for step in steps.iter_mut().filter(|step| step.is_open() && !step.writes_nothing()) {
        let operation = match step.operation.as_ref() {
            Operation::Set { expiry, .. } => {
                Operation::Set { flags, expiry: expires(expiry), data: unseen.clone() }
            }
            Operation::Add { expiry, .. } => {
                Operation::Add { flags, expiry: expires(expiry), data: unseen.clone() }
            }
            Operation::Replace { expiry, .. } | Operation::Cas { expiry, .. } => {
                Operation::Replace { flags, expiry: expires(expiry), data: unseen.clone() }
            }
            Operation::Append { .. } | Operation::Prepend { .. } => {
                Operation::Append { unique: None, data: unseen.clone() }
            }
            Operation::Touch { expiry } => Operation::Touch { expiry: expires(expiry) },
            Operation::GetAndTouch { expiry } => Operation::Touch { expiry: expires(expiry) },
            operation => operation.clone(),
        };
        step.operation = Cow::Owned(operation);
    }
}

/// For each step the one before it that is unknown too and does the same: which of them happened makes no difference,
/// so it is always the one that was called first.
pub fn twins(steps: &[Step]) -> Vec<Option<usize>> {
    let twin = |index: usize| {
        let same =
            |other: &usize| steps[*other].is_open() && steps[*other].operation == steps[index].operation;
        (0..index).rev().find(same).filter(|_| steps[index].is_open())
    };
    (0..steps.len()).map(twin).collect()
}

/// By the time of the answers, and those that name a clock by their clocks: nearly always that is the order there was.
/// What is unknown comes last.
pub fn in_likely_order(steps: &mut Vec<Step>) {
    steps.sort_by_key(|step| (step.is_open(), step.settled, step.invoked));
    let places: Vec<usize> = (0..steps.len()).filter(|&index| steps[index].clock().is_some()).collect();
    let mut clocked: Vec<Step> = places.iter().map(|&place| steps[place].clone()).collect();
    clocked.sort_by_key(|step| (step.clock(), *step.operation.as_ref() == Operation::Get));
    for (place, step) in places.into_iter().zip(clocked) {
        steps[place] = step;
    }
}

pub fn clock_of(reply: &Reply) -> u64 {
    match reply {
        Reply::Done { clock }
        | Reply::Number { clock, .. }
        | Reply::Value { clock, .. }
        | Reply::Touched { clock, .. } => *clock,
    }
}

/// That no order was found, for a reader: how far the search came, and all calls.
pub fn explain(steps: &[Step], placed: usize, stuck: usize) -> String {
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
