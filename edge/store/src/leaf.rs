//! [`Leaf`]: where the entries of neighbouring keys are, in order.

use crate::arena::{Arena, Handle};
use crate::entry::Entry;
use crate::shard::SHARD_BITS;
use kumo_cluster::KeyHash;
use std::cmp::Ordering;

/// Entries in the order of (hash, key), between two hashes.
#[derive(Debug)]
pub struct Leaf {
    slots: Vec<Slot>,
    /// Of the lowest hash that is surely not here, of the highest one of all for the last leaf. Only to guess by.
    high: u32,
}

/// Where an entry is, and so much of its hash that a search seldom looks at any entry but the right one: entries are far
/// apart in memory.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    tag: u32,
    pub handle: Handle,
}

impl Slot {
    pub fn new(hash: KeyHash, handle: Handle) -> Slot {
        Slot { tag: tag(hash), handle }
    }
}

/// The 32 bits of a hash that follow those which all keys of a shard share.
fn tag(hash: KeyHash) -> u32 {
    ((hash.0 << SHARD_BITS) >> 32) as u32
}

impl Leaf {
    pub fn new(high: KeyHash) -> Leaf {
        Leaf { slots: Vec::new(), high: tag(high) }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The position of the key, or where it would be. `low` is the lowest hash that may be here.
    ///
    /// Hashes are even, so that where one is can be guessed well. Where they are not even, halving takes over.
    pub fn position(&self, arena: &Arena, low: u64, hash: KeyHash, key: &[u8]) -> Result<usize, usize> {
        let wanted = tag(hash);
        let (mut first, mut end) = (0, self.slots.len());
        let (mut low, mut high) = (tag(KeyHash(low)), self.high);
        let mut guesses = GUESSES_MAX;
        while first < end {
            let middle = if guesses > 0 && low <= wanted && wanted < high {
                guesses -= 1;
                let part = u64::from(wanted - low) * (end - first) as u64 / u64::from(high - low);
                first + part as usize
            } else {
                first + (end - first) / 2
            };
            let slot = self.slots[middle];
            match slot.tag.cmp(&wanted).then_with(|| compare(arena.at(slot.handle), hash, key)) {
                Ordering::Equal => return Ok(middle),
                Ordering::Less => (first, low) = (middle + 1, slot.tag),
                Ordering::Greater => (end, high) = (middle, slot.tag),
            }
        }
        Err(first)
    }

    pub fn get(&self, position: usize) -> Handle {
        self.slots[position].handle
    }

    pub fn insert(&mut self, position: usize, slot: Slot) {
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(SLOTS_STEP);
        }
        self.slots.insert(position, slot);
    }

    pub fn replace(&mut self, position: usize, handle: Handle) {
        self.slots[position].handle = handle;
    }

    pub fn remove(&mut self, position: usize) -> Handle {
        let handle = self.slots.remove(position).handle;
        if self.slots.capacity() - self.slots.len() > 2 * SLOTS_STEP {
            self.slots.shrink_to(self.slots.len() + SLOTS_STEP);
        }
        handle
    }

    /// Gives the upper half away, with the hash it begins at. Equal hashes stay together: the index finds a leaf
    /// by the hash alone. None if there is but one hash.
    pub fn split(&mut self, arena: &Arena) -> Option<(u64, Leaf)> {
        let hash = |position: usize| Entry::hash_at(arena.at(self.slots[position].handle));
        let half = self.slots.len() / 2;
        let starts = |position: &usize| hash(position - 1) != hash(*position);
        let cut = (half.max(1)..self.slots.len()).find(starts).or_else(|| (1..half).rev().find(starts))?;
        let low = hash(cut);
        let mut upper = Leaf { slots: Vec::new(), high: self.high };
        upper.take(&self.slots[cut..]);
        let mut lower = Leaf::new(low);
        lower.take(&self.slots[..cut]);
        *self = lower;
        Some((low.0, upper))
    }

    /// Takes all of the next leaf.
    pub fn absorb(&mut self, next: &Leaf) {
        self.take(&next.slots);
        self.high = next.high;
    }

    fn take(&mut self, slots: &[Slot]) {
        self.slots.reserve_exact(slots.len().next_multiple_of(SLOTS_STEP));
        self.slots.extend_from_slice(slots);
    }
}

fn compare(entry: &[u8], hash: KeyHash, key: &[u8]) -> Ordering {
    Entry::hash_at(entry).cmp(&hash).then_with(|| Entry::decode(entry).0.key.cmp(key))
}

/// By how much a leaf grows.
const SLOTS_STEP: usize = 16;

/// Guesses before halving takes over.
const GUESSES_MAX: u32 = 4;
