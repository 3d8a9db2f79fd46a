//! Answers to binary packets: the request's header turned round, a status, and what belongs to it.

use super::answer::{Failure, Item, Outcome};
use super::binary::{HEADER_BYTES, MAGIC_RESPONSE, Opcode};
use bytes::{BufMut, BytesMut};

/// A number of the protocol and the words that go with it.
#[derive(Clone, Copy)]
pub(super) struct Status {
    pub number: u16,
    pub text: &'static str,
}

pub(super) fn write(opcode: Opcode, opaque: u32, outcome: &Outcome, out: &mut BytesMut) {
    let packet = Packet { opcode: opcode as u8, opaque, status: 0, cas: 0 };
    let quiet = is_quiet(opcode);
    match outcome {
        Outcome::Value { key, item } => write_value(packet, with_key(opcode), key, item, out),
        Outcome::Miss { .. } if quiet => {}
        // The key says enough.
        Outcome::Miss { key } if with_key(opcode) => {
            Packet { status: NOT_FOUND.number, ..packet }.write(&[], key, &[], out);
        }
        Outcome::Miss { .. } => packet.fail(NOT_FOUND, out),
        Outcome::End if opcode != Opcode::Stat => {}
        Outcome::Stored { .. } | Outcome::Deleted | Outcome::Number { .. } | Outcome::Ok if quiet => {}
        Outcome::Stored { cas } => Packet { cas: *cas, ..packet }.write(&[], &[], &[], out),
        Outcome::Touched { flags, cas } => {
            Packet { cas: *cas, ..packet }.write(&flags.to_be_bytes(), &[], &[], out);
        }
        Outcome::Number { number, cas, .. } => {
            Packet { cas: *cas, ..packet }.write(&[], &[], &number.to_be_bytes(), out);
        }
        Outcome::Ok | Outcome::Deleted | Outcome::End | Outcome::StatsReset => {
            packet.write(&[], &[], &[], out)
        }
        Outcome::Version(text) | Outcome::Mechanisms(text) => packet.write(&[], &[], text.as_bytes(), out),
        Outcome::Stat { name, value } => packet.write(&[], name.as_bytes(), value.as_bytes(), out),
        Outcome::Continue => Packet { status: AUTH_CONTINUE, ..packet }.write(&[], &[], &[], out),
        Outcome::Authenticated => packet.write(&[], &[], b"Authenticated", out),
        Outcome::NotStored => packet.fail(not_stored(opcode), out),
        Outcome::Exists => packet.fail(EXISTS, out),
        Outcome::NotFound | Outcome::NoSuchStats => packet.fail(NOT_FOUND, out),
        Outcome::Failed(failure) => write_failure(packet, failure, out),
        Outcome::Description(_) => {
            debug_assert!(false, "no outcome of this request: {outcome:?}");
            packet.fail(INTERNAL_ERROR, out);
        }
    }
}

/// A packet that says no.
pub(super) fn error(opcode: u8, opaque: u32, status: Status, out: &mut BytesMut) {
    Packet { opcode, opaque, status: 0, cas: 0 }.fail(status, out);
}

fn write_value(packet: Packet, with_key: bool, key: &[u8], item: &Item, out: &mut BytesMut) {
    let key = if with_key { key } else { &[] };
    Packet { cas: item.cas, ..packet }.write(&item.flags.to_be_bytes(), key, item.data, out);
}

fn write_failure(packet: Packet, failure: &Failure, out: &mut BytesMut) {
    let words = |status: Status, text: &str, out: &mut BytesMut| {
        Packet { status: status.number, ..packet }.write(&[], &[], text.as_bytes(), out);
    };
    match failure {
        Failure::NotNumeric => packet.fail(NOT_NUMERIC, out),
        Failure::TooLarge => packet.fail(TOO_LARGE, out),
        Failure::Auth | Failure::FlushNotAllowed => packet.fail(AUTH_FAILURE, out),
        Failure::Unknown => packet.fail(UNKNOWN_COMMAND, out),
        Failure::OutOfMemory => packet.fail(OUT_OF_MEMORY, out),
        Failure::Client(text) => words(INVALID_ARGUMENTS, text, out),
        Failure::Server(text) => words(INTERNAL_ERROR, text, out),
    }
}

