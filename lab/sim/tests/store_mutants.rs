//! The store's rules are needed: with one of them left out, runs that are about it fail; with all of them, none does.

use kumo_cluster::Mutation;
use sim::store::focus::Focus;
use sim::store::run::{Options, run_many};

/// A rule, what shows its absence, and within how many seeds: a few times what it takes.
const CAUGHT: [(Mutation, Focus, u64); 26] = [
    (Mutation::ReplicaShowsDirty, Focus::Island, 30),
    (Mutation::PrimaryShowsPending, Focus::Island, 60),
    (Mutation::FaultBeforeLeaseEnd, Focus::Island, 60),
    (Mutation::ReadWithoutLease, Focus::Island, 30),
    (Mutation::NegativeWithoutLease, Focus::Island, 150),
    (Mutation::PendingNotSentToNew, Focus::Replace, 250),
    (Mutation::IdsNotCarried, Focus::Retries, 60),
    (Mutation::NoIdFloor, Focus::Retries, 250),
    (Mutation::CommittedTakenAgain, Focus::Late, 250),
    (Mutation::AcknowledgedAhead, Focus::Copies, 20),
    (Mutation::NumberUsedAgain, Focus::Again, 12),
    (Mutation::UnreadableDisowned, Focus::Unread, 240),
    (Mutation::RestartGoesOn, Focus::Losses, 30),
    (Mutation::NewMasterDoesNotWait, Focus::Succession, 80),
    (Mutation::SwitchUnreported, Focus::Replace, 10),
    (Mutation::OldReportsCount, Focus::Replace, 10),
    (Mutation::FlushEarly, Focus::Flush, 30),
    (Mutation::FlushPassesPending, Focus::Flush, 30),
    (Mutation::FlushAgain, Focus::Flush, 80),
    (Mutation::FirstLostLeads, Focus::Blackout, 60),
    (Mutation::FewCopiesTaken, Focus::Copies, 20),
    (Mutation::RebuiltTooSoon, Focus::Rebuild, 60),
    (Mutation::RisenTold, Focus::Rebuild, 20),
    (Mutation::GatewaysNumberedAgain, Focus::Rebuild, 100),
    (Mutation::LeftoversForgotten, Focus::Bereft, 700),
    (Mutation::IdsNotCarried, Focus::Bereft, 250),
];

#[test]
fn a_store_without_one_of_its_rules_is_caught() {
    for (rule, focus, seeds) in CAUGHT {
        let options = Options { broken: Some(rule), focus: Some(focus), ..Options::default() };
        let summary = run_many(0, seeds, 2, &options, |_, failure| failure.is_none());
        assert!(!summary.failures.is_empty(), "{rule:?} is not caught by {seeds} seeds about {focus:?}");
    }
}

/// A rule of the shell: what is not stored is not told.
#[test]
fn a_server_that_tells_of_what_its_disk_did_not_store_is_caught() {
    let options = Options { heedless: true, focus: Some(Focus::Disk), ..Options::default() };
    let summary = run_many(0, HEEDLESS_SEEDS, 2, &options, |_, failure| failure.is_none());
    assert!(!summary.failures.is_empty(), "not caught by {HEEDLESS_SEEDS} seeds");
}

#[test]
fn a_store_with_all_its_rules_bears_what_is_aimed_at_them() {
    for focus in Focus::ALL {
        let options = Options { focus: Some(focus), ..Options::default() };
        let seeds = if focus == Focus::Replace { SEEDS_REPLACE } else { SEEDS_EACH };
        let summary = run_many(0, seeds, 2, &options, |_, failure| {
            if let Some((seed, failure)) = failure {
                eprintln!("{} seed {seed}: {failure}", focus.name());
            }
            true
        });
        assert!(
            summary.failures.is_empty(),
            "repeat with: cargo run --release -p sim -- store --focus {} --seed N; {:?}",
            focus.name(),
            summary.failures.keys()
        );
        assert_eq!(summary.too_little(), None, "{focus:?}");
    }
}

/// A few times what it takes.
const HEEDLESS_SEEDS: u64 = 40;
/// Of each focus.
const SEEDS_EACH: u64 = 48;
/// Attach, detach and replace at any moment, all the time: most of what is hard to get right is there.
const SEEDS_REPLACE: u64 = 500;
