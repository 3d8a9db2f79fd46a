//! The limits, each with what it must not cost.

use super::disk::Disk;
use super::house::{House, manager, server, set};
use bytes::Bytes;
use kumo_cluster::{
    Answer, Clock, KeyHash, Kind, Limits, MemberState, Message, Operation, Range, Record, Reply,
    ServerEffect, ServerInput, SpaceNumber, Stamp, Store, StoreKey, Table,
};
use kumo_session::ConnectionId;

/// What one frame takes is 72 MiB.
const FRAME_BYTES_MAX: usize = 72 << 20;

const TOUCH: Operation = Operation::GetAndTouch { expiry: 0 };

/// A key with a value of a mebibyte, and so many requests that showed it and are not acknowledged.
fn shown_often(house: &mut House, times: u64) -> StoreKey {
    let key = house.keys_of(&[], 1).remove(0);
    let primary = house.primary(key.hash);
    let data = Bytes::from(vec![b'v'; 1 << 20]);
    let set = house.ask(primary, 1, 1, &key, Operation::Set { flags: 0, expiry: 0, data });
    assert!(matches!(set, Some(Answer::Reply(_))), "{set:?}");
    for seq in 3..3 + times {
        let answer = house.ask(primary, seq, 2, &key, TOUCH);
        assert!(matches!(answer, Some(Answer::Reply(Reply::Value { .. }))), "{seq}: {answer:?}");
    }
    key
}

fn clock_of(answer: Option<Answer>) -> u64 {
    match answer {
        Some(Answer::Reply(Reply::Value { clock, .. })) => clock,
        other => panic!("no value: {other:?}"),
    }
}

#[test]
fn what_a_touch_shows_travels_once_and_is_shown_by_the_next_primary() {
    let mut house = House::new(3, 3, 1);
    let key = shown_often(&mut house, 1);
    assert!(house.bytes_max < 3 << 19, "a message of {} bytes for a mebibyte", house.bytes_max);
    let primary = house.primary(key.hash);
    house.cut_off = house.owners(&key).into_iter().find(|&one| one != primary);
    assert_eq!(house.ask(primary, 9, 2, &key, TOUCH), None, "one has not acknowledged");
    house.cut_off = None;
    house.publish(|space| space.members[primary].state = MemberState::Fault { order: 1 });
    house.wait(1_000_000);
    assert!(house.bytes_max < 3 << 19, "a message of {} bytes for a mebibyte", house.bytes_max);
    let answer = house.ask(house.primary(key.hash), 9, 2, &key, TOUCH);
    let Some(Answer::Reply(Reply::Value { data, .. })) = answer else { panic!("no value: {answer:?}") };
    assert_eq!(data.len(), 1 << 20);
}

#[test]
fn what_is_remembered_reaches_the_next_primary_whatever_its_size() {
    let mut house = House::new(3, 3, 1);
    let key = shown_often(&mut house, 100);
    let (primary, said) = (house.primary(key.hash), clock_of(house.answers.get(&50).cloned()));
    house.publish(|space| space.members[primary].state = MemberState::Fault { order: 1 });
    house.wait(1_000_000);
    assert!(house.bytes_max < FRAME_BYTES_MAX, "a message of {} bytes", house.bytes_max);
    let next = house.primary(key.hash);
    assert_ne!(next, primary);
    assert_eq!(clock_of(house.ask(next, 50, 2, &key, TOUCH)), said, "executed again");
}

#[test]
fn what_is_remembered_is_copied_whatever_its_size() {
    let mut house = House::new(6, 3, 1);
    let key = shown_often(&mut house, 100);
    let said = clock_of(house.answers.get(&50).cloned());
    // To three others altogether, of whom none knows anything.
    house.publish(|space| {
        (space.whs, space.whs_since) = (vec![3, 4, 5], space.number);
        space.job = Some(kumo_cluster::Job { full: false, paused: false, rate: 0 });
    });
    house.wait(5_000_000);
    for server in &house.servers[..3] {
        let progress = server.progress();
        assert_eq!((progress.copies_done, progress.job), (progress.copies, house.space.whs_since));
    }
    assert!(house.bytes_max < FRAME_BYTES_MAX, "a message of {} bytes", house.bytes_max);
    // The switch, and nobody of before is left to be asked.
    house.publish(|space| {
        space.rhs = space.whs.clone();
        space.job = None;
        for member in &mut space.members[..3] {
            member.state = MemberState::Fault { order: 1 };
        }
    });
    house.wait(1_000_000);
    let next = house.primary(key.hash);
    assert_eq!(clock_of(house.ask(next, 50, 2, &key, TOUCH)), said, "executed again");
}

