//! [`Index`]: the keys of one shard in order.

use crate::arena::Arena;
use crate::entry::{Body, Entry, Place};
use crate::leaf::{Hit, Leaf, Slot};
use kumo_cluster::{KeyHash, Kind, StoreKey};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

/// An ordered map from (hash, key) to head and body. Keys are in memory in both modes: a 64-bit hash can be made
/// to collide, so only the key itself tells whether it is there, and a head or a scan must not wait for the disk.
#[derive(Debug)]
pub struct Index {
    /// By the lowest hash each may hold; one begins at 0.
    leaves: BTreeMap<u64, Leaf>,
    arena: Arena,
    packed: Vec<u8>,
    pub items: u64,
    pub tombstones: u64,
    pub live_bytes: u64,
}

impl Default for Index {
    fn default() -> Index {
        let leaves = BTreeMap::from([(0, Leaf::new(KeyHash(u64::MAX)))]);
        let (arena, packed) = (Arena::default(), Vec::new());
        Index { leaves, arena, packed, items: 0, tombstones: 0, live_bytes: 0 }
    }
}

impl Index {
    pub fn find(&self, hash: KeyHash, key: &[u8]) -> Option<Entry<'_>> {
        let (low, leaf) = self.leaf(hash);
        leaf.find(&self.arena, low, hash, key).ok().map(|hit| hit.entry)
    }

    /// Puts the entry in place of the key's old one, which it tells.
    pub fn set(&mut self, entry: &Entry) -> Option<Displaced> {
        self.packed.clear();
        entry.encode(&mut self.packed);
        let (low, leaf) = self.leaves.range_mut(..=entry.hash.0).next_back().expect("a leaf begins at 0");
        let old = match leaf.find(&self.arena, *low, entry.hash, entry.key) {
            Ok(Hit { position, handle, entry: old, length }) => {
                let old = Displaced::of(&old);
                if length == self.packed.len() {
                    self.arena.overwrite(handle, &self.packed);
                } else {
                    self.arena.discard(handle);
                    leaf.replace(position, self.arena.add(&self.packed));
                }
                Some(old)
            }
            Err(position) => {
                leaf.insert(position, Slot::new(entry.hash, self.arena.add(&self.packed)));
                None
            }
        };
        if leaf.len() > LEAF_SLOTS_MAX
            && let Some((low, upper)) = leaf.split(&self.arena)
        {
            self.leaves.insert(low, upper);
        }
        if let Some(old) = &old {
            self.forget(old);
        }
        match entry.head.kind {
            Kind::Value => self.items += 1,
            Kind::Tombstone => self.tombstones += 1,
        }
        self.live_bytes += entry.live_bytes();
        self.give_back();
        old
    }

    pub fn remove(&mut self, hash: KeyHash, key: &[u8]) -> Option<Displaced> {
        let (low, leaf) = self.leaves.range_mut(..=hash.0).next_back().expect("a leaf begins at 0");
        let low = *low;
        let Hit { position, handle, entry, .. } = leaf.find(&self.arena, low, hash, key).ok()?;
        let old = Displaced::of(&entry);
        leaf.remove(position);
        self.arena.discard(handle);
        let small = leaf.len() < LEAF_SLOTS_MAX / 4;
        self.forget(&old);
        if small {
            self.join(low);
        }
        self.give_back();
        Some(old)
    }

    /// Joins a small leaf with the next one if both are small, so that removals give their memory back.
    fn join(&mut self, low: u64) {
        let count = self.leaves[&low].len();
        let Some((next_low, next)) = self.leaves.range((Excluded(low), Included(u64::MAX))).next() else {
            return;
        };
        if count + next.len() > LEAF_SLOTS_MAX / 2 {
            return;
        }
        let next_low = *next_low;
        let next = self.leaves.remove(&next_low).expect("it was just found");
        self.leaves.get_mut(&low).expect("it was just read").absorb(&next);
    }

    /// Empties a slab of the arena if gaps have become many.
    fn give_back(&mut self) {
        let Some(number) = self.arena.sparse_slab() else { return };
        // It stays until all is moved: a search may look at entries that are still in it.
        let bytes = self.arena.slab(number).to_vec();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (entry, length) = Entry::decode(rest);
            if !Entry::is_discarded(rest) {
                let (low, leaf) =
                    self.leaves.range_mut(..=entry.hash.0).next_back().expect("a leaf begins at 0");
                let hit = leaf.find(&self.arena, *low, entry.hash, entry.key);
                let Hit { position, .. } = hit.expect("an entry in use is in the index");
                leaf.replace(position, self.arena.add(&rest[..length]));
            }
            rest = &rest[length..];
        }
        self.arena.release(number);
    }

    fn leaf(&self, hash: KeyHash) -> (u64, &Leaf) {
        let (low, leaf) = self.leaves.range(..=hash.0).next_back().expect("a leaf begins at 0");
        (*low, leaf)
    }

    fn forget(&mut self, old: &Displaced) {
        match old.kind {
            Kind::Value => self.items -= 1,
            Kind::Tombstone => self.tombstones -= 1,
        }
        self.live_bytes -= old.live_bytes;
    }

    /// Entries in order, from hash `first` to hash `last`, those after `after` if it is given. `after`, otherwise `first`,
    /// is of this shard.
    pub fn range(
        &self,
        first: KeyHash,
        last: KeyHash,
        after: Option<&StoreKey>,
    ) -> impl Iterator<Item = Entry<'_>> {
        let after = after.filter(|after| after.hash >= first);
        let (low, leaf) = self.leaf(after.map_or(first, |after| after.hash));
        let skipped = match after {
            Some(after) => leaf
                .find(&self.arena, low, after.hash, &after.key)
                .map_or_else(|position| position, |hit| hit.position + 1),
            None => {
                leaf.find(&self.arena, low, first, &[]).map_or_else(|position| position, |hit| hit.position)
            }
        };
        let slots = self.leaves.range(low..).flat_map(|(_, leaf)| leaf.slots());
        slots
            .skip(skipped)
            .map(|slot| self.arena.entry(slot.handle))
            .take_while(move |entry| entry.hash <= last)
    }

    /// The invariants, for tests.
    #[cfg(test)]
    pub fn check(&self) {
        let mut before: Option<(u64, Vec<u8>)> = None;
        for (low, leaf) in &self.leaves {
            for slot in leaf.slots() {
                assert!(!Entry::is_discarded(self.arena.at(slot.handle)));
                let entry = self.arena.entry(slot.handle);
                assert!(entry.hash.0 >= *low);
                let this = (entry.hash.0, entry.key.to_vec());
                assert!(before.is_none_or(|before| before < this));
                before = Some(this);
            }
        }
        assert!(self.leaves.contains_key(&0));
    }
}

