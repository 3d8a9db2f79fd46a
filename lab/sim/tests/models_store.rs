//! The store's rules for one key, searched: no order of events within these bounds breaks a promise.

use bytes::Bytes;
use kumo_cluster::{Mutation, Operation};
use sim::models::store::{Chapter, LINEAR, Life, Tale, When};
use sim::models::{exhaust, find};

const A: Life = (0, 1);
const B: Life = (1, 1);
const C: Life = (2, 1);
/// B, come back from its disk.
const B_BACK: Life = (1, 2);

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
    let chapters = vec![Chapter::calm(&[A, B, C]), Chapter { lost: &[A], ..Chapter::calm(&[A, B, C]) }];
    let callers = vec![vec![set("<1>")], vec![GET, GET]];
    exhaust(
        "write, reads, settlement",
        Tale { callers, tries: 1, read_at: &[1, 2], ..Tale::new(3, chapters) },
    );
}

#[test]
fn a_write_and_reads_at_any_of_three_over_a_loss() {
    let callers = vec![vec![set("<1>")], vec![GET, GET]];
    let tale = Tale { callers, tries: 1, ..Tale::new(3, loss_of_three()) };
    exhaust("write, reads, loss of one of three", tale);
}

/// First one and then another of three; the write is answered before it is read.
#[test]
fn a_write_and_a_read_over_two_losses() {
    let mut chapters = loss_of_three();
    chapters.push(Chapter { when: When::Over(B), lost: &[A, B], ..Chapter::calm(&[A, B, C]) });
    let callers = vec![vec![set("<1>"), GET]];
    exhaust("write, read, two losses", Tale { callers, tries: 1, ..Tale::new(3, chapters) });
}

/// A is lost, and B and C go on.
fn loss_of_three() -> Vec<Chapter> {
    vec![Chapter::calm(&[A, B, C]), Chapter { when: When::Over(A), lost: &[A], ..Chapter::calm(&[A, B, C]) }]
}

/// Any two letters, or any one of three servers', come twice, and the second time as late as they like.
#[test]
fn letters_that_come_twice_over_a_loss() {
    exhaust("twice: write, reads, loss", Tale { echoes: 2, ..written_and_read(None) });
    let callers = vec![vec![set("<1>"), GET]];
    let tale = Tale { callers, tries: 1, echoes: 1, ..Tale::new(3, loss_of_three()) };
    exhaust("twice: write, read, loss of one of three", tale);
}

#[test]
fn letters_that_come_twice_over_a_replace() {
    let (before, stale) = (vec![set("5")], &[0]);
    let callers = vec![vec![INCR], vec![DELETE]];
    let tale = Tale { before, stale, callers, tries: 1, echoes: 1, ..Tale::new(2, replace()) };
    exhaust("twice: replace, incr, delete", tale);
    exhaust("twice: ids over a replace", Tale { echoes: 1, ..moved_and_asked_again(None) });
}

/// Any of the two may be restarted, at any moment; when it was B, that one is attached anew.
#[test]
fn a_write_and_reads_over_a_restart_and_a_return() {
    let (before, callers) = (vec![set("5")], vec![vec![set("<6>")], vec![GET, GET]]);
    let tale = Tale { before, callers, tries: 1, restarts: 1, ..Tale::new(2, back()) };
    exhaust("write, reads, restart", tale);
}

/// B comes back from its disk, and is an owner again.
fn back() -> Vec<Chapter> {
    let away = Chapter { when: When::Born(B_BACK), whs: &[A, B_BACK], lost: &[B], ..Chapter::calm(&[A, B]) };
    let back = Chapter { when: When::Copied, earlier: &[A], old: &[A], ..Chapter::calm(&[A, B_BACK]) };
    vec![Chapter::calm(&[A, B]), Chapter { since: 2, ..away }, Chapter { since: 2, ..back }]
}

