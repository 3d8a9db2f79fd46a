//! The tokio shell of a node: what touches the world, so that [`kumo_session::Cell`] need not.
//!
//! A cell is pure: `step` takes what happened and the time, and says what it wants done. This crate supplies
//! both sides. [`run`] binds the address, reads back a durable node's memory, and then turns one loop (`drive`)
//! on one thread until it is told to stop:
//!
//! 1. Sockets that woke are read, and all whole frames in them become inputs (`transport`).
//! 2. The clock is read once, after the last of those bytes arrived: leases are counted from it (`clock`).
//! 3. The cell steps through the inputs.
//! 4. In durable mode the records it wants kept go to disk together, and everything else it wants waits in line
//!    behind them (`durable`).
//! 5. Messages and replies are encoded into one buffer per connection, and each is written with one call.
//!
//! So a request costs no task, no timer and no hop between threads; the more arrive at once, the fewer system
//! calls each of them costs. Only disk writes happen in other threads.
//!
//! What must stay absent here: decisions. Who may join, who leads, what is executed and what is forgotten is
//! the cell's; a fault of this machine (a full disk, a broken socket) is handled and logged here and never
//! enters a reply.

mod config;
mod drive;
mod durable;
mod entropy;
mod house;
pub mod http;
pub mod log;
mod metrics;
mod notes;
mod pair;
mod start;
pub mod store;
pub mod tool;
mod transport;

use kumo_link::{clock, hub, post};

pub use config::{NodeConfig, NodeError};
pub use entropy::draw as random;
pub use kumo_link::LINGER;
pub use start::{run, run_application, run_manager, run_on};
