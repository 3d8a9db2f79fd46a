//! Random operations on the engine and on a plain map give the same.

use super::faulty::{FaultyDisk, Random};
use super::{Model, PATH, content, key, open, open_at, record, tend};
use crate::disk::Disk;
use crate::engine::Core;
use crate::merge::merge_on;
use crate::options::Sync;
use crate::{Engine, OpenError};
use kumo_cluster::{KeyHash, Kind, Store};
use std::path::Path;
use std::sync::Arc;

#[test]
fn an_engine_with_files_is_an_ordered_map() {
    let mut compacted = 0;
    for seed in 0..60 {
        let disk = FaultyDisk::default();
        let mut random = Random(seed);
        let sync = [Sync::None, Sync::Always][seed as usize % 2];
        let (mut core, opened) = open(&disk, sync).unwrap();
        assert!(opened.created);
        let mut model = Model::new();
        for clock in 1..600 {
            let before = disk.names().len();
            step(&core, &mut model, &mut random, clock);
            match random.below(40) {
                0 => {
                    core.close().unwrap();
                    drop(core);
                    let opened;
                    (core, opened) = open(&disk, sync).unwrap();
                    assert!(opened.cuts.is_empty() && !opened.created);
                    assert_eq!(content(&core), model);
                }
                1 | 2 => tend(&core),
                3 => core.commit().unwrap(),
                4 => backup(&core, &disk, &model, clock),
                _other => {}
            }
            compacted += u64::from(disk.names().len() < before);
        }
        assert_eq!(content(&core), model);
        check_usage(&core, &model);
    }
    assert!(compacted > 100, "compaction happened {compacted} times");
}

#[test]
fn an_engine_in_memory_is_an_ordered_map() {
    for seed in 0..30 {
        let engine = Engine::memory();
        let mut random = Random(seed);
        let mut model = Model::new();
        for clock in 1..2000 {
            // Above and below the size that is kept beside the key.
            let (key, size) = (key(random.below(200)), random.below(2000) as usize);
            if random.below(4) == 0 {
                engine.remove(key.hash, &key.key).unwrap();
                model.remove(&key);
            } else {
                engine.put(key.hash, &key.key, &record(clock, size)).unwrap();
                model.insert(key.clone(), record(clock, size));
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
    }
}

#[test]
fn a_range_of_the_ring_is_scanned_piece_by_piece() {
    let engine = Engine::memory();
    let mut model = Model::new();
    for number in 0..3000 {
        let key = key(number);
        engine.put(key.hash, &key.key, &record(number, 1)).unwrap();
        model.insert(key, record(number, 1));
    }
    let hashes = [0, 1 << 61, 3 << 62, u64::MAX].map(KeyHash);
    for (first, last) in hashes.iter().flat_map(|first| hashes.iter().map(move |last| (*first, *last))) {
        if first > last {
            continue;
        }
        for count in [1, 7, 1000, 5000] {
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let found = engine.scan(first, last, after.as_ref(), count).unwrap();
                let all = found.len() < count;
                listed.extend(found.into_iter().map(|(key, _)| key));
                after = listed.last().cloned();
                if all {
                    break;
                }
            }
            let expected = model.keys().filter(|key| (first..=last).contains(&key.hash));
            assert!(listed.iter().eq(expected), "{first:?} to {last:?} by {count}");
        }
    }
}

#[test]
fn a_merge_takes_the_newest_of_each_key() {
    let mut taken = [0; 3];
    for seed in 0..20 {
        let disk = FaultyDisk::default();
        let mut random = Random(seed);
        let mut expected = Model::new();
        let sources = ["/a", "/b", "/c"];
        for source in sources {
            let (core, _) = open_at(&disk, source, Sync::None).unwrap();
            core.put_note("incarnation", b"1").unwrap();
            for _ in 0..100 {
                let (key, record) = (key(random.below(60)), record(random.below(1000), 20));
                // One version a key and store: what is newest here is what was put here last.
                core.put(key.hash, &key.key, &record).unwrap();
            }
            for (key, record) in content(&core) {
                if expected.get(&key).is_none_or(|held| held.stamp < record.stamp) {
                    expected.insert(key, record);
                }
            }
            core.close().unwrap();
        }
        let before: Vec<_> = disk.names().iter().map(|path| disk.content(path)).collect();
        let files: Arc<dyn Disk> = Arc::new(disk.clone());
        let merged = merge_on(&files, Path::new(PATH), &sources.map(Path::new)).unwrap();
        let (core, _) = open(&disk, Sync::None).unwrap();
        assert_eq!(content(&core), expected);
        assert_eq!(merged.items + merged.tombstones, expected.len() as u64);
        assert_eq!(core.note("incarnation"), Ok(None));
        for source in &merged.sources {
            assert_eq!(source.records, source.added + source.newer + source.older);
            taken = [taken[0] + source.added, taken[1] + source.newer, taken[2] + source.older];
        }
        let after: Vec<_> = disk.names().iter().filter(|path| !path.starts_with(PATH)).cloned().collect();
        assert!(after.iter().map(|path| disk.content(path)).eq(before), "sources are as they were");
        let again = merge_on(&files, Path::new(PATH), &sources.map(Path::new));
        assert_eq!(again, Err(OpenError::Exists(PATH.into())));
        let missing = merge_on(&files, Path::new("/new"), &[Path::new("/none")]);
        assert_eq!(missing, Err(OpenError::Missing("/none".into())));
    }
    assert!(taken.iter().all(|count| *count > 100), "{taken:?}");
}

/// One operation on both.
fn step(core: &Core, model: &mut Model, random: &mut Random, clock: u64) {
    let key = key(random.below(30));
    match random.below(10) {
        0..6 => {
            // Now and then larger than a segment.
            let size = if random.below(60) == 0 { 6000 } else { random.below(200) as usize };
            core.put(key.hash, &key.key, &record(clock, size)).unwrap();
            model.insert(key, record(clock, size));
        }
        6 | 7 => {
            core.remove(key.hash, &key.key).unwrap();
            model.remove(&key);
        }
        8 => core.flush().unwrap(),
        _other => {
            assert_eq!(core.get(key.hash, &key.key).unwrap().as_ref(), model.get(&key));
            let head = core.head(key.hash, &key.key).unwrap();
            assert_eq!(head.map(|head| head.stamp), model.get(&key).map(|record| record.stamp));
        }
    }
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
