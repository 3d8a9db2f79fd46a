//! The packets of the binary protocol: the header, which packets may look like what, and their requests.

use super::Answer;
use super::answer_binary;
use super::decoder::Refused;
use super::gate::CREDENTIALS_BYTES_MAX;
use super::request::{Command, Create, Expiry, KEY_BYTES_MAX, Keys, Mode, Request, Sasl, Sign};
use bytes::{Buf, Bytes, BytesMut};

/// What a packet asks for. The numbers are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    Get = 0x00,
    Set = 0x01,
    Add = 0x02,
    Replace = 0x03,
    Delete = 0x04,
    Increment = 0x05,
    Decrement = 0x06,
    Quit = 0x07,
    Flush = 0x08,
    GetQ = 0x09,
    Noop = 0x0a,
    Version = 0x0b,
    GetK = 0x0c,
    GetKQ = 0x0d,
    Append = 0x0e,
    Prepend = 0x0f,
    Stat = 0x10,
    SetQ = 0x11,
    AddQ = 0x12,
    ReplaceQ = 0x13,
    DeleteQ = 0x14,
    IncrementQ = 0x15,
    DecrementQ = 0x16,
    QuitQ = 0x17,
    FlushQ = 0x18,
    AppendQ = 0x19,
    PrependQ = 0x1a,
    Touch = 0x1c,
    Gat = 0x1d,
    GatQ = 0x1e,
    SaslList = 0x20,
    SaslAuth = 0x21,
    SaslStep = 0x22,
    GatK = 0x23,
    GatKQ = 0x24,
}

impl Opcode {
    pub(super) fn of(number: u8) -> Option<Opcode> {
        OPCODE_OF.get(usize::from(number)).copied().flatten()
    }

    /// Whether one may ask for it before the login.
    fn is_open_to_all(self) -> bool {
        matches!(self, Opcode::SaslList | Opcode::SaslAuth | Opcode::SaslStep | Opcode::Version)
    }
}

/// | offset | size | field                                |
/// |      0 |    1 | magic, 0x80 of a request             |
/// |      1 |    1 | opcode                               |
/// |      2 |    2 | length of the key                    |
/// |      4 |    1 | length of the extras                 |
/// |      5 |    1 | data type, not looked at             |
/// |      6 |    2 | virtual bucket, not looked at        |
/// |      8 |    4 | length of extras, key and value      |
/// |     12 |    4 | opaque, given back with the answer   |
/// |     16 |    8 | cas, 0 for none                      |
///
/// Big-endian; extras, key and value follow in this order.
pub(super) struct Header {
    magic: u8,
    opcode: u8,
    key: usize,
    extras: usize,
    pub body: usize,
    opaque: u32,
    cas: u64,
}

impl Header {
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Header {
        let mut bytes = &bytes[..];
        let (magic, opcode) = (bytes.get_u8(), bytes.get_u8());
        let (key, extras) = (bytes.get_u16().into(), bytes.get_u8().into());
        bytes.advance(3);
        let body = bytes.get_u32() as usize;
        Header { magic, opcode, key, extras, body, opaque: bytes.get_u32(), cas: bytes.get_u64() }
    }

    /// Whether such a packet may be, before any of its body is read.
    /// `guarded`: nobody has logged in yet.
    pub fn check(&self, value_bytes_max: usize, guarded: bool) -> Result<(), Refused> {
        if self.magic != MAGIC_REQUEST {
            return Err(Refused::closing(""));
        }
        let Some(value) = self.body.checked_sub(self.key + self.extras) else {
            return Err(self.refused(answer_binary::UNKNOWN_COMMAND, true));
        };
        if guarded && !Opcode::of(self.opcode).is_some_and(Opcode::is_open_to_all) {
            return Err(self.refused(answer_binary::AUTH_FAILURE, true));
        }
        let invalid = || self.refused(answer_binary::INVALID_ARGUMENTS, true);
        if self.key > KEY_BYTES_MAX {
            return Err(invalid());
        }
        let Some(opcode) = Opcode::of(self.opcode) else {
            let refused = self.refused(answer_binary::UNKNOWN_COMMAND, false);
            return Err(refused.swallowing(self.body as u64));
        };
        let Shape { extras, key, value: value_allowed } = Shape::of(opcode);
        let key_fits = match key {
            Part::None => self.key == 0,
            Part::Some => self.key > 0,
            Part::Any => true,
        };
        if !extras.contains(&self.extras) || !key_fits {
            return Err(invalid());
        }
        match value_allowed {
            Value::None if value > 0 => Err(invalid()),
            Value::Credentials if value > CREDENTIALS_BYTES_MAX => Err(invalid()),
            Value::Item if value > value_bytes_max => {
                let refused = self.refused(answer_binary::TOO_LARGE, false);
                Err(refused.swallowing(self.body as u64))
            }
            Value::None | Value::Credentials | Value::Item => Ok(()),
        }
    }

