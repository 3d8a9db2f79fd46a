//! [`Range`]: a stretch of the ring.

use crate::KeyHash;
use kumo_wire::{Malformed, Reader, Wire, Writer};

/// A stretch of the ring, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    pub first: KeyHash,
    pub last: KeyHash,
}

impl Range {
    pub fn contains(&self, hash: KeyHash) -> bool {
        self.first <= hash && hash <= self.last
    }
}

/// A range from a peer is checked here: everything else relies on its order.
impl Wire for Range {
    fn encode(&self, out: &mut Writer) {
        self.first.encode(out);
        self.last.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        let range = Range { first: Wire::decode(input)?, last: Wire::decode(input)? };
        if range.first > range.last {
            return Err(Malformed::Rule("a range ends before it begins"));
        }
        Ok(range)
    }
}
