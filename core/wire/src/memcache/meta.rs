//! The lines of the meta protocol. Wording and order of the checks are memcached's.

use super::Answer;
use super::answer_meta::{MetaAnswer, MetaVerb};
use super::base64;
use super::decoder::Refused;
use super::number::{signed, unsigned};
use super::request::{Command, Create, Expiry, KEY_BYTES_MAX, Keys, Mode, Request, Sign};
use super::text::{BAD_FORMAT, ERROR, Replying, Storing, block_length};
use super::words::Words;
use bytes::Bytes;
use std::ops::Range;

/// `mg key flags*`
pub(super) fn get(frame: &Bytes, words: Words, length: usize) -> Result<Request, Refused> {
    let line = Line::read(MetaVerb::Get, &frame[..length], words)?;
    line.request(frame, Command::Get { keys: Keys::One(line.key(frame)), touch: line.flags.expiry })
}

/// `md key flags*`
pub(super) fn delete(frame: &Bytes, words: Words, length: usize) -> Result<Request, Refused> {
    let line = Line::read(MetaVerb::Delete, &frame[..length], words)?;
    line.request(frame, Command::Delete { key: line.key(frame), cas: line.flags.cas })
}

/// `ma key flags*`
pub(super) fn arithmetic(frame: &Bytes, words: Words, length: usize) -> Result<Request, Refused> {
    let line = Line::read(MetaVerb::Arithmetic, &frame[..length], words)?;
    let Flags { mode, delta, initial, create, cas, expiry: touch, .. } = line.flags;
    let sign = match mode {
        None | Some(b'I' | b'+') => Sign::Increment,
        Some(b'D' | b'-') => Sign::Decrement,
        Some(_) => return Err(Refused::saying("CLIENT_ERROR invalid mode for ma M token\r\n")),
    };
    let create = create.map(|expiry| Create { initial, expiry });
    let key = line.key(frame);
    line.request(frame, Command::Arithmetic { key, sign, delta, create, cas, touch })
}

/// `me key [b]`
pub(super) fn describe(frame: &Bytes, mut words: Words, length: usize) -> Result<Request, Refused> {
    let line = &frame[..length];
    let bad = || Refused::saying(BAD_FORMAT);
    let key = words.next().filter(|key| key.len() <= KEY_BYTES_MAX).ok_or_else(bad)?;
    let base64 = words.next().is_some_and(|word| &line[word] == b"b");
    let decoded = match base64 {
        true => Some(base64::decode(&line[key.clone()]).ok_or_else(bad)?.into()),
        false => None,
    };
    let flags = Flags { value: false, quiet: false, base64, ..Flags::default() };
    let line = Line { verb: MetaVerb::Describe, key: key.clone(), rest: key.start..length, flags, decoded };
    line.request(frame, Command::Describe { key: line.key(frame) })
}

/// `ms key bytes flags*`
pub(super) fn storing(line: &[u8], mut words: Words) -> Result<Storing, Refused> {
    let (key, rest) = key_word(MetaVerb::Store, line, &mut words)?;
    let length = words.next().and_then(|word| block_length(&line[word]));
    let length = length.ok_or(Refused::saying(BAD_FORMAT))?;
    // From here on the length is known, and the block goes where its line goes.
    let dropping = |reply| Refused::saying(reply).swallowing(length as u64 + 2);
    let (flags, decoded) = Flags::read(MetaVerb::Store, line, &key, words).map_err(dropping)?;
    let mode = match flags.mode {
        None | Some(b'S') => Mode::Set,
        Some(b'E') => Mode::Add,
        Some(b'A') => Mode::Append,
        Some(b'P') => Mode::Prepend,
        Some(b'R') => Mode::Replace,
        Some(_) => return Err(dropping("CLIENT_ERROR invalid mode for ms M token\r\n")),
    };
    if flags.opaque_too_long {
        return Err(dropping(OPAQUE_TOO_LONG));
    }
    // To memcached a replace with a cas is a set with it, and an add looks at none.
    let (mode, cas) = match mode {
        Mode::Replace if flags.cas.is_some() => (Mode::Set, flags.cas),
        Mode::Add => (Mode::Add, None),
        Mode::Set | Mode::Replace | Mode::Append | Mode::Prepend => (mode, flags.cas),
    };
    let expiry = flags.expiry.unwrap_or(Expiry::NEVER);
    let replying = Replying::Meta { quiet: flags.quiet, line: rest, decoded };
    Ok(Storing { mode, key, flags: flags.client, expiry, cas, length, replying })
}

