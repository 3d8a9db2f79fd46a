//! Answers that write nothing, and wait for others because there is no lease: what they keep meanwhile is bounded.

use super::house::{House, LEASE_MICROS, set};
use bytes::Bytes;
use kumo_cluster::{Answer, Operation, Reply, StoreKey};

/// What may wait together.
const UNLEASED_BYTES_MAX: usize = 64 << 20;

fn add() -> Operation {
    Operation::Add { flags: 0, expiry: 0, data: Bytes::from(vec![b'v'; 1 << 20]) }
}

/// No lease, a key that is there, and nothing comes through between the servers.
fn without_lease() -> (House, StoreKey) {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("v")), Some(Answer::Reply(Reply::Done { .. }))));
    house.wait(1_000_000);
    house.now = house.now.plus_micros(LEASE_MICROS + 1);
    (house, key)
}

/// Sends so many at once, and says how many of them wait.
fn waiting(house: &mut House, key: &StoreKey, first: u64) -> usize {
    house.answers.clear();
    for seq in first..first + 100 {
        house.send(0, seq, 2, key, add());
    }
    assert!(house.answers.values().all(|answer| *answer == Answer::Wait));
    100 - house.answers.len()
}

#[test]
fn what_waits_for_others_without_a_lease_is_bounded_by_its_bytes() {
    let (mut house, key) = without_lease();
    assert_eq!(waiting(&mut house, &key, 100), UNLEASED_BYTES_MAX >> 20);
    // It is answered: there is room for as much again.
    house.settle();
    let stored = house.answers.values().filter(|answer| **answer == Answer::NotStored).count();
    assert_eq!(stored, UNLEASED_BYTES_MAX >> 20);
    assert_eq!(waiting(&mut house, &key, 200), UNLEASED_BYTES_MAX >> 20);
    // Nobody answers, and it is given up.
    house.cut_off = Some(0);
    house.wait(1_000_000);
    assert_eq!(house.answers.len(), 100);
    assert_eq!(waiting(&mut house, &key, 300), UNLEASED_BYTES_MAX >> 20);
    // The space changes.
    house.cut_off = None;
    house.publish(|_| {});
    assert_eq!(house.answers.len(), 100);
    assert_eq!(waiting(&mut house, &key, 400), UNLEASED_BYTES_MAX >> 20);
}

/// They hold no data.
#[test]
fn gets_wait_beside_as_many_large_answers_as_may() {
    let (mut house, key) = without_lease();
    assert_eq!(waiting(&mut house, &key, 100), UNLEASED_BYTES_MAX >> 20);
    let other = house.keys_of(&[0, 1, 2], 2).remove(1);
    house.send(0, 300, 2, &other, Operation::Get);
    assert_eq!(house.answers.get(&300), None, "it waits");
    house.settle();
    assert_eq!(house.answers.get(&300), Some(&Answer::Missing));
    assert_eq!(waiting(&mut house, &key, 400), UNLEASED_BYTES_MAX >> 20);
}

#[test]
fn one_larger_than_all_that_may_wait_waits_alone() {
    let (mut house, key) = without_lease();
    let data = Bytes::from(vec![b'v'; UNLEASED_BYTES_MAX + 1]);
    let add = Operation::Add { flags: 0, expiry: 0, data };
    assert_eq!(house.ask(0, 2, 2, &key, add), Some(Answer::NotStored));
}
