//! Damaged files: named with file and offset, or the torn end cut. Never a panic, never wrong data.

use super::faulty::{Crash, FaultyDisk, Random};
use super::{Model, PATH, content, key, open, options, record, tend};
use crate::disk::{Access, Disk};
use crate::engine::Core;
use crate::error::OpenError;
use crate::options::{Options, Sync};
use crate::recovery::Opened;
use bytes::Bytes;
use kumo_cluster::{Fault, KeyHash, Record};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A small store of several segments with hints, notes and removed keys; everything is synced, and marked so.
fn sample() -> (FaultyDisk, Model) {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    for clock in 1..90 {
        let key = key(clock % 60);
        if clock % 5 == 0 {
            core.remove(key.hash, &key.key).unwrap();
        } else {
            core.put(key.hash, &key.key, &record(clock, 60)).unwrap();
        }
        if clock % 10 == 0 {
            core.commit().unwrap();
        }
        if clock % 40 == 0 {
            tend(&core);
        }
    }
    core.put_note("space", b"seven").unwrap();
    core.commit().unwrap();
    let model = content(&core);
    drop(core);
    disk.crash(Crash::Killed);
    (disk, model)
}

/// Reads all that can be read; what cannot must say so.
/// Older versions count as right if an end was cut, or may be missing.
fn judge(disk: &FaultyDisk, model: &Model, verify: bool, ends: Ends, context: &str) -> Outcome {
    let files: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = Options { verify, ..options(Sync::Always) };
    let (core, opened) = match Core::open(files, Path::new(PATH), Access::Write, options) {
        Ok(opened) => opened,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains(PATH), "{context}: {text}");
            assert!(!text.contains('\n'), "{context}: {text}");
            return Outcome::Refused(error);
        }
    };
    let mut faults = 0;
    for (key, _) in core.scan(KeyHash(0), KeyHash(u64::MAX), None, usize::MAX) {
        match core.get(key.hash, &key.key) {
            Ok(Some(found)) if opened.cuts.is_empty() && ends == Ends::Whole => {
                assert_eq!(model.get(&key), Some(&found), "{context}: {key:?}");
            }
            // Behind a cut, an older version than the one that was cut.
            Ok(Some(found)) => assert!(found.stamp.clock.0 < 90, "{context}"),
            Ok(None) => panic!("{context}: {key:?} was scanned and is not there"),
            Err(Fault::Damaged(text)) => {
                assert!(text.contains("damaged at offset"), "{context}: {text}");
                faults += 1;
            }
            Err(fault) => panic!("{context}: {fault}"),
        }
    }
    if core.note("space") != Ok(Some(b"seven".to_vec())) {
        assert!(matches!(core.note("space"), Err(Fault::Damaged(_))), "{context}");
        faults += 1;
    }
    // Compaction meets the same and keeps what it cannot read.
    let before = core.usage();
    let _ = core.tend(&mut |_| true);
    let after = core.usage();
    assert_eq!((before.items, before.tombstones), (after.items, after.tombstones), "{context}");
    Outcome::Opened { cut: !opened.cuts.is_empty(), faults }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Whole,
    /// A file that ends where a record ends looks as if there had never been more.
    Missing,
}

enum Outcome {
    Refused(OpenError),
    Opened { cut: bool, faults: usize },
}

fn files(disk: &FaultyDisk) -> Vec<PathBuf> {
    disk.names().into_iter().filter(|path| !path.ends_with("LOCK")).collect()
}

#[test]
fn every_flipped_byte_is_found_or_does_not_matter() {
    let (disk, model) = sample();
    let (mut refused, mut cuts, mut faults) = (0, 0, 0);
    for path in files(&disk) {
        let content = disk.content(&path);
        for position in 0..content.len() {
            for verify in [false, true] {
                let copy = disk.copy();
                let mut flipped = content.clone();
                flipped[position] ^= 1 << (position % 8);
                copy.set_content(&path, flipped.clone());
                let context = format!("{} at {position}, verify {verify}", path.display());
                match judge(&copy, &model, verify, Ends::Whole, &context) {
                    Outcome::Refused(error) => {
                        refused += 1;
                        assert_eq!(copy.content(&path), flipped, "{context}: not overwritten");
                        if let OpenError::Fault(Fault::Damaged(text)) = &error {
                            assert!(text.contains("damaged at offset"), "{context}: {text}");
                            let name = path.file_name().unwrap().to_str().unwrap();
                            assert!(text.contains(name) || name.ends_with(".hint"), "{context}: {text}");
                        }
                    }
                    Outcome::Opened { cut, faults: found } => {
                        cuts += usize::from(cut);
                        faults += found;
                        let segment = path.extension().is_some_and(|extension| extension == "segment");
                        assert!(cut || found > 0 || !segment || !verify, "{context}: nobody noticed");
                    }
                }
            }
        }
    }
    // Whatever was marked as synced is damage, not a torn end: few cuts.
    assert!(refused > 3000 && faults > 500, "{refused} refused, {faults} faults");
    assert!(cuts > 0 && cuts < 1500, "{cuts} cuts");
}

