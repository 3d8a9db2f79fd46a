//! What an operator gave up is served by no later life; what nobody gave up is kept by all of them.

use super::house::{House, set};
use bytes::Bytes;
#[cfg(feature = "mutants")]
use kumo_cluster::Mutation;
use kumo_cluster::{
    Answer, Broken, Incarnation, Job, Member, MemberState, Operation, Reply, ServerId, Space, Store, StoreKey,
};

/// Two servers have these keys. The first is lost, then the second, for good; the first is back with its disk, and to be the
/// owner of all that the second had.
fn orphaned(broken: Broken) -> (House, Vec<StoreKey>) {
    let mut house = House::with_broken(2, 2, 1, broken);
    let keys = house.keys_of(&[], 2_000);
    for (seq, key) in (1..).zip(&keys) {
        house.ask(house.primary(key.hash), seq, seq, key, set("old"));
    }
    house.wait(100_000);
    house.publish(|space| lose(space, 0, 1));
    for (seq, key) in (10_000..).zip(&keys) {
        house.ask(1, seq, seq, key, set("new"));
    }
    house.publish(|space| lose(space, 1, 2));
    house.restart(0, |settings| settings.broken = broken);
    attach(&mut house, &[1]);
    house.wait(1_000_000);
    assert_eq!(adopted(&house, 0), house.space.number.0);
    assert_eq!(house.disks[0].len(), keys.len(), "nothing is given up yet");
    (house, keys)
}

fn lose(space: &mut Space, member: usize, order: u64) {
    space.members[member].state = MemberState::Fault { order };
}

/// It is back, as the last owner of something.
fn returns(house: &mut House, member: usize, life: Incarnation, order: u64) {
    house.publish(|space| {
        space.members[member].incarnation = life;
        space.members[member].state = MemberState::Returned { order };
        (space.whs_since, space.id_floor) = (space.number, space.number);
    });
}

fn active(id: ServerId) -> Member {
    Member { address: id.address, incarnation: id.incarnation, state: MemberState::Active }
}

/// The first server, in the life that it has now, is to be an owner beside what was there: the lost life keeps its
/// place.
fn attach(house: &mut House, whs: &[u16]) {
    let comer = active(house.servers[0].id());
    house.publish(|space| {
        space.members.insert(1, comer);
        (space.rhs, space.whs, space.whs_since) = (vec![0, 2], whs.to_vec(), space.number);
        space.job = Some(Job { full: false, paused: false, rate: 0 });
    });
}

fn cancel(house: &mut House) {
    house.publish(|space| {
        space.members.remove(1);
        (space.rhs, space.whs, space.whs_since) = (vec![0, 1], vec![0, 1], space.number);
        space.job = None;
    });
}

/// The loss is accepted, and the first server the only owner.
fn switch(house: &mut House) {
    house.publish(|space| {
        space.members = vec![space.members[1].clone()];
        (space.rhs, space.whs, space.id_floor) = (vec![0], vec![0], space.number);
        space.job = None;
    });
}

/// The only owner is lost, and back in its next life.
fn lost_and_back(house: &mut House, order: u64) {
    house.publish(|space| lose(space, 0, order));
    let life = house.servers[0].id().incarnation;
    returns(house, 0, life, order);
}

fn adopted(house: &House, at: usize) -> u64 {
    house.servers[at].space().map_or(0, |space| space.number.0)
}

/// How many of the keys the server says it misses, and how many it shows.
fn missing_and_shown(house: &mut House, at: usize, keys: &[StoreKey]) -> (usize, usize) {
    let (mut missing, mut shown) = (0, 0);
    for (seq, key) in (50_000..).zip(keys) {
        match house.ask(at, seq, seq, key, Operation::Get) {
            Some(Answer::Missing) => missing += 1,
            Some(Answer::Reply(Reply::Value { .. })) => shown += 1,
            other => panic!("{other:?}"),
        }
    }
    (missing, shown)
}

/// Restarted when it has dropped some of it, and again when the next life has.
fn after_restarts_while_it_drops(broken: Broken) -> (usize, usize) {
    let (mut house, keys) = orphaned(broken);
    switch(&mut house);
    let mut left = keys.len();
    for order in 3..5 {
        assert!((1..left).contains(&house.disks[0].len()), "{} of {left}", house.disks[0].len());
        left = house.disks[0].len();
        assert!(adopted(&house, 0) < house.space.number.0);
        house.restart(0, |settings| settings.broken = broken);
        lost_and_back(&mut house, order);
        if broken != Broken::default() {
            break;
        }
    }
    house.wait(2_000_000);
    assert_eq!(adopted(&house, 0), house.space.number.0);
    missing_and_shown(&mut house, 0, &keys)
}

#[test]
fn what_was_given_up_is_not_served_by_the_life_after_the_one_that_drops_it() {
    let (missing, shown) = after_restarts_while_it_drops(Broken::default());
    assert_eq!((missing, shown), (2_000, 0));
}

