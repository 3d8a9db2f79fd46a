//! [`Call`]: one call of an application, from its coming until it is answered.

use super::slots::Wait;
use crate::{COPIES, GatewayError, GatewaySettings, KeyHash, Operation, Refusal, SpaceNumber};
use bytes::Bytes;
use kumo_paxos::Time;

/// A call under way. It keeps its seq, and the space it was first sent in, through all tries.
pub(super) struct Call {
    pub ticket: u64,
    pub hash: KeyHash,
    pub key: Bytes,
    pub operation: Operation,
    pub came: Time,
    /// None while it is unplaced.
    pub seq: u64,
    /// The space of the first try; nothing before that.
    pub first_space: SpaceNumber,
    /// The space of the last try.
    pub last_space: SpaceNumber,
    /// How often it was sent under its present id.
    pub sends: u32,
    /// Tries that failed. Wait is no failure, and neither is a change of the space.
    pub failures: u32,
    /// Rests so far.
    pub pauses: u8,
    /// Which reader is next, for a get.
    pub turn: u8,
    /// A write, and the connection of a try was lost before the answer came.
    pub adrift: bool,
    pub stands: Stands,
    pub wait: Wait,
    /// When that ends.
    pub until: Time,
    /// Why the last owner that was asked could not read it.
    pub refusal: Option<Refusal>,
}

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// It has no seq, for want of a gateway id or of a space.
    Unplaced,
    /// That member of the space was asked. The connection lives, so the answer will come; a write is not sent
    /// again before.
    Asked(u16),
    /// No link with those it can be asked of: sent as soon as there is one, or another space.
    Held,
    /// At rest until its time is up.
    Paused,
}

impl Call {
    pub fn new(now: Time, ticket: u64, hash: KeyHash, key: Bytes, operation: Operation) -> Call {
        Call {
            ticket,
            hash,
            key,
            operation,
            came: now,
            seq: 0,
            first_space: SpaceNumber(0),
            last_space: SpaceNumber(0),
            sends: 0,
            failures: 0,
            pauses: 0,
            turn: 0,
            adrift: false,
            stands: Stands::Unplaced,
            wait: Wait::Place,
            until: Time(u64::MAX),
            refusal: None,
        }
    }

    /// Asking it often changes nothing.
    pub fn is_get(&self) -> bool {
        matches!(self.operation, Operation::Get)
    }

    /// Asked elsewhere it may be answered sooner. A write knows no elsewhere.
    pub fn next_reader(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// Whoever was asked is out of reach.
    pub fn lost_sight(&mut self) {
        self.adrift |= !self.is_get();
    }

    /// It may have been, or may yet be, executed under its present id.
    pub fn in_doubt(&self) -> bool {
        self.sends > 0 && !self.is_get()
    }

    /// Failed tries after which it is given up.
    pub fn failures_max(&self, settings: &GatewaySettings) -> u32 {
        match self.operation {
            Operation::Get => settings.get_retry_max.saturating_mul(COPIES as u32 + 1),
            Operation::Delete { .. } => settings.delete_retry_max,
            Operation::GetAndTouch { .. }
            | Operation::Set { .. }
            | Operation::Add { .. }
            | Operation::Replace { .. }
            | Operation::Cas { .. }
            | Operation::Append { .. }
            | Operation::Prepend { .. }
            | Operation::Touch { .. }
            | Operation::Add64 { .. } => settings.set_retry_max,
        }
    }

    /// What to say when its tries are used up.
    pub fn exhausted(&self) -> GatewayError {
        match self.refusal {
            Some(refusal) => GatewayError::Refused(refusal),
            None if self.in_doubt() => GatewayError::Unknown,
            None => GatewayError::Unreachable,
        }
    }

    /// What to say when its time is up.
    pub fn timed_out(&self) -> GatewayError {
        match self.stands {
            Stands::Unplaced => GatewayError::NoManagers,
            Stands::Held | Stands::Paused | Stands::Asked(_) if self.sends == 0 => GatewayError::Unreachable,
            Stands::Held | Stands::Paused | Stands::Asked(_) => GatewayError::TimedOut,
        }
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        let data = match &self.operation {
            Operation::Set { data, .. }
            | Operation::Add { data, .. }
            | Operation::Replace { data, .. }
            | Operation::Cas { data, .. }
            | Operation::Append { data, .. }
            | Operation::Prepend { data, .. } => data.len(),
            Operation::Get
            | Operation::GetAndTouch { .. }
            | Operation::Delete { .. }
            | Operation::Touch { .. }
            | Operation::Add64 { .. } => 0,
        };
        self.key.len() + data
    }
}
