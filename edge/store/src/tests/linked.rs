//! A copy that shares its files with what it was made of (`cp -al`): what is written to one is not in the other.

use super::faulty::{Crash, FaultyDisk, Plan};
use super::{Model, PATH, content, key, open, open_at, record, tend};
use crate::disk::Disk;
use crate::engine::Core;
use crate::options::Sync;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const BACKUP: &str = "/backup";
const COPY: &str = "/copy";

fn files(disk: &FaultyDisk, of: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let names = disk.names().into_iter().filter(|path| path.starts_with(of));
    names.map(|path| (path.clone(), disk.content(&path))).collect()
}

/// A store that was closed and a backup of it.
fn backed_up() -> (FaultyDisk, Model) {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    core.put_note("space", b"seven").unwrap();
    core.put_note("lives", b"three").unwrap();
    for clock in 1..60 {
        core.put(key(clock).hash, &key(clock).key, &record(clock, 200)).unwrap();
    }
    core.commit().unwrap();
    tend(&core);
    core.backup(Path::new(BACKUP), &[]).unwrap();
    core.close().unwrap();
    let model = content(&core);
    drop(core);
    (disk, model)
}

/// What `cp -al` does.
fn link(disk: &FaultyDisk, of: &str) {
    disk.create_folder(Path::new(COPY)).unwrap();
    for path in files(disk, of).keys() {
        disk.link(path, &Path::new(COPY).join(path.file_name().unwrap())).unwrap();
    }
    disk.sync_folder(Path::new("/")).unwrap();
    disk.sync_folder(Path::new(COPY)).unwrap();
}

fn work(core: &Core) {
    for clock in 1..120 {
        let _ = core.put(key(clock % 20).hash, &key(clock % 20).key, &record(1000 + clock, 200));
        let _ = core.commit();
        let _ = core.put_note(["space", "lives", "other"][clock as usize % 3], &clock.to_be_bytes());
        if clock % 40 == 5 {
            core.keep_ready();
            let _ = core.tend(&mut |_| true);
        }
    }
    let _ = core.close();
}

#[test]
fn what_is_written_to_a_copy_of_links_is_not_in_what_it_was_made_of() {
    for of in [BACKUP, PATH] {
        let (disk, model) = backed_up();
        link(&disk, of);
        let before = files(&disk, of);
        for _ in 0..2 {
            let (core, _) = open_at(&disk, COPY, Sync::Always).unwrap();
            work(&core);
            assert!(content(&core) != model);
            assert_eq!(core.note("other").unwrap().as_deref(), Some(&119_u64.to_be_bytes()[..]));
            for (path, bytes) in &before {
                assert!(disk.content(path) == *bytes, "{} was changed", path.display());
            }
        }
        disk.crash(Crash::PowerFailed);
        let (core, _) = open_at(&disk, of, Sync::Always).unwrap();
        assert_eq!(content(&core), model);
        assert_eq!(core.note("space").unwrap().as_deref(), Some(&b"seven"[..]));
    }
}

#[test]
fn no_crash_takes_what_a_copy_of_links_has() {
    for of in [BACKUP, PATH] {
        let (base, model) = backed_up();
        link(&base, of);
        for change in 1.. {
            let disk = base.copy();
            disk.plan(Plan::CrashAt(change));
            let done = open_at(&disk, COPY, Sync::Always).is_ok() && !disk.is_down();
            for crash in [Crash::Killed, Crash::PowerFailed, Crash::PowerFailedAnyhow(change)] {
                let disk = disk.copy();
                disk.crash(crash);
                for path in [COPY, of] {
                    let opened = open_at(&disk, path, Sync::Always);
                    let (core, _) = opened.unwrap_or_else(|error| panic!("{change}, {crash:?}: {error}"));
                    assert!(content(&core) == model, "{path}: change {change}, {crash:?}");
                    assert_eq!(core.note("lives").unwrap().as_deref(), Some(&b"three"[..]));
                }
            }
            if done {
                assert!(change > 20, "{change} changes");
                break;
            }
        }
    }
}

/// It has been so for as long as there is no room: a server starts all the same, but no backup is changed.
#[test]
fn a_full_disk_keeps_no_store_of_links_from_starting() {
    for (of, starts) in [(BACKUP, false), (PATH, true)] {
        let (disk, model) = backed_up();
        link(&disk, of);
        disk.limit(Some(0));
        let before = files(&disk, BACKUP);
        assert_eq!(
            open_at(&disk, COPY, Sync::Always).map(|(core, _)| content(&core)).ok(),
            starts.then_some(model)
        );
        assert!(files(&disk, BACKUP) == before);
    }
}
