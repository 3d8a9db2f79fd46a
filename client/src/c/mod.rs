//! The C interface, as `include/pfs.h` has it: the seed's functions under their names, and a few additions.
//! All `unsafe` code of kumo is below this folder.
//!
//! A `struct Session` lies in the caller's memory ([`handle`]). While it is open, an [`engine`] carries it: a thread
//! with a runtime of its own, on which the Rust client runs; a call blocks the caller's thread until the answer is
//! there. Nothing is shared between two sessions, so that a process may fork and go on with new ones.
#![allow(unsafe_code)] // The one place that needs it: raw pointers come from C.

mod engine;
mod event;
mod failure;
mod file;
mod handle;
mod layout;
mod lock;
mod memory;
mod pipe;
mod queue;
mod roster;
mod session;
mod text;
mod thread;
mod transport;
mod tree;
