//! [`Digest`]: a rolling hash of everything executed and everything answered, compared between replicas.

/// The state digest: two replicas that executed the same entries with the same outcomes have the same one.
/// It finds bugs, not enemies: it is quick, not collision-proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(pub u64);

impl Digest {
    pub fn number(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(FACTOR).rotate_left(29).wrapping_add(FACTOR);
    }

    /// Byte strings are hashed with their length, so that no two lists of strings look the same.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        // Long strings in four lanes side by side: in one, each word would wait for the one before it.
        let (blocks, bytes) = bytes.as_chunks::<32>();
        let mut lanes = [1, 2, 3, 4].map(Digest);
        for block in blocks {
            let (words, _) = block.as_chunks::<8>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                lane.number(u64::from_le_bytes(*word));
            }
        }
        if !blocks.is_empty() {
            lanes.iter().for_each(|lane| self.number(lane.0));
        }
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.number(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.number(u64::from_le_bytes(last));
        }
    }
}

/// An odd number with about as many ones as zeros: the golden ratio's fraction.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(parts: &[&[u8]]) -> u64 {
        let mut digest = Digest(0);
        for part in parts {
            digest.bytes(part);
        }
        digest.0
    }

    /// Written down, because replicas of two builds and machines compare them.
    #[test]
    fn the_digest_is_the_same_everywhere() {
        assert_eq!(digest(&[b"kumo", b"a longer string of bytes"]), 3384117253305680254);
    }

    #[test]
    fn order_content_and_cuts_all_count() {
        let all = [
            digest(&[b"ab", b"c"]),
            digest(&[b"a", b"bc"]),
            digest(&[b"c", b"ab"]),
            digest(&[b"ab", b"c", b""]),
            digest(&[b"ab\0", b"c"]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(one));
        }
    }
}
