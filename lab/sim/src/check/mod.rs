//! The history checkers. Each takes what clients saw and says what is wrong with it; each is shown, in its own
//! tests, to find the wrong it is for.

pub mod agreement;
pub mod appends;
pub mod events;
pub mod linear;
pub mod locks;
pub mod order;
pub mod own;
pub mod queues;
pub mod registers;
pub mod trees;
pub mod truth;

use std::hash::{DefaultHasher, Hash, Hasher};

/// What a checker found: a sentence for whoever reads the trace.
pub type Verdict = Result<(), String>;

/// What a search remembers of a place that it has seen, instead of the place: two that differ do not share 128 bits.
pub fn fingerprint(place: &impl Hash) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, place).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}
