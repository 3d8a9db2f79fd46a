//! [`History`]: what every caller asked of the store, and what it was told, when.

use bytes::Bytes;
use kumo_cluster::{Answer, GatewayError, Operation, Refusal};

/// One call of one caller.
#[derive(Clone, Debug)]
pub struct Call {
    /// An index into the run's keys.
    pub key: usize,
    pub caller: usize,
    pub operation: Operation,
    pub invoked: u64,
    pub ending: Option<(u64, Ending)>,
}

/// A delete of all keys that begin with the prefix: of each by itself, not of all at one moment.
#[derive(Clone, Debug)]
pub struct Flush {
    pub prefix: Bytes,
    pub invoked: u64,
    pub ending: Option<(u64, Ending)>,
}

/// What was acknowledged of a key, and is gone beyond what the store promises to bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All copies lost what they had not made safe, or those that had the newest are given up: what was written in that
    /// time may be gone, from some moment of it on.
    Back { from: u64, upto: u64 },
    /// An operator gave up all copies. Others begin with nothing.
    Gone { at: u64 },
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    Answer(Answer),
    /// Surely nothing happened.
    Nothing(GatewayError),
    /// It may have been executed, and may still be.
    Unknown(Option<GatewayError>),
}

/// All calls, numbered by their place.
#[derive(Debug, Default)]
pub struct History {
    pub calls: Vec<Call>,
    /// Numbered from [`FLUSHES_FROM`].
    flushes: Vec<Flush>,
}

impl History {
    pub fn invoke(&mut self, caller: usize, key: usize, operation: Operation, now: u64) -> usize {
        self.calls.push(Call { key, caller, operation, invoked: now, ending: None });
        self.calls.len() - 1
    }

    pub fn flush(&mut self, prefix: Bytes, now: u64) -> usize {
        self.flushes.push(Flush { prefix, invoked: now, ending: None });
        FLUSHES_FROM + self.flushes.len() - 1
    }

    /// The flush of that number, if it is one's.
    pub fn flush_of(&self, number: usize) -> Option<&Flush> {
        self.flushes.get(number.checked_sub(FLUSHES_FROM)?)
    }

    /// The first ending counts.
    pub fn finish(&mut self, number: usize, ending: Ending, now: u64) {
        let kept = match number.checked_sub(FLUSHES_FROM) {
            Some(flush) => &mut self.flushes[flush].ending,
            None => &mut self.calls[number].ending,
        };
        kept.get_or_insert((now, ending));
    }

    pub fn succeeded(&self) -> u64 {
        let done = |call: &&Call| matches!(call.ending, Some((_, Ending::Answer(_))));
        self.calls.iter().filter(done).count() as u64
    }

    /// Writes that were refused for lack of copies.
    pub fn refused(&self) -> u64 {
        let few = Ending::Nothing(GatewayError::Refused(Refusal::FewCopies));
        self.calls
            .iter()
            .filter(|call| call.ending.as_ref().is_some_and(|(_, ending)| *ending == few))
            .count() as u64
    }

    pub fn of_key(&self, key: usize) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(move |call| call.key == key)
    }

    /// Flushes that delete that key.
    pub fn flushes_of(&self, name: &[u8]) -> impl Iterator<Item = &Flush> {
        self.flushes.iter().filter(move |flush| name.starts_with(&flush.prefix))
    }
}

impl Flush {
    /// Not surely without any effect.
    pub fn may_be_done(&self) -> bool {
        !matches!(self.ending, Some((_, Ending::Nothing(_))))
    }
}

impl Call {
    pub fn is_read(&self) -> bool {
        self.operation == Operation::Get
    }

    pub fn answer(&self) -> Option<&Answer> {
        match &self.ending {
            Some((_, Ending::Answer(answer))) => Some(answer),
            Some((_, Ending::Nothing(_) | Ending::Unknown(_))) | None => None,
        }
    }

    /// Whether its effect may be gone, though it was answered.
    pub fn may_be_lost(&self, losses: &[Loss]) -> bool {
        let within = |from, upto| self.invoked <= upto && self.settled() >= from;
        losses.iter().any(|loss| match *loss {
            Loss::Back { from, upto } => within(from, upto),
            Loss::Gone { at } => within(at, at),
        })
    }

    /// Whether its effect, if it had any, is gone for sure.
    pub fn is_lost(&self, losses: &[Loss]) -> bool {
        losses.iter().any(|loss| match *loss {
            Loss::Back { .. } => false,
            Loss::Gone { at } => self.answer().is_some() && self.settled() < at,
        })
    }

    fn settled(&self) -> u64 {
        self.ending.as_ref().map_or(u64::MAX, |(settled, _)| *settled)
    }

    /// Whether it may have had an effect that nobody confirmed.
    pub fn is_unclear(&self) -> bool {
        !self.is_read() && matches!(self.ending, Some((_, Ending::Unknown(_))) | None)
    }
}

impl Ending {
    /// What a gateway's result says of what happened. A retry never applies anything twice, but an error after a
    /// try that was sent says nothing of that try.
    pub fn of(result: Result<Answer, GatewayError>) -> Ending {
        match result {
            Ok(Answer::Unknown) => Ending::Unknown(None),
            Ok(answer) => Ending::Answer(answer),
            Err(
                error @ (GatewayError::Busy
                | GatewayError::NoServers
                | GatewayError::NoManagers
                | GatewayError::Unreachable
                | GatewayError::Refused(Refusal::Full | Refusal::FewCopies)),
            ) => Ending::Nothing(error),
            Err(error) => Ending::Unknown(Some(error)),
        }
    }
}

/// No run has so many calls.
const FLUSHES_FROM: usize = 1 << 40;

/// What a call's token looks like in a value: no two calls of a run share one.
pub fn token(number: u64) -> Bytes {
    Bytes::from(format!("<{number}>"))
}

/// The tokens of a value, in order.
pub fn tokens(data: &[u8]) -> Result<Vec<u64>, String> {
    let text = std::str::from_utf8(data).map_err(|_| "a value is not text".to_owned())?;
    let mut found = Vec::new();
    for part in text.split_inclusive('>') {
        let number = part.strip_prefix('<').and_then(|part| part.strip_suffix('>'));
        let number = number.and_then(|number| number.parse().ok());
        found.push(number.ok_or_else(|| format!("a torn value: {text}"))?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_and_torn_ones_too() {
        let joined = [token(7), token(81)].concat();
        assert_eq!(tokens(&joined), Ok(vec![7, 81]));
        assert_eq!(tokens(b""), Ok(Vec::new()));
        tokens(&joined[1..]).unwrap_err();
        tokens(&joined[..joined.len() - 1]).unwrap_err();
    }

    #[test]
    fn an_error_after_a_try_leaves_the_outcome_open() {
        assert_eq!(Ending::of(Err(GatewayError::TimedOut)), Ending::Unknown(Some(GatewayError::TimedOut)));
        assert_eq!(Ending::of(Ok(Answer::Unknown)), Ending::Unknown(None));
        for error in [GatewayError::Busy, GatewayError::NoServers, GatewayError::Unreachable] {
            assert_eq!(Ending::of(Err(error)), Ending::Nothing(error));
        }
        assert_eq!(Ending::of(Ok(Answer::Missing)), Ending::Answer(Answer::Missing));
    }
}
