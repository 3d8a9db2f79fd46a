//! A full disk whose segments are all partly garbage recovers by itself: there is a reserve for what compaction moves.

use super::faulty::{Crash, FaultyDisk, Plan};
use super::{Model, PATH, content, key, open, open_at, options, record, tend};
use crate::compaction::SHORT_PERCENT;
use crate::disk::{Access, Disk};
use crate::engine::Core;
use crate::merge::merge_on;
use crate::notes::ROOM_BYTES;
use crate::options::{Options, Sync};
use crate::reserve::RESERVE;
use kumo_cluster::Fault;
use std::path::Path;
use std::sync::Arc;

/// Fits many segments of these tests.
pub const DISK_BYTES: u64 = 3 * ROOM_BYTES + 100_000;

/// Puts until the disk is full. Of five records two are written over soon: each segment has some of that, less than
/// what makes it worth rewriting on a disk that is not full.
fn fill(core: &Core, model: &mut Model, clock: &mut u64) {
    loop {
        *clock += 1;
        let key = if *clock % 5 < 2 { key(*clock % 5) } else { key(1000 + *clock) };
        let record = record(*clock, 150);
        match core.put(key.hash, &key.key, &record) {
            Ok(()) => model.insert(key, record),
            Err(fault) => {
                assert_eq!(fault, Fault::Full);
                return;
            }
        };
        core.flush().unwrap();
        core.keep_ready();
    }
}

/// A full store, as it is on the disk.
pub fn full() -> (FaultyDisk, Core, Model, u64) {
    let disk = FaultyDisk::default();
    disk.limit(Some(DISK_BYTES));
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let (mut model, mut clock) = (Model::new(), 0);
    fill(&core, &mut model, &mut clock);
    core.commit().unwrap();
    let closed = core.files().unwrap().log.closed_segments();
    assert!(closed.len() > 10);
    let usual = u64::from(options(Sync::Always).garbage_percent);
    for segment in closed {
        assert!((20..usual).contains(&segment.garbage_percent()), "{} %", segment.garbage_percent());
    }
    (disk, core, model, clock)
}

/// What the threads would do meanwhile.
pub fn attend(core: &Core) {
    for _ in 0..3 {
        match core.tend(&mut |_| true) {
            Ok(()) | Err(Fault::Full) => {}
            Err(fault) => panic!("{fault}"),
        }
        core.keep_ready();
    }
}

#[test]
fn a_full_disk_of_segments_that_are_partly_garbage_recovers() {
    let (disk, core, mut model, mut clock) = full();
    let log = &core.files().unwrap().log;
    let mut rounds = 0;
    let before = model.len();
    while log.is_full() {
        attend(&core);
        assert_eq!(content(&core), model, "served throughout");
        if log.is_full() {
            break;
        }
        rounds += 1;
        fill(&core, &mut model, &mut clock);
        core.commit().unwrap();
    }
    assert!(rounds > 0, "it took nothing any more");
    // In the end it is full of what is current.
    assert!(model.len() > before * 5 / 4, "{before} keys, then {}", model.len());
    let live = core.usage().live_bytes;
    assert!(live > 70_000, "{live} bytes");
    drop(core);
    disk.crash(Crash::PowerFailed);
    let (core, _) = open(&disk, Sync::Always).unwrap();
    assert_eq!(content(&core), model);
}

