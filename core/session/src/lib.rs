//! Order, exactly-once, events and read routing on an agreed sequence (seed 004, part IV).
//!
//! Agreement ([`kumo_paxos`]) gives a cell one sequence of byte strings. This crate makes a service of it, for any
//! deterministic [`Application`]: [`Cell`] is a whole node without IO (agreement, the session table, the
//! application), [`Client`] is the other end, also without IO. Both have one shape: `step` takes a time and an
//! input and appends effects; `deadline` says when to step again by itself.
//!
//! # Sessions
//!
//! A client opens a session with a random token; the cell issues its id, through the log. From then on the client
//! numbers its requests 1, 2, 3, ... and may have several under way. The *session table* is replicated: it is
//! changed only by executing the log, so it is equal on all replicas, and it is part of every snapshot. It holds, per
//! session, the number executed last, the replies the client has not acknowledged, which requests are parked, and
//! the events not yet seen. The rest (connections, who was heard of when, what is under way) is local to a node,
//! and may be lost with it.
//!
//! # A request is executed exactly once, in session order; a reply is never invented
//!
//! The rule stands in one place, where an entry is executed: **a request is executed if its number is the one
//! after the last, and is void otherwise.** An entry that two masters proposed is void the second time; one whose
//! predecessor was lost is void, and its client sends both again. The master keeps that rare: it proposes a session's
//! requests in order, each number once in its reign, holds back what arrived too early, and lets nothing follow a
//! large value, which gets its place in the log later than a small one would.
//!
//! A reply is remembered, on all replicas, until a later request acknowledges it. So a retry finds the same reply at
//! any master, and a retry of something still parked waits on. What cannot be remembered is not executed: beyond a
//! bound a request is *refused* by its own entry, equally everywhere, and its number is used up. When a session is
//! over, nothing more is executed for it, and its client is told so ([`EndReason`]).
//!
//! A session is over when it is closed, killed, or has *expired*. A master expires it, by an entry, when it has not
//! heard of it for a time-out and a quarter; only under its lease, so that a stale master expires nobody; and with a
//! fresh period for everybody when its reign begins, or after it was starved itself. The entry names the last
//! request seen and is void if the session has executed another since. The client counts from the *sending* of what
//! the master answered: after half a time-out it says [`Jeopardy`](SessionState::Jeopardy), after a whole one
//! [`Lost`](SessionState::Lost), before the cell can have ended the session.
//!
//! # Reads see at least the session's own last update, wherever they are served
//!
//! Reads never enter the log. Each names the instance of the session's last update; a replica that has not executed
//! so far keeps the read until it has. `Sync` sessions read at the master, under its lease at the very moment of
//! answering; without a lease the read waits, and when mastership is lost the client is told who is master now.
//!
//! # Events are delivered in order, or the client is told how many were omitted and where to resume
//!
//! Events of a session are numbered by the log and kept until seen, within bounds; beyond, the oldest go.
//! Asking for events is a read that waits until there are some above a number. The answer begins with the number of
//! its first event and the count dropped before it. Since numbers and contents are replicated, a new master answers
//! the same question in the same way. A recovered generation starts a new count, so no number names two events.
//!
//! # Where to read on
//!
//! The protocol is in `protocol.rs`, the log's entries in `entry.rs`. Executing them: `table.rs` and `session.rs`.
//! A node: `cell.rs` routes and executes, `serve.rs` takes requests, `reads.rs` answers reads and events, `expiry.rs`
//! ends silent sessions, `operator.rs` answers operators, `transfer.rs` and `receive.rs` move snapshots. The
//! client: `client.rs` and its folder.

// Replicas do the same in the same order.
#![deny(clippy::iter_over_hash_type)]

mod application;
mod cell;
mod client;
mod digest;
mod entry;
mod expiry;
mod front;
mod greeting;
mod operator;
mod protocol;
mod reads;
mod receive;
mod room;
mod serve;
mod session;
mod snapshot;
mod step;
mod table;
mod transfer;

pub use application::{Application, Entry, GENERATION_SHIFT, Outcome, SessionId, UnixMillis, numbered};
pub use cell::Cell;
pub use client::Client;
pub use greeting::{GREETING_BYTES_MAX, Greeting};
pub use protocol::{
    Ask, CLIENT_FRAME_BYTES_MAX, CellMessage, ClientMessage, EndReason, Label, Reply, SessionInfo,
};
pub use room::Room;
pub use session::EVENTS_MAX;
pub use snapshot::Parts;
pub use step::{
    Answer, CallError, CellSettings, ClientEffect, ClientInput, ClientSettings, ConnectionId, Effect, Input,
    NodeNote, SessionState,
};
