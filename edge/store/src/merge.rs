//! [`merge`]: several stores into a new one, the newest version of each key.

use crate::backup::{finish, start};
use crate::disk::{Access, Disk, SystemDisk};
use crate::engine::Core;
use crate::error::OpenError;
use crate::options::{Options, Sync};
use kumo_cluster::{Fault, KeyHash, StoreKey};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a merge did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    pub sources: Vec<MergedSource>,
    /// In the result.
    pub items: u64,
    pub tombstones: u64,
}

/// What one source gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedSource {
    pub path: PathBuf,
    pub records: u64,
    /// Keys that no source before it had.
    pub added: u64,
    /// Newer than those of the sources before it.
    pub newer: u64,
    /// Not newer, so not taken.
    pub older: u64,
    /// Bytes of its torn end that were not read.
    pub torn_bytes: u64,
}

/// Writes a store to `destination`, where nothing may be, with the record of the greatest stamp of each key, be it
/// a value or a tombstone. Of equal stamps the first counts. Sources are read, not changed, and must not be in use;
/// their notes are not taken, but those with a [`CLUSTER_NOTE`] must have the same. Memory holds the indexes of the result and of one source at a time, no data. The
/// destination appears when it is complete and on the disk.
pub fn merge(destination: &Path, sources: &[&Path]) -> Result<Merged, OpenError> {
    merge_on(&(Arc::new(SystemDisk) as Arc<dyn Disk>), destination, sources)
}

pub fn merge_on(disk: &Arc<dyn Disk>, destination: &Path, sources: &[&Path]) -> Result<Merged, OpenError> {
    let unfinished = start(disk, destination)?;
    let options = Options { sync: Sync::None, ..Options::default() };
    let mut merged = Merged::default();
    // All sources are looked at before anything is written.
    let mut cluster: Option<(&Path, Vec<u8>)> = None;
    for source in sources {
        let (core, _) = Core::open(disk.clone(), source, Access::Read, options.clone())?;
        match (&cluster, core.note(CLUSTER_NOTE)?) {
            (Some((first, known)), Some(found)) if *known != found => {
                return Err(OpenError::OtherCluster { path: source.into(), first: first.into() });
            }
            (None, Some(found)) => cluster = Some((source, found)),
            (Some(_), Some(_)) | (_, None) => {}
        }
    }
    let (result, _) = Core::make_copy(disk.clone(), &unfinished, options.clone())?;
    for source in sources {
        let (core, opened) = Core::open(disk.clone(), source, Access::Read, options.clone())?;
        let mut counts = take(&result, &core, source)?;
        counts.torn_bytes = opened.cuts.iter().map(|cut| cut.bytes).sum();
        merged.sources.push(counts);
        result.tend(&mut |_| true)?;
    }
    if let Some(files) = result.files() {
        files.log.sync()?;
    }
    let usage = result.usage();
    (merged.items, merged.tombstones) = (usage.items, usage.tombstones);
    // Locked until it has its name: whoever finds it meanwhile must not take it for one that was cut short.
    finish(&**disk, &unfinished, destination)?;
    drop(result);
    Ok(merged)
}

fn take(result: &Core, source: &Core, path: &Path) -> Result<MergedSource, Fault> {
    let mut counts =
        MergedSource { path: path.into(), records: 0, added: 0, newer: 0, older: 0, torn_bytes: 0 };
    let mut after: Option<StoreKey> = None;
    loop {
        let found = source.scan(KeyHash(0), KeyHash(u64::MAX), after.as_ref(), BATCH);
        for (key, head) in &found {
            counts.records += 1;
            match result.head(key.hash, &key.key)? {
                None => counts.added += 1,
                Some(held) if head.stamp > held.stamp => counts.newer += 1,
                Some(_) => {
                    counts.older += 1;
                    continue;
                }
            }
            let record = source.get(key.hash, &key.key)?.expect("nobody writes to a source");
            result.put(key.hash, &key.key, &record)?;
        }
        result.flush()?;
        if found.len() < BATCH {
            return Ok(counts);
        }
        after = found.last().map(|(key, _)| key.clone());
    }
}

/// The note by which a server says of which cluster its records are.
pub const CLUSTER_NOTE: &str = "cluster";

/// Keys that are looked at at once.
const BATCH: usize = 4096;