    /// The request of a packet that was checked, from its body.
    pub fn request(&self, mut body: Bytes) -> Request {
        let opcode = Opcode::of(self.opcode).expect("the header was checked");
        let mut extras = body.split_to(self.extras);
        let key = body.split_to(self.key);
        let cas = Some(self.cas).filter(|&cas| cas != 0);
        let expiry = |extras: &mut Bytes| Expiry(extras.get_u32().into());
        let command = match opcode {
            Opcode::Get | Opcode::GetQ | Opcode::GetK | Opcode::GetKQ => {
                Command::Get { keys: Keys::One(key), touch: None }
            }
            Opcode::Gat | Opcode::GatQ | Opcode::GatK | Opcode::GatKQ => {
                Command::Get { keys: Keys::One(key), touch: Some(expiry(&mut extras)) }
            }
            Opcode::Set | Opcode::SetQ => store(Mode::Set, key, extras, cas, body),
            Opcode::Add | Opcode::AddQ => store(Mode::Add, key, extras, cas, body),
            Opcode::Replace | Opcode::ReplaceQ => store(Mode::Replace, key, extras, cas, body),
            Opcode::Append | Opcode::AppendQ => extend(Mode::Append, key, cas, body),
            Opcode::Prepend | Opcode::PrependQ => extend(Mode::Prepend, key, cas, body),
            Opcode::Delete | Opcode::DeleteQ => Command::Delete { key, cas },
            Opcode::Increment | Opcode::IncrementQ => arithmetic(Sign::Increment, key, extras, cas),
            Opcode::Decrement | Opcode::DecrementQ => arithmetic(Sign::Decrement, key, extras, cas),
            Opcode::Touch => Command::Touch { key, expiry: expiry(&mut extras) },
            Opcode::Flush | Opcode::FlushQ if extras.is_empty() => Command::FlushAll { delay: None },
            Opcode::Flush | Opcode::FlushQ => Command::FlushAll { delay: delay(expiry(&mut extras)) },
            Opcode::Quit | Opcode::QuitQ => Command::Quit,
            Opcode::Noop => Command::Noop,
            Opcode::Version => Command::Version,
            Opcode::Stat => Command::Stats { argument: key },
            Opcode::SaslList => Command::Sasl(Sasl::List),
            Opcode::SaslAuth => Command::Sasl(Sasl::Auth { mechanism: key, data: body }),
            Opcode::SaslStep => Command::Sasl(Sasl::Step { mechanism: key, data: body }),
        };
        Request { answer: Answer::Binary { opcode, opaque: self.opaque }, command }
    }

    fn refused(&self, status: answer_binary::Status, close: bool) -> Refused {
        let mut reply = BytesMut::with_capacity(HEADER_BYTES + status.text.len());
        answer_binary::error(self.opcode, self.opaque, status, &mut reply);
        Refused { reply: reply.freeze(), close, swallow: 0 }
    }
}

/// No delay and a delay of nothing are the same.
fn delay(expiry: Expiry) -> Option<Expiry> {
    Some(expiry).filter(|&expiry| expiry != Expiry::NEVER)
}

