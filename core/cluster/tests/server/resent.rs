//! What is sent again, and asked again: as much as a link bears, and not while it is on its way.

use super::house::{House, manager, server, set};
use bytes::Bytes;
use kumo_cluster::{
    Answer, Clock, Kind, Limits, MemberState, Message, Operation, Record, Request, ServerEffect, ServerInput,
    SpaceNumber, Stamp, Store, StoreKey,
};
use kumo_session::ConnectionId;
use std::collections::BTreeSet;

fn large(mebibytes: usize) -> Bytes {
    Bytes::from(vec![b'v'; mebibytes << 20])
}

/// What a server sends that other one: nobody gets it.
fn sent(house: &mut House, at: usize, to: usize, input: ServerInput) -> Vec<Message> {
    let mut effects = Vec::new();
    house.servers[at].step(house.now, input, &mut effects);
    let sent = effects.into_iter().filter_map(|effect| match effect {
        ServerEffect::Server(id, message) if id == server(to) => Some(message),
        _other => None,
    });
    sent.collect()
}

/// The same, while time passes.
fn sent_in(house: &mut House, at: usize, to: usize, micros: u64) -> Vec<Message> {
    let until = house.now.plus_micros(micros);
    let mut messages = Vec::new();
    while house.now < until {
        house.now = house.now.plus_micros(10_000);
        messages.extend(sent(house, at, to, ServerInput::Timeout));
    }
    messages
}

fn numbers(messages: &[Message]) -> Vec<u64> {
    let frames = messages.iter().filter_map(|message| match message {
        Message::Replicate { seq, .. } => Some(*seq),
        _other => None,
    });
    frames.collect()
}

fn questions(messages: &[Message]) -> usize {
    messages.iter().filter(|message| matches!(message, Message::Settle { .. })).count()
}

/// So many writes at the first server while it has no link with the second.
fn written_without_a_link(house: &mut House, count: usize, data: &Bytes) {
    house.step(0, ServerInput::ServerDown(server(1)));
    for (seq, key) in (1..).zip(house.keys_of(&[0, 1, 2], count)) {
        let set = Operation::Set { flags: 0, expiry: 0, data: data.clone() };
        assert_eq!(house.ask(0, seq, 1, &key, set), None, "one has not acknowledged");
    }
}

#[test]
fn large_values_are_sent_again_as_the_other_takes_them() {
    let mut house = House::new(3, 3, 1);
    written_without_a_link(&mut house, 20, &large(4));
    let mut messages = sent(&mut house, 0, 1, ServerInput::ServerUp(server(1)));
    messages.extend(sent_in(&mut house, 0, 1, 300_000));
    assert_eq!(numbers(&messages), [1, 2, 3], "the fourth would be more than 16 MiB");
    // Some came: as much follows.
    let epoch = house.space.number;
    house.step(0, ServerInput::Server(server(1), Message::Replicated { epoch, first: 1, last: 2 }));
    assert_eq!(numbers(&sent_in(&mut house, 0, 1, 100_000)), [4, 5]);
    // A slow link is not filled by what it has to bring already.
    let more = numbers(&sent_in(&mut house, 0, 1, 5_000_000));
    assert_eq!(more, [3, 4, 5]);
    // It broke. All of it comes over the next one.
    house.step(0, ServerInput::ServerUp(server(1)));
    house.settle();
    house.wait(1_000_000);
    assert_eq!(house.servers[0].under_way(), (0, 0));
    assert_eq!(house.answers.values().filter(|answer| matches!(answer, Answer::Reply(_))).count(), 20);
}

#[test]
fn one_that_is_larger_than_all_that_is_let_be_on_its_way_goes_alone() {
    let mut house = House::new(3, 3, 1);
    written_without_a_link(&mut house, 3, &large(24));
    let messages = sent(&mut house, 0, 1, ServerInput::ServerUp(server(1)));
    assert_eq!(numbers(&messages), [1]);
    house.step(0, ServerInput::ServerUp(server(1)));
    house.settle();
    house.wait(1_000_000);
    assert_eq!(house.servers[0].under_way(), (0, 0));
}

