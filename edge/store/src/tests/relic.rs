//! A damaged segment goes as soon as nobody needs it, and holds up nothing but what cannot be read.

use super::compaction::place_of;
use super::faulty::{Crash, FaultyDisk, Plan};
use super::{PATH, content, key, open, record, tend};
use crate::engine::Core;
use crate::layout::RECORD_BYTES;
use crate::options::Sync;
use crate::segment::segment_name;
use kumo_cluster::Fault;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

const UNREADABLE: u64 = 3;

/// Keys that nobody changes.
const STAYING: u64 = 60;

fn first() -> PathBuf {
    Path::new(PATH).join(segment_name(1))
}

fn markers(core: &Core) -> u64 {
    let closed = core.files().unwrap().log.closed_segments();
    closed.iter().map(|segment| segment.markers.load(Ordering::Relaxed)).sum()
}

/// Puts and removes as many keys, none of them twice.
fn remove_many(core: &Core, keys: std::ops::Range<u64>) {
    for number in keys {
        let key = key(1000 + number);
        core.put(key.hash, &key.key, &record(8, 10)).unwrap();
        core.remove(key.hash, &key.key).unwrap();
    }
    core.commit().unwrap();
}

/// Until nothing is to be done, told of damage or not.
fn tend_all(core: &Core) {
    for _ in 0..20 {
        let _ = core.tend(&mut |_| true);
    }
}

/// A store with hints, in whose first segment one of many records cannot be read, which compaction has met.
fn damaged() -> (FaultyDisk, Core) {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    for number in 1..=STAYING {
        core.put(key(number).hash, &key(number).key, &record(8, 200)).unwrap();
    }
    core.commit().unwrap();
    tend(&core);
    let place = place_of(&core, UNREADABLE);
    assert_eq!(place.segment, 1);
    disk.make_unreadable(&first(), u64::from(place.offset) + RECORD_BYTES as u64 + 20);
    remove_many(&core, 0..500);
    tend_all(&core);
    assert!(disk.names().contains(&first()), "one record of it is needed");
    assert!(matches!(core.get(key(UNREADABLE).hash, &key(UNREADABLE).key), Err(Fault::Damaged(_))));
    (disk, core)
}

fn write_over(core: &Core) {
    core.put(key(UNREADABLE).hash, &key(UNREADABLE).key, &record(9, 200)).unwrap();
    core.commit().unwrap();
}

#[test]
fn a_damaged_segment_goes_with_the_last_record_that_is_needed_and_the_markers_behind_it_too() {
    let (disk, core) = damaged();
    remove_many(&core, 500..1000);
    tend_all(&core);
    let kept = markers(&core);
    write_over(&core);
    remove_many(&core, 1000..1500);
    let before = content(&core);
    tend_all(&core);
    assert!(!disk.names().contains(&first()));
    assert!(markers(&core) < kept / 4, "{} bytes of {kept} are left", markers(&core));
    assert!(core.tend(&mut |_| true).is_ok());
    core.untroubled();
    assert_eq!((core.usage().unreadable, core.trouble()), (0, None));
    assert_eq!(content(&core).len() as u64, STAYING);
    assert!(content(&core) == before);
    core.backup(Path::new("/backup"), &[]).unwrap();
    drop(core);
    disk.crash(Crash::PowerFailed);
    let (core, opened) = open(&disk, Sync::Always).unwrap();
    assert!(content(&core) == before && opened.cuts.is_empty(), "nothing came back");
}

/// What can be read of it is somewhere else by then: it does not wait for all of its keys to be written over.
#[test]
fn of_a_damaged_segment_what_can_be_read_is_moved() {
    let (_disk, core) = damaged();
    let oldest = core.files().unwrap().log.closed_segments()[0].clone();
    let left = oldest.live.load(Ordering::Relaxed);
    assert!(oldest.number == 1 && left > 0 && left < 2 * 250, "{left} bytes of segment {}", oldest.number);
    for number in (1..=STAYING).filter(|number| *number != UNREADABLE) {
        assert_eq!(core.get(key(number).hash, &key(number).key), Ok(Some(record(8, 200))));
    }
    // It is not gone through again and again.
    let written = core.files().unwrap().log.file_bytes();
    tend_all(&core);
    assert_eq!(core.files().unwrap().log.file_bytes(), written);
}

