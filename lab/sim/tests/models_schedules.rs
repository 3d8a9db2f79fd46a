//! Schedules that take five replicas, too many to search: each with the rule that forbids it left out, and in force.
//! Every step is one the model allows.

use kumo_paxos::{Instance, Message, Mutation};
use sim::models::{Action, Cell, Changes, Restart, Script};

/// Five replicas; process 5 is the successor of the replica named, whose first life may still run.
fn five(mutation: Option<Mutation>) -> Cell {
    Cell { voters: 5, raises: 4, instances: 3, alike: false, mutation, ..Cell::of_three(1) }
}

const READMIT: Changes = Changes { readmit: true, replace: false, remove: false };

/// One collect reused across the boundary of two configurations: replica 1 leads the stronger round with promises of
/// a majority of the old one, process 4 among them, which the new one does not name.
fn one_collect_across_the_boundary(mutation: Option<Mutation>) -> Script {
    let mut cell = Script::new(Cell { window: 2, newcomers: &[4], changes: READMIT, ..five(mutation) });
    cell.raise(0);
    cell.raise(1);
    cell.collect(1, &[2, 4]);
    cell.readmit(1, 5);
    cell.decide(1, 1, &[2, 4]);
    // The change is executed and in force from instance 3 on. Instance 2 is filled; 3 is within the window.
    cell.propose(1);
    cell.decide(1, 2, &[2, 4]);
    cell.learn(5, 1, 2);
    cell.learn(0, 1, 2);
    // A weaker round, by the majority of the new configuration that never heard of the stronger one.
    cell.collect(0, &[3, 5]);
    cell.propose(0);
    cell.decide(0, 3, &[3, 5]);
    assert_eq!(cell.decided(3).len(), 1);
    cell
}

#[test]
fn one_collect_reused_across_the_boundary_decides_twice() {
    let mut cell = one_collect_across_the_boundary(Some(Mutation::LastsNotPerConfiguration));
    cell.decide(1, 3, &[2, 3]);
    assert!(!cell.state.agrees());
}

#[test]
fn a_new_configuration_is_collected_from_before_it_decides() {
    let mut cell = one_collect_across_the_boundary(None);
    assert!(
        !cell.allows(|action| is_begin(action, 1, 3)),
        "begun without promises of a majority of its voters"
    );
    cell.collect(1, &[3]);
    cell.decide(1, 3, &[2, 3]);
    assert_eq!(cell.decided(3).len(), 1);
    assert!(cell.state.agrees());
}

/// Merging the promises of a majority of the others gives back what a restarted replica forgot only if they had it:
/// here the value it accepted reaches one of them later.
#[test]
fn merging_promises_of_a_majority_of_the_others_decides_twice() {
    let mut cell = Script::new(Cell { crashes: 1, restart: Restart::Merge, ..five(None) });
    cell.raise(0);
    cell.collect(0, &[3, 4]);
    cell.propose(0);
    cell.accept(0, 1, 4);
    cell.act(Action::Restart { process: 4, asked: vec![1, 2, 3] });
    cell.accepted(4, 1, 0);
    cell.decide(0, 1, &[3]);
    assert_eq!(cell.decided(1).len(), 1);
    cell.raise(1);
    cell.collect(1, &[2, 4]);
    cell.propose(1);
    cell.decide(1, 1, &[2, 4]);
    assert!(!cell.state.agrees());
}

/// Replica 2 accepts in the first round of replica 0, and the accept arrives in its second.
fn an_accept_of_an_earlier_round(mutation: Option<Mutation>) -> Script {
    let mut cell = Script::new(Cell { duplicates: true, ..five(mutation) });
    cell.raise(0);
    cell.collect(0, &[2, 3]);
    cell.propose(0);
    cell.accept(0, 1, 2);
    cell.raise(1);
    cell.collect(1, &[3, 4]);
    cell.propose(1);
    cell.raise(0);
    cell.collect(0, &[1, 3]);
    // It goes on with the value of the stronger round, which replica 2 never accepted.
    cell.accepted(2, 1, 0);
    cell.decide(0, 1, &[1]);
    cell
}

