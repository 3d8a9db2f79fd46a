//! Backups are whole, whatever else happens to the store and beside them.

use super::faulty::FaultyDisk;
use super::{Model, content, key, open, open_at, record, tend};
use crate::disk::Disk;
use crate::engine::Core;
use crate::error::OpenError;
use crate::merge::merge_on;
use crate::options::Sync;
use kumo_cluster::Fault;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

const BACKUP: &str = "/backup";

/// So many keys in several segments, all but the last with hints.
fn filled(disk: &FaultyDisk) -> (Arc<Core>, Model) {
    let (core, _) = open(disk, Sync::Always).unwrap();
    let mut model = Model::new();
    for clock in 1..100 {
        let (key, record) = (key(clock), record(clock, 100));
        core.put(key.hash, &key.key, &record).unwrap();
        model.insert(key, record);
    }
    core.commit().unwrap();
    tend(&core);
    (Arc::new(core), model)
}

/// Where the copy of the active segment is written.
fn active_copy(disk: &FaultyDisk) -> PathBuf {
    let segments =
        disk.names().into_iter().filter(|path| path.extension().is_some_and(|end| end == "segment"));
    let active = segments.max().expect("a store has a segment");
    Path::new(&format!("{BACKUP}.unfinished")).join(active.file_name().unwrap())
}

#[test]
fn a_backup_is_whole_though_its_last_segment_is_closed_meanwhile() {
    let disk = FaultyDisk::default();
    let (core, model) = filled(&disk);
    let writer = core.clone();
    disk.meddle_before(&active_copy(&disk), move || {
        for clock in 1000..1100 {
            writer.put(key(clock).hash, &key(clock).key, &record(clock, 100)).unwrap();
        }
        writer.write_hints().unwrap();
    });
    let backup = core.backup(Path::new(BACKUP), &[]).unwrap();
    assert!(backup.linked > 0 && backup.copied == 1, "{backup:?}");
    assert!(core.head(key(1000).hash, &key(1000).key).unwrap().is_some(), "written meanwhile");
    let (copy, opened) = open_at(&disk, BACKUP, Sync::None).unwrap();
    assert_eq!(content(&copy), model, "as of one moment");
    assert!(opened.cuts.is_empty() && opened.hinted == 0, "a copy is read: {opened:?}");
    drop(copy);
    let (copy, opened) = open_at(&disk, BACKUP, Sync::None).unwrap();
    assert_eq!(content(&copy), model, "by its hints");
    assert_eq!(opened.hinted, backup.linked);
}

#[test]
fn a_backup_under_way_is_not_taken_for_one_that_was_cut_short() {
    let disk = FaultyDisk::default();
    let (core, model) = filled(&disk);
    let (other, _) = open_at(&disk, "/other", Sync::None).unwrap();
    other.put(key(1).hash, &key(1).key, &record(1, 10)).unwrap();
    other.flush().unwrap();
    drop(other);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    disk.meddle_before(&active_copy(&disk), move || {
        let merged = merge_on(&shared, Path::new(BACKUP), &[Path::new("/other")]);
        assert_eq!(merged, Err(OpenError::Locked(format!("{BACKUP}.unfinished").into())));
    });
    core.backup(Path::new(BACKUP), &[]).unwrap();
    let (copy, _) = open_at(&disk, BACKUP, Sync::None).unwrap();
    assert_eq!(content(&copy), model);
}

#[test]
fn of_backups_of_one_name_at_once_one_is_made_and_whole() {
    let disk = FaultyDisk::default();
    let (core, model) = filled(&disk);
    let begin = Barrier::new(4);
    let results: Vec<Result<_, OpenError>> = std::thread::scope(|scope| {
        let one = || {
            begin.wait();
            core.backup(Path::new(BACKUP), &[])
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    let exists = OpenError::Exists(BACKUP.into());
    assert_eq!(results.iter().filter(|result| result.as_ref().err() == Some(&exists)).count(), 3);
    let (copy, opened) = open_at(&disk, BACKUP, Sync::None).unwrap();
    assert_eq!(content(&copy), model);
    assert!(opened.cuts.is_empty());
}

#[test]
fn a_backup_is_not_called_as_another_one_that_is_not_finished() {
    let disk = FaultyDisk::default();
    let (core, _) = filled(&disk);
    let path = PathBuf::from(format!("{BACKUP}.unfinished"));
    assert_eq!(core.backup(&path, &[]), Err(OpenError::Unfinished(path)));
}

#[test]
fn a_backup_that_finds_no_room_leaves_none_of_its_files() {
    let disk = FaultyDisk::default();
    let (core, model) = filled(&disk);
    let before = disk.names();
    let full = disk.clone();
    disk.meddle_before(&active_copy(&disk), move || full.limit(Some(0)));
    assert_eq!(core.backup(Path::new(BACKUP), &[]), Err(OpenError::from(Fault::Full)));
    disk.limit(None);
    let lock = PathBuf::from(format!("{BACKUP}.unfinished/LOCK"));
    let left: Vec<PathBuf> = disk.names().into_iter().filter(|path| !before.contains(path)).collect();
    assert_eq!(left, [lock]);
    core.backup(Path::new(BACKUP), &[]).unwrap();
    let (copy, _) = open_at(&disk, BACKUP, Sync::None).unwrap();
    assert_eq!(content(&copy), model);
}
