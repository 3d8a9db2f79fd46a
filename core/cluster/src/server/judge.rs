//! What an operation does to a value: memcached's meaning, on the committed version.

use crate::{Answer, Kind, Operation, Reply};
use crate::{Head, Record};
use bytes::Bytes;
use kumo_wire::memcache::{Expiry, Sign, appended, arithmetic, prepended};

/// What becomes of the key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A new version with this content; the stamp is still to come.
    Write(Content),
    /// Nothing changes, and this is the answer.
    Answer(Answer),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub kind: Kind,
    pub flags: u32,
    pub expiry: u32,
    pub data: Bytes,
    pub says: Says,
}

/// What the reply tells beside the version's clock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Says {
    Done,
    /// The expiry was changed: also the flags, for binary clients.
    Touched,
    Number(u64),
    /// The value as it is, for a get that touches.
    Value,
}

impl Content {
    pub fn reply(&self, clock: u64, seconds: u64) -> Reply {
        match self.says {
            Says::Done => Reply::Done { clock },
            Says::Touched => Reply::Touched { clock, flags: self.flags },
            Says::Number(number) => Reply::Number { clock, number, ttl: ttl(self.expiry, seconds) },
            Says::Value => Reply::Value {
                clock,
                flags: self.flags,
                ttl: ttl(self.expiry, seconds),
                data: self.data.clone(),
            },
        }
    }
}

/// Whether judging needs the data of the present version, or only its head.
pub(crate) fn needs_data(operation: &Operation) -> bool {
    match operation {
        Operation::Get
        | Operation::GetAndTouch { .. }
        | Operation::Append { .. }
        | Operation::Prepend { .. }
        | Operation::Touch { .. }
        | Operation::Add64 { .. } => true,
        Operation::Set { .. }
        | Operation::Add { .. }
        | Operation::Replace { .. }
        | Operation::Cas { .. }
        | Operation::Delete { .. } => false,
    }
}

/// Whether what it does, or says, depends on the present version.
pub(crate) fn depends_on_version(operation: &Operation) -> bool {
    !matches!(operation, Operation::Set { .. })
}

/// Whether the operation names a time at which the value vanishes.
pub(crate) fn sets_expiry(operation: &Operation) -> bool {
    match operation {
        Operation::Set { expiry, .. }
        | Operation::Add { expiry, .. }
        | Operation::Replace { expiry, .. }
        | Operation::Cas { expiry, .. }
        | Operation::Touch { expiry }
        | Operation::GetAndTouch { expiry } => *expiry != 0,
        Operation::Add64 { initial, touch, .. } => {
            initial.is_some_and(|initial| initial.expiry != 0) || touch.is_some_and(|touch| touch != 0)
        }
        Operation::Get | Operation::Append { .. } | Operation::Prepend { .. } | Operation::Delete { .. } => {
            false
        }
    }
}

/// The verdict of an operation that needs no data. `head`: of a value that is there and has not expired.
pub(crate) fn by_head(operation: &Operation, head: Option<&Head>, seconds: u64) -> Verdict {
    let value = |flags: &u32, expiry: &i64, data: &Bytes| written(*flags, expires(*expiry, seconds), data);
    match operation {
        Operation::Set { flags, expiry, data } => value(flags, expiry, data),
        Operation::Add { flags, expiry, data } => match head {
            Some(_) => Verdict::Answer(Answer::NotStored),
            None => value(flags, expiry, data),
        },
        Operation::Replace { flags, expiry, data } => match head {
            Some(_) => value(flags, expiry, data),
            None => Verdict::Answer(Answer::NotStored),
        },
        Operation::Cas { unique, flags, expiry, data } => match head {
            None => Verdict::Answer(Answer::Missing),
            Some(head) if head.stamp.clock.0 != *unique => Verdict::Answer(Answer::Exists),
            Some(_) => value(flags, expiry, data),
        },
        Operation::Delete { unique } => match head {
            None => Verdict::Answer(Answer::Missing),
            Some(head) if differs(*unique, head.stamp.clock.0) => Verdict::Answer(Answer::Exists),
            Some(_) => Verdict::Write(Content {
                kind: Kind::Tombstone,
                flags: 0,
                expiry: 0,
                data: Bytes::new(),
                says: Says::Done,
            }),
        },
        Operation::Get
        | Operation::GetAndTouch { .. }
        | Operation::Append { .. }
        | Operation::Prepend { .. }
        | Operation::Touch { .. }
        | Operation::Add64 { .. } => unreachable!("needs_data says that these need the data"),
    }
}

