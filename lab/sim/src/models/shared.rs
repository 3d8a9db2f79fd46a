//! [`Shared`]: a value that many states have in common, hashed once. A search spends its time on copying and
//! hashing states, and a step changes one process of many.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A value and its hash.
pub struct Shared<T>(Arc<(u64, T)>);

impl<T: Hash> Shared<T> {
    pub fn new(value: T) -> Shared<T> {
        let mut hasher = Folding(0);
        value.hash(&mut hasher);
        Shared(Arc::new((hasher.finish(), value)))
    }

    /// A changed copy.
    pub fn with(&self, change: impl FnOnce(&mut T)) -> Shared<T>
    where
        T: Clone,
    {
        let mut value = self.0.1.clone();
        change(&mut value);
        Shared::new(value)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(self.0.clone())
    }
}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.0.0);
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        self.0.0 == other.0.0 && self.0.1 == other.0.1
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: Eq> PartialOrd for Shared<T> {
    fn partial_cmp(&self, other: &Shared<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By hash: any total order will do. Two values with one hash are one here, as they are for the whole search.
impl<T: Eq> Ord for Shared<T> {
    fn cmp(&self, other: &Shared<T>) -> Ordering {
        self.0.0.cmp(&other.0.0)
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        self.0.1.fmt(out)
    }
}

/// Folds word after word by multiplication: much of a search's time goes into hashing, and nobody attacks it.
struct Folding(u64);

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ SEED) * u128::from(FACTOR);
        self.0 = (product as u64 ^ (product >> 64) as u64).rotate_left(23);
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Two odd numbers without pattern.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
