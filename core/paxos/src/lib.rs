//! Agreement inside one cell (seed 004, part III), without IO.
//!
//! A cell's replicas agree on a sequence of values, one per [`Instance`]. A master *collects* promises once for
//! all open instances; each agent's *last* tells what it accepted before. Then the master *begins* values and counts
//! *accepts*; a value accepted by a majority in one [`Round`] is decided and never undone, because any later round
//! collects from a majority too and must carry the value on. *Success* tells the agents.
//!
//! # Who votes
//!
//! Which incarnations vote on an instance is itself decided by the sequence, W instances earlier: see
//! [`Schedule`]. A replica that lost its memory is a new acceptor ([`Incarnation`]); it learns first, and gets its
//! vote by a configuration entry once it has executed everything before that entry comes into force. Nothing else
//! gives a vote back: a rule such as "see a majority, take a snapshot, vote" decides two values with three replicas
//! and one crash. The rules that were found wanting are kept as [`Mutation`]s, and the model checker must catch them.
//!
//! # The parts
//!
//! [`Agreement`] holds everything that safety rests on: [`Acceptor`] (promises and accepted values), [`Log`] (what is
//! decided), [`Schedule`] and [`Proposer`]. It knows no time and no links, and the models run it as it is.
//! [`Replica`] puts it to work: links, heartbeats and the eldest's election, [`Lease`], catch-up, large values beside
//! the log, [`Forming`] and operators' changes. A host feeds it [`Input`]s, performs its [`Effect`]s, and executes what
//! [`Replica::executable`] gives, in order.
//!
//! # What is a hint and what is a promise
//!
//! Elections, ages, link states and positions in heartbeats are hints: they may be wrong, late or repeated, and cost
//! at most time. Promises are made in three places only: the acceptor's memory, the schedule, and the grants of the
//! lease (the one place that assumes anything of clocks: rates within 10 %).

// Replicas do the same in the same order.
#![deny(clippy::iter_over_hash_type)]

mod acceptor;
mod agreement;
mod configuration;
mod data;
mod election;
mod forming;
mod identity;
mod lease;
mod links;
mod log;
mod message;
mod mutation;
mod panics;
mod proposer;
mod replica;
mod step;
mod unheld;
mod value;

pub use acceptor::Acceptor;
pub use agreement::{Agreement, Last};
pub use configuration::{Configuration, Genesis, Member, Role, Schedule};
pub use forming::Forming;
pub use identity::{CellId, Incarnation, Instance, ReplicaId, Round, Time};
pub use lease::Lease;
pub use log::Log;
pub use message::{
    BATCH_BYTES_MAX, CHUNK_BYTES, Envelope, FRAME_BYTES_MAX, Heartbeat, Hello, MAGIC, Message, Position,
    Proposal, Report, Side, VERSION,
};
pub use mutation::Mutation;
pub use proposer::{Open, Proposer};
pub use replica::{Executable, Replica};
pub use step::{
    Change, ChangeRefusal, Effect, ExitReason, Input, Note, Record, ReplicaState, ReplicaStatus, Settings,
    Status, VOTERS_MAX, WINDOW,
};
pub use value::{DataName, IN_BAND_MAX, OUT_OF_BAND_MAX, Value};
