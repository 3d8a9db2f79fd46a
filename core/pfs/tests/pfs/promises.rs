//! One test for each sentence that promises something.

use crate::host::{Host, answers, id, lock, post, write, write_ephemeral, write_if};
use ::bytes::Bytes;
use kumo_pfs::{
    Command, Condition, DEPTH_MAX, EntryChange, Event, NAME_BYTES_MAX, Pfs, Place, Query, READ_BYTES_MAX,
    Refusal, Reply, Resource, WRITE_BYTES_MAX,
};
use kumo_session::{Application, EVENTS_MAX, Outcome};
use kumo_wire::Wire;
use std::collections::BTreeSet;

fn version(reply: Reply) -> u64 {
    let Reply::Written { version, .. } = reply else { panic!("{reply:?}") };
    version
}

fn granted(reply: Reply) -> u64 {
    let Reply::Granted { number } = reply else { panic!("{reply:?}") };
    number
}

fn wait(queue: &str) -> Command {
    Command::Wait { queue: queue.to_owned(), try_only: false }
}

fn receive(queue: &str) -> Command {
    Command::Receive { queue: queue.to_owned(), try_only: false }
}

fn unlock(name: &str) -> Command {
    Command::Unlock { name: name.to_owned() }
}

fn delete(path: &str) -> Command {
    Command::Delete { path: path.to_owned(), condition: Condition::Always }
}

#[test]
fn a_version_grows_and_never_returns_even_after_delete_and_create() {
    let mut host = Host::new();
    let mut last = 0;
    for turn in 0..50 {
        let now = version(host.call(1, &write("/a", "x")));
        assert!(now > last);
        last = now;
        match turn % 5 {
            2 => assert_eq!(host.call(1, &delete("/a")), Reply::Done),
            3 => {
                host.call(1, &Command::Rename { from: "/a".into(), to: "/b".into() });
                host.call(1, &Command::Rename { from: "/b".into(), to: "/a".into() });
                let Reply::Stat(stat) = host.query(&Query::Stat { path: "/a".into() }) else { panic!() };
                assert!(stat.version > last);
            }
            _ => {}
        }
    }
}

#[test]
fn a_later_generation_hands_out_greater_numbers_only() {
    let mut old = Host::new();
    let mut survivor = old.clone();
    for _ in 0..10 {
        old.call(1, &write("/a", "x"));
        old.call(1, &lock("l", true));
        old.call(1, &unlock("l"));
        old.call(1, &post("q", "x"));
    }
    let old_version = version(old.call(1, &write("/a", "x")));
    let old_grant = granted(old.call(1, &lock("l", true)));
    old.call(1, &post("other", "x"));
    let Reply::Message { id: old_id, .. } = old.query(&Query::Peek { queue: "other".into() }) else {
        panic!()
    };
    // The survivor had seen none of it.
    survivor.generation = 2;
    assert!(version(survivor.call(2, &write("/a", "y"))) > old_version);
    assert!(granted(survivor.call(2, &lock("l", true))) > old_grant);
    survivor.call(2, &post("q", "y"));
    let Reply::Message { id, .. } = survivor.query(&Query::Peek { queue: "q".into() }) else { panic!() };
    assert!(id > old_id);
}

#[test]
fn a_holder_that_lost_its_session_cannot_write_through_its_lock() {
    let mut host = Host::new();
    let number = granted(host.call(1, &lock("leader", true)));
    host.park(2, &lock("leader", true));
    let fenced = write_if("/state", "x", Condition::Fence { lock: "leader".into(), number });
    assert!(matches!(host.call(1, &fenced), Reply::Written { .. }));
    host.end(1);
    let before = host.snapshot();
    assert_eq!(host.call(1, &fenced), Reply::Refused(Refusal::Fenced));
    assert_eq!(host.snapshot(), before);
}

#[test]
fn every_grant_has_a_greater_number_also_after_the_lock_was_idle() {
    let mut host = Host::new();
    let mut last = 0;
    for turn in 0..20 {
        let name = ["a", "b"][turn % 2];
        let number = granted(host.call(1, &lock(name, turn % 3 == 0)));
        assert!(number > last);
        last = number;
        host.call(1, &unlock(name));
        assert_eq!(host.query(&Query::Locks { after: String::new() }), Reply::Locks(Vec::new()));
    }
}

#[test]
fn a_dead_holders_lock_is_granted_on_in_the_same_outcome() {
    let mut host = Host::new();
    host.call(1, &lock("a", true));
    let readers = [2, 3, 4].map(|session| (session, host.park(session, &lock("a", false))));
    let outcome = host.end(1);
    let told = answers(&outcome);
    assert_eq!(told.iter().map(|&(session, number, _)| (session, number)).collect::<Vec<_>>(), readers);
    let numbers: BTreeSet<u64> = told.into_iter().map(|(_, _, reply)| granted(reply)).collect();
    assert_eq!(numbers.len(), 3);
}

