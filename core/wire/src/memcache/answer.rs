//! What came of a request, and the bytes that say so. [`Answer`] remembers how its client is to be told.

use super::answer_binary;
use super::answer_meta::MetaAnswer;
use super::binary::Opcode;
use super::number::{self, Decimal};
use super::request::KEY_BYTES_MAX;
use bytes::{BufMut, BytesMut};

/// How to answer a request: part of it, and small enough to keep until its outcome is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Text {
        noreply: bool,
        /// Values carry their cas.
        cas: bool,
    },
    Meta(MetaAnswer),
    Binary {
        opcode: Opcode,
        opaque: u32,
    },
}

/// What came of a request. A get has one outcome for each key, in their order, then `End`; if one of them fails, the
/// error stands in the place of `End`. Stats are `Stat`s and an `End`. Everything else has one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    Value {
        key: &'a [u8],
        item: Item<'a>,
    },
    Miss {
        key: &'a [u8],
    },
    End,
    Stored {
        cas: u64,
    },
    /// The mode's condition does not hold, or an append makes the value too large.
    NotStored,
    Exists,
    NotFound,
    Deleted,
    Touched {
        flags: u32,
        cas: u64,
    },
    Number {
        number: u64,
        cas: u64,
        /// Seconds that are left.
        ttl: Option<u64>,
    },
    /// Done, and nothing to tell: flush_all, verbosity, noop, quit, a switch among the stats.
    Ok,
    Version(&'a str),
    Stat {
        name: &'a str,
        value: &'a str,
    },
    StatsReset,
    NoSuchStats,
    /// To `me`.
    Description(Item<'a>),
    /// The SASL mechanisms there are, separated by spaces.
    Mechanisms(&'a str),
    Authenticated,
    /// A login goes on with a step.
    Continue,
    Failed(Failure<'a>),
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<'a> {
    NotNumeric,
    TooLarge,
    /// Not who it says, or not said yet who it is.
    Auth,
    FlushNotAllowed,
    /// A command that is switched off.
    Unknown,
    OutOfMemory,
    /// In one line.
    Client(&'a str),
    /// In one line.
    Server(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    pub flags: u32,
    pub cas: u64,
    /// Seconds that are left.
    pub ttl: Option<u64>,
    pub data: &'a [u8],
}

impl Answer {
    /// Appends what the client is to read, which may be nothing.
    pub fn write(&self, outcome: &Outcome, out: &mut BytesMut) {
        match self {
            Answer::Text { noreply: true, .. } => {}
            Answer::Text { noreply: false, cas } => write_text(*cas, outcome, out),
            Answer::Meta(answer) => answer.write(outcome, out),
            Answer::Binary { opcode, opaque } => answer_binary::write(*opcode, *opaque, outcome, out),
        }
    }
}

fn write_text(with_cas: bool, outcome: &Outcome, out: &mut BytesMut) {
    match outcome {
        Outcome::Value { key, item } => write_value(with_cas, key, item, out),
        Outcome::Miss { .. } => {}
        Outcome::End => out.put_slice(b"END\r\n"),
        Outcome::Stored { .. } => out.put_slice(b"STORED\r\n"),
        Outcome::NotStored => out.put_slice(b"NOT_STORED\r\n"),
        Outcome::Exists => out.put_slice(b"EXISTS\r\n"),
        Outcome::NotFound => out.put_slice(b"NOT_FOUND\r\n"),
        Outcome::Deleted => out.put_slice(b"DELETED\r\n"),
        Outcome::Touched { .. } => out.put_slice(b"TOUCHED\r\n"),
        Outcome::Number { number, .. } => write_line(&[Decimal::of(*number).as_bytes()], out),
        Outcome::Ok => out.put_slice(b"OK\r\n"),
        Outcome::Version(version) => write_line(&[b"VERSION ", version.as_bytes()], out),
        Outcome::Stat { name, value } => {
            write_line(&[b"STAT ", name.as_bytes(), b" ", value.as_bytes()], out);
        }
        Outcome::StatsReset => out.put_slice(b"RESET\r\n"),
        Outcome::NoSuchStats => out.put_slice(b"ERROR\r\n"),
        Outcome::Failed(failure) => write_failure(failure, out),
        Outcome::Description(_) | Outcome::Mechanisms(_) | Outcome::Authenticated | Outcome::Continue => {
            misplaced(outcome, out);
        }
    }
}

/// `VALUE key flags bytes [cas]`, then the data.
fn write_value(with_cas: bool, key: &[u8], item: &Item, out: &mut BytesMut) {
    out.reserve(VALUE_LINE_BYTES_MAX + item.data.len());
    out.put_slice(b"VALUE ");
    out.put_slice(key);
    out.put_u8(b' ');
    number::put(item.flags.into(), out);
    out.put_u8(b' ');
    number::put(item.data.len() as u64, out);
    if with_cas {
        out.put_u8(b' ');
        number::put(item.cas, out);
    }
    out.put_slice(b"\r\n");
    out.put_slice(item.data);
    out.put_slice(b"\r\n");
}

/// Failures read the same in text and meta.
pub(super) fn write_failure(failure: &Failure, out: &mut BytesMut) {
    match failure {
        Failure::NotNumeric => {
            out.put_slice(b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
        }
        Failure::TooLarge => out.put_slice(b"SERVER_ERROR object too large for cache\r\n"),
        Failure::Auth => out.put_slice(b"CLIENT_ERROR unauthenticated\r\n"),
        Failure::FlushNotAllowed => out.put_slice(b"CLIENT_ERROR flush_all not allowed\r\n"),
        Failure::Unknown => out.put_slice(b"ERROR\r\n"),
        Failure::OutOfMemory => out.put_slice(b"SERVER_ERROR out of memory storing object\r\n"),
        Failure::Client(text) => write_line(&[b"CLIENT_ERROR ", text.as_bytes()], out),
        Failure::Server(text) => write_line(&[b"SERVER_ERROR ", text.as_bytes()], out),
    }
}

/// An outcome that the request cannot have is a bug of the caller. The client still gets an answer to its request,
/// or it would take the next one for it.
pub(super) fn misplaced(outcome: &Outcome, out: &mut BytesMut) {
    debug_assert!(false, "no outcome of this request: {outcome:?}");
    out.put_slice(b"SERVER_ERROR internal error\r\n");
}

fn write_line(parts: &[&[u8]], out: &mut BytesMut) {
    for part in parts {
        out.put_slice(part);
    }
    out.put_slice(b"\r\n");
}

/// All but the data: `VALUE`, the longest key, three numbers, spaces and ends of lines.
const VALUE_LINE_BYTES_MAX: usize = 6 + KEY_BYTES_MAX + 3 * 21 + 4;

#[cfg(test)]
mod tests {
    use super::super::{Decoded, Decoder};
    use super::*;

    /// The answer that the only request in `bytes` asks for.
    fn asked(bytes: &[u8]) -> Answer {
        match Decoder::new(16).next(&mut BytesMut::from(bytes)) {
            Decoded::Request(request) => request.answer,
            other => panic!("{other:?}"),
        }
    }

    fn written(answer: &Answer, outcome: &Outcome) -> String {
        let mut out = BytesMut::new();
        answer.write(outcome, &mut out);
        out.escape_ascii().to_string()
    }

    #[test]
    fn failures_in_all_protocols() {
        let table: [(Failure, &str, u8, &str); 8] = [
            (
                Failure::NotNumeric,
                "CLIENT_ERROR cannot increment or decrement non-numeric value",
                0x06,
                "Non-numeric server-side value for incr or decr",
            ),
            (Failure::TooLarge, "SERVER_ERROR object too large for cache", 0x03, "Too large."),
            (Failure::Auth, "CLIENT_ERROR unauthenticated", 0x20, "Auth failure."),
            (Failure::FlushNotAllowed, "CLIENT_ERROR flush_all not allowed", 0x20, "Auth failure."),
            (Failure::Unknown, "ERROR", 0x81, "Unknown command"),
            (Failure::OutOfMemory, "SERVER_ERROR out of memory storing object", 0x82, "Out of memory"),
            (Failure::Client("no"), "CLIENT_ERROR no", 0x04, "no"),
            (Failure::Server("no owner answers"), "SERVER_ERROR no owner answers", 0x84, "no owner answers"),
        ];
        // Quiet forms hear of failures, too; only a text client that wants no reply gets none.
        let text = asked(b"set a 0 0 1\r\nx\r\n");
        let silent = asked(b"set a 0 0 1 noreply\r\nx\r\n");
        let meta = asked(b"ms a 1 q k\r\nx\r\n");
        let binary = Answer::Binary { opcode: Opcode::SetQ, opaque: 0x0708_090a };
        for (failure, line, status, words) in table {
            let outcome = Outcome::Failed(failure);
            assert_eq!(written(&text, &outcome), format!("{line}\\r\\n"));
            assert_eq!(written(&silent, &outcome), "");
            assert_eq!(written(&meta, &outcome), format!("{line}\\r\\n"));
            let mut packet = BytesMut::new();
            binary.write(&outcome, &mut packet);
            let header = [0x81, 0x11, 0, 0, 0, 0, 0, status, 0, 0, 0, words.len() as u8, 7, 8, 9, 10];
            assert_eq!(packet[..], [&header[..], &[0; 8], words.as_bytes()].concat());
        }
    }

    #[test]
    fn a_failed_get_ends_with_the_failure() {
        let answer = asked(b"gets a b\r\n");
        let item = Item { flags: 7, cas: u64::MAX, ttl: None, data: b"x" };
        let mut out = BytesMut::new();
        answer.write(&Outcome::Value { key: b"a", item }, &mut out);
        answer.write(&Outcome::Failed(Failure::Server("no owner answers")), &mut out);
        assert_eq!(out[..], *b"VALUE a 7 1 18446744073709551615\r\nx\r\nSERVER_ERROR no owner answers\r\n");
    }

    #[test]
    fn stats_end_in_both_protocols() {
        let text = asked(b"stats\r\n");
        let stat = Outcome::Stat { name: "pid", value: "7" };
        assert_eq!(written(&text, &stat), "STAT pid 7\\r\\n");
        assert_eq!(written(&text, &Outcome::End), "END\\r\\n");
        let binary = Answer::Binary { opcode: Opcode::Stat, opaque: 0 };
        assert!(written(&binary, &stat).ends_with("pid7"));
        assert_eq!(written(&binary, &Outcome::End).matches("\\x").count(), 24);
        // A binary get has no end of its own.
        assert_eq!(written(&Answer::Binary { opcode: Opcode::GetK, opaque: 0 }, &Outcome::End), "");
    }

    #[test]
    fn sasl_in_words() {
        let list = Answer::Binary { opcode: Opcode::SaslList, opaque: 0 };
        assert!(written(&list, &Outcome::Mechanisms("PLAIN")).ends_with("PLAIN"));
        let auth = Answer::Binary { opcode: Opcode::SaslAuth, opaque: 0 };
        assert!(written(&auth, &Outcome::Authenticated).ends_with("Authenticated"));
    }
}