#[test]
fn a_replace_with_an_incr_and_a_delete() {
    let (before, stale) = (vec![set("5")], &[0]);
    let callers = vec![vec![INCR], vec![DELETE, GET]];
    exhaust("replace, incr, delete", Tale { before, stale, callers, ..Tale::new(2, replace()) });
}

/// Rule 19 keeps tombstones while a copy runs. No schedule needs that: left out, nothing comes back. For let a delete be
/// committed, and its tombstone be collected at any of its owners while something is copied; what could bring an older
/// version back?
///
/// - A member of A(k) at the time of the delete: it has acknowledged, so the tombstone took the place of what it had, also
///   at one that catches up, and of its mark. It lists nothing older when a settlement asks, and shows nothing older.
/// - One that comes into A(k) later: it catches up, so it has forgotten marks, notes and ids, and lists and shows nothing
///   of before. What is compared with it are values, and all that the primary does not have goes, for want of a
///   record there as well as for a tombstone. This is the primary of the space, be it the one that deleted or one
///   that settled after it was lost; each holds the key deleted, with its tombstone or without.
/// - A letter with an older version: of an earlier space it is refused. A frame of this space is below the watermark that
///   made the tombstone clean, and not stored again. A part of a copy was sent before the delete was, whose
///   frame went to the same server and is noted there: the copy leaves the key alone. The note is kept as long as that
///   server catches up in that space, whether the tombstone is still at the primary or not.
/// - A later stamp below the tombstone's: stamps are led by the space, and in one space by the clock of one primary,
///   which has heard the tombstone's.
///
/// So the rule is a second line, for a copy that would compare stamps or leave alone what the sender does not have. These
/// searches run without it; that it is kept is for the server's own tests (core/cluster/tests/server/garbage.rs).
#[test]
fn a_tombstone_collected_during_a_copy_brings_nothing_back() {
    let (before, stale, mutation) = (vec![set("5")], &[0], Some(Mutation::CollectDuringCopy));
    let callers = vec![vec![DELETE], vec![GET]];
    let tale = Tale { before, stale, callers, ticks: 1, mutation, ..Tale::new(2, replace()) };
    exhaust("collected during a copy", tale.clone());
    exhaust("collected twice during a copy", Tale { ticks: 2, tries: 1, ..tale });
}

/// B has the value on its disk, and catches up.
#[test]
fn a_tombstone_collected_while_a_server_returns_brings_nothing_back() {
    let (before, mutation) = (vec![set("5")], Some(Mutation::CollectDuringCopy));
    let callers = vec![vec![DELETE], vec![GET]];
    let tale = Tale { before, callers, tries: 1, restarts: 1, ticks: 1, mutation, ..Tale::new(2, back()) };
    exhaust("collected during a return", tale);
}

/// C has an old value. A copies to it and is lost half way, and B begins again; each has the tombstone, or not any more.
/// (The delete is over when it begins. Under way meanwhile, it makes more states than these tests have time for.)
#[test]
fn a_tombstone_collected_before_the_primary_is_lost_brings_nothing_back() {
    let chapters = vec![
        Chapter::calm(&[A, B]),
        Chapter { whs: &[A, B, C], since: 2, ..Chapter::calm(&[A, B]) },
        Chapter { when: When::Over(A), whs: &[A, B, C], lost: &[A], since: 2, ..Chapter::calm(&[A, B]) },
        Chapter {
            when: When::Copied,
            lost: &[A],
            earlier: &[A, B],
            old: &[B],
            since: 2,
            ..Chapter::calm(&[A, B, C])
        },
    ];
    let (before, stale, mutation) = (vec![set("5"), DELETE], &[2], Some(Mutation::CollectDuringCopy));
    let tale = Tale { before, stale, tries: 1, mutation, ..Tale::new(3, chapters) };
    let quiet = Tale { ticks: 3, ..tale.clone() };
    exhaust("collected, and the primary lost", quiet);
    let read = Tale { ticks: 1, callers: vec![vec![GET]], ..tale };
    exhaust("collected, the primary lost, read", read);
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
