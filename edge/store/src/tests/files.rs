//! On a real file system: formats, locks, threads.

use super::{key, record};
use crate::disk::{Disk, SystemDisk};
use crate::segment::segment_name;
use crate::{Engine, OpenError, Options, Sync, merge};
use bytes::Bytes;
use kumo_cluster::{Clock, KeyHash, Kind, Record, SpaceNumber, Stamp, Store};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

/// A fresh folder, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("kumo-store-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn refused(path: &Path) -> String {
    match Engine::open(path, Options::default()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    let scratch = Scratch::new("foreign");
    let file = scratch.path("file");
    for (content, text) in [
        (&b"ToKyO CaBiNeT\n1.0:911\n"[..], "a Tokyo Cabinet file, not a kumo store"),
        (b"something else", "not a kumo store"),
        (b"", "not a kumo store"),
    ] {
        std::fs::write(&file, content).unwrap();
        assert_eq!(refused(&file), format!("{}: {text}", file.display()));
        assert_eq!(std::fs::read(&file).unwrap(), content);
    }
    let folder = scratch.path("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("letter.txt"), "dear").unwrap();
    assert_eq!(refused(&folder), format!("{}: not a kumo store", folder.display()));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    for (format, text) in [
        ("kumo store 5\n", "store format 5, this program knows 4"),
        ("kumo store 0\n", "not a kumo store"),
        ("kumo store 1", "not a kumo store"),
        ("kumo log 1\n", "not a kumo store"),
        ("", "not a kumo store"),
    ] {
        std::fs::write(folder.join("FORMAT"), format).unwrap();
        assert_eq!(refused(&folder), format!("{}: {text}", folder.display()));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    }
    let nowhere = scratch.path("no/such");
    assert!(refused(&nowhere).starts_with(&format!("create {}: ", nowhere.display())));
    let empty = scratch.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let (_, opened) = Engine::open(&empty, Options::default()).unwrap();
    assert!(opened.created, "an empty folder may become a store");
}

#[test]
fn space_that_is_reserved_behind_the_end_of_a_file_is_counted() {
    let scratch = Scratch::new("space");
    let file = SystemDisk.create(&scratch.path("file")).unwrap();
    assert!(file.space().unwrap() < 4096);
    file.allocate(1 << 20).unwrap();
    // Of a file system that cannot promise space, what is written.
    file.write_at(0, &vec![1; 1 << 20]).unwrap();
    file.sync().unwrap();
    assert!(file.space().unwrap() >= 1 << 20);
    file.truncate(0).unwrap();
    file.allocate(2 << 20).unwrap();
    assert_eq!(file.bytes().unwrap(), 0);
    assert!([0, 2 << 20].contains(&(file.space().unwrap() >> 20 << 20)));
    file.truncate(0).unwrap();
    assert!(file.space().unwrap() < 4096);
}

#[test]
fn a_store_has_one_process() {
    let scratch = Scratch::new("lock");
    let path = scratch.path("store");
    let (engine, _) = Engine::open(&path, Options::default()).unwrap();
    assert_eq!(refused(&path), format!("{}: in use by another process", path.display()));
    let merged = merge(&scratch.path("merged"), &[&path]);
    assert_eq!(merged, Err(OpenError::Locked(path.clone())));
    let other = engine.clone();
    drop(engine);
    assert_eq!(refused(&path), format!("{}: in use by another process", path.display()));
    drop(other);
    Engine::open(&path, Options::default()).unwrap();
}

/// A process that ends does not wait for a backup, which has a handle of its own.
#[test]
fn a_store_that_was_closed_misses_its_end_though_a_handle_was_left() {
    let scratch = Scratch::new("closed");
    let (store, found) = (scratch.path("store"), scratch.path("found"));
    let (engine, _) = Engine::open(&store, Options::default()).unwrap();
    for clock in 1..4 {
        engine.put(key(clock).hash, &key(clock).key, &record(clock, 100)).unwrap();
    }
    engine.sync().unwrap();
    let last = store.join(segment_name(1));
    let synced = std::fs::metadata(&last).unwrap().len();
    let held = engine.clone();
    engine.close();
    drop(engine);
    // As a process that is gone by now leaves it.
    std::fs::create_dir(&found).unwrap();
    for entry in std::fs::read_dir(&store).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, found.join(path.file_name().unwrap())).unwrap();
    }
    drop(held);
    let cut = found.join(segment_name(1));
    std::fs::File::options().write(true).open(&cut).unwrap().set_len(synced - 1).unwrap();
    assert!(refused(&found).contains("0000000001.segment: damaged"), "{}", refused(&found));
    // Nor is it written to when the last handle goes.
    let engine = Engine::open(&store, Options::default()).unwrap().0;
    assert_eq!(engine.get(key(3).hash, &key(3).key), Ok(Some(record(3, 100))));
}

