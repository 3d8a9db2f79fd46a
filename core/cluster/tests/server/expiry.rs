//! A key that was said to be missing stays missing, whatever time it is elsewhere: the primary thinks that the value has
//! expired, the other owners are told another time.

use super::house::{House, LEASE_MICROS, START_SECONDS, set};
use bytes::Bytes;
use kumo_cluster::{Answer, Kind, MemberState, Operation, Refusal, Reply, StoreKey};

const FULL: Option<Answer> = Some(Answer::Refused { reason: Refusal::Full });

/// A value on all three that ends soon.
fn mortal(house: &mut House) -> StoreKey {
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    let set = Operation::Set { flags: 0, expiry: 10, data: Bytes::from_static(b"mortal") };
    let answer = house.ask(0, 1, 1, &key, set);
    assert!(matches!(answer, Some(Answer::Reply(_))), "{answer:?}");
    house.wait(100_000);
    key
}

/// The primary hears that its time is over; the others do not.
fn it_ends(house: &mut House) {
    house.lease_at(0, START_SECONDS + 20);
}

fn is_value(answer: Option<Answer>) -> bool {
    matches!(answer, Some(Answer::Reply(Reply::Value { .. })))
}

/// From now on nobody shows it.
fn goes(house: &mut House, key: &StoreKey) {
    assert_eq!(
        house.ask(0, 100_001, 1, key, Operation::Get),
        Some(Answer::Wait),
        "a tombstone is written first"
    );
    for at in 0..3 {
        assert_eq!(house.ask(at, 100_002 + at as u64, 1, key, Operation::Get), Some(Answer::Missing));
        assert_eq!(house.disks[at].kind_of(key), Some(Kind::Tombstone));
    }
}

#[test]
fn it_is_gone_everywhere_before_anybody_hears_of_it() {
    let mut house = House::new(3, 3, 1);
    let key = mortal(&mut house);
    it_ends(&mut house);
    assert!(is_value(house.ask(1, 2, 1, &key, Operation::Get)), "it is early there");
    goes(&mut house, &key);
}

#[test]
fn a_full_disk_says_so_in_place_of_missing() {
    let mut house = House::new(3, 3, 1);
    let key = mortal(&mut house);
    it_ends(&mut house);
    house.disks[0].fill(true);
    assert_eq!(house.ask(0, 2, 1, &key, Operation::Get), FULL);
    assert_eq!(house.ask(0, 3, 1, &key, Operation::Delete { unique: None }), FULL);
    assert!(is_value(house.ask(1, 4, 1, &key, Operation::Get)), "nobody has said that it is missing");
    // Near its end the others leave it to the primary, which cannot say.
    house.lease_at(1, START_SECONDS + 9);
    assert_eq!(house.ask(1, 5, 1, &key, Operation::Get), Some(Answer::Wait));
    house.disks[0].fill(false);
    goes(&mut house, &key);
}

#[test]
fn another_owners_full_disk_says_so_too() {
    let mut house = House::new(3, 3, 1);
    let key = mortal(&mut house);
    let other = house.keys_of(&[0, 1, 2], 2).remove(1);
    house.disks[2].fill(true);
    assert_eq!(house.ask(0, 2, 1, &other, set("finds it full")), None);
    it_ends(&mut house);
    assert_eq!(house.ask(0, 3, 1, &key, Operation::Get), FULL);
    assert!(is_value(house.ask(1, 4, 1, &key, Operation::Get)));
    house.disks[2].fill(false);
    house.wait(1_000_000);
    assert!(matches!(house.answers.get(&2), Some(Answer::Reply(_))));
    for at in 0..3 {
        assert_eq!(house.ask(at, 10 + at as u64, 1, &key, Operation::Get), Some(Answer::Missing));
    }
}

#[test]
fn a_busy_link_is_waited_for() {
    let mut house = House::new(3, 3, 1);
    let key = mortal(&mut house);
    let keys = house.keys_of(&[0, 1, 2], 65_537);
    house.cut_off = Some(2);
    for (seq, key) in (2..).zip(&keys[1..]) {
        assert_eq!(house.ask(0, seq, 1, key, set("value")), None);
    }
    it_ends(&mut house);
    assert_eq!(house.ask(0, 100_000, 1, &key, Operation::Get), Some(Answer::Wait));
    assert!(is_value(house.ask(1, 100_001, 1, &key, Operation::Get)), "nobody has said that it is missing");
    house.publish(|space| space.members[2].state = MemberState::Fault { order: 1 });
    house.wait(1_000_000);
    assert_eq!(house.ask(0, 100_001, 1, &key, Operation::Get), Some(Answer::Wait), "now it can be written");
    for at in 0..2 {
        assert_eq!(house.ask(at, 100_002 + at as u64, 1, &key, Operation::Get), Some(Answer::Missing));
    }
}

/// It is not a client's write.
#[test]
fn the_least_copies_are_not_asked_for() {
    let mut house = House::new(3, 3, 3);
    let key = mortal(&mut house);
    house.publish(|space| space.members[2].state = MemberState::Fault { order: 1 });
    it_ends(&mut house);
    assert_eq!(house.ask(0, 2, 1, &key, Operation::Get), Some(Answer::Wait));
    for at in 0..2 {
        assert_eq!(house.ask(at, 3 + at as u64, 1, &key, Operation::Get), Some(Answer::Missing));
        assert_eq!(house.disks[at].kind_of(&key), Some(Kind::Tombstone));
    }
}

/// An answer that waits for the others' word is judged again when it comes; the value may have ended meanwhile.
#[test]
fn a_refusal_without_a_lease_is_not_quicker_than_the_tombstone() {
    let mut house = House::new(3, 3, 1);
    house.now = house.now.plus_micros(LEASE_MICROS);
    let key = mortal(&mut house);
    let data = Bytes::from_static(b"other");
    house.send(0, 2, 1, &key, Operation::Cas { unique: 77, flags: 0, expiry: 0, data });
    assert_eq!(house.answers.get(&2), None, "it waits for the others' word");
    house.now = house.now.plus_micros(20_000_000);
    house.settle();
    assert_eq!(house.answers.get(&2), Some(&Answer::Missing));
    for disk in &house.disks {
        assert_eq!(disk.kind_of(&key), Some(Kind::Tombstone), "it could be shown again");
    }
}
