//! A copy that lost something on its way is refused and left as it is; a whole one is a store like others.

use super::faulty::{Crash, FaultyDisk, Plan};
use super::{Model, PATH, content, key, open, open_at, record, tend};
use crate::disk::{Access, Disk};
use crate::engine::Core;
use crate::folder::SEGMENT;
use crate::layout::{checksum, length};
use crate::merge::{Merged, merge_on};
use crate::options::{Options, Sync};
use crate::segment::{HEADER_BYTES, hint_name, number_of};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BACKUP: &str = "/backup";

/// A store, and a backup of it in several segments with hints and a note.
fn backed_up() -> (FaultyDisk, Model) {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    for clock in 1..100 {
        core.put(key(clock).hash, &key(clock).key, &record(clock, 100)).unwrap();
    }
    core.put_note("space", b"seven").unwrap();
    core.commit().unwrap();
    tend(&core);
    core.backup(Path::new(BACKUP), &[]).unwrap();
    let model = content(&core);
    drop(core);
    (disk, model)
}

fn merge(disk: &FaultyDisk, destination: &str, source: &str) -> Result<Merged, String> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    merge_on(&disk, Path::new(destination), &[Path::new(source)]).map_err(|error| error.to_string())
}

fn file(name: &str) -> PathBuf {
    Path::new(BACKUP).join(name)
}

fn segments(disk: &FaultyDisk) -> Vec<PathBuf> {
    let names = disk.names().into_iter().filter(|path| path.starts_with(BACKUP));
    names.filter(|path| path.extension().is_some_and(|end| end == "segment")).collect()
}

fn files(disk: &FaultyDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    disk.names().into_iter().map(|path| (path.clone(), disk.content(&path))).collect()
}

/// Neither a server nor a merge takes it, both say why, and it is as it was.
fn assert_refused(disk: &FaultyDisk, why: &str) {
    let before = files(disk);
    let line = format!("{BACKUP}: the backup is not complete: {why}");
    let opened = open_at(disk, BACKUP, Sync::None).map(|_| "opened");
    assert_eq!(opened.map_err(|error| error.to_string()), Err(line.clone()));
    assert_eq!(merge(disk, "/merged", BACKUP), Err(line));
    assert!(files(disk) == before, "changed: {why}");
}

#[test]
fn a_copy_that_lacks_a_file_is_refused() {
    let (disk, _) = backed_up();
    assert!(
        disk.names().contains(&file("0000000002.hint")),
        "it does not speak for the segment that is gone"
    );
    for name in ["0000000001.segment", "0000000002.segment", "space.note", "MANIFEST"] {
        let copy = disk.copy();
        copy.remove(&file(name)).unwrap();
        assert_refused(&copy, &format!("{name} is missing"));
    }
    let (copy, last) = (disk.copy(), segments(&disk).pop().unwrap());
    copy.remove(&last).unwrap();
    assert_refused(&copy, &format!("{} is missing", last.file_name().unwrap().display()));
}

#[test]
fn a_copy_with_a_file_cut_short_is_refused() {
    let (disk, _) = backed_up();
    for path in segments(&disk).into_iter().chain([file("space.note")]) {
        let content = disk.content(&path);
        for length in [0, content.len() / 2, content.len() - 1] {
            let copy = disk.copy();
            copy.set_content(&path, content[..length].to_vec());
            let name = path.file_name().unwrap().display();
            assert_refused(&copy, &format!("{name} has {length} bytes, not {}", content.len()));
        }
    }
}

#[test]
fn a_copy_with_a_segment_of_another_one_is_refused() {
    let (disk, _) = backed_up();
    let (first, last) = (file("0000000001.segment"), segments(&disk).pop().unwrap());
    let copy = disk.copy();
    copy.set_content(&file("0000000077.segment"), disk.content(&last));
    assert_refused(&copy, "0000000077.segment does not belong to it");
    let copy = disk.copy();
    let (mut longer, bytes) = (disk.content(&first), disk.content(&first).len());
    longer.push(0);
    copy.set_content(&first, longer);
    assert_refused(&copy, &format!("0000000001.segment has {} bytes, not {bytes}", bytes + 1));
}

/// Where the record is that the byte at this position belongs to.
fn record_at(segment: &[u8], position: usize) -> usize {
    let mut offset = HEADER_BYTES as usize;
    loop {
        let next = offset + length(&segment[offset..]).expect("a whole segment");
        if position < next {
            return offset;
        }
        offset = next;
    }
}

