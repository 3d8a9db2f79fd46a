//! [`Application`]: a deterministic state machine that a cell replicates, and what it is told.

use crate::room::Room;
use bytes::Bytes;
use kumo_paxos::Instance;
use kumo_wire::{Malformed, Reader, Wire, Writer};
use std::fmt;

/// A session, as the cell issued it: the cell's generation in the upper 16 bits, a count below, so that no
/// number is ever used again, not even after a recovery from a lone survivor.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl SessionId {
    /// No session: the process that hosts the master speaks. The cell issues ids from 1.
    pub const HOUSE: SessionId = SessionId(0);
}

/// Milliseconds since 1970 as the master of that moment saw them. Never decreases along the log. For people
/// to read: nothing is ordered or expired by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

/// Where in the agreed sequence a command stands. Equal on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub instance: Instance,
    /// Of the cell; leads every number an application hands out (see [`numbered`]).
    pub generation: u32,
    pub time: UnixMillis,
    pub session: SessionId,
    /// The request's number in its session.
    pub number: u64,
}

/// What executing a command led to. Every part of it is the same on all replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The reply to this command; `None`: it is parked, and a later outcome answers it.
    pub reply: Option<Bytes>,
    /// Replies to commands parked earlier, named by session and number.
    pub answers: Vec<(SessionId, u64, Bytes)>,
    /// How many events of a session came before those below and are left out: each session keeps the last
    /// [`EVENTS_MAX`](crate::EVENTS_MAX) only, so what would be dropped at once need not be made.
    pub omitted: Vec<(SessionId, u64)>,
    /// Events for sessions that subscribed, in order.
    pub events: Vec<(SessionId, Bytes)>,
    /// Given, not filled in but by [`Room::take`]: who may be answered with something large.
    pub room: Room,
}

/// A deterministic service that a cell replicates.
///
/// Same entries in the same order give the same state, outcomes and snapshots: no clock, no randomness, no
/// iteration over an unordered map. A refusal is a reply, and leaves the state as it was.
pub trait Application: Clone {
    /// The parts of a frozen copy of the state, of about [`kumo_paxos::CHUNK_BYTES`] each, made one by one
    /// while the service goes on.
    type Parts: Iterator<Item = Bytes>;

    /// Executes a command. `outcome` is empty before.
    fn apply(&mut self, entry: Entry, command: Bytes, outcome: &mut Outcome);

    /// The request `target` of that session is not wanted any more. If it is parked, forget it and
    /// return true (the caller answers it as cancelled); otherwise change nothing. What goes on because of
    /// it (who stood behind it is granted) is in the outcome, whose `reply` stays `None`.
    fn cancel(&mut self, entry: Entry, target: u64, outcome: &mut Outcome) -> bool;

    /// A session was closed or has expired (`entry.session`): free what it held and parked.
    fn session_ended(&mut self, entry: Entry, outcome: &mut Outcome);

    /// The client of `entry.session` has acknowledged replies, and there is [`Room`] for more: what was kept back for want
    /// of it can be answered.
    fn session_has_room(&mut self, _entry: Entry, _outcome: &mut Outcome) {}

    /// Why an answer refuses what was asked, if that was wrong in itself: those who run the cell are told.
    fn complaint(_answer: &Bytes) -> Option<String> {
        None
    }

    /// Answers without changing anything. Runs on any one replica.
    fn read(&self, session: SessionId, query: Bytes) -> Bytes;

    /// A frozen copy; must be cheap (copy on write).
    fn snapshot(&self) -> Self::Parts;

    /// Builds the state from all parts of a snapshot.
    fn restore(parts: Vec<Bytes>) -> Result<Self, Malformed>;
}

/// A number that is never handed out twice: the generation above, a count below.
pub fn numbered(generation: u32, count: u64) -> u64 {
    u64::from(generation) << GENERATION_SHIFT | (count & ((1 << GENERATION_SHIFT) - 1))
}

/// Bits of the count in a [`numbered`] value: 281 thousand billion of them, in 65 thousand generations.
pub const GENERATION_SHIFT: u32 = 48;

impl fmt::Debug for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{self}")
    }
}

/// `generation.count`, as people see and type it.
impl fmt::Display for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}.{}", self.0 >> GENERATION_SHIFT, self.0 & ((1 << GENERATION_SHIFT) - 1))
    }
}

impl Wire for SessionId {
    fn encode(&self, out: &mut Writer) {
        self.0.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        Ok(SessionId(Wire::decode(input)?))
    }
}

impl Wire for UnixMillis {
    fn encode(&self, out: &mut Writer) {
        self.0.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        Ok(UnixMillis(Wire::decode(input)?))
    }
}
