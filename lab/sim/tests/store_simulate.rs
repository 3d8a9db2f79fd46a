//! The store's simulator over many seeds, and the promise that one seed is one run.

use sim::store::fault::Fault;
use sim::store::run::{Options, run, run_many};

/// Seeds of a full check. Before a release: many more, by hand.
const SEEDS: u64 = 2_000;

/// Of servers that do little at once.
const NARROW_SEEDS: u64 = 500;

#[test]
fn two_thousand_seeds_of_a_store_keep_every_promise() {
    keep_every_promise(SEEDS, &Options::default());
}

#[test]
fn seeds_of_a_store_whose_servers_do_little_at_once_keep_every_promise() {
    keep_every_promise(NARROW_SEEDS, &Options { narrow: true, ..Options::default() });
}

fn keep_every_promise(seeds: u64, options: &Options) {
    let summary = run_many(0, seeds, 2, options, |_, failure| {
        if let Some((seed, failure)) = failure {
            eprintln!("seed {seed}: {failure}");
        }
        true
    });
    assert!(
        summary.failures.is_empty(),
        "repeat with: cargo run --release -p sim -- store --seed N{}; {:?}",
        if options.narrow { " --narrow" } else { "" },
        summary.failures.keys()
    );
    assert_eq!(summary.too_little(), None);
    assert!(summary.spaces > seeds * 5, "only {} spaces were made", summary.spaces);
}

#[test]
fn two_runs_of_one_seed_of_a_store_are_the_same_to_the_byte() {
    for seed in [3, 7, 11, 19] {
        let first = run(seed, &Options { trace: true, ..Options::default() });
        let second = run(seed, &Options { trace: true, ..Options::default() });
        let silent = run(seed, &Options::default());
        assert!(first.lines == second.lines, "seed {seed}");
        assert_eq!((first.hash, first.hash), (second.hash, silent.hash), "seed {seed}");
        assert!(first.lines.len() > 100);
    }
}

#[test]
fn another_seed_of_a_store_is_another_run() {
    let hashes: std::collections::BTreeSet<u64> =
        (0..8).map(|seed| run(seed, &Options::default()).hash).collect();
    assert_eq!(hashes.len(), 8);
}

#[test]
fn a_store_without_faults_answers_every_call() {
    let calm = Options { without: Fault::ALL.into_iter().collect(), ..Options::default() };
    for seed in 0..20 {
        let report = run(seed, &calm);
        assert_eq!(report.failure, None, "seed {seed}");
        // The first attach is an operator's.
        assert!(
            report.faults.keys().all(|fault| *fault == Fault::Attach),
            "seed {seed}: {:?}",
            report.faults
        );
        assert!(report.succeeded > 100, "seed {seed}: {}", report.succeeded);
    }
}
