//! A backup or merge that was cut short is taken by nobody for a store, and no store is called like one.

use super::faulty::{Crash, FaultyDisk, Plan};
use super::{PATH, key, open, open_at, record, tend};
use crate::disk::{Disk, What};
use crate::error::OpenError;
use crate::merge::merge_on;
use crate::options::Sync;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A store of several segments. Of a copy of its first ones alone a key would be back that was removed later.
fn filled() -> FaultyDisk {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    for clock in 1..60 {
        core.put(key(clock).hash, &key(clock).key, &record(clock, 200)).unwrap();
    }
    core.put_note("space", b"seven").unwrap();
    core.commit().unwrap();
    tend(&core);
    core.remove(key(7).hash, &key(7).key).unwrap();
    core.commit().unwrap();
    core.close().unwrap();
    drop(core);
    disk
}

fn merge(disk: &FaultyDisk, destination: &str, source: &str) -> Result<u64, String> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let merged = merge_on(&disk, Path::new(destination), &[Path::new(source)]);
    merged.map(|merged| merged.items + merged.tombstones).map_err(|error| error.to_string())
}

/// Ends it at every change and by all ways. What is left is refused, also after it was given another name, or is whole.
fn cut_short(make: impl Fn(&FaultyDisk) -> Result<u64, String>) {
    let whole = filled();
    let (keys, changes) = {
        let disk = whole.copy();
        (make(&disk).unwrap(), disk.changes())
    };
    let mut lacking = 0;
    for change in 1..=changes {
        for crash in
            [Crash::Killed, Crash::PowerFailed].into_iter().chain((0..8).map(Crash::PowerFailedAnyhow))
        {
            let disk = whole.copy();
            disk.plan(Plan::CrashAt(change));
            let _ = make(&disk);
            disk.crash(crash);
            let context = format!("change {change}, {crash:?}");
            if disk.what(Path::new("/made.unfinished")).unwrap() == What::Folder {
                for name in ["/made.unfinished", "/renamed"] {
                    let copy = disk.copy();
                    copy.rename(Path::new("/made.unfinished"), Path::new(name)).unwrap();
                    lacking += u64::from(!is_whole(&copy, name, keys, &context));
                }
            }
            // Nor is it in the way of the next one.
            if disk.what(Path::new("/made")).unwrap() == What::Missing {
                assert_eq!(make(&disk), Ok(keys), "{context}");
            }
        }
    }
    assert!(lacking > 100, "{lacking} of {changes}");
}

/// False: it is refused, since it says itself that it is not complete, or says nothing at all yet.
fn is_whole(disk: &FaultyDisk, name: &str, keys: u64, context: &str) -> bool {
    match merge(disk, "/merged", name) {
        Ok(found) => {
            assert_eq!(found, keys, "{context}: a part of it");
            true
        }
        Err(line) => {
            let missing = format!("{name}: the backup is not complete: MANIFEST is missing");
            let nothing = format!("{name}: not a kumo store");
            assert!(line == missing || line == nothing, "{context}: {line}");
            false
        }
    }
}

#[test]
fn a_backup_that_was_cut_short_is_refused_under_any_name() {
    cut_short(|disk| {
        let (core, _) = open(disk, Sync::Always).map_err(|error| error.to_string())?;
        core.backup(Path::new("/made"), &[]).map_err(|error| error.to_string())?;
        Ok(core.usage().items + core.usage().tombstones)
    });
}

#[test]
fn a_merge_that_was_cut_short_is_refused_under_any_name() {
    cut_short(|disk| merge(disk, "/made", PATH));
}

#[test]
fn no_store_is_made_of_a_backup_that_was_cut_short() {
    let disk = filled();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    disk.plan(Plan::CrashAt(disk.changes() + 12));
    core.backup(Path::new("/made"), &[]).unwrap_err();
    disk.crash(Crash::Killed);
    drop(core);
    disk.rename(Path::new("/made.unfinished"), Path::new("/renamed")).unwrap();
    let opened = open_at(&disk, "/renamed", Sync::None).map(|_| "opened").map_err(|error| error.to_string());
    assert_eq!(opened, Err("/renamed: the backup is not complete: MANIFEST is missing".to_owned()));
}

/// The next merge to a destination whose name is the first part of it would remove its files.
#[test]
fn a_store_is_not_called_as_a_backup_that_is_not_finished() {
    for path in ["/db.unfinished", "/db.unfinished/", "/.unfinished"] {
        let disk = FaultyDisk::default();
        let refused = open_at(&disk, path, Sync::Always).map(|_| "opened");
        assert_eq!(refused, Err(OpenError::Unfinished(PathBuf::from(path))));
        assert!(disk.names().is_empty(), "nothing is made");
    }
}
