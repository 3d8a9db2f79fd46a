//! A write that the next primary has, alone, and cannot read.

use super::house::{House, set};
use bytes::Bytes;
use kumo_cluster::{
    Answer, GatewayId, MemberState, Message, Operation, Refusal, Reply, RequestId, ServerInput, StoreKey,
};
use kumo_session::ConnectionId;

/// `a` is stored everywhere. Then `b` is appended, which reaches the second server alone; the first is lost, and the second
/// cannot read what it has when it settles.
fn unread() -> (House, StoreKey) {
    unread_with(1)
}

/// With so many copies of every write at least.
fn unread_with(copies_min: usize) -> (House, StoreKey) {
    let mut house = House::new(3, 3, copies_min);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("a")), Some(Answer::Reply(Reply::Done { .. }))));
    house.wait(1_000_000);
    house.cut_off = Some(2);
    assert_eq!(house.ask(0, 2, 2, &key, append("b")), None, "one has not acknowledged");
    house.cut_off = None;
    house.disks[1].damage_key(Some(key.clone()));
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
    house.wait(1_000_000);
    (house, key)
}

/// `ab` is stored everywhere. The third has not heard that it is committed, and cannot read it when the second settles.
fn disowned() -> (House, StoreKey) {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("a")), Some(Answer::Reply(Reply::Done { .. }))));
    house.wait(1_000_000);
    assert!(matches!(house.ask(0, 2, 2, &key, append("b")), Some(Answer::Reply(Reply::Done { .. }))));
    house.cut_off = Some(2);
    house.wait(1_000_000);
    house.cut_off = None;
    house.disks[2].damage_key(Some(key.clone()));
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
    (house, key)
}

fn append(data: &'static str) -> Operation {
    Operation::Append { unique: None, data: Bytes::from_static(data.as_bytes()) }
}

fn value(house: &mut House, at: usize, seq: u64, key: &StoreKey) -> Bytes {
    match house.ask(at, seq, seq, key, Operation::Get) {
        Some(Answer::Reply(Reply::Value { data, .. })) => data,
        other => panic!("no value: {other:?}"),
    }
}

#[test]
fn it_is_done_once_when_it_can_be_read() {
    let (mut house, key) = unread();
    assert_eq!(house.ask(1, 2, 2, &key, append("b")), None, "nobody knows whether it was done");
    house.disks[1].damage_key(None);
    house.wait(100_000);
    assert!(matches!(house.answers.get(&2), Some(Answer::Reply(Reply::Done { .. }))));
    assert_eq!(value(&mut house, 1, 3, &key), "ab");
}

#[test]
fn nothing_is_judged_by_it() {
    let (mut house, key) = unread();
    let damaged = Some(Answer::Refused { reason: Refusal::Damaged });
    let delete = Operation::Delete { unique: None };
    assert_eq!(house.ask(1, 3, 2, &key, Operation::Get), damaged);
    assert_eq!(house.ask(1, 4, 2, &key, append("c")), damaged);
    assert_eq!(house.ask(1, 5, 2, &key, delete), damaged);
    // Nor when it could be read, before it is committed.
    house.cut_off = Some(2);
    house.disks[1].damage_key(None);
    assert_eq!(house.ask(1, 6, 2, &key, Operation::Get), damaged);
    house.wait(100_000);
    assert_eq!(house.ask(1, 7, 2, &key, Operation::Get), Some(Answer::Wait));
    house.cut_off = None;
    house.wait(1_000_000);
    assert_eq!(value(&mut house, 1, 8, &key), "ab");
}