#[test]
fn a_message_is_handed_out_once_and_in_order() {
    let mut host = Host::new();
    for turn in 0..100 {
        host.call(1, &post("q", &turn.to_string()));
    }
    for turn in 0..100 {
        let Reply::Message { data, .. } = host.call(2 + turn % 3, &wait("q")) else { panic!() };
        assert_eq!(data, turn.to_string());
    }
    assert_eq!(host.query(&Query::Queues { after: String::new() }), Reply::Queues(Vec::new()));
}

#[test]
fn a_message_received_by_a_session_that_ended_comes_next() {
    let mut host = Host::new();
    for text in ["one", "two", "three"] {
        host.call(1, &post("q", text));
    }
    host.call(2, &receive("q"));
    host.call(3, &receive("q"));
    assert!(host.end(2).answers.is_empty());
    let Reply::Message { data, .. } = host.call(4, &wait("q")) else { panic!() };
    assert_eq!(data, "one");
    let Reply::Message { data, .. } = host.call(4, &wait("q")) else { panic!() };
    assert_eq!(data, "three");
    let number = host.park(4, &wait("q"));
    let told = answers(&host.end(3));
    assert!(matches!(&told[..], [(4, n, Reply::Message { data, .. })] if *n == number && data == "two"));
}

#[test]
fn who_does_not_watch_is_told_nothing() {
    let mut host = Host::new();
    let watch = |path: &str| Command::Watch { resource: Resource::Directory(path.to_owned()) };
    host.call(2, &watch("/a"));
    let outcome = host.apply(1, &write("/b/a/c", "x"));
    assert!(outcome.events.is_empty());
    let outcome = host.apply(1, &write("/a/c", "x"));
    assert_eq!(outcome.events.iter().map(|event| event.0).collect::<Vec<_>>(), [id(2)]);
    assert!(Event::from_bytes(outcome.events[0].1.clone()).is_ok());
    host.end(2);
    assert!(host.apply(1, &write("/a/c", "x")).events.is_empty());
}

#[test]
fn a_snapshot_does_not_see_what_happens_while_it_is_written() {
    let mut host = Host::new();
    for turn in 0..3000 {
        host.call(1, &write(&format!("/d{}/f{turn}", turn % 7), &"x".repeat(turn)));
        host.call(1, &post("q", &turn.to_string()));
    }
    let whole = host.snapshot();
    let frozen = host.pfs.clone();
    let parts = host.pfs.snapshot();
    let mut written = Vec::new();
    let mut turn = 0;
    // A part, then a stretch of changes, and so on.
    for part in parts {
        written.extend_from_slice(&part);
        for _ in 0..100 {
            host.call(1, &write(&format!("/d{}/f{turn}", turn % 7), "changed"));
            host.call(1, &wait("q"));
            host.call(1, &delete(&format!("/d{}/f{turn}", turn % 7)));
            turn += 1;
        }
    }
    assert_eq!(written, whole);
    assert!(turn >= 1000 && host.snapshot() != whole);
    assert!(Pfs::restore(vec![written.into()]).unwrap() == frozen);
}

#[test]
fn parts_are_as_large_as_what_travels_in_one_message() {
    let mut host = Host::new();
    for turn in 0..40 {
        host.call(1, &write(&format!("/f{turn}"), &"x".repeat(100_000)));
    }
    host.call(1, &post("q", &"m".repeat(3_000_000)));
    let parts: Vec<Bytes> = host.pfs.snapshot().collect();
    assert!(parts.len() > 20);
    assert!(parts[..parts.len() - 1].iter().all(|part| part.len() == kumo_paxos::CHUNK_BYTES));
    assert!(Pfs::restore(parts).unwrap() == host.pfs);
}

#[test]
fn the_largest_write_is_one_entry_and_one_byte_more_is_refused() {
    let mut host = Host::new();
    let largest = Bytes::from(vec![7; WRITE_BYTES_MAX as usize]);
    let replace = |data: Bytes| Command::Write {
        path: "/large".into(),
        place: Place::Replace,
        data,
        ephemeral: false,
        condition: Condition::Always,
    };
    assert!(matches!(host.call(1, &replace(largest.clone())), Reply::Written { count: WRITE_BYTES_MAX, .. }));
    let before = host.pfs.clone();
    let refused = host.call(1, &replace(Bytes::from(vec![7; WRITE_BYTES_MAX as usize + 1])));
    assert!(matches!(refused, Reply::Refused(Refusal::Limit(_, WRITE_BYTES_MAX))));
    assert!(host.pfs == before);
    let read = Query::Read { path: "/large".into(), offset: 1, length: u64::MAX };
    let Reply::Data { bytes, .. } = host.query(&read) else { panic!() };
    assert_eq!(bytes, largest.slice(..READ_BYTES_MAX as usize));
}

