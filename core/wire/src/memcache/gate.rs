//! [`Gate`]: a connection that may do nothing before it has said who it is: by SASL PLAIN in binary, by memcached's
//! first `set` in text.

use super::answer::{Failure, Outcome};
use super::decoder::Refused;
use super::number::unsigned;
use super::request::Sasl;
use super::words::{FewWords, Words};
use bytes::Bytes;

/// Where a connection is on its way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// There is none: everybody may do everything, and logging in is unknown.
    None,
    /// `begun`: the client named the mechanism and sends the rest with the next step.
    Closed {
        begun: bool,
    },
    Open,
}

impl Gate {
    pub fn is_closed(self) -> bool {
        matches!(self, Gate::Closed { .. })
    }

    /// What a client is told that says who it is; from then on it may do what it asks for, or not any more. Every try
    /// ends what the one before it gave.
    pub fn login(&mut self, sasl: &Sasl, known: impl FnOnce(&[u8], &[u8]) -> bool) -> Outcome<'static> {
        let begun = match self {
            Gate::None => return Outcome::Failed(Failure::Unknown),
            Gate::Closed { begun } => *begun,
            Gate::Open => false,
        };
        *self = Gate::Closed { begun: false };
        let (outcome, data) = match sasl {
            Sasl::List => return Outcome::Mechanisms(PLAIN),
            Sasl::Auth { mechanism, .. } | Sasl::Step { mechanism, .. }
                if mechanism.len() > MECHANISM_BYTES_MAX =>
            {
                return Outcome::Failed(Failure::Client("Invalid arguments"));
            }
            Sasl::Auth { mechanism, data } => {
                let plain = mechanism.eq_ignore_ascii_case(PLAIN.as_bytes());
                if plain && data.is_empty() {
                    *self = Gate::Closed { begun: true };
                    return Outcome::Continue;
                }
                (Outcome::Authenticated, parts(data).filter(|_| plain))
            }
            Sasl::Step { data, .. } => (Outcome::Authenticated, parts(data).filter(|_| begun)),
            Sasl::Login { user, password } => (Outcome::Stored { cas: 0 }, Some((&user[..], &password[..]))),
        };
        match (data, sasl) {
            (Some((user, password)), _) if known(user, password) => {
                *self = Gate::Open;
                outcome
            }
            (_, Sasl::Login { .. }) => Outcome::Failed(Failure::Client("authentication failure")),
            (_, Sasl::List | Sasl::Auth { .. } | Sasl::Step { .. }) => Outcome::Failed(Failure::Auth),
        }
    }
}

/// User and password of SASL PLAIN: whom to act as, who it is, password, with a zero byte between them. Nobody acts as
/// somebody else.
fn parts(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = data.split(|&byte| byte == 0);
    let (actor, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    (parts.next().is_none() && (actor.is_empty() || actor == user)).then_some((user, password))
}

/// The length of the block after the line `set KEY FLAGS EXPIRY LENGTH`, which announces user and password. None: it is
/// another line. Key, flags and expiry mean nothing, and more words may follow.
pub(super) fn announced(line: &[u8]) -> Option<usize> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let words = FewWords::of(line);
    let length = (words.count >= 5 && words.word(0) == b"set").then(|| unsigned(words.word(4)))??;
    u32::try_from(length).ok().map(|length| length as usize)
}

/// The login in a block and its end: two words, and whatever follows them.
pub(super) fn login(block: &Bytes) -> Result<Sasl, Refused> {
    let Some(text) = block.strip_suffix(b"\r\n") else {
        return Err(Refused::saying("CLIENT_ERROR bad command line termination\r\n"));
    };
    let mut words = Words::of(text);
    match (words.next(), words.next()) {
        (Some(user), Some(password)) => {
            Ok(Sasl::Login { user: block.slice(user), password: block.slice(password) })
        }
        _fewer => Err(Refused::saying("CLIENT_ERROR bad authentication token format\r\n")),
    }
}

/// All that there is: passwords in the clear, on a network that others cannot read, or on loopback.
const PLAIN: &str = "PLAIN";

/// memcached's limit of a mechanism's name.
const MECHANISM_BYTES_MAX: usize = 32;

/// The line before the login, as memcached bounds it. What is longer is no client.
pub(super) const LOGIN_LINE_BYTES_MAX: usize = 2048;

/// User, password and what separates them; far more than anyone types, and nothing for a gateway to hold.
pub(super) const CREDENTIALS_BYTES_MAX: usize = 4096;

pub(super) const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated\r\n";
