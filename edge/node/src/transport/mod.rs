//! Framed TCP: connections that arrive ([`Arrivals`]), links this node dials ([`Links`]), and which of them have
//! something to do ([`kumo_link::ReadyList`]).
//!
//! There is no task per connection. Each socket has a waker of its own that puts it on the ready list; the
//! drive loop takes the list and reads those sockets itself, so a request passes from the socket to the cell
//! and its reply back to a socket in one turn of one task. Everything to one connection in a turn is encoded into one buffer and leaves
//! with one write call.
//!
//! A node sends to a peer only over the link it dialled itself and only reads from links that others dialled:
//! two connections per pair, and never a question which of them counts.

mod arrival;
mod arrivals;
mod greeting;
mod inbox;
mod link;
mod links;
mod outbox;

pub use arrivals::Arrivals;
pub use links::Links;
