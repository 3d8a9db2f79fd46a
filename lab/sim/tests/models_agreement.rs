//! The rules as they are, searched to the end: three replicas, every order of events within the bounds of each test.
//! Left aside as equal: names exchanged between replicas that nothing sets apart, letters that arrive again
//! (`models_mutants` keeps them where rounds are shared), letters that can have no effect any more, and stops on a
//! newcomer's way to the entry that names it.

use sim::models::{Cell, Changes, exhaust};

#[test]
fn three_rounds_decide_one_value() {
    let cell = Cell { raises: 3, ..Cell::of_three(1) };
    assert!(exhaust("three rounds", cell) > 50_000);
}

#[test]
fn a_window_of_two_instances_decides_one_value_each() {
    let cell = Cell { instances: 2, ..Cell::of_three(2) };
    assert!(exhaust("two instances side by side", cell) > 100_000);
}

#[test]
fn proposers_that_lack_their_own_values_decide_one_value() {
    let cell = Cell { raises: 3, withheld: true, ..Cell::of_three(1) };
    assert!(exhaust("own accepts withheld", cell) > 50_000);
}

/// The third replica has a successor, and its first life goes on, paused or not.
#[test]
fn a_successor_beside_its_twin_decides_one_value() {
    let cell = Cell { instances: 2, newcomers: &[2], changes: READMIT, ..Cell::of_three(1) };
    assert!(exhaust("successor and twin, W = 1", cell) > 200_000);
}

#[test]
fn a_successor_beside_its_twin_decides_one_value_in_a_window_of_two() {
    let cell = Cell { instances: 3, raises: 1, newcomers: &[2], changes: READMIT, ..Cell::of_three(2) };
    assert!(exhaust("successor and twin, W = 2, one round", cell) > 50_000);
}

#[test]
fn two_successors_beside_their_twins_decide_one_value() {
    let cell = Cell { instances: 3, raises: 1, newcomers: &[1, 2], changes: READMIT, ..Cell::of_three(1) };
    assert!(exhaust("two successors and twins, one round", cell) > 200_000);
}

/// At most f replicas are down or not voting yet at a time: then the cell can always go on.
#[test]
fn two_memories_lost_one_after_another_leave_a_live_majority() {
    let cell =
        Cell { instances: 2, raises: 1, crashes: 2, changes: READMIT, budgeted: true, ..Cell::of_three(1) };
    assert!(exhaust("two losses, one round", cell) > 50_000);
}

#[test]
fn a_memory_lost_while_masters_change_leaves_a_live_majority() {
    let cell = Cell { instances: 2, crashes: 1, changes: READMIT, budgeted: true, ..Cell::of_three(1) };
    assert!(exhaust("one loss, two rounds", cell) > 200_000);
}

#[test]
fn a_memory_lost_in_a_window_of_two_leaves_a_live_majority() {
    let cell =
        Cell { instances: 3, raises: 1, crashes: 1, changes: READMIT, budgeted: true, ..Cell::of_three(2) };
    assert!(exhaust("one loss, W = 2, one round", cell) > 100_000);
}

#[test]
fn removing_a_replica_leaves_a_live_majority() {
    let changes = Changes { remove: true, ..READMIT };
    let cell = Cell { instances: 2, raises: 1, crashes: 1, changes, budgeted: true, ..Cell::of_three(1) };
    assert!(exhaust("removal and a loss", cell) > 10_000);
    let pair = Cell { voters: 2, instances: 3, changes, budgeted: true, ..Cell::of_three(2) };
    assert!(exhaust("removal from a pair", pair) > 1_000);
}

const READMIT: Changes = Changes { readmit: true, replace: false, remove: false };