/// A meta command's line that has no block.
struct Line {
    verb: MetaVerb,
    key: Range<usize>,
    /// From the key on.
    rest: Range<usize>,
    flags: Flags,
    /// The key, when it came in base64.
    decoded: Option<Bytes>,
}

impl Line {
    fn read(verb: MetaVerb, line: &[u8], mut words: Words) -> Result<Line, Refused> {
        let (key, rest) = key_word(verb, line, &mut words)?;
        let (flags, decoded) = Flags::read(verb, line, &key, words).map_err(Refused::saying)?;
        Ok(Line { verb, key, rest, flags, decoded })
    }

    fn key(&self, frame: &Bytes) -> Bytes {
        self.decoded.clone().unwrap_or_else(|| frame.slice(self.key.clone()))
    }

    fn request(&self, frame: &Bytes, command: Command) -> Result<Request, Refused> {
        let Flags { quiet, value, base64, opaque_too_long, .. } = self.flags;
        if opaque_too_long {
            return Err(Refused::saying(OPAQUE_TOO_LONG));
        }
        let answer =
            MetaAnswer { verb: self.verb, quiet, value, base64, line: frame.slice(self.rest.clone()) };
        Ok(Request { answer: Answer::Meta(answer), command })
    }
}

/// The key of a meta line, and the line from there on, if it has no more words than allowed.
fn key_word(verb: MetaVerb, line: &[u8], words: &mut Words) -> Result<(Range<usize>, Range<usize>), Refused> {
    let key = words.next().ok_or(Refused::saying(ERROR))?;
    if key.len() > KEY_BYTES_MAX {
        return Err(Refused::saying(BAD_FORMAT));
    }
    if words.clone().take(WORDS_MAX + 1).count() > WORDS_MAX {
        return Err(Refused::saying(match verb {
            MetaVerb::Get => "CLIENT_ERROR options flags are too long\r\n",
            _ => "CLIENT_ERROR options flags too long\r\n",
        }));
    }
    let rest = key.start..line.len();
    Ok((key, rest))
}

/// What the flags of a line say.
#[derive(Clone, Copy)]
struct Flags {
    base64: bool,
    quiet: bool,
    value: bool,
    /// T
    expiry: Option<Expiry>,
    /// F
    client: u32,
    /// C
    cas: Option<u64>,
    /// M
    mode: Option<u8>,
    /// D
    delta: u64,
    /// J
    initial: u64,
    /// N
    create: Option<Expiry>,
    /// O: told when nothing else is wrong with the line.
    opaque_too_long: bool,
}

impl Default for Flags {
    fn default() -> Flags {
        Flags {
            base64: false,
            quiet: false,
            value: false,
            expiry: None,
            client: 0,
            cas: None,
            mode: None,
            delta: 1,
            initial: 0,
            create: None,
            opaque_too_long: false,
        }
    }
}

