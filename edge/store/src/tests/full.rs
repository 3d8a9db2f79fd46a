//! A full disk refuses writes, changes nothing, keeps reading, and recovers.

use super::faulty::{Crash, FaultyDisk, Random};
use super::{Model, content, key, open, record, tend};
use crate::notes::{NOTE_BYTES_MAX, ROOM_BYTES};
use crate::options::Sync;
use kumo_cluster::Fault;

#[test]
fn a_full_disk_refuses_and_recovers() {
    for seed in 0..40 {
        let disk = FaultyDisk::default();
        let (core, _) = open(&disk, Sync::Always).unwrap();
        let log = &core.files().unwrap().log;
        let mut random = Random(seed);
        let mut model = Model::new();
        let (mut refused, mut clock) = (0, 0);
        disk.limit(Some(2 * ROOM_BYTES + 20_000 + seed * 100));
        while refused < 20 {
            clock += 1;
            let (key, record) = (key(1000 + clock), record(clock, random.below(200) as usize));
            match core.put(key.hash, &key.key, &record) {
                Ok(()) => {
                    model.insert(key.clone(), record);
                }
                Err(fault) => {
                    assert_eq!(fault, Fault::Full);
                    assert!(log.is_full());
                    refused += 1;
                }
            }
            assert_eq!(core.get(key.hash, &key.key).unwrap().as_ref(), model.get(&key));
            // What was accepted never fails afterwards.
            core.commit().unwrap();
            // A hint that does not fit is no harm.
            let _ = core.tend(&mut |_| true);
        }
        assert_eq!(content(&core), model);
        disk.limit(None);
        log.prepare().unwrap();
        assert!(!log.is_full(), "seen without a write");
        let key = key(1);
        core.put(key.hash, &key.key, &record(1, 100)).unwrap();
        model.insert(key, record(1, 100));
        core.commit().unwrap();
        tend(&core);
        disk.crash(Crash::PowerFailed);
        drop(core);
        let (core, _) = open(&disk, Sync::Always).unwrap();
        assert_eq!(content(&core), model);
    }
}

/// What could be removed is not kept because a hint cannot be written.
#[test]
fn garbage_goes_though_no_hint_fits() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let log = &core.files().unwrap().log;
    let put = |number, clock| {
        let key = key(number);
        core.put(key.hash, &key.key, &record(clock, 200)).and_then(|()| core.commit())
    };
    let mut clock = 0;
    while log.closed_segments().len() < 4 {
        clock += 1;
        put(1, clock).unwrap();
    }
    core.write_hints().unwrap();
    let overwritten = clock;
    while log.closed_segments().len() < 6 {
        clock += 1;
        put(clock, clock).unwrap();
    }
    let before = content(&core);
    disk.limit(Some(0));
    assert_eq!(core.tend(&mut |_| true), Err(Fault::Full), "the hint does not fit");
    assert_eq!(log.unhinted().len(), 2);
    assert_eq!(log.closed_segments().len(), 2, "those without a hint are left");
    disk.limit(None);
    tend(&core);
    assert!(log.unhinted().is_empty());
    assert_eq!(content(&core), before);
    assert_eq!(core.get(key(1).hash, &key(1).key), Ok(Some(record(overwritten, 200))));
}

/// Nor is what never had one.
#[test]
fn garbage_goes_though_it_has_no_hint() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let log = &core.files().unwrap().log;
    let key = key(1);
    let mut clock = 0;
    while log.closed_segments().len() < 4 {
        clock += 1;
        core.put(key.hash, &key.key, &record(clock, 200)).and_then(|()| core.commit()).unwrap();
    }
    disk.limit(Some(0));
    tend(&core);
    assert!(log.closed_segments().is_empty());
    assert_eq!(core.get(key.hash, &key.key), Ok(Some(record(clock, 200))));
}

/// A server that cannot say which hash space it is in must end, though all it has could still be read.
#[test]
fn a_full_disk_takes_notes() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    for name in ["lives", "space"] {
        core.put_note(name, b"first").unwrap();
    }
    let key = key(1);
    core.put(key.hash, &key.key, &record(1, 10)).unwrap();
    core.commit().unwrap();
    // Not a byte is left for anybody.
    disk.limit(Some(0));
    let large = record(2, 4 << 20);
    assert_eq!(core.put(key.hash, &key.key, &large), Err(Fault::Full));
    for round in 0..50u8 {
        let long = vec![round; 100 * usize::from(round)];
        for (name, content) in [("space", &long[..]), ("lives", b"short"), ("space", b"and shorter")] {
            core.put_note(name, content).unwrap_or_else(|fault| panic!("{name} in round {round}: {fault}"));
            assert_eq!(core.note(name).unwrap().as_deref(), Some(content));
        }
    }
    // Longer than there is room for: refused, and the old one is there.
    assert_eq!(core.put_note("space", &vec![1; NOTE_BYTES_MAX]), Err(Fault::Full));
    assert_eq!(core.note("space"), Ok(Some(b"and shorter".to_vec())));
    // So does a process that starts on such a disk.
    disk.crash(Crash::Killed);
    drop(core);
    let (core, _) = open(&disk, Sync::Always).unwrap();
    assert_eq!(core.get(key.hash, &key.key), Ok(Some(record(1, 10))));
    core.put_note("lives", b"another").unwrap();
    assert_eq!(core.note("lives"), Ok(Some(b"another".to_vec())));
    disk.limit(None);
    core.put_note("space", &vec![1; NOTE_BYTES_MAX]).unwrap();
    core.put_note("other", b"new").unwrap();
}

