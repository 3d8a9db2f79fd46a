//! What a client asks for, the same for all three protocols.

use super::Answer;
use super::words::Words;
use bytes::Bytes;
use std::fmt;

/// One request: what to do, and how to say what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub answer: Answer,
    pub command: Command,
}

/// Keys and values share the memory of the buffer they were read into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Also gat and gats, when there is an expiry to set. A text line may name no key at all.
    Get {
        keys: Keys,
        touch: Option<Expiry>,
    },
    /// With `cas` (never in mode Add or Replace): only if the item still has it, `Exists` if not; of a missing item
    /// `NotFound`, or `NotStored` in modes Append and Prepend. These two also keep the old flags and expiry.
    Store {
        mode: Mode,
        key: Bytes,
        flags: u32,
        expiry: Expiry,
        cas: Option<u64>,
        value: Bytes,
    },
    Delete {
        key: Bytes,
        cas: Option<u64>,
    },
    /// `cas` is not looked at when the item is missing. `touch` changes the expiry, that of a new item too.
    Arithmetic {
        key: Bytes,
        sign: Sign,
        delta: u64,
        create: Option<Create>,
        cas: Option<u64>,
        touch: Option<Expiry>,
    },
    Touch {
        key: Bytes,
        expiry: Expiry,
    },
    /// All of the store, at once or when `delay` is due (one that has passed is due).
    FlushAll {
        delay: Option<Expiry>,
    },
    Verbosity,
    Version,
    /// An empty argument asks for the general ones.
    Stats {
        argument: Bytes,
    },
    /// Answered (in binary) and then the connection ends: the decoder yields nothing more.
    Quit,
    Noop,
    /// What is known of an item, for people (`me`).
    Describe {
        key: Bytes,
    },
    Sasl(Sasl),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Increment,
    Decrement,
}

/// What arithmetic stores when there is no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create {
    pub initial: u64,
    pub expiry: Expiry,
}

/// How a client says who it is: in binary by SASL, in text by a first `set`. See [`super::Decoder::login`].
#[derive(Clone, PartialEq, Eq)]
pub enum Sasl {
    List,
    Auth { mechanism: Bytes, data: Bytes },
    Step { mechanism: Bytes, data: Bytes },
    Login { user: Bytes, password: Bytes },
}

impl fmt::Debug for Sasl {
    /// Without what must not be in a log.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Sasl::List => f.write_str("List"),
            Sasl::Auth { mechanism, data: _ } => {
                f.debug_struct("Auth").field("mechanism", mechanism).finish_non_exhaustive()
            }
            Sasl::Step { mechanism, data: _ } => {
                f.debug_struct("Step").field("mechanism", mechanism).finish_non_exhaustive()
            }
            Sasl::Login { user, password: _ } => {
                f.debug_struct("Login").field("user", user).finish_non_exhaustive()
            }
        }
    }
}

/// When an item shall vanish, as the client said it. Not a time yet: that takes the time of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry(pub i64);

impl Expiry {
    pub const NEVER: Expiry = Expiry(0);

    /// As a line spells it. libmemcached writes a negative one as 32 bits without a sign; taken for a time, it would be in
    /// the last days of those 32 bits, and what was to vanish at once would stay.
    pub(super) fn spelled(number: i64) -> Expiry {
        let negative = (U32_VALUES - RELATIVE_SECONDS_MAX as i64..U32_VALUES).contains(&number);
        Expiry(if negative { number - U32_VALUES } else { number })
    }

    /// The second, counted from 1970, from which on the item is gone; 0 is never. Up to thirty days count from
    /// `now`, more is a time of its own, and a negative one has passed already.
    pub fn at(self, now: u64) -> u64 {
        match u64::try_from(self.0) {
            Ok(0) => 0,
            Ok(seconds) if seconds <= RELATIVE_SECONDS_MAX => now.saturating_add(seconds),
            Ok(time) => time,
            // 0 means never; the first second of 1970 has passed everywhere.
            Err(_) => 1,
        }
    }
}

/// The keys of a get, without a list of them: a line with many keys is split as it is walked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// May hold any byte when it came in binary or base64.
    One(Bytes),
    /// Separated by spaces; none, or several.
    Line(Bytes),
}

impl Keys {
    /// In the order of the request. A key shares the request's memory.
    pub fn iter(&self) -> impl Iterator<Item = Bytes> + '_ {
        let (one, line) = match self {
            Keys::One(key) => (Some(key.clone()), &[][..]),
            Keys::Line(line) => (None, &line[..]),
        };
        let many = Words::of(line).map(move |word| self.line().slice(word));
        one.into_iter().chain(many)
    }

    fn line(&self) -> &Bytes {
        match self {
            Keys::One(line) | Keys::Line(line) => line,
        }
    }
}

/// Of every protocol, and of a key in base64 as it was sent.
pub const KEY_BYTES_MAX: usize = 250;

/// memcached's border between a duration and a time: thirty days.
const RELATIVE_SECONDS_MAX: u64 = 30 * 24 * 60 * 60;

/// How many numbers there are of 32 bits.
const U32_VALUES: i64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_a_duration_up_to_thirty_days_and_a_time_above() {
        let now = 1_700_000_000;
        assert_eq!(Expiry(0).at(now), 0);
        assert_eq!(Expiry(1).at(now), now + 1);
        assert_eq!(Expiry(2_592_000).at(now), now + 2_592_000);
        assert_eq!(Expiry(2_592_001).at(now), 2_592_001);
        assert_eq!(Expiry(4_294_967_295).at(now), 4_294_967_295);
        assert_eq!(Expiry(-1).at(now), 1);
        assert_eq!(Expiry(i64::MIN).at(now), 1);
        assert_eq!(Expiry(60).at(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_negative_expiry_may_be_spelled_without_its_sign() {
        assert_eq!(Expiry::spelled(4_294_967_295), Expiry(-1));
        assert_eq!(Expiry::spelled(4_292_375_296), Expiry(-2_592_000));
        // A time in 2106, and one beyond.
        assert_eq!(Expiry::spelled(4_292_375_295), Expiry(4_292_375_295));
        assert_eq!(Expiry::spelled(4_294_967_296), Expiry(4_294_967_296));
        assert_eq!(Expiry::spelled(-1), Expiry(-1));
    }

    #[test]
    fn keys_are_walked_in_order() {
        let keys = |keys: Keys| keys.iter().collect::<Vec<_>>();
        assert_eq!(keys(Keys::One("a b".into())), ["a b"]);
        assert_eq!(keys(Keys::Line("a  b c ".into())), ["a", "b", "c"]);
        assert!(keys(Keys::Line(Bytes::new())).is_empty());
    }
}
