//! A committed version that its new primary cannot read, and has no room for: others hold it, for good or for a while.

use super::house::{House, set};
use bytes::Bytes;
use kumo_cluster::{Answer, Job, MemberState, Operation, Refusal, Reply, Store, StoreKey};

fn done(answer: Option<Answer>) {
    assert!(matches!(answer, Some(Answer::Reply(Reply::Done { .. }))), "{answer:?}");
}

fn value(answer: Option<Answer>) -> Bytes {
    match answer {
        Some(Answer::Reply(Reply::Value { data, .. })) => data,
        other => panic!("no value: {other:?}"),
    }
}

fn readable(house: &House, at: usize, key: &StoreKey) -> bool {
    matches!(house.disks[at].get(key.hash, &key.key), Ok(Some(record)) if record.data == "a")
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

/// The first is lost, and the third has it for good: it is committed.
fn committed(operation: Operation) -> (House, StoreKey) {
    let mut house = House::new(4, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    done(house.ask(0, 1, 1, &key, operation));
    spoil(&mut house, &key);
    lose(&mut house, 0, 1);
    assert!(!readable(&house, 1, &key), "there is no room");
    (house, key)
}

fn lose(house: &mut House, at: usize, order: u64) {
    house.publish(|space| space.members[at].state = MemberState::Fault { order });
    house.wait(1_000_000);
}

#[test]
fn it_is_stored_when_there_is_room() {
    let (mut house, key) = committed(set("a"));
    assert_eq!(house.servers[1].under_way().0, 0);
    house.disks[1].fill(false);
    house.wait(1_000_000);
    assert!(readable(&house, 1, &key));
    lose(&mut house, 2, 2);
    assert_eq!(value(house.ask(1, 2, 2, &key, Operation::Get)), "a");
}

#[test]
fn it_is_there_though_the_others_are_lost_before() {
    let (mut house, key) = committed(set("a"));
    lose(&mut house, 2, 2);
    assert_eq!(value(house.ask(1, 2, 2, &key, Operation::Get)), "a");
    house.disks[1].fill(false);
    house.wait(1_000_000);
    assert!(readable(&house, 1, &key));
}

#[test]
fn those_who_come_are_given_it() {
    let (mut house, key) = committed(set("a"));
    house.publish(|space| {
        (space.whs, space.whs_since) = (vec![1, 2, 3], space.number);
        space.job = Some(Job { full: false, paused: false, rate: 0 });
    });
    house.wait(5_000_000);
    let progress = house.servers[1].progress();
    assert_eq!((progress.copies_done, progress.unreadable), (progress.copies, 0));
    assert!(readable(&house, 3, &key));
}

/// Those who have it on their disks leave, and nobody comes who would get it.
#[test]
fn those_who_leave_stay_until_there_is_room() {
    let (mut house, key) = committed(set("a"));
    // A third comes back, and has it.
    house.publish(|space| {
        (space.whs, space.whs_since) = (vec![1, 2, 3], space.number);
        space.job = Some(Job { full: false, paused: false, rate: 0 });
    });
    house.wait(5_000_000);
    house.publish(|space| {
        (space.earlier, space.old) = (space.rhs.clone(), vec![0]);
        (space.rhs, space.job) = (space.whs.clone(), None);
    });
    house.publish(|space| (space.earlier, space.old) = (vec![], vec![]));
    house.wait(1_000_000);
    assert_eq!(house.owners(&key).len(), 3);
    let mut left = |whs: &[u16]| {
        house.publish(|space| {
            (space.whs, space.whs_since) = (whs.to_vec(), space.number);
            space.job = Some(Job { full: false, paused: false, rate: 0 });
        });
        house.wait(5_000_000);
        let progress = house.servers[1].progress();
        (progress.copies - progress.copies_done, progress.unreadable)
    };
    assert_eq!(left(&[1, 2]), (0, 0), "another one stays");
    assert_eq!(left(&[2, 3]), (0, 0), "it leaves itself");
    assert_eq!(left(&[1]), (1, 1));
    house.disks[1].fill(false);
    house.wait(1_000_000);
    let progress = house.servers[1].progress();
    assert_eq!((progress.copies_done, progress.unreadable), (progress.copies, 0));
}

#[test]
fn it_does_not_take_the_place_of_what_came_after_it() {
    let (mut house, key) = committed(set("a"));
    house.disks[1].fill(false);
    done(house.ask(1, 2, 2, &key, set("b")));
    house.wait(1_000_000);
    assert_eq!(value(house.ask(1, 3, 3, &key, Operation::Get)), "b");
    // Nor is it shown instead of that.
    house.disks[1].damage_key(Some(key.clone()));
    let damaged = Some(Answer::Refused { reason: Refusal::Damaged });
    assert_eq!(house.ask(1, 4, 4, &key, Operation::Get), damaged);
}

/// More than is kept in memory: it waits for room.
#[test]
fn what_is_too_large_stays_pending() {
    let data = Bytes::from(vec![b'v'; 16 << 20]);
    let (mut house, key) = committed(Operation::Set { flags: 0, expiry: 0, data: data.clone() });
    assert_eq!(house.servers[1].under_way().0, 1);
    assert_eq!(house.ask(1, 2, 2, &key, Operation::Get), Some(Answer::Wait));
    house.disks[1].fill(false);
    house.wait(1_000_000);
    assert_eq!(value(house.ask(1, 3, 3, &key, Operation::Get)), data);
}