/// The other drops all that it may be sent before it has answered, and says nothing.
#[test]
fn what_was_dropped_does_not_keep_the_rest_from_being_sent() {
    for resent_max in [1, 3] {
        let limits = Limits { resent_max, ..Limits::default() };
        let mut house = House::with(3, 3, |settings| settings.limits = limits);
        written_without_a_link(&mut house, 50, &Bytes::from_static(b"v"));
        house.disks[1].fail(true);
        house.step(0, ServerInput::ServerUp(server(1)));
        house.wait(1_000_000);
        house.disks[1].fail(false);
        house.wait(20_000_000);
        assert_eq!(house.servers[0].under_way(), (0, 0), "{resent_max} at a time");
    }
}

/// The same, and the first is never taken.
#[test]
fn what_is_never_taken_does_not_keep_the_rest_from_being_sent() {
    for (resent_max, full) in [1, 3, 1000].into_iter().flat_map(|max| [(max, false), (max, true)]) {
        let limits = Limits { resent_max, ..Limits::default() };
        let mut house = House::with(3, 3, |settings| settings.limits = limits);
        written_without_a_link(&mut house, 50, &Bytes::from_static(b"v"));
        let stuck = house.keys_of(&[0, 1, 2], 1).remove(0);
        if full {
            house.disks[1].fill(true);
        } else {
            house.disks[1].fail(true);
        }
        house.step(0, ServerInput::ServerUp(server(1)));
        house.wait(1_000_000);
        house.disks[1].break_key(Some(stuck));
        house.disks[1].fail(false);
        house.disks[1].fill(false);
        house.wait(30_000_000);
        assert_eq!(house.servers[0].under_way().0, 1, "{resent_max} at a time");
    }
}

#[test]
fn what_a_full_disk_refused_is_sent_again_as_it_is_taken() {
    let limits = Limits { resent_max: 2, ..Limits::default() };
    let mut house = House::with(3, 3, |settings| settings.limits = limits);
    let keys = house.keys_of(&[0, 1, 2], 20);
    house.disks[1].fill(true);
    for (seq, key) in (1..).zip(&keys) {
        house.send(0, seq, 1, key, set("v"));
    }
    house.settle();
    house.disks[1].fill(false);
    // The first is sent again by and by, and shows that there is room.
    let epoch = house.space.number;
    house.step(0, ServerInput::Server(server(1), Message::Replicated { epoch, first: 1, last: 1 }));
    assert_eq!(numbers(&sent_in(&mut house, 0, 1, 200_000)), [2, 3]);
    house.wait(5_000_000);
    assert_eq!(house.servers[0].under_way(), (0, 0));
}

/// The first of three servers is lost, and the second asks the third, whose answer does not come.
fn settling() -> House {
    let mut house = House::new(3, 3, 1);
    house.cut_off = Some(2);
    house.space.number.0 += 1;
    house.space.members[0].state = MemberState::Fault { order: 1 };
    let space = Message::new_space(house.space.clone());
    let asked = sent(&mut house, 1, 2, ServerInput::Manager(manager(), space));
    assert_eq!(questions(&asked), 1);
    house
}

#[test]
fn who_is_asked_by_a_settlement_is_not_asked_again_while_its_answer_may_be_on_its_way() {
    let mut house = settling();
    assert_eq!(questions(&sent_in(&mut house, 1, 2, 5_000_000)), 0);
    // If something is lost that cannot be, it ends nevertheless.
    assert_eq!(questions(&sent_in(&mut house, 1, 2, 10_000_000)), 1);
}

#[test]
fn a_settlement_asks_again_over_a_new_link() {
    let mut house = settling();
    sent(&mut house, 1, 2, ServerInput::ServerDown(server(2)));
    assert_eq!(questions(&sent(&mut house, 1, 2, ServerInput::ServerUp(server(2)))), 1);
    assert_eq!(questions(&sent_in(&mut house, 1, 2, 5_000_000)), 0);
}