/// What was to be merged into it was not.
#[test]
fn a_folder_in_a_store_does_not_stop_its_start() {
    let scratch = Scratch::new("folder");
    let path = scratch.path("store");
    drop(Engine::open(&path, Options::default()).unwrap());
    std::fs::create_dir(path.join("out.unfinished")).unwrap();
    Engine::open(&path, Options::default()).unwrap();
    assert!(path.join("out.unfinished").is_dir());
}

#[test]
fn a_backup_is_read_by_several_merges_at_once() {
    let scratch = Scratch::new("merges");
    let (store, backup) = (scratch.path("store"), scratch.path("backup"));
    let (engine, _) = Engine::open(&store, Options::default()).unwrap();
    for number in 1..100 {
        engine.put(key(number).hash, &key(number).key, &record(number, 100)).unwrap();
    }
    engine.backup(&backup, &[]).unwrap();
    let begin = Barrier::new(4);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (begin, backup, destination) = (&begin, &backup, scratch.path(&format!("merged-{number}")));
            scope.spawn(move || {
                begin.wait();
                let merged = merge(&destination, &[backup, backup]).unwrap();
                assert_eq!(merged.items + merged.tombstones, 99);
            });
        }
    });
    assert!(backup.join("MANIFEST").is_file());
    let (copy, opened) = Engine::open(&backup, Options::default()).unwrap();
    assert_eq!(opened.items + opened.tombstones, 99);
    assert!(!backup.join("MANIFEST").exists());
    drop(copy);
    Engine::open(&backup, Options::default()).unwrap();
}

/// A cluster went on without one of its servers, whose clock was ahead: what that server wrote last was never
/// acknowledged, and has the greater clock. Or the other way around, where both clocks were right.
#[test]
fn of_two_histories_a_merge_takes_what_the_later_space_wrote_whatever_the_clocks() {
    let scratch = Scratch::new("histories");
    let version = |space, clock, data: &'static [u8]| {
        let stamp = Stamp { space: SpaceNumber(space), clock: Clock(clock) };
        Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data: Bytes::from_static(data) }
    };
    let gone = |space, clock| Record { kind: Kind::Tombstone, ..version(space, clock, b"") };
    // What the lost server has, and the others: these count, the first two by the space alone.
    let histories = [
        (version(7, 900, b"unheard"), version(8, 100, b"acknowledged")),
        (version(7, 900, b"deleted since"), gone(8, 100)),
        (version(7, 100, b"before"), version(8, 900, b"after")),
        (version(8, 100, b"before"), version(8, 900, b"after")),
    ];
    let paths = [scratch.path("lost"), scratch.path("others")];
    for (at, path) in paths.iter().enumerate() {
        let (engine, _) = Engine::open(path, Options::default()).unwrap();
        for (number, (unheard, heard)) in histories.iter().enumerate() {
            let key = key(number as u64);
            engine.put(key.hash, &key.key, [unheard, heard][at]).unwrap();
        }
        engine.commit().unwrap();
    }
    let [lost, others] = &paths;
    for (name, sources, [newer, older]) in
        [("merged", [&**lost, &**others], [4, 0]), ("merged-too", [&**others, &**lost], [0, 4])]
    {
        let destination = scratch.path(name);
        let merged = merge(&destination, &sources).unwrap();
        assert_eq!([merged.sources[1].newer, merged.sources[1].older], [newer, older], "{merged:?}");
        let (engine, _) = Engine::open(&destination, Options::default()).unwrap();
        for (number, (_, wanted)) in histories.iter().enumerate() {
            let key = key(number as u64);
            assert_eq!(
                engine.get(key.hash, &key.key).as_ref(),
                Ok(&Some(wanted.clone())),
                "{name}: {number}"
            );
        }
    }
}

