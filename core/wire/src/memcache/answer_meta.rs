//! Answers to meta commands: a code of two letters, and the flags that the request asked for, in its order.

use super::answer::{Item, Outcome, misplaced, write_failure};
use super::number::{self, Decimal};
use super::words::Words;
use bytes::{BufMut, Bytes, BytesMut};

/// How to answer a meta command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaAnswer {
    pub verb: MetaVerb,
    /// `q`: no answer in the usual case, a miss for `mg`, success for the others.
    pub quiet: bool,
    /// `v`
    pub(super) value: bool,
    /// `b`
    pub(super) base64: bool,
    /// The request's line from its key on: flags are answered as they were sent.
    pub(super) line: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    Get,
    Store,
    Delete,
    Arithmetic,
    Describe,
    Noop,
}

impl MetaAnswer {
    pub(super) fn noop() -> MetaAnswer {
        let line = Bytes::new();
        MetaAnswer { verb: MetaVerb::Noop, quiet: false, value: false, base64: false, line }
    }

    pub(super) fn write(&self, outcome: &Outcome, out: &mut BytesMut) {
        match outcome {
            Outcome::Value { item, .. } => self.write_item(item, out),
            Outcome::Miss { .. } | Outcome::NotFound if self.verb == MetaVerb::Describe => {
                out.put_slice(b"EN\r\n");
            }
            Outcome::Miss { .. } if self.quiet => {}
            Outcome::Miss { .. } => self.write_code("EN", &Facts::default(), out),
            // Only the text protocol marks where values end.
            Outcome::End => {}
            Outcome::Stored { .. } | Outcome::Deleted | Outcome::Number { .. } if self.quiet => {}
            Outcome::Stored { cas } => {
                self.write_code("HD", &Facts { cas: Some(*cas), ..Facts::default() }, out);
            }
            Outcome::Deleted => self.write_code("HD", &Facts::default(), out),
            Outcome::Number { number, cas, ttl } => self.write_number(*number, *cas, *ttl, out),
            Outcome::NotStored => self.write_code("NS", &self.of_nothing(), out),
            Outcome::Exists => self.write_code("EX", &self.of_nothing(), out),
            Outcome::NotFound => self.write_code("NF", &self.of_nothing(), out),
            Outcome::Description(item) => self.write_description(item, out),
            Outcome::Ok => out.put_slice(b"MN\r\n"),
            Outcome::Failed(failure) => write_failure(failure, out),
            Outcome::Touched { .. }
            | Outcome::Version(_)
            | Outcome::Stat { .. }
            | Outcome::StatsReset
            | Outcome::NoSuchStats
            | Outcome::Mechanisms(_)
            | Outcome::Authenticated
            | Outcome::Continue => misplaced(outcome, out),
        }
    }

    /// Of an item that is not as the request would have it. Where a set tells the cas unique that it made, memcached tells
    /// that there is none; the others say nothing of it.
    fn of_nothing(&self) -> Facts {
        Facts { cas: (self.verb == MetaVerb::Store).then_some(0), ..Facts::default() }
    }

    fn write_item(&self, item: &Item, out: &mut BytesMut) {
        let facts = Facts {
            size: Some(item.data.len()),
            flags: Some(item.flags),
            cas: Some(item.cas),
            ttl: Some(item.ttl),
        };
        self.write_data(item.data, &facts, out);
    }

    fn write_number(&self, number: u64, cas: u64, ttl: Option<u64>, out: &mut BytesMut) {
        let facts = Facts { cas: Some(cas), ttl: Some(ttl), ..Facts::default() };
        self.write_data(Decimal::of(number).as_bytes(), &facts, out);
    }

    /// With the value if it was asked for, `HD` without.
    fn write_data(&self, data: &[u8], facts: &Facts, out: &mut BytesMut) {
        if !self.value {
            return self.write_code("HD", facts, out);
        }
        out.reserve(self.line.len() + data.len() + FACTS_BYTES_MAX);
        out.put_slice(b"VA ");
        number::put(data.len() as u64, out);
        self.write_flags(facts, out);
        out.put_slice(data);
        out.put_slice(b"\r\n");
    }

    fn write_code(&self, code: &str, facts: &Facts, out: &mut BytesMut) {
        out.put_slice(code.as_bytes());
        self.write_flags(facts, out);
    }

    fn write_flags(&self, facts: &Facts, out: &mut BytesMut) {
        let mut words = Words::of(&self.line);
        let key = words.next().unwrap_or_default();
        if self.verb == MetaVerb::Store {
            // The length of the block.
            words.next();
        }
        for word in words {
            let word = &self.line[word];
            match (word[0], facts) {
                (b'k', _) => {
                    out.put_slice(b" k");
                    out.put_slice(&self.line[key.clone()]);
                    out.put_slice(if self.base64 { b" b" } else { b"" });
                }
                (b'O', _) => {
                    out.put_u8(b' ');
                    out.put_slice(word);
                }
                (b's', Facts { size: Some(size), .. }) => put_fact(b's', *size as u64, out),
                (b'f', Facts { flags: Some(flags), .. }) => put_fact(b'f', (*flags).into(), out),
                (b'c', Facts { cas: Some(cas), .. }) => put_fact(b'c', *cas, out),
                (b't', Facts { ttl: Some(Some(ttl)), .. }) => put_fact(b't', *ttl, out),
                (b't', Facts { ttl: Some(None), .. }) => out.put_slice(b" t-1"),
                _ => {}
            }
        }
        out.put_slice(b"\r\n");
    }

    /// `ME key exp=seconds cas=unique size=bytes`
    fn write_description(&self, item: &Item, out: &mut BytesMut) {
        let key = Words::of(&self.line).next().unwrap_or_default();
        out.put_slice(b"ME ");
        out.put_slice(&self.line[key]);
        out.put_slice(b" exp=");
        match item.ttl {
            Some(ttl) => number::put(ttl, out),
            None => out.put_slice(b"-1"),
        }
        out.put_slice(b" cas=");
        number::put(item.cas, out);
        out.put_slice(b" size=");
        number::put(item.data.len() as u64, out);
        out.put_slice(b"\r\n");
    }
}

/// What an answer can tell of the item; only what was asked for is told.
#[derive(Default)]
struct Facts {
    size: Option<usize>,
    flags: Option<u32>,
    cas: Option<u64>,
    /// Known, and if so, whether there is one.
    ttl: Option<Option<u64>>,
}

fn put_fact(flag: u8, number: u64, out: &mut BytesMut) {
    out.put_u8(b' ');
    out.put_u8(flag);
    number::put(number, out);
}

/// Code, length, four numbers with their flags, ends of lines.
const FACTS_BYTES_MAX: usize = 3 + 20 + 4 * 22 + 4;
