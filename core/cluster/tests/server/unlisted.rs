//! A version that its holder could not read when a settlement asked what is unsettled: it was never committed, and does
//! not come back over what is.

use super::house::{House, set};
use bytes::Bytes;
use kumo_cluster::{Answer, Broken, Job, MemberState, Mutation, Operation, Reply, Store, StoreKey, Table};

fn append(data: &'static str) -> Operation {
    Operation::Append { unique: None, data: Bytes::from_static(data.as_bytes()) }
}

fn done(answer: Option<Answer>) {
    assert!(matches!(answer, Some(Answer::Reply(Reply::Done { .. }))), "{answer:?}");
}

fn value(answer: Option<Answer>) -> Bytes {
    match answer {
        Some(Answer::Reply(Reply::Value { data, .. })) => data,
        other => panic!("no value: {other:?}"),
    }
}

fn stored(house: &House, at: usize, key: &StoreKey) -> Option<Bytes> {
    house.disks[at].get(key.hash, &key.key).unwrap().map(|record| record.data)
}

/// The server is lost, and another cannot read the key while its successor settles.
fn lose(house: &mut House, lost: usize, order: u64, unreadable_at: usize, key: &StoreKey) {
    house.disks[unreadable_at].damage_key(Some(key.clone()));
    house.publish(|space| space.members[lost].state = MemberState::Fault { order });
    house.disks[unreadable_at].damage_key(None);
}

/// The job is done: those who were to get the keys own them, and the others have left.
fn switch(house: &mut House, old: Vec<u16>) {
    house.publish(|space| {
        space.earlier = space.rhs.clone();
        space.rhs = space.whs.clone();
        space.job = None;
        space.old = old;
    });
    house.wait(2_000_000);
    house.publish(|space| {
        space.old.clear();
        space.earlier.clear();
    });
    house.wait(2_000_000);
}

#[test]
fn replicas_become_equal_again() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    done(house.ask(0, 1, 1, &key, set("a")));
    house.wait(1_000_000);
    house.blocked = vec![(0, 1)];
    assert_eq!(house.ask(0, 2, 2, &key, append("b")), None, "it reaches the third alone");
    house.blocked.clear();
    lose(&mut house, 0, 1, 2, &key);
    house.wait(5_000_000);
    assert_eq!(stored(&house, 1, &key).as_deref(), Some(&b"a"[..]));
    assert_eq!(stored(&house, 2, &key), stored(&house, 1, &key));
    assert_eq!(house.servers[2].unsettled(), 0);
}

/// What a primary has under way is marked by a number of the space before until it arrives again: that is not taken back,
/// for its acknowledgement counts.
#[test]
fn what_is_under_way_is_not_taken_back() {
    let mut house = House::new(4, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    done(house.ask(0, 1, 1, &key, set("a")));
    house.wait(1_000_000);
    house.blocked = vec![(0, 1)];
    assert_eq!(house.ask(0, 2, 2, &key, append("b")), None, "the second has not acknowledged");
    // A space in which the first stays; what it sends again does not come.
    house.drop_frames = true;
    house.publish(|space| space.whs_since = space.number);
    house.wait(3_000_000);
    assert_eq!(stored(&house, 2, &key).as_deref(), Some(&b"ab"[..]));
    house.drop_frames = false;
    house.blocked.clear();
    house.wait(3_000_000);
    for at in [0, 1, 2] {
        assert_eq!(stored(&house, at, &key).as_deref(), Some(&b"ab"[..]), "at {at}");
    }
}

/// Appends `c`, which reaches the third alone, then `b`, which reaches the comer alone: neither can be read when it is
/// asked for. What is shown at last of the acknowledged `c`, after a replace.
fn after_two_losses(broken: Broken) -> Bytes {
    let mut house = House::with_broken(4, 3, 1, broken);
    house.attach_all();
    house.wait(1_000_000);
    let table = Table::new(&house.space);
    let mut keys = house.keys_of(&[0, 1, 2], 200).into_iter();
    let key = keys.find(|key| table.arc(key.hash).comers == [3]).unwrap();
    done(house.ask(0, 1, 1, &key, set("a")));
    house.wait(2_000_000);
    house.blocked = vec![(0, 1), (0, 3)];
    assert_eq!(house.ask(0, 2, 2, &key, append("c")), None);
    house.blocked.clear();
    lose(&mut house, 0, 1, 2, &key);
    house.blocked = vec![(1, 2)];
    assert_eq!(house.ask(1, 3, 2, &key, append("b")), None);
    house.blocked.clear();
    lose(&mut house, 1, 2, 3, &key);
    house.wait(2_000_000);
    done(house.ask(2, 2, 2, &key, append("c")));
    assert_eq!(value(house.ask(2, 4, 3, &key, Operation::Get)), "ac");
    let progress = house.servers[2].progress();
    assert_eq!(progress.copies, progress.copies_done, "{progress:?}");
    switch(&mut house, vec![2]);
    house.publish(|space| space.members[2].state = MemberState::Fault { order: 3 });
    house.wait(2_000_000);
    value(house.ask(3, 5, 4, &key, Operation::Get))
}

#[test]
fn it_does_not_win_over_what_was_acknowledged_since() {
    assert_eq!(after_two_losses(Broken::default()), "ac");
    assert_eq!(after_two_losses(Broken(Some(Mutation::UnlistedKept))), "ab", "which is what the rule is for");
}

#[test]
fn a_copy_is_done_when_it_is_equal() {
    let mut house = House::new(4, 3, 1);
    house.publish(|space| {
        (space.whs, space.whs_since) = (vec![3], space.number);
        space.job = Some(Job { full: false, paused: true, rate: 0 });
    });
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    done(house.ask(0, 1, 1, &key, set("a")));
    house.wait(2_000_000);
    house.blocked = vec![(0, 1), (0, 2)];
    assert_eq!(house.ask(0, 2, 2, &key, append("c")), None, "it reaches the comer alone");
    house.blocked.clear();
    lose(&mut house, 0, 1, 3, &key);
    house.publish(|space| space.job.as_mut().unwrap().paused = false);
    house.wait(5_000_000);
    for at in [1, 2] {
        let progress = house.servers[at].progress();
        assert_eq!((progress.copies, progress.unreadable), (progress.copies_done, 0), "{progress:?}");
    }
    assert_eq!(stored(&house, 3, &key).as_deref(), Some(&b"a"[..]));
    switch(&mut house, vec![1, 2]);
    assert_eq!(value(house.ask(3, 3, 3, &key, Operation::Get)), "a");
}

/// A full disk need not take again what it has: what was acknowledged is shown by the next primary all the same.
#[test]
fn a_full_disk_acknowledges_what_it_has() {
    let mut house = House::new(3, 3, 1);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    done(house.ask(0, 1, 1, &key, set("a")));
    // No watermark has said yet that it is committed.
    house.disks[1].fill(true);
    house.disks[2].fill(true);
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
    house.wait(2_000_000);
    assert_eq!(value(house.ask(1, 2, 2, &key, Operation::Get)), "a");
}