#[test]
fn a_gateway_that_acknowledges_nothing_waits_and_its_lowest_request_does_not() {
    let mut house = House::new(3, 3, 1);
    // 128 MiB are remembered.
    let key = shown_often(&mut house, 128);
    let primary = house.primary(key.hash);
    assert_eq!(house.ask(primary, 200, 2, &key, TOUCH), Some(Answer::Wait));
    assert_eq!(house.ask(primary, 200, 2, &key, TOUCH), Some(Answer::Wait));
    // A retry is answered all the same, and so is another gateway's request, as far as this one is concerned.
    clock_of(house.ask(primary, 100, 2, &key, TOUCH));
    // What all others wait for is let in.
    clock_of(house.ask(primary, 2, 2, &key, TOUCH));
    assert_eq!(house.ask(primary, 201, 2, &key, TOUCH), Some(Answer::Wait));
    // Half of them are acknowledged.
    clock_of(house.ask(primary, 202, 70, &key, TOUCH));
    clock_of(house.ask(primary, 200, 70, &key, TOUCH));
}

#[test]
fn a_write_that_one_server_cannot_take_does_not_fill_the_memory() {
    let mut house = House::new(3, 3, 1);
    let keys = house.keys_of(&[0, 1, 2], 80_000);
    let (stuck, keys) = keys.split_first().expect("there are keys");
    house.disks[2].break_key(Some(stuck.clone()));
    assert_eq!(house.ask(0, 1, 1, stuck, set("stuck")), None);
    let mut waits = 0;
    for (seq, key) in (2..).zip(keys) {
        let answer = house.ask(0, seq, 1, key, set("free"));
        waits += usize::from(answer == Some(Answer::Wait));
    }
    assert!(waits > 1_000, "{waits} had to wait");
    for one in &house.servers {
        let (pending, dirty) = one.under_way();
        assert!(pending <= 1 && dirty <= 66_000, "{:?}: {pending} pending, {dirty} marked", one.id());
    }
    // The second took it, so it need not keep marks for the sake of the third.
    assert!(house.servers[1].under_way().1 < 20_000, "{:?}", house.servers[1].under_way());
    let read = house.ask(1, 100_000, 1, stuck, Operation::Get);
    assert_eq!(read, Some(Answer::Missing), "an unconfirmed version was shown");
    // When it can be taken it is, though all is busy.
    house.disks[2].break_key(None);
    house.wait(1_000_000);
    assert!(matches!(house.answers.get(&1), Some(Answer::Reply(_))), "{:?}", house.answers.get(&1));
    assert!(house.servers.iter().all(|one| one.under_way() == (0, 0)));
    let answer = house.ask(0, 100_001, 1, &keys[79_000], set("free"));
    assert!(matches!(answer, Some(Answer::Reply(_))), "{answer:?}");
}

#[test]
fn a_write_below_the_least_copies_does_not_hold_up_others() {
    let mut house = House::new(4, 4, 3);
    let stuck = house.keys_of(&[0, 1, 2], 1).remove(0);
    let keys = house.keys_of(&[0, 1, 3], 40_000);
    house.cut_off = Some(2);
    assert_eq!(house.ask(0, 1, 1, &stuck, set("stuck")), None);
    house.publish(|space| space.members[2].state = MemberState::Fault { order: 1 });
    house.wait(100_000);
    assert!(!house.answers.contains_key(&1), "two copies are not enough");
    for (seq, key) in (2..).zip(&keys) {
        let answer = house.ask(0, seq, 1, key, set("free"));
        assert!(matches!(answer, Some(Answer::Reply(_))), "{seq}: {answer:?}");
    }
    house.wait(100_000);
    let (pending, _) = house.servers[0].under_way();
    assert_eq!(pending, 1);
    for one in [1, 3] {
        let (_, dirty) = house.servers[one].under_way();
        assert!(dirty < 20_000, "{:?}: {dirty} marked", server(one));
    }
    let read = house.ask(1, 100_000, 1, &stuck, Operation::Get);
    assert_eq!(read, Some(Answer::Missing), "an unconfirmed version was shown");
}

