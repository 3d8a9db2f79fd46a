//! A committed version that its primary cannot read: the other owners show theirs.

use super::house::{House, set};
use bytes::Bytes;
use kumo_cluster::{Answer, MemberState, Operation, Refusal, Reply, Store, StoreKey};

fn append(data: &'static str) -> Operation {
    Operation::Append { unique: None, data: Bytes::from_static(data.as_bytes()) }
}

fn value(answer: Option<Answer>) -> Bytes {
    match answer {
        Some(Answer::Reply(Reply::Value { data, .. })) => data,
        other => panic!("no value: {other:?}"),
    }
}

fn damaged() -> Option<Answer> {
    Some(Answer::Refused { reason: Refusal::Damaged })
}

/// `a` is stored everywhere. The others are in the next space before they hear that it is committed, and the primary, which
/// stays, cannot read it.
fn unheard() -> (House, StoreKey) {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("a")), Some(Answer::Reply(Reply::Done { .. }))));
    house.disks[0].damage_key(Some(key.clone()));
    house.publish(|_| {});
    assert_eq!([1, 2].map(|at| house.servers[at].under_way().1), [1, 1], "marked still");
    (house, key)
}

#[test]
fn the_others_show_what_their_primary_cannot_read() {
    let (mut house, key) = unheard();
    house.wait(1_000_000);
    assert_eq!(house.ask(0, 2, 2, &key, Operation::Get), damaged());
    for (at, seq) in [(1, 3), (2, 4)] {
        assert_eq!(house.servers[at].unsettled(), 0, "no mark stays at {at}");
        assert_eq!(value(house.ask(at, seq, seq, &key, Operation::Get)), "a");
    }
}

#[test]
fn so_does_who_is_asked_before_its_mark_is_cleared() {
    let (mut house, key) = unheard();
    assert_eq!(value(house.ask(1, 2, 2, &key, Operation::Get)), "a");
    assert_eq!(house.servers[1].under_way().1, 1, "the mark was not asked about yet");
    // It cannot read its own after all: the third can.
    house.send(1, 3, 3, &key, Operation::Get);
    house.disks[1].damage_key(Some(key.clone()));
    house.settle();
    assert_eq!(house.answers.get(&3).cloned(), damaged());
    assert_eq!(value(house.ask(2, 4, 4, &key, Operation::Get)), "a");
}

/// `a` is stored everywhere. The others are in the next space before they hear that it is committed, and the second, which
/// cannot read it, asks about its mark.
#[test]
fn who_is_told_what_it_cannot_read_stores_it() {
    for full in [false, true] {
        let mut house = House::new(3, 3, 1);
        let key = house.keys_of(&[0, 1, 2], 1).remove(0);
        let first = house.ask(0, 1, 1, &key, set("a"));
        assert!(matches!(first, Some(Answer::Reply(Reply::Done { .. }))));
        house.publish(|_| {});
        house.disks[1].damage_key(Some(key.clone()));
        house.disks[1].fill(full);
        house.wait(1_000_000);
        assert_eq!(house.servers[1].under_way().1, u64::from(full), "without room the mark stays");
        house.disks[1].fill(false);
        house.wait(1_000_000);
        assert_eq!(house.servers[1].unsettled(), 0);
        assert!(matches!(house.disks[1].get(key.hash, &key.key), Ok(Some(record)) if record.data == "a"));
        house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
        house.publish(|space| space.members[2].state = MemberState::Fault { order: 2 });
        house.wait(1_000_000);
        assert_eq!(house.ask(1, 1, 1, &key, set("a")), first, "it knows whose it was");
        assert_eq!(value(house.ask(1, 2, 2, &key, Operation::Get)), "a");
    }
}

/// Whether the primary goes on with it was not said: it has that write under way.
#[test]
fn a_write_under_way_is_not_taken_for_what_is_committed() {
    let (mut house, key) = unheard();
    house.wait(1_000_000);
    house.blocked = vec![(0, 2)];
    assert_eq!(house.ask(0, 2, 2, &key, set("b")), None, "one has not acknowledged");
    assert_eq!(house.ask(1, 3, 2, &key, Operation::Get), Some(Answer::Wait));
    house.publish(|_| {});
    house.wait(1_000_000);
    assert_eq!(house.ask(1, 4, 2, &key, Operation::Get), Some(Answer::Wait));
    house.blocked.clear();
    house.wait(5_000_000);
    assert_eq!(value(house.ask(1, 5, 2, &key, Operation::Get)), "b");
}

/// The third has a version that no settlement heard of. What is committed is another one, which the primary cannot read.
#[test]
fn what_is_not_committed_stays_hidden_and_nothing_takes_its_place_unread() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(matches!(house.ask(0, 1, 1, &key, set("a")), Some(Answer::Reply(Reply::Done { .. }))));
    house.wait(1_000_000);
    house.blocked = vec![(0, 1)];
    assert_eq!(house.ask(0, 2, 2, &key, append("b")), None, "it reaches the third alone");
    house.blocked.clear();
    house.disks[2].damage_key(Some(key.clone()));
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
    house.disks[2].damage_key(None);
    house.disks[1].damage_key(Some(key.clone()));
    house.wait(1_000_000);
    assert_eq!(house.servers[2].under_way().1, 1, "marked still");
    assert_eq!(house.ask(2, 3, 2, &key, Operation::Get), damaged());
    house.disks[1].damage_key(None);
    house.wait(1_000_000);
    assert_eq!(value(house.ask(2, 4, 2, &key, Operation::Get)), "a");
}
