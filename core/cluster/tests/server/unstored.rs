//! A committed version that its new primary cannot read, and has no room for: others hold it, for good or for a while.

use super::house::{House, set};
use bytes::Bytes;
use kumo_cluster::{Answer, MemberState, Operation, Reply, StoreKey};

fn done(answer: Option<Answer>) {
    assert!(matches!(answer, Some(Answer::Reply(Reply::Done { .. }))), "{answer:?}");
}

fn value(answer: Option<Answer>) -> Bytes {
    match answer {
        Some(Answer::Reply(Reply::Value { data, .. })) => data,
        other => panic!("no value: {other:?}"),
    }
}

/// The second cannot read what it has of the key, and has no room.
fn spoil(house: &mut House, key: &StoreKey) {
    house.disks[1].damage_key(Some(key.clone()));
    house.disks[1].fill(true);
}

/// Whoever leaves drops what it has: then the second is the only one that is left.
#[test]
fn those_who_leave_are_not_counted_on() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    house.publish(|space| (space.whs, space.whs_since) = (vec![1], space.number));
    done(house.ask(0, 1, 1, &key, set("a")));
    spoil(&mut house, &key);
    // Nobody has heard yet that it is committed.
    house.publish(|space| {
        (space.earlier, space.old) = (space.rhs.clone(), vec![0, 2]);
        space.rhs = space.whs.clone();
    });
    house.wait(1_000_000);
    assert_eq!(house.servers[1].under_way().0, 1, "it waits for room");
    house.publish(|space| (space.earlier, space.old) = (vec![], vec![]));
    house.wait(1_000_000);
    assert_eq!([0, 2].map(|at| house.disks[at].len()), [0, 0], "they have dropped it");
    assert_eq!(house.ask(1, 2, 2, &key, Operation::Get), Some(Answer::Wait));
    house.disks[1].fill(false);
    house.wait(1_000_000);
    assert_eq!(value(house.ask(1, 3, 3, &key, Operation::Get)), "a");
}

/// Whoever comes drops what it has when the replace is cancelled.
#[test]
fn those_who_come_are_not_counted_on() {
    let mut house = House::new(3, 2, 1);
    let key = house.keys_of(&[0, 1], 1).remove(0);
    house.attach_all();
    done(house.ask(0, 1, 1, &key, set("a")));
    spoil(&mut house, &key);
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
    house.wait(1_000_000);
    assert_eq!(house.servers[1].under_way().0, 1, "it waits for room");
    house.publish(|space| {
        (space.whs, space.whs_since, space.job) = (space.rhs.clone(), space.number, None);
    });
    house.wait(1_000_000);
    assert_eq!(house.disks[2].len(), 0, "it has dropped it");
    house.disks[1].fill(false);
    house.wait(1_000_000);
    assert_eq!(value(house.ask(1, 3, 3, &key, Operation::Get)), "a");
}