/// It is acknowledged when so much is under way already that nothing new is begun.
#[test]
fn a_write_below_the_least_copies_does_not_hold_up_others_when_it_is_taken_late() {
    let mut house = House::new(4, 4, 3);
    let stuck = house.keys_of(&[0, 1, 2], 1).remove(0);
    let keys = house.keys_of(&[0, 1, 3], 70_000);
    house.cut_off = Some(2);
    house.disks[1].break_key(Some(stuck.clone()));
    assert_eq!(house.ask(0, 1, 1, &stuck, set("stuck")), None);
    house.publish(|space| space.members[2].state = MemberState::Fault { order: 1 });
    let mut answers = (2..).zip(&keys).map(|(seq, key)| house.ask(0, seq, 1, key, set("free")));
    assert!(answers.any(|answer| answer == Some(Answer::Wait)), "all went on");
    house.disks[1].break_key(None);
    house.wait(2_000_000);
    assert!(!house.answers.contains_key(&1), "two copies are not enough");
    let answer = house.ask(0, 100_000, 1, &keys[69_999], set("free"));
    assert!(matches!(answer, Some(Answer::Reply(_))), "{answer:?}");
}

/// One that all others have, and that the primary's own disk did not take at once, is tried again.
#[test]
fn writes_below_the_least_copies_do_not_keep_others_from_being_tried_again() {
    let limits = Limits { swept_max: 1, ..Limits::default() };
    let mut house = House::with(4, 4, |settings| (settings.limits, settings.copies_min) = (limits, 3));
    let stuck = house.keys_of(&[0, 1, 2], 50).into_iter().min().expect("there are some");
    let free = house.keys_of(&[0, 1, 3], 50).into_iter().max().expect("there are some");
    assert!(stuck < free, "the one that waits comes first");
    house.cut_off = Some(2);
    assert_eq!(house.ask(0, 1, 1, &stuck, set("stuck")), None);
    house.publish(|space| space.members[2].state = MemberState::Fault { order: 1 });
    house.disks[0].break_key(Some(free.clone()));
    assert_eq!(house.ask(0, 2, 1, &free, set("free")), None, "its own disk has not");
    house.disks[0].break_key(None);
    house.wait(1_000_000);
    assert!(!house.answers.contains_key(&1), "two copies are not enough");
    assert!(matches!(house.answers.get(&2), Some(Answer::Reply(_))), "{:?}", house.answers.get(&2));
}

#[test]
fn one_step_of_a_copy_does_little_however_much_the_receiver_holds() {
    let mut house = House::new(4, 3, 1);
    // The widest arc that the fourth is to own.
    let mut wanted = house.space.clone();
    wanted.whs = vec![0, 1, 2, 3];
    let table = Table::new(&wanted);
    let comes = table.arcs().iter().filter(|arc| arc.comers.contains(&3));
    let arc = comes.max_by_key(|arc| arc.last.0 - arc.first.0).expect("it comes to own something");
    let range = Range { first: arc.first, last: arc.last };
    let stride = (range.last.0 - range.first.0) / 30_000;
    let stamp = Stamp { space: SpaceNumber(0), clock: Clock(9) };
    let data = Bytes::from_static(b"old");
    let record = Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data };
    for place in 0..30_000 {
        let key = format!("old-{place}");
        let hash = KeyHash(range.first.0 + place * stride);
        house.disks[3].put(hash, key.as_bytes(), &record).expect("nothing fails here");
    }
    // Some of it the primary has too, and it has something else.
    let primary = usize::from(arc.primary().expect("somebody has it"));
    for (place, other) in [(17, false), (29_000, true)] {
        let hash = KeyHash(range.first.0 + place * stride);
        let key = if other { format!("new-{place}") } else { format!("old-{place}") };
        house.disks[primary].put(hash, key.as_bytes(), &record).expect("nothing fails here");
    }
    house.attach_all();
    house.wait(5_000_000);
    let progress = house.servers[primary].progress();
    assert_eq!((progress.copies_done, progress.job), (progress.copies, house.space.whs_since));
    let here = house.disks[3].scan(range.first, range.last, None, usize::MAX).expect("nothing fails here");
    assert_eq!(here.len(), 2, "not made equal");
    assert_eq!(house.disks[3].len(), 2);
    assert!(house.work_max <= 4_096, "one step worked on {} records", house.work_max);
}

