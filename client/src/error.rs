//! [`Error`]: why a call did not give what was asked for.

use kumo_pfs::Refusal;
use kumo_session::{CallError, EndReason};
use std::net::SocketAddr;

/// Why a call failed. Prints as one line.
///
/// After [`Lost`](Error::Lost), [`Ended`](Error::Ended), [`Unreachable`](Error::Unreachable) and
/// [`ForeignCell`](Error::ForeignCell) a change may or may not have been made; after all others it was not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// PFS refused; nothing was changed.
    #[error("{0}")]
    Refused(Refusal),
    /// The cell refused, for a reason that is not PFS's: a quota of sessions, an operator's order.
    #[error("{0}")]
    CellRefused(String),
    /// No renewal reached the cell within the session's timeout: its locks and ephemerals may be gone.
    #[error("session lost: the cell was not reached within its timeout")]
    Lost,
    #[error("session ended: {}", reason(.0))]
    Ended(EndReason),
    /// A wait was given up before it was served.
    #[error("not obtained in time")]
    TimedOut,
    #[error("no member of the cell answers{}", parenthesis(.0))]
    Unreachable(Option<String>),
    #[error("the cell has no master")]
    NoMaster,
    #[error("no such session")]
    NoSession,
    #[error("too many calls under way in this session")]
    Busy,
    /// The cell was not reached any more, and a replica of another one is where it was: all its memory is gone, or
    /// the address is another's by now. What belonged to the session is lost.
    #[error("another cell answers at {0}")]
    ForeignCell(SocketAddr),
    /// The file or directory kept changing while it was read in pieces.
    #[error("changes too often to be read whole: {0}")]
    Changing(String),
    #[error("this session holds or awaits the lock already: {0}")]
    LockInUse(String),
    #[error("this session's events are read already")]
    EventsInUse,
    /// The other side said what the protocol does not allow.
    #[error("the cell's answer is not understood: {0}")]
    Protocol(String),
    /// The system gave no random bits for the session's token.
    #[error("no randomness from the operating system")]
    Entropy,
}

impl Error {
    pub(crate) fn malformed(error: kumo_wire::Malformed) -> Error {
        Error::Protocol(error.to_string())
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Error {
        match error {
            CallError::Ended(reason) => Error::Ended(reason),
            CallError::Lost => Error::Lost,
            CallError::Cancelled => Error::TimedOut,
            CallError::Unreachable => Error::Unreachable(None),
            CallError::NoMaster => Error::NoMaster,
            CallError::Refused(reason) => Error::CellRefused(reason),
            CallError::NoSession => Error::NoSession,
            CallError::Busy => Error::Busy,
        }
    }
}

fn reason(reason: &EndReason) -> &'static str {
    match reason {
        EndReason::Expired => "not renewed in time",
        EndReason::Closed => "closed",
        EndReason::Killed => "killed",
        EndReason::Unknown => "the cell does not know it",
    }
}

fn parenthesis(detail: &Option<String>) -> String {
    detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default()
}
