//! Disks that fill up, and have room again.

use super::house::{House, server, set};
use kumo_cluster::{Answer, Message, Operation, Refusal, ServerInput};

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