#[test]
fn all_that_a_broken_link_lost_is_sent_again() {
    let mut house = House::new(3, 3, 1);
    let keys = house.keys_of(&[0, 1, 2], 5_000);
    house.step(0, ServerInput::ServerDown(server(1)));
    for (seq, key) in (1..).zip(&keys) {
        assert_eq!(house.ask(0, seq, 1, key, set("value")), None);
    }
    house.step(0, ServerInput::ServerUp(server(1)));
    house.wait(1_000_000);
    assert_eq!(house.servers.iter().map(|one| one.under_way()).max(), Some((0, 0)));
    assert!(house.answers.values().all(|answer| matches!(answer, Answer::Reply(_))));
    assert_eq!(house.answers.len(), keys.len());
}

fn large() -> Operation {
    Operation::Set { flags: 0, expiry: 0, data: Bytes::from(vec![b'v'; 1 << 20]) }
}

#[test]
fn writes_under_way_take_a_bounded_memory() {
    let mut house = House::new(3, 3, 1);
    let keys = house.keys_of(&[0, 1, 2], 200);
    house.cut_off = Some(2);
    house.step(0, ServerInput::ServerDown(server(2)));
    let mut waits = Vec::new();
    for (seq, key) in (1..).zip(&keys) {
        match house.ask(0, seq, 1, key, large()) {
            None => assert!(waits.is_empty(), "{seq} was let in behind one that had to wait"),
            Some(Answer::Wait) => waits.push((seq, key)),
            other => panic!("{seq}: {other:?}"),
        }
    }
    // 128 MiB are let in.
    assert_eq!(house.servers[0].under_way().0, 128);
    assert_eq!(waits.len(), 72);
    // Nothing of those that wait was ordered: nobody has heard of them.
    for (_, key) in &waits {
        let hold = |disk: &Disk| disk.head(key.hash, &key.key).expect("nothing fails here").is_some();
        assert!(!house.disks.iter().any(hold), "{key:?} was ordered");
    }
    // What is under way is not refused when it is asked for again, and reads are served.
    assert_eq!(house.ask(0, 1, 1, &keys[0], large()), None, "it joins the first try");
    assert_eq!(house.ask(0, 1_000, 1, &keys[0], Operation::Get), Some(Answer::Missing));
    // The third is back: all that was let in is done, and there is room again.
    house.cut_off = None;
    house.step(0, ServerInput::ServerUp(server(2)));
    house.wait(1_000_000);
    assert_eq!(house.servers[0].under_way(), (0, 0));
    for (seq, key) in waits {
        let answer = house.ask(0, seq, 1, key, large());
        assert!(matches!(answer, Some(Answer::Reply(_))), "{seq}: {answer:?}");
    }
}

#[test]
fn requests_behind_one_write_take_a_bounded_memory() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    house.cut_off = Some(2);
    house.step(0, ServerInput::ServerDown(server(2)));
    let answers: Vec<_> = (1..=200).map(|seq| house.ask(0, seq, 1, &key, large())).collect();
    let waits = answers.iter().filter(|answer| **answer == Some(Answer::Wait)).count();
    assert_eq!((waits, answers.iter().flatten().count()), (72, 72));
    house.cut_off = None;
    house.step(0, ServerInput::ServerUp(server(2)));
    house.wait(1_000_000);
    assert_eq!(house.servers[0].under_way(), (0, 0));
    let done = house.answers.values().filter(|answer| matches!(answer, Answer::Reply(_))).count();
    assert_eq!(done, 128, "all that were let in, one after the other");
    // All of it is given back.
    let answer = house.ask(0, 1_000, 1_000, &key, large());
    assert!(matches!(answer, Some(Answer::Reply(_))), "{answer:?}");
}

