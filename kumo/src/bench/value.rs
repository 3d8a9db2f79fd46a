//! Values that tell who made them, so that a wrong one is seen.
//!
//! | offset | size | field                                   |
//! |      0 |    8 | client                                  |
//! |      8 |    8 | number, counted by the client           |
//! |     16 |    n | the same bytes in every value           |

use bytes::{BufMut, Bytes, BytesMut};

/// Makes and checks values of one size. Shorter ones than the header lack its end.
pub struct Values {
    template: Vec<u8>,
}

impl Values {
    pub fn new(size: usize) -> Values {
        // Neither constant nor compressible.
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        Values { template: (0..size).map(next).collect() }
    }

    pub fn make(&self, client: u64, number: u64) -> Bytes {
        let mut value = BytesMut::with_capacity(self.template.len() + HEADER_BYTES);
        value.put_u64_le(client);
        value.put_u64_le(number);
        value.extend_from_slice(self.template.get(HEADER_BYTES..).unwrap_or_default());
        value.truncate(self.template.len());
        value.freeze()
    }

    /// Client and number of a value; `None`: it is none of ours.
    pub fn read(&self, value: &[u8]) -> Option<(u64, u64)> {
        let (header, rest) = value.split_at_checked(HEADER_BYTES)?;
        let (client, number) = header.split_at(8);
        let same = rest == self.template.get(HEADER_BYTES..)?;
        let parse = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        same.then_some((parse(client)?, parse(number)?))
    }

    pub fn size(&self) -> usize {
        self.template.len()
    }

    /// Whether values are long enough to be told apart.
    pub fn are_signed(&self) -> bool {
        self.template.len() >= HEADER_BYTES
    }
}

const HEADER_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_its_maker_and_damage_shows() {
        let values = Values::new(40);
        let value = values.make(3, 99);
        assert_eq!((value.len(), values.read(&value)), (40, Some((3, 99))));
        let mut damaged = value.to_vec();
        damaged[20] ^= 1;
        assert_eq!(values.read(&damaged), None);
        assert_eq!(values.read(&value[..39]), None);
        assert_eq!(Values::new(5).make(3, 99).len(), 5);
    }
}
