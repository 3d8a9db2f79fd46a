//! [`Store`]: what a server asks of its storage engine. `edge/store` is the engine, the simulator has its own.

use crate::{KeyHash, Kind, Record, Stamp};
use bytes::Bytes;
use kumo_wire::wire_struct;

/// A key as it is stored: its place on the ring first, so that the engine's order is the ring's order and a
/// range of the ring is a range of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreKey {
    pub hash: KeyHash,
    pub key: Bytes,
}

/// A record without its data: what ordering, digests and tombstone collection need. Comes from memory, without
/// a read from the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub stamp: Stamp,
    pub kind: Kind,
    pub expiry: u32,
    pub data_bytes: u32,
}

/// The engine could not do it. Local to this server: it never enters a reply's meaning, it makes the server
/// refuse the request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing was written; reads go on.
    #[error("no space left on device")]
    Full,
    /// The record at this place cannot be read; named by file and offset.
    #[error("{0}")]
    Damaged(String),
    #[error("{0}")]
    Io(String),
}

/// How much is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Records that are values.
    pub items: u64,
    pub tombstones: u64,
    /// Of keys and data that are current.
    pub live_bytes: u64,
    /// Of all files, garbage included.
    pub file_bytes: u64,
    /// Records that were found unreadable, and neither read nor written anew since. 0: none is known.
    pub unreadable: u64,
}

/// What deleted and expired keys left behind, as a server's last whole pass through its store found it. A tombstone is
/// never dropped early (rule 19), so there is no limit to it: it is told, for people to compare with theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Of tombstones: their keys, and about what a store keeps in memory beside a key.
    pub bytes: u64,
    /// Of the oldest tombstone that stayed.
    pub age_seconds: u64,
    /// Tombstones that stayed though they were old enough to be collected: a replace or an unconfirmed write holds them.
    pub held: u64,
}

/// One version a key, ordered by [`StoreKey`]. All calls return without waiting for the disk, but for a read of
/// data that the page cache does not hold.
pub trait Store {
    fn head(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Head>, Fault>;

    fn get(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Record>, Fault>;

    /// Replaces what is there, whatever its stamp: which version wins is the server's decision. Refused: the old
    /// version is still there, untouched.
    fn put(&self, hash: KeyHash, key: &[u8], record: &Record) -> Result<(), Fault>;

    /// Forgets the key as if it had never been there: no tombstone is left, and a restart does not bring it back.
    fn remove(&self, hash: KeyHash, key: &[u8]) -> Result<(), Fault>;

    /// Up to `count` keys with their heads in order, from hash `first` to hash `last` (both included, first ≤ last), those after
    /// `after` if it is given. Fewer than `count` means the range's end.
    fn scan(
        &self,
        first: KeyHash,
        last: KeyHash,
        after: Option<&StoreKey>,
        count: usize,
    ) -> Result<Vec<(StoreKey, Head)>, Fault>;

    /// How far it was written: grows with every change.
    fn written(&self) -> u64 {
        0
    }

    /// As far as this a loss of power takes nothing that it would not take from an answered write, too. A store that
    /// forgets with its process, or is made safe before anybody hears of a change, is safe at once.
    fn safe_upto(&self) -> u64 {
        u64::MAX
    }

    /// The last write found no room. A server stamps nothing new while it is so.
    fn is_full(&self) -> bool;

    fn usage(&self) -> Usage;
}

/// Longest key that every store takes. Memcached's are shorter; a gateway may put a prefix before them.
pub(crate) const KEY_BYTES_MAX: usize = 4096;

wire_struct!(StoreKey { hash, key });
wire_struct!(Garbage { bytes, age_seconds, held });
wire_struct!(Usage { items, tombstones, live_bytes, file_bytes, unreadable });
