//! What another cluster left in a store, and what another cell says.

use super::disk::Disk;
use super::house::{House, manager, set, settings};
use bytes::Bytes;
use kumo_cluster::{
    Answer, Clock, Kind, MemberState, Message, Operation, Record, Reply, Server, ServerEffect, ServerInput,
    SpaceNumber, Stamp, Store,
};
use kumo_paxos::{CellId, Time};

#[test]
fn what_another_cluster_stamped_is_replaced_on_every_copy() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[], 1).remove(0);
    let stamp = Stamp { space: SpaceNumber(57), clock: Clock(1) };
    let data = Bytes::from_static(b"restored");
    let record = Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data };
    for disk in &house.disks {
        disk.put(key.hash, &key.key, &record).expect("a disk that works");
    }
    let primary = house.primary(key.hash);
    let answer = house.ask(primary, 1, 1, &key, set("new"));
    assert!(matches!(answer, Some(Answer::Reply(_))), "{answer:?}");
    house.publish(|space| space.members[primary].state = MemberState::Fault { order: 1 });
    house.wait(1_000_000);
    let next = house.primary(key.hash);
    match house.ask(next, 2, 2, &key, Operation::Get) {
        Some(Answer::Reply(Reply::Value { data, .. })) => assert_eq!(data, "new"),
        other => panic!("no value: {other:?}"),
    }
}

#[test]
fn an_owner_stays_when_another_cell_does_not_want_it() {
    let mut house = House::new(4, 3, 1);
    let exits = |house: &mut House, at: usize| {
        let (mut effects, now) = (Vec::new(), house.now);
        let unwelcome = Message::Unwelcome { reason: "another cluster".to_owned() };
        house.servers[at].step(now, ServerInput::Manager(manager(), unwelcome), &mut effects);
        effects.iter().any(|effect| matches!(effect, ServerEffect::Exit(_)))
    };
    assert!(!exits(&mut house, 0), "it owns what others need");
    assert!(exits(&mut house, 3), "it owns nothing");
}

/// Managers that forget everything begin to count anew; who was never attached has nothing that could be undercut.
#[test]
fn who_was_only_shown_a_space_goes_by_the_one_that_names_it() {
    let mut server = Server::new(settings(3), Disk::default(), Time(0));
    let mut show = |cluster: u128, number: u64, servers: usize| {
        let mut space = House::new(servers, 1, 1).space;
        (space.cluster, space.number) = (CellId(cluster), SpaceNumber(number));
        let input = ServerInput::Manager(manager(), Message::new_space(space));
        server.step(Time(0), input, &mut Vec::new());
        server.space().map(|space| (space.cluster.0, space.number.0))
    };
    assert_eq!(show(1, 50, 3), None, "it has no part in it");
    assert_eq!(show(2, 7, 4), Some((2, 7)));
    assert_eq!(show(1, 51, 4), Some((2, 7)), "it belongs to the one that named it first");
    assert_eq!(show(2, 8, 3), Some((2, 8)), "and hears of all that follows");
}