impl Flags {
    /// The flags, and the key when they say that it is in base64. First which flags there are, then what they hold, as
    /// memcached does it: that decides which error is told.
    fn read(
        verb: MetaVerb,
        line: &[u8],
        key: &Range<usize>,
        words: Words,
    ) -> Result<(Flags, Option<Bytes>), &'static str> {
        let mut seen = 0u128;
        for word in words.clone() {
            let flag = line[word.start];
            let bit = 1u128.checked_shl(u32::from(flag)).unwrap_or(0);
            if seen & bit != 0 {
                return Err(worded(verb, "CLIENT_ERROR duplicate flag\r\n"));
            }
            if !KNOWN.contains(&flag) || refused_flags(verb).contains(&flag) {
                return Err(worded(verb, "CLIENT_ERROR invalid flag\r\n"));
            }
            seen |= bit;
        }
        let (mut flags, mut decoded, mut wrong) = (Flags::default(), None, None);
        for word in words {
            let taken = match line[word.start] {
                b'b' => flags.take_key(&line[key.clone()]).map(|key| decoded = Some(key)),
                _other => flags.take(&line[word]),
            };
            wrong = match taken {
                Ok(()) => wrong,
                // The last is told; but client flags have no words of their own.
                Err(BAD_FORMAT) => wrong.or(Some(BAD_FORMAT)),
                Err(reply) => Some(reply),
            };
        }
        match wrong {
            None => Ok((flags, decoded)),
            Some(reply) => Err(worded(verb, reply)),
        }
    }

    fn take_key(&mut self, word: &[u8]) -> Result<Bytes, &'static str> {
        self.base64 = true;
        base64::decode(word).map(Bytes::from).ok_or("CLIENT_ERROR error decoding key\r\n")
    }

    fn take(&mut self, word: &[u8]) -> Result<(), &'static str> {
        let token = &word[1..];
        let seconds =
            || signed(token).map(Expiry::spelled).ok_or("CLIENT_ERROR bad token in command line format\r\n");
        match word[0] {
            b'q' => self.quiet = true,
            b'v' => self.value = true,
            b'T' => self.expiry = Some(seconds()?),
            b'N' => self.create = Some(seconds()?),
            // No command that takes it uses it.
            b'R' => drop(seconds()?),
            b'F' => {
                let flags = unsigned(token).and_then(|flags| u32::try_from(flags).ok());
                self.client = flags.ok_or(BAD_FORMAT)?;
            }
            b'C' => {
                let cas = unsigned(token).ok_or("CLIENT_ERROR bad token in command line format\r\n")?;
                self.cas = Some(cas);
            }
            b'M' => match token {
                &[mode] => self.mode = Some(mode),
                _ => return Err("CLIENT_ERROR incorrect length for M token\r\n"),
            },
            b'D' => self.delta = unsigned(token).ok_or("CLIENT_ERROR invalid numeric delta value\r\n")?,
            b'J' => self.initial = unsigned(token).ok_or("CLIENT_ERROR invalid numeric initial value\r\n")?,
            b'O' => self.opaque_too_long = token.len() > OPAQUE_BYTES_MAX,
            _ => {}
        }
        Ok(())
    }
}

/// md and ma have one wording for everything that is wrong with a flag.
fn worded(verb: MetaVerb, reply: &'static str) -> &'static str {
    match verb {
        MetaVerb::Get | MetaVerb::Store | MetaVerb::Describe | MetaVerb::Noop => reply,
        MetaVerb::Delete | MetaVerb::Arithmetic => "CLIENT_ERROR invalid or duplicate flag\r\n",
    }
}

/// Flags that memcached knows for a command and a replicated store cannot honour: see the module's header.
fn refused_flags(verb: MetaVerb) -> &'static [u8] {
    match verb {
        MetaVerb::Get => b"hlNR",
        MetaVerb::Store | MetaVerb::Delete => b"I",
        MetaVerb::Arithmetic | MetaVerb::Describe | MetaVerb::Noop => b"",
    }
}

/// Every flag of memcached 1.6.18, for any command: one that means nothing there is ignored.
const KNOWN: &[u8] = b"bcfhklqstuvCDFIJLMNOPRT";

const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long\r\n";

/// memcached keeps 32 bytes for the flag and its token.
const OPAQUE_BYTES_MAX: usize = 31;

/// After the key: memcached's limit on the words of a line.
const WORDS_MAX: usize = 17;
