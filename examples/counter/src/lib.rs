//! A replicated counter: what it takes to put a service of one's own on kumo's replica.
//!
//! `counters.rs` is the service, `client.rs` how programs use it, and the binary runs a replica or asks one.
//! docs/library.md goes through it step by step.

mod client;
mod counters;

pub use client::Client;
pub use counters::{Command, Counters, Query, Refusal, Reply};
