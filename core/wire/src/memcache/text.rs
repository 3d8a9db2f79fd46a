//! The lines of the text protocol. Wording and order of the checks are memcached's.

use super::Answer;
use super::answer_meta::{MetaAnswer, MetaVerb};
use super::decoder::Refused;
use super::meta;
use super::number::{signed, unsigned};
use super::request::{Command, Expiry, KEY_BYTES_MAX, Keys, Mode, Request, Sign};
use super::words::{FewWords, Words};
use bytes::{Buf, Bytes};
use std::ops::Range;

/// The request in `frame`: a line of `length` bytes and its end. Commands with a data block go through [`storing`].
pub(super) fn command(frame: Bytes, length: usize) -> Result<Request, Refused> {
    let line = &frame[..length];
    let mut words = Words::of(line);
    let verb = words.next().map_or(&[][..], |word| &line[word]);
    match verb {
        b"get" | b"mget" => get(words.rest().start, length, frame, false),
        b"gets" => get(words.rest().start, length, frame, true),
        b"mg" => meta::get(&frame, words, length),
        b"gat" => get_and_touch(words.next(), words.rest().start, length, frame, false),
        b"gats" => get_and_touch(words.next(), words.rest().start, length, frame, true),
        b"incr" => arithmetic(&frame, length, Sign::Increment),
        b"decr" => arithmetic(&frame, length, Sign::Decrement),
        b"delete" => delete(&frame, length),
        b"touch" => touch(&frame, length),
        b"md" => meta::delete(&frame, words, length),
        b"ma" => meta::arithmetic(&frame, words, length),
        b"me" => meta::describe(&frame, words, length),
        b"mn" => Ok(Request { answer: Answer::Meta(MetaAnswer::noop()), command: Command::Noop }),
        b"flush_all" => flush_all(line),
        b"verbosity" => verbosity(line),
        b"version" => Ok(answered(false, Command::Version)),
        b"stats" => stats(&frame, length, words.rest()),
        b"quit" => Ok(answered(true, Command::Quit)),
        b"shutdown" => Err(Refused::saying("ERROR: shutdown not enabled\r\n")),
        _ => Err(unknown(line)),
    }
}

/// A line that announces a data block.
pub(super) struct Storing {
    pub mode: Mode,
    pub key: Range<usize>,
    pub flags: u32,
    pub expiry: Expiry,
    pub cas: Option<u64>,
    pub length: usize,
    pub replying: Replying,
}

/// How a line that stores will be answered, once its block is there.
pub(super) enum Replying {
    Text {
        noreply: bool,
    },
    /// The part of the line from its key on; the key itself when it came in base64.
    Meta {
        quiet: bool,
        line: Range<usize>,
        decoded: Option<Bytes>,
    },
}

impl Replying {
    /// Meta commands hear of errors even when they are quiet.
    pub fn refused(&self, reply: &'static str) -> Refused {
        match self {
            Replying::Text { noreply } => refused(reply, *noreply),
            Replying::Meta { .. } => Refused::saying(reply),
        }
    }

    /// The way to answer, and the key, both out of the line.
    pub fn answer(self, frame: Bytes, key: Range<usize>) -> (Answer, Bytes) {
        match self {
            Replying::Text { noreply } => (Answer::Text { noreply, cas: false }, narrowed(frame, key)),
            Replying::Meta { quiet, line, decoded } => {
                let base64 = decoded.is_some();
                let key = decoded.unwrap_or_else(|| frame.slice(key));
                let line = frame.slice(line);
                let answer = MetaAnswer { verb: MetaVerb::Store, quiet, value: false, base64, line };
                (Answer::Meta(answer), key)
            }
        }
    }
}

/// `set key flags expiry bytes [noreply]`, and `cas` with a unique before the noreply.
pub(super) fn storing(line: &[u8], mode: Mode, with_cas: bool) -> Result<Storing, Refused> {
    let words = FewWords::of(line);
    let fixed = if with_cas { 6 } else { 5 };
    if words.count != fixed && words.count != fixed + 1 {
        return Err(Refused::saying(ERROR));
    }
    let noreply = words.noreply();
    let parsed = || {
        let key = Some(words.range(1)).filter(|key| key.len() <= KEY_BYTES_MAX)?;
        let flags = u32::try_from(unsigned(words.word(2))?).ok()?;
        let expiry = Expiry::spelled(signed(words.word(3))?);
        let length = block_length(words.word(4))?;
        let cas = if with_cas { Some(unsigned(words.word(5))?) } else { None };
        let replying = Replying::Text { noreply };
        Some(Storing { mode, key, flags, expiry, cas, length, replying })
    };
    parsed().ok_or_else(|| refused(BAD_FORMAT, noreply))
}

