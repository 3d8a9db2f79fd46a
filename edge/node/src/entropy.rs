//! Random bits. They come from the operating system, because incarnations and cell ids must never repeat: a
//! generator seeded from a clock gives two containers that start together the same life.

use crate::NodeError;
use std::io;

/// 128 random bits.
pub fn draw() -> Result<u128, NodeError> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|error| NodeError::Entropy(io::Error::other(error)))?;
    Ok(u128::from_le_bytes(bits))
}