/// The backup as older programs wrote it: with a manifest of nothing but lengths.
fn as_of_format_2(disk: &FaultyDisk) {
    let listed = segments(disk).into_iter().chain([file("space.note")]);
    let lines = listed
        .map(|path| format!("{} {}\n", path.file_name().unwrap().display(), disk.content(&path).len()))
        .collect::<String>();
    let crc = checksum(0, lines.as_bytes());
    disk.set_content(&file("MANIFEST"), format!("{lines}crc32 {crc:08x}\n").into_bytes());
    disk.set_content(&file("FORMAT"), b"kumo store 2\n".to_vec());
}

/// No crash tore it: a backup is whole when it gets its name.
#[test]
fn a_copy_with_a_damaged_end_is_refused() {
    let (disk, _) = backed_up();
    let old = disk.copy();
    as_of_format_2(&old);
    let all = segments(&disk).into_iter().rev();
    for (path, disk) in all.flat_map(|path| [(path.clone(), &disk), (path, &old)]) {
        let content = disk.content(&path);
        let last = record_at(&content, content.len() - 1);
        let name = path.file_name().unwrap().display();
        for position in last..content.len() {
            let copy = disk.copy();
            // Read, since there is no hint.
            let hint = path.with_extension("hint");
            if copy.names().contains(&hint) {
                copy.remove(&hint).unwrap();
            }
            let mut flipped = content.clone();
            flipped[position] ^= 1 << (position % 8);
            copy.set_content(&path, flipped);
            assert_refused(&copy, &format!("{name} is damaged at offset {last}"));
        }
    }
}

#[test]
fn a_copy_with_any_byte_of_its_last_segment_damaged_is_refused() {
    let (disk, _) = backed_up();
    let path = segments(&disk).pop().unwrap();
    let (content, name) = (disk.content(&path), path.file_name().unwrap().display());
    for position in 0..content.len() {
        let copy = disk.copy();
        let mut flipped = content.clone();
        flipped[position] ^= 1 << (position % 8);
        copy.set_content(&path, flipped);
        let in_header = (position as u64) < HEADER_BYTES;
        let offset = if in_header { 0 } else { record_at(&content, position) };
        assert_refused(&copy, &format!("{name} is damaged at offset {offset}"));
    }
    let copy = disk.copy();
    copy.set_content(&path, vec![0; content.len()]);
    assert_refused(&copy, &format!("{name} is damaged at offset 0"));
}

/// What a hint says of a segment does not speak for its records.
#[test]
fn no_store_is_made_of_a_copy_with_a_damaged_record() {
    let (disk, _) = backed_up();
    let path = segments(&disk).remove(0);
    assert!(disk.names().contains(&path.with_extension("hint")));
    let (content, name) = (disk.content(&path), path.file_name().unwrap().display());
    for position in (HEADER_BYTES as usize..content.len()).step_by(7) {
        let copy = disk.copy();
        let mut flipped = content.clone();
        flipped[position] ^= 1 << (position % 8);
        copy.set_content(&path, flipped);
        let before = files(&copy);
        let offset = record_at(&content, position);
        let line = format!("{BACKUP}: the backup is not complete: {name} is damaged at offset {offset}");
        let opened = open_at(&copy, BACKUP, Sync::None).map(|_| "opened");
        assert_eq!(opened.map_err(|error| error.to_string()), Err(line));
        assert!(files(&copy) == before, "changed");
    }
}

#[test]
fn a_copy_with_a_damaged_note_is_refused() {
    let (disk, _) = backed_up();
    let mut content = disk.content(&file("space.note"));
    content[9] ^= 1;
    disk.set_content(&file("space.note"), content);
    assert_refused(&disk, "space.note is damaged at offset 0");
}

