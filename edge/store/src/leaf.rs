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

/// An entry that was found.
#[derive(Debug)]
pub struct Hit<'a> {
    pub position: usize,
    pub handle: Handle,
    pub entry: Entry<'a>,
    /// Of the packed entry.
    pub length: usize,
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

    /// The entry of the key with its position, or where it would be. `low` is the lowest hash that may be here.
    pub fn find<'a>(&self, arena: &'a Arena, low: u64, hash: KeyHash, key: &[u8]) -> Result<Hit<'a>, usize> {
        let wanted = tag(hash);
        let (mut first, mut end) = (self.lower_bound(low, wanted), self.slots.len());
        // Where many keys share what a slot knows of their hashes, halving is needed; nearly always there is but one.
        let mut middle = first;
        while first < end {
            let slot = self.slots[middle];
            if slot.tag == wanted {
                let (entry, length) = Entry::decode(arena.at(slot.handle));
                match entry.hash.cmp(&hash).then_with(|| entry.key.cmp(key)) {
                    Ordering::Equal => {
                        return Ok(Hit { position: middle, handle: slot.handle, entry, length });
                    }
                    Ordering::Less => first = middle + 1,
                    Ordering::Greater => end = middle,
                }
            } else {
                end = middle;
            }
            middle = first + (end - first) / 2;
        }
        Err(first)
    }

    /// The first slot whose tag is not below the wanted one.
    ///
    /// Hashes are even, so that where one is can be guessed well, and the rest of the way is a few steps through
    /// memory that is at hand: cheaper than to guess again, which takes a division. Where they are not even, halving
    /// takes over.
    fn lower_bound(&self, low: u64, wanted: u32) -> usize {
        let (slots, low) = (&self.slots[..], tag(KeyHash(low)));
        let guess = if low <= wanted && wanted < self.high {
            (u64::from(wanted - low) * slots.len() as u64 / u64::from(self.high - low)) as usize
        } else {
            slots.len() / 2
        };
        let (below, above) = slots.split_at(guess);
        let is_below = |slot: &Slot| slot.tag < wanted;
        let up = above.iter().take(STEPS_MAX).take_while(|slot| is_below(slot)).count();
        if up == STEPS_MAX {
            return guess + up + above[up..].partition_point(is_below);
        }
        if up > 0 {
            return guess + up;
        }
        let down = below.iter().rev().take(STEPS_MAX).take_while(|slot| !is_below(slot)).count();
        if down == STEPS_MAX {
            return below[..guess - down].partition_point(is_below);
        }
        guess - down
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

/// By how much a leaf grows.
const SLOTS_STEP: usize = 16;

/// Steps from a guess before halving takes over: a guess is off by about the root of what a leaf holds.
const STEPS_MAX: usize = 24;
