//! What calls of the store come to.

use super::carrier::Outcome;
use bytes::Bytes;
use kumo_cluster::{Answer, GatewayError};
use kumo_wire::memcache::KEY_BYTES_MAX;

/// A value of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub data: Bytes,
    pub flags: u32,
    /// Names this version, for `cas`.
    pub unique: u64,
    /// Seconds until it expires; none: never.
    pub ttl: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasResult {
    /// The new version's number.
    Stored(u64),
    /// Another version is there.
    Changed,
    Missing,
}

/// Why a call of the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// [`TimedOut`](GatewayError::TimedOut) and [`Unknown`](GatewayError::Unknown): a write may or may not have taken
    /// effect, once at most. All others: it has not.
    #[error("{0}")]
    Store(#[from] GatewayError),
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes, not {0}")]
    Key(usize),
    #[error("the value is too large")]
    TooLarge,
    #[error("the value there is not a number")]
    NotNumeric,
    /// The managers refuse this client; why.
    #[error("refused: {0}")]
    Refused(String),
    /// The runtime that carried the connections is gone.
    #[error("the connections to the store are closed")]
    Closed,
    #[error("a server answered out of turn")]
    Protocol,
    #[error("no randomness from the operating system")]
    Entropy,
}

/// What the carrier said, if it lived to say it.
pub(super) fn settled<E>(told: Result<Outcome, E>) -> Result<Answer, StoreError> {
    told.unwrap_or(Err(StoreError::Closed))
}

/// The error in an answer that is not one of the call's own.
pub(super) fn unexpected(answer: Answer) -> StoreError {
    match answer {
        Answer::NotNumeric => StoreError::NotNumeric,
        Answer::TooLarge => StoreError::TooLarge,
        Answer::Unknown => StoreError::Store(GatewayError::Unknown),
        Answer::Refused { reason } => StoreError::Store(GatewayError::Refused(reason)),
        Answer::Reply(_)
        | Answer::Missing
        | Answer::NotStored
        | Answer::Exists
        | Answer::WrongSpace { .. }
        | Answer::Wait => StoreError::Protocol,
    }
}
