//! [`Decoder`]: takes requests off the front of what a connection delivered, in all three protocols.

use super::answer::{Answer, Outcome};
use super::binary::{self, Header};
use super::gate::{self, Gate};
use super::meta;
use super::request::{Command, Mode, Request, Sasl};
use super::text::{self, Storing};
use super::words::Words;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

/// What a connection speaks, from its first byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// And meta: its commands are lines among the others.
    Text,
    Binary,
}

/// One connection's requests. What it yields does not depend on how the bytes were cut on their way.
#[derive(Debug)]
pub struct Decoder {
    protocol: Option<Protocol>,
    value_bytes_max: usize,
    /// So many bytes at the front of the buffer hold no end of a line.
    scanned: usize,
    /// Bytes still to come of a request that was refused: they are dropped unread.
    swallow: u64,
    ended: bool,
    gate: Gate,
}

/// The next thing that a buffer holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    Request(Request),
    /// Nothing whole is left: at least so many bytes are missing. Never more than the largest request has.
    More(usize),
    Bad(Bad),
}

/// A request that is answered without anything being done. Its bytes are off the buffer, or will be dropped when
/// they arrive.
#[derive(Debug, PartialEq, Eq)]
pub struct Bad {
    /// Empty when the client wanted no answer, or gets none.
    pub reply: Bytes,
    /// End the connection after the reply: nothing that follows can be understood.
    pub close: bool,
}

impl Decoder {
    /// Values above `value_bytes_max` are refused before a byte of them is stored.
    pub fn new(value_bytes_max: usize) -> Decoder {
        let value_bytes_max = value_bytes_max.min(text::LENGTH_MAX);
        Decoder { protocol: None, value_bytes_max, scanned: 0, swallow: 0, ended: false, gate: Gate::None }
    }

    /// Nothing but a login is taken before one has succeeded.
    pub fn guarded(self) -> Decoder {
        Decoder { gate: Gate::Closed { begun: false }, ..self }
    }

