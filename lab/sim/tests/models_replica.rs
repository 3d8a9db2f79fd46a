//! Rules of a whole replica that the models of agreement know nothing of: with each left out, the same schedule on real
//! replicas goes wrong, and with it, it does not.

#[allow(dead_code)] // The schedules of core/paxos use the rest.
#[path = "../../../core/paxos/tests/replica/world.rs"]
mod world;

use kumo_paxos::{CellId, Mutation, Time};
use std::collections::BTreeSet;
use world::World;

/// The cells that three replicas form which are started together.
fn cells(mutation: Option<Mutation>) -> BTreeSet<CellId> {
    let mut world = World { mutation, ..World::default() };
    world.commands("start 1 2 3; run 1500");
    world.processes.values().map(|process| process.replica.hello().cell).collect()
}

#[test]
fn only_the_lowest_address_forms_a_cell() {
    let formed = cells(None);
    assert!(formed.len() == 1 && !formed.contains(&CellId(0)), "{formed:?}");
    assert!(cells(Some(Mutation::SymmetricForming)).len() > 1, "symmetric forming forms several");
}

/// How many milliseconds a master used its lease while another one led already.
///
/// 1 leads with a grant of 2 alone, and is then cut off. 2 starts again with its disk, and 3, which granted
/// nothing, asks it for a promise.
fn two_reigns(mutation: Option<Mutation>) -> usize {
    let mut world = World { mutation, durable: true, ..World::default() };
    world.commands("start 1 2 3; run 1500; cut 1 3; run 1000");
    let holds = |world: &World| world.processes[&1].replica.has_lease(Time(world.now));
    assert!(world.master() == Some(1) && holds(&world), "{}", world.out);
    world.commands("cut 1 2; reopen 2 without 0");
    let mut millis = 0;
    for _ in 0..3000 {
        world.run(1);
        millis += usize::from(holds(&world) && world.processes[&3].replica.is_master().is_some());
    }
    assert!(world.processes[&3].replica.is_master().is_some(), "3 leads in the end: {}", world.out);
    millis
}

#[test]
fn a_voter_that_starts_again_answers_no_collect_for_a_grant() {
    assert_eq!(two_reigns(None), 0);
    assert!(two_reigns(Some(Mutation::RestartAnswersCollect)) > 0, "a lease is used beside another master");
}
