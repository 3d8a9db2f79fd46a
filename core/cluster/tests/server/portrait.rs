//! What a search tells states apart by.

use super::house::House;
use bytes::Bytes;
use kumo_cluster::{Clock, Kind, MemberState, Record, SpaceNumber, Stamp, Store, StoreKey, Table};

fn portrait(house: &House, key: &StoreKey) -> String {
    let mut text = String::new();
    house.servers[3].portray(key.hash, &mut text).expect("a string takes everything");
    text
}

/// The fourth catches up when all who could copy to it are lost, and an operator accepts that; but what it must drop
/// first cannot be dropped yet.
#[test]
fn a_space_that_is_not_adopted_yet_is_part_of_it() {
    let mut house = House::new(4, 3, 1);
    house.attach_all();
    let table = Table::new(&house.space);
    let comes = |key: &StoreKey| table.arc(key.hash).comers.contains(&3);
    let key = house.keys_of(&[], 100).into_iter().find(comes).expect("one of so many");
    for lost in 0..3 {
        house.publish(|space| space.members[lost].state = MemberState::Fault { order: lost as u64 + 1 });
    }
    let stamp = Stamp { space: SpaceNumber(0), clock: Clock(9) };
    let record = Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data: Bytes::from_static(b"old") };
    house.disks[3].put(key.hash, &key.key, &record).expect("nothing fails yet");
    house.disks[3].break_key(Some(key.clone()));
    let before = portrait(&house, &key);
    house.publish(|space| {
        (space.rhs, space.whs) = (vec![3], vec![3]);
        space.job = None;
    });
    assert_ne!(house.servers[3].space().map(|space| space.number), Some(house.space.number));
    assert_ne!(portrait(&house, &key), before, "what it will do next is something else");
}