/// Why a store with a condition did not store: binary clients are told which.
fn not_stored(opcode: Opcode) -> Status {
    match opcode {
        Opcode::Add | Opcode::AddQ => EXISTS,
        Opcode::Replace | Opcode::ReplaceQ => NOT_FOUND,
        _ => NOT_STORED,
    }
}

/// Whether the usual case has no answer: a miss for gets, success for the others.
fn is_quiet(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::GetQ
            | Opcode::GetKQ
            | Opcode::GatQ
            | Opcode::GatKQ
            | Opcode::SetQ
            | Opcode::AddQ
            | Opcode::ReplaceQ
            | Opcode::AppendQ
            | Opcode::PrependQ
            | Opcode::DeleteQ
            | Opcode::IncrementQ
            | Opcode::DecrementQ
            | Opcode::FlushQ
            | Opcode::QuitQ
    )
}

fn with_key(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::GetK | Opcode::GetKQ | Opcode::GatK | Opcode::GatKQ)
}

/// | offset | size | field                              |
/// |      0 |    1 | magic, 0x81 of a response          |
/// |      1 |    1 | opcode of the request              |
/// |      2 |    2 | length of the key                  |
/// |      4 |    1 | length of the extras               |
/// |      5 |    1 | data type, 0                       |
/// |      6 |    2 | status                             |
/// |      8 |    4 | length of extras, key and value    |
/// |     12 |    4 | opaque of the request              |
/// |     16 |    8 | cas of the item                    |
#[derive(Clone, Copy)]
struct Packet {
    opcode: u8,
    opaque: u32,
    status: u16,
    cas: u64,
}

impl Packet {
    fn write(&self, extras: &[u8], key: &[u8], value: &[u8], out: &mut BytesMut) {
        let body = extras.len() + key.len() + value.len();
        out.reserve(HEADER_BYTES + body);
        out.put_u8(MAGIC_RESPONSE);
        out.put_u8(self.opcode);
        out.put_u16(key.len() as u16);
        out.put_u8(extras.len() as u8);
        out.put_u8(0);
        out.put_u16(self.status);
        out.put_u32(body as u32);
        out.put_u32(self.opaque);
        out.put_u64(self.cas);
        out.put_slice(extras);
        out.put_slice(key);
        out.put_slice(value);
    }

    fn fail(&self, status: Status, out: &mut BytesMut) {
        Packet { status: status.number, ..*self }.write(&[], &[], status.text.as_bytes(), out);
    }
}

const NOT_FOUND: Status = Status { number: 0x01, text: "Not found" };
const EXISTS: Status = Status { number: 0x02, text: "Data exists for key." };
pub(super) const TOO_LARGE: Status = Status { number: 0x03, text: "Too large." };
pub(super) const INVALID_ARGUMENTS: Status = Status { number: 0x04, text: "Invalid arguments" };
const NOT_STORED: Status = Status { number: 0x05, text: "Not stored." };
const NOT_NUMERIC: Status = Status { number: 0x06, text: "Non-numeric server-side value for incr or decr" };
pub(super) const AUTH_FAILURE: Status = Status { number: 0x20, text: "Auth failure." };
/// There is more to say, by a step.
const AUTH_CONTINUE: u16 = 0x21;
pub(super) const UNKNOWN_COMMAND: Status = Status { number: 0x81, text: "Unknown command" };
const OUT_OF_MEMORY: Status = Status { number: 0x82, text: "Out of memory" };
const INTERNAL_ERROR: Status = Status { number: 0x84, text: "Internal error" };