/// Crashes at every change of the disk that `work` makes of a copy of `base`; it adds to the model what was committed.
fn crash_everywhere(base: &FaultyDisk, model: &Model, work: impl Fn(&Core, &mut Model) -> Result<(), Fault>) {
    let kinds: [fn(u64) -> Crash; 3] = [|_| Crash::Killed, |_| Crash::PowerFailed, Crash::PowerFailedAnyhow];
    for kind in kinds {
        let mut crashes = 0;
        for change in 1.. {
            let context = format!("change {change}, {:?}", kind(change));
            let disk = base.copy();
            disk.limit(Some(DISK_BYTES));
            let mut committed = model.clone();
            disk.plan(Plan::CrashAt(change));
            if let Ok((core, _)) = open(&disk, Sync::Always) {
                let worked = work(&core, &mut committed);
                if !disk.is_down() {
                    worked.expect(&context);
                    break;
                }
            }
            crashes += 1;
            disk.crash(kind(change));
            // The way back up is cut short too, anywhere.
            disk.plan(Plan::CrashAt(disk.changes() + 1 + change % 9));
            drop(open(&disk, Sync::Always));
            disk.crash(kind(change));
            let (core, _) = open(&disk, Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
            let mut found = content(&core);
            let last = found.keys().find(|key| !committed.contains_key(*key)).cloned();
            // What was under way.
            last.map(|key| found.remove(&key));
            assert!(found == committed, "{context}");
            let served = content(&core);
            attend(&core);
            assert!(content(&core) == served, "{context}");
            let new = key(7);
            let put = || core.put(new.hash, &new.key, &record(1, 100));
            // Who starts knows that the disk is full when something is refused.
            if put() == Err(Fault::Full) {
                attend(&core);
                put().expect(&context);
            }
            core.commit().expect(&context);
        }
        assert!(crashes > 30, "{crashes} crashes");
    }
}

#[test]
fn a_crash_while_a_full_disk_recovers_loses_nothing_and_it_still_recovers() {
    let (disk, core, model, _) = full();
    disk.crash(Crash::Killed);
    drop(core);
    crash_everywhere(&disk, &model, |core, committed| {
        for number in 0..30 {
            match core.tend(&mut |_| true) {
                Ok(()) | Err(Fault::Full) => {}
                Err(fault) => return Err(fault),
            }
            core.keep_ready();
            let (key, record) = (key(5000 + number), record(9000 + number, 300));
            match core.put(key.hash, &key.key, &record) {
                Ok(()) => {}
                Err(Fault::Full) => continue,
                Err(fault) => return Err(fault),
            }
            core.commit()?;
            committed.insert(key, record);
        }
        Ok(())
    });
}

#[test]
fn a_crash_while_the_reserve_is_made_is_nothing_to_a_start() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let mut model = Model::new();
    let reserve = Path::new(PATH).join(RESERVE);
    let put = |core: &Core, number: u64, model: &mut Model| {
        let (key, record) = (key(number), record(number, 250));
        core.put(key.hash, &key.key, &record)?;
        core.commit()?;
        model.insert(key, record);
        Ok(())
    };
    let mut number = 0;
    while core.usage().file_bytes < 4 * core.files().unwrap().log.reserve.bytes() - 500 {
        number += 1;
        put(&core, number, &mut model).unwrap();
        core.keep_ready();
    }
    assert!(!disk.names().contains(&reserve), "a small store has none");
    disk.crash(Crash::Killed);
    drop(core);
    crash_everywhere(&disk, &model, |core, committed| {
        for number in number + 1..number + 6 {
            put(core, number, committed)?;
            core.keep_ready();
        }
        assert!(disk.is_down() || core.files().unwrap().log.reserve.is_made());
        Ok(())
    });
}

/// Segments so large that requests come in the middle of a rewrite.
#[test]
fn puts_do_not_take_the_room_that_compaction_needs() {
    let disk = FaultyDisk::default();
    disk.limit(Some(40 << 20));
    let options = Options { segment_bytes: 4 << 20, ..options(Sync::None) };
    let (core, _) = Core::open(Arc::new(disk.clone()), Path::new(PATH), Access::Write, options).unwrap();
    let log = &core.files().unwrap().log;
    let mut model = Model::new();
    let put = |clock: u64, data_bytes| {
        let key = if clock.is_multiple_of(3) { key(3) } else { key(clock) };
        let record = record(clock, data_bytes);
        core.put(key.hash, &key.key, &record).map(|()| (key, record))
    };
    let mut clock = 0;
    loop {
        clock += 1;
        match put(clock, 50_000) {
            Ok((key, record)) => model.insert(key, record),
            Err(fault) => {
                assert_eq!(fault, Fault::Full);
                break;
            }
        };
        core.flush().unwrap();
        core.keep_ready();
    }
    assert!(log.reserve.is_made());
    let mut refused = 0;
    let mut meanwhile = |_| {
        clock += 1;
        if log.reserve.is_given() {
            assert_eq!(put(clock, 10).unwrap_err(), Fault::Full);
            refused += 1;
        }
        assert_eq!(core.get(key(1).hash, &key(1).key).unwrap().as_ref(), model.get(&key(1)));
        // Nor does what looks for room in the background.
        core.keep_ready();
        true
    };
    let tended = core.tend(&mut meanwhile);
    assert!(matches!(tended, Ok(()) | Err(Fault::Full)), "{tended:?}");
    assert!(refused > 2, "{refused} puts in the middle");
    assert!(!log.reserve.is_given() && !log.is_full());
    assert_eq!(content(&core), model);
    put(clock + 3, 50_000).unwrap();
}