    /// What is to be said to a client that says who it is; `known`: whether there is that user with that password. All that
    /// follows is decoded accordingly.
    pub fn login(&mut self, sasl: &Sasl, known: impl FnOnce(&[u8], &[u8]) -> bool) -> Outcome<'static> {
        self.gate.login(sasl, known)
    }

    /// `None` until the first byte has been seen.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Takes the next request off the front of `buffer`, sharing its memory. Between calls the caller only appends.
    /// After a `Quit`, or a `Bad` that closes, everything else is dropped.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Decoded {
        if self.ended {
            buffer.clear();
            return Decoded::More(1);
        }
        if self.swallow > 0 {
            let dropped = buffer.len().min(usize::try_from(self.swallow).unwrap_or(usize::MAX));
            buffer.advance(dropped);
            self.swallow -= dropped as u64;
        }
        let Some(&first) = buffer.first() else { return Decoded::More(1) };
        let protocol = *self.protocol.get_or_insert(match first {
            binary::MAGIC_REQUEST => Protocol::Binary,
            _ => Protocol::Text,
        });
        let decoded = match protocol {
            Protocol::Text if self.gate.is_closed() => self.login_line(buffer),
            Protocol::Text => self.line(buffer),
            Protocol::Binary => self.packet(buffer),
        };
        match decoded {
            Ok(None) => Decoded::More(1),
            Ok(Some(Step::More(missing))) => Decoded::More(missing),
            Ok(Some(Step::Request(request))) => {
                self.scanned = 0;
                self.ended = request.command == Command::Quit;
                Decoded::Request(request)
            }
            Err(Refused { reply, close, swallow }) => {
                self.scanned = 0;
                self.swallow = swallow;
                self.ended = close;
                Decoded::Bad(Bad { reply, close })
            }
        }
    }

    fn line(&mut self, buffer: &mut BytesMut) -> Result<Option<Step>, Refused> {
        let end = memchr(b'\n', &buffer[self.scanned..]).map(|at| self.scanned + at);
        self.scanned = end.unwrap_or(buffer.len());
        if self.scanned > LINE_BYTES_MAX && self.scanned > line_bytes_max(buffer) {
            return Err(Refused::closing("CLIENT_ERROR line too long\r\n"));
        }
        let Some(end) = end else { return Ok(None) };
        let line = buffer[..end].strip_suffix(b"\r").unwrap_or(&buffer[..end]);
        let length = line.len();
        let mut words = Words::of(line);
        let verb = words.next().map_or(&[][..], |word| &line[word]);
        let storing = match verb {
            b"set" => text::storing(line, Mode::Set, false),
            b"add" => text::storing(line, Mode::Add, false),
            b"replace" => text::storing(line, Mode::Replace, false),
            b"append" => text::storing(line, Mode::Append, false),
            b"prepend" => text::storing(line, Mode::Prepend, false),
            b"cas" => text::storing(line, Mode::Set, true),
            b"ms" => meta::storing(line, words),
            _ => {
                let frame = buffer.split_to(end + 1).freeze();
                return text::command(frame, length).map(|request| Some(Step::Request(request)));
            }
        };
        match storing {
            Ok(storing) => self.block(buffer, end + 1, storing).map(Some),
            Err(refused) => {
                buffer.advance(end + 1);
                Err(refused)
            }
        }
    }

    /// The data block after a line that stores, which takes `head` bytes.
    fn block(&self, buffer: &mut BytesMut, head: usize, storing: Storing) -> Result<Step, Refused> {
        let Storing { mode, key, flags, expiry, cas, length, replying } = storing;
        if length > self.value_bytes_max {
            buffer.advance(head);
            let refused = replying.refused("SERVER_ERROR object too large for cache\r\n");
            return Err(refused.swallowing(length as u64 + 2));
        }
        let total = head + length + 2;
        if buffer.len() < total {
            return Ok(Step::More(total - buffer.len()));
        }
        if buffer[total - 2..total] != *b"\r\n" {
            buffer.advance(total);
            return Err(replying.refused("CLIENT_ERROR bad data chunk\r\n"));
        }
        let mut line = buffer.split_to(total).freeze();
        let mut value = line.split_off(head);
        value.truncate(length);
        let (answer, key) = replying.answer(line, key);
        let command = Command::Store { mode, key, flags, expiry, cas, value };
        Ok(Step::Request(Request { answer, command }))
    }

    /// A line before the login, and the block of user and password when it announces them.
    fn login_line(&mut self, buffer: &mut BytesMut) -> Result<Option<Step>, Refused> {
        let end = memchr(b'\n', &buffer[self.scanned..]).map(|at| self.scanned + at);
        self.scanned = end.unwrap_or(buffer.len());
        if self.scanned > gate::LOGIN_LINE_BYTES_MAX {
            return Err(Refused::closing(""));
        }
        let Some(end) = end else { return Ok(None) };
        let head = end + 1;
        let Some(length) = gate::announced(&buffer[..end]) else {
            buffer.advance(head);
            return Err(Refused::saying(gate::UNAUTHENTICATED));
        };
        if length > gate::CREDENTIALS_BYTES_MAX {
            buffer.advance(head);
            return Err(Refused::saying(gate::UNAUTHENTICATED).swallowing(length as u64 + 2));
        }
        let total = head + length + 2;
        if buffer.len() < total {
            return Ok(Some(Step::More(total - buffer.len())));
        }
        let block = buffer.split_to(total).freeze().slice(head..);
        let command = Command::Sasl(gate::login(&block)?);
        Ok(Some(Step::Request(Request { answer: Answer::Text { noreply: false, cas: false }, command })))
    }

    fn packet(&mut self, buffer: &mut BytesMut) -> Result<Option<Step>, Refused> {
        let Some(bytes) = buffer.first_chunk::<{ binary::HEADER_BYTES }>() else {
            // The first byte alone tells whether this is a packet at all.
            return match buffer[0] {
                binary::MAGIC_REQUEST => Ok(Some(Step::More(binary::HEADER_BYTES - buffer.len()))),
                _ => Err(Refused::closing("")),
            };
        };
        let header = Header::read(bytes);
        if let Err(refused) = header.check(self.value_bytes_max, self.gate.is_closed()) {
            buffer.advance(binary::HEADER_BYTES);
            return Err(refused);
        }
        let total = binary::HEADER_BYTES + header.body;
        if buffer.len() < total {
            return Ok(Some(Step::More(total - buffer.len())));
        }
        let mut frame = buffer.split_to(total).freeze();
        frame.advance(binary::HEADER_BYTES);
        Ok(Some(Step::Request(header.request(frame))))
    }
}

/// How long a line may become that begins like this.
fn line_bytes_max(line: &[u8]) -> usize {
    let verb = Words::of(&line[..LINE_BYTES_MAX]).next().map_or(&[][..], |word| &line[word]);
    match verb {
        b"get" | b"mget" | b"gets" | b"gat" | b"gats" => KEYS_LINE_BYTES_MAX,
        _ => LINE_BYTES_MAX,
    }
}

enum Step {
    Request(Request),
    More(usize),
}

/// A request that is not done: [`Bad`], and how many bytes of it are still to be dropped.
#[derive(Debug)]
pub(super) struct Refused {
    pub reply: Bytes,
    pub close: bool,
    pub swallow: u64,
}

impl Refused {
    pub fn saying(reply: &'static str) -> Refused {
        Refused { reply: Bytes::from_static(reply.as_bytes()), close: false, swallow: 0 }
    }

    pub fn closing(reply: &'static str) -> Refused {
        Refused { close: true, ..Refused::saying(reply) }
    }

    pub fn swallowing(self, swallow: u64) -> Refused {
        Refused { swallow, ..self }
    }
}

/// `--max-value` when it is not given: memcached's own limit.
pub const VALUE_BYTES_MAX_DEFAULT: usize = 1 << 20;

/// Every line but a get's: the size of memcached's read buffer, in which a line must have its end.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// A get's line, which memcached does not bound: here four thousand keys of the longest, so that one line cannot
/// take all memory.
pub const KEYS_LINE_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(LINE_BYTES_MAX <= KEYS_LINE_BYTES_MAX);