#[test]
fn accepts_that_survive_their_round_decide_twice() {
    let mut cell = an_accept_of_an_earlier_round(Some(Mutation::AcceptsSurviveRound));
    assert_eq!(cell.decided(1).len(), 1);
    cell.raise(4);
    cell.collect(4, &[2, 3]);
    cell.decide(4, 1, &[2, 3]);
    assert!(!cell.state.agrees());
}

#[test]
fn an_accept_counts_in_its_own_round_only() {
    let cell = an_accept_of_an_earlier_round(None);
    assert!(cell.decided(1).is_empty());
}

/// Replica 0 is paused after one agent accepted its value; the others decide without it, on a change that replaces it by
/// process 5.
fn a_successor_beside_its_paused_twin(mutation: Option<Mutation>) -> Script {
    let mut cell = Script::new(Cell { newcomers: &[0], changes: READMIT, ..five(mutation) });
    cell.raise(0);
    cell.collect(0, &[2, 3]);
    cell.propose(0);
    cell.accept(0, 1, 1);
    cell.raise(2);
    cell.collect(2, &[3, 4]);
    cell.readmit(2, 5);
    cell.decide(2, 1, &[3, 4]);
    cell.learn(5, 2, 1);
    cell.raise(5);
    cell
}

#[test]
fn rounds_shared_with_a_paused_twin_decide_twice() {
    let mut cell = a_successor_beside_its_paused_twin(Some(Mutation::RoundsWithoutIncarnation));
    // To replica 1 its success is that of the twin, whose value it holds.
    cell.act(Action::Success { proposer: 5, agent: 1 });
    assert!(!cell.state.agrees());
}

#[test]
fn a_successors_success_says_nothing_about_its_twins_round() {
    let cell = a_successor_beside_its_paused_twin(None);
    assert!(!cell.allows(|action| *action == Action::Success { proposer: 5, agent: 1 }));
}

/// An instance begun before its configuration is known is decided by the old one. (Three replicas; a search finds this
/// among a million states.)
#[test]
fn beginning_beyond_the_window_decides_twice() {
    let mutation = Some(Mutation::BeginBeyondWindow);
    let mut cell = Script::new(Cell { voters: 3, newcomers: &[2], changes: READMIT, ..five(mutation) });
    cell.raise(0);
    cell.collect(0, &[2]);
    cell.readmit(0, 3);
    cell.propose(0);
    cell.decide(0, 2, &[2]);
    cell.decide(0, 1, &[1]);
    cell.learn(1, 0, 1);
    cell.learn(3, 0, 1);
    cell.raise(1);
    cell.collect(1, &[3]);
    cell.propose(1);
    cell.decide(1, 2, &[3]);
    assert!(!cell.state.agrees());
}

/// A proposer that learns that others decided otherwise must not tell its agents that their accepted value is it.
#[test]
fn a_superseded_master_tells_no_success_of_its_own_round() {
    let mut cell = Script::new(five(None));
    cell.raise(0);
    cell.collect(0, &[2, 3]);
    cell.propose(0);
    cell.accept(0, 1, 4);
    cell.raise(1);
    cell.collect(1, &[2, 3]);
    cell.propose(1);
    cell.decide(1, 1, &[2, 3]);
    cell.learn(0, 1, 1);
    let success = Action::Success { proposer: 0, agent: 4 };
    if cell.allows(|action| *action == success) {
        cell.act(success);
    }
    assert!(cell.state.agrees(), "{:?}", cell.decided(1));
}

fn is_begin(action: &Action, master: usize, instance: u64) -> bool {
    let Action::Deliver(letter) = action else { return false };
    let Message::Begin { proposals, .. } = &letter.message else { return false };
    letter.from == master && proposals.iter().any(|begun| begun.instance == Instance(instance))
}