/// The length of a data block, if there can be one of it.
pub(super) fn block_length(word: &[u8]) -> Option<usize> {
    usize::try_from(unsigned(word)?).ok().filter(|&length| length <= LENGTH_MAX)
}

/// `get key*`
fn get(start: usize, end: usize, frame: Bytes, cas: bool) -> Result<Request, Refused> {
    if start == end {
        return Err(Refused::saying(ERROR));
    }
    let keys = keys(frame, start..end)?;
    Ok(Request { answer: Answer::Text { noreply: false, cas }, command: Command::Get { keys, touch: None } })
}

/// `gat expiry key*`
fn get_and_touch(
    expiry: Option<Range<usize>>,
    start: usize,
    end: usize,
    frame: Bytes,
    cas: bool,
) -> Result<Request, Refused> {
    let expiry = expiry.ok_or_else(|| Refused::saying(ERROR))?;
    let expiry = signed(&frame[expiry]).ok_or_else(|| Refused::saying(BAD_EXPIRY))?;
    let keys = keys(frame, start..end)?;
    let command = Command::Get { keys, touch: Some(Expiry::spelled(expiry)) };
    Ok(Request { answer: Answer::Text { noreply: false, cas }, command })
}

/// The keys in a part of a line. One too long spoils all.
fn keys(frame: Bytes, part: Range<usize>) -> Result<Keys, Refused> {
    let mut words = Words::of(&frame[part.clone()]);
    let Some(first) = words.next() else { return Ok(Keys::Line(Bytes::new())) };
    let one = words.rest().is_empty();
    if first.len() > KEY_BYTES_MAX || words.any(|word| word.len() > KEY_BYTES_MAX) {
        return Err(Refused::saying(BAD_FORMAT));
    }
    Ok(match one {
        true => Keys::One(narrowed(frame, part.start + first.start..part.start + first.end)),
        false => Keys::Line(narrowed(frame, part)),
    })
}

/// A part of what is not needed otherwise: cheaper than a slice, which is one more owner of the memory.
fn narrowed(mut frame: Bytes, part: Range<usize>) -> Bytes {
    frame.truncate(part.end);
    frame.advance(part.start);
    frame
}

/// `incr key delta [noreply]`
fn arithmetic(frame: &Bytes, length: usize, sign: Sign) -> Result<Request, Refused> {
    let words = FewWords::of(&frame[..length]);
    if words.count != 3 && words.count != 4 {
        return Err(Refused::saying(ERROR));
    }
    let noreply = words.noreply();
    let key = key(frame, words.range(1), noreply)?;
    let Some(delta) = unsigned(words.word(2)) else {
        return Err(refused("CLIENT_ERROR invalid numeric delta argument\r\n", noreply));
    };
    Ok(answered(noreply, Command::Arithmetic { key, sign, delta, create: None, cas: None, touch: None }))
}

/// `delete key [0] [noreply]`
fn delete(frame: &Bytes, length: usize) -> Result<Request, Refused> {
    let words = FewWords::of(&frame[..length]);
    let noreply = words.noreply();
    // A time to refuse adds for was once part of the command; zero is still allowed.
    let zero = words.count > 2 && words.word(2) == b"0";
    match words.count {
        2 => Ok(answered(false, Command::Delete { key: key(frame, words.range(1), false)?, cas: None })),
        3 if zero || noreply => {
            Ok(answered(noreply, Command::Delete { key: key(frame, words.range(1), noreply)?, cas: None }))
        }
        4 if zero && noreply => {
            Ok(answered(true, Command::Delete { key: key(frame, words.range(1), true)?, cas: None }))
        }
        3 | 4 => Err(refused(BAD_DELETE, noreply)),
        _ => Err(Refused::saying(ERROR)),
    }
}

