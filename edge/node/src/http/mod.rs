//! HTTP of every process: what it measures, whether it lives and serves; at a replica of a cell the dashboard too.
//!
//! It has a thread and a runtime of its own, so that a slow browser never holds up a loop that serves. From the loop
//! it has nothing but the atomics of `metrics`; everything else it asks for as any tool or client does, at the
//! process's own port (`board`). docs/api.md says what can be asked.

mod address;
mod answer;
mod board;
mod guard;
mod page;
mod probes;
mod serve;

pub use address::{Bound, HttpConfig, Token, bind};