/// Where a crash can tear it again, a manifest that its removal left behind says nothing.
#[test]
fn a_store_made_of_a_copy_may_have_a_torn_end() {
    let (whole, mut model) = backed_up();
    for manifest_left in [false, true] {
        let disk = whole.copy();
        let (core, _) = open_at(&disk, BACKUP, Sync::None).unwrap();
        for clock in [5000, 5001] {
            core.put(key(clock).hash, &key(clock).key, &record(clock, 50)).unwrap();
        }
        model.insert(key(5000), record(5000, 50));
        core.flush().unwrap();
        disk.crash(Crash::Killed);
        drop(core);
        let active = segments(&disk).pop().unwrap();
        let mut torn = disk.content(&active);
        *torn.last_mut().unwrap() ^= 1;
        disk.set_content(&active, torn.clone());
        if manifest_left {
            disk.set_content(&file("MANIFEST"), whole.content(&file("MANIFEST")));
        }
        let merged = merge(&disk, "/merged", BACKUP).unwrap();
        let (core, opened) = open_at(&disk, BACKUP, Sync::None).unwrap();
        let [cut] = &opened.cuts[..] else { panic!("{opened:?}") };
        let last = record_at(&torn, torn.len() - 1);
        assert_eq!((&cut.file, cut.offset), (&active, last as u64));
        assert_eq!(merged.sources[0].torn_bytes, cut.bytes);
        assert_eq!(content(&core), model);
        assert!(!disk.names().contains(&file("MANIFEST")));
    }
}

/// Which a store would remove when it is opened.
#[test]
fn a_refused_copy_keeps_its_empty_last_segment() {
    let (disk, _) = backed_up();
    disk.rename(Path::new(BACKUP), Path::new("/first")).unwrap();
    let (core, _) = open_at(&disk, "/first", Sync::Always).unwrap();
    core.backup(Path::new(BACKUP), &[]).unwrap();
    let [.., path, empty] = &segments(&disk)[..] else { panic!("{:?}", segments(&disk)) };
    assert_eq!(disk.content(empty).len() as u64, HEADER_BYTES);
    let mut content = disk.content(path);
    let last = record_at(&content, content.len() - 1);
    content[last] ^= 1;
    disk.set_content(path, content);
    assert_refused(&disk, &format!("{} is damaged at offset {last}", path.file_name().unwrap().display()));
}

#[test]
fn a_copy_of_nothing_is_whole() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    core.backup(Path::new(BACKUP), &[]).unwrap();
    let copy = disk.copy();
    copy.set_content(&file("0000000001.segment"), vec![0; HEADER_BYTES as usize]);
    assert_refused(&copy, "0000000001.segment is damaged at offset 0");
    merge(&disk, "/merged", BACKUP).unwrap();
    let (core, opened) = open_at(&disk, BACKUP, Sync::Always).unwrap();
    assert!(opened.cuts.is_empty() && content(&core).is_empty());
    core.put(key(1).hash, &key(1).key, &record(1, 10)).unwrap();
    core.commit().unwrap();
    drop(core);
    let (core, _) = open_at(&disk, BACKUP, Sync::Always).unwrap();
    assert_eq!(content(&core), Model::from([(key(1), record(1, 10))]));
}

#[test]
fn a_copy_with_a_segment_of_another_store_of_the_same_length_is_refused() {
    let ((disk, _), (other, _)) = (backed_up(), backed_up());
    for path in segments(&disk) {
        assert_eq!(disk.content(&path).len(), other.content(&path).len());
        let copy = disk.copy();
        copy.set_content(&path, other.content(&path));
        assert_refused(&copy, &format!("{} does not belong to it", path.file_name().unwrap().display()));
    }
    disk.set_content(&file("MANIFEST"), other.content(&file("MANIFEST")));
    assert_refused(&disk, "0000000001.segment does not belong to it");
}

/// As older programs wrote it.
#[test]
fn a_copy_whose_manifest_has_lengths_only_is_opened() {
    let (disk, model) = backed_up();
    let salted = disk.content(&file("MANIFEST"));
    as_of_format_2(&disk);
    let copy = disk.copy();
    copy.remove(&file("0000000002.segment")).unwrap();
    assert_refused(&copy, "0000000002.segment is missing");
    // Neither format takes the other one's manifest.
    let copy = disk.copy();
    copy.set_content(&file("FORMAT"), b"kumo store 3\n".to_vec());
    assert_refused(&copy, "MANIFEST is damaged");
    let copy = disk.copy();
    copy.set_content(&file("MANIFEST"), salted);
    assert_refused(&copy, "MANIFEST is damaged");
    merge(&disk, "/merged", BACKUP).unwrap();
    for path in ["/merged", BACKUP] {
        let (core, _) = open_at(&disk, path, Sync::None).unwrap();
        assert_eq!(content(&core), model);
    }
    assert_eq!(disk.content(&file("FORMAT")), b"kumo store 4\n");
}