/// It may have been shown before: done after the set, it would be done twice.
#[test]
fn a_set_takes_its_place_and_it_was_done_before_that() {
    let (mut house, key) = unread();
    assert_eq!(house.ask(1, 2, 2, &key, append("b")), None);
    house.cut_off = Some(2);
    assert_eq!(house.ask(1, 3, 2, &key, set("c")), None);
    assert_eq!(house.ask(1, 2, 2, &key, append("b")), None, "not before the set is committed");
    house.cut_off = None;
    house.wait(1_000_000);
    for seq in [2, 3] {
        assert!(matches!(house.answers.get(&seq), Some(Answer::Reply(Reply::Done { .. }))));
    }
    house.disks[1].damage_key(None);
    assert!(matches!(house.ask(1, 2, 2, &key, append("b")), Some(Answer::Reply(Reply::Done { .. }))));
    assert_eq!(value(&mut house, 1, 4, &key), "c");
}

#[test]
fn a_set_in_its_place_needs_its_copies() {
    let (mut house, key) = unread_with(2);
    house.cut_off = Some(2);
    assert_eq!(house.ask(1, 3, 2, &key, set("c")), None);
    house.publish(|space| space.members[2].state = MemberState::Fault { order: 2 });
    house.wait(1_000_000);
    assert_eq!(house.answers.get(&3), None, "one copy");
}

#[test]
fn a_flush_does_not_wait_for_it() {
    let (mut house, key) = unread();
    let id = RequestId { gateway: GatewayId(8), seq: 9 };
    let message = Message::Flush { space: house.space.number, id, lowest_open: 9, prefix: Bytes::new() };
    house.step(1, ServerInput::Gateway(ConnectionId(2), message));
    house.wait(1_000_000);
    assert!(house.flushed.iter().any(|&(at, _, seq)| (at, seq) == (1, 9)));
    house.disks[1].damage_key(None);
    house.wait(1_000_000);
    assert_eq!(house.ask(1, 10, 10, &key, Operation::Get), Some(Answer::Missing));
}

#[test]
fn who_could_not_read_it_knows_that_it_was_done() {
    let (mut house, key) = disowned();
    house.wait(3_000_000);
    house.disks[2].damage_key(None);
    house.wait(3_000_000);
    house.publish(|space| space.members[1].state = MemberState::Fault { order: 2 });
    house.wait(1_000_000);
    assert!(matches!(house.ask(2, 2, 2, &key, append("b")), Some(Answer::Reply(Reply::Done { .. }))));
    assert_eq!(value(&mut house, 2, 3, &key), "ab");
}

/// Before it hears so another write takes the place of what it could not read.
#[test]
fn who_could_not_read_it_does_not_do_it_again() {
    let (mut house, key) = disowned();
    assert!(matches!(house.ask(1, 3, 2, &key, append("c")), Some(Answer::Reply(Reply::Done { .. }))));
    house.disks[2].damage_key(None);
    house.wait(1_000_000);
    house.publish(|space| space.members[1].state = MemberState::Fault { order: 2 });
    house.wait(1_000_000);
    house.answers.remove(&2);
    assert_eq!(house.ask(2, 2, 2, &key, append("b")), Some(Answer::Unknown));
    assert_eq!(value(&mut house, 2, 4, &key), "abc");
}

#[test]
fn it_goes_with_its_server() {
    let (mut house, key) = unread();
    house.publish(|space| space.members[1].state = MemberState::Fault { order: 2 });
    house.wait(1_000_000);
    assert!(matches!(house.ask(2, 2, 2, &key, append("b")), Some(Answer::Reply(Reply::Done { .. }))));
    assert_eq!(value(&mut house, 2, 3, &key), "ab");
}

#[test]
fn it_stays_so_in_a_new_space() {
    let (mut house, key) = unread();
    house.publish(|_| {});
    house.wait(1_000_000);
    assert_eq!(house.ask(1, 2, 2, &key, append("b")), None);
    house.disks[1].damage_key(None);
    house.wait(1_000_000);
    assert!(matches!(house.answers.get(&2), Some(Answer::Reply(Reply::Done { .. }))));
    assert_eq!(value(&mut house, 1, 3, &key), "ab");
}
