//! The binary log: events as MessagePack, appended to a file. One a process, like the text log. [`Entry`] is an event
//! in it; `kumolog` reads what is written here.

use crate::clock;
use rmp::Marker;
use rmp::decode::{RmpRead, read_int, read_marker};
use rmp::encode;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};
use tracing::{info, warn};

/// An event. In the file it is an array of four:
///
/// | element | what                                                                     |
/// |---------|--------------------------------------------------------------------------|
/// | u64     | UNIX milliseconds, always in nine bytes: with them every event begins     |
/// | string  | what happened                                                            |
/// | map     | names and values                                                         |
/// | u32     | CRC-32 of the three before, and of the array's own first byte            |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub unix_millis: u64,
    pub name: String,
    pub fields: Vec<(String, Value)>,
}

/// What a field says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Nothing,
    Bool(bool),
    Number(u64),
    /// Below zero.
    Negative(i64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Value>),
}

/// What some bytes of a log begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// An event, and how many bytes it takes.
    Entry(Entry, usize),
    /// More bytes are needed to tell.
    Incomplete,
    /// No event, whatever follows.
    Malformed,
}

/// Opens the binary log of this process; what is in the file stays there.
pub fn open(path: &Path) -> io::Result<()> {
    let log = BinaryLog { path: path.to_owned(), file: append(path)?, failing: false };
    // A second call changes nothing.
    let _ = LOG.set(Mutex::new(log));
    Ok(())
}

/// Opens the file anew: the old one was renamed. (Seed 000, 4)
pub fn reopen() {
    let Some(mut log) = log() else { return };
    match append(&log.path) {
        Ok(file) => {
            log.file = file;
            info!(path = %log.path.display(), "binary log reopened");
        }
        Err(error) => warn!(path = %log.path.display(), %error, "binary log cannot be reopened"),
    }
}

