//! The shape of a replica seen from outside: what goes in ([`Input`]), what comes out ([`Effect`]).

use crate::configuration::Member;
use crate::identity::{CellId, Incarnation, Instance, Round};
use crate::message::{Envelope, Hello, Message};
use crate::value::{DataName, Value};
use bytes::Bytes;
use kumo_wire::{Writer, wire_enum, wire_struct};
use std::net::SocketAddr;

/// What a replica is told at its start. Equal on no two replicas, and not agreed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the others reach this replica: its name.
    pub address: SocketAddr,
    /// The other members it was started with, for forming and finding the cell.
    pub peers: Vec<SocketAddr>,
    /// Follow without a vote.
    pub extension: bool,
    /// Drawn anew unless the memory of an earlier life was kept.
    pub incarnation: Incarnation,
    /// The heartbeat, in microseconds. Time-outs scale with it.
    pub unit_micros: u64,
    /// Random bits of this process, from which nonces and a new cell's id are derived.
    pub entropy: u128,
    /// Whether promises and accepts are kept on disk (so a restart keeps the incarnation).
    pub durable: bool,
    /// How long it listens for a cell that it may have forgotten before it forms one.
    pub forms_after_micros: u64,
}

/// What happens to a replica.
#[derive(Clone, Debug)]
// An envelope is what nearly every input is: a box would be an allocation per message.
#[allow(clippy::large_enum_variant)]
pub enum Input {
    /// The deadline has passed.
    Timeout,
    /// This replica dialled the peer at `hello.address`, and it answered with its hello.
    PeerUp(Hello),
    /// The link this replica dialled to that address is gone.
    PeerDown(SocketAddr),
    /// A message arrived.
    Message(Envelope),
    /// A master puts a command up for agreement. Ignored by others: ask `is_master` first.
    Propose(Writer),
    /// Load of this replica, told to the others: requests in the last heartbeat.
    Load(u32),
    /// An operator's change of members. Answered by [`Effect::Changed`].
    Change(Change),
    /// Step down in favour of the next eldest.
    StepDown,
}

/// An operator's wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Takes a replica in, as an extension first.
    Add(SocketAddr),
    /// Makes an extension a voter; it must have caught up.
    Promote(SocketAddr),
    Remove(SocketAddr),
    /// Swaps one voter for another address, in one entry.
    Replace {
        old: SocketAddr,
        new: SocketAddr,
    },
    /// A lone survivor goes on, in a generation of its own.
    Recover,
}

/// What a replica wants done, in order. Everything a step asks to [`Persist`](Effect::Persist) must be on disk
/// before any other effect of that or a later step is performed.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Over the link this replica dialled to that address; dropped when there is none.
    Send(SocketAddr, Envelope),
    /// Keep a link to that address, and dial again whenever it breaks.
    Dial(SocketAddr),
    /// Give the link up; one that was up ends with a [`PeerDown`](Input::PeerDown).
    Hangup(SocketAddr),
    /// Put on disk (durable mode only).
    Persist(Record),
    /// This replica is too far behind: take a snapshot from that peer, then call `install`.
    TakeSnapshot(SocketAddr),
    /// A snapshot message for the host: [`Message::SnapshotAsk`] or [`Message::SnapshotPart`].
    Snapshot(SocketAddr, Incarnation, Message),
    /// The answer to an [`Input::Change`].
    Changed(Result<(), ChangeRefusal>),
    /// Mastership was won (everything inherited is executed) or lost.
    Master(Option<Round>),
    /// For the log.
    Note(Note),
    /// This replica must stop, and not come back with this memory; but for [`ExitReason::Conflict`].
    Exit(ExitReason),
}

/// What a durable replica keeps. Replayed in order, the records give back its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first record of a life; grants given in it may outlive a restart by this long. `kept`: the promises and
    /// accepts of this life before those that follow.
    Life {
        incarnation: Incarnation,
        grant_micros: u64,
        kept: u64,
    },
    Promised(Round),
    Accepted {
        instance: Instance,
        round: Round,
        value: Value,
    },
    Decided {
        instance: Instance,
        value: Value,
    },
    Data {
        name: DataName,
        bytes: Bytes,
    },
}

