//! What an operation does to a value: memcached's meaning, on the committed version.

use crate::{Answer, Kind, Operation, Reply};
use crate::{Head, Record};
use bytes::{Bytes, BytesMut};
use kumo_wire::memcache::Expiry;

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
    Number(u64),
    /// The value as it is, for a get that touches.
    Value,
}

impl Content {
    pub fn reply(&self, clock: u64, seconds: u64) -> Reply {
        match self.says {
            Says::Done => Reply::Done { clock },
            Says::Number(number) => Reply::Number { clock, number },
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
            if record.data.len() + data.len() > value_bytes_max {
                return Verdict::Answer(Answer::TooLarge);
            }
            let behind = matches!(operation, Operation::Append { .. });
            let (front, back) = if behind { (&record.data, data) } else { (data, &record.data) };
            let mut joined = BytesMut::with_capacity(front.len() + back.len());
            joined.extend_from_slice(front);
            joined.extend_from_slice(back);
            written(record.flags, record.expiry, &joined.freeze())
        }
        Operation::Touch { expiry } | Operation::GetAndTouch { expiry } => {
            let Some(record) = record else { return Verdict::Answer(Answer::Missing) };
            let says = if matches!(operation, Operation::Touch { .. }) { Says::Done } else { Says::Value };
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
                return number(0, expires(initial.expiry, seconds), initial.value);
            };
            if differs(*unique, record.stamp.clock.0) {
                return Verdict::Answer(Answer::Exists);
            }
            let Some(present) = decimal(&record.data) else { return Verdict::Answer(Answer::NotNumeric) };
            // As memcached does: up wraps around, down stops at 0.
            let next = if *down { present.saturating_sub(*delta) } else { present.wrapping_add(*delta) };
            let expiry = touch.map_or(record.expiry, |touch| expires(touch, seconds));
            number(record.flags, expiry, next)
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

fn number(flags: u32, expiry: u32, number: u64) -> Verdict {
    let data = Bytes::from(number.to_string());
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

/// At most 20 digits, as memcached reads them; trailing spaces are what its decr leaves.
fn decimal(data: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(data).ok()?.trim_end_matches(' ');
    if text.is_empty() || text.len() > 20 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}
