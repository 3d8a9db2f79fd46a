//! The store without IO: the hash space, records and their order, and the three roles that use them.
//!
//! # What it is
//! A key-value store that speaks memcached and keeps three copies of every key (seeds 000 to 003, kumofs). **Managers**
//! agree in a cell on who keeps what, **servers** keep records, **gateways** carry the requests of applications to
//! the servers that own their keys. Each is a plain value with `step` and `deadline`; sockets, disks and clocks are the
//! edge's, and the simulator runs this very code.
//!
//! # The ring
//! `hash.rs` puts every key and every server's 128 points on a ring of 64 bits. A [`Space`] (`space.rs`) says which
//! servers are on it, at one number, and [`Table`] (`ring.rs`) who owns which *arc*: the first three distinct servers
//! walking up. There are two rings, `rhs` by which keys are read and ordered, and `whs` to which a replace is going.
//! Everything that nodes say about keys names the number; who is behind is handed the newer space.
//!
//! # A write
//! The first acting owner in `rhs` is the key's **primary**. It judges the operation on the committed version, stamps
//! the new one with (space number, clock), keeps it *pending*, and sends it to all who must acknowledge: the other
//! owners, those that a replace makes owners, and those that were owners and do not know yet that they are not.
//! When all have acknowledged, or those that did not are declared fault by the cell, it is committed: stored, answered,
//! and the others are told by a watermark, so that their marks go. Nothing is undone; a write that is under way when
//! its primary is lost is carried on by the next one.
//!
//! # A read
//! Any owner answers under a lease of the master's, or after all others confirmed that they are in the same space. A
//! pending version is not shown by the primary, a marked one not by the others. So what was shown, or answered, is
//! held by everyone who could ever be asked.
//!
//! # A loss, a replace
//! Both are a change of owners, and end in the same **settlement** (`server/settle.rs`): the new primary asks everyone who
//! may hold something unconfirmed, takes the greatest version of each such key, and replicates it before it serves
//! anything of the arc. A replace first copies (`server/copy.rs`, `server/catching.rs`): what a new owner had before never
//! counts, so that a server which comes back after a week revives nothing.
//!
//! # Requests are executed once
//! A request has an id, remembered with its reply by all owners of its key until the gateway has the answer
//! (`server/ids.rs`); settlement and copy carry ids along, so the next primary answers a retry instead of executing it.
//!
//! # Managers
//! `cluster/` is what is agreed: an [`Application`](kumo_session::Application) whose commands are checked against the
//! number they were based on. `manager/` stands beside each replica of the cell: it hears signs of life, grants leases
//! under the cell's own, and proposes faults, returns and the steps of a replace. A new master first waits until every
//! lease of the one before has run out. Two managers alone could lose none: the master finds them further voters among the
//! servers (`manager/recruit.rs`), each a replica of the cell in a server's process.
//!
//! The rules, why each is needed, and the mutants that show it are listed in `mutation.rs`.

mod alive;
mod cluster;
pub mod control;
mod coverage;
mod early;
mod gateway;
mod guide;
mod hash;
mod identity;
mod limits;
mod manager;
mod message;
mod mutation;
mod range;
mod record;
mod ring;
mod server;
mod space;
mod step;
mod store;

pub use alive::{Alive, LIVES_MAX, Progress, Seat};
pub use cluster::{
    Author, Cluster, Command, Doubt, GATEWAYS_MAX, LEASE_MICROS_MAX, Lead, Objection, Order, Query,
    RECRUITED_MAX, stranded,
};
pub use coverage::Coverage;
pub use early::Early;
pub use gateway::Gateway;
pub use hash::{KeyHash, key_hash};
pub use identity::{GatewayId, Incarnation, RequestId, ServerId};
pub use limits::Limits;
pub use manager::{Manager, recruits_wanted};
pub use message::{
    Answer, Committed, Initial, Message, Operation, Origin, Recruit, Refusal, Remembered, Reply, Request,
    Unsettled, Upto,
};
pub use mutation::{Broken, Mutation};
pub use range::Range;
pub use record::{Clock, Kind, Record, SpaceNumber, Stamp};
pub use ring::{Arc, COPIES, POINTS, Table, points};
pub use server::{Counts, Server};
pub use space::{Job, MEMBERS_MAX, Member, MemberState, Space, Standing};
pub use step::{
    CellView, GatewayEffect, GatewayError, GatewayInput, GatewayNote, GatewaySettings, GivenUp,
    ManagerEffect, ManagerInput, ManagerNote, ManagerSettings, ReplicaView, ServerEffect, ServerInput,
    ServerNote, ServerSettings,
};
pub use store::{Fault, Garbage, Head, Store, StoreKey, Usage};