impl Record {
    /// A promise or an accept: what others build on once it is told.
    pub fn is_vote(&self) -> bool {
        match self {
            Record::Promised(_) | Record::Accepted { .. } => true,
            Record::Life { .. } | Record::Decided { .. } | Record::Data { .. } => false,
        }
    }
}

/// A change of state worth a line in the text log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Formed(CellId),
    Joined {
        cell: CellId,
        generation: u32,
    },
    Voting,
    Leading(Round),
    SteppedDown(Round),
    MasterIs(SocketAddr),
    NoMaster,
    Configuration {
        version: u64,
        members: Vec<Member>,
    },
    TakingSnapshot {
        from: SocketAddr,
    },
    /// A majority of the configuration's incarnations is gone: the cell cannot go on by itself.
    MajorityForgot {
        remembering: usize,
        voters: usize,
    },
    /// An address that no configuration names wants to join.
    Stranger(SocketAddr),
    ForeignCell {
        address: SocketAddr,
        cell: CellId,
    },
    /// Two replicas panicked at the same instance: a bug in executing it.
    Bug(Instance),
}

/// Why a replica must stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExitReason {
    #[error("removed from the cell")]
    Removed,
    #[error("another process took this replica's place in the cell")]
    Replaced,
    #[error("the cell was recovered as generation {0}: this replica's memory is over")]
    Over(u32),
    #[error("state differs from the cell's at instance {}", .0.0)]
    Differs(Instance),
    #[error("this replica's disk has lost promises or accepts that others were told of")]
    Forgot,
    /// Whose decision is wrong is for a person to find out, so the memory must stay as it is.
    #[error("two values are told as decided at instance {}: a bug, or a peer that lies", .0.0)]
    Conflict(Instance),
}

/// Why a change of members was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefusal {
    #[error("not the master")]
    NotMaster,
    #[error("another change is under way")]
    Busy,
    #[error("{0} is a member already")]
    Member(SocketAddr),
    #[error("{0} is not a member")]
    Stranger(SocketAddr),
    #[error("{0} is not connected")]
    Unreachable(SocketAddr),
    #[error("{0} has not caught up")]
    Behind(SocketAddr),
    #[error("no majority of the new members votes and is connected")]
    Majority,
    #[error("a cell has at most {VOTERS_MAX} voters")]
    TooMany,
    #[error("the last voter cannot leave")]
    LastVoter,
    #[error("a majority that remembers is reachable: the cell needs no recovery")]
    NotLost,
    #[error("this replica could not execute instance {}: recover from another replica", .0.0)]
    Halted(Instance),
    #[error("this cell has been recovered too often: form a new one")]
    Generations,
}

/// A number that is handed out has its generation in its upper 16 bits.
pub const GENERATION_MAX: u32 = 0xffff;

/// Voters in a cell. More would only make every write slower.
pub const VOTERS_MAX: usize = 7;

/// W of a new cell, see [`Genesis::window`](crate::Genesis::window).
pub const WINDOW: u64 = 512;

/// What `kumo cell status` tells about one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    pub member: Member,
    pub state: ReplicaState,
    pub decided: Instance,
    pub executed: Instance,
    pub age_ms: u64,
    pub load: u32,
}

/// How a replica stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    Voting,
    Learning,
    Down,
}

/// A replica's view of its cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub cell: CellId,
    pub generation: u32,
    pub master: Option<SocketAddr>,
    pub round: Round,
    pub replicas: Vec<ReplicaStatus>,
    /// A sentence for the operator when the cell cannot go on by itself.
    pub trouble: Option<String>,
}

wire_enum!(Record {
    1 = Life { incarnation, grant_micros, kept },
    2 = Promised(round),
    3 = Accepted { instance, round, value },
    4 = Decided { instance, value },
    5 = Data { name, bytes },
});
wire_enum!(Change { 1 = Add(address), 2 = Promote(address), 3 = Remove(address), 4 = Replace { old, new }, 5 = Recover });
wire_enum!(ReplicaState { 1 = Voting, 2 = Learning, 3 = Down });
wire_struct!(ReplicaStatus { member, state, decided, executed, age_ms, load });
wire_struct!(Status { cell, generation, master, round, replicas, trouble });
