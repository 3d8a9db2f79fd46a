//! The store's rules for one key, searched: no order of events within these bounds breaks a promise.

use bytes::Bytes;
use kumo_cluster::{Mutation, Operation};
use sim::models::store::{Chapter, LINEAR, Life, Tale, When};
use sim::models::{exhaust, find};

const A: Life = (0, 1);
const B: Life = (1, 1);

const GET: Operation = Operation::Get;
const DELETE: Operation = Operation::Delete { unique: None };
const INCR: Operation = Operation::Add64 { unique: None, delta: 1, down: false, initial: None, touch: None };

fn set(data: &'static str) -> Operation {
    Operation::Set { flags: 0, expiry: 0, data: Bytes::from_static(data.as_bytes()) }
}

/// A is lost, and B goes on alone.
fn loss() -> Vec<Chapter> {
    vec![Chapter::calm(&[A, B]), Chapter { when: When::Over(A), lost: &[A], ..Chapter::calm(&[A, B]) }]
}

/// A takes the key over from B.
fn replace() -> Vec<Chapter> {
    vec![
        Chapter::calm(&[B]),
        Chapter { whs: &[A], since: 2, ..Chapter::calm(&[B]) },
        Chapter { when: When::Copied, earlier: &[B], old: &[B], since: 2, ..Chapter::calm(&[A]) },
    ]
}

#[test]
fn a_write_and_reads_over_a_loss() {
    exhaust("write, reads, loss", written_and_read(None));
}

/// A set and two reads, each once.
fn written_and_read(mutation: Option<Mutation>) -> Tale {
    let callers = vec![vec![set("<1>")], vec![GET, GET]];
    Tale { callers, tries: 1, mutation, ..Tale::new(2, loss()) }
}

#[test]
fn the_search_finds_reads_that_show_too_much() {
    for rule in [Mutation::ReplicaShowsDirty, Mutation::PrimaryShowsPending, Mutation::ReadWithoutLease] {
        find(&format!("{rule:?}"), written_and_read(Some(rule)), LINEAR);
    }
}

/// Nobody reads at the one that is lost, so its lease does not matter.
#[test]
fn a_write_and_reads_at_those_that_are_left() {
    const C: Life = (2, 1);
    let chapters = vec![Chapter::calm(&[A, B, C]), Chapter { lost: &[A], ..Chapter::calm(&[A, B, C]) }];
    let callers = vec![vec![set("<1>")], vec![GET, GET]];
    exhaust(
        "write, reads, settlement",
        Tale { callers, tries: 1, read_at: &[1, 2], ..Tale::new(3, chapters) },
    );
}

#[test]
fn a_replace_with_an_incr_and_a_delete() {
    let (before, stale) = (vec![set("5")], &[0]);
    let callers = vec![vec![INCR], vec![DELETE, GET]];
    exhaust("replace, incr, delete", Tale { before, stale, callers, ..Tale::new(2, replace()) });
}

/// A tombstone that is collected while a copy runs brings nothing back: what is compared are values, and the range
/// is made equal to the primary's whatever the stamps, so a receiver's old value goes for want of one there as well as
/// for a tombstone (rule 15). What came by Replicate since is not touched. Rule 19 costs little, and is kept for
/// copies that would compare stamps.
#[test]
fn a_tombstone_collected_during_a_copy_brings_nothing_back() {
    let (before, stale, mutation) = (vec![set("5")], &[0], Some(Mutation::CollectDuringCopy));
    let callers = vec![vec![DELETE], vec![GET]];
    let tale = Tale { before, stale, callers, ticks: 1, mutation, ..Tale::new(2, replace()) };
    exhaust("collected during a copy", tale);
}

#[test]
fn a_request_asked_again_over_a_loss_is_executed_once() {
    exhaust("ids over a loss", asked_again(None));
}

/// An increment whose first answer gets lost.
fn asked_again(mutation: Option<Mutation>) -> Tale {
    let callers = vec![vec![INCR], vec![GET]];
    Tale { before: vec![set("5")], callers, deaf: 1, mutation, ..Tale::new(2, loss()) }
}

#[test]
fn a_request_asked_again_over_a_replace_is_executed_once() {
    exhaust("ids over a replace", moved_and_asked_again(None));
}

/// An increment whose first answer gets lost, and then the key is another's.
fn moved_and_asked_again(mutation: Option<Mutation>) -> Tale {
    let callers = vec![vec![INCR, GET]];
    Tale { before: vec![set("5")], callers, deaf: 1, mutation, ..Tale::new(2, replace()) }
}

#[test]
fn the_search_finds_a_request_that_is_executed_twice() {
    find("ids not carried", moved_and_asked_again(Some(Mutation::IdsNotCarried)), LINEAR);
}
