//! Settlements that are cut short.

use super::house::{House, server, set};
use bytes::Bytes;
use kumo_cluster::{
    Answer, Clock, GatewayId, Kind, MemberState, Message, Operation, Origin, Record, Remembered, Reply,
    RequestId, ServerInput, Stamp, Table, Unsettled, Upto,
};

/// The first server is lost; the third, which alone has its last write, is lost when it has told the second about that
/// write but not all it knows.
#[test]
fn an_id_whose_record_a_new_settlement_does_not_find_is_not_known() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    house.cut_off = Some(2);
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
    assert_eq!(house.ask(1, 1, 1, &key, set("v")), Some(Answer::Wait), "it settles");

    let space = house.space.number;
    let id = RequestId { gateway: GatewayId(7), seq: 1 };
    let reply = Reply::Done { clock: 9 };
    let stamp = Stamp { space, clock: Clock(9) };
    let data = Bytes::from_static(b"v");
    let part = Message::Settled {
        space,
        unsettled: vec![Unsettled {
            key: key.clone(),
            record: Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data },
            origin: Some(Origin { id, lowest_open: 1, reply: reply.clone() }),
        }],
        remembered: vec![Remembered { id, hash: key.hash, reply: Some(reply) }],
        lowest_open: vec![(id.gateway, 1)],
        next: Some(Upto::Ids { upto: Some(id) }),
    };
    house.step(1, ServerInput::Server(server(2), part));
    assert_eq!(house.ask(1, 1, 1, &key, set("v")), Some(Answer::Wait), "it settles still");

    house.publish(|space| space.members[2].state = MemberState::Fault { order: 2 });
    let answer = house.ask(1, 1, 1, &key, set("v"));
    assert!(matches!(answer, Some(Answer::Reply(Reply::Done { .. }))), "{answer:?}");
    let shown = house.ask(1, 2, 2, &key, Operation::Get);
    assert!(matches!(&shown, Some(Answer::Reply(Reply::Value { data, .. })) if data == "v"), "{shown:?}");
}

#[test]
fn a_request_is_not_remembered_without_its_write() {
    let mut house = House::new(4, 3, 1);
    house.attach_all();
    // The write reaches all but the one that is primary next.
    let key = house.keys_of(&[0, 2, 1], 100).into_iter().find(|key| {
        let table = Table::new(&house.space);
        table.arc(key.hash).comers.contains(&3)
    });
    let key = key.expect("the newcomer gets some of them");
    house.cut_off = Some(2);
    assert_eq!(house.ask(0, 1, 1, &key, set("new")), None, "one has not acknowledged");
    // One of the others tells it, one is silent: it goes on settling.
    house.cut_off = Some(3);
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
    assert_eq!(house.ask(2, 1, 1, &key, set("new")), Some(Answer::Wait));
    // Both are lost: nobody has the write any more, and it was never answered.
    house.publish(|space| {
        space.members[1].state = MemberState::Fault { order: 2 };
        space.members[3].state = MemberState::Fault { order: 3 };
    });
    let told = house.ask(2, 1, 1, &key, set("new"));
    let Some(Answer::Reply(Reply::Done { clock: done })) = told else { panic!("not done: {told:?}") };
    match house.ask(2, 2, 2, &key, Operation::Get) {
        Some(Answer::Reply(Reply::Value { clock, .. })) => assert_eq!(clock, done),
        other => panic!("what was done is not there: {other:?}"),
    }
}

/// The first server's write reached only the third, whose record of it cannot be read any more when the second settles.
#[test]
fn an_id_does_not_travel_without_its_record() {
    for readable in [true, false] {
        let mut house = House::new(3, 3, 1);
        let key = house.keys_of(&[0, 1, 2], 1).remove(0);
        house.cut_off = Some(1);
        assert_eq!(house.ask(0, 1, 1, &key, set("only there")), None, "one has not acknowledged");
        house.cut_off = None;
        house.disks[2].damage_key(Some(key.clone()).filter(|_| !readable));
        house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
        house.wait(1_000_000);
        // The gateway asks again at the next primary.
        let told = house.ask(1, 1, 1, &key, set("only there"));
        let Some(Answer::Reply(Reply::Done { clock: done })) = told else { panic!("not done: {told:?}") };
        match house.ask(1, 2, 2, &key, Operation::Get) {
            Some(Answer::Reply(Reply::Value { clock, data, .. })) => {
                assert_eq!((clock, &data[..]), (done, &b"only there"[..]));
            }
            other => panic!("readable {readable}: what was done is not there: {other:?}"),
        }
    }
}

/// The same at the next primary itself: its own mark is no proof either.
#[test]
fn the_next_primary_does_not_trust_an_id_whose_record_it_cannot_read() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    house.cut_off = Some(2);
    assert_eq!(house.ask(0, 1, 1, &key, set("new")), None, "one has not acknowledged");
    house.cut_off = None;
    house.disks[1].damage_key(Some(key.clone()));
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
    house.wait(1_000_000);
    house.disks[1].damage_key(None);
    house.wait(100_000);
    let told = house.ask(1, 1, 1, &key, set("new"));
    let Some(Answer::Reply(Reply::Done { clock: done })) = told else { panic!("not done: {told:?}") };
    for owner in [1, 2] {
        match house.ask(owner, 2, 2, &key, Operation::Get) {
            Some(Answer::Reply(Reply::Value { clock, .. })) => assert_eq!(clock, done),
            other => panic!("{owner}: what was done is not there: {other:?}"),
        }
    }
}
