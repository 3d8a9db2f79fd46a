//! Model checks: the real types of `kumo-paxos` in every order of events within small bounds.
//!
//! [`Cell`] is agreement: processes that are [`Agreement`](kumo_paxos::Agreement)s, and a set of letters between them,
//! each of which may arrive now, later or never. It asks two things of every state: that no instance is decided on
//! two values, whoever forgets what; and, as long as no more than f replicas are down or not voting yet, that a
//! majority of the next instance's voters runs. [`Founding`] asks that replicas which know nothing become one cell,
//! [`Reign`] that nobody leads beside a lease in use. [`exhaust`] searches all states; [`find`] looks for what goes
//! wrong when a rule is left out; a [`Script`] is a schedule by hand where a search would take too long.

mod cell;
mod check;
mod forming;
mod lease;
mod script;
mod shared;
mod state;
pub mod store;

pub use cell::{AGREEMENT, Action, Cell, Changes, LIVE_MAJORITY, Restart};
pub use check::{exhaust, find};
pub use forming::{Founding, ONE_CELL, Place, Step, Word};
pub use lease::{Event, Moment, ONE_REIGN, Reign};
pub use script::Script;
pub use state::{Letter, Process, Standing, State, incarnation, member};
