//! The numbers of segments never go back: what was said of one must not be taken for said of another.

use super::faulty::{Crash, FaultyDisk, Plan};
use super::{Model, PATH, content, key, open_at, record, tend};
use crate::engine::Core;
use crate::options::Sync;
use crate::segment::number_of;
use std::path::Path;
use std::time::Duration;

const SYNC: Sync = Sync::Interval(Duration::from_secs(1));

fn open(disk: &FaultyDisk, path: &str) -> Core {
    open_at(disk, path, SYNC).unwrap_or_else(|error| panic!("{error}")).0
}

/// Stops as a server does.
fn stop(core: Core) {
    core.keep_ready();
    core.close().unwrap();
}

fn put(core: &Core, number: u64, model: &mut Model) {
    let (key, record) = (key(number), record(number, 200));
    core.put(key.hash, &key.key, &record).unwrap();
    core.flush().unwrap();
    model.insert(key, record);
}

fn newest(disk: &FaultyDisk, path: &str) -> u32 {
    let names = disk.names().into_iter().filter(|name| name.starts_with(path));
    let number = |name: std::path::PathBuf| number_of(name.file_name()?.to_str()?, ".segment");
    names.filter_map(number).max().expect("there is a segment")
}

/// All was garbage and is gone, up to a segment in which nothing is: starts, idle or not, go on from its number.
fn goes_on(disk: &FaultyDisk, path: &str, newest_before: u32) {
    assert!(newest_before > 1, "the first one was removed");
    stop(open(disk, path));
    stop(open(disk, path));
    assert_eq!(newest(disk, path), newest_before);
    let core = open(disk, path);
    let mut model = Model::new();
    (1..6).for_each(|number| put(&core, number, &mut model));
    stop(core);
    disk.crash(Crash::PowerFailed);
    let core = open(disk, path);
    assert_eq!(content(&core), model);
    (100..160).for_each(|number| put(&core, number, &mut model));
    stop(core);
    assert_eq!(content(&open(disk, path)), model);
}

#[test]
fn a_backup_of_nothing_but_garbage_is_a_store_like_others() {
    let disk = FaultyDisk::default();
    let core = open(&disk, PATH);
    put(&core, 1, &mut Model::new());
    core.remove(key(1).hash, &key(1).key).unwrap();
    core.backup(Path::new("/copy"), &[]).unwrap();
    let core = open(&disk, "/copy");
    core.keep_ready();
    tend(&core);
    stop(core);
    goes_on(&disk, "/copy", newest(&disk, "/copy"));
}

#[test]
fn a_store_that_ended_just_after_it_closed_a_segment_of_garbage_goes_on() {
    let disk = FaultyDisk::default();
    let core = open(&disk, PATH);
    let log = &core.files().unwrap().log;
    let mut number = 0;
    loop {
        number += 1;
        let key = key(number);
        core.put(key.hash, &key.key, &record(number, 200)).unwrap();
        // What goes to the next segment is not flushed.
        if !log.closed_segments().is_empty() {
            break;
        }
        core.remove(key.hash, &key.key).unwrap();
        core.flush().unwrap();
    }
    disk.crash(Crash::Killed);
    drop(core);
    let core = open(&disk, PATH);
    assert!(content(&core).is_empty());
    core.keep_ready();
    tend(&core);
    stop(core);
    goes_on(&disk, PATH, newest(&disk, PATH));
}

/// It went before there was another one to write to.
#[test]
fn a_start_that_was_cut_short_does_not_take_the_number_back() {
    let disk = FaultyDisk::default();
    let core = open(&disk, PATH);
    put(&core, 1, &mut Model::new());
    core.remove(key(1).hash, &key(1).key).unwrap();
    core.backup(Path::new("/copy"), &[]).unwrap();
    let core = open(&disk, "/copy");
    core.keep_ready();
    tend(&core);
    stop(core);
    let number = newest(&disk, "/copy");
    let idle = disk.copy();
    stop(open(&idle, "/copy"));
    for change in 1..=idle.changes() {
        let disk = disk.copy();
        disk.plan(Plan::CrashAt(change));
        let _ = open_at(&disk, "/copy", SYNC);
        disk.crash(Crash::Killed);
        goes_on(&disk, "/copy", number);
    }
}