/// The fourth catches up when all who could copy to it are lost, and has these keys from before.
fn leftovers() -> (House, Vec<StoreKey>) {
    let mut house = House::new(4, 3, 1);
    house.attach_all();
    let stamp = Stamp { space: SpaceNumber(0), clock: Clock(9) };
    let data = Bytes::from_static(b"old");
    let record = Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data };
    let table = Table::new(&house.space);
    let comes = |key: &StoreKey| table.arc(key.hash).comers.contains(&3);
    let keys: Vec<StoreKey> = house.keys_of(&[], 40_000).into_iter().filter(comes).collect();
    assert!(keys.len() > 5_000, "{} keys", keys.len());
    for lost in 0..3 {
        house.publish(|space| space.members[lost].state = MemberState::Fault { order: lost as u64 + 1 });
    }
    // From before it caught up: nobody is left to make it equal.
    for key in &keys {
        house.disks[3].put(key.hash, &key.key, &record).expect("nothing fails here");
    }
    house.wait(1_000_000);
    assert_eq!(house.disks[3].len(), keys.len(), "they may be all there is");
    house.work_max = 0;
    (house, keys)
}

/// An operator accepts that all others are lost.
fn accept_loss(house: &mut House) {
    house.publish(|space| {
        (space.rhs, space.whs) = (vec![3], vec![3]);
        space.job = None;
    });
}

/// Everybody who is in the space tells it, and names it.
#[test]
fn a_space_that_waits_for_leftovers_is_not_looked_at_or_asked_for_again_and_again() {
    let (mut house, keys) = leftovers();
    accept_loss(&mut house);
    let (space, left) = (house.space.number, house.disks[3].len());
    assert!(left > 0 && left < keys.len(), "{left} of {}", keys.len());
    for _ in 0..100 {
        let told = Message::new_space(house.space.clone());
        let request = house.request(1, 1, &keys[0], Operation::Get);
        let mut effects = Vec::new();
        for input in [
            ServerInput::Manager(manager(), told.clone()),
            ServerInput::Server(server(0), told),
            ServerInput::Server(server(0), Message::Confirm { space, ticket: 1 }),
            ServerInput::Gateway(ConnectionId(1), Message::Request(request)),
        ] {
            house.servers[3].step(house.now, input, &mut effects);
        }
        let asks = |effect: &ServerEffect| match effect {
            ServerEffect::Server(_, message) | ServerEffect::Gateway(_, message) => {
                matches!(message, Message::WantSpace { .. })
            }
            _other => false,
        };
        assert!(!effects.iter().any(asks), "{effects:?}");
    }
    assert_eq!(house.disks[3].len(), left, "one step in its time");
    house.wait(2_000_000);
    assert_eq!(house.servers[3].space().map(|space| space.number), Some(space));
}

#[test]
fn what_nobody_may_serve_any_more_is_dropped_step_by_step() {
    let (mut house, keys) = leftovers();
    accept_loss(&mut house);
    // It is not in the new space before all of them are gone, and serves none of them.
    let adopted =
        |house: &House| house.servers[3].space().map(|space| space.number) == Some(house.space.number);
    assert!(!adopted(&house));
    assert_eq!(house.ask(3, 1, 1, &keys[0], Operation::Get), Some(Answer::Wait));
    house.wait(2_000_000);
    assert!(adopted(&house));
    assert_eq!(house.disks[3].len(), 0);
    assert!(house.work_max <= 4_096, "one step worked on {} records", house.work_max);
    assert_eq!(house.ask(3, 2, 2, &keys[0], Operation::Get), Some(Answer::Missing));
    let answer = house.ask(3, 3, 3, &keys[0], set("new"));
    assert!(matches!(answer, Some(Answer::Reply(_))), "{answer:?}");
}
