//! A crash at every single change of the disk: what was committed is there, nothing is invented, removed stays removed.

use super::faulty::{Crash, FaultyDisk, Plan, Random};
use super::{Model, content, key, open, record, tend};
use crate::engine::Core;
use crate::options::Sync;
use kumo_cluster::{Fault, Record, StoreKey};
use std::collections::BTreeMap;

/// What a script has done, and what may be found afterwards.
#[derive(Default)]
pub struct Expected {
    /// As of the last commit that succeeded.
    committed: Model,
    /// Every state of a key since then.
    since: BTreeMap<StoreKey, Vec<Option<Record>>>,
    pub current: Model,
    note: Vec<Vec<u8>>,
}

impl Expected {
    fn changed(&mut self, key: &StoreKey, to: Option<Record>) {
        self.since.entry(key.clone()).or_default().push(to.clone());
        match to {
            Some(record) => self.current.insert(key.clone(), record),
            None => self.current.remove(key),
        };
    }

    fn committed(&mut self) {
        self.committed = self.current.clone();
        self.since.clear();
    }

    pub fn check(&self, found: &Model, context: &str) {
        let keys = found.keys().chain(self.committed.keys());
        for key in keys {
            let found = found.get(key).cloned();
            let committed = self.committed.get(key).cloned();
            let later = self.since.get(key).is_some_and(|states| states.contains(&found));
            assert!(found == committed || later, "{context}: {key:?} is {found:?}, committed {committed:?}");
        }
    }
}

/// What is done to a store.
#[derive(Clone, Debug)]
pub enum Change {
    Put { key: u64, size: usize },
    Remove(u64),
    Commit,
    Tend,
    Note,
}

/// Told before it is done: a fault leaves it open whether it was.
pub fn apply(core: &Core, change: Change, clock: u64, expected: &mut Expected) -> Result<(), Fault> {
    match change {
        Change::Put { key: number, size } => {
            let (key, record) = (key(number), record(clock, size));
            expected.changed(&key, Some(record.clone()));
            core.put(key.hash, &key.key, &record)
        }
        Change::Remove(number) => {
            let key = key(number);
            expected.changed(&key, None);
            core.remove(key.hash, &key.key)
        }
        Change::Commit => {
            core.commit()?;
            expected.committed();
            Ok(())
        }
        Change::Tend => core.tend(&mut |_| true),
        Change::Note => {
            let content = clock.to_be_bytes().to_vec();
            expected.note.push(content.clone());
            core.put_note("note", &content)?;
            expected.note = vec![content];
            core.files().map_or(Ok(()), |files| files.log.prepare().and_then(|()| files.list()))
        }
    }
}

/// Puts, removes, commits, compacts. Ends at the first fault.
fn script(core: &Core, seed: u64, length: u64, expected: &mut Expected) -> Result<(), Fault> {
    let mut random = Random(seed);
    for clock in 1..=length {
        let key = random.below(12);
        let change = match random.below(12) {
            0..7 => Change::Put { key, size: random.below(250) as usize },
            7 | 8 => Change::Remove(key),
            9 => Change::Commit,
            10 => Change::Tend,
            _other => Change::Note,
        };
        apply(core, change, seed * 1000 + clock, expected)?;
    }
    Ok(())
}