#[cfg(feature = "mutants")]
#[test]
fn what_was_given_up_would_be_served_by_a_life_that_has_forgotten_it() {
    let (_, shown) = after_restarts_while_it_drops(Broken(Some(Mutation::LeftoversForgotten)));
    assert!(shown > 0);
}

/// The switch was made, and the life that was to be the owner ended before it was told.
#[test]
fn what_was_given_up_is_not_served_by_a_life_that_began_after_the_switch() {
    let (mut house, keys) = orphaned(Broken::default());
    house.cut_off = Some(0);
    switch(&mut house);
    house.publish(|space| lose(space, 0, 3));
    house.cut_off = None;
    house.restart(0, |_| ());
    let life = house.servers[0].id().incarnation;
    returns(&mut house, 0, life, 3);
    house.wait(2_000_000);
    assert_eq!(missing_and_shown(&mut house, 0, &keys), (2_000, 0));
    let answer = house.ask(0, 90_000, 90_000, &keys[0], set("newest"));
    assert!(matches!(answer, Some(Answer::Reply(_))), "{answer:?}");
    // What it takes from now on is its own.
    house.restart(0, |_| ());
    lost_and_back(&mut house, 3);
    house.wait(1_000_000);
    assert_eq!(missing_and_shown(&mut house, 0, &keys), (1_999, 1));
}

/// It hears that it is lost while it drops: that space does not say what the next life has to drop.
#[test]
fn what_was_given_up_is_not_served_after_a_rebirth() {
    let (mut house, keys) = orphaned(Broken::default());
    switch(&mut house);
    assert!((1..keys.len()).contains(&house.disks[0].len()));
    house.publish(|space| lose(space, 0, 3));
    house.restart(0, |_| ());
    let life = house.servers[0].id().incarnation;
    returns(&mut house, 0, life, 3);
    house.wait(2_000_000);
    assert_eq!(missing_and_shown(&mut house, 0, &keys), (2_000, 0));
}

/// The job is cancelled, the last owner is back after all, and the first server catches up with it; whether it heard of
/// all that or not.
#[test]
fn what_was_not_given_up_after_all_is_kept() {
    for told in [true, false] {
        let (mut house, keys) = orphaned(Broken::default());
        house.restart(0, |_| ());
        house.cut_off = (!told).then_some(0);
        cancel(&mut house);
        house.restart(1, |_| ());
        let life = house.servers[1].id().incarnation;
        returns(&mut house, 1, life, 2);
        house.cut_off = None;
        attach(&mut house, &[1, 2]);
        house.wait(5_000_000);
        let progress = house.servers[1].progress();
        assert!(progress.copies > 0 && progress.copies == progress.copies_done, "{progress:?}");
        house.publish(|space| {
            space.members = vec![space.members[1].clone(), active(space.members[2].id())];
            (space.rhs, space.whs, space.job) = (vec![0, 1], vec![0, 1], None);
        });
        house.wait(1_000_000);
        assert_eq!(adopted(&house, 0), house.space.number.0);
        for at in [0, 1] {
            assert_eq!(missing_and_shown(&mut house, at, &keys), (0, 2_000), "told: {told}");
        }
        let new = house.disks[0].get(keys[0].hash, &keys[0].key).expect("it can be read");
        assert_eq!(new.map(|record| record.data), Some(Bytes::from_static(b"new")));
    }
}

/// Of four servers the third is back: the last owner of some arcs, and of others not, with which nobody has it catch up.
/// It restarts, over and over. Nobody accepted a loss.
#[test]
fn a_last_owner_that_restarts_keeps_all() {
    let mut house = House::new(4, 4, 1);
    let keys = house.keys_of(&[], 2_000);
    for (seq, key) in (1..).zip(&keys) {
        house.ask(house.primary(key.hash), seq, seq, key, set("kept"));
    }
    house.wait(100_000);
    let last: Vec<StoreKey> = keys.iter().filter(|key| !house.owners(key).contains(&3)).cloned().collect();
    assert!((1..keys.len()).contains(&last.len()));
    (0..4).for_each(|lost| house.publish(|space| lose(space, lost, lost as u64 + 1)));
    let held = house.disks[2].len();
    for _ in 0..3 {
        house.restart(2, |_| ());
        house.publish(|space| lose(space, 2, 3));
        let life = house.servers[2].id().incarnation;
        returns(&mut house, 2, life, 3);
        house.wait(1_000_000);
        assert_eq!(missing_and_shown(&mut house, 2, &last), (0, last.len()));
        assert_eq!(house.disks[2].len(), held);
    }
    assert!(held > last.len(), "it was an owner of others too");
    // The last owner of those is back as well.
    house.restart(3, |_| ());
    let life = house.servers[3].id().incarnation;
    returns(&mut house, 3, life, 4);
    house.wait(1_000_000);
    assert_eq!(house.disks[2].len(), held);
    let led = keys.iter().filter(|key| house.primary(key.hash) == 3).cloned().collect::<Vec<_>>();
    assert_eq!(missing_and_shown(&mut house, 3, &led), (0, keys.len() - last.len()));
}
