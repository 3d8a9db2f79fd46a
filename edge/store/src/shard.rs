//! [`Shard`]: the index of one part of the ring, and in memory mode its data.

use crate::entry::{Body, Entry, Place};
use crate::index::{Displaced, From, Index};
use bytes::Bytes;
use kumo_cluster::{KeyHash, Record};
use kumo_wire::Pieces;
use std::sync::{Mutex, MutexGuard};

/// The part of an engine that one lock guards: keys whose hashes begin alike.
#[derive(Debug, Default)]
pub struct Shard {
    pub index: Index,
    heap: Heap,
    /// Small data that was found.
    pieces: Pieces,
}

impl Shard {
    /// Memory mode: the record itself.
    pub fn keep(&mut self, hash: KeyHash, key: &[u8], record: &Record) {
        let Record { flags, data, .. } = record;
        // Copied: a slice of what a socket delivered would hold on to all of it.
        let body = if data.len() <= INLINE_BYTES_MAX {
            Body::Inline { flags: *flags, data }
        } else {
            Body::Held { flags: *flags, slot: self.heap.hold(Bytes::copy_from_slice(data)) }
        };
        let old = self.index.set(&Entry { hash, key, head: head_of(record), body });
        self.release(old);
    }

    /// Memory mode: forgets the key.
    pub fn drop_key(&mut self, hash: KeyHash, key: &[u8]) {
        let old = self.index.remove(hash, key);
        self.release(old);
    }

    /// File mode: where the record is now. Tells what it displaces.
    pub fn point(&mut self, hash: KeyHash, key: &[u8], record: &Record, place: Place) -> Option<Displaced> {
        self.index.set(&Entry { hash, key, head: head_of(record), body: Body::At(place) })
    }

    /// The record, or the place of it.
    pub fn find(&mut self, hash: KeyHash, key: &[u8]) -> Option<Found> {
        let entry = self.index.find(hash, key)?;
        let (flags, data) = match entry.body {
            Body::At(place) => {
                return Some(Found::At { place, data_bytes: entry.head.data_bytes as usize });
            }
            Body::Inline { flags, data } => (flags, self.pieces.copy(data)),
            Body::Held { flags, slot } => (flags, self.heap.slots[slot as usize].clone()),
        };
        let head = entry.head;
        Some(Found::Here(Record { stamp: head.stamp, kind: head.kind, flags, expiry: head.expiry, data }))
    }

    fn release(&mut self, old: Option<Displaced>) {
        match old.map(|old| old.from) {
            Some(From::Heap(slot)) => self.heap.release(slot),
            Some(From::File(_) | From::Index) | None => {}
        }
    }
}

/// Where a record was found.
pub enum Found {
    Here(Record),
    At { place: Place, data_bytes: usize },
}

/// All shards, by the uppermost bits of the hash.
pub struct Shards(Box<[Mutex<Shard>]>);

impl Shards {
    pub fn new() -> Shards {
        Shards((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    pub fn lock(&self, hash: KeyHash) -> MutexGuard<'_, Shard> {
        self.at(Self::number(hash))
    }

    pub fn at(&self, number: usize) -> MutexGuard<'_, Shard> {
        self.0[number].lock().expect("no panic under this lock")
    }

    pub fn number(hash: KeyHash) -> usize {
        (hash.0 >> (u64::BITS - SHARD_BITS)) as usize
    }

    /// How many keys there are.
    pub fn keys(&self) -> u64 {
        self.all().map(|shard| shard.index.items + shard.index.tombstones).sum()
    }

    pub fn numbers(&self) -> std::ops::Range<usize> {
        0..SHARDS
    }

    /// The lowest hash of a shard.
    pub fn lowest(number: usize) -> KeyHash {
        KeyHash((number as u64) << (u64::BITS - SHARD_BITS))
    }

    pub fn all(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        (0..SHARDS).map(|number| self.at(number))
    }
}

/// Larger data of memory mode, by slot.
#[derive(Debug, Default)]
struct Heap {
    slots: Vec<Bytes>,
    free: Vec<u32>,
}

impl Heap {
    fn hold(&mut self, data: Bytes) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = data;
            return slot;
        }
        self.slots.push(data);
        (self.slots.len() - 1) as u32
    }

    fn release(&mut self, slot: u32) {
        self.slots[slot as usize] = Bytes::new();
        self.free.push(slot);
    }
}

fn head_of(record: &Record) -> kumo_cluster::Head {
    let Record { stamp, kind, flags: _, expiry, data } = record;
    kumo_cluster::Head { stamp: *stamp, kind: *kind, expiry: *expiry, data_bytes: data.len() as u32 }
}

/// Data up to this size is in the index, beside its key: no allocation of its own. Above, a read shares it.
pub const INLINE_BYTES_MAX: usize = 512;

/// Many more than a machine has cores, so that two rarely want the same.
const SHARDS: usize = 1 << SHARD_BITS;
pub const SHARD_BITS: u32 = 6;