#[test]
fn a_file_cut_anywhere_is_never_wrong_data() {
    let (disk, model) = sample();
    for path in files(&disk) {
        let content = disk.content(&path);
        for length in 0..content.len() {
            let copy = disk.copy();
            copy.set_content(&path, content[..length].to_vec());
            judge(
                &copy,
                &model,
                length % 2 == 0,
                Ends::Missing,
                &format!("{} cut to {length}", path.display()),
            );
        }
    }
}

#[test]
fn files_of_random_bytes_do_no_harm() {
    let (disk, model) = sample();
    let mut random = Random(1);
    for _ in 0..300 {
        let copy = disk.copy();
        let all = files(&disk);
        let path = &all[random.below(all.len() as u64) as usize];
        let mut content = disk.content(path);
        let from = random.below(content.len() as u64 + 1) as usize;
        content.truncate(from);
        content.extend((0..random.below(3000)).map(|_| random.below(256) as u8));
        copy.set_content(path, content);
        judge(
            &copy,
            &model,
            random.below(2) == 0,
            Ends::Missing,
            &format!("{} from {from} on", path.display()),
        );
    }
}

#[test]
fn a_torn_end_is_cut_and_counted() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::None).unwrap();
    let (kept, torn) = (key(1), key(2));
    core.put(kept.hash, &kept.key, &record(1, 50)).unwrap();
    core.put(torn.hash, &torn.key, &record(2, 50)).unwrap();
    core.flush().unwrap();
    disk.crash(Crash::Killed);
    drop(core);
    let segment =
        files(&disk).into_iter().find(|path| path.extension().unwrap_or_default() == "segment").unwrap();
    let mut content = disk.content(&segment);
    content.pop();
    let length = content.len() as u64;
    disk.set_content(&segment, content);
    let (core, opened) = open(&disk, Sync::None).unwrap();
    let [cut] = &opened.cuts[..] else { panic!("{opened:?}") };
    assert_eq!((cut.file.clone(), cut.offset + cut.bytes), (segment.clone(), length));
    assert_eq!(opened.items, 1);
    assert_eq!(core.get(torn.hash, &torn.key), Ok(None));
    assert_eq!(core.get(kept.hash, &kept.key), Ok(Some(record(1, 50))));
    assert_eq!(disk.content(&segment).len() as u64, cut.offset);
}

#[test]
fn a_value_that_holds_records_is_not_taken_for_them() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::None).unwrap();
    let (first, forged) = (key(1), key(2));
    core.put(first.hash, &first.key, &record(1, 50)).unwrap();
    core.flush().unwrap();
    // A client that read the files of another store writes them into this one, and its record is torn.
    let mut value = record(3, 0);
    value.data = Bytes::from(disk.content(Path::new("/store/0000000001.segment")).repeat(9));
    core.put(forged.hash, &forged.key, &value).unwrap();
    core.flush().unwrap();
    disk.crash(Crash::Killed);
    drop(core);
    let segment = Path::new("/store/0000000001.segment");
    let mut content = disk.content(segment);
    content.pop();
    disk.set_content(segment, content);
    let (core, opened) = open(&disk, Sync::None).unwrap();
    assert_eq!((opened.items, opened.cuts.len()), (1, 1));
    assert_eq!(core.get(forged.hash, &forged.key), Ok(None));
}

/// Its blocks look like the beginnings of more large records than recovery is ready to sum.
fn many_large_records() -> Record {
    let mut block = [0xff; 64];
    // No key, the kind of a value, and 8192 bytes in all: the budget is spent to its last byte.
    block[4..10].copy_from_slice(&[0, 0, 0, 0, 0x1f, 0xd5]);
    block[42] = 1;
    Record { data: Bytes::from(block.repeat(1024)), ..record(3, 0) }
}

fn open_large(disk: &FaultyDisk) -> Result<(Core, Opened), OpenError> {
    let options = Options { segment_bytes: 1 << 20, ..options(Sync::None) };
    Core::open(Arc::new(disk.clone()), Path::new(PATH), Access::Write, options)
}

#[test]
fn a_torn_value_that_looks_like_many_large_records_is_cut() {
    let disk = FaultyDisk::default();
    let (core, _) = open_large(&disk).unwrap();
    let (kept, torn) = (key(1), key(2));
    core.put(kept.hash, &kept.key, &record(1, 50)).unwrap();
    core.put(torn.hash, &torn.key, &many_large_records()).unwrap();
    core.flush().unwrap();
    disk.crash(Crash::Killed);
    drop(core);
    let segment = Path::new("/store/0000000001.segment");
    let mut content = disk.content(segment);
    content.pop();
    disk.set_content(segment, content);
    let (core, opened) = open_large(&disk).expect("a torn end is no damage");
    assert_eq!((opened.items, opened.cuts.len()), (1, 1));
    assert_eq!(core.get(torn.hash, &torn.key), Ok(None));
    assert_eq!(core.get(kept.hash, &kept.key), Ok(Some(record(1, 50))));
}

