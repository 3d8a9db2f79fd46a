//! Closed segments: what is kept of them, and what is not even read.

use super::faulty::{Crash, FaultyDisk, Plan};
use super::{PATH, content, key, open, record, tend};
use crate::engine::Core;
use crate::entry::Place;
use crate::layout::RECORD_BYTES;
use crate::options::Sync;
use crate::segment::{HEADER_BYTES, hint_name, segment_name};
use crate::shard::Found;
use kumo_cluster::Fault;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn segment(number: u32) -> PathBuf {
    Path::new(PATH).join(segment_name(number))
}

fn closed(core: &Core) -> Vec<u32> {
    core.files().unwrap().log.closed_segments().iter().map(|segment| segment.number).collect()
}

pub fn place_of(core: &Core, number: u64) -> Place {
    match core.shards.lock(key(number).hash).find(key(number).hash, &key(number).key) {
        Some(Found::At { place, .. }) => place,
        Some(Found::Here(_)) | None => panic!("key {number} is in no file"),
    }
}

/// Puts versions of a key until so many segments are closed, and tells the clock of the last one.
fn overwrite(core: &Core, number: u64, clock: u64, segments: usize) -> u64 {
    let key = key(number);
    let mut clock = clock;
    let target = closed(core).len() + segments;
    while closed(core).len() < target {
        clock += 1;
        core.put(key.hash, &key.key, &record(clock, 200)).unwrap();
    }
    clock
}

/// What is seen of the making of a segment's hint.
fn watch_hint(disk: &FaultyDisk, number: u32) -> Arc<AtomicBool> {
    let written = Arc::new(AtomicBool::new(false));
    let seen = written.clone();
    let unfinished = Path::new(PATH).join(format!("{}.unfinished", hint_name(number)));
    disk.meddle_before(&unfinished, move || seen.store(true, Ordering::Relaxed));
    written
}

#[test]
fn a_segment_gets_a_hint_unless_it_is_rewritten_anyway() {
    for (keys, hinted) in [(1, false), (1000, true)] {
        let disk = FaultyDisk::default();
        let (core, _) = open(&disk, Sync::Always).unwrap();
        let written = watch_hint(&disk, 1);
        for clock in 1..40 {
            let key = key(clock % keys);
            core.put(key.hash, &key.key, &record(clock, 200)).unwrap();
        }
        let before = content(&core);
        tend(&core);
        assert_eq!(written.load(Ordering::Relaxed), hinted);
        assert_eq!(closed(&core).is_empty(), !hinted);
        assert!(core.files().unwrap().log.unhinted().is_empty(), "nothing is left to do");
        assert_eq!(content(&core), before);
    }
}

/// A start would refuse the whole store for the sake of bytes that nobody needs.
#[test]
fn a_segment_of_nothing_but_garbage_is_removed_unread() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let clock = overwrite(&core, 1, 0, 3);
    core.commit().unwrap();
    let mut damaged = disk.content(&segment(1));
    damaged[HEADER_BYTES as usize..].fill(7);
    disk.set_content(&segment(1), damaged);
    tend(&core);
    assert_eq!(closed(&core), []);
    assert!(!disk.names().contains(&segment(1)));
    disk.crash(Crash::PowerFailed);
    drop(core);
    let (core, opened) = open(&disk, Sync::Always).unwrap();
    assert_eq!((opened.items + opened.tombstones, opened.cuts.len()), (1, 0));
    assert_eq!(core.get(key(1).hash, &key(1).key), Ok(Some(record(clock, 200))));
}

/// The older version is on the disk, the newer one is not: nothing moves, and the power fails.
#[test]
fn what_made_garbage_is_on_the_disk_before_the_garbage_goes() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::None).unwrap();
    let clock = overwrite(&core, 1, 0, 1);
    let log = &core.files().unwrap().log;
    log.sync().unwrap();
    core.put(key(1).hash, &key(1).key, &record(clock + 1, 200)).unwrap();
    assert_eq!(log.closed_segments()[0].live.load(Ordering::Relaxed), 0);
    tend(&core);
    assert_eq!(closed(&core), []);
    disk.crash(Crash::PowerFailed);
    drop(core);
    let (core, _) = open(&disk, Sync::None).unwrap();
    assert_eq!(core.get(key(1).hash, &key(1).key), Ok(Some(record(clock + 1, 200))));
}

