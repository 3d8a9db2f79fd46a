//! What a server that caught up knows of a write that could not be read, and in whose place another was put.

use super::house::{House, set};
use bytes::Bytes;
use kumo_cluster::{Answer, Job, MemberState, Operation, Reply, Request, StoreKey, Table};

/// It was shown, its caller never heard, and whoever settled could not read it when 1 came to catch up.
#[test]
fn a_comer_does_not_execute_what_the_primary_could_not_read() {
    let mut house = House::new(3, 2, 1);
    let (key, late) = shown(&mut house, &[0, 1], 1);
    house.disks[1].damage_key(Some(key.clone()));
    lose(&mut house, 0, 1);
    attach(&mut house, 1, 2);
    assert!(done(house.ask(1, 3, 2, &key, set("c")).as_ref()), "in its place");
    house.disks[1].damage_key(None);
    switch(&mut house, 1);
    assert_eq!(value(&mut house, 1, 11, &key), "c");
    lose(&mut house, 1, 2);
    asked_again(&mut house, 2, &key, late);
}

/// The same, of one that another primary put something in the place of.
#[test]
fn a_comer_does_not_execute_what_a_copy_could_not_read() {
    let mut house = House::new(4, 3, 1);
    let (key, late) = shown(&mut house, &[0, 1, 2], 2);
    house.disks[2].damage_key(Some(key.clone()));
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
    assert!(done(house.ask(1, 3, 2, &key, set("c")).as_ref()), "in its place");
    house.disks[2].damage_key(None);
    house.wait(1_000_000);
    house.publish(|space| space.members[1].state = MemberState::Fault { order: 2 });
    house.wait(1_000_000);
    attach(&mut house, 2, 3);
    switch(&mut house, 2);
    lose(&mut house, 2, 3);
    asked_again(&mut house, 3, &key, late);
}

/// A full replace finds a copy that lacks it.
#[test]
fn a_repaired_value_keeps_its_unique() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(done(house.ask(0, 1, 1, &key, set("a")).as_ref()));
    house.wait(1_000_000);
    let unique = house.ask(0, 2, 2, &key, Operation::Get);
    house.disks[1].forget(&key);
    house.publish(|space| {
        space.whs_since = space.number;
        space.job = Some(Job { full: true, paused: false, rate: 0 });
    });
    house.wait(2_000_000);
    for at in [0, 1, 2] {
        assert_eq!(house.ask(at, 3 + at as u64, 3, &key, Operation::Get), unique);
    }
}

/// `ab` at all of them, of which the append's request is returned: the last has not heard that it is committed. After a
/// replace the last leads the key, and then the one that comes.
fn shown(house: &mut House, owners: &[u16], last: u16) -> (StoreKey, Request) {
    let after = {
        let mut space = house.space.clone();
        (space.rhs, space.whs) = (vec![last, last + 1], vec![last, last + 1]);
        Table::new(&space)
    };
    let led = |key: &StoreKey| after.arc(key.hash).primary() == Some(last);
    let key = house.keys_of(owners, 200).into_iter().find(led).expect("one");
    assert!(done(house.ask(0, 1, 1, &key, set("a")).as_ref()));
    house.wait(1_000_000);
    let data = Bytes::from_static(b"b");
    let late = house.request(2, 2, &key, Operation::Append { unique: None, data });
    house.send_request(0, late.clone());
    house.settle();
    assert!(done(house.answers.get(&2)), "committed");
    house.cut_off = Some(usize::from(last));
    house.wait(100_000);
    assert_eq!(value(house, 0, 10, &key), "ab", "and shown");
    house.cut_off = None;
    (key, late)
}

fn lose(house: &mut House, at: usize, order: u64) {
    house.publish(|space| space.members[at].state = MemberState::Fault { order });
    house.cut_off = Some(at);
    house.wait(1_000_000);
}

fn attach(house: &mut House, last: u16, comer: u16) {
    house.publish(|space| {
        (space.whs, space.whs_since) = (vec![last, comer], space.number);
        space.job = Some(Job { full: false, paused: false, rate: 0 });
    });
    house.wait(2_000_000);
}

fn switch(house: &mut House, last: u16) {
    house.wait(3_000_000);
    let progress = house.servers[usize::from(last)].progress();
    assert_eq!(progress.copies_done, progress.copies);
    house.publish(|space| {
        space.earlier = space.rhs.clone();
        space.old = vec![last];
        space.rhs = space.whs.clone();
        space.job = None;
    });
    house.wait(1_000_000);
    house.publish(|space| (space.earlier, space.old) = (vec![], vec![]));
    house.wait(1_000_000);
}

fn asked_again(house: &mut House, at: usize, key: &StoreKey, late: Request) {
    assert_eq!(house.primary(key.hash), at);
    house.answers.remove(&2);
    let retry = Request { space: house.space.number, ..late };
    house.send_request(at, retry);
    house.settle();
    assert_eq!(house.answers.get(&2), Some(&Answer::Unknown));
    assert_eq!(value(house, at, 12, key), "c", "executed twice");
}

fn value(house: &mut House, at: usize, seq: u64, key: &StoreKey) -> Bytes {
    match house.ask(at, seq, 2, key, Operation::Get) {
        Some(Answer::Reply(Reply::Value { data, .. })) => data,
        other => panic!("no value: {other:?}"),
    }
}

fn done(answer: Option<&Answer>) -> bool {
    matches!(answer, Some(Answer::Reply(Reply::Done { .. })))
}