/// Neither what compaction can do for itself nor what nobody has room for.
#[test]
fn a_disk_without_room_for_a_reserve_works_as_before() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let log = &core.files().unwrap().log;
    let mut clock = 0;
    let mut put = || {
        clock += 1;
        let (key, record) = (key(1000 + clock), record(clock, 150));
        core.put(key.hash, &key.key, &record).and_then(|()| core.commit())
    };
    while core.usage().file_bytes < 4 * log.reserve.bytes() {
        put().unwrap();
    }
    let used: u64 = disk.names().iter().map(|path| disk.space(path)).sum();
    disk.limit(Some(used + log.reserve.bytes() - 1));
    core.keep_ready();
    assert!(!log.reserve.is_made());
    assert!(
        !disk.names().iter().any(|path| path.to_string_lossy().contains(RESERVE)),
        "nothing is left of it"
    );
    assert_eq!(core.trouble(), None);
    put().unwrap();
    // What is there to be moved is not tried to be moved without one.
    while put().is_ok() {}
    assert!(log.is_full() && !log.is_short());
    // With the next segment it is tried again.
    disk.limit(None);
    while !log.reserve.is_made() {
        put().unwrap();
        core.keep_ready();
    }
}

/// A process before this one has died while compaction had it, and others on this disk go on.
#[test]
fn a_start_takes_no_room_for_a_reserve_for_which_there_is_none() {
    let (full, core, model, _) = full();
    let bytes = core.files().unwrap().log.reserve.bytes();
    let reserve = Path::new(PATH).join(RESERVE);
    let half = bytes / 2;
    for (has, left) in [(0, 0), (0, 100), (0, bytes - 1), (0, bytes), (half, 0), (half, half), (bytes, 0)] {
        let disk = full.copy();
        // What is reserved behind the end of the log is given back first.
        drop(open(&disk, Sync::Always).unwrap());
        let file = disk.open(&reserve, Access::Write).unwrap();
        file.truncate(0).and_then(|()| file.allocate(has)).unwrap();
        disk.allocate_in_part();
        disk.limit(Some(disk.used() + left));
        let (core, _) = open(&disk, Sync::Always).unwrap();
        assert!(!disk.was_full(), "it has {has} bytes, {left} are left");
        let given = core.files().unwrap().log.reserve.is_given();
        assert_eq!((given, disk.space(&reserve)), (has < bytes, if has < bytes { 0 } else { bytes }));
        assert_eq!(core.trouble(), None);
        assert_eq!(content(&core), model);
    }
}

