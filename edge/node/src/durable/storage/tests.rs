//! A log on disk: what is remembered after which end.

use super::*;
use crate::durable::frame;
use kumo_paxos::{
    CellId, Configuration, Incarnation, Instance, Member, ReplicaId, Role, Round, Schedule, Value,
};
use std::fs;
use std::future::poll_fn;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

mod fates;

fn life() -> Record {
    life_with(0)
}

fn life_with(kept: u64) -> Record {
    Record::Life { incarnation: Incarnation(7), grant_micros: 1, kept }
}

fn promise(sequence: u64) -> Record {
    Record::Promised(Round { sequence, ..Round::default() })
}

fn accept(instance: u64) -> Record {
    let round = Round { sequence: 1, ..Round::default() };
    Record::Accepted { instance: Instance(instance), round, value: Value::Noop }
}

fn decide(instance: u64) -> Record {
    Record::Decided { instance: Instance(instance), value: Value::Noop }
}

fn position() -> Position {
    let member = Member {
        id: ReplicaId(0),
        address: ([127, 0, 0, 1], 19700).into(),
        incarnation: Incarnation(1),
        role: Role::Core,
    };
    let configuration = Configuration { version: 1, next_id: ReplicaId(1), members: vec![member] };
    let schedule = Schedule { window: 8, entries: vec![(Instance(1), configuration)] };
    Position { cell: CellId(5), generation: 1, executed: Instance(9), schedule, digest: 3 }
}

/// A new life in a fresh folder, its first record on disk.
async fn begun(name: &str) -> (PathBuf, Storage) {
    let path = crate::durable::scratch(name);
    let (mut storage, memory) = Storage::open(&path).unwrap();
    assert!(memory.is_none());
    storage.begin().unwrap();
    put(&mut storage, life()).await;
    (path, storage)
}

async fn put(storage: &mut Storage, record: Record) {
    storage.append(&record);
    let ticket = storage.seal();
    while !storage.is_safe(ticket) {
        poll_fn(|context| storage.poll(context)).await.unwrap();
    }
}

/// Gives the snapshot under way its two parts. False: it failed.
async fn write_parts(storage: &mut Storage) -> bool {
    let mut parts = vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")].into_iter();
    while storage.is_writing_snapshot() {
        let progress = poll_fn(|context| match storage.poll(context) {
            Poll::Pending if !storage.is_writing_snapshot() => Poll::Ready(None),
            polled => polled.map(|progress| Some(progress.unwrap())),
        });
        match progress.await {
            Some(Progress::WantsPart) => storage.snapshot_part(parts.next()),
            Some(Progress::SnapshotFailed) => return false,
            Some(Progress::Safe(_)) | None => {}
        }
    }
    true
}

/// What is said when this record cannot be committed, and what the next start finds.
async fn refused(mut storage: Storage, path: &Path) -> (NodeError, Option<Memory>) {
    storage.append(&promise(2));
    let ticket = storage.seal();
    let error = poll_fn(|context| storage.poll(context)).await.unwrap_err();
    assert!(!storage.is_safe(ticket));
    drop(storage);
    (error, Storage::open(path).unwrap().1)
}

