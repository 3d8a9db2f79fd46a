//! Disks that fill up, and have room again.

use super::house::{House, LEASE_MICROS, server, set};
use kumo_cluster::{
    Answer, Job, MemberState, Message, Operation, Refusal, Reply, ServerInput, StoreKey, Table,
};

#[test]
fn what_a_full_disk_refused_is_sent_again_when_there_is_room() {
    let mut house = House::new(3, 3, 1);
    let keys = house.keys_of(&[0, 1, 2], 200);
    house.disks[2].fill(true);
    // All of them are under way before the first is refused.
    for (seq, key) in (1..).zip(&keys) {
        house.send(0, seq, 1, key, set("v"));
    }
    house.settle();
    assert!(house.answers.is_empty(), "one has not stored them: {:?}", house.answers);
    house.disks[2].fill(false);
    house.wait(1_000_000);
    let done = house.answers.values().filter(|answer| matches!(answer, Answer::Reply(_))).count();
    assert_eq!(done, keys.len());
    assert!(house.servers.iter().all(|one| one.under_way() == (0, 0)));
}

/// The answers to a frame that was sent twice, over two connections, may come in either order.
#[test]
fn a_refusal_that_comes_after_the_acknowledgement_says_nothing() {
    let mut house = House::new(3, 3, 1);
    let keys = house.keys_of(&[0, 1, 2], 2);
    assert!(matches!(house.ask(0, 1, 1, &keys[0], set("v")), Some(Answer::Reply(_))));
    let late = Message::ReplicaFull { epoch: house.space.number, seq: 1 };
    house.step(0, ServerInput::Server(server(2), late));
    let answer = house.ask(0, 2, 2, &keys[1], set("v"));
    assert!(matches!(answer, Some(Answer::Reply(_))), "{answer:?}");
}

/// A network may deliver a request twice, and its sender was told that nothing came of it.
#[test]
fn what_was_refused_stays_refused_though_there_is_room() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    house.disks[0].fill(true);
    let refused = Some(Answer::Refused { reason: Refusal::Full });
    assert_eq!(house.ask(0, 1, 1, &key, set("v")), refused);
    house.disks[0].fill(false);
    assert_eq!(house.ask(0, 1, 1, &key, set("v")), refused, "the same again");
    assert_eq!(house.ask(0, 2, 1, &key, Operation::Get), Some(Answer::Missing));
    assert!(matches!(house.ask(0, 3, 3, &key, set("w")), Some(Answer::Reply(_))));
}

/// It was to be answered when it was certain that nobody else leads, and could not be judged then.
#[test]
fn what_was_refused_stays_refused_though_it_can_be_read() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("abc")), Some(Answer::Reply(_))));
    house.now = house.now.plus_micros(LEASE_MICROS + 1);
    let add = Operation::Add64 { unique: None, delta: 1, down: false, initial: None, touch: None };
    house.send(0, 2, 2, &key, add.clone());
    house.disks[0].damage_key(Some(key.clone()));
    house.settle();
    let refused = Some(Answer::Refused { reason: Refusal::Damaged });
    assert_eq!(house.answers.remove(&2), refused);
    house.disks[0].damage_key(None);
    assert!(matches!(house.ask(0, 3, 2, &key, set("5")), Some(Answer::Reply(_))));
    assert_eq!(house.ask(0, 2, 2, &key, add), refused, "the same again");
}

#[test]
fn who_has_no_room_does_not_keep_others_from_being_copied_to() {
    let mut house = House::new(5, 3, 1);
    let keys = house.keys_of(&[], 2000);
    for (seq, key) in (1..).zip(&keys) {
        let primary = house.primary(key.hash);
        assert!(matches!(house.ask(primary, seq, seq, key, set("v")), Some(Answer::Reply(_))));
    }
    house.disks[3].fill(true);
    house.attach_all();
    house.wait(60_000_000);
    let table = Table::new(&house.space);
    let comes = |key: &&StoreKey| table.arc(key.hash).comers.contains(&4);
    let (here, all) = (house.disks[4].len(), keys.iter().filter(comes).count());
    assert_eq!(here, all, "copied to the one that has room");
    house.disks[3].fill(false);
    house.wait(60_000_000);
    for server in &house.servers[..3] {
        let progress = server.progress();
        assert_eq!(progress.copies_done, progress.copies);
    }
}

/// One that is full is found so by a write, which then waits for it. To be rid of that server must not.
#[test]
fn one_that_is_full_can_be_detached_while_a_write_waits_for_it() {
    for full in [0, 1, 2] {
        let mut house = House::new(4, 3, 1);
        let key = under_way(&mut house, full);
        house.publish(|space| {
            (space.whs, space.whs_since) = ((0..4).filter(|&one| one != full).collect(), space.number);
            space.job = Some(Job { full: false, paused: false, rate: 0 });
        });
        assert_eq!(Table::new(&house.space).arc(key.hash).comers, [3]);
        replaced(&mut house, &[usize::from(full)], &key);
    }
}

/// What an operator, or auto-replace, does about a loss.
#[test]
fn a_lost_one_is_replaced_while_a_write_waits_for_one_that_is_full() {
    for full in [0, 1] {
        let mut house = House::new(4, 3, 1);
        let key = under_way(&mut house, full);
        house.publish(|space| space.members[2].state = MemberState::Fault { order: 1 });
        house.cut_off = Some(2);
        house.wait(1_000_000);
        house.publish(|space| {
            (space.whs, space.whs_since) = (vec![0, 1, 3], space.number);
            space.job = Some(Job { full: false, paused: false, rate: 0 });
        });
        replaced(&mut house, &[], &key);
        house.disks[usize::from(full)].fill(false);
        house.wait(1_000_000);
        let last = house.primary(key.hash);
        let value = house.ask(last, 10, 10, &key, Operation::Get);
        assert!(matches!(value, Some(Answer::Reply(Reply::Value { data, .. })) if data == "after"));
    }
}

/// A write of a key of 0, 1 and 2 that waits for one of them to have room.
fn under_way(house: &mut House, full: u16) -> StoreKey {
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("before")), Some(Answer::Reply(_))));
    house.wait(1_000_000);
    house.send(0, 2, 2, &key, set("after"));
    house.disks[usize::from(full)].fill(true);
    house.settle();
    house.wait(1_000_000);
    assert_eq!((house.answers.get(&2), house.servers[0].under_way().0), (None, 1), "it waits");
    key
}

/// The replace comes to its end, and the write too where nobody is full any more.
fn replaced(house: &mut House, leaving: &[usize], key: &StoreKey) {
    house.wait(30_000_000);
    for server in &house.servers {
        let progress = server.progress();
        assert_eq!(progress.copies_done, progress.copies, "{:?}: {progress:?}", server.id());
    }
    house.publish(|space| {
        (space.earlier, space.old) = (space.rhs.clone(), leaving.iter().map(|&one| one as u16).collect());
        (space.rhs, space.job) = (space.whs.clone(), None);
    });
    house.wait(1_000_000);
    house.publish(|space| (space.earlier, space.old) = (vec![], vec![]));
    house.wait(1_000_000);
    if !leaving.is_empty() {
        assert!(house.servers.iter().all(|server| server.under_way() == (0, 0)), "nobody is full any more");
        for at in house.owners(key) {
            let value = house.ask(at, 20 + at as u64, 2, key, Operation::Get);
            assert!(matches!(value, Some(Answer::Reply(Reply::Value { data, .. })) if data == "after"));
        }
    }
}