/// What was in the index and is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Displaced {
    kind: Kind,
    /// Of key and data.
    pub live_bytes: u64,
    pub from: From,
}

/// Where the displaced data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    File(Place),
    Index,
    Heap(u32),
}

impl Displaced {
    fn of(entry: &Entry) -> Displaced {
        let from = match entry.body {
            Body::At(place) => From::File(place),
            Body::Inline { .. } => From::Index,
            Body::Held { slot, .. } => From::Heap(slot),
        };
        Displaced { kind: entry.head.kind, live_bytes: entry.live_bytes(), from }
    }
}

/// Beyond it a leaf is split. Large enough that what a leaf costs by itself is little beside its slots, small enough
/// that an insertion moves little.
const LEAF_SLOTS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kumo_cluster::{Head, Stamp};

    fn entry<'a>(hash: u64, key: &'a [u8], data_bytes: u32) -> Entry<'a> {
        let head = Head { stamp: Stamp::default(), kind: Kind::Value, expiry: 0, data_bytes };
        Entry { hash: KeyHash(hash), key, head, body: Body::At(Place { segment: 1, offset: data_bytes }) }
    }

    #[test]
    fn it_is_an_ordered_map_through_splits_and_joins() {
        let mut index = Index::default();
        let mut model = BTreeMap::new();
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 20
        };
        for round in 0..60_000u32 {
            // Few hashes, many keys each: collisions everywhere. Growing at first, then shrinking.
            // Far from even: at both ends of a shard.
            let (low, key) = ((draw() % 150) << 40, (draw() % 9).to_be_bytes());
            let hash = if draw() % 2 == 0 { low } else { (1 << 58) - 1 - low };
            if draw() % 100 < if round < 30_000 { 70 } else { 20 } {
                // The packed length changes with the number.
                let data_bytes = round % 70_000;
                index.set(&entry(hash, &key, data_bytes));
                model.insert((hash, key), data_bytes);
            } else {
                index.remove(KeyHash(hash), &key);
                model.remove(&(hash, key));
            }
            let found = index.find(KeyHash(hash), &key).map(|entry| entry.head.data_bytes);
            assert_eq!(found, model.get(&(hash, key)).copied());
            if round % 5000 == 0 {
                index.check();
                assert_eq!(index.items, model.len() as u64);
                let (first, last) = ((draw() % 300) << 40, 200 << 40);
                let after = StoreKey {
                    hash: KeyHash((draw() % 300) << 40),
                    key: Bytes::copy_from_slice(&4u64.to_be_bytes()),
                };
                let after = (round % 10_000 == 0).then_some(&after);
                let range = index.range(KeyHash(first), KeyHash(last), after);
                let listed: Vec<_> = range.map(|entry| (entry.hash.0, entry.key.to_vec())).collect();
                let expected = model.keys().map(|(hash, key)| (*hash, key.to_vec())).filter(|(hash, key)| {
                    let later = after.is_none_or(|after| (*hash, &key[..]) > (after.hash.0, &after.key[..]));
                    (first..=last).contains(hash) && later
                });
                assert_eq!(listed, expected.collect::<Vec<_>>());
            }
        }
        index.check();
    }

    #[test]
    fn keys_of_one_hash_all_fit() {
        let mut index = Index::default();
        for number in 0..2000u32 {
            index.set(&entry(7, &number.to_be_bytes(), number));
        }
        for number in 0..2000u32 {
            let found = index.find(KeyHash(7), &number.to_be_bytes()).expect("it was set");
            assert_eq!(found.head.data_bytes, number);
        }
        index.check();
    }
}