#[tokio::test]
async fn turns_that_come_during_a_commit_share_the_next_one() {
    let (path, mut storage) = begun("share").await;
    let tickets: Vec<u64> = (1..=3)
        .map(|sequence| {
            storage.append(&promise(sequence));
            storage.seal()
        })
        .collect();
    let first = poll_fn(|context| storage.poll(context)).await.unwrap();
    let second = poll_fn(|context| storage.poll(context)).await.unwrap();
    assert_eq!([first, second], [Progress::Safe(tickets[0]), Progress::Safe(tickets[2])]);
    drop(storage);
    let (_, memory) = Storage::open(&path).unwrap();
    assert_eq!(memory.unwrap().records, [life(), promise(1), promise(2), promise(3)]);
    fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn a_snapshot_that_was_not_finished_costs_nothing() {
    let (path, mut storage) = begun("unfinished").await;
    put(&mut storage, promise(1)).await;
    storage.begin_snapshot(position(), &[life(), promise(1)]);
    put(&mut storage, promise(2)).await;
    drop(storage);
    let (_, memory) = Storage::open(&path).unwrap();
    let memory = memory.unwrap();
    assert!(memory.snapshot.is_none());
    assert_eq!(memory.records, [life(), promise(1), life(), promise(1), promise(2)]);
    fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn a_finished_snapshot_replaces_what_was_before_it() {
    let (path, mut storage) = begun("finished").await;
    put(&mut storage, promise(1)).await;
    storage.begin_snapshot(position(), &[life(), promise(1)]);
    assert!(write_parts(&mut storage).await, "a snapshot is written");
    put(&mut storage, promise(2)).await;
    drop(storage);
    let (_, memory) = Storage::open(&path).unwrap();
    let memory = memory.unwrap();
    assert_eq!(memory.snapshot, Some((position(), vec!["a".into(), "b".into()])));
    assert_eq!(memory.records, [life(), promise(1), promise(2)]);
    assert!(!path.join("log-1").exists());
    fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn after_a_full_disk_the_memory_is_used_again() {
    let (path, mut storage) = begun("full").await;
    put(&mut storage, promise(1)).await;
    // Every write finds it full.
    storage.segment = Some(Segment::at(Path::new("/dev/full")));
    let (error, memory) = refused(storage, &path).await;
    let error = error.to_string();
    assert!(error.starts_with(&format!("disk full: write the log in {}: ", path.display())), "{error}");
    assert!(error.ends_with("; free space and start it again"), "{error}");
    assert_eq!(memory.unwrap().records, [life(), promise(1)]);
    fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn after_a_sync_that_failed_the_memory_is_not_used_again() {
    let (path, mut storage) = begun("unsynced").await;
    put(&mut storage, promise(1)).await;
    // It takes every write, and cannot be synced.
    storage.segment = Some(Segment::at(Path::new("/dev/null")));
    let (error, memory) = refused(storage, &path).await;
    assert!(error.to_string().starts_with("write the log in "), "{error}");
    assert!(memory.is_none());
    fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn a_segment_that_cannot_be_begun_costs_no_memory() {
    let (path, mut storage) = begun("not-begun").await;
    put(&mut storage, promise(1)).await;
    fs::create_dir(path.join("log-2")).unwrap();
    storage.begin_snapshot(position(), &[life_with(0), promise(1)]);
    let error = loop {
        if let Err(error) = poll_fn(|context| storage.poll(context)).await {
            break error;
        }
        storage.snapshot_part(None);
    };
    assert!(error.to_string().starts_with("write the log in "), "{error}");
    drop(storage);
    // A job for the snapshot may outlive it, and keeps the folder until it is done.
    fs::File::open(path.join("lock")).unwrap().lock().unwrap();
    fs::remove_dir(path.join("log-2")).unwrap();
    let (_, memory) = Storage::open(&path).unwrap();
    assert_eq!(memory.unwrap().records, [life(), promise(1)]);
    fs::remove_dir_all(path).unwrap();
}

/// The disk was full, or the power failed, in the middle of what a segment begins with.
#[tokio::test]
async fn a_segment_begun_in_part_costs_no_vote() {
    let (path, mut storage) = begun("in-part").await;
    for sequence in 1..=3 {
        put(&mut storage, promise(sequence)).await;
    }
    storage.begin_snapshot(position(), &[life_with(2), promise(3)]);
    put(&mut storage, promise(4)).await;
    drop(storage);
    let [first, second] = ["log-1", "log-2"].map(|name| fs::read(path.join(name)).unwrap());
    let (old, mut kept) = ([life(), promise(1), promise(2), promise(3)], 0);
    for length in 0..=second.len() {
        let copy = crate::durable::scratch("in-part-copy");
        fs::write(copy.join("log-1"), &first).unwrap();
        fs::write(copy.join("log-2"), &second[..length]).unwrap();
        let (mut storage, memory) = Storage::open(&copy).unwrap();
        let records = memory.expect("a torn tail is cut").records;
        let (before, begun) = records.split_at(old.len());
        assert_eq!(before, old);
        // Without the promise behind it, this life would have one vote less than before.
        assert_ne!(begun, [life_with(2)], "length {length}");
        kept = begun.len();
        put(&mut storage, promise(5)).await;
        drop(storage);
        let again = Storage::open(&copy).unwrap().1.unwrap().records;
        assert_eq!(again, [&records[..], &[promise(5)]].concat());
        fs::remove_dir_all(copy).unwrap();
    }
    assert_eq!(kept, 3, "whole, it is kept whole");
    fs::remove_dir_all(path).unwrap();
}

/// The power failed while it was begun: its length is on the disk, and nothing else.
#[tokio::test]
async fn a_segment_of_nothing_but_zeros_costs_no_memory() {
    let (path, mut storage) = begun("zeros").await;
    put(&mut storage, promise(1)).await;
    storage.begin_snapshot(position(), &[life_with(1), promise(1)]);
    put(&mut storage, promise(2)).await;
    drop(storage);
    let [first, second] = ["log-1", "log-2"].map(|name| fs::read(path.join(name)).unwrap());
    fs::remove_dir_all(path).unwrap();
    for length in [1, 23, 24, 512, 4096, second.len()] {
        let copy = crate::durable::scratch("zeros-copy");
        fs::write(copy.join("log-1"), &first).unwrap();
        fs::write(copy.join("log-2"), vec![0; length]).unwrap();
        let (mut storage, memory) = Storage::open(&copy).expect("a torn beginning is cut");
        assert_eq!(memory.unwrap().records, [life(), promise(1)], "length {length}");
        put(&mut storage, promise(5)).await;
        drop(storage);
        assert_eq!(Storage::open(&copy).unwrap().1.unwrap().records, [life(), promise(1), promise(5)]);
        fs::remove_dir_all(copy).unwrap();
    }
}

/// What was safe, and answered, is missing where it was: that is not taken for a torn beginning.
#[tokio::test]
async fn zeros_in_place_of_what_was_safe_are_damage() {
    let (path, mut storage) = begun("zeroed").await;
    put(&mut storage, promise(1)).await;
    let first = fs::read(path.join("log-1")).unwrap();
    storage.begin_snapshot(position(), &[life_with(1), promise(1)]);
    assert!(write_parts(&mut storage).await);
    put(&mut storage, promise(2)).await;
    drop(storage);
    let second = fs::read(path.join("log-2")).unwrap();
    let snapshot = fs::read(path.join("snapshot-2")).unwrap();
    fs::remove_dir_all(path).unwrap();
    let mut headless = second.clone();
    headless[..frame::HEADER_BYTES].fill(0);
    let blank = vec![0; second.len()];
    // A snapshot is finished when the segment behind it is safe; a segment is begun when the one before is.
    let cases = [
        ("snapshot-2", &snapshot, "log-2", &blank),
        ("snapshot-2", &snapshot, "log-2", &headless),
        ("log-1", &blank, "log-2", &second),
        ("log-1", &first, "log-2", &headless),
    ];
    for (one, its, other, others) in cases {
        let copy = crate::durable::scratch("zeroed-copy");
        fs::write(copy.join(one), its).unwrap();
        fs::write(copy.join(other), others).unwrap();
        let (_, memory) = Storage::open(&copy).expect("it is set aside");
        assert!(memory.is_none(), "{one} and {other}");
        fs::remove_dir_all(copy).unwrap();
    }
}

/// What follows counts the votes before it: with some of them gone, nobody else would see that.
#[tokio::test]
async fn a_log_cut_anywhere_before_its_last_segment_is_damaged() {
    let (path, mut storage) = begun("cut-before").await;
    put(&mut storage, promise(1)).await;
    for instance in 1..=5 {
        put(&mut storage, accept(instance)).await;
    }
    put(&mut storage, decide(1)).await;
    storage.begin_snapshot(position(), &[life_with(5), promise(1)]);
    put(&mut storage, promise(2)).await;
    drop(storage);
    let [first, second] = ["log-1", "log-2"].map(|name| fs::read(path.join(name)).unwrap());
    fs::remove_dir_all(path).unwrap();
    for length in 0..=first.len() {
        let copy = crate::durable::scratch("cut-before-copy");
        fs::write(copy.join("log-1"), &first[..length]).unwrap();
        fs::write(copy.join("log-2"), &second).unwrap();
        let (_, memory) = Storage::open(&copy).expect("it is set aside");
        assert_eq!(memory.is_some(), length == first.len(), "length {length}");
        assert_eq!(copy.join("log-2").exists(), memory.is_some());
        fs::remove_dir_all(copy).unwrap();
    }
}

/// Kumo of before knew no salts, and wrote no lengths: such a log is neither damaged nor overwritten.
#[tokio::test]
async fn a_log_of_the_format_before_is_refused_and_left_alone() {
    let path = crate::durable::scratch("format-before");
    let mut header = b"kumo-log\x02\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
    header.extend(crc32fast::hash(&header).to_le_bytes());
    fs::write(path.join("log-1"), &header).unwrap();
    let refused = Storage::open(&path).map(|_| ()).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("data in {}/log-1 is of an older format (2; ", path.display())));
    assert_eq!(fs::read(path.join("log-1")).unwrap(), header);
    fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_written_leaves_the_log_as_it_was() {
    let (path, mut storage) = begun("no-room").await;
    put(&mut storage, promise(1)).await;
    storage.log_bytes = LOG_BYTES_MAX + 1;
    assert!(storage.wants_snapshot());
    // Every write finds the disk full.
    symlink("/dev/full", path.join("writing-2")).unwrap();
    storage.begin_snapshot(position(), &[life(), promise(1)]);
    assert!(!write_parts(&mut storage).await);
    assert!(path.join("writing-2").symlink_metadata().is_err(), "what there was of it is removed");
    put(&mut storage, promise(2)).await;
    assert!(storage.log_bytes > LOG_BYTES_MAX, "the log is still as long");
    assert!(!storage.wants_snapshot(), "not at once again");
    storage.log_bytes += SNAPSHOT_PAUSE_BYTES;
    assert!(!storage.wants_snapshot(), "nor soon");
    storage.pause.as_mut().unwrap().until = clock::now();
    assert!(storage.wants_snapshot());
    storage.begin_snapshot(position(), &[life_with(1), promise(2)]);
    assert!(write_parts(&mut storage).await);
    assert!(storage.log_bytes < LOG_BYTES_MAX && storage.pause.is_none());
    drop(storage);
    let (_, memory) = Storage::open(&path).unwrap();
    let memory = memory.unwrap();
    assert_eq!(memory.snapshot, Some((position(), vec!["a".into(), "b".into()])));
    assert_eq!(memory.records, [life_with(1), promise(2)]);
    assert!(!path.join("log-1").exists() && !path.join("log-2").exists());
    fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn what_was_written_of_a_snapshot_does_not_fill_the_disk_for_ever() {
    let (path, storage) = begun("leftover").await;
    drop(storage);
    fs::write(path.join("writing-2"), [0; 100]).unwrap();
    let (_, memory) = Storage::open(&path).unwrap();
    assert!(memory.is_some() && !path.join("writing-2").exists());
    fs::remove_dir_all(path).unwrap();
}