/// With a cas, memcached looks at nothing else: add and replace become a set.
fn store(mode: Mode, key: Bytes, mut extras: Bytes, cas: Option<u64>, value: Bytes) -> Command {
    let (flags, expiry) = (extras.get_u32(), Expiry(extras.get_u32().into()));
    let mode = if cas.is_some() { Mode::Set } else { mode };
    Command::Store { mode, key, flags, expiry, cas, value }
}

fn extend(mode: Mode, key: Bytes, cas: Option<u64>, value: Bytes) -> Command {
    Command::Store { mode, key, flags: 0, expiry: Expiry::NEVER, cas, value }
}

fn arithmetic(sign: Sign, key: Bytes, mut extras: Bytes, cas: Option<u64>) -> Command {
    let (delta, initial, expiry) = (extras.get_u64(), extras.get_u64(), extras.get_u32());
    let create = (expiry != CREATE_NOTHING).then_some(Create { initial, expiry: Expiry(expiry.into()) });
    Command::Arithmetic { key, sign, delta, create, cas, touch: None }
}

/// What a packet must consist of.
struct Shape {
    extras: &'static [usize],
    key: Part,
    value: Value,
}

enum Part {
    None,
    Some,
    Any,
}

enum Value {
    None,
    Item,
    Credentials,
}

impl Shape {
    fn of(opcode: Opcode) -> Shape {
        let shape = |extras, key, value| Shape { extras, key, value };
        match opcode {
            Opcode::Get | Opcode::GetQ | Opcode::GetK | Opcode::GetKQ => shape(&[0], Part::Some, Value::None),
            Opcode::Delete | Opcode::DeleteQ => shape(&[0], Part::Some, Value::None),
            Opcode::Gat | Opcode::GatQ | Opcode::GatK | Opcode::GatKQ => shape(&[4], Part::Some, Value::None),
            Opcode::Touch => shape(&[4], Part::Some, Value::None),
            Opcode::Set | Opcode::SetQ | Opcode::Add | Opcode::AddQ => shape(&[8], Part::Some, Value::Item),
            Opcode::Replace | Opcode::ReplaceQ => shape(&[8], Part::Some, Value::Item),
            Opcode::Append | Opcode::AppendQ => shape(&[0], Part::Some, Value::Item),
            Opcode::Prepend | Opcode::PrependQ => shape(&[0], Part::Some, Value::Item),
            Opcode::Increment | Opcode::IncrementQ => shape(&[20], Part::Some, Value::None),
            Opcode::Decrement | Opcode::DecrementQ => shape(&[20], Part::Some, Value::None),
            Opcode::Flush | Opcode::FlushQ => shape(&[0, 4], Part::None, Value::None),
            Opcode::Quit | Opcode::QuitQ | Opcode::Noop => shape(&[0], Part::None, Value::None),
            Opcode::Version | Opcode::SaslList => shape(&[0], Part::None, Value::None),
            Opcode::Stat => shape(&[0], Part::Any, Value::None),
            Opcode::SaslAuth | Opcode::SaslStep => shape(&[0], Part::Some, Value::Credentials),
        }
    }
}

const OPCODES: [Opcode; 35] = {
    use Opcode::*;
    [
        Get, Set, Add, Replace, Delete, Increment, Decrement, Quit, Flush, GetQ, Noop, Version, GetK, GetKQ,
        Append, Prepend, Stat, SetQ, AddQ, ReplaceQ, DeleteQ, IncrementQ, DecrementQ, QuitQ, FlushQ, AppendQ,
        PrependQ, Touch, Gat, GatQ, SaslList, SaslAuth, SaslStep, GatK, GatKQ,
    ]
};

/// By number: every packet is looked up here.
const OPCODE_OF: [Option<Opcode>; 64] = {
    let mut table = [None; 64];
    let mut index = 0;
    while index < OPCODES.len() {
        table[OPCODES[index] as usize] = Some(OPCODES[index]);
        index += 1;
    }
    table
};

pub(super) const HEADER_BYTES: usize = 24;
pub(super) const MAGIC_REQUEST: u8 = 0x80;
pub(super) const MAGIC_RESPONSE: u8 = 0x81;

/// The expiry that tells arithmetic not to create an item.
const CREATE_NOTHING: u32 = u32::MAX;
