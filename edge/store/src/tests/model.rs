//! What is listed and what is merged is what a plain map says.

use super::faulty::{FaultyDisk, Random};
use super::{Model, PATH, content, key, open, open_at, record};
use crate::disk::Disk;
use crate::merge::{CLUSTER_NOTE, merge_on};
use crate::options::Sync;
use crate::{Engine, OpenError};
use kumo_cluster::{KeyHash, Store};
use std::path::Path;
use std::sync::Arc;

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

#[test]
fn stores_of_different_clusters_are_not_merged() {
    let disk = FaultyDisk::default();
    for (path, cluster) in [("/a", Some("one")), ("/b", None), ("/c", Some("one")), ("/d", Some("other"))] {
        let (core, _) = open_at(&disk, path, Sync::None).unwrap();
        core.put(key(1).hash, &key(1).key, &record(1, 10)).unwrap();
        if let Some(cluster) = cluster {
            core.put_note(CLUSTER_NOTE, cluster.as_bytes()).unwrap();
        }
        core.close().unwrap();
    }
    let files: Arc<dyn Disk> = Arc::new(disk.clone());
    let merged = |to: &str, of: &[&str]| {
        let sources: Vec<&Path> = of.iter().map(Path::new).collect();
        merge_on(&files, Path::new(to), &sources)
            .map(|merged| merged.items)
            .map_err(|error| error.to_string())
    };
    assert_eq!(merged("/all", &["/b", "/a", "/c", "/d"]), Err("/d: of another cluster than /a".to_owned()));
    assert!(!disk.names().iter().any(|path| path.starts_with("/all.unfinished")), "nothing was written");
    assert_eq!(merged("/of-one", &["/b", "/a", "/c"]), Ok(1));
    assert_eq!(merged("/both", &["/of-one", "/d"]), Ok(1), "whoever wants it does it in two steps");
}
