//! A disk that fails once, or at one place: what it failed to do is not taken for done, and nothing else suffers.

use super::faulty::{Crash, FaultyDisk, Plan};
use super::{Model, PATH, content, key, open, open_at, record, tend};
use crate::disk::Disk;
use crate::engine::Core;
use crate::options::Sync;
use crate::segment::{hint_name, segment_name};
use kumo_cluster::Fault;
use std::path::Path;
use std::time::Duration;

/// A store, a backup of it and what both hold.
pub fn backed_up() -> (FaultyDisk, Model) {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    for clock in 1..60 {
        core.put(key(clock).hash, &key(clock).key, &record(clock, 100)).unwrap();
        core.commit().unwrap();
    }
    core.put_note("space", b"seven").unwrap();
    tend(&core);
    core.backup(Path::new("/backup"), &[]).unwrap();
    let model = content(&core);
    core.close().unwrap();
    drop(core);
    (disk, model)
}

/// The system holds what it could not write for written. The next try finds it in memory and must not believe it.
#[test]
fn a_sync_that_failed_at_the_first_start_on_a_copy_is_made_up_for() {
    let (whole, model) = backed_up();
    for of in ["/backup", PATH] {
        let mut failures = 0;
        for change in 1.. {
            let (disk, at) = (whole.copy(), Path::new("/copied"));
            disk.create_folder(at).unwrap();
            for path in whole.names().iter().filter(|path| path.starts_with(of)) {
                let copied = disk.create(&at.join(path.file_name().unwrap())).unwrap();
                copied.write_at(0, &whole.content(path)).unwrap();
            }
            disk.plan(Plan::FailAt(disk.changes() + change));
            let first =
                open_at(&disk, "/copied", Sync::Always).map(|_| "opened").map_err(|error| error.to_string());
            if disk.plan_is_due() {
                break;
            }
            failures += u64::from(first.is_err());
            let context = format!("of {of}, change {change}: {first:?}");
            let (core, _) =
                open_at(&disk, "/copied", Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
            core.put(key(5).hash, &key(5).key, &record(5000, 300)).unwrap();
            core.commit().unwrap();
            drop(core);
            disk.crash(Crash::PowerFailed);
            let (core, opened) =
                open_at(&disk, "/copied", Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
            let mut model = model.clone();
            model.insert(key(5), record(5000, 300));
            assert!(content(&core) == model && opened.cuts.is_empty(), "{context}");
            assert_eq!(core.note("space"), Ok(Some(b"seven".to_vec())), "{context}");
            let left = disk.names().into_iter().find(|path| path.ends_with("SYNCING"));
            assert_eq!(left, None, "{context}");
        }
        assert!(failures > 10, "of {of}: {failures}");
    }
}

#[test]
fn a_store_on_a_disk_without_room_for_another_file_is_opened() {
    let (disk, model) = backed_up();
    disk.plan(Plan::FullAt(disk.changes() + 1));
    let (core, _) = open(&disk, Sync::Always).unwrap();
    assert!(!disk.plan_is_due());
    assert_eq!(content(&core), model);
}

/// Fills about a segment: so many keys stay, the others are written over by the next call.
fn fill(core: &Core, round: u64, stay: u64) {
    for number in 0..12 {
        let key = if number < stay { key(1000 + round * 12 + number) } else { key(number) };
        core.put(key.hash, &key.key, &record(7 * (round * 12 + number) + 1, 260)).unwrap();
    }
    core.commit().unwrap();
}

/// Something is wrong with the first segment, of which so many keys stay: that is said, and the other segments are
/// rewritten all the same.
fn garbage_goes_on(stay: u64, damage: impl FnOnce(&FaultyDisk), said: &str) {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    fill(&core, 0, stay);
    damage(&disk);
    let mut faults = Vec::new();
    for round in 1..100 {
        fill(&core, round, 3);
        faults.extend(core.tend(&mut |_| true).err());
    }
    let log = &core.files().unwrap().log;
    let percent = u64::from(log.options.garbage_percent);
    let garbage: Vec<u64> = log.closed_segments()[1..].iter().map(|one| one.garbage_percent()).collect();
    assert!(garbage.iter().all(|garbage| *garbage < percent), "{garbage:?}, {} faults", faults.len());
    assert!(faults.iter().any(|fault| fault.to_string().contains(said)), "{faults:?}");
}

#[test]
fn what_cannot_be_read_does_not_keep_the_garbage_of_other_segments() {
    let path = Path::new(PATH).join(segment_name(1));
    let said = format!("{}: damaged at offset 20: unreadable as planned", path.display());
    // Nearly all of it is garbage: it is rewritten first.
    garbage_goes_on(1, |disk| disk.make_unreadable(&path, 100), &said);
}

#[test]
fn a_hint_that_cannot_be_written_does_not_keep_the_garbage_of_other_segments() {
    let folder = Path::new(PATH).join(format!("{}.unfinished", hint_name(1)));
    // All of it is there to stay, and something has the name that its hint is written under.
    garbage_goes_on(
        12,
        |disk| disk.create_folder(&folder).unwrap(),
        "write /store/0000000001.hint.unfinished",
    );
}

/// Nobody waits for it, so nobody else would hear of it.
#[test]
fn a_sync_that_fails_on_a_full_disk_is_told() {
    let mut told = 0;
    for change in 1.. {
        let disk = FaultyDisk::default();
        let (core, _) = open(&disk, Sync::Interval(Duration::from_secs(1))).unwrap();
        fill(&core, 0, 12);
        disk.limit(Some(0));
        // The next segment finds no room, now and later.
        assert_eq!(core.put(key(1).hash, &key(1).key, &record(1, 4096)), Err(Fault::Full));
        disk.plan(Plan::FailAt(disk.changes() + change));
        core.keep_ready();
        if disk.plan_is_due() {
            break;
        }
        let trouble = core.trouble().map(|fault| fault.to_string()).unwrap_or_default();
        told += u64::from(trouble.contains("sync /store/0000000001.segment: failed as planned"));
    }
    assert_eq!(told, 1);
}

/// What is refused for another reason than a full disk is told apart from it, and until it is over.
#[test]
fn a_store_that_refuses_records_says_why_until_it_takes_one() {
    let mut refused = 0;
    for change in 1.. {
        let disk = FaultyDisk::default();
        let (core, _) = open(&disk, Sync::Always).unwrap();
        let log = &core.files().unwrap().log;
        fill(&core, 0, 12);
        disk.plan(Plan::FailAt(disk.changes() + change));
        let put = core.put(key(1).hash, &key(1).key, &record(1000, 4096));
        if disk.plan_is_due() {
            break;
        }
        let Err(fault) = put else { continue };
        refused += 1;
        assert!(matches!(&fault, Fault::Io(what) if what.contains("failed as planned")), "{fault}");
        assert_eq!((log.failing(), log.is_full()), (Some(fault), false));
        // Whoever ends for it looks again: the threads may be held up.
        assert_eq!(core.failing(), None);
        assert_eq!((log.failing(), log.is_full()), (None, false), "seen without a write");
        core.put(key(1).hash, &key(1).key, &record(1000, 4096)).unwrap();
        core.commit().unwrap();
    }
    assert!(refused > 1, "{refused}");
}

/// As long as it lasts, who asks is told, and of a disk that is full by now something else.
#[test]
fn why_records_are_refused_is_what_it_is_by_now() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    fill(&core, 0, 12);
    // Something has the name of the next segment.
    let next = Path::new(PATH).join(segment_name(2));
    disk.create_folder(&next).unwrap();
    core.put(key(1).hash, &key(1).key, &record(1000, 4096)).unwrap_err();
    for _ in 0..3 {
        let told = core.failing().map(|fault| fault.to_string()).unwrap_or_default();
        assert!(told.contains("0000000002.segment"), "{told:?}");
    }
    disk.rename(&next, Path::new("/elsewhere")).unwrap();
    disk.limit(Some(0));
    let log = &core.files().unwrap().log;
    assert_eq!((core.failing(), log.is_full()), (None, true));
    disk.limit(None);
    log.prepare().unwrap();
    assert!(!log.is_full());
}