/// All versions in the second segment are garbage, and it is needed all the same.
#[test]
fn a_marker_outlives_its_segment_while_an_older_one_holds_a_version() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let removed = key(1);
    core.put(removed.hash, &removed.key, &record(1, 200)).unwrap();
    let mut clock = 1;
    while closed(&core).is_empty() {
        clock += 1;
        core.put(key(clock).hash, &key(clock).key, &record(clock, 200)).unwrap();
    }
    core.remove(removed.hash, &removed.key).unwrap();
    overwrite(&core, clock, clock, 2);
    let before = content(&core);
    tend(&core);
    assert_eq!(closed(&core), [1], "the second one is gone");
    assert_eq!(content(&core), before);
    core.commit().unwrap();
    disk.crash(Crash::PowerFailed);
    drop(core);
    let (core, _) = open(&disk, Sync::Always).unwrap();
    assert_eq!(content(&core), before);
    assert_eq!(core.get(removed.hash, &removed.key), Ok(None), "it did not come back");
}

/// The few records that are needed are found by the index: those between them may be anything.
#[test]
fn of_a_segment_that_is_mostly_garbage_only_what_is_needed_is_read() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    // One at the beginning, one in the middle, and the last one of those that are overwritten.
    core.put(key(2).hash, &key(2).key, &record(2, 20)).unwrap();
    let place = |number| place_of(&core, number);
    for clock in 10..17 {
        core.put(key(1).hash, &key(1).key, &record(clock, 200)).unwrap();
    }
    let garbage = place(1);
    core.put(key(3).hash, &key(3).key, &record(3, 300)).unwrap();
    let clock = overwrite(&core, 1, 20, 1);
    core.commit().unwrap();
    assert!(place(2).segment == 1 && garbage.segment == 1 && place(3).segment == 1);
    let mut damaged = disk.content(&segment(1));
    // Its length, too: no walk gets past it.
    damaged[garbage.offset as usize..][..RECORD_BYTES].fill(0xff);
    disk.set_content(&segment(1), damaged);
    tend(&core);
    assert_eq!(closed(&core), []);
    disk.crash(Crash::PowerFailed);
    drop(core);
    let (core, _) = open(&disk, Sync::Always).unwrap();
    for (number, expected) in [(1, record(clock, 200)), (2, record(2, 20)), (3, record(3, 300))] {
        assert_eq!(core.get(key(number).hash, &key(number).key), Ok(Some(expected)));
    }
}

#[test]
fn a_needed_record_that_is_damaged_keeps_its_segment() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    for number in [2, 3] {
        core.put(key(number).hash, &key(number).key, &record(number, 20)).unwrap();
    }
    overwrite(&core, 1, 20, 1);
    core.commit().unwrap();
    let mut damaged = disk.content(&segment(1));
    damaged[place_of(&core, 2).offset as usize + 5] ^= 1;
    disk.set_content(&segment(1), damaged);
    for _ in 0..3 {
        let _ = core.tend(&mut |_| true);
        core.untroubled();
        assert_eq!(closed(&core), [1]);
        assert!(disk.names().contains(&segment(1)));
    }
    assert!(core.files().unwrap().log.closed_segments()[0].damaged.load(Ordering::Relaxed));
    assert_eq!(core.usage().unreadable, 1, "it is known by its segment");
    assert!(matches!(core.get(key(2).hash, &key(2).key), Err(Fault::Damaged(_))));
    assert_eq!(core.usage().unreadable, 1, "and is the same when it was met");
    assert_eq!(core.get(key(3).hash, &key(3).key), Ok(Some(record(3, 20))));
    // A backup of it would be refused.
    let refused = core.backup(Path::new("/backup"), &[]).map_err(|error| error.to_string());
    assert!(
        refused.as_ref().is_err_and(|error| error.contains("0000000001.segment: damaged")),
        "{refused:?}"
    );
}

