//! flush_all among requests, late tries and changes of the space.

use super::house::{House, set};
use bytes::Bytes;
use kumo_cluster::{
    Answer, GatewayId, Limits, MemberState, Message, Operation, Refusal, Reply, RequestId, ServerInput,
};
use kumo_session::ConnectionId;

fn flush(house: &House, seq: u64, lowest_open: u64) -> Message {
    let id = RequestId { gateway: GatewayId(8), seq };
    Message::Flush { space: house.space.number, id, lowest_open, prefix: Bytes::new() }
}

fn tell(house: &mut House, to: usize, message: Message) {
    house.step(to, ServerInput::Gateway(ConnectionId(2), message));
    house.wait(100_000);
}

fn value(answer: Option<Answer>) -> String {
    match answer {
        Some(Answer::Reply(Reply::Value { data, .. })) => String::from_utf8_lossy(&data).into_owned(),
        Some(Answer::Missing) => "missing".to_owned(),
        other => panic!("no value: {other:?}"),
    }
}

fn append(data: &'static str) -> Operation {
    Operation::Append { unique: None, data: Bytes::from_static(data.as_bytes()) }
}

/// What is appended to a value that is flushed goes with it; what is appended after finds nothing.
#[test]
fn a_flush_stands_behind_the_write_that_is_under_way() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("v")), Some(Answer::Reply(_))));
    house.cut_off = Some(2);
    assert_eq!(house.ask(0, 2, 1, &key, append("+1")), None, "one has not acknowledged");
    assert_eq!(house.ask(0, 3, 1, &key, append("+2")), None, "it waits behind");
    let message = flush(&house, 1, 1);
    tell(&mut house, 0, message);
    assert!(house.flushed.is_empty(), "not before the write is committed");
    house.cut_off = None;
    house.wait(2_000_000);
    assert_eq!(house.flushed, [(0, house.space.number, 1)]);
    assert!(matches!(house.answers.get(&2), Some(Answer::Reply(_))));
    // It came before the flush: either order is right, but half of both is not.
    assert_eq!(house.answers.get(&3), Some(&Answer::NotStored));
    assert_eq!(value(house.ask(0, 4, 1, &key, Operation::Get)), "missing");
}

/// It deletes what its operator wants on more disks than are left.
#[test]
fn a_flush_is_refused_where_a_delete_would_be() {
    let mut house = House::new(3, 3, 3);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("v")), Some(Answer::Reply(_))));
    house.publish(|space| space.members[2].state = MemberState::Fault { order: 1 });
    house.wait(100_000);
    let message = flush(&house, 1, 1);
    tell(&mut house, 0, message);
    assert!(house.flushed.is_empty());
    assert_eq!(house.answers.get(&1), Some(&Answer::Refused { reason: Refusal::FewCopies }));
    assert_eq!(value(house.ask(0, 2, 1, &key, Operation::Get)), "v");
}

#[test]
fn a_flush_that_is_done_is_not_done_again() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("old")), Some(Answer::Reply(_))));
    let late = flush(&house, 1, 1);
    tell(&mut house, 0, late.clone());
    let done = (0, house.space.number, 1);
    assert_eq!(house.flushed, [done]);
    assert!(matches!(house.ask(0, 2, 1, &key, set("new")), Some(Answer::Reply(_))));
    tell(&mut house, 0, late.clone());
    assert_eq!(house.flushed, [done, done], "it is told so again");
    assert_eq!(value(house.ask(0, 3, 1, &key, Operation::Get)), "new");
    // Its gateway has all answers up to 4: nothing need be remembered for it.
    let next = flush(&house, 5, 5);
    tell(&mut house, 0, next);
    assert!(matches!(house.ask(0, 4, 1, &key, set("newer")), Some(Answer::Reply(_))));
    tell(&mut house, 0, late);
    assert_eq!(house.answers.get(&1), Some(&Answer::Refused { reason: Refusal::Answered }));
    assert_eq!(value(house.ask(0, 6, 1, &key, Operation::Get)), "newer");
}

