//! Starts that are ended on the way, again and again: each goes on where the one before was, and none believes what it must
//! not.

use super::faulty::{Crash, FaultyDisk, Plan};
use super::{Model, PATH, content, key, open_at, options, record};
use crate::disk::{Access, Disk};
use crate::engine::Core;
use crate::error::OpenError;
use crate::options::{Options, Sync};
use std::path::Path;
use std::sync::Arc;

/// So large that writing a segment once more takes many changes.
const SEGMENT_BYTES: u64 = 1 << 20;

const SEGMENTS: usize = 10;

/// Who has written so much has written all segments: they are a little smaller than they may be.
const ALL_BYTES: u64 = SEGMENTS as u64 * SEGMENT_BYTES * 15 / 16;

fn open_large(disk: &FaultyDisk) -> Result<Core, OpenError> {
    let options = Options { segment_bytes: SEGMENT_BYTES, ..options(Sync::Always) };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Core::open(disk, Path::new(PATH), Access::Write, options).map(|(core, _)| core)
}

/// A store that was stopped as it should be, and what it holds.
fn stopped() -> (FaultyDisk, Model) {
    let disk = FaultyDisk::default();
    let core = open_large(&disk).unwrap();
    let mut clock = 0;
    while core.files().unwrap().log.closed_segments().len() < SEGMENTS {
        clock += 1;
        core.put(key(clock).hash, &key(clock).key, &record(clock, 200_000)).unwrap();
    }
    core.commit().unwrap();
    let model = content(&core);
    core.close().unwrap();
    drop(core);
    (disk, model)
}

fn assert_settled(disk: &FaultyDisk, core: &Core, model: &Model, context: &str) {
    assert!(content(core) == *model, "{context}");
    assert!(!disk.names().contains(&Path::new(PATH).join("SYNCING")), "{context}");
}

/// The store as a start leaves it that does not get beyond this, while it syncs a segment, at its n-th change or later.
fn ended(disk: &FaultyDisk, plan: impl Fn(u64) -> Plan, n: u64) -> FaultyDisk {
    let ended = (n..).find_map(|change| {
        let disk = disk.copy();
        disk.plan(plan(disk.changes() + change));
        let refused = open_large(&disk).err().expect("that it gets so far").to_string();
        let segment = refused.split_whitespace().nth(1).is_some_and(|file| file.ends_with(".segment:"));
        (segment && refused.starts_with("sync ")).then_some(disk)
    });
    let ended = ended.expect("there is a change after which it does not end");
    ended.crash(Crash::Killed);
    ended
}

/// Each while something else is synced.
#[test]
fn ten_starts_that_are_killed_do_not_make_the_next_one_longer() {
    let (mut disk, model) = stopped();
    for start in 1..=10 {
        disk = ended(&disk, Plan::CrashAt, 4 * start);
    }
    let before = disk.written_bytes();
    let core = open_large(&disk).unwrap();
    let written = disk.written_bytes() - before;
    assert!(written < 3 * SEGMENT_BYTES, "{written} bytes");
    assert_settled(&disk, &core, &model, "the eleventh");
}

/// After a failure all must be written once more, which takes more than any of these starts has.
#[test]
fn a_start_after_a_failed_sync_gets_through_though_every_one_is_killed_on_its_way() {
    const CHANGES: u64 = 100;
    let (disk, model) = stopped();
    let disk = ended(&disk, Plan::FailAt, 1);
    let before = disk.written_bytes();
    for start in 1..=10 {
        disk.plan(Plan::CrashAt(disk.changes() + CHANGES));
        if let Ok(core) = open_large(&disk) {
            assert!(start > 2, "it took start {start}");
            assert!(disk.written_bytes() - before > ALL_BYTES, "all is written once more");
            return assert_settled(&disk, &core, &model, "the last start");
        }
        disk.crash(Crash::Killed);
    }
    panic!("ten starts, and no end");
}

/// The system holds what it could not write for written, and the process that was told of it is gone.
#[test]
fn a_sync_that_failed_in_a_process_that_was_killed_then_is_made_up_for() {
    let (disk, model) = super::failing::backed_up();
    let mut failures = 0;
    for change in 1.. {
        let (disk, at) = (disk.copy(), Path::new("/copied"));
        disk.create_folder(at).unwrap();
        for path in disk.names().iter().filter(|path| path.starts_with(PATH)) {
            let copied = disk.create(&at.join(path.file_name().unwrap())).unwrap();
            copied.write_at(0, &disk.content(path)).unwrap();
        }
        disk.plan(Plan::FailAndEndAt(disk.changes() + change));
        let first = open_at(&disk, "/copied", Sync::Always).map(|_| "opened");
        if disk.plan_is_due() {
            break;
        }
        let context = format!("change {change}: {:?}", first.as_ref().map_err(ToString::to_string));
        failures += u32::from(first.is_err());
        drop(first);
        // The next ones are killed too, wherever they are.
        for start in 1..=3 {
            disk.crash(Crash::Killed);
            disk.plan(Plan::CrashAt(disk.changes() + start * change % 40 + 1));
            drop(open_at(&disk, "/copied", Sync::Always));
        }
        disk.crash(Crash::Killed);
        drop(open_at(&disk, "/copied", Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}")));
        disk.crash(Crash::PowerFailed);
        let (core, opened) =
            open_at(&disk, "/copied", Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(content(&core) == model && opened.cuts.is_empty(), "{context}");
        assert_eq!(core.note("space"), Ok(Some(b"seven".to_vec())), "{context}");
    }
    assert!(failures > 10, "{failures}");
}

/// It says nothing of what it suspects, and nothing else does.
#[test]
fn of_what_an_older_program_failed_to_sync_all_is_written_once_more() {
    for left in [&b""[..], b"=0000000001.segment", &[0; 40]] {
        let (disk, model) = stopped();
        disk.set_content(&Path::new(PATH).join("SYNCING"), left.to_vec());
        let before = disk.written_bytes();
        let core = open_large(&disk).unwrap();
        let written = disk.written_bytes() - before;
        assert!(written > ALL_BYTES, "{left:?}: {written} bytes");
        assert_settled(&disk, &core, &model, &format!("{left:?}"));
    }
}

/// What cannot be noted for want of room is not forgotten.
#[test]
fn what_a_full_disk_could_not_note_is_under_suspicion() {
    let (disk, model) = stopped();
    disk.limit(Some(disk.used()));
    disk.plan(Plan::CrashAt(disk.changes() + 20));
    assert!(open_large(&disk).is_err());
    disk.crash(Crash::Killed);
    assert_eq!(disk.content(&Path::new(PATH).join("SYNCING")), b"");
    let before = disk.written_bytes();
    let core = open_large(&disk).unwrap();
    assert!(disk.written_bytes() - before > ALL_BYTES);
    assert_settled(&disk, &core, &model, "on a full disk");
}
