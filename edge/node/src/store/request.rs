//! [`Entry`]: one memcached request on its way: the calls it became, and how it is answered.

use super::room::Share;
use bytes::{Bytes, BytesMut};
use kumo_cluster::{Answer, GatewayError, Initial, Operation, Refusal, Reply};
use kumo_wire::SHARED_BYTES_MAX;
use kumo_wire::memcache::{self, Command, Failure, Item, Mode, Outcome, Sign};
use std::borrow::Cow;

/// A request that waits for its answer, or for those before it.
pub struct Entry {
    how: How,
    /// Parts that have no result yet.
    open: usize,
    /// Bytes of the values that came and are neither told nor dropped.
    held: usize,
    /// What it takes of its client's share.
    weight: usize,
}

enum How {
    /// Nothing to wait for: these bytes.
    Said(Bytes),
    /// `written`: so many of the keys are told already. `end`: the first that failed, or how many there are.
    Get {
        answer: memcache::Answer,
        keys: Asked,
        written: usize,
        end: usize,
    },
    Describe {
        answer: memcache::Answer,
        found: Option<Found>,
    },
    Write {
        answer: memcache::Answer,
        verb: Verb,
        found: Option<Found>,
    },
}

type Found = Result<Answer, GatewayError>;

/// The keys of a get with what was found of each. Most ask for one: that needs no memory of its own.
enum Asked {
    One((Bytes, Option<Found>)),
    Many(Vec<(Bytes, Option<Found>)>),
}

impl Asked {
    fn of(parts: &[Part]) -> Asked {
        match parts {
            [part] => Asked::One((part.key.clone(), None)),
            parts => Asked::Many(parts.iter().map(|part| (part.key.clone(), None)).collect()),
        }
    }

