//! The managers' part of the store: what they agree on, and how they come to it.

mod auto;
mod bench;
mod commands;
mod first_ring;
mod hand_over;
mod leases;
mod log;
mod node;
mod plans;
mod promises;
mod random;
mod recovery;
mod recruits;
mod server;
mod switches;
mod watch;
mod wishes;
mod witness;
mod world;
