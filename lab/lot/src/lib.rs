//! Chance and time for worlds that have neither: what runs the real cores in one thread, in virtual time, from one
//! number.
//!
//! The simulator (lab/sim) stands on it, and so does `kumo plan --simulate`: both draw from the same [`Random`], put
//! what is to come in a [`Schedule`], have messages delayed by a [`Network`] and give every host its own [`Clock`].
//! It is a crate of its own because the simulator switches unsafe rules on in the cores, for its models; a product
//! that used the simulator would be built with them.

mod clock;
mod network;
mod random;
mod schedule;

pub use clock::Clock;
pub use network::{Fate, Host, Network};
pub use random::Random;
pub use schedule::Schedule;