#[test]
fn a_settlement_asks_again_who_came_into_the_space_after_it_was_asked() {
    let mut house = settling();
    let space = Message::new_space(house.space.clone());
    sent(&mut house, 1, 2, ServerInput::Server(server(2), space));
    assert_eq!(questions(&sent_in(&mut house, 1, 2, 5_000_000)), 1);
}

#[test]
fn a_large_record_is_not_copied_again_while_it_may_be_on_its_way() {
    let mut house = House::new(4, 3, 1);
    let mut wanted = house.space.clone();
    wanted.whs = vec![0, 1, 2, 3];
    let table = kumo_cluster::Table::new(&wanted);
    let comes = |key: &StoreKey| table.arc(key.hash).comers.contains(&3);
    let keys: Vec<StoreKey> = house.keys_of(&[0], 500).into_iter().filter(comes).take(8).collect();
    let stamp = Stamp { space: SpaceNumber(0), clock: Clock(9) };
    let record = Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data: large(20) };
    for key in &keys {
        house.disks[0].put(key.hash, &key.key, &record).expect("nothing fails here");
    }
    house.space.number.0 += 1;
    (house.space.whs, house.space.whs_since) = (vec![0, 1, 2, 3], house.space.number);
    house.space.job = Some(kumo_cluster::Job { full: false, paused: false, rate: 0 });
    let space = Message::new_space(house.space.clone());
    // All is compared first, and what has no records is the same. The other lacks what has some.
    let mut messages = sent(&mut house, 0, 3, ServerInput::Manager(manager(), space));
    let mut copied = Vec::new();
    let until = house.now.plus_micros(5_000_000);
    while house.now < until {
        for message in std::mem::take(&mut messages) {
            let answer = match message {
                Message::CopyIds { job, range, after, .. } => Message::CopyIdsStored { job, range, after },
                Message::CopyDigest { job, range, count: 0, .. } => Message::CopySame { job, range },
                Message::CopyDigest { job, range, .. } => Message::CopyDiffers { job, range },
                Message::CopyRecords { range, records, .. } => {
                    copied.push((range, records.len()));
                    continue;
                }
                _other => continue,
            };
            messages.extend(sent(&mut house, 0, 3, ServerInput::Server(server(3), answer)));
        }
        house.now = house.now.plus_micros(10_000);
        messages.extend(sent(&mut house, 0, 3, ServerInput::Timeout));
    }
    assert_eq!(copied.len(), 1, "{copied:?}");
    // With nothing lost, all of it comes.
    house.attach_all();
    house.wait(20_000_000);
    let progress = house.servers[0].progress();
    assert_eq!((progress.copies_done, progress.job), (progress.copies, house.space.whs_since));
    assert!(keys.iter().all(|key| house.disks[3].kind_of(key).is_some()));
}

#[test]
fn a_large_record_that_cannot_be_copied_does_not_keep_others_from_being_copied() {
    for readable in [false, true] {
        let mut house = House::new(4, 3, 1);
        let mut wanted = house.space.clone();
        wanted.whs = vec![0, 1, 2, 3];
        let table = kumo_cluster::Table::new(&wanted);
        let comes = |key: &StoreKey| table.arc(key.hash).comers.contains(&3);
        let mut keys: Vec<StoreKey> = house.keys_of(&[0], 500).into_iter().filter(comes).take(8).collect();
        keys.sort();
        let stamp = Stamp { space: SpaceNumber(0), clock: Clock(9) };
        let record = Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data: large(20) };
        for key in &keys {
            house.disks[0].put(key.hash, &key.key, &record).expect("nothing fails here");
        }
        // One does not give it, or the other does not take it.
        let first = Some(keys[0].clone());
        if readable {
            house.disks[3].break_key(first);
        } else {
            house.disks[0].damage_key(first);
        }
        house.attach_all();
        house.wait(20_000_000);
        let here = keys.iter().filter(|key| house.disks[3].kind_of(key).is_some()).count();
        assert_eq!(here, keys.len() - 1, "readable {readable}");
    }
}

