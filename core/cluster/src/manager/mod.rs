//! The manager's own part: [`Manager`], which stands beside the replica of the cell in its process.
//!
//! What is agreed is in [`Cluster`](crate::Cluster), and here it is only looked at. This is the rest, which may be lost with the
//! process: who is connected and was heard of when, the leases granted, what was put up for agreement and has not been
//! executed yet, and the operators that wait for an answer.
//!
//! Every manager keeps track of servers and gateways and hands them new spaces. What only the master does is kept per
//! reign (`reign.rs`): it first has an entry executed that begins its term, and waits as long as the longest lease that
//! an earlier master can have granted before it declares anyone fault. `peers.rs` has the connections, `failures.rs`
//! finds who is lost and who is back, `progress.rs` moves a replace on, `gateways.rs` issues and expires ids, `desk.rs`
//! answers operators, `recruit.rs` finds further voters, `orders.rs` says what their wishes mean now,
//! `plan.rs` what one would move, `doubt.rs` finds out whether a recovery of the cell lost what servers know,
//! `witness.rs` whether those who act keep the generation of numbers that one began.

mod desk;
mod doubt;
mod failures;
mod gateways;
mod orders;
mod peers;
mod plan;
mod progress;
mod recruit;
mod reign;
mod state;
mod witness;

pub use recruit::recruits_wanted;
pub use state::Manager;
