//! [`KeyHash`]: where a key, or a server's point, lies on the ring.

use crate::identity::number;
use kumo_wire::{Malformed, Reader, Wire};
use sha1::{Digest, Sha1};
use std::fmt;

/// A place on the ring: 64 bits of SHA-1. It leads every stored key and travels with every request, so that it
/// is computed once, at the gateway.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

/// The first 8 bytes of the digest read as a little-endian number: what the original calls the lower 64 bits.
pub fn key_hash(key: &[u8]) -> KeyHash {
    let digest = Sha1::digest(key);
    let front = digest.first_chunk::<8>().expect("a SHA-1 digest has 20 bytes");
    KeyHash(u64::from_le_bytes(*front))
}

number!(KeyHash);

impl fmt::Debug for KeyHash {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_foo_is_the_seeds() {
        assert_eq!(key_hash(b"foo").to_string(), "db0f3feab5c7ee0b");
    }
}
