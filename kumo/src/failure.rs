//! [`Failure`]: how a command ends when it is not done, and the exit status that tells scripts.

use crate::output::{note, visible};
use pfs::{Error, Refusal};
use std::io;
use std::process::ExitCode;

/// | status | meaning                    |
/// |      1 | refused                    |
/// |      2 | usage                      |
/// |      3 | not found, or not obtained |
/// |      4 | unreachable                |
/// |      5 | no master                  |
#[derive(Debug)]
pub enum Failure {
    Client(Error),
    /// A line, and the status.
    Line(String, u8),
    /// Said already, or another command's status to pass on.
    Status(u8),
}

impl Failure {
    pub fn refused(line: impl Into<String>) -> Failure {
        Failure::Line(line.into(), REFUSED)
    }

    pub fn usage(line: impl Into<String>) -> Failure {
        Failure::Line(line.into(), USAGE)
    }

    pub fn unreachable(line: impl Into<String>) -> Failure {
        Failure::Line(line.into(), UNREACHABLE)
    }

    pub fn not_obtained(line: impl Into<String>) -> Failure {
        Failure::Line(line.into(), NOT_OBTAINED)
    }

    /// Prints the one line there is to say.
    pub fn report(self) -> ExitCode {
        match self {
            Failure::Client(error) => {
                say(&error.to_string());
                ExitCode::from(status(&error))
            }
            Failure::Line(line, status) => {
                say(&line);
                ExitCode::from(status)
            }
            Failure::Status(status) => ExitCode::from(status),
        }
    }
}

/// It may name what others named.
fn say(line: &str) {
    let lines: Vec<String> = line.split('\n').map(visible).collect();
    note(format!("kumo: {}", lines.join("\n")));
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Client(error)
    }
}

/// Of standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            // Who read our output has enough: end as the signal would end us, without a word.
            io::ErrorKind::BrokenPipe => Failure::Status(128 + SIGPIPE),
            _ => Failure::refused(format!("cannot write: {error}")),
        }
    }
}

fn status(error: &Error) -> u8 {
    match error {
        Error::Refused(refusal) => refusal_status(refusal),
        Error::TimedOut | Error::NoSession => NOT_OBTAINED,
        Error::Lost | Error::Unreachable(_) | Error::ForeignCell(_) => UNREACHABLE,
        Error::NoMaster => NO_MASTER,
        Error::CellRefused(_)
        | Error::Ended(_)
        | Error::Busy
        | Error::Changing(_)
        | Error::LockInUse(_)
        | Error::EventsInUse
        | Error::Protocol(_)
        | Error::Entropy => REFUSED,
    }
}

fn refusal_status(refusal: &Refusal) -> u8 {
    match refusal {
        Refusal::NotFound(_) | Refusal::Locked(_) | Refusal::Empty(_) | Refusal::NoMessage(_) => NOT_OBTAINED,
        Refusal::Exists(_)
        | Refusal::NotDirectory(_)
        | Refusal::IsDirectory(_)
        | Refusal::NotEmpty(_)
        | Refusal::BadPath(_)
        | Refusal::BadName(_)
        | Refusal::Version(_)
        | Refusal::Fenced
        | Refusal::NotLocked(_)
        | Refusal::NotAllowed(_)
        | Refusal::Limit(..)
        | Refusal::Malformed => REFUSED,
    }
}

const REFUSED: u8 = 1;
const USAGE: u8 = 2;
const NOT_OBTAINED: u8 = 3;
pub const UNREACHABLE: u8 = 4;
pub const NO_MASTER: u8 = 5;
const SIGPIPE: u8 = 13;
