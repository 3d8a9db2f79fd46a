//! Any operations, in any order, do the same to the engine and to a plain map; and a crash anywhere between them loses
//! nothing that was committed. A failure is shrunk to the few operations it takes.
//!
//! `PROPTEST_CASES=10000 PROPTEST_RNG_SEED=2 cargo nextest run -p kumo-store properties` for more.

use super::crash::{Change, Expected, apply};
use super::faulty::{Crash, FaultyDisk, Plan};
use super::{Model, content, key, open, open_at, record, tend};
use crate::engine::Core;
use crate::options::Sync;
use crate::{Engine, OpenError};
use kumo_cluster::{KeyHash, Kind, Store};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use std::cell::Cell;
use std::path::Path;

/// What is done to an engine and to its model.
#[derive(Clone, Debug)]
enum Step {
    Change(Change),
    Read(u64),
    Flush,
    Tend,
    Reopen,
    Backup,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => change(30).prop_map(Step::Change),
        10 => (0..30u64).prop_map(Step::Read),
        8 => Just(Step::Flush),
        4 => Just(Step::Tend),
        2 => Just(Step::Reopen),
        2 => Just(Step::Backup),
    ]
}

fn change(keys: u64) -> impl Strategy<Value = Change> {
    // Now and then larger than a segment.
    let size = prop_oneof![60 => 0..250usize, 1 => Just(6000)];
    prop_oneof![
        12 => (0..keys, size).prop_map(|(key, size)| Change::Put { key, size }),
        4 => (0..keys).prop_map(Change::Remove),
        2 => Just(Change::Commit),
        2 => Just(Change::Tend),
        1 => Just(Change::Note),
    ]
}

fn crash() -> impl Strategy<Value = Crash> {
    prop_oneof![
        Just(Crash::Killed),
        Just(Crash::PowerFailed),
        any::<u64>().prop_map(Crash::PowerFailedAnyhow)
    ]
}

/// The same cases in every run, unless others are asked for.
fn cases(count: u32) -> TestRunner {
    let asked = |name: &str| std::env::var_os(name).is_some();
    let default = Config { failure_persistence: None, ..Config::default() };
    let cases = if asked("PROPTEST_CASES") { default.cases } else { count };
    let rng_seed = if asked("PROPTEST_RNG_SEED") { default.rng_seed } else { RngSeed::Fixed(1) };
    TestRunner::new(Config { cases, rng_seed, ..default })
}

#[test]
fn an_engine_with_files_is_an_ordered_map() {
    let compacted = Cell::new(0);
    let sync = prop_oneof![Just(Sync::None), Just(Sync::Always)];
    let same = cases(120).run(&(sync, vec(step(), 1..600)), |(sync, steps)| {
        let disk = FaultyDisk::default();
        let (mut core, opened) = open(&disk, sync).unwrap();
        assert!(opened.created);
        let mut expected = Expected::default();
        for (clock, step) in (1..).zip(steps) {
            let before = disk.names().len();
            match step {
                Step::Change(change) => apply(&core, change, clock, &mut expected).unwrap(),
                Step::Read(number) => check_key(&core, &expected.current, number),
                Step::Flush => core.flush().unwrap(),
                Step::Tend => tend(&core),
                Step::Reopen => {
                    core.close().unwrap();
                    drop(core);
                    let opened;
                    (core, opened) = open(&disk, sync).unwrap();
                    assert!(opened.cuts.is_empty() && !opened.created);
                    assert_eq!(content(&core), expected.current);
                }
                Step::Backup => backup(&core, &disk, &expected.current, clock),
            }
            compacted.set(compacted.get() + u64::from(disk.names().len() < before));
        }
        assert_eq!(content(&core), expected.current);
        check_usage(&core, &expected.current);
        Ok(())
    });
    same.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(compacted.get() > 100, "compaction happened {} times", compacted.get());
}