/// Some of it was done before it could not go on.
#[test]
fn a_flush_that_was_refused_is_not_begun_again() {
    let limits = Limits { flushed_max: 1, ..Limits::default() };
    let mut house = House::with(3, 3, |settings| settings.limits = limits);
    let mut keys = house.keys_of(&[0, 1, 2], 2);
    keys.sort();
    for (seq, key) in (1..).zip(&keys) {
        assert!(matches!(house.ask(0, seq, 1, key, set("old")), Some(Answer::Reply(_))));
    }
    let late = flush(&house, 3, 1);
    house.step(0, ServerInput::Gateway(ConnectionId(2), late.clone()));
    house.settle();
    house.disks[0].fill(true);
    house.wait(100_000);
    let refused = Some(&Answer::Refused { reason: Refusal::Full });
    assert_eq!(house.answers.get(&3), refused);
    house.disks[0].fill(false);
    assert_eq!(value(house.ask(0, 4, 1, &keys[0], Operation::Get)), "missing");
    assert!(matches!(house.ask(0, 5, 1, &keys[0], set("new")), Some(Answer::Reply(_))));
    house.answers.remove(&3);
    tell(&mut house, 0, late);
    assert_eq!(house.answers.get(&3), refused, "it is told so again");
    assert_eq!(value(house.ask(0, 6, 1, &keys[0], Operation::Get)), "new");
}

/// Those of gateways that are silent since are no burden to others.
#[test]
fn a_gateway_may_flush_however_many_did() {
    let mut house = House::new(3, 3, 1);
    for gateway in 100..4300 {
        let id = RequestId { gateway: GatewayId(gateway), seq: gateway };
        let message =
            Message::Flush { space: house.space.number, id, lowest_open: gateway, prefix: Bytes::new() };
        house.step(0, ServerInput::Gateway(ConnectionId(2), message));
    }
    assert_eq!(house.flushed.len(), 4200);
}

/// Nobody waits for it any more, and what is set from now on is not to be deleted.
#[test]
fn a_flush_that_its_gateway_gave_up_leaves_the_line() {
    let mut house = House::new(3, 3, 1);
    let [key, other] = house.keys_of(&[0, 1, 2], 2).try_into().expect("two keys");
    assert!(matches!(house.ask(0, 1, 1, &key, set("v")), Some(Answer::Reply(_))));
    house.cut_off = Some(2);
    // The first stands behind a write; the second behind the first.
    assert_eq!(house.ask(0, 2, 1, &key, append("+1")), None, "one has not acknowledged");
    for seq in [3, 4] {
        let message = flush(&house, seq, 1);
        tell(&mut house, 0, message);
    }
    let mut next = house.request(9, 9, &other, set("w"));
    next.id.gateway = GatewayId(8);
    house.send_request(0, next);
    house.settle();
    house.cut_off = None;
    house.wait(2_000_000);
    assert!(house.flushed.is_empty(), "{:?}", house.flushed);
    assert_eq!(value(house.ask(0, 10, 1, &key, Operation::Get)), "v+1");
}

#[test]
fn a_flush_is_done_in_the_space_that_it_names_or_not_at_all() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("v")), Some(Answer::Reply(_))));
    let early = flush(&house, 7, 1);
    house.publish(|_| {});
    tell(&mut house, 0, early);
    let newest = house.space.number;
    assert_eq!(house.answers.remove(&7), Some(Answer::WrongSpace { newest }));
    house.space.number.0 += 1;
    let message = flush(&house, 7, 1);
    house.space.number.0 -= 1;
    tell(&mut house, 0, message);
    assert_eq!(house.answers.remove(&7), Some(Answer::Wait));
    assert_eq!(value(house.ask(0, 2, 1, &key, Operation::Get)), "v");
    // One that is under way when the space changes is asked for again there.
    house.cut_off = Some(2);
    let message = flush(&house, 7, 1);
    tell(&mut house, 0, message);
    assert!(house.flushed.is_empty());
    house.publish(|_| {});
    let newest = house.space.number;
    assert_eq!(house.answers.remove(&7), Some(Answer::WrongSpace { newest }));
    assert!(house.flushed.is_empty());
}
