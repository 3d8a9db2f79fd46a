//! Disks that fill up, and have room again.

use super::house::{House, LEASE_MICROS, server, set};
use kumo_cluster::{Answer, Message, Operation, Refusal, ServerInput, StoreKey, Table};

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