    fn as_slice(&self) -> &[(Bytes, Option<Found>)] {
        match self {
            Asked::One(key) => std::slice::from_ref(key),
            Asked::Many(keys) => keys,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [(Bytes, Option<Found>)] {
        match self {
            Asked::One(key) => std::slice::from_mut(key),
            Asked::Many(keys) => keys,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Store,
    Delete,
    Arithmetic,
    Touch,
    Flush,
}

/// One call that a request becomes.
pub struct Part {
    pub key: Bytes,
    pub operation: Operation,
}

impl Part {
    /// Of the value that it brings.
    pub fn written_bytes(&self) -> usize {
        match &self.operation {
            Operation::Set { data, .. }
            | Operation::Cas { data, .. }
            | Operation::Add { data, .. }
            | Operation::Replace { data, .. }
            | Operation::Append { data, .. }
            | Operation::Prepend { data, .. } => data.len(),
            _without_a_value => 0,
        }
    }
}

impl Entry {
    /// Answered already, in these bytes.
    pub fn said(bytes: Bytes) -> Entry {
        Entry { how: How::Said(bytes), open: 0, held: 0, weight: 0 }
    }

    /// Answered already.
    pub fn told(answer: memcache::Answer, outcome: &Outcome) -> Entry {
        let mut out = BytesMut::new();
        answer.write(outcome, &mut out);
        Entry::said(out.freeze())
    }

    /// The entry of a request about keys; its calls are put into `parts`, which is empty before.
    pub fn of(answer: memcache::Answer, command: Command, parts: &mut Vec<Part>) -> Entry {
        let (verb, part) = match command {
            Command::Get { keys, touch } => {
                let operation = match touch {
                    Some(expiry) => Operation::GetAndTouch { expiry: expiry.0 },
                    None => Operation::Get,
                };
                parts.extend(keys.iter().map(|key| Part { key, operation: operation.clone() }));
                let (keys, open) = (Asked::of(parts), parts.len());
                return Entry {
                    how: How::Get { answer, keys, written: 0, end: open },
                    open,
                    held: 0,
                    weight: 0,
                };
            }
            Command::Describe { key } => {
                parts.push(Part { key, operation: Operation::Get });
                return Entry { how: How::Describe { answer, found: None }, open: 1, held: 0, weight: 0 };
            }
            Command::Store { mode, key, flags, expiry, cas, value } => {
                (Verb::Store, Part { key, operation: store(mode, flags, expiry.0, cas, value) })
            }
            Command::Delete { key, cas } => {
                (Verb::Delete, Part { key, operation: Operation::Delete { unique: cas } })
            }
            Command::Touch { key, expiry } => {
                (Verb::Touch, Part { key, operation: Operation::Touch { expiry: expiry.0 } })
            }
            Command::Arithmetic { key, sign, delta, create, cas, touch } => {
                let initial = create.map(|create| Initial { value: create.initial, expiry: create.expiry.0 });
                let operation = Operation::Add64 {
                    unique: cas,
                    delta,
                    down: sign == Sign::Decrement,
                    initial,
                    touch: touch.map(|expiry| expiry.0),
                };
                (Verb::Arithmetic, Part { key, operation })
            }
            Command::FlushAll { .. }
            | Command::Verbosity
            | Command::Version
            | Command::Stats { .. }
            | Command::Quit
            | Command::Noop
            | Command::Sasl(_) => unreachable!("not about keys"),
        };
        parts.push(part);
        Entry { how: How::Write { answer, verb, found: None }, open: 1, held: 0, weight: 0 }
    }

    /// Of an answer on the spot.
    pub fn said_bytes(&self) -> usize {
        match &self.how {
            How::Said(bytes) => bytes.len(),
            How::Get { .. } | How::Describe { .. } | How::Write { .. } => 0,
        }
    }

    /// Its client has it from now on.
    pub fn weigh(&mut self, share: &mut Share) {
        self.weight = match &self.how {
            How::Said(bytes) => share.take(0, bytes.len()),
            How::Get { keys, .. } => share.take(keys.as_slice().len(), 0),
            How::Describe { .. } | How::Write { .. } => share.take(1, 0),
        };
    }

    pub fn weight(&self) -> usize {
        self.weight
    }

    pub fn flush(answer: memcache::Answer) -> Entry {
        Entry { how: How::Write { answer, verb: Verb::Flush, found: None }, open: 1, held: 0, weight: 0 }
    }

    /// Some of it can be told.
    pub fn has_answers(&self) -> bool {
        match &self.how {
            How::Get { keys, written, .. } => {
                self.is_ready() || keys.as_slice().get(*written).is_some_and(|(_, found)| found.is_some())
            }
            How::Said(_) | How::Describe { .. } | How::Write { .. } => self.is_ready(),
        }
    }

    /// Appends what can be told before the rest is known: a get of many keys is not kept until its end.
    pub fn write_some(&mut self, out: &mut BytesMut) {
        if let How::Get { answer, keys, written, .. } = &mut self.how {
            let before = *written;
            *written = write_values(answer, keys.as_slice(), before, out);
            // Told: their bytes need not be kept.
            self.held -= drop_values(&mut keys.as_mut_slice()[before..*written]);
        }
    }

    pub fn is_ready(&self) -> bool {
        self.open == 0
    }

    /// Which part is told next.
    pub fn next(&self) -> usize {
        match &self.how {
            How::Get { written, .. } => *written,
            How::Said(_) | How::Describe { .. } | How::Write { .. } => 0,
        }
    }

    /// The client is told of that part: it does not stand behind a failure.
    pub fn tells(&self, part: usize) -> bool {
        match &self.how {
            How::Get { end, .. } => part <= *end,
            How::Said(_) | How::Describe { .. } | How::Write { .. } => true,
        }
    }

    /// Bytes of the values that wait in it to be told.
    pub fn held(&self) -> usize {
        self.held
    }

    /// `first`: the client was told all that it asked before this request.
    pub fn answer(&mut self, part: usize, mut result: Found, first: bool) {
        let (place, next) = match &mut self.how {
            How::Said(_) => return,
            How::Get { keys, written, end, .. } => {
                let keys = keys.as_mut_slice();
                // The client is told of a failure and of nothing behind it: values there would be held in vain.
                if part > *end {
                    result = Ok(Answer::Missing);
                } else if !can_be_told(&result)
                    && let Some(behind) = keys.get_mut(part + 1..*end)
                {
                    self.held -= drop_values(behind);
                    *end = part;
                }
                match keys.get_mut(part) {
                    Some((_, place)) => (place, part == *written),
                    None => return,
                }
            }
            How::Describe { found, .. } | How::Write { found, .. } => (found, true),
        };
        if place.is_some() {
            return;
        }
        self.held += value_bytes(&result);
        *place = Some(if first && next { result } else { with_own_memory(result) });
        self.open -= 1;
    }

    /// Appends what the client is to read.
    pub fn write(mut self, out: &mut BytesMut) {
        self.write_some(out);
        match self.how {
            How::Said(bytes) => out.extend_from_slice(&bytes),
            How::Get { answer, keys, written, .. } => write_end(&answer, keys.as_slice().get(written), out),
            How::Describe { answer, found } => describe(&answer, found, out),
            How::Write { answer, verb, found } => {
                let text = error_text(&found);
                let outcome = written(verb, &found, &text);
                answer.write(&outcome, out);
            }
        }
    }
}

fn value_bytes(found: &Found) -> usize {
    match found {
        Ok(Answer::Reply(Reply::Value { data, .. })) => data.len(),
        _no_value => 0,
    }
}

/// What was found of these keys will not be read again. Returns the bytes of the values among it.
fn drop_values(keys: &mut [(Bytes, Option<Found>)]) -> usize {
    let found = keys.iter_mut().filter_map(|(_, found)| found.as_mut());
    found.map(|found| value_bytes(&std::mem::replace(found, Ok(Answer::Missing)))).sum()
}

/// A small value that waits behind something else does not hold on to what arrived with it.
fn with_own_memory(mut found: Found) -> Found {
    if let Ok(Answer::Reply(Reply::Value { data, .. })) = &mut found
        && data.len() <= SHARED_BYTES_MAX
    {
        *data = Bytes::copy_from_slice(data);
    }
    found
}

fn store(mode: Mode, flags: u32, expiry: i64, cas: Option<u64>, data: Bytes) -> Operation {
    match (mode, cas) {
        (Mode::Set, None) => Operation::Set { flags, expiry, data },
        (Mode::Set, Some(unique)) => Operation::Cas { unique, flags, expiry, data },
        (Mode::Add, _) => Operation::Add { flags, expiry, data },
        (Mode::Replace, _) => Operation::Replace { flags, expiry, data },
        (Mode::Append, unique) => Operation::Append { unique, data },
        (Mode::Prepend, unique) => Operation::Prepend { unique, data },
    }
}

/// One outcome a key, as far as they are known, from the first that was not told on; a failure stops it. Returns how
/// many are told now.
fn write_values(
    answer: &memcache::Answer,
    keys: &[(Bytes, Option<Found>)],
    mut written: usize,
    out: &mut BytesMut,
) -> usize {
    while let Some((key, found)) = keys.get(written) {
        match found {
            Some(Ok(Answer::Reply(reply))) if let Some(item) = item(reply) => {
                answer.write(&Outcome::Value { key, item }, out);
            }
            Some(Ok(Answer::Missing)) => answer.write(&Outcome::Miss { key }, out),
            _failed => return written,
        }
        written += 1;
    }
    written
}

/// As a key of a get; anything else is a failure, which ends it.
fn can_be_told(found: &Found) -> bool {
    match found {
        Ok(Answer::Reply(reply)) => item(reply).is_some(),
        Ok(Answer::Missing) => true,
        _failed => false,
    }
}

/// The end of a get, or the first failure in its place.
fn write_end(answer: &memcache::Answer, failed: Option<&(Bytes, Option<Found>)>, out: &mut BytesMut) {
    match failed {
        None => answer.write(&Outcome::End, out),
        Some((_, found)) => {
            let text = error_text(found);
            answer.write(&Outcome::Failed(failure(found, &text)), out);
        }
    }
}

fn describe(answer: &memcache::Answer, found: Option<Found>, out: &mut BytesMut) {
    match &found {
        Some(Ok(Answer::Reply(reply))) if let Some(item) = item(reply) => {
            answer.write(&Outcome::Description(item), out);
        }
        Some(Ok(Answer::Missing)) => answer.write(&Outcome::NotFound, out),
        _failed => {
            let text = error_text(&found);
            answer.write(&Outcome::Failed(failure(&found, &text)), out);
        }
    }
}

fn item(reply: &Reply) -> Option<Item<'_>> {
    match reply {
        Reply::Value { clock, flags, ttl, data } => {
            Some(Item { flags: *flags, cas: *clock, ttl: ttl.map(u64::from), data })
        }
        Reply::Done { .. } | Reply::Number { .. } | Reply::Touched { .. } => None,
    }
}

fn written<'a>(verb: Verb, found: &Option<Found>, text: &'a str) -> Outcome<'a> {
    match found {
        Some(Ok(Answer::Reply(reply))) => match (verb, reply) {
            (Verb::Store, Reply::Done { clock }) => Outcome::Stored { cas: *clock },
            (Verb::Delete, Reply::Done { .. }) => Outcome::Deleted,
            (Verb::Flush, Reply::Done { .. }) => Outcome::Ok,
            (Verb::Touch, Reply::Touched { clock, flags }) => Outcome::Touched { flags: *flags, cas: *clock },
            (Verb::Arithmetic, Reply::Number { clock, number, ttl }) => {
                Outcome::Number { number: *number, cas: *clock, ttl: ttl.map(u64::from) }
            }
            (_, Reply::Done { .. } | Reply::Number { .. } | Reply::Value { .. } | Reply::Touched { .. }) => {
                Outcome::Failed(Failure::Server("internal error"))
            }
        },
        Some(Ok(Answer::Missing)) => Outcome::NotFound,
        // Of an append; a value that is too large by itself does not come so far.
        Some(Ok(Answer::NotStored | Answer::TooLarge)) => Outcome::NotStored,
        Some(Ok(Answer::Exists)) => Outcome::Exists,
        _failed => Outcome::Failed(failure(found, text)),
    }
}

fn failure<'a>(found: &Option<Found>, text: &'a str) -> Failure<'a> {
    match found {
        Some(Ok(Answer::NotNumeric)) => Failure::NotNumeric,
        Some(Err(GatewayError::Refused(Refusal::Full))) => Failure::OutOfMemory,
        _other => Failure::Server(text),
    }
}

fn error_text(found: &Option<Found>) -> Cow<'static, str> {
    match found {
        Some(Err(error)) => error.to_string().into(),
        _none => "internal error".into(),
    }
}