/// The note is small and the reserve of the next one is not: that it does not fit is no reason to end.
#[test]
fn a_note_that_fits_is_taken_though_no_room_can_be_reserved() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    assert_eq!(core.trouble(), None);
    let used: u64 = disk.names().iter().map(|path| disk.space(path)).sum();
    // The first takes the room; for a second one there is not enough.
    disk.limit(Some(used + ROOM_BYTES - 1));
    for name in ["lives", "cluster", "space"] {
        core.put_note(name, b"small").unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(core.note(name), Ok(Some(b"small".to_vec())));
    }
    let Some(Fault::Io(text)) = core.trouble() else { panic!("it is told that the room is lacking") };
    assert_eq!(text, "reserve space for /store/ROOM: no storage space");
    disk.limit(None);
    core.files().unwrap().folder.keep_room();
    assert_eq!(core.trouble(), None, "seen without a note");
}

#[test]
fn a_note_is_taken_though_reserving_fails() {
    // Whatever fails on the way: reserving, writing or giving names.
    let mut failures = 0;
    for change in 1..20 {
        let disk = FaultyDisk::default();
        let (core, _) = open(&disk, Sync::Always).unwrap();
        core.put_note("space", b"old").unwrap();
        disk.plan(super::faulty::Plan::FailAt(disk.changes() + change));
        let result = core.put_note("space", b"new");
        disk.plan(super::faulty::Plan::Nothing);
        let found = core.note("space").unwrap();
        match result {
            Ok(()) => assert_eq!(found.as_deref(), Some(&b"new"[..])),
            Err(fault) => {
                failures += 1;
                assert!(!fault.to_string().contains("reserve"), "{fault}");
                assert!([&b"old"[..], b"new"].contains(&found.as_deref().unwrap()), "{found:?}");
            }
        }
    }
    // Two writes, the sync, the exchange, the sync of the folder; not what is reserved before and after.
    assert_eq!(failures, 5);
}

#[test]
fn a_disk_that_cannot_promise_space_keeps_what_it_accepted() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::None).unwrap();
    let key = key(1);
    core.put(key.hash, &key.key, &record(1, 1000)).unwrap();
    // As if the reservation had been worth nothing.
    let segment = disk.names().into_iter().find(|path| path.extension().unwrap_or_default() == "segment");
    let segment = segment.unwrap();
    disk.forget_reservation(&segment);
    disk.limit(Some(100));
    assert_eq!(core.flush(), Err(Fault::Full));
    assert_eq!(core.get(key.hash, &key.key), Ok(Some(record(1, 1000))), "read from the buffer");
    assert_eq!(core.put(key.hash, &key.key, &record(2, 10)), Err(Fault::Full));
    assert_eq!(core.flush(), Err(Fault::Full));
    disk.limit(None);
    core.flush().unwrap();
    disk.crash(Crash::Killed);
    drop(core);
    let (core, _) = open(&disk, Sync::None).unwrap();
    assert_eq!(core.get(key.hash, &key.key), Ok(Some(record(1, 1000))));
}

#[test]
fn after_a_failed_sync_nothing_is_accepted() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    let key = key(1);
    core.put(key.hash, &key.key, &record(1, 10)).unwrap();
    core.flush().unwrap();
    disk.plan(super::faulty::Plan::FailAt(disk.changes() + 1));
    let Err(Fault::Io(text)) = core.commit() else { panic!("a sync that fails") };
    assert!(text.starts_with("sync /store/"), "{text}");
    assert!(core.commit().is_err() && core.flush().is_err());
    assert!(core.put(key.hash, &key.key, &record(2, 10)).is_err());
    assert_eq!(core.get(key.hash, &key.key), Ok(Some(record(1, 10))), "reads go on");
}

/// The system holds what a failed sync did not write for written, and a later sync says that all is well.
#[test]
fn what_a_restart_serves_after_a_failed_sync_survives_the_power() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    core.put(key(1).hash, &key(1).key, &record(1, 700)).unwrap();
    core.commit().unwrap();
    core.put(key(2).hash, &key(2).key, &record(2, 1500)).unwrap();
    core.flush().unwrap();
    disk.plan(super::faulty::Plan::FailAt(disk.changes() + 1));
    core.commit().unwrap_err();
    disk.crash(Crash::Killed);
    drop(core);
    let (core, opened) = open(&disk, Sync::Always).unwrap();
    let served = content(&core);
    assert_eq!((served.len(), opened.cuts.len()), (2, 0), "read from the system's memory");
    core.commit().unwrap();
    disk.crash(Crash::PowerFailed);
    drop(core);
    let (core, _) = open(&disk, Sync::Always).unwrap();
    assert_eq!(content(&core), served);
}

#[test]
fn a_start_writes_again_only_what_is_not_known_to_be_on_the_disk() {
    let disk = FaultyDisk::default();
    let (core, _) = open(&disk, Sync::Always).unwrap();
    for number in 0..20 {
        core.put(key(number).hash, &key(number).key, &record(number, 100)).unwrap();
        core.commit().unwrap();
    }
    drop(core);
    let before = disk.written_bytes();
    drop(open(&disk, Sync::Always).unwrap());
    // The last record, and the mark before it that speaks for the others.
    let rewritten = disk.written_bytes() - before;
    assert!((100..500).contains(&rewritten), "{rewritten} bytes");
}
