//! Compaction has the reserve: whatever goes wrong then, requests are not refused for ever.

use super::faulty::{FaultyDisk, Plan};
use super::reserve::{DISK_BYTES, attend, full};
use super::{Model, PATH, content, key, open, options, record};
use crate::disk::{Access, Disk};
use crate::engine::Core;
use crate::options::Sync;
use crate::reserve::RESERVE;
use crate::segment::segment_name;
use kumo_cluster::Fault;
use std::path::{Path, PathBuf};

fn put(core: &Core, number: u64, data_bytes: usize) -> Result<(), Fault> {
    core.put(key(number).hash, &key(number).key, &record(number, data_bytes)).and_then(|()| core.commit())
}

/// A full store that knows it, of segments that are partly garbage.
fn opened(full: &FaultyDisk) -> (FaultyDisk, Core, Model) {
    let disk = full.copy();
    disk.limit(Some(DISK_BYTES));
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let mut number = 20_000;
    while put(&core, number, 10).is_ok() {
        number += 1;
    }
    assert!(core.files().unwrap().log.is_short());
    let model = content(&core);
    (disk, core, model)
}

/// A put is taken, and nothing is lost.
fn takes_a_put(core: &Core, mut model: Model, context: &str) {
    put(core, 5, 10).unwrap_or_else(|fault| panic!("{context}: {fault}"));
    model.insert(key(5), record(5, 10));
    assert!(content(core) == model, "{context}");
}

/// What the threads do in a minute of failures. False: none.
fn attend_failing(core: &Core) -> bool {
    let mut failed = false;
    for _ in 0..10 {
        failed |= matches!(core.tend(&mut |_| true), Err(Fault::Io(_)));
        core.keep_ready();
    }
    failed
}

/// The segment that goes first.
fn victim(full: &FaultyDisk) -> PathBuf {
    let (disk, core, _) = opened(full);
    let before = disk.names();
    // Until something is removed.
    core.tend(&mut |bytes| bytes > 0).unwrap();
    let after = disk.names();
    let is_gone =
        |path: &&PathBuf| path.extension().unwrap_or_default() == "segment" && !after.contains(path);
    before.iter().find(is_gone).unwrap().clone()
}

#[test]
fn a_disk_that_fails_once_does_not_keep_a_full_store_from_recovering() {
    let (full, ..) = full();
    let mut failures = 0;
    for change in 1.. {
        let (disk, core, model) = opened(&full);
        disk.plan(Plan::FailAt(disk.changes() + change));
        let failed = attend_failing(&core);
        if disk.plan_is_due() {
            break;
        }
        let log = &core.files().unwrap().log;
        // After a sync that failed nothing is accepted before a restart.
        if log.unbroken().is_err() {
            continue;
        }
        failures += u32::from(failed);
        assert!(!log.reserve.is_given(), "change {change}");
        takes_a_put(&core, model, &format!("change {change}"));
    }
    assert!(failures > 5, "{failures} failures");
}

#[test]
fn what_a_try_to_take_it_back_left_is_for_compaction() {
    let (disk, core, _, _) = full();
    let log = &core.files().unwrap().log;
    let path = Path::new(PATH).join(RESERVE);
    assert!(log.reserve.give().unwrap());
    // It could have a part of it, and could not give that back.
    disk.open(&path, Access::Write).unwrap().allocate(log.reserve.bytes() / 2).unwrap();
    disk.limit(Some(disk.used() + 100));
    log.reserve.take_back(&disk).unwrap();
    assert_eq!((log.reserve.is_given(), disk.space(&path)), (true, 0));
    // All of it: compaction got nothing.
    disk.limit(None);
    disk.open(&path, Access::Write).unwrap().allocate(log.reserve.bytes()).unwrap();
    disk.limit(Some(disk.used()));
    log.reserve.take_back(&disk).unwrap();
    assert_eq!((log.reserve.is_given(), disk.space(&path)), (false, log.reserve.bytes()));
}

#[test]
fn a_segment_that_cannot_be_removed_does_not_keep_the_reserve_from_requests() {
    let (full, ..) = full();
    let victim = victim(&full);
    let (disk, core, model) = opened(&full);
    let reserve = &core.files().unwrap().log.reserve;
    disk.make_stubborn(Some(&victim));
    assert!(matches!(core.tend(&mut |_| true), Err(Fault::Io(_))));
    assert!(reserve.is_given());
    disk.limit(Some(disk.used() + reserve.bytes()));
    assert!(attend_failing(&core));
    assert!(disk.names().contains(&victim));
    assert!(!reserve.is_given() && !reserve.is_made());
    takes_a_put(&core, model, "when it is given up");
    // When it is over, it goes as others do.
    disk.make_stubborn(None);
    attend(&core);
    assert!(!disk.names().contains(&victim));
}