/// The verdict of an operation that looks at the value. `record`: a value that is there and has not expired.
pub(crate) fn by_record(
    operation: &Operation,
    record: Option<&Record>,
    seconds: u64,
    value_bytes_max: usize,
) -> Verdict {
    match operation {
        Operation::Append { unique, data } | Operation::Prepend { unique, data } => {
            let Some(record) = record else { return Verdict::Answer(Answer::NotStored) };
            if differs(*unique, record.stamp.clock.0) {
                return Verdict::Answer(Answer::Exists);
            }
            let join = if matches!(operation, Operation::Append { .. }) { appended } else { prepended };
            match join(&record.data, data, value_bytes_max) {
                Some(joined) => written(record.flags, record.expiry, &joined),
                None => Verdict::Answer(Answer::TooLarge),
            }
        }
        Operation::Touch { expiry } | Operation::GetAndTouch { expiry } => {
            let Some(record) = record else { return Verdict::Answer(Answer::Missing) };
            let says = if matches!(operation, Operation::Touch { .. }) { Says::Touched } else { Says::Value };
            Verdict::Write(Content {
                kind: Kind::Value,
                flags: record.flags,
                expiry: expires(*expiry, seconds),
                data: record.data.clone(),
                says,
            })
        }
        Operation::Add64 { unique, delta, down, initial, touch } => {
            let Some(record) = record else {
                let Some(initial) = initial else { return Verdict::Answer(Answer::Missing) };
                let expiry = expires(touch.unwrap_or(initial.expiry), seconds);
                return number(0, expiry, initial.value, Bytes::from(initial.value.to_string()));
            };
            if differs(*unique, record.stamp.clock.0) {
                return Verdict::Answer(Answer::Exists);
            }
            let sign = if *down { Sign::Decrement } else { Sign::Increment };
            let Ok((next, data)) = arithmetic(&record.data, sign, *delta) else {
                return Verdict::Answer(Answer::NotNumeric);
            };
            let expiry = touch.map_or(record.expiry, |touch| expires(touch, seconds));
            number(record.flags, expiry, next, data)
        }
        Operation::Get => Verdict::Answer(record.map_or(Answer::Missing, |record| shown(record, seconds))),
        Operation::Set { .. }
        | Operation::Add { .. }
        | Operation::Replace { .. }
        | Operation::Cas { .. }
        | Operation::Delete { .. } => by_head(operation, record.map(head).as_ref(), seconds),
    }
}

/// A value as a get shows it.
pub(crate) fn shown(record: &Record, seconds: u64) -> Answer {
    Answer::Reply(Reply::Value {
        clock: record.stamp.clock.0,
        flags: record.flags,
        ttl: ttl(record.expiry, seconds),
        data: record.data.clone(),
    })
}

fn head(record: &Record) -> Head {
    Head {
        stamp: record.stamp,
        kind: record.kind,
        expiry: record.expiry,
        data_bytes: record.data.len() as u32,
    }
}

fn written(flags: u32, expiry: u32, data: &Bytes) -> Verdict {
    Verdict::Write(Content { kind: Kind::Value, flags, expiry, data: data.clone(), says: Says::Done })
}