/// `touch key expiry [noreply]`
fn touch(frame: &Bytes, length: usize) -> Result<Request, Refused> {
    let words = FewWords::of(&frame[..length]);
    if words.count != 3 && words.count != 4 {
        return Err(Refused::saying(ERROR));
    }
    let noreply = words.noreply();
    let key = key(frame, words.range(1), noreply)?;
    let Some(expiry) = signed(words.word(2)) else { return Err(refused(BAD_EXPIRY, noreply)) };
    Ok(answered(noreply, Command::Touch { key, expiry: Expiry::spelled(expiry) }))
}

/// `flush_all [delay] [noreply]`
fn flush_all(line: &[u8]) -> Result<Request, Refused> {
    let words = FewWords::of(line);
    let noreply = words.noreply();
    let delay = match words.count {
        1 => Some(0),
        2 if noreply => Some(0),
        2 | 3 => signed(words.word(1)),
        _ => return Err(Refused::saying(ERROR)),
    };
    match delay {
        Some(delay) => {
            let delay = Some(Expiry(delay)).filter(|&delay| delay != Expiry::NEVER);
            Ok(answered(noreply, Command::FlushAll { delay }))
        }
        None => Err(refused(BAD_EXPIRY, noreply)),
    }
}

/// `verbosity level [noreply]`
fn verbosity(line: &[u8]) -> Result<Request, Refused> {
    let words = FewWords::of(line);
    let noreply = words.noreply();
    match words.count {
        2 | 3 if unsigned(words.word(1)).is_some() => Ok(answered(noreply, Command::Verbosity)),
        2 | 3 => Err(refused(BAD_FORMAT, noreply)),
        _ => Err(Refused::saying(ERROR)),
    }
}

/// `stats [name argument*]`. Most names are the gateway's matter.
fn stats(frame: &Bytes, length: usize, argument: Range<usize>) -> Result<Request, Refused> {
    let line = &frame[..length];
    let words = FewWords::of(line);
    if words.count > 1 && words.word(1) == b"cachedump" {
        check_dump(&words).map_err(Refused::saying)?;
    }
    Ok(answered(false, Command::Stats { argument: frame.slice(trimmed(line, argument)) }))
}

/// `stats cachedump class limit`: tools try it out to see what a server knows, so it is refused in memcached's words.
fn check_dump(words: &FewWords) -> Result<(), &'static str> {
    if words.count < 4 {
        return Err("CLIENT_ERROR bad command line\r\n");
    }
    let class = unsigned(words.word(2)).ok_or(BAD_FORMAT)?;
    unsigned(words.word(3)).ok_or(BAD_FORMAT)?;
    // As there, of the number's last 32 bits.
    match class as u32 {
        ..SLAB_CLASSES => Ok(()),
        _none => Err("CLIENT_ERROR Illegal slab id\r\n"),
    }
}

/// A browser, or whatever a web page makes it send, is hung up on: what follows the line is not for us either.
fn unknown(line: &[u8]) -> Refused {
    let last = line.rsplit(|&byte| byte == b' ').find(|word| !word.is_empty());
    match last.is_some_and(|word| word.starts_with(b"HTTP/")) {
        true => Refused::closing(""),
        false => Refused::saying(ERROR),
    }
}

fn answered(noreply: bool, command: Command) -> Request {
    Request { answer: Answer::Text { noreply, cas: false }, command }
}

fn refused(reply: &'static str, noreply: bool) -> Refused {
    Refused::saying(if noreply { "" } else { reply })
}

fn key(frame: &Bytes, word: Range<usize>, noreply: bool) -> Result<Bytes, Refused> {
    match word.len() <= KEY_BYTES_MAX {
        true => Ok(frame.slice(word)),
        false => Err(refused(BAD_FORMAT, noreply)),
    }
}

fn trimmed(line: &[u8], part: Range<usize>) -> Range<usize> {
    let spaces = line[part.clone()].iter().rev().take_while(|&&byte| byte == b' ').count();
    part.start..part.end - spaces
}

pub(super) const ERROR: &str = "ERROR\r\n";
pub(super) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
const BAD_EXPIRY: &str = "CLIENT_ERROR invalid exptime argument\r\n";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";

/// memcached's classes of items by their size, of which there are none here.
const SLAB_CLASSES: u32 = 64;

/// What memcached takes for a length at all, with the two bytes that end a block: 2³¹ − 1.
pub(super) const LENGTH_MAX: usize = i32::MAX as usize - 2;
