//! Bytes from anywhere: they may be refused, they may be understood, they never harm.

use crate::host::{Host, id};
use crate::memory;
use crate::random::{Random, SESSIONS, Step};
use ::bytes::Bytes;
use kumo_pfs::{
    DirectoryEntry, EntryChange, Event, LockInfo, Pfs, Query, QueueChange, QueueInfo, Refusal, Reply, Stat,
    Usage,
};
use kumo_session::{Application, Outcome, UnixMillis};
use kumo_wire::{Malformed, Wire};

/// A state with something of everything in it.
fn busy(seed: u64, steps: u64) -> Host {
    let mut random = Random::new(seed);
    let mut host = Host::with_sessions(SESSIONS);
    for _ in 0..steps {
        match random.step(&|session| host.last_request(session)) {
            Step::Command(session, command) => drop(host.apply(session, &command)),
            Step::Cancel(session, target) => drop(host.cancel(session, target)),
            Step::End(session) => drop(host.end(session)),
        }
    }
    host
}

/// One of: random bytes, a valid message cut short, one with some bits flipped, one with bytes after it.
fn damaged(random: &mut Random, valid: &[u8]) -> Bytes {
    let mut bytes = valid.to_vec();
    match random.below(4) {
        0 => {
            let length = random.below(60);
            return random.bytes(length);
        }
        1 => bytes.truncate(random.below(bytes.len() as u64) as usize),
        2 => bytes.push(random.below(256) as u8),
        _ => {
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
        }
    }
    bytes.into()
}

#[test]
fn damaged_commands_and_queries_are_refused_or_understood() {
    let mut random = Random::new(1);
    let mut host = busy(1, 300);
    let mut malformed = 0;
    for _ in 0..30_000 {
        let valid = random.command().to_bytes();
        let command = damaged(&mut random, &valid);
        let before = host.pfs.clone();
        let outcome = host.apply_bytes(1 + random.below(SESSIONS), command);
        if outcome.reply == Some(Reply::Refused(Refusal::Malformed).to_bytes()) {
            malformed += 1;
            assert!(host.pfs == before && outcome.answers.is_empty() && outcome.events.is_empty());
        }
        let valid = random.query().to_bytes();
        let reply = host.pfs.read(id(1), damaged(&mut random, &valid));
        assert!(Reply::from_bytes(reply).is_ok());
        // Parked requests would pile up.
        if random.chance(2) {
            host.end(1 + random.below(SESSIONS));
        }
    }
    assert!(malformed > 10_000);
}

#[test]
fn every_truncation_of_a_message_is_malformed() {
    let mut random = Random::new(3);
    let mut host = busy(3, 100);
    for _ in 0..300 {
        let command = random.command().to_bytes();
        let query = random.query().to_bytes();
        let malformed = Reply::Refused(Refusal::Malformed).to_bytes();
        for length in 0..command.len() {
            let outcome = host.apply_bytes(1, command.slice(..length));
            assert_eq!(outcome, Outcome { reply: Some(malformed.clone()), ..Outcome::default() });
        }
        for length in 0..query.len() {
            assert_eq!(host.pfs.read(id(1), query.slice(..length)), malformed);
        }
    }
}

#[test]
fn a_damaged_snapshot_is_refused_or_is_another_whole_one() {
    let mut random = Random::new(2);
    let (mut refused, mut understood) = (0, 0);
    for seed in 0..60 {
        let whole = busy(seed, 200).snapshot();
        for _ in 0..200 {
            let bytes = damaged(&mut random, &whole);
            match Pfs::restore(vec![bytes.clone()]) {
                Err(_) => refused += 1,
                Ok(pfs) => {
                    understood += 1;
                    let again: Vec<u8> = pfs.snapshot().flat_map(|part| part.to_vec()).collect();
                    assert_eq!(again, bytes, "what is understood is written again as it was");
                    exercise(pfs);
                }
            }
        }
    }
    assert!(refused > 5000 && understood > 100, "{refused} refused, {understood} understood");
}

/// A state from a strange snapshot goes on like any other.
fn exercise(pfs: Pfs) {
    let mut host = Host::with_sessions(SESSIONS);
    host.pfs = pfs;
    // Requests from a number range that no parked one of the snapshot has.
    for turn in 0..SESSIONS * 1000 {
        host.entry(1 + turn % SESSIONS);
    }
    let mut random = Random::new(9);
    for _ in 0..20 {
        let session = 1 + random.below(SESSIONS);
        host.apply(session, &random.command());
    }
    (1..=SESSIONS).for_each(|session| drop(host.end(session)));
    assert!(matches!(host.query(&Query::Usage), Reply::Usage(_)));
    Pfs::restore(host.pfs.snapshot().collect()).unwrap();
}

#[test]
fn every_truncation_of_a_snapshot_is_refused() {
    let host = busy(5, 400);
    let whole = Bytes::from(host.snapshot());
    for length in 0..whole.len() {
        assert!(Pfs::restore(vec![whole.slice(..length)]).is_err(), "length {length}");
    }
    assert!(Pfs::restore(vec![]).is_err());
    let longer = vec![whole.clone(), Bytes::from_static(b"x")];
    assert_eq!(Pfs::restore(longer).err(), Some(Malformed::Long(1)));
}