#[test]
fn a_damaged_value_that_looks_like_many_large_records_is_refused() {
    // Bytes of the record from its key on: in its data, or the length of its data.
    const DATA: isize = 1000;
    const LENGTH: isize = -10;
    // With a mark, the later record need not be found. Without, it is where it is expected, or it is short.
    let cases = [
        (true, 9000, DATA),
        (true, 9000, LENGTH),
        (false, 9000, DATA),
        (false, 50, DATA),
        (false, 50, LENGTH),
    ];
    for (synced, later_bytes, damaged) in cases {
        let context = format!("synced {synced}, {later_bytes} bytes behind, damaged at {damaged}");
        let disk = FaultyDisk::default();
        let (core, _) = open_large(&disk).unwrap();
        let (large, later) = (key(2), key(3));
        core.put(large.hash, &large.key, &many_large_records()).unwrap();
        if synced {
            core.files().unwrap().log.sync().unwrap();
        }
        core.put(later.hash, &later.key, &record(4, later_bytes)).unwrap();
        core.flush().unwrap();
        disk.crash(Crash::Killed);
        drop(core);
        let segment = Path::new("/store/0000000001.segment");
        let mut content = disk.content(segment);
        let found = content.windows(large.key.len()).position(|window| window == &large.key[..]).unwrap();
        content[found.saturating_add_signed(damaged)] ^= 1;
        disk.set_content(segment, content.clone());
        let Err(OpenError::Fault(Fault::Damaged(text))) = open_large(&disk) else { panic!("{context}") };
        assert!(text.contains("damaged at offset 20: wrong checksum"), "{context}: {text}");
        assert_eq!(disk.content(segment), content, "{context}: not overwritten");
    }
}

/// All of it was on the disk when the server was stopped: no crash can have torn it.
#[test]
fn what_was_synced_before_a_stop_is_damage_and_no_torn_end() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    core.put(key(1).hash, &key(1).key, &record(1, 100)).unwrap();
    core.commit().unwrap();
    let path = Path::new(PATH).join("0000000001.segment");
    let first = disk.content(&path).len();
    core.put(key(2).hash, &key(2).key, &record(2, 100)).unwrap();
    core.put(key(3).hash, &key(3).key, &record(3, 100)).unwrap();
    core.commit().unwrap();
    let synced = disk.content(&path).len();
    core.close().unwrap();
    drop(core);
    let content = disk.content(&path);
    for position in first..synced {
        let copy = disk.copy();
        copy.crash(Crash::Killed);
        let mut flipped = content.clone();
        flipped[position] ^= 1 << (position % 8);
        copy.set_content(&path, flipped);
        let opened = open(&copy, Sync::Always).map(|(_, opened)| opened);
        let damaged = matches!(&opened, Err(OpenError::Fault(Fault::Damaged(_))));
        assert!(damaged, "byte {position}: {opened:?}");
    }
}

/// Whoever opens a store that turns out not to be his leaves it as it was.
#[test]
fn a_store_to_which_nothing_was_written_stays_as_it_is() {
    let (disk, _) = sample();
    drop(open(&disk, Sync::Always).unwrap());
    let segments = |disk: &FaultyDisk| -> Vec<(PathBuf, Vec<u8>)> {
        let segments =
            files(disk).into_iter().filter(|path| path.extension().is_some_and(|end| end == "segment"));
        segments.map(|path| (path.clone(), disk.content(&path))).collect()
    };
    let before = segments(&disk);
    let (core, _) = open(&disk, Sync::Always).unwrap();
    core.close().unwrap();
    drop(core);
    assert!(segments(&disk) == before);
}

#[test]
fn what_was_found_unreadable_is_counted_until_it_is_read_or_written_over() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    for number in 1..=4 {
        core.put(key(number).hash, &key(number).key, &record(number, 20)).unwrap();
    }
    core.commit().unwrap();
    let name = Path::new(PATH).join(crate::segment::segment_name(1));
    let whole = disk.content(&name);
    let mut damaged = whole.clone();
    damaged[crate::segment::HEADER_BYTES as usize..].fill(7);
    disk.set_content(&name, damaged);
    let read = |number: u64| core.get(key(number).hash, &key(number).key);
    assert_eq!(core.usage().unreadable, 0, "nobody has looked");
    for number in [1, 2, 2, 3] {
        assert!(matches!(read(number), Err(Fault::Damaged(_))));
    }
    assert_eq!(core.usage().unreadable, 3);
    core.put(key(1).hash, &key(1).key, &record(9, 20)).unwrap();
    core.remove(key(2).hash, &key(2).key).unwrap();
    assert_eq!(core.usage().unreadable, 1);
    // The disk had a bad moment.
    disk.set_content(&name, whole);
    assert_eq!(read(3), Ok(Some(record(3, 20))));
    assert_eq!(core.usage().unreadable, 0);
}
