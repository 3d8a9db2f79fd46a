//! A segment's file that is gone is noticed, and one that compaction removed is not missed.

use super::faulty::{Crash, FaultyDisk, Plan};
use super::{Model, PATH, content, key, open, open_at, record, tend};
use crate::disk::Disk;
use crate::engine::Core;
use crate::error::OpenError;
use crate::notes::ROOM_BYTES;
use crate::options::Sync;
use crate::segment::HEADER_BYTES;
use kumo_cluster::Fault;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn file(name: &str) -> PathBuf {
    Path::new(PATH).join(name)
}

fn segments(disk: &FaultyDisk) -> Vec<PathBuf> {
    let names = disk.names().into_iter();
    names.filter(|path| path.starts_with(PATH) && path.extension().unwrap_or_default() == "segment").collect()
}

/// All that is there, but for the lock.
fn files(disk: &FaultyDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let names = disk.names().into_iter().filter(|path| !path.ends_with("LOCK"));
    names.map(|path| (path.clone(), disk.content(&path))).collect()
}

/// A store that was closed, with several segments of which some are removed already.
fn sample() -> (FaultyDisk, Model) {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let mut clock = 0;
    while core.files().unwrap().log.closed_segments().len() < 5
        || segments(&disk)[0] == file("0000000001.segment")
    {
        clock += 1;
        let key = if clock < 20 { key(1) } else { key(clock) };
        core.put(key.hash, &key.key, &record(clock, 200)).unwrap();
        core.commit().unwrap();
        tend(&core);
    }
    let model = content(&core);
    core.close().unwrap();
    drop(core);
    (disk, model)
}

fn refusal(disk: &FaultyDisk) -> Option<String> {
    open(disk, Sync::Always).err().map(|error| error.to_string())
}

#[test]
fn a_segment_that_vanished_is_noticed() {
    let (disk, model) = sample();
    let all = segments(&disk);
    // The first, one in the middle, the newest closed one, and the one that is written to.
    for path in [&all[0], &all[2], &all[all.len() - 2], &all[all.len() - 1]] {
        for hinted in [true, false] {
            let copy = disk.copy();
            copy.remove(path).unwrap();
            let hint = path.with_extension("hint");
            if !hinted && copy.names().contains(&hint) {
                copy.remove(&hint).unwrap();
            }
            let before = files(&copy);
            let name = path.file_name().unwrap().to_str().unwrap();
            let text = format!("/store: the store is not complete: {name} is missing");
            assert_eq!(refusal(&copy), Some(text));
            assert!(files(&copy) == before, "nothing was changed");
            // It was found again.
            copy.set_content(path, disk.content(path));
            let (core, _) = open(&copy, Sync::Always).unwrap();
            assert_eq!(content(&core), model);
        }
    }
}

#[test]
fn a_segment_of_another_store_is_noticed() {
    let ((disk, _), (other, _)) = (sample(), sample());
    for path in segments(&disk) {
        let copy = disk.copy();
        copy.set_content(&path, other.content(&path));
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = format!("/store: the store is not complete: {name} does not belong to it");
        assert_eq!(refusal(&copy), Some(text));
    }
    // The last one could be taken for one that was never begun.
    let last = segments(&disk).pop().unwrap();
    for content in [vec![], vec![0; 20]] {
        disk.set_content(&last, content);
        assert_eq!(refusal(&disk), Some(format!("{}: damaged at offset 0: no header", last.display())));
    }
}

#[test]
fn a_roster_that_vanished_or_is_damaged_is_noticed() {
    let (disk, _) = sample();
    let copy = disk.copy();
    copy.remove(&file("SEGMENTS")).unwrap();
    let before = files(&copy);
    assert_eq!(refusal(&copy).unwrap(), "/store: the store is not complete: SEGMENTS is missing");
    assert!(files(&copy) == before, "nothing was changed");
    let content = disk.content(&file("SEGMENTS"));
    let used = 8 + 8 * segments(&disk).len();
    for position in 0..used {
        let mut flipped = content.clone();
        flipped[position] ^= 1;
        disk.set_content(&file("SEGMENTS"), flipped);
        let said = refusal(&disk).unwrap();
        assert_eq!(said, "/store/SEGMENTS: damaged at offset 0: wrong checksum");
    }
}

/// Puts, compaction, what the threads do, and the end: segments come and go.
fn work(core: &Core, model: &mut Model) -> Result<(), Fault> {
    for clock in 1..90 {
        let key = if clock % 4 > 0 { key(clock % 4) } else { key(clock) };
        let record = record(clock + 7000, 250);
        core.put(key.hash, &key.key, &record)?;
        if clock % 3 == 0 {
            core.commit()?;
        }
        model.insert(key, record);
        if clock % 10 == 5 {
            core.keep_ready();
        }
        if clock % 30 == 29 {
            core.tend(&mut |_| true)?;
        }
    }
    core.close()
}

