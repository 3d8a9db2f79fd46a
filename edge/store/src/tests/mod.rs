//! Tests of the whole engine: against a model, through crashes, with damage, on a full disk.

mod backups;
mod compaction;
mod copies;
mod crash;
mod damage;
mod failing;
mod faulty;
mod files;
mod full;
mod given;
mod held;
mod hints;
mod linked;
mod model;
mod numbers;
mod properties;
mod relic;
mod reserve;
mod settling;
mod unfinished;
mod vanished;

use crate::disk::{Access, Disk};
use crate::engine::Core;
use crate::error::OpenError;
use crate::options::{Options, Sync};
use crate::recovery::Opened;
use bytes::Bytes;
use faulty::FaultyDisk;
use kumo_cluster::{Clock, KeyHash, Kind, Record, SpaceNumber, Stamp, StoreKey};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// What should be in a store.
type Model = BTreeMap<StoreKey, Record>;

/// Where stores of these tests are.
const PATH: &str = "/store";

/// Segments so small that everything happens often.
fn options(sync: Sync) -> Options {
    Options { sync, segment_bytes: 4096, ..Options::default() }
}

/// Without threads: the tests do what these would do.
fn open(disk: &FaultyDisk, sync: Sync) -> Result<(Core, Opened), OpenError> {
    open_at(disk, PATH, sync)
}

fn open_at(disk: &FaultyDisk, path: &str, sync: Sync) -> Result<(Core, Opened), OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Core::open(disk, Path::new(path), Access::Write, options(sync))
}

/// One of few keys; some share their hash.
fn key(number: u64) -> StoreKey {
    let hash = KeyHash((number / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    StoreKey { hash, key: Bytes::from(format!("key-{number}")) }
}

/// A version that is like no other.
fn record(clock: u64, data_bytes: usize) -> Record {
    let stamp = Stamp { space: SpaceNumber(1 + clock % 3), clock: Clock(clock) };
    let kind = if clock.is_multiple_of(7) { Kind::Tombstone } else { Kind::Value };
    let data = if kind == Kind::Tombstone { vec![] } else { vec![clock as u8; data_bytes] };
    Record { stamp, kind, flags: clock as u32, expiry: (clock % 2) as u32, data: data.into() }
}

fn content(core: &Core) -> Model {
    let keys = core.scan(KeyHash(0), KeyHash(u64::MAX), None, usize::MAX);
    let read = keys.into_iter().map(|(key, head)| {
        let record = core.get(key.hash, &key.key).unwrap().expect("a key that was scanned");
        assert_eq!((head.stamp, head.kind, head.expiry), (record.stamp, record.kind, record.expiry));
        assert_eq!(head.data_bytes as usize, record.data.len());
        (key, record)
    });
    read.collect()
}

fn tend(core: &Core) {
    core.tend(&mut |_| true).expect("a disk that works");
}
