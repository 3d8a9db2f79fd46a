//! [`Guide`]: which stretch of the ring a hash lies in, nearly without searching.

use crate::KeyHash;

/// For stretches of the ring one after another: the first of them that reaches into each even part of it. Points are
/// hashes and so are keys, so that few stretches end within one part. Every request asks, several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guide {
    starts: Vec<u32>,
    /// All but the bits of a hash that say which part it is of.
    shift: u32,
}

impl Guide {
    /// `lasts`: where each stretch ends, ascending, up to the end of the ring.
    pub fn new(lasts: impl ExactSizeIterator<Item = KeyHash>) -> Guide {
        let parts = (PARTS * lasts.len()).next_power_of_two();
        let shift = u64::BITS - parts.trailing_zeros();
        let mut starts = Vec::with_capacity(parts);
        for (number, last) in lasts.enumerate() {
            // The parts up to the one it ends in, but for those that an earlier one reached into.
            starts.resize((last.0 >> shift) as usize + 1, number as u32);
        }
        Guide { starts, shift }
    }

    /// The number of the stretch that holds the hash; `last`: where that one ends.
    pub fn find(&self, hash: KeyHash, last: impl Fn(usize) -> KeyHash) -> usize {
        let mut number = self.starts[(hash.0 >> self.shift) as usize] as usize;
        while last(number) < hash {
            number += 1;
        }
        number
    }
}

/// Parts for each stretch.
const PARTS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_a_search_finds() {
        let mut state = 7u64;
        let mut draw = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state ^ state >> 29
        };
        for count in [0, 1, 2, 3, 60, 400, 5000] {
            for crowded in [false, true] {
                let place = |hash: u64| if crowded { hash >> 40 } else { hash };
                let mut lasts: Vec<KeyHash> = (0..count).map(|_| KeyHash(place(draw()))).collect();
                lasts.push(KeyHash(u64::MAX));
                lasts.sort_unstable();
                lasts.dedup();
                let guide = Guide::new(lasts.iter().copied());
                let drawn: Vec<KeyHash> = (0..1000).map(|_| KeyHash(place(draw()))).collect();
                let edges = lasts.iter().flat_map(|last| {
                    [last.0, last.0.saturating_add(1), last.0.saturating_sub(1)].map(KeyHash)
                });
                for hash in edges.chain(drawn).chain([KeyHash(0)]) {
                    let wanted = lasts.partition_point(|last| *last < hash);
                    assert_eq!(guide.find(hash, |number| lasts[number]), wanted);
                }
            }
        }
    }
}
