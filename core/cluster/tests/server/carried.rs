//! A committed version that a settlement carries forward to owners that have it and cannot read it.

use super::house::{House, set};
use bytes::Bytes;
use kumo_cluster::{Answer, MemberState, Operation, Reply, Store, StoreKey};

fn value(answer: Option<Answer>) -> Bytes {
    match answer {
        Some(Answer::Reply(Reply::Value { data, .. })) => data,
        other => panic!("no value: {other:?}"),
    }
}

fn readable(house: &House, at: usize, key: &StoreKey) -> bool {
    matches!(house.disks[at].get(key.hash, &key.key), Ok(Some(record)) if record.data == "a")
}

/// `a` is stored everywhere. The third has not heard that it is committed; the second has, or has not.
fn unsettled(heard: bool) -> (House, StoreKey) {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("a")), Some(Answer::Reply(Reply::Done { .. }))));
    if heard {
        house.cut_off = Some(2);
        house.wait(1_000_000);
        house.cut_off = None;
    }
    assert_eq!([1, 2].map(|at| house.servers[at].under_way().1), [u64::from(!heard), 1]);
    (house, key)
}

/// The first is lost: the second leads.
fn lose(house: &mut House) {
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
}

#[test]
fn a_replica_acknowledges_what_it_can_read() {
    let (mut house, key) = unsettled(false);
    house.disks[2].damage_key(Some(key.clone()));
    lose(&mut house);
    house.wait(1_000_000);
    assert!(readable(&house, 2, &key), "it counts as a copy");
    // The next one that leads has nobody else to ask.
    house.publish(|space| space.members[1].state = MemberState::Fault { order: 2 });
    house.wait(1_000_000);
    assert_eq!(value(house.ask(2, 2, 2, &key, Operation::Get)), "a");
}

#[test]
fn a_replica_without_room_for_it_does_not_acknowledge_it() {
    let (mut house, key) = unsettled(false);
    house.disks[2].damage_key(Some(key.clone()));
    house.disks[2].fill(true);
    lose(&mut house);
    house.wait(5_000_000);
    assert_eq!(house.servers[1].under_way().0, 1);
    assert_eq!(house.ask(1, 2, 2, &key, Operation::Get), Some(Answer::Wait));
    house.disks[2].fill(false);
    house.wait(5_000_000);
    assert!(readable(&house, 2, &key));
    assert_eq!(value(house.ask(1, 3, 3, &key, Operation::Get)), "a");
}

/// The same stored everywhere, and it is the second that has not heard that it is committed. The third has, and cannot read
/// it.
fn heard_by_the_third() -> (House, StoreKey) {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("a")), Some(Answer::Reply(Reply::Done { .. }))));
    house.cut_off = Some(1);
    house.wait(1_000_000);
    house.cut_off = None;
    assert_eq!([1, 2].map(|at| house.servers[at].under_way().1), [1, 0]);
    house.disks[2].damage_key(Some(key.clone()));
    (house, key)
}

#[test]
fn so_does_one_that_has_no_doubt_of_it() {
    let (mut house, key) = heard_by_the_third();
    lose(&mut house);
    house.wait(1_000_000);
    assert!(readable(&house, 2, &key), "it counts as a copy");
    house.publish(|space| space.members[1].state = MemberState::Fault { order: 2 });
    house.wait(1_000_000);
    assert_eq!(value(house.ask(2, 2, 2, &key, Operation::Get)), "a");
}

#[test]
fn without_room_it_does_not_acknowledge_it_either() {
    let (mut house, key) = heard_by_the_third();
    house.disks[2].fill(true);
    lose(&mut house);
    house.wait(5_000_000);
    assert_eq!(house.servers[1].under_way().0, 1);
    house.disks[2].fill(false);
    house.wait(5_000_000);
    assert!(readable(&house, 2, &key));
    assert_eq!(value(house.ask(1, 3, 3, &key, Operation::Get)), "a");
}

#[test]
fn a_new_primary_stores_again_what_it_cannot_read() {
    for heard in [false, true] {
        let (mut house, key) = unsettled(heard);
        house.disks[1].damage_key(Some(key.clone()));
        lose(&mut house);
        house.wait(1_000_000);
        assert!(readable(&house, 1, &key), "heard: {heard}");
        assert_eq!(value(house.ask(1, 2, 2, &key, Operation::Get)), "a");
    }
}

/// There may be no room for long: the others show it meanwhile, and so does the primary, from memory.
#[test]
fn a_new_primary_without_room_for_it_does_not_keep_others_from_showing_it() {
    for heard in [false, true] {
        let (mut house, key) = unsettled(heard);
        house.disks[1].damage_key(Some(key.clone()));
        house.disks[1].fill(true);
        lose(&mut house);
        house.wait(1_000_000);
        assert_eq!(house.servers[1].under_way().0, 0, "heard: {heard}");
        assert_eq!(value(house.ask(1, 2, 2, &key, Operation::Get)), "a");
        assert_eq!(value(house.ask(2, 3, 3, &key, Operation::Get)), "a");
    }
}

/// What it was told is the only copy that can be read.
#[test]
fn a_last_owner_without_room_for_it_keeps_it_until_there_is() {
    for heard in [false, true] {
        let (mut house, key) = unsettled(heard);
        house.disks[1].damage_key(Some(key.clone()));
        house.disks[1].fill(true);
        house.drop_frames = true;
        lose(&mut house);
        house.publish(|space| space.members[2].state = MemberState::Fault { order: 2 });
        house.wait(1_000_000);
        assert_eq!(house.ask(1, 2, 2, &key, Operation::Get), Some(Answer::Wait), "heard: {heard}");
        house.disks[1].fill(false);
        house.wait(1_000_000);
        assert_eq!(value(house.ask(1, 3, 3, &key, Operation::Get)), "a");
    }
}