#[test]
fn a_snapshot_may_be_cut_anywhere() {
    let host = busy(6, 400);
    let whole = Bytes::from(host.snapshot());
    let mut random = Random::new(6);
    for _ in 0..20 {
        let mut rest = whole.clone();
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let length = random.below(rest.len() as u64 / 8 + 2) as usize;
            parts.push(rest.split_to(length.min(rest.len())));
        }
        assert!(Pfs::restore(parts).unwrap() == host.pfs);
    }
}

#[test]
fn a_huge_length_is_refused_before_anything_is_allocated() {
    let mut bytes = Vec::from(*b"kumo-pfs");
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(u32::MAX.to_le_bytes());
    assert!(Pfs::restore(vec![bytes.into()]).is_err());
    let other = [&b"kumo-pfs"[..], &[2, 0, 0, 0]].concat();
    assert_eq!(
        Pfs::restore(vec![other.into()]).err(),
        Some(Malformed::Rule("a snapshot of another version"))
    );
}

fn refusals() -> Vec<Refusal> {
    let text = || "/a/雲".to_owned();
    vec![
        Refusal::NotFound(text()),
        Refusal::Exists(text()),
        Refusal::NotDirectory(text()),
        Refusal::IsDirectory(text()),
        Refusal::NotEmpty(text()),
        Refusal::BadPath(text()),
        Refusal::BadName(text()),
        Refusal::Version(4),
        Refusal::Fenced,
        Refusal::Locked(text()),
        Refusal::NotLocked(text()),
        Refusal::Empty(text()),
        Refusal::NoMessage(5),
        Refusal::NotAllowed(text()),
        Refusal::Limit(text(), 6),
        Refusal::Malformed,
    ]
}

fn replies() -> Vec<Reply> {
    let name = || "name".to_owned();
    let stat = |ephemeral| Stat {
        directory: false,
        length: 1,
        version: 2,
        created: UnixMillis(3),
        modified: UnixMillis(4),
        ephemeral,
    };
    let data = || Bytes::from_static(b"data");
    let entry = DirectoryEntry { name: name(), stat: stat(None) };
    let queue = QueueInfo { name: name(), ready: 1, hidden: 2, waiting: 3 };
    let lock = LockInfo {
        name: name(),
        exclusive: true,
        number: 1,
        holders: vec![id(1)],
        waiters: vec![id(2), id(3)],
    };
    let mut replies = vec![
        Reply::Done,
        Reply::Written { count: 1, version: 2, length: 3 },
        Reply::Data { bytes: data(), version: 1 },
        Reply::Stat(stat(Some(id(1)))),
        Reply::Entries { entries: vec![entry.clone(), entry], total: 2 },
        Reply::Granted { number: 7 },
        Reply::Message { id: 1, data: data() },
        Reply::Queues(vec![queue.clone(), queue]),
        Reply::Locks(vec![lock.clone(), lock]),
        Reply::Usage(Usage { bytes: 1, files: 2, directories: 3, messages: 4 }),
    ];
    replies.extend(refusals().into_iter().map(Reply::Refused));
    replies
}

fn events() -> Vec<Event> {
    let name = || "name".to_owned();
    let entry = |change| Event::Directory { path: "/a/b".to_owned(), name: name(), change };
    let queue = |change| Event::Queue { name: name(), change };
    vec![
        entry(EntryChange::Created),
        entry(EntryChange::Updated),
        entry(EntryChange::Deleted),
        Event::Lock { name: name(), exclusive: false },
        queue(QueueChange::Posted),
        queue(QueueChange::Waiting),
    ]
}

/// Comes back whole; cut anywhere it is an error; flipped bits and random bytes are an error or another value.
fn torment<T: Wire + PartialEq + std::fmt::Debug>(values: &[T]) {
    let whole: Vec<Bytes> = values.iter().map(Wire::to_bytes).collect();
    for (value, bytes) in values.iter().zip(&whole) {
        assert_eq!(T::from_bytes(bytes.clone()).as_ref(), Ok(value));
        for length in 0..bytes.len() {
            assert!(T::from_bytes(bytes.slice(..length)).is_err(), "{value:?} cut at {length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = T::from_bytes(flipped.into());
        }
    }
    let mut random = Random::new(12);
    for _ in 0..50_000 {
        let length = random.below(80);
        let _ = T::from_bytes(random.bytes(length));
    }
    memory::lengths_are_not_believed(&whole, |bytes| drop(T::from_bytes(bytes)));
}

#[test]
fn no_bytes_of_a_reply_or_an_event_break_a_client() {
    torment(&replies());
    torment(&events());
}

#[test]
fn no_length_is_believed() {
    let mut random = Random::new(13);
    let mut pfs = Host::with_sessions(SESSIONS).pfs;
    let commands: Vec<Bytes> = (0..40).map(|_| random.command().to_bytes()).collect();
    memory::lengths_are_not_believed(&commands, |bytes| drop(kumo_pfs::Command::from_bytes(bytes)));
    let queries: Vec<Bytes> = (0..40).map(|_| random.query().to_bytes()).collect();
    memory::lengths_are_not_believed(&queries, |bytes| drop(pfs.read(id(1), bytes)));
    pfs = busy(4, 60).pfs;
    let snapshot: Vec<u8> = pfs.snapshot().flat_map(|part| part.to_vec()).collect();
    memory::lengths_are_not_believed(&[snapshot.into()], |bytes| drop(Pfs::restore(vec![bytes])));
}
