//! PFS: files, directories, ephemerals, locks, queues and events (seed 004, part V), as an
//! [`Application`](kumo_session::Application) that a cell replicates.
//!
//! # What it is
//! A small file system in memory for what many machines must agree on: configuration in files, who is alive in
//! ephemeral files, who may act in locks, what is to be done in queues. [`Pfs`] is all of it, a plain value. It
//! knows no network, no clock and no other replica: the same commands in the same order make the same [`Pfs`],
//! byte for byte, wherever they are executed. What it is told comes as an [`Entry`](kumo_session::Entry) (time,
//! session, number) and bytes that decode to a [`Command`]; what comes of it is an
//! [`Outcome`](kumo_session::Outcome): a [`Reply`], or none yet if the command has to wait, replies to commands
//! that waited, and [`Event`]s for sessions that watch. A [`Query`] only looks.
//!
//! # The way of a command
//! `pfs.rs` decodes it and calls one function named after it, in the file of its topic: `files.rs`, `locks.rs`,
//! `queues.rs`, `watches.rs`. Every such function has the same three steps, in this order: check everything,
//! change, tell. So a [`Refusal`] leaves the state exactly as it was, including the parents that a refused write
//! would have made; and nothing that changes can fail half way.
//!
//! # Files and directories
//! `tree.rs` holds them, `content.rs` a file's bytes, `path.rs` the rules for paths. Every change of the tree gets
//! the next number of one count for the whole cell, with the cell's generation above it: it becomes the version of
//! the file that changed and of the directory the file is in. So a version grows with every change and does not
//! come back, not even when a file is deleted and made again, or when the cell was recovered from a lone survivor.
//! (A file below a renamed directory keeps its version: its content has not changed.) A write may name the version
//! it expects, 0 for a file that must not exist, or a lock's fencing number.
//!
//! An ephemeral file belongs to the session that made it, whoever writes it later and wherever it is renamed to,
//! and goes with it. The directories made for it stay.
//!
//! # Locks
//! Advisory, by name, held by sessions, for writing (alone) or for reading (together). Who cannot have it waits in
//! line; who comes while others wait, waits too, so a stream of readers does not keep a writer out. Each grant has a
//! number greater than any before it, the fencing number: a write that names it is refused once that grant is over,
//! so a holder that was paused and lost its session cannot harm who came after it. A holder that asks again gets the
//! same grant; a reader that asks to write is refused and has to unlock first, since two that waited for each other
//! would wait for ever. A session that asks several times while it waits gets all its answers with the first grant.
//!
//! # Queues
//! Messages are handed out in the order of posting, each once. Wait takes the head. Receive hides it: acknowledged,
//! it is gone; if the session ends before, it stands where it stood, and who waits gets it. A queue exists while
//! there is something in it or someone at it.
//!
//! # Events
//! A session watches a directory's entries, a lock (someone has to wait) or a queue (a post; a wait that found
//! nothing), existing or not. It is told of its own changes too. Nobody is told of a refusal.
//!
//! # When a session ends
//! `holdings.rs` keeps, for each session, what it has: that is found at once and freed, then locks and messages are
//! handed on in the order of their names, then its ephemerals go, all in one outcome.
//!
//! # Snapshots
//! Everything lies in maps of `map.rs`, B-trees whose nodes are shared between copies and copied when one of them
//! changes. So a clone of [`Pfs`] costs nothing, a snapshot is written from such a clone while the service goes on,
//! and a change beside it costs a few copied nodes. File contents are shared chunk by chunk, and a large write is
//! kept in the buffer it arrived in. `snapshot.rs` writes records, cut into parts; `restore.rs` reads them and
//! checks every rule of the state, for a snapshot comes from a disk or from a network. The bytes follow from the
//! state alone, and what can be read is written again as it was: replicas may compare them.
//!
//! # Limits
//! `limits.rs` and the constants here. They are constants because replicas that differed in them would refuse
//! differently, and part.

// Replicas do the same in the same order.
#![deny(clippy::iter_over_hash_type)]

mod content;
mod files;
mod holdings;
mod limits;
mod locks;
mod map;
mod path;
mod pfs;
mod protocol;
mod queries;
mod queues;
mod restore;
mod snapshot;
mod source;
mod tree;
mod watches;

pub use pfs::Pfs;
pub use protocol::{
    Command, Condition, DEPTH_MAX, DirectoryEntry, ENTRIES_MAX, EntryChange, Event, FILE_BYTES_MAX, LockInfo,
    MESSAGE_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, Place, Query, QueueChange, QueueInfo, READ_BYTES_MAX,
    Refusal, Reply, Resource, Stat, Usage, WRITE_BYTES_MAX,
};
pub use snapshot::Parts;
