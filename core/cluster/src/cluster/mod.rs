//! The cluster's state as the cell agrees on it: [`Cluster`], an application of the session layer.
//!
//! `command.rs` has what can be put up for agreement, `state.rs` executes it, `draft.rs` edits a space, `change.rs` holds
//! the rules by which spaces follow each other, `authority.rs` says who has all of a lost arc, `crossing.rs` whether a ring
//! can take over, `wishes.rs` what becomes of what operators want of it,
//! `doubt.rs` what a recovery of the cell may have lost.

mod authority;
mod change;
mod command;
mod crossing;
mod doubt;
mod draft;
mod state;
mod wishes;

pub(crate) use authority::{authorities, given_up, returning};
pub(crate) use change::unheard;
pub use command::{Author, Command, Lead, Objection, Order, Query};
pub(crate) use crossing::is_few;
pub use crossing::stranded;
pub use doubt::Doubt;
pub use state::{Cluster, GATEWAYS_MAX, LEASE_MICROS_MAX, RECRUITED_MAX};