/// Runs `work` on copies of `base` and crashes at every change of the disk; whatever a crash leaves is opened, twice.
fn crash_everywhere(base: &FaultyDisk) {
    let kinds: [fn(u64) -> Crash; 3] = [|_| Crash::Killed, |_| Crash::PowerFailed, Crash::PowerFailedAnyhow];
    for kind in kinds {
        let mut crashes = 0;
        for change in 1.. {
            let crash = kind(change);
            let context = format!("change {change}, {crash:?}");
            let disk = base.copy();
            disk.plan(Plan::CrashAt(change));
            if let Ok((core, _)) = open(&disk, Sync::Always) {
                let worked = work(&core, &mut Model::new());
                if !disk.is_down() {
                    worked.expect(&context);
                    let first = segments(&disk).remove(0);
                    assert!(first > file("0000000002.segment"), "{} was not removed", first.display());
                    break;
                }
            }
            crashes += 1;
            disk.crash(crash);
            disk.plan(Plan::CrashAt(disk.changes() + 1 + change % 23));
            drop(open(&disk, Sync::Always));
            disk.crash(crash);
            assert_eq!(refusal(&disk), None, "{context}");
            disk.crash(crash);
            let (core, _) = open(&disk, Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
            let mut model = content(&core);
            work(&core, &mut model).expect(&context);
            drop(core);
            disk.crash(Crash::PowerFailed);
            let (core, _) = open(&disk, Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(content(&core) == model, "{context}");
        }
        assert!(crashes > 100, "{crashes} crashes");
    }
}

#[test]
fn no_crash_leaves_a_store_that_misses_a_segment() {
    crash_everywhere(&FaultyDisk::default());
}

/// Nor does a call that fails, whatever the process did after it.
#[test]
fn no_failure_leaves_a_store_that_misses_a_segment() {
    let mut failures = 0;
    for change in 1.. {
        let disk = FaultyDisk::default();
        disk.plan(Plan::FailAt(change));
        if let Ok((core, _)) = open(&disk, Sync::Always) {
            failures += u64::from(work(&core, &mut Model::new()).is_err());
            let _ = work(&core, &mut Model::new());
        }
        if disk.plan_is_due() {
            break;
        }
        for crash in [Crash::Killed, Crash::PowerFailedAnyhow(change), Crash::PowerFailed] {
            let copy = disk.copy();
            copy.crash(crash);
            assert_eq!(refusal(&copy), None, "change {change}, {crash:?}");
        }
        disk.crash(Crash::Killed);
        assert_eq!(refusal(&disk), None, "change {change}");
        disk.crash(Crash::PowerFailed);
        assert_eq!(refusal(&disk), None, "change {change}");
    }
    assert!(failures > 30, "{failures} failures");
}

/// As the build before wrote it.
fn made_old(disk: &FaultyDisk) {
    disk.remove(&file("SEGMENTS")).unwrap();
    disk.set_content(&file("FORMAT"), b"kumo store 1\n".to_vec());
}

#[test]
fn a_store_of_an_older_program_is_opened_and_has_a_roster_then() {
    let (disk, model) = sample();
    made_old(&disk);
    // Nothing can be said.
    let copy = disk.copy();
    copy.remove(&segments(&copy)[1]).unwrap();
    assert_eq!(refusal(&copy), None);
    let (core, _) = open(&disk, Sync::Always).unwrap();
    assert_eq!(content(&core), model);
    assert_eq!(disk.content(&file("FORMAT")), b"kumo store 4\n");
    disk.crash(Crash::PowerFailed);
    drop(core);
    disk.remove(&segments(&disk)[1]).unwrap();
    assert!(refusal(&disk).unwrap().ends_with(" is missing"));
}

/// An older program wrote to it after a crash, and removed what the roster of that time names.
#[test]
fn a_roster_without_the_format_says_nothing() {
    let (disk, _) = sample();
    disk.set_content(&file("FORMAT"), b"kumo store 1\n".to_vec());
    disk.remove(&segments(&disk)[1]).unwrap();
    assert_eq!(refusal(&disk), None);
    assert_eq!(refusal(&disk), None);
}

#[test]
fn no_crash_while_a_store_gets_its_roster_leaves_one_that_misses_a_segment() {
    let (disk, _) = sample();
    made_old(&disk);
    crash_everywhere(&disk);
}

#[test]
fn a_full_disk_keeps_no_older_store_from_starting() {
    let (whole, model) = sample();
    for roster in [false, true] {
        for room in [0, 4096, 100_000] {
            let disk = whole.copy();
            if !roster {
                made_old(&disk);
                disk.remove(&file("ROOM")).unwrap();
            }
            let used: u64 = disk.names().iter().map(|path| disk.space(path)).sum();
            disk.limit(Some(used + room));
            let (core, _) = open(&disk, Sync::Always).unwrap();
            assert_eq!(content(&core), model);
            tend(&core);
            core.keep_ready();
            drop(core);
            disk.crash(Crash::PowerFailed);
            disk.limit(None);
            let (core, _) = open(&disk, Sync::Always).unwrap();
            assert_eq!(content(&core), model);
            assert_eq!(disk.content(&file("FORMAT")), b"kumo store 4\n");
        }
    }
}

/// Nothing is in the last segment, which is listed: to leave it out took room.
#[test]
fn a_full_disk_keeps_no_store_from_starting_whose_last_segment_is_empty() {
    for crash in [Crash::Killed, Crash::PowerFailed] {
        let (disk, mut model) = sample();
        let (core, _) = open(&disk, Sync::Always).unwrap();
        let log = &core.files().unwrap().log;
        let active = segments(&disk).pop().unwrap();
        disk.limit(Some(disk.used()));
        let large = record(5001, 3900);
        assert_eq!(core.put(key(5).hash, &key(5).key, &large), Err(Fault::Full));
        // There was room for a moment.
        disk.limit(None);
        log.look_for_room().unwrap();
        core.commit().unwrap();
        core.files().unwrap().list().unwrap();
        let last = segments(&disk).pop().unwrap();
        assert!(last > active && disk.content(&last).len() as u64 == HEADER_BYTES);
        // As on a file system that cannot exchange names, and had no room for another note.
        disk.remove(&file("ROOM")).unwrap();
        disk.crash(crash);
        drop(core);
        disk.limit(Some(disk.used()));
        for _ in 0..2 {
            let (core, _) = open(&disk, Sync::Always).unwrap_or_else(|error| panic!("{crash:?}: {error}"));
            assert_eq!(content(&core), model);
            // Nor is there for a record, should others take what was reserved behind the end.
            disk.limit(Some(disk.used()));
            assert_eq!(core.put(key(5).hash, &key(5).key, &large), Err(Fault::Full));
            core.keep_ready();
            disk.crash(crash);
        }
        disk.limit(None);
        let (core, _) = open(&disk, Sync::Always).unwrap();
        core.put(key(5).hash, &key(5).key, &large).unwrap();
        model.insert(key(5), large);
        core.commit().unwrap();
        core.keep_ready();
        assert!(disk.content(&last).len() > 3900, "it is written to");
        disk.crash(Crash::PowerFailed);
        drop(core);
        let (core, _) = open(&disk, Sync::Always).unwrap();
        assert_eq!(content(&core), model);
        disk.crash(Crash::Killed);
        disk.remove(&last).unwrap();
        assert!(refusal(&disk).unwrap().ends_with(" is missing"));
    }
}

/// What the notes have for themselves is not spent on the first roster: a server whose disk is full must remember.
#[test]
fn the_first_roster_does_not_take_the_room_of_the_notes() {
    let (whole, _) = sample();
    let (core, _) = open(&whole, Sync::Always).unwrap();
    core.put_note("lives", b"before").unwrap();
    let model = content(&core);
    drop(core);
    made_old(&whole);
    let used: u64 = whole.names().iter().map(|path| whole.space(path)).sum();
    for room in [0, 4096, 2 * ROOM_BYTES] {
        let disk = whole.copy();
        disk.limit(Some(used + room));
        for start in ["first", "second"] {
            let (core, _) = open(&disk, Sync::Always).unwrap();
            for content in [start, "and again"] {
                let put = core.put_note("lives", content.as_bytes());
                put.unwrap_or_else(|fault| panic!("{start} start, {room} bytes: {fault}"));
                assert_eq!(core.note("lives"), Ok(Some(content.into())));
            }
            assert_eq!(content(&core), model);
            disk.crash(Crash::Killed);
        }
        let listed = disk.content(&file("FORMAT")) == b"kumo store 4\n";
        assert_eq!(
            (listed, disk.names().contains(&file("SEGMENTS"))),
            (room > ROOM_BYTES, room > ROOM_BYTES)
        );
        assert!(!disk.names().contains(&file("SEGMENTS.unfinished")));
    }
}

#[test]
fn a_copy_has_no_roster_and_the_store_that_is_made_of_it_has_one() {
    let (disk, model) = sample();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    core.backup(Path::new("/copy"), &[]).unwrap();
    assert!(!disk.names().contains(&Path::new("/copy/SEGMENTS").into()));
    let (core, _) = open_at(&disk, "/copy", Sync::Always).unwrap();
    assert_eq!(content(&core), model);
    core.files().unwrap().list().unwrap();
    drop(core);
    let first = disk
        .names()
        .into_iter()
        .find(|path| path.starts_with("/copy/") && path.ends_with("0000000002.segment"));
    disk.remove(&first.unwrap()).unwrap();
    let Err(error @ OpenError::Lacking { .. }) = open_at(&disk, "/copy", Sync::Always) else {
        panic!("a store that misses a segment")
    };
    assert_eq!(error.to_string(), "/copy: the store is not complete: 0000000002.segment is missing");
}

#[test]
fn a_merge_of_a_store_that_misses_a_segment_is_refused() {
    let (disk, _) = sample();
    disk.remove(&segments(&disk)[1]).unwrap();
    let shared = std::sync::Arc::new(disk.clone()) as _;
    let merged = crate::merge::merge_on(&shared, Path::new("/merged"), &[Path::new(PATH)]);
    assert!(matches!(merged, Err(OpenError::Lacking { .. })), "{merged:?}");
}

/// The threads do that: a request syncs what it did before there was a roster.
#[test]
fn no_put_waits_for_the_roster() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    core.keep_ready();
    let before = disk.content(&file("SEGMENTS"));
    for clock in 1..100 {
        core.put(key(clock).hash, &key(clock).key, &record(clock, 200)).unwrap();
        core.commit().unwrap();
        assert!(disk.content(&file("SEGMENTS")) == before);
    }
    assert!(core.files().unwrap().log.closed_segments().len() > 2);
    core.keep_ready();
    assert!(disk.content(&file("SEGMENTS")) != before);
}

/// Ten times a second, of a store that may have tens of thousands of them.
#[test]
fn segments_that_stayed_the_same_are_not_gone_through() {
    let (disk, _) = sample();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let files = core.files().unwrap();
    files.list().unwrap();
    std::thread::scope(|scope| {
        // Whoever goes through them has this.
        let listed = files.folder.listed.lock().unwrap();
        let (done, is_done) = std::sync::mpsc::channel();
        scope.spawn(move || done.send(files.list()));
        let waited = is_done.recv_timeout(std::time::Duration::from_secs(10));
        drop(listed);
        assert_eq!(waited, Ok(Ok(())));
    });
    // Each change is seen.
    let mut clock = 7000;
    for _ in 0..5 {
        let before = (segments(&disk), disk.content(&file("SEGMENTS")));
        while segments(&disk) == before.0 {
            clock += 1;
            core.put(key(1).hash, &key(1).key, &record(clock, 200)).unwrap();
            core.commit().unwrap();
        }
        files.list().unwrap();
        let after = disk.content(&file("SEGMENTS"));
        assert!(after != before.1);
        tend(&core);
        assert!(disk.content(&file("SEGMENTS")) != after, "what is removed is left out");
    }
}

#[test]
fn garbage_goes_though_there_is_no_room_for_the_next_roster() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let log = &core.files().unwrap().log;
    let mut clock = 0;
    while log.closed_segments().len() < 6 {
        clock += 1;
        let key = if clock % 3 == 0 { key(1) } else { key(100 + clock) };
        core.put(key.hash, &key.key, &record(clock, 100)).and_then(|()| core.commit()).unwrap();
    }
    core.write_hints().unwrap();
    for number in 100..100 + clock {
        core.remove(key(number).hash, &key(number).key).unwrap();
    }
    core.commit().unwrap();
    core.files().unwrap().list().unwrap();
    let before = content(&core);
    disk.remove(&file("ROOM")).unwrap();
    let used: u64 = disk.names().iter().map(|path| disk.space(path)).sum();
    disk.limit(Some(used));
    let first = segments(&disk).remove(0);
    // The room for the hints of others lacks.
    let _ = core.tend(&mut |_| true);
    assert!(!disk.names().contains(&first));
    assert_eq!(content(&core), before);
    disk.crash(Crash::PowerFailed);
    drop(core);
    let (core, _) = open(&disk, Sync::Always).unwrap();
    assert_eq!(content(&core), before);
}

/// A file that somebody cut short, or a repair of the file system: no crash tears what was synced before a clean stop.
#[test]
fn an_end_that_vanished_is_noticed() {
    let (disk, model) = sample();
    let last = segments(&disk).pop().unwrap();
    let whole = disk.content(&last);
    let (mut refused, mut opened) = (0, 0);
    for length in 0..whole.len() {
        let copy = disk.copy();
        copy.set_content(&last, whole[..length].to_vec());
        let before = files(&copy);
        match refusal(&copy) {
            Some(text) => {
                assert!(
                    text.contains(last.to_str().unwrap()) && text.contains("damaged at offset"),
                    "{text}"
                );
                assert!(files(&copy) == before, "nothing was changed");
                refused += 1;
            }
            None => {
                assert_eq!(content(&open(&copy, Sync::Always).unwrap().0), model, "{length}");
                opened += 1;
            }
        }
    }
    // Only the mark at the very end is nobody's record.
    assert!(refused > 100 && opened < 50, "{refused} refused, {opened} opened");
}