/// As on a disk that never had room for one: the file came with the store from another disk.
#[test]
fn a_start_does_not_wait_for_the_room_of_a_reserve_that_nothing_needs() {
    for garbage in [false, true] {
        let disk = FaultyDisk::default();
        let (core, _) = open(&disk, Sync::Always).unwrap();
        let log = &core.files().unwrap().log;
        let mut clock = 0;
        while !log.reserve.is_made() || log.closed_segments().len() < 10 {
            clock += 1;
            let key = if garbage && clock % 5 < 2 { key(1) } else { key(1000 + clock) };
            core.put(key.hash, &key.key, &record(clock, 150)).unwrap();
            core.flush().unwrap();
            core.keep_ready();
        }
        core.commit().unwrap();
        core.files().unwrap().list().unwrap();
        let served = content(&core);
        let reserve_bytes = log.reserve.bytes();
        disk.crash(Crash::PowerFailed);
        drop(core);
        let used: u64 = disk.names().iter().map(|path| disk.space(path)).sum();
        // Enough for the room of a note, and not quite for the reserve.
        disk.limit(Some(used + ROOM_BYTES + reserve_bytes - 500));
        let (core, _) = open(&disk, Sync::Always).unwrap();
        assert_eq!(content(&core), served);
        let log = &core.files().unwrap().log;
        let put = || core.put(key(7).hash, &key(7).key, &record(1, 10));
        // What could go may need what is left.
        assert_eq!((log.reserve.is_given(), put().is_ok()), (garbage, !garbage));
        attend(&core);
        put().unwrap();
    }
}

#[test]
fn a_reserve_is_no_data_and_in_no_copy() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let log = &core.files().unwrap().log;
    let mut clock = 0;
    while !log.reserve.is_made() {
        clock += 1;
        let before = core.usage().file_bytes;
        core.put(key(clock).hash, &key(clock).key, &record(clock, 150)).unwrap();
        core.commit().unwrap();
        core.keep_ready();
        assert!(core.usage().file_bytes < before + 1000);
    }
    let reserve = Path::new(PATH).join(RESERVE);
    assert_eq!(disk.space(&reserve), log.reserve.bytes());
    assert!(disk.content(&reserve).is_empty());
    let served = content(&core);
    core.backup(Path::new("/copy"), &[]).unwrap();
    // What a crash left of its making, and of another one.
    disk.set_content(&Path::new(PATH).join(format!("{RESERVE}.unfinished")), vec![1; 100]);
    disk.set_content(&reserve, vec![2; 5000]);
    drop(core);
    merge_on(&(Arc::new(disk.clone()) as _), Path::new("/merged"), &[Path::new(PATH)]).unwrap();
    for copy in ["/copy", "/merged"] {
        let inside = disk.names().into_iter().filter(|path| path.starts_with(copy));
        assert_eq!(inside.filter(|path| path.to_string_lossy().contains(RESERVE)).count(), 0, "{copy}");
        let (core, _) = open_at(&disk, copy, Sync::Always).unwrap();
        assert_eq!(content(&core), served);
    }
    let (core, opened) = open(&disk, Sync::Always).unwrap();
    assert!(opened.cuts.is_empty());
    assert_eq!(content(&core), served);
    tend(&core);
    assert!(!disk.names().iter().any(|path| path.to_string_lossy().ends_with("RESERVE.unfinished")));
}

/// As if others on this disk took what is freed, so that the reserve does not get its space again.
fn tend_beside_others(disk: &FaultyDisk, core: &Core) {
    let log = &core.files().unwrap().log;
    let left = log.reserve.bytes() - 300;
    let mut given = 0;
    for _ in 0..5 {
        let mut others = |_| {
            if log.reserve.is_given() {
                given += 1;
                disk.limit(Some(disk.used() + left));
            }
            true
        };
        let tended = core.tend(&mut others);
        // In the end there are hints to be written again, for which there may be no room.
        assert!(matches!(tended, Ok(()) | Err(Fault::Full)), "{tended:?}");
    }
    assert!(given > 2, "{given} segments");
}

