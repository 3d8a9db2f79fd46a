//! The managers' part of the store: what they agree on, and how they come to it.

mod commands;
mod log;
mod promises;
mod random;
mod watch;
mod world;
