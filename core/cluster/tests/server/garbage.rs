//! What deleted keys leave behind is told, for as long as it may not go.

use super::house::{House, START_SECONDS, set};
use kumo_cluster::{Answer, Broken, Garbage, Job, Kind, MemberState, Operation, StoreKey, Table};

/// Three keys are deleted while a replace is under way, which does not touch them.
fn deleted_during_a_replace(broken: Broken) -> (House, Vec<StoreKey>) {
    let mut house = House::with_broken(4, 3, 1, broken);
    house.publish(|space| {
        (space.whs, space.whs_since) = (vec![0, 1, 2, 3], space.number);
        space.job = Some(Job { full: false, paused: true, rate: 0 });
    });
    let table = Table::new(&house.space);
    let stays = |key: &&StoreKey| table.arc(key.hash).comers.is_empty();
    let keys = house.keys_of(&[0, 1, 2], 100);
    let keys: Vec<_> = keys.iter().filter(stays).take(3).cloned().collect();
    assert_eq!(keys.len(), 3);
    for (seq, key) in (1..).zip(&keys) {
        assert!(matches!(house.ask(0, seq, seq, key, set("value")), Some(Answer::Reply(_))));
    }
    house.wait(300_000);
    assert_eq!(house.servers[0].garbage(), Garbage::default(), "nothing is deleted");
    for (seq, key) in (4..).zip(&keys) {
        let deleted = house.ask(0, seq, seq, key, Operation::Delete { unique: None });
        assert!(matches!(deleted, Some(Answer::Reply(_))), "{deleted:?}");
    }
    house.wait(300_000);
    (house, keys)
}

#[test]
fn tombstones_that_a_replace_holds_are_counted_until_they_go() {
    let (mut house, keys) = deleted_during_a_replace(Broken::default());
    let found = house.servers[0].garbage();
    let key_bytes: usize = keys.iter().map(|key| key.key.len()).sum();
    assert_eq!(found.held, 3, "{found:?}");
    assert_eq!(found.bytes, key_bytes as u64 + 3 * 40);
    // They were stamped when no clock had been heard of: the year is 1970.
    assert!(found.age_seconds >= START_SECONDS, "{found:?}");
    assert_eq!(house.disks[0].kind_of(&keys[0]), Some(Kind::Tombstone), "never dropped early");
    house.publish(|space| {
        (space.whs, space.whs_since) = (space.rhs.clone(), space.number);
        space.job = None;
    });
    house.wait(300_000);
    assert_eq!(house.disks[0].kind_of(&keys[0]), None);
    assert_eq!(house.servers[0].garbage(), Garbage::default());
}

/// Nobody would be shown the difference: see the models of the store.
#[cfg(feature = "mutants")]
#[test]
fn without_the_rule_a_replace_holds_no_tombstones() {
    let rule = Broken(Some(kumo_cluster::Mutation::CollectDuringCopy));
    let (house, keys) = deleted_during_a_replace(rule);
    assert_eq!(house.servers[0].garbage().held, 0);
    assert!(keys.iter().all(|key| house.disks[0].kind_of(key).is_none()));
}

/// The new owners are lost as soon as they are owners: what the old one has may be all there is.
#[test]
fn nothing_is_dropped_that_nobody_else_is_there_for() {
    let mut house = House::new(2, 1, 1);
    let key = &house.keys_of(&[0], 1)[0];
    assert!(matches!(house.ask(0, 1, 1, key, set("value")), Some(Answer::Reply(_))));
    house.publish(|space| {
        (space.rhs, space.whs, space.old) = (vec![1], vec![1], vec![0]);
        space.members[1].state = MemberState::Fault { order: 1 };
    });
    house.publish(|space| space.old = vec![]);
    house.wait(300_000);
    assert_eq!(house.disks[0].kind_of(key), Some(Kind::Value));
    house.publish(|space| space.members[1].state = MemberState::Active);
    house.wait(300_000);
    assert_eq!(house.disks[0].kind_of(key), None, "another one answers for it");
}