/// Writes an event, if there is a binary log. One call to the kernel: a killed process leaves whole events.
pub fn record(name: &str, fields: impl FnOnce() -> Vec<(&'static str, Value)>) {
    let Some(mut log) = log() else { return };
    let fields = fields().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let entry = Entry { unix_millis: clock::wall().0, name: name.to_owned(), fields };
    log.write(&entry.encode());
}

struct BinaryLog {
    path: PathBuf,
    file: File,
    /// Said once, not for every event.
    failing: bool,
}

static LOG: OnceLock<Mutex<BinaryLog>> = OnceLock::new();

fn log() -> Option<MutexGuard<'static, BinaryLog>> {
    let log = LOG.get()?;
    // Whoever panicked left at worst half an event, which readers skip.
    Some(log.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

impl BinaryLog {
    fn write(&mut self, bytes: &[u8]) {
        match self.file.write_all(bytes) {
            Ok(()) => self.failing = false,
            Err(error) if !self.failing => {
                self.failing = true;
                warn!(path = %self.path.display(), %error, "binary log cannot be written");
            }
            Err(_) => {}
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Entry {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_front(&mut out).expect("a vector takes all bytes");
        let sum = crc32fast::hash(&out);
        encode::write_u32(&mut out, sum).expect("a vector takes all bytes");
        out
    }

    fn encode_front(&self, out: &mut Vec<u8>) -> io::Result<()> {
        encode::write_array_len(out, ELEMENTS)?;
        encode::write_u64(out, self.unix_millis)?;
        encode::write_str(out, &self.name)?;
        encode::write_map_len(out, self.fields.len() as u32)?;
        for (name, value) in &self.fields {
            encode::write_str(out, name)?;
            value.encode(out)?;
        }
        Ok(())
    }

    /// Reads the event that `bytes` begin with. Lengths are checked against the bytes that are there before anything
    /// is allocated.
    pub fn decode(bytes: &[u8]) -> Decoded {
        match Entry::read(bytes) {
            Ok((entry, used)) => Decoded::Entry(entry, used),
            Err(Bad::Short) if bytes.len() < ENTRY_BYTES_MAX => Decoded::Incomplete,
            Err(Bad::Short | Bad::Wrong) => Decoded::Malformed,
        }
    }

    /// Where the next event may begin after a malformed one.
    pub fn next_start(bytes: &[u8]) -> usize {
        let found = bytes.windows(START.len()).skip(1).position(|window| window == START);
        found.map_or(bytes.len().saturating_sub(1).max(1), |position| position + 1)
    }

    fn read(bytes: &[u8]) -> Result<(Entry, usize), Bad> {
        let begins = START.iter().zip(bytes).all(|(wanted, found)| wanted == found);
        if !begins {
            return Err(Bad::Wrong);
        }
        let mut rest = bytes.get(1..).ok_or(Bad::Short)?;
        let unix_millis = number(&mut rest)?;
        let name = text(&mut rest)?;
        let count = map_len(&mut rest)?;
        if count > COUNT_MAX {
            return Err(Bad::Wrong);
        }
        let mut fields = Vec::new();
        for _ in 0..count {
            fields.push((text(&mut rest)?, value(&mut rest, LISTS_DEEP_MAX)?));
        }
        let summed = bytes.len() - rest.len();
        let sum: u64 = number(&mut rest)?;
        if sum != u64::from(crc32fast::hash(&bytes[..summed])) {
            return Err(Bad::Wrong);
        }
        Ok((Entry { unix_millis, name, fields }, bytes.len() - rest.len()))
    }
}

impl Value {
    pub fn text(value: impl ToString) -> Value {
        Value::Text(value.to_string())
    }

    fn encode(&self, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Value::Nothing => encode::write_nil(out)?,
            Value::Bool(value) => encode::write_bool(out, *value)?,
            Value::Number(value) => {
                encode::write_uint(out, *value)?;
            }
            Value::Negative(value) => {
                encode::write_sint(out, *value)?;
            }
            Value::Text(value) => encode::write_str(out, value)?,
            Value::Bytes(value) => encode::write_bin(out, value)?,
            Value::List(values) => {
                encode::write_array_len(out, values.len() as u32)?;
                for value in values {
                    value.encode(out)?;
                }
            }
        }
        Ok(())
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Number(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        u64::try_from(value).map_or(Value::Negative(value), Value::Number)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Value {
        Value::Bytes(value.to_vec())
    }
}

/// Why no event could be read.
enum Bad {
    Short,
    Wrong,
}

fn number(rest: &mut &[u8]) -> Result<u64, Bad> {
    let mut ahead = *rest;
    let marker = marker(&mut ahead)?;
    let size = match marker {
        Marker::FixPos(_) => 0,
        Marker::U8 => 1,
        Marker::U16 => 2,
        Marker::U32 => 4,
        Marker::U64 => 8,
        _other => return Err(Bad::Wrong),
    };
    if ahead.len() < size {
        return Err(Bad::Short);
    }
    read_int(rest).map_err(|_| Bad::Wrong)
}

fn text(rest: &mut &[u8]) -> Result<String, Bad> {
    match value(rest, 0)? {
        Value::Text(text) => Ok(text),
        _other => Err(Bad::Wrong),
    }
}

fn map_len(rest: &mut &[u8]) -> Result<usize, Bad> {
    match marker(rest)? {
        Marker::FixMap(count) => Ok(usize::from(count)),
        Marker::Map16 => length(rest, 2),
        Marker::Map32 => length(rest, 4),
        _other => Err(Bad::Wrong),
    }
}

fn value(rest: &mut &[u8], lists_deep: usize) -> Result<Value, Bad> {
    let before = *rest;
    Ok(match marker(rest)? {
        Marker::Null => Value::Nothing,
        Marker::True => Value::Bool(true),
        Marker::False => Value::Bool(false),
        Marker::FixPos(_) | Marker::U8 | Marker::U16 | Marker::U32 | Marker::U64 => {
            *rest = before;
            Value::Number(number(rest)?)
        }
        Marker::FixNeg(value) => Value::Negative(i64::from(value)),
        Marker::I8 => signed(rest, 1)?,
        Marker::I16 => signed(rest, 2)?,
        Marker::I32 => signed(rest, 4)?,
        Marker::I64 => signed(rest, 8)?,
        Marker::FixStr(count) => string(take(rest, usize::from(count))?)?,
        Marker::Str8 => sized_string(rest, 1)?,
        Marker::Str16 => sized_string(rest, 2)?,
        Marker::Str32 => sized_string(rest, 4)?,
        Marker::Bin8 => sized_bytes(rest, 1)?,
        Marker::Bin16 => sized_bytes(rest, 2)?,
        Marker::Bin32 => sized_bytes(rest, 4)?,
        Marker::FixArray(count) => list(rest, usize::from(count), lists_deep)?,
        Marker::Array16 => sized_list(rest, 2, lists_deep)?,
        Marker::Array32 => sized_list(rest, 4, lists_deep)?,
        _other => return Err(Bad::Wrong),
    })
}

fn marker(rest: &mut &[u8]) -> Result<Marker, Bad> {
    read_marker(rest).map_err(|_| Bad::Short)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Bad> {
    if count > ENTRY_BYTES_MAX {
        return Err(Bad::Wrong);
    }
    let (taken, after) = rest.split_at_checked(count).ok_or(Bad::Short)?;
    *rest = after;
    Ok(taken)
}

/// A big-endian number in so many bytes.
fn length(rest: &mut &[u8], size: usize) -> Result<usize, Bad> {
    let mut count = 0usize;
    for _ in 0..size {
        count = count << 8 | usize::from(rest.read_u8().map_err(|_| Bad::Short)?);
    }
    Ok(count)
}

/// What a signed form says; we write it for numbers below zero only.
fn signed(rest: &mut &[u8], size: usize) -> Result<Value, Bad> {
    let unsigned = length(rest, size)? as u64;
    let shift = 64 - 8 * size as u32;
    Ok(Value::from((unsigned << shift) as i64 >> shift))
}

fn string(bytes: &[u8]) -> Result<Value, Bad> {
    std::str::from_utf8(bytes).map(Value::text).map_err(|_| Bad::Wrong)
}

fn sized_string(rest: &mut &[u8], size: usize) -> Result<Value, Bad> {
    let count = length(rest, size)?;
    string(take(rest, count)?)
}

fn sized_bytes(rest: &mut &[u8], size: usize) -> Result<Value, Bad> {
    let count = length(rest, size)?;
    Ok(Value::Bytes(take(rest, count)?.to_vec()))
}

fn sized_list(rest: &mut &[u8], size: usize, lists_deep: usize) -> Result<Value, Bad> {
    let count = length(rest, size)?;
    list(rest, count, lists_deep)
}

fn list(rest: &mut &[u8], count: usize, lists_deep: usize) -> Result<Value, Bad> {
    let deeper = lists_deep.checked_sub(1).filter(|_| count <= COUNT_MAX).ok_or(Bad::Wrong)?;
    let mut values = Vec::new();
    for _ in 0..count {
        values.push(value(rest, deeper)?);
    }
    Ok(Value::List(values))
}

const ELEMENTS: u32 = 4;

/// The first bytes of every event: an array of four, and a u64.
const START: [u8; 2] = [0x94, 0xcf];

/// The largest value of a request, twice over.
pub const ENTRY_BYTES_MAX: usize = 128 * 1024 * 1024;

const LISTS_DEEP_MAX: usize = 4;

/// Fields of an event, and values of a list: a hash space names at most so many servers.
const COUNT_MAX: usize = kumo_cluster::MEMBERS_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Entry {
        let fields = vec![
            ("nothing".to_owned(), Value::Nothing),
            ("yes".to_owned(), true.into()),
            ("no".to_owned(), false.into()),
            ("small".to_owned(), 7u64.into()),
            ("large".to_owned(), u64::MAX.into()),
            ("minus".to_owned(), (-1i64).into()),
            ("least".to_owned(), i64::MIN.into()),
            ("minus 1000".to_owned(), (-1000i64).into()),
            ("text".to_owned(), Value::text("x".repeat(300))),
            ("bytes".to_owned(), Value::Bytes(vec![0x94; 70_000])),
            ("list".to_owned(), Value::List(vec![Value::text("a"), Value::List(vec![1u64.into()])])),
        ];
        Entry { unix_millis: 1_228_310_145_000, name: "sample".to_owned(), fields }
    }

    #[test]
    fn what_is_written_is_read_back_and_a_part_of_it_is_incomplete() {
        let bytes = sample().encode();
        assert_eq!(Entry::decode(&bytes), Decoded::Entry(sample(), bytes.len()));
        for length in (0..bytes.len()).step_by(97).chain(0..600).chain([bytes.len() - 1]) {
            assert_eq!(Entry::decode(&bytes[..length]), Decoded::Incomplete, "{length}");
        }
    }

    #[test]
    fn a_torn_event_costs_no_other() {
        let one = Entry { fields: vec![("key".to_owned(), Value::Bytes(vec![7; 100]))], ..sample() };
        let whole = one.encode();
        let mut bytes = whole[..whole.len() / 2].to_vec();
        bytes.extend_from_slice(&whole);
        bytes.extend_from_slice(&whole);
        let (mut found, mut at) = (0, 0);
        while at < bytes.len() {
            at += match Entry::decode(&bytes[at..]) {
                Decoded::Entry(entry, used) => {
                    assert_eq!(entry, one);
                    found += 1;
                    used
                }
                Decoded::Incomplete | Decoded::Malformed => Entry::next_start(&bytes[at..]),
            };
        }
        assert_eq!(found, 2);
    }

    #[test]
    fn no_bytes_lead_to_a_panic() {
        let bytes = sample().encode();
        let mut noise = 12345u64;
        for _ in 0..20_000 {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut changed = bytes[..600].to_vec();
            changed[(noise >> 33) as usize % 600] ^= (noise >> 20) as u8;
            if let Decoded::Entry(entry, _) = Entry::decode(&changed) {
                assert_eq!(entry, sample());
            }
        }
    }

    #[test]
    fn huge_lengths_are_refused_without_memory_for_them() {
        let mut bytes = vec![0x94, 0xcf, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&[0xdb, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(Entry::decode(&bytes), Decoded::Malformed);
    }
}