#[test]
fn a_reserve_that_cannot_be_given_is_given_up() {
    let (full, ..) = full();
    let (disk, core, model) = opened(&full);
    let path = Path::new(PATH).join(RESERVE);
    disk.make_stubborn(Some(&path));
    assert!(attend_failing(&core));
    let log = &core.files().unwrap().log;
    assert!(!log.reserve.is_given() && disk.names().contains(&path));
    // Somebody makes room on this disk.
    disk.limit(Some(DISK_BYTES + 6000));
    takes_a_put(&core, model, "when it is given up");
    // Another one takes its place.
    disk.make_stubborn(None);
    disk.limit(None);
    let mut number = 5000;
    while !log.reserve.is_made() {
        number += 1;
        put(&core, number, 150).unwrap();
        core.keep_ready();
    }
    assert_eq!(disk.space(&path), log.reserve.bytes());
}

#[test]
fn a_reserve_that_cannot_be_taken_back_for_a_fault_is_given_up() {
    let (full, ..) = full();
    let (disk, core, model) = opened(&full);
    let log = &core.files().unwrap().log;
    assert!(log.reserve.give().unwrap());
    disk.make_stubborn(Some(&Path::new(PATH).join(RESERVE)));
    disk.limit(None);
    let garbage = || log.closed_segments().iter().map(|segment| segment.garbage()).sum::<u64>();
    let before = garbage();
    assert!(attend_failing(&core));
    assert!(garbage() * 2 < before, "nor does it keep compaction from its work");
    assert!(!log.reserve.is_given());
    takes_a_put(&core, model, "when it is given up");
}

/// A full store with so many segments of what is current, and behind them nothing but markers.
fn marked(live_segments: usize) -> (FaultyDisk, Core) {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let log = &core.files().unwrap().log;
    // Not synced each, for then there would be marks between them.
    let put = |number, data_bytes| {
        core.put(key(number).hash, &key(number).key, &record(number, data_bytes)).unwrap()
    };
    let mut number = 0;
    while log.closed_segments().len() < live_segments {
        number += 1;
        put(number, 150);
    }
    let removed = 10_000..10_000 + 90 * live_segments.max(20) as u64;
    removed.clone().for_each(|number| put(number, 0));
    removed.for_each(|number| core.remove(key(number).hash, &key(number).key).unwrap());
    core.commit().unwrap();
    core.keep_ready();
    assert!(log.reserve.is_made());
    log.trim().unwrap();
    (disk, core)
}

/// The way there would be long, and puts are refused on it.
#[test]
fn a_store_is_not_rewritten_for_its_markers_while_requests_wait_for_the_reserve() {
    let first = Path::new(PATH).join(segment_name(1));
    // So much of the reserve others take: a segment of what is current still fits, or it does not.
    for (taken, fits) in [(1, true), (600, false)] {
        let (disk, core) = marked(40);
        let log = &core.files().unwrap().log;
        let before = content(&core);
        let left = log.reserve.bytes() - taken;
        assert!(log.reserve.give().unwrap());
        disk.limit(Some(disk.used() + left));
        let mut removed = 0;
        for _ in 0..5 {
            let mut others = |_| {
                if log.reserve.is_given() {
                    removed += 1;
                    assert!(disk.names().contains(&first), "rewritten while puts are refused");
                    disk.limit(Some(disk.used() + left));
                }
                true
            };
            let tended = core.tend(&mut others);
            assert!(matches!(tended, Ok(()) | Err(Fault::Full)), "{tended:?}");
        }
        assert!(removed > 5, "{removed} segments of garbage");
        assert!(!log.reserve.is_given() && !log.is_full());
        if !fits {
            assert!(disk.names().contains(&first), "nothing is moved for nothing");
            put(&core, 1, 150).unwrap();
        }
        assert_eq!(content(&core), before);
        // With room for what is moved, they go.
        disk.limit(None);
        attend(&core);
        assert!(!disk.names().contains(&first));
        assert_eq!(content(&core), before);
    }
}

/// It is what can go of this store.
#[test]
fn a_full_disk_is_not_kept_full_by_markers_that_are_among_its_oldest_segments() {
    let (disk, core) = marked(3);
    let log = &core.files().unwrap().log;
    let before = content(&core);
    let usual = u64::from(options(Sync::Always).garbage_percent);
    let is_garbage = || log.closed_segments().iter().any(|segment| segment.garbage_percent() >= usual);
    core.tend(&mut |_| is_garbage()).unwrap();
    assert!(!is_garbage() && log.closed_segments()[0].number == 1);
    disk.limit(Some(disk.used()));
    while put(&core, 1, 150).is_ok() {}
    assert!(log.is_short());
    attend(&core);
    assert!(!log.is_full() && !log.reserve.is_given());
    let first = log.closed_segments().first().map(|segment| segment.number);
    assert!(first > Some(3), "{first:?}");
    assert_eq!(content(&core), before);
}
