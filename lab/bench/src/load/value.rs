//! [`Values`]: values that tell who made them, so that a wrong one is seen.
//!
//! | offset | size | field                          |
//! |      0 |    8 | client                         |
//! |      8 |    8 | number, counted by the client  |
//! |     16 |    n | the same bytes in every value  |

/// Makes and checks values of one size.
#[derive(Clone)]
pub struct Values {
    filling: Vec<u8>,
}

impl Values {
    /// Of at least the header's size.
    pub fn new(size: usize) -> Values {
        // Neither constant nor compressible.
        let mut state = 0x2545_F491_4F6C_DD1Du64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        Values { filling: (HEADER_BYTES..size).map(next).collect() }
    }

    pub fn size(&self) -> usize {
        HEADER_BYTES + self.filling.len()
    }

    pub fn make(&self, client: u64, number: u64) -> Vec<u8> {
        [&client.to_be_bytes()[..], &number.to_be_bytes()[..], &self.filling[..]].concat()
    }

    pub fn is(&self, value: &[u8], client: u64, number: u64) -> bool {
        value.len() == self.size()
            && value[..8] == client.to_be_bytes()
            && value[8..HEADER_BYTES] == number.to_be_bytes()
            && value[HEADER_BYTES..] == self.filling[..]
    }
}

const HEADER_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_client_number_length_or_filling_is_wrong() {
        let values = Values::new(100);
        let value = values.make(3, 7);
        assert!(value.len() == 100 && values.is(&value, 3, 7));
        assert!(!values.is(&value, 4, 7) && !values.is(&value, 3, 8) && !values.is(&value[..99], 3, 7));
        let mut changed = value;
        changed[99] ^= 1;
        assert!(!values.is(&changed, 3, 7));
    }
}