/// Runs the script up to the crash, twice in a row with a second crash on the way back up.
fn crash_at(change: u64, seed: u64, crash: Crash) -> bool {
    let disk = FaultyDisk::default();
    let context = format!("seed {seed}, change {change}, {crash:?}");
    let mut expected = Expected::default();
    disk.plan(Plan::CrashAt(change));
    if let Ok((core, _)) = open(&disk, Sync::Always) {
        let ended = script(&core, seed, 60, &mut expected);
        if !disk.is_down() {
            ended.expect(&context);
            return false;
        }
    }
    disk.crash(crash);
    // The way back up is cut short too, anywhere.
    disk.plan(Plan::CrashAt(disk.changes() + 1 + change % 6));
    drop(open(&disk, Sync::Always));
    disk.crash(crash);
    let (core, _) = open(&disk, Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = content(&core);
    expected.check(&found, &context);
    let note = core.note("note").expect(&context);
    assert!(note.is_none_or(|note| expected.note.contains(&note)), "{context}");
    // It goes on from what was found.
    let mut next = Expected { current: found, ..Expected::default() };
    next.committed();
    script(&core, seed + 500, 30, &mut next).expect(&context);
    tend(&core);
    core.commit().expect(&context);
    drop(core);
    disk.crash(Crash::PowerFailed);
    let (core, opened) = open(&disk, Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(content(&core), next.current, "{context}");
    assert!(opened.cuts.is_empty(), "{context}");
    true
}

fn crash_everywhere(crash: impl Fn(u64) -> Crash) {
    let mut crashes = 0;
    for seed in 0..8 {
        crashes += (1..).take_while(|change| crash_at(*change, seed, crash(seed * 7919 + change))).count();
    }
    assert!(crashes > 500, "{crashes} crashes");
}

#[test]
fn a_killed_process_loses_nothing_committed() {
    crash_everywhere(|_| Crash::Killed);
}

#[test]
fn a_power_failure_loses_nothing_synced() {
    crash_everywhere(|_| Crash::PowerFailed);
}

#[test]
fn a_power_failure_that_wrote_any_sectors_loses_nothing_synced() {
    crash_everywhere(Crash::PowerFailedAnyhow);
}

#[test]
fn what_was_flushed_survives_a_killed_process_without_any_sync() {
    for seed in 0..50 {
        let disk = FaultyDisk::default();
        let (core, _) = open(&disk, Sync::None).unwrap();
        let mut expected = Expected::default();
        script(&core, seed, 200, &mut expected).unwrap();
        core.flush().unwrap();
        let last = key(1);
        core.put(last.hash, &last.key, &record(8888, 10)).unwrap();
        disk.crash(Crash::Killed);
        drop(core);
        let (core, _) = open(&disk, Sync::None).unwrap();
        assert_eq!(content(&core), expected.current);
    }
}

#[test]
fn without_syncs_a_power_failure_loses_the_end_and_nothing_else() {
    let mut lost = 0;
    for seed in 0..300 {
        let disk = FaultyDisk::default();
        let (core, _) = open(&disk, Sync::None).unwrap();
        let mut expected = Expected::default();
        script(&core, seed, 40 + seed % 60, &mut expected).unwrap();
        core.files().unwrap().log.sync().unwrap();
        expected.committed();
        let synced = expected.current.clone();
        // From here on, commits do not sync.
        let mut random = Random(seed);
        for clock in 0..random.below(60) {
            let key = key(random.below(12));
            let record = record(5000 + clock, random.below(250) as usize);
            core.put(key.hash, &key.key, &record).unwrap();
            expected.changed(&key, Some(record));
            core.flush().unwrap();
        }
        disk.crash(Crash::PowerFailedAnyhow(seed));
        drop(core);
        let (core, opened) = open(&disk, Sync::None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let found = content(&core);
        expected.check(&found, &format!("seed {seed}"));
        lost += usize::from(found != expected.current && found != synced && !opened.cuts.is_empty());
    }
    assert!(lost > 50, "{lost} stores lost a part of their ends");
}

#[test]
fn a_failed_call_loses_nothing_that_was_answered() {
    let mut failures = 0;
    for seed in 0..6 {
        let whole = FaultyDisk::default();
        script(&open(&whole, Sync::Always).unwrap().0, seed, 60, &mut Expected::default()).unwrap();
        for change in 1..=whole.changes() {
            let disk = FaultyDisk::default();
            let context = format!("seed {seed}, change {change}");
            disk.plan(Plan::FailAt(change));
            let Ok((core, _)) = open(&disk, Sync::Always) else { continue };
            let mut expected = Expected::default();
            failures += u64::from(script(&core, seed, 60, &mut expected).is_err());
            // The engine goes on, or says that it does not; what it said before stays true.
            let found = content(&core);
            expected.check(&found, &context);
            if core.commit().is_ok() {
                let mut next = Expected { current: found, ..Expected::default() };
                next.committed();
                script(&core, seed + 500, 30, &mut next).expect(&context);
                core.commit().expect(&context);
                expected = next;
                expected.committed();
            }
            drop(core);
            // A restart serves what it reads, which may come from the system's memory: it must stay.
            disk.crash(Crash::Killed);
            let (core, _) = open(&disk, Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
            let served = content(&core);
            expected.check(&served, &context);
            drop(core);
            disk.crash(Crash::PowerFailed);
            let (core, _) = open(&disk, Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(content(&core), served, "{context}");
        }
    }
    assert!(failures > 200, "{failures} failures");
}

/// Two files take turns as a note: which is which must be on the disk before the other one is written to.
#[test]
fn a_note_is_whole_after_a_put_that_failed_and_one_that_crashed() {
    let mut outcomes = [0; 4];
    for (failing, crashing, seed) in (1..10).flat_map(|failing| {
        (1..10).flat_map(move |crashing| (0..8).map(move |seed| (failing, crashing, seed)))
    }) {
        let disk = FaultyDisk::default();
        let (core, _) = open(&disk, Sync::Always).unwrap();
        core.put_note("note", &[1; 1500]).unwrap();
        disk.plan(Plan::FailAt(disk.changes() + failing));
        // Failed or not, it leaves a whole one behind.
        let _ = core.put_note("note", &[2; 1500]);
        disk.plan(Plan::CrashAt(disk.changes() + crashing));
        let third = core.put_note("note", &[3; 1500]);
        disk.crash(Crash::PowerFailedAnyhow(seed * 31 + failing * 7 + crashing));
        drop(core);
        let (core, _) = open(&disk, Sync::Always).unwrap();
        let note = core.note("note").unwrap_or_else(|fault| panic!("{failing} {crashing} {seed}: {fault}"));
        let found = note.expect("the first one was durable")[0];
        assert!(third.is_err() || found == 3, "{failing} {crashing} {seed}: {found}");
        outcomes[usize::from(found)] += 1;
    }
    assert!(outcomes[1..].iter().all(|&count| count > 0), "{outcomes:?}");
}