#[test]
fn a_damaged_manifest_is_refused() {
    let (disk, _) = backed_up();
    let manifest = disk.content(&file("MANIFEST"));
    for position in 0..manifest.len() {
        let copy = disk.copy();
        let mut flipped = manifest.clone();
        flipped[position] ^= 1 << (position % 8);
        copy.set_content(&file("MANIFEST"), flipped);
        assert_refused(&copy, "MANIFEST is damaged");
        copy.set_content(&file("MANIFEST"), manifest[..position].to_vec());
        assert_refused(&copy, "MANIFEST is damaged");
    }
}

#[test]
fn the_result_of_a_merge_is_checked_like_a_backup() {
    let (disk, model) = backed_up();
    merge(&disk, "/merged", BACKUP).unwrap();
    let segment = Path::new("/merged/0000000001.segment");
    let copy = disk.copy();
    copy.remove(segment).unwrap();
    let line = "/merged: the backup is not complete: 0000000001.segment is missing";
    assert_eq!(merge(&copy, "/again", "/merged"), Err(line.to_owned()));
    merge(&disk, "/again", "/merged").unwrap();
    let (core, _) = open_at(&disk, "/again", Sync::None).unwrap();
    assert_eq!(content(&core), model);
}

#[test]
fn a_whole_copy_becomes_a_store_whose_files_come_and_go() {
    let (disk, mut model) = backed_up();
    let before = files(&disk);
    merge(&disk, "/merged", BACKUP).unwrap();
    let of_backup = |files: BTreeMap<PathBuf, Vec<u8>>| {
        files.into_iter().filter(|(path, _)| path.starts_with(BACKUP)).collect::<BTreeMap<_, _>>()
    };
    assert!(of_backup(files(&disk)) == of_backup(before), "a merge reads it");
    let first = file("0000000001.segment");
    for round in 1..4 {
        let (core, opened) = open_at(&disk, BACKUP, Sync::Always).unwrap();
        assert_eq!(content(&core), model, "round {round}");
        assert!(!opened.created && opened.cuts.is_empty(), "{opened:?}");
        assert!(!disk.names().contains(&file("MANIFEST")));
        assert_eq!(core.note("space"), Ok(Some(b"seven".to_vec())));
        for clock in 1..100 {
            let record = record(round * 1000 + clock, 100);
            core.put(key(clock).hash, &key(clock).key, &record).unwrap();
            model.insert(key(clock), record);
        }
        core.commit().unwrap();
        tend(&core);
        drop(core);
    }
    assert!(!disk.names().contains(&first), "rewritten long ago");
}

/// As older programs wrote them.
#[test]
fn a_copy_that_never_had_a_manifest_is_opened_as_it_is() {
    let (disk, model) = backed_up();
    disk.remove(&file("MANIFEST")).unwrap();
    disk.set_content(&file("FORMAT"), b"kumo store 1\n".to_vec());
    merge(&disk, "/merged", BACKUP).unwrap();
    for path in ["/merged", BACKUP] {
        let (core, _) = open_at(&disk, path, Sync::None).unwrap();
        assert_eq!(content(&core), model);
    }
}

