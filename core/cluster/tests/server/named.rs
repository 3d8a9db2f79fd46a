//! What a copy leaves out because it is under way: the receiver has it some other way before it counts as an owner.

use super::house::{House, set};
use bytes::Bytes;
#[cfg(feature = "mutants")]
use kumo_cluster::Mutation;
use kumo_cluster::{Answer, Broken, Job, MemberState, Operation, Reply, StoreKey};

/// 3 takes the place of 0, which leads a key and has a write under way that does not get through.
fn left_out(broken: Broken) -> (House, StoreKey) {
    let mut house = House::with_broken(4, 3, 1, broken);
    let key = house.keys_of(&[0, 1, 2], 1).remove(0);
    assert!(done(house.ask(0, 1, 1, &key, set("a"))));
    house.wait(1_000_000);
    house.drop_frames = true;
    assert_eq!(house.ask(0, 2, 2, &key, set("b")), None);
    house.publish(|space| {
        (space.whs, space.whs_since) = (vec![1, 2, 3], space.number);
        space.job = Some(Job { full: false, paused: false, rate: 0 });
    });
    house.wait(5_000_000);
    (house, key)
}

fn left(house: &House) -> u64 {
    let progress = house.servers[0].progress();
    progress.copies - progress.copies_done
}

/// The switch, and 0 is lost before it could tell of anything. What 3 shows then.
fn switched(house: &mut House, key: &StoreKey) -> Option<Bytes> {
    house.cut_off = Some(0);
    house.publish(|space| {
        (space.earlier, space.old) = (space.rhs.clone(), vec![0]);
        (space.rhs, space.job) = (space.whs.clone(), None);
    });
    house.publish(|space| space.members[0].state = MemberState::Fault { order: 1 });
    house.publish(|space| (space.earlier, space.old) = (vec![], vec![]));
    house.wait(1_000_000);
    match house.ask(3, 3, 3, key, Operation::Get) {
        Some(Answer::Reply(Reply::Value { data, .. })) => Some(data),
        Some(Answer::Missing) => None,
        other => panic!("no answer: {other:?}"),
    }
}

fn done(answer: Option<Answer>) -> bool {
    matches!(answer, Some(Answer::Reply(Reply::Done { .. })))
}

#[test]
fn a_copy_waits_for_what_it_left_out() {
    let (mut house, key) = left_out(Broken::default());
    assert_eq!(left(&house), 1, "3 has nothing of that key");
    // It gets through to 3 alone: 3 shows what nobody else has heard of, or they all would not.
    house.drop_frames = false;
    house.blocked = vec![(0, 1), (0, 2)];
    house.wait(2_000_000);
    assert_eq!((left(&house), house.servers[0].under_way().0), (0, 1), "it is not committed");
    assert_eq!(switched(&mut house, &key).as_deref(), Some(&b"b"[..]));
}

#[cfg(feature = "mutants")]
#[test]
fn what_was_left_out_would_be_lost() {
    let (mut house, key) = left_out(Broken(Some(Mutation::LeftOutForgotten)));
    assert_eq!(left(&house), 0);
    assert_eq!(switched(&mut house, &key), None, "an acknowledged write is gone");
}
