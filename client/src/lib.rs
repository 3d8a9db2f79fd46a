//! The Rust client of kumo: sessions, files, locks, events and queues of a cell, and the store ([`Store`]).
//!
//! ```no_run
//! # async fn example() -> Result<(), pfs::Error> {
//! let members: Vec<std::net::SocketAddr> = vec!["127.0.0.1:19700".parse().expect("an address")];
//! let session = pfs::Session::open(&pfs::Options::new(members)).await?;
//! session.put("/config/colour", "blue").await?;
//!
//! let lock = session.lock_exclusive("deploy").await?;
//! session.fenced_put("/deployed", lock.name(), lock.number(), "42").await?;
//! lock.unlock().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Session`] is a cheap handle. What decides (which member to ask, what to send again, when the session is in
//! jeopardy) is [`kumo_session::Client`], which knows neither sockets nor clocks; a task on the current tokio runtime
//! carries it, on a current-thread and a multi-thread one alike. Reconnects and changes of master show as
//! latency alone, and a request is executed once however often it had to be sent.

use kumo_link::clock;

mod admission;
mod c;
mod caller;
mod cell;
mod connection;
mod driver;
mod error;
mod events;
mod file;
mod files;
mod lifeline;
mod lock;
mod options;
mod queue;
mod session;
mod store;
mod transport;

pub use cell::{Cell, CellStatus};
pub use error::Error;
pub use events::{Events, Notice};
pub use file::File;
pub use files::{Page, Piece, Written};
pub use kumo_paxos::{CellId, Change, Incarnation, ReplicaState, ReplicaStatus, Role, Round, Status};
pub use kumo_pfs::{
    Command, Condition, DirectoryEntry, ENTRIES_MAX, EntryChange, Event, LockInfo, MESSAGE_BYTES_MAX, Place,
    Query, QueueChange, QueueInfo, READ_BYTES_MAX, Refusal, Reply, Resource, Stat, Usage, WRITE_BYTES_MAX,
};
pub use kumo_session::{
    EndReason, GENERATION_SHIFT, Label, SessionId, SessionInfo, SessionState, UnixMillis,
};
pub use lock::{LockGuard, Patience};
pub use options::{Options, PORT};
pub use queue::Message;
pub use session::Session;
pub use store::{CasResult, Item, Store, StoreError, StoreOptions};