/// A start that found it without its hint could not read it, and would refuse the whole store.
#[test]
fn a_store_opens_wherever_the_removal_of_a_damaged_segment_ends() {
    let mut ended = 0;
    for change in 1.. {
        let anyhow = [change, change + 1000, change + 2000].map(Crash::PowerFailedAnyhow);
        for crash in anyhow.into_iter().chain([Crash::Killed, Crash::PowerFailed]) {
            let (disk, core) = damaged();
            write_over(&core);
            let before = content(&core);
            disk.plan(Plan::CrashAt(disk.changes() + change));
            let _ = core.tend(&mut |_| true);
            let _ = core.tend(&mut |_| true);
            ended += u32::from(!disk.plan_is_due());
            drop(core);
            disk.crash(crash);
            let context = format!("change {change}, {crash:?}");
            let (core, _) = open(&disk, Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(content(&core) == before, "{context}");
        }
        if ended < 5 * change as u32 {
            break;
        }
    }
    assert!(ended > 20, "{ended}");
}

/// Few keys of large values, all of them written over: nobody reads the first segment, nor knows of its damage.
fn garbage() -> (FaultyDisk, Core) {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let put = |number: u64, clock: u64| {
        core.put(key(number).hash, &key(number).key, &record(clock, 900)).unwrap();
    };
    (1..=6).for_each(|number| put(number, 8));
    core.commit().unwrap();
    let place = place_of(&core, UNREADABLE);
    assert_eq!(place.segment, 1);
    tend(&core);
    disk.make_unreadable(&first(), u64::from(place.offset) + RECORD_BYTES as u64 + 20);
    (1..=6).for_each(|number| put(number, 9));
    core.commit().unwrap();
    assert!(disk.names().contains(&first()));
    (disk, core)
}

/// The damage is nobody's matter, as long as the segment has its hint or is gone.
#[test]
fn a_store_opens_wherever_the_removal_of_damaged_garbage_ends() {
    let mut ended = 0;
    for change in 1.. {
        let mut due = false;
        for crash in [Crash::Killed, Crash::PowerFailed] {
            let (disk, core) = garbage();
            let before = content(&core);
            disk.plan(Plan::CrashAt(disk.changes() + change));
            tend_all(&core);
            due |= !disk.plan_is_due();
            drop(core);
            disk.crash(crash);
            let context = format!("change {change}, {crash:?}");
            let (core, _) = open(&disk, Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(content(&core) == before, "{context}");
        }
        if !due {
            break;
        }
        ended += 1;
    }
    assert!(ended > 5, "{ended}");
}

/// Who is to end must not wait for a backup of a large store.
#[test]
fn a_stop_does_not_wait_for_a_backup() {
    let (disk, core) = garbage();
    let turn = core.files().unwrap().removing.lock().unwrap();
    let mut looks = 0;
    let stopped = core.tend(&mut |_| {
        looks += 1;
        looks < 20
    });
    assert!(stopped.is_ok() && disk.names().contains(&first()), "the backup may need it");
    drop(turn);
    tend_all(&core);
    assert!(!disk.names().contains(&first()));
}

/// Its markers hide what an older one holds.
#[test]
fn a_damaged_segment_of_markers_stays_as_long_as_there_is_an_older_one() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let closed = || core.files().unwrap().log.closed_segments();
    let put =
        |number: u64, clock: u64| core.put(key(number).hash, &key(number).key, &record(clock, 200)).unwrap();
    let removed = 1;
    for number in 1.. {
        put(number, 8);
        if closed().len() == 1 {
            break;
        }
    }
    core.remove(key(removed).hash, &key(removed).key).unwrap();
    put(101, 8);
    let offset = place_of(&core, 101).offset;
    for number in 102.. {
        put(number, 8);
        if closed().len() == 2 {
            break;
        }
    }
    core.commit().unwrap();
    tend(&core);
    let second = Path::new(PATH).join(segment_name(2));
    disk.make_unreadable(&second, u64::from(offset) + 50);
    (101..150).for_each(|number| put(number, 9));
    tend_all(&core);
    let [_, damaged] = &closed()[..2] else { panic!() };
    assert!(damaged.damaged.load(Ordering::Relaxed) && damaged.live.load(Ordering::Relaxed) == 0);
    assert!(disk.names().contains(&second));
    let before = content(&core);
    core.commit().unwrap();
    drop(core);
    disk.crash(Crash::PowerFailed);
    let (core, _) = open(&disk, Sync::Always).unwrap();
    assert_eq!(core.get(key(removed).hash, &key(removed).key), Ok(None), "it did not come back");
    assert!(content(&core) == before);
}
