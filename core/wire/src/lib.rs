//! Bytes and values.
//!
//! Everything kumo's processes say to each other, and everything they keep on disk, goes through the two
//! halves here: [`Wire`] turns a value into bytes and back, [`frame`] cuts a byte stream into messages.
//! Both are written for input that cannot be trusted: a length is checked against a named limit and
//! against the bytes at hand before anything is allocated, and bad bytes are a [`Malformed`], never a panic.
//!
//! Numbers are little-endian and of fixed width, byte strings carry a `u32` length, lists a `u32` count,
//! an `Option` one byte 0 or 1, an enum one byte with an explicit, never reused number.

// Replicas do the same in the same order.
#![deny(clippy::iter_over_hash_type)]

mod codec;
pub mod frame;
pub mod memcache;
mod pieces;
mod writer;

pub use codec::{Malformed, Reader, Wire, read_list, write_list};
pub use pieces::{Pieces, SHARED_BYTES_MAX};
pub use writer::{SHARE_BYTES_MIN, Writer};
