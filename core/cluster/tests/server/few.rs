//! `--min-copies`, and a write under way when so many copies are lost that it waits for others.

use super::house::{House, set};
use bytes::Bytes;
use kumo_cluster::{
    Answer, GatewayId, Job, MemberState, Message, Operation, Refusal, Reply, RequestId, ServerInput,
    StoreKey, Table,
};
use kumo_session::ConnectionId;

fn done(answer: Option<Answer>) {
    assert!(matches!(answer, Some(Answer::Reply(Reply::Done { .. }))), "{answer:?}");
}

#[test]
fn a_replace_does_not_wait_for_a_write_that_waits_for_it() {
    let mut house = House::new(4, 3, 3);
    house.publish(|space| {
        (space.whs, space.whs_since) = (vec![0, 2, 3], space.number);
        space.members[1].state = MemberState::Fault { order: 1 };
        space.job = Some(Job { full: false, paused: true, rate: 0 });
    });
    let table = Table::new(&house.space);
    let mut keys = house.keys_of(&[0, 2], 200).into_iter();
    let key = keys.find(|key| table.arc(key.hash).comers == [3]).unwrap();
    done(house.ask(0, 1, 1, &key, set("a")));
    house.wait(1_000_000);
    house.cut_off = Some(2);
    assert_eq!(house.ask(0, 2, 2, &key, set("b")), None);
    house.cut_off = None;
    house.publish(|space| {
        space.members[2].state = MemberState::Fault { order: 2 };
        space.job.as_mut().unwrap().paused = false;
    });
    house.wait(10_000_000);
    let progress = house.servers[0].progress();
    assert_eq!(progress.copies, progress.copies_done, "{progress:?}");
}

/// A key on three servers, of which two are lost while a write of it is under way; the first one leads it still.
fn waiting() -> (House, StoreKey) {
    let mut house = House::new(4, 4, 2);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    done(house.ask(0, 1, 1, &key, set("a")));
    house.wait(1_000_000);
    house.blocked = vec![(0, 1), (0, 2)];
    assert_eq!(house.ask(0, 2, 2, &key, set("b")), None);
    assert_eq!(house.ask(0, 3, 2, &key, set("c")), None, "behind it");
    house.blocked.clear();
    house.publish(|space| {
        space.members[1].state = MemberState::Fault { order: 1 };
        space.members[2].state = MemberState::Fault { order: 2 };
    });
    house.wait(1_000_000);
    (house, key)
}

#[test]
fn what_stands_behind_it_is_refused() {
    let (mut house, key) = waiting();
    let refused = Some(Answer::Refused { reason: Refusal::FewCopies });
    assert_eq!(house.answers.get(&3).cloned(), refused, "it stood there before");
    assert_eq!(house.ask(0, 4, 2, &key, set("d")), refused);
    assert_eq!(house.answers.get(&2), None, "it was stamped, and is never undone");
}

fn flush(house: &mut House, gateway: u64, key: &StoreKey) {
    let id = RequestId { gateway: GatewayId(gateway), seq: 1 };
    let message = Message::Flush { space: house.space.number, id, lowest_open: 1, prefix: key.key.clone() };
    house.step(0, ServerInput::Gateway(ConnectionId(gateway), message));
    house.wait(1_000_000);
}

#[test]
fn a_flush_does_not_stand_behind_it() {
    let (mut house, key) = waiting();
    house.answers.remove(&1);
    flush(&mut house, 8, &key);
    assert_eq!(house.answers.get(&1), Some(&Answer::Refused { reason: Refusal::FewCopies }));
}

#[test]
fn it_does_not_take_the_memory_for_writes_of_other_keys() {
    let (mut house, key) = waiting();
    let other = house.keys_of(&[0, 3], 1).remove(0);
    let large = Operation::Set { flags: 0, expiry: 0, data: Bytes::from(vec![1; 1 << 20]) };
    for seq in 4..150 {
        house.ask(0, seq, 2, &key, large.clone());
    }
    house.wait(1_000_000);
    done(house.ask(0, 1000, 1000, &other, set("c")));
}