/// The second server has marks of a space before, whose primary does not say that they are committed.
#[test]
fn all_marks_are_asked_about_in_turn() {
    let limits = Limits { marks_asked_max: 2, ..Limits::default() };
    let mut house = House::with(3, 3, |settings| settings.limits = limits);
    let keys = house.keys_of(&[0, 1, 2], 5);
    house.cut_off = Some(2);
    for (seq, key) in (1..).zip(&keys) {
        assert_eq!(house.ask(0, seq, 1, key, set("v")), None, "one has not acknowledged");
    }
    house.space.number.0 += 1;
    let space = Message::new_space(house.space.clone());
    sent(&mut house, 1, 0, ServerInput::Manager(manager(), space));
    let messages = sent_in(&mut house, 1, 0, 500_000);
    let asked = messages.into_iter().filter_map(|message| match message {
        Message::AskPrimary { key, .. } => Some(key),
        _other => None,
    });
    let asked: Vec<StoreKey> = asked.collect();
    assert!((8..=12).contains(&asked.len()), "two at a time: {}", asked.len());
    assert_eq!(asked.into_iter().collect::<BTreeSet<_>>(), keys.into_iter().collect::<BTreeSet<_>>());
}

/// A large frame that was sent again and dropped fills the window, and one that was overlooked before it is to go.
#[test]
fn what_was_dropped_does_not_keep_what_was_overlooked_from_being_sent() {
    let mut house = House::new(3, 3, 1);
    let keys = house.keys_of(&[0, 1, 2], 4);
    let epoch = house.space.number;
    house.cut_off = Some(1);
    let values = [Bytes::from_static(b"small"), large(20), Bytes::from_static(b"small")];
    for ((seq, key), data) in (1..).zip(&keys).zip(values) {
        let set = Operation::Set { flags: 0, expiry: 0, data };
        assert_eq!(house.ask(0, seq, 1, key, set), None);
    }
    house.step(0, ServerInput::Server(server(1), Message::Replicated { epoch, first: 3, last: 3 }));
    assert_eq!(numbers(&sent_in(&mut house, 0, 1, 1_000_000))[0], 1);
    assert_eq!(house.ask(0, 4, 1, &keys[3], set("small")), None);
    house.step(0, ServerInput::Server(server(1), Message::Replicated { epoch, first: 4, last: 4 }));
    let mut again = BTreeSet::new();
    for _ in 0..2 {
        again.extend(numbers(&sent_in(&mut house, 0, 1, 20_000_000)));
    }
    assert_eq!(again, BTreeSet::from([1, 2]));
    assert!(numbers(&sent_in(&mut house, 0, 1, 20_000_000)).contains(&1), "it comes again and again");
}

/// The one that is behind has many under way when the other hears of the next space first.
#[test]
fn a_space_is_given_once_for_all_frames_of_the_one_before() {
    let mut house = House::new(3, 3, 1);
    let keys = house.keys_of(&[0, 1, 2], 100);
    let before = house.space.number;
    house.space.number.0 += 1;
    let next = Message::new_space(house.space.clone());
    sent(&mut house, 1, 0, ServerInput::Manager(manager(), next));
    let mut spaces = 0;
    for (seq, key) in (1..).zip(&keys) {
        let request = Request { space: before, ..house.request(seq, 1, key, set("v")) };
        let request = ServerInput::Gateway(ConnectionId(1), Message::Request(request));
        for frame in sent(&mut house, 0, 1, request) {
            let answers = sent(&mut house, 1, 0, ServerInput::Server(server(0), frame));
            spaces += answers.iter().filter(|answer| matches!(answer, Message::NewSpace { .. })).count();
        }
    }
    assert_eq!(spaces, 1);
    let up = ServerInput::ServerUp(server(0));
    let told = sent(&mut house, 1, 0, up);
    assert!(told.iter().any(|message| matches!(message, Message::NewSpace { .. })), "it may have been lost");
}