#[test]
fn a_renamed_directory_takes_its_ephemerals_along() {
    let mut host = Host::new();
    host.call(1, &write_ephemeral("/a/b/one"));
    host.call(2, &write_ephemeral("/a/b/two"));
    host.call(3, &Command::Mkdir { path: "/x".into() });
    host.call(3, &Command::Rename { from: "/a".into(), to: "/x/y".into() });
    host.end(1);
    let list = Query::ReadDir { path: "/x/y/b".into(), index: 0, count: 10 };
    let Reply::Entries { entries, .. } = host.query(&list) else { panic!() };
    assert_eq!(entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["two"]);
}

#[test]
fn no_rename_makes_a_path_that_cannot_be_named() {
    let mut host = Host::new();
    let name = "n".repeat(NAME_BYTES_MAX);
    let long = format!("/{name}").repeat(15);
    host.call(1, &Command::Mkdir { path: format!("/a{long}") });
    host.call(1, &Command::Mkdir { path: format!("/{name}") });
    let before = host.snapshot();
    let rename = Command::Rename { from: "/a".into(), to: format!("/{name}/{name}") };
    assert!(matches!(host.call(1, &rename), Reply::Refused(Refusal::Limit(_, _))));
    assert_eq!(host.snapshot(), before);
    assert!(matches!(
        host.call(1, &Command::Mkdir { path: "/x".repeat(DEPTH_MAX + 1) }),
        Reply::Refused(Refusal::BadPath(_))
    ));
}

#[test]
fn what_is_idle_leaves_nothing_behind() {
    let mut host = Host::new();
    host.call(1, &write("/a/b", "x"));
    host.call(1, &delete("/a/b"));
    host.call(1, &Command::Rmdir { path: "/a".into() });
    let empty = host.snapshot().len();
    for turn in 0..100 {
        let name = format!("n{turn}");
        host.call(1, &lock(&name, true));
        host.park(2, &lock(&name, false));
        host.park(3, &receive(&name));
        host.call(1, &post(&name, "x"));
        host.call(4, &Command::Watch { resource: Resource::Lock(name.clone()) });
        host.call(4, &write_ephemeral(&format!("/{name}")));
    }
    assert!(host.snapshot().len() > empty + 100);
    (1..=4).for_each(|session| drop(host.end(session)));
    for turn in 0..100 {
        host.call(5, &wait(&format!("n{turn}")));
    }
    assert_eq!(host.snapshot().len(), empty);
}

#[test]
fn the_end_of_a_session_makes_no_more_events_than_are_kept() {
    let mut host = Host::new();
    let watch = |path: &str| Command::Watch { resource: Resource::Directory(path.to_owned()) };
    for (session, path) in [(2, "/d"), (2, "/e"), (3, "/e")] {
        host.call(session, &watch(path));
    }
    let files = 3 * EVENTS_MAX;
    for count in 0..files {
        host.call(1, &write_ephemeral(&format!("/d/{count:06}")));
    }
    for count in 0..5 {
        host.call(1, &write_ephemeral(&format!("/e/{count}")));
    }
    let outcome = host.end(1);
    let told = |session| {
        let mine = outcome.events.iter().filter(move |(to, _)| *to == id(session));
        mine.map(|(_, event)| Event::from_bytes(event.clone()).unwrap()).collect::<Vec<Event>>()
    };
    assert_eq!((told(2).len(), told(3).len()), (EVENTS_MAX, 5));
    assert_eq!(outcome.omitted, [(id(2), (files + 5 - EVENTS_MAX) as u64)]);
    assert_eq!(told(2)[EVENTS_MAX - 5..], told(3), "the last ones are told, in order");
    let first = Event::Directory {
        path: "/d".to_owned(),
        name: format!("{:06}", files + 5 - EVENTS_MAX),
        change: EntryChange::Deleted,
    };
    assert_eq!(told(2)[0], first);
}

#[test]
fn a_session_without_room_keeps_its_place_and_the_message_stays() {
    let mut host = Host::new();
    let first = host.park(1, &wait("q"));
    let second = host.park(2, &wait("q"));
    let mut outcome = Outcome::default();
    outcome.room.fill(id(1));
    let entry = host.entry(3);
    host.pfs.apply(entry, post("q", "one").to_bytes(), &mut outcome);
    let message = |told: &[(u64, u64, Reply)], session, number, text: &str| match told {
        [(to, of, Reply::Message { data, .. })] => (*to, *of) == (session, number) && data == text,
        _ => false,
    };
    assert!(message(&answers(&outcome), 2, second, "one"), "the next one is served");
    let mut outcome = Outcome::default();
    outcome.room.fill(id(1));
    let entry = host.entry(3);
    host.pfs.apply(entry, post("q", "two").to_bytes(), &mut outcome);
    assert!(outcome.answers.is_empty(), "it stays in the queue");
    let restored = Pfs::restore(host.pfs.snapshot().collect()).unwrap();
    assert!(restored == host.pfs, "also in a snapshot");
    let (entry, mut outcome) = (host.entry(1), Outcome::default());
    host.pfs.session_has_room(entry, &mut outcome);
    assert!(message(&answers(&outcome), 1, first, "two"));
}