#[test]
fn a_crash_while_a_copy_is_opened_leaves_one_that_can_be_opened() {
    let (whole, mut model) = backed_up();
    let last = segments(&whole).pop().unwrap();
    let written = |core: &Core| {
        let (key, record) = (key(5), record(5000, 300));
        core.put(key.hash, &key.key, &record)?;
        core.commit()
    };
    let changes = {
        let disk = whole.copy();
        written(&open_at(&disk, BACKUP, Sync::Always).unwrap().0).unwrap();
        disk.changes()
    };
    assert!(changes > 8, "{changes}");
    let older = model.clone();
    model.insert(key(5), record(5000, 300));
    for (change, seed) in (1..=changes).flat_map(|change| (0..12).map(move |seed| (change, seed))) {
        for plan in [Plan::CrashAt(change), Plan::FailAt(change)] {
            let disk = whole.copy();
            disk.plan(plan);
            let wrote = open_at(&disk, BACKUP, Sync::Always).is_ok_and(|(core, _)| written(&core).is_ok());
            let crash = match seed {
                0 => Crash::Killed,
                1 => Crash::PowerFailed,
                seed => Crash::PowerFailedAnyhow(seed),
            };
            disk.crash(crash);
            let context = format!("change {change}, {crash:?}");
            // A merge finds it whole before the server does, and changes nothing.
            let merged = merge(&disk, "/merged", BACKUP).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(merged.items + merged.tombstones, model.len() as u64, "{context}");
            let (core, _) =
                open_at(&disk, BACKUP, Sync::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = content(&core);
            assert!(found == model || !wrote && found == older, "{context}");
            assert_eq!(core.note("space"), Ok(Some(b"seven".to_vec())), "{context}");
            assert!(!disk.names().contains(&file("MANIFEST")), "{context}");
            // Other stores made of it have the same salt there.
            written(&core).unwrap();
            let grown = disk.content(&last).len() - whole.content(&last).len();
            assert!(grown < record(5000, 300).data.len(), "{context}: {grown} bytes behind what was copied");
        }
    }
}

/// Whoever copied it, or moved a store to another disk, did not wait for the disk.
#[test]
fn what_is_written_to_a_copy_does_not_depend_on_what_the_disk_does_not_have_yet() {
    for of in [BACKUP, PATH] {
        let (disk, mut model) = backed_up();
        let at = Path::new("/copied");
        disk.create_folder(at).unwrap();
        for path in disk.names().iter().filter(|path| path.starts_with(of)) {
            let copied = disk.create(&at.join(path.file_name().unwrap())).unwrap();
            copied.write_at(0, &disk.content(path)).unwrap();
        }
        let (core, _) = open_at(&disk, "/copied", Sync::Always).unwrap();
        core.put(key(5).hash, &key(5).key, &record(5000, 300)).unwrap();
        core.commit().unwrap();
        drop(core);
        disk.crash(Crash::PowerFailed);
        model.insert(key(5), record(5000, 300));
        let opened = open_at(&disk, "/copied", Sync::Always).map_err(|error| error.to_string());
        assert!(content(&opened.unwrap().0) == model, "of {of}");
    }
}

/// It was copied to where a store had been, of which a hint was left.
#[test]
fn a_hint_of_old_does_not_stop_a_start_after_a_crash() {
    let (whole, model) = backed_up();
    let last = segments(&whole).pop().unwrap();
    let number = number_of(last.file_name().unwrap().to_str().unwrap(), SEGMENT).unwrap();
    whole.set_content(&file(&hint_name(number + 1)), b"of old".to_vec());
    let changes = {
        let disk = whole.copy();
        open_at(&disk, BACKUP, Sync::Always).unwrap();
        disk.changes()
    };
    for change in 1..=changes {
        let disk = whole.copy();
        disk.plan(Plan::CrashAt(change));
        let _ = open_at(&disk, BACKUP, Sync::Always);
        disk.crash(Crash::Killed);
        let opened = open_at(&disk, BACKUP, Sync::Always).map_err(|error| error.to_string());
        assert!(content(&opened.unwrap().0) == model, "change {change}");
    }
}

/// The folder that has the name is complete, whenever the power fails.
#[test]
fn a_crash_while_a_backup_is_written_leaves_a_whole_one_or_none() {
    let (whole, model) = backed_up();
    let opened = || {
        let disk = whole.copy();
        let (core, _) = open(&disk, Sync::Always).unwrap();
        let before = disk.changes();
        (disk, core, before)
    };
    let (disk, core, before) = opened();
    core.backup(Path::new("/second"), &[]).unwrap();
    let (mut made, changes) = (0, disk.changes() - before);
    for change in 1..=changes {
        let (disk, core, before) = opened();
        disk.plan(Plan::CrashAt(before + change));
        assert!(core.backup(Path::new("/second"), &[]).is_err());
        drop(core);
        disk.crash(Crash::PowerFailed);
        let files: Arc<dyn Disk> = Arc::new(disk.clone());
        match Core::open(files, Path::new("/second"), Access::Read, Options::default()) {
            Ok((copy, _)) => {
                assert_eq!(content(&copy), model, "change {change}");
                made += 1;
            }
            Err(error) => assert_eq!(error.to_string(), "/second: no such store", "change {change}"),
        }
        let (core, _) = open(&disk, Sync::Always).unwrap();
        let again = core.backup(Path::new("/third"), &[]);
        assert!(again.is_ok(), "change {change}: {again:?}");
    }
    assert!(changes > 10 && made <= 1, "{made} of {changes}");
}