/// However its closing is cut short, in the end it has no more space than bytes, and all of these.
#[test]
fn a_closed_segment_gives_back_the_space_behind_its_end() {
    let filled = || {
        let disk = FaultyDisk::default();
        let (core, _) = open(&disk, Sync::Always).unwrap();
        while closed(&core).len() < 3 {
            let clock = disk.changes();
            core.put(key(clock).hash, &key(clock).key, &record(clock, 300)).unwrap();
            core.commit().unwrap();
        }
        (disk, core)
    };
    let assert_given_back = |disk: &FaultyDisk, core: &Core, context: &str| {
        for number in closed(core) {
            let bytes = disk.content(&segment(number)).len() as u64;
            assert_eq!(disk.space(&segment(number)), bytes, "segment {number}: {context}");
        }
    };
    let (disk, core) = filled();
    let reserved =
        |number: &u32| disk.space(&segment(*number)) > disk.content(&segment(*number)).len() as u64;
    assert!(closed(&core).iter().all(reserved), "there is something to give back");
    let before = disk.changes();
    tend(&core);
    assert_given_back(&disk, &core, "no crash");
    let changes = disk.changes() - before;
    for change in 1..=changes {
        for crash in [Crash::Killed, Crash::PowerFailed, Crash::PowerFailedAnyhow(change)] {
            let context = format!("change {change}, {crash:?}");
            let (disk, core) = filled();
            let model = content(&core);
            disk.plan(Plan::CrashAt(disk.changes() + change));
            assert!(core.tend(&mut |_| true).is_err(), "{context}");
            drop(core);
            disk.crash(crash);
            let (core, opened) = open(&disk, Sync::Always).unwrap();
            assert!(opened.cuts.is_empty(), "{context}");
            assert_eq!(content(&core), model, "{context}");
            tend(&core);
            assert_given_back(&disk, &core, &context);
        }
    }
}

/// A hint that is whole and wrong: the index points where the record is not. Many small records are met on a walk, few
/// large ones are looked for where the index says.
#[test]
fn a_segment_is_kept_while_the_index_points_into_it() {
    for (data_bytes, offset) in
        [200, 500].into_iter().flat_map(|bytes| [0, 19, 21, 4000, u32::MAX].map(|at| (bytes, at)))
    {
        keep_misplaced(data_bytes, offset);
    }
}

fn keep_misplaced(data_bytes: usize, offset: u32) {
    let context = format!("data of {data_bytes} bytes, offset {offset}");
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let mut clock = 0;
    while closed(&core).is_empty() {
        clock += 1;
        core.put(key(clock).hash, &key(clock).key, &record(clock, data_bytes)).unwrap();
    }
    core.close().unwrap();
    drop(core);
    disk.crash(Crash::Killed);
    let hint = Path::new(PATH).join(hint_name(1));
    let mut content = disk.content(&hint);
    content.truncate(content.len() - 4);
    // Where the first record is.
    content[24..28].copy_from_slice(&offset.to_be_bytes());
    content.extend_from_slice(&crc32fast::hash(&content).to_be_bytes());
    disk.set_content(&hint, content);
    let (core, opened) = open(&disk, Sync::Always).unwrap();
    assert_eq!(opened.hinted, 1);
    let misplaced = key(1);
    assert!(matches!(core.get(misplaced.hash, &misplaced.key), Err(Fault::Damaged(_))), "{context}");
    for number in 2..=clock {
        core.put(key(number).hash, &key(number).key, &record(number, 10)).unwrap();
    }
    for _ in 0..3 {
        let _ = core.tend(&mut |_| true);
        assert_eq!(closed(&core).first(), Some(&1), "{context}");
        assert!(disk.names().contains(&segment(1)), "{context}");
        assert!(matches!(core.get(misplaced.hash, &misplaced.key), Err(Fault::Damaged(_))), "{context}");
    }
}
