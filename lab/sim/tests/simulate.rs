//! The simulator over many seeds, and the promise that one seed is one run.

use sim::fault::{Fault, Plan};
use sim::run::{Options, run, run_many};
use sim::workload::Role;
use std::collections::BTreeSet;

/// Seeds of a full check. Before a release: a million, by hand.
const SEEDS: u64 = 2_000;

#[test]
fn two_thousand_seeds_keep_every_promise() {
    let summary = run_many(0, SEEDS, 2, &Options::default(), |_, failure| {
        if let Some((seed, failure)) = failure {
            eprintln!("seed {seed}: {failure}");
        }
    });
    assert!(
        summary.failures.is_empty(),
        "repeat with: cargo run --release -p sim -- --seed N; {:#?}",
        summary.failures
    );
    assert_eq!(summary.too_little(), None);
    assert!(summary.compared > SEEDS * 100, "replicas were compared only {} times", summary.compared);
}

#[test]
fn two_runs_of_one_seed_are_the_same_to_the_byte() {
    // And one with each of the later kinds of clients.
    let has = |seed: &u64, role: &Role| {
        let mut plan = Plan::new(*seed, &BTreeSet::new());
        plan.widen();
        plan.clients.contains(role)
    };
    let later = Role::LATER.map(|role| (0..).find(|seed| has(seed, &role)).expect("every kind is drawn"));
    for seed in [3, 7, 11, 19].into_iter().chain(later) {
        let first = run(seed, &Options { trace: true, ..Options::default() });
        let second = run(seed, &Options { trace: true, ..Options::default() });
        let silent = run(seed, &Options::default());
        assert!(first.lines == second.lines, "seed {seed}");
        assert_eq!((first.hash, first.hash), (second.hash, silent.hash), "seed {seed}");
        assert!(first.lines.len() > 100);
    }
}

#[test]
fn another_seed_is_another_run() {
    let hashes: BTreeSet<u64> = (0..8).map(|seed| run(seed, &Options::default()).hash).collect();
    assert_eq!(hashes.len(), 8);
}

#[test]
fn without_faults_nothing_strikes_and_everything_works() {
    let calm = Options { without: Fault::ALL.into_iter().collect(), ..Options::default() };
    for seed in 0..20 {
        let report = run(seed, &calm);
        assert_eq!(report.failure, None, "seed {seed}");
        assert!(report.faults.is_empty(), "seed {seed}: {:?}", report.faults);
        assert!(report.succeeded > 0, "seed {seed}");
    }
}
