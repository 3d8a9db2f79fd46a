//! What the processes measure. A loop writes these numbers and nobody else does; whoever scrapes them reads along.
//!
//! All of it is relaxed atomics: a request costs a few stores, and no lock, allocation or system call. Numbers that
//! are a state (how many records, how far) are published a few times a second instead.

mod gateway;
mod latency;
mod node;
mod server;
mod stopwatch;
mod text;

pub use gateway::{GatewayMetrics, Totals, WorkerMetrics};
pub use latency::{Counter, Gauge, Latency};
pub use node::{NodeMetrics, answer as cell_answer, request as cell_request};
pub use server::ServerMetrics;
pub use stopwatch::Stopwatch;
pub use text::{Metrics, Text, write};

/// States are published this often at most.
pub const PUBLISH_MICROS: u64 = 200_000;
