//! A hint speaks for one segment, and is not believed of another one that looks like it from outside.

use super::faulty::{Crash, FaultyDisk};
use super::{Model, PATH, content, key, open, open_at, record, tend};
use crate::layout::checksum;
use crate::options::Sync;
use crate::segment::hint_name;
use std::path::{Path, PathBuf};

/// A store of so many keys from the first one on, in segments with hints. Their lengths do not depend on the keys.
fn filled(first: u64) -> (FaultyDisk, Model) {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    for number in first..first + 100 {
        let mut record = record(number * 7 + 1, 100);
        record.data = vec![number as u8; 100].into();
        core.put(key(number).hash, &key(number).key, &record).unwrap();
    }
    core.commit().unwrap();
    tend(&core);
    let model = content(&core);
    drop(core);
    disk.crash(Crash::Killed);
    (disk, model)
}

fn hint(path: &str, number: u32) -> PathBuf {
    Path::new(path).join(hint_name(number))
}

#[test]
fn a_hint_of_another_segment_of_the_same_name_and_length_is_not_believed() {
    let ((disk, model), (other, _)) = (filled(100), filled(500));
    let segment = Path::new("/store/0000000001.segment");
    assert_eq!(disk.content(segment).len(), other.content(segment).len());
    let hinted = open(&disk.copy(), Sync::Always).unwrap().1.hinted;
    assert!(hinted > 1);
    let right = disk.content(&hint(PATH, 1));
    disk.set_content(&hint(PATH, 1), other.content(&hint(PATH, 1)));
    let (core, opened) = open(&disk, Sync::Always).unwrap();
    assert_eq!(content(&core), model);
    assert_eq!(opened.hinted, hinted - 1, "the segment itself was read");
    tend(&core);
    assert!(disk.content(&hint(PATH, 1)) == right, "it has its own again");
}

/// As older programs wrote it: without the salt.
#[test]
fn a_hint_of_the_first_version_is_not_read_but_replaced() {
    let (disk, model) = filled(100);
    let right = disk.content(&hint(PATH, 1));
    let mut old = [b"kumohnt1", &right[8..12], &right[16..right.len() - 4]].concat();
    let crc = checksum(0, &old);
    old.extend_from_slice(&crc.to_be_bytes());
    let hinted = open(&disk.copy(), Sync::Always).unwrap().1.hinted;
    disk.set_content(&hint(PATH, 1), old);
    let (core, opened) = open(&disk, Sync::Always).unwrap();
    assert_eq!(content(&core), model);
    assert_eq!(opened.hinted, hinted - 1);
    tend(&core);
    assert!(disk.content(&hint(PATH, 1)) == right);
}

/// What two servers write behind the same copy must not be in segments of the same salt.
#[test]
fn stores_made_of_one_copy_have_hints_of_their_own() {
    let (disk, _) = filled(100);
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let copies = ["/first", "/second"];
    for copy in copies {
        core.backup(Path::new(copy), &[]).unwrap();
    }
    let models = [(0, 1000), (1, 3000)].map(|(copy, first)| {
        let (core, _) = open_at(&disk, copies[copy], Sync::Always).unwrap();
        for number in first..first + 100 {
            core.put(key(number).hash, &key(number).key, &record(number * 7 + 1, 100)).unwrap();
        }
        core.commit().unwrap();
        tend(&core);
        content(&core)
    });
    let hints = |copy: &str| -> Vec<u32> {
        (1..50).filter(|number| disk.names().contains(&hint(copy, *number))).collect()
    };
    let numbers = hints(copies[0]);
    assert!(numbers.len() > 3 && numbers == hints(copies[1]), "{numbers:?}");
    for number in numbers {
        let swapped = copies.map(|copy| disk.content(&hint(copy, number)));
        disk.set_content(&hint(copies[0], number), swapped[1].clone());
        disk.set_content(&hint(copies[1], number), swapped[0].clone());
    }
    for (copy, model) in copies.iter().zip(models) {
        let (core, _) = open_at(&disk, copy, Sync::Always).unwrap();
        assert!(content(&core) == model, "{copy}");
    }
}