#[test]
fn an_engine_in_memory_is_an_ordered_map() {
    // Above and below the size that is kept beside the key.
    let put = (0..200u64, 0..2000usize).prop_map(|(key, size)| (key, Some(size)));
    let step = prop_oneof![3 => put, 1 => (0..200u64).prop_map(|key| (key, None))];
    let same = cases(60).run(&vec(step, 1..2000), |steps| {
        let engine = Engine::memory();
        let mut model = Model::new();
        for (clock, (number, size)) in (1..).zip(steps) {
            let key = key(number);
            match size {
                None => {
                    engine.remove(key.hash, &key.key).unwrap();
                    model.remove(&key);
                }
                Some(size) => {
                    engine.put(key.hash, &key.key, &record(clock, size)).unwrap();
                    model.insert(key.clone(), record(clock, size));
                }
            }
            assert_eq!(engine.get(key.hash, &key.key).unwrap().as_ref(), model.get(&key));
        }
        engine.commit().unwrap();
        let keys = engine.scan(KeyHash(0), KeyHash(u64::MAX), None, usize::MAX).unwrap();
        assert!(keys.iter().map(|(key, _)| key).eq(model.keys()));
        assert_eq!(engine.usage().items + engine.usage().tombstones, model.len() as u64);
        assert_eq!(engine.usage().file_bytes, 0);
        engine.put_note("note", b"1").unwrap();
        assert_eq!(engine.note("note"), Ok(Some(b"1".to_vec())));
        assert!(engine.backup(Path::new("/nowhere"), &[]).is_err());
        Ok(())
    });
    same.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_crash_anywhere_loses_nothing_committed() {
    let crashes = Cell::new(0);
    let cases_of = (vec(change(12), 1..80), 1..250u64, crash());
    let kept = cases(600).run(&cases_of, |(changes, at, crash)| {
        let disk = FaultyDisk::default();
        let mut expected = Expected::default();
        disk.plan(Plan::CrashAt(at));
        if let Ok((core, _)) = open(&disk, Sync::Always) {
            let mut changes = (1..).zip(changes);
            let ended = changes.try_for_each(|(clock, change)| apply(&core, change, clock, &mut expected));
            assert!(disk.is_down() || ended.is_ok(), "only a crash stops it: {ended:?}");
        }
        crashes.set(crashes.get() + u64::from(disk.is_down()));
        disk.crash(crash);
        let (core, _) = open(&disk, Sync::Always).unwrap();
        expected.check(&content(&core), "after the crash");
        Ok(())
    });
    kept.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(crashes.get() > 100, "{} crashes", crashes.get());
}

fn check_key(core: &Core, model: &Model, number: u64) {
    let key = key(number);
    assert_eq!(core.get(key.hash, &key.key).unwrap().as_ref(), model.get(&key));
    let head = core.head(key.hash, &key.key).unwrap();
    assert_eq!(head.map(|head| head.stamp), model.get(&key).map(|record| record.stamp));
}

fn backup(core: &Core, disk: &FaultyDisk, model: &Model, clock: u64) {
    core.put_note("space", b"7").unwrap();
    core.put_note("incarnation", b"9").unwrap();
    let path = format!("/backup-{clock}");
    core.backup(Path::new(&path), &["incarnation"]).unwrap();
    assert!(matches!(core.backup(Path::new(&path), &[]), Err(OpenError::Exists(_))));
    // What is written after it changes nothing of it.
    let later = key(99);
    core.put(later.hash, &later.key, &record(clock, 10)).unwrap();
    core.remove(later.hash, &later.key).unwrap();
    let (copy, opened) = open_at(disk, &path, Sync::None).unwrap();
    assert!(!opened.created && opened.cuts.is_empty());
    assert_eq!(content(&copy), *model);
    assert_eq!(copy.note("space"), Ok(Some(b"7".to_vec())));
    assert_eq!(copy.note("incarnation"), Ok(None));
    // It is a store: it takes writes, and the one it came from does not see them.
    copy.put(later.hash, &later.key, &record(clock, 10)).unwrap();
    tend(&copy);
    copy.close().unwrap();
    assert_eq!(core.get(later.hash, &later.key), Ok(None));
}

fn check_usage(core: &Core, model: &Model) {
    let usage = core.usage();
    let values = model.values().filter(|record| record.kind == Kind::Value).count() as u64;
    assert_eq!((usage.items, usage.tombstones), (values, model.len() as u64 - values));
    let live: usize = model.iter().map(|(key, record)| key.key.len() + record.data.len()).sum();
    assert_eq!(usage.live_bytes, live as u64);
    assert!(usage.file_bytes >= usage.live_bytes);
}
