//! Agreement inside one cell (seed 004, part III), without IO.
//!
//! A cell's replicas agree on a sequence of values, one per [`Instance`]. A master collects promises once for
//! all open instances, then begins values and counts accepts; a value accepted by a majority of the instance's
//! configuration is decided and never undone. Which incarnations vote on an instance is itself decided by the
//! sequence, W instances earlier ([`Schedule`]); a replica that lost its memory is a new acceptor and gets its
//! vote back through such an entry, never by itself.

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
mod proposer;
mod replica;
mod step;
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