fn number(flags: u32, expiry: u32, number: u64, data: Bytes) -> Verdict {
    Verdict::Write(Content { kind: Kind::Value, flags, expiry, data, says: Says::Number(number) })
}

/// The second at which it vanishes; 0: never.
fn expires(said: i64, seconds: u64) -> u32 {
    u32::try_from(Expiry(said).at(seconds)).unwrap_or(u32::MAX)
}

/// Seconds that are left; none: for ever.
fn ttl(expiry: u32, seconds: u64) -> Option<u32> {
    (expiry != 0).then(|| expiry.saturating_sub(u32::try_from(seconds).unwrap_or(u32::MAX)))
}

fn differs(unique: Option<u64>, clock: u64) -> bool {
    unique.is_some_and(|unique| unique != clock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, Initial, SpaceNumber, Stamp};

    const NOW: u64 = 1_700_000_000;

    fn stored(data: &'static str) -> Record {
        let stamp = Stamp { space: SpaceNumber(1), clock: Clock(7) };
        let expiry = NOW as u32 + 100;
        Record { stamp, kind: Kind::Value, flags: 5, expiry, data: Bytes::from_static(data.as_bytes()) }
    }

    fn reply(operation: &Operation, record: Option<&Record>) -> Option<(Reply, Bytes)> {
        match by_record(operation, record, NOW, 8) {
            Verdict::Write(content) => Some((content.reply(9, NOW), content.data)),
            Verdict::Answer(_) => None,
        }
    }

    fn add(delta: u64, initial: Option<Initial>, touch: Option<i64>) -> Operation {
        Operation::Add64 { unique: None, delta, down: false, initial, touch }
    }

    #[test]
    fn numbers_are_read_as_on_the_wire() {
        for (data, next) in
            [(" 5", 6), ("5 xy", 6), ("000000000000000000000005", 6), ("18446744073709551615", 0)]
        {
            let number = Reply::Number { clock: 9, number: next, ttl: Some(100) };
            let data_next = Bytes::from(next.to_string());
            assert_eq!(reply(&add(1, None, None), Some(&stored(data))), Some((number, data_next)), "{data}");
        }
        let verdict = by_record(&add(1, None, None), Some(&stored("5x")), NOW, 8);
        assert_eq!(verdict, Verdict::Answer(Answer::NotNumeric));
    }

    #[test]
    fn a_number_says_how_long_it_will_be_there() {
        let initial = Some(Initial { value: 3, expiry: 40 });
        let number = |ttl| Some((Reply::Number { clock: 9, number: 3, ttl }, Bytes::from_static(b"3")));
        assert_eq!(reply(&add(1, initial, None), None), number(Some(40)));
        assert_eq!(reply(&add(1, initial, Some(70)), None), number(Some(70)));
        assert_eq!(reply(&add(1, initial, Some(0)), None), number(None));
    }

    #[test]
    fn a_touch_tells_the_flags() {
        let touched = reply(&Operation::Touch { expiry: 9 }, Some(&stored("x")));
        assert_eq!(touched, Some((Reply::Touched { clock: 9, flags: 5 }, Bytes::from_static(b"x"))));
    }

    #[test]
    fn what_is_added_counts_with_what_is_there() {
        let append = |data| Operation::Append { unique: None, data: Bytes::from_static(data) };
        let prepend = |data| Operation::Prepend { unique: None, data: Bytes::from_static(data) };
        let joined = |operation| reply(&operation, Some(&stored("123456"))).map(|(_, data)| data);
        assert_eq!(joined(append(b"78")), Some(Bytes::from_static(b"12345678")));
        assert_eq!(joined(prepend(b"78")), Some(Bytes::from_static(b"78123456")));
        for operation in [append(b"789"), prepend(b"789")] {
            let verdict = by_record(&operation, Some(&stored("123456")), NOW, 8);
            assert_eq!(verdict, Verdict::Answer(Answer::TooLarge));
        }
    }
}
