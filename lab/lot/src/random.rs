//! [`Random`]: a reproducible stream of numbers. Each purpose has its own, so that taking one kind of fault
//! away leaves the draws of all others as they were.

/// A stream of numbers fixed by a seed and a purpose (xoshiro256**, filled by splitmix64).
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    pub fn new(seed: u64, purpose: &str) -> Random {
        let mut mixed = seed ^ 0x6b75_6d6f_0000_0000;
        for byte in purpose.bytes() {
            mixed = split(&mut mixed) ^ u64::from(byte);
        }
        Random { state: [split(&mut mixed), split(&mut mixed), split(&mut mixed), split(&mut mixed)] }
    }

    pub fn word(&mut self) -> u64 {
        let result = self.state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = self.state[1] << 17;
        self.state[2] ^= self.state[0];
        self.state[3] ^= self.state[1];
        self.state[1] ^= self.state[2];
        self.state[0] ^= self.state[3];
        self.state[2] ^= shifted;
        self.state[3] = self.state[3].rotate_left(45);
        result
    }

    pub fn wide(&mut self) -> u128 {
        u128::from(self.word()) << 64 | u128::from(self.word())
    }

    /// A number below `bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` up to and including `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True so many times in a thousand.
    pub fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    /// A number from 0 up to but not including 1.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with that chance.
    pub fn chance(&mut self, chance: f64) -> bool {
        self.unit() < chance
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }
}

fn split(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_fixed_by_its_seed_and_purpose() {
        let draw = |seed, purpose| {
            let mut random = Random::new(seed, purpose);
            [random.word(), random.word(), random.word()]
        };
        assert_eq!(draw(7, "network"), draw(7, "network"));
        assert_ne!(draw(7, "network"), draw(7, "disk"));
        assert_ne!(draw(7, "network"), draw(8, "network"));
    }

    /// Seeds that are written down must mean for ever what they meant.
    #[test]
    fn a_stream_never_changes() {
        let mut random = Random::new(7, "network");
        let words = [0xc539_b97e_a58a_0a03, 0x82aa_b0fb_6a8f_46b0, 0xe9a3_e7c3_cf24_589c];
        assert_eq!([random.word(), random.word(), random.word()], words);
    }

    #[test]
    fn bounds_hold() {
        let mut random = Random::new(1, "bounds");
        for bound in 1..200 {
            assert!(random.below(bound) < bound);
            assert!((bound..=bound + 3).contains(&random.between(bound, bound + 3)));
        }
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| random.permille(1000) && !random.permille(0)));
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
        assert!((0..1000).all(|_| random.chance(1.0) && !random.chance(0.0)));
        let tenths = (0..10_000).filter(|_| random.chance(0.1)).count();
        assert!((900..1100).contains(&tenths), "{tenths}");
    }
}
