//! The rules that were dropped, and those that must not be: with each left out, the model finds what goes wrong.
//! Found by search in the smallest cell that shows it; what takes five replicas stands in `models_schedules`.

use kumo_paxos::Mutation;
use sim::models::{AGREEMENT, Cell, Changes, LIVE_MAJORITY, Restart, find};

fn three(mutation: Mutation) -> Cell {
    Cell { mutation: Some(mutation), ..Cell::of_three(1) }
}

#[test]
fn a_restart_that_forgets_and_votes_decides_twice() {
    let cell = Cell { crashes: 1, restart: Restart::Empty, ..Cell::of_three(1) };
    find("empty restart", cell, AGREEMENT);
}

#[test]
fn the_seeds_rejoin_rule_decides_twice() {
    let cell = Cell { crashes: 1, restart: Restart::Snapshot, ..Cell::of_three(1) };
    find("the seed's rejoin", cell, AGREEMENT);
}

#[test]
fn a_proposer_from_outside_decides_twice() {
    // What it raises it does not promise, so it raises the same round again, and old answers count in it.
    let cell = Cell {
        voters: 1,
        newcomers: &[1],
        raises: 3,
        learners_raise: true,
        duplicates: true,
        alike: false,
        ..three(Mutation::ForeignProposer)
    };
    find("foreign proposer", cell, AGREEMENT);
}

#[test]
fn a_begin_that_does_not_promise_decides_twice() {
    let cell = Cell { raises: 3, ..three(Mutation::BeginKeepsPromise) };
    find("begin keeps promise", cell, AGREEMENT);
}

#[test]
fn accepted_values_dropped_when_executed_are_decided_again() {
    find("accepted dropped", three(Mutation::AcceptedDropped), AGREEMENT);
}

#[test]
fn a_learner_that_votes_early_leaves_the_cell_without_a_majority() {
    let cell = Cell {
        window: 2,
        crashes: 2,
        raises: 1,
        instances: 3,
        changes: READMIT,
        budgeted: true,
        mutation: Some(Mutation::LearnerVotesEarly),
        ..Cell::of_three(2)
    };
    find("learner votes early", cell, LIVE_MAJORITY);
}

#[test]
fn a_change_to_members_that_are_not_there_stops_the_cell() {
    let cell = Cell {
        newcomers: &[3],
        crashes: 2,
        raises: 1,
        instances: 2,
        changes: Changes { replace: true, ..READMIT },
        budgeted: true,
        mutation: Some(Mutation::ChangeUnchecked),
        ..Cell::of_three(1)
    };
    find("change unchecked", cell, LIVE_MAJORITY);
}

#[test]
fn who_leaves_early_leaves_the_cell_without_a_majority() {
    let cell = Cell {
        voters: 2,
        raises: 1,
        instances: 2,
        changes: Changes { remove: true, ..Changes::default() },
        budgeted: true,
        mutation: Some(Mutation::LeavesEarly),
        ..Cell::of_three(1)
    };
    find("leaves early", cell, LIVE_MAJORITY);
}

const READMIT: Changes = Changes { readmit: true, replace: false, remove: false };
