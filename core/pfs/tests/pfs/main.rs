//! PFS seen from outside: commands, queries and session ends go in, outcomes and snapshots come out.

mod bytes;
mod host;
#[path = "../../../wire/tests/memory/mod.rs"]
mod memory;
mod model;
mod model_lines;
mod promises;
mod random;
mod scripts;
