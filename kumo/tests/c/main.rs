//! The C interface on a real cell of three: programs in C, compiled by the system's compiler without a warning, run
//! while the master is killed, under valgrind, and against the installed files.

#[path = "../support/mod.rs"]
mod support;

mod build;
mod examples;
mod faults;
mod header;
mod memory;
mod plain;