/// What compaction has no use for any more is not kept from requests until a restart.
#[test]
fn a_reserve_that_cannot_be_taken_back_is_given_up_when_compaction_is_done() {
    let (disk, core, mut model, mut clock) = full();
    let log = &core.files().unwrap().log;
    tend_beside_others(&disk, &core);
    assert!(!log.is_full() && !log.reserve.is_given() && !log.reserve.is_made());
    assert!(!disk.names().contains(&Path::new(PATH).join(RESERVE)));
    let before = model.len();
    fill(&core, &mut model, &mut clock);
    core.commit().unwrap();
    assert!(model.len() > before + 5, "{before} keys, then {}", model.len());
    assert_eq!(content(&core), model);
    // As on a disk that never had room for one, it is made when there is some.
    disk.limit(None);
    while !log.reserve.is_made() {
        clock += 1;
        let (key, record) = (key(1000 + clock), record(clock, 150));
        core.put(key.hash, &key.key, &record).unwrap();
        model.insert(key, record);
        core.commit().unwrap();
        core.keep_ready();
    }
    assert_eq!(disk.space(&Path::new(PATH).join(RESERVE)), log.reserve.bytes());
    disk.crash(Crash::PowerFailed);
    drop(core);
    let (core, _) = open(&disk, Sync::Always).unwrap();
    assert_eq!(content(&core), model);
    assert!(core.files().unwrap().log.reserve.is_made());
}

/// The space that is taken ahead for what is moved would be more than what its removal frees.
#[test]
fn the_reserve_is_not_given_for_less_than_it_takes() {
    let disk = FaultyDisk::default();
    let shared: Arc<dyn crate::disk::Disk> = Arc::new(disk.clone());
    let options = Options { segment_bytes: 64 << 10, ..options(Sync::None) };
    let open = |path| Core::open(shared.clone(), Path::new(path), Access::Write, options.clone()).unwrap().0;
    let put = |core: &Core, number, clock, data_bytes| {
        core.put(key(number).hash, &key(number).key, &record(clock, data_bytes)).and_then(|()| core.flush())
    };
    let core = open(PATH);
    (1..4).for_each(|number| put(&core, number, number, 200).unwrap());
    // The store that is made of it begins with a small segment.
    core.backup(Path::new("/copy"), &[]).unwrap();
    drop(core);
    let core = open("/copy");
    let log = &core.files().unwrap().log;
    put(&core, 1, 8, 200).unwrap();
    let small = log.closed_segments().remove(0);
    assert!((SHORT_PERCENT..50).contains(&small.garbage_percent()), "{} %", small.garbage_percent());
    let mut clock = 7000;
    disk.limit(Some(disk.used() + 600_000));
    for data_bytes in [600, 0] {
        while put(&core, clock, 7 * clock + 1, data_bytes).is_ok() {
            clock += 1;
            core.keep_ready();
            // Nothing is reserved any more behind the ends of closed segments.
            log.trim().unwrap();
        }
    }
    assert!(log.reserve.is_made() && log.is_full());
    // What is left is too little for a segment.
    disk.limit(Some(disk.used()));
    for _ in 0..5 {
        let tended = core.tend(&mut |_| true);
        // A hint finds no room.
        assert!(matches!(tended, Ok(()) | Err(Fault::Full)), "{tended:?}");
    }
    assert!(log.reserve.is_made() && !log.reserve.is_given());
    assert!(disk.names().contains(&small.path));
}

/// File systems take what there is for what they cannot do, and others on the disk find it full meanwhile.
#[test]
fn a_reserve_for_which_there_is_no_room_takes_none_for_a_moment() {
    let (disk, core, _, _) = full();
    let log = &core.files().unwrap().log;
    disk.allocate_in_part();
    for reserve_bytes_left in [0, 100, log.reserve.bytes() - 1, log.reserve.bytes()] {
        assert!(log.reserve.give().unwrap());
        disk.limit(Some(disk.used() + reserve_bytes_left));
        log.reserve.take_back(&disk).unwrap();
        assert!(log.reserve.is_given());
        assert!(!disk.was_full(), "{reserve_bytes_left} bytes were left");
        disk.limit(None);
        log.reserve.take_back(&disk).unwrap();
        assert!(!log.reserve.is_given());
    }
    // Nor is it in the making.
    while log.reserve.is_made() {
        log.reserve.give().unwrap();
        log.reserve.give_up(&disk, 0).unwrap();
    }
    disk.limit(Some(disk.used() + log.reserve.bytes() - 1));
    assert_eq!(log.keep_reserve(), Err(Fault::Full));
    assert!(!disk.was_full() && !log.reserve.is_made());
}