#[test]
fn many_threads_write_while_segments_are_rewritten_and_backed_up() {
    let scratch = Scratch::new("threads");
    let path = scratch.path("store");
    let sync = Sync::Interval(Duration::from_millis(1));
    let options =
        Options { sync, segment_bytes: 64 << 10, compaction_bytes_per_second: 1 << 30, ..Options::default() };
    let (engine, _) = Engine::open(&path, options.clone()).unwrap();
    const ROUNDS: u64 = 60;
    const KEYS: u64 = 200;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let engine = engine.clone();
            scope.spawn(move || {
                for clock in 1..=ROUNDS {
                    for number in 0..KEYS {
                        let key = key(thread * KEYS + number);
                        engine.put(key.hash, &key.key, &record(clock, 100)).unwrap();
                        assert_eq!(engine.get(key.hash, &key.key), Ok(Some(record(clock, 100))));
                    }
                    engine.commit().unwrap();
                }
            });
        }
        let engine = engine.clone();
        scope.spawn(move || {
            for round in 0..5 {
                let found = engine.scan(KeyHash(0), KeyHash(u64::MAX), None, usize::MAX).unwrap();
                assert!(found.len() as u64 <= 4 * KEYS);
                let copy = scratch_backup(&path, round);
                let backup = engine.backup(&copy, &[]).unwrap();
                assert!(backup.copied >= 1);
                let (copied, opened) = Engine::open(&copy, Options::default()).unwrap();
                assert!(opened.cuts.is_empty());
                assert!(copied.usage().items + copied.usage().tombstones <= 4 * KEYS);
            }
        });
    });
    assert_eq!(engine.trouble(), None);
    let path = scratch.path("store");
    drop(engine);
    let (engine, opened) = Engine::open(&path, options).unwrap();
    assert_eq!(opened.items + opened.tombstones, 4 * KEYS);
    for number in 0..4 * KEYS {
        let key = key(number);
        assert_eq!(engine.get(key.hash, &key.key), Ok(Some(record(ROUNDS, 100))));
    }
}

fn scratch_backup(path: &Path, round: u64) -> PathBuf {
    path.with_file_name(format!("backup-{round}"))
}

#[test]
fn garbage_goes_away_by_itself() {
    let scratch = Scratch::new("garbage");
    let options =
        Options { segment_bytes: 64 << 10, compaction_bytes_per_second: 1 << 30, ..Options::default() };
    let (engine, _) = Engine::open(&scratch.path("store"), options).unwrap();
    for clock in 1..5000 {
        let key = key(clock % 50);
        engine.put(key.hash, &key.key, &record(clock, 500)).unwrap();
        engine.flush().unwrap();
    }
    // However slow the machine: until the threads have done it.
    while engine.usage().file_bytes > 256 << 10 {
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert_eq!(engine.trouble(), None);
}

/// The file system is told so that it understands: the length of the file does not change by it.
#[test]
fn a_closed_segment_takes_no_more_of_the_disk_than_its_bytes() {
    const LARGE_BYTES: usize = 1 << 20;
    // A block, and what the file system notes of the file itself.
    const SLACK_BYTES: u64 = 128 << 10;
    let scratch = Scratch::new("space");
    let path = scratch.path("store");
    let options = Options { segment_bytes: 4 << 20, ..Options::default() };
    let (engine, _) = Engine::open(&path, options).unwrap();
    // Three fit into a segment, and nearly another one would.
    for number in 0..10 {
        let large = Record { data: vec![1; LARGE_BYTES].into(), ..record(1, 0) };
        engine.put(key(number).hash, &key(number).key, &large).unwrap();
    }
    // Which ends its closing.
    drop(engine);
    for number in 1..=3 {
        let segment = std::fs::metadata(path.join(segment_name(number))).unwrap();
        let (bytes, taken) = (segment.len(), segment.blocks() * 512);
        assert!(bytes > 3 * LARGE_BYTES as u64, "{bytes}");
        assert!(taken < bytes + SLACK_BYTES, "segment {number} of {bytes} bytes takes {taken}");
    }
}

#[test]
fn notes_have_names_and_a_limit() {
    let scratch = Scratch::new("notes");
    let path = scratch.path("store");
    let (engine, _) = Engine::open(&path, Options::default()).unwrap();
    for name in ["", "a/b", "..", "a.b", "a b", &"x".repeat(65)] {
        assert!(engine.put_note(name, b"").is_err(), "{name:?}");
    }
    assert!(engine.put_note("space", &vec![0; crate::NOTE_BYTES_MAX + 1]).is_err());
    engine.put_note("space", b"1").unwrap();
    engine.put_note("space", b"").unwrap();
    drop(engine);
    let (engine, _) = Engine::open(&path, Options::default()).unwrap();
    assert_eq!(engine.note("space"), Ok(Some(vec![])));
    assert_eq!(engine.note("other"), Ok(None));
}
