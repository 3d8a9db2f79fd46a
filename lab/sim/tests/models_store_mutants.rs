//! Rules of the store that random faults do not miss: each left out in a play for one key that shows what it is for,
//! and the same play with the rule in force.

use bytes::Bytes;
use kumo_cluster::{Answer, Message, Mutation, Operation, Reply};
use sim::models::store::{Action, Chapter, Life, Play, Tale, When};

const A: Life = (0, 1);
const B: Life = (1, 1);
const C: Life = (2, 1);
const D: Life = (3, 1);

const GET: Operation = Operation::Get;
const INCR: Operation = Operation::Add64 { unique: None, delta: 1, down: false, initial: None, touch: None };

fn set(data: &'static str) -> Operation {
    Operation::Set { flags: 0, expiry: 0, data: Bytes::from_static(data.as_bytes()) }
}

fn value(answer: Option<Answer>) -> String {
    match answer {
        Some(Answer::Reply(Reply::Value { data, .. })) => String::from_utf8_lossy(&data).into_owned(),
        Some(Answer::Missing) => "missing".to_owned(),
        other => panic!("no value: {other:?}"),
    }
}

/// A read that may have to ask others.
fn read(play: &mut Play, ask: usize, at: usize, among: &[usize]) -> String {
    play.send(ask, at);
    play.settle(among, any);
    value(play.answer(ask))
}

fn any(_: &Message) -> bool {
    true
}

fn replicate(message: &Message) -> bool {
    matches!(message, Message::Replicate { .. })
}

fn copy(message: &Message) -> bool {
    matches!(
        message,
        Message::CopyIds { .. }
            | Message::CopyIdsStored { .. }
            | Message::CopyDigest { .. }
            | Message::CopySame { .. }
            | Message::CopyDiffers { .. }
            | Message::CopyRecords { .. }
            | Message::CopyStored { .. }
    )
}

/// Of a write only B has heard when A is lost; B shows it, and is lost.
fn shown_by_the_next_primary(mutation: Option<Mutation>) -> Play {
    let chapters = vec![
        Chapter::calm(&[A, B, C]),
        Chapter { when: When::Over(A), lost: &[A], ..Chapter::calm(&[A, B, C]) },
        Chapter { when: When::Over(B), lost: &[A, B], ..Chapter::calm(&[A, B, C]) },
    ];
    let callers = vec![vec![set("<1>")], vec![GET, GET]];
    let mut play = Play::new(Tale { callers, mutation, ..Tale::new(3, chapters) });
    play.send(0, 0);
    play.deliver(0, 1, replicate);
    play.act(Action::LeaseOver(0));
    play.publish(&[1, 2]);
    play
}

#[test]
fn without_settlement_a_new_primary_shows_what_only_it_has() {
    let mut play = shown_by_the_next_primary(Some(Mutation::NoSettlement));
    assert_eq!(value(play.send(1, 1)), "<1>");
    play.act(Action::LeaseOver(1));
    play.publish(&[2]);
    assert_eq!(value(play.send(2, 2)), "missing");
    assert!(play.state.wrong.is_some());
}

#[test]
fn a_new_primary_shows_only_what_all_have() {
    let mut play = shown_by_the_next_primary(None);
    assert_eq!(play.send(1, 1), None, "it has to settle first");
    play.settle(&[1, 2], any);
    assert_eq!(value(play.send(1, 1)), "<1>");
    play.act(Action::LeaseOver(1));
    play.publish(&[2]);
    assert_eq!(value(play.send(2, 2)), "<1>");
    assert_eq!(play.state.wrong, None);
}

/// B settles what D was primary of, and C has answered that, when A is lost too. Of A's last write only C has heard.
/// (Whoever is primary next holds all that was ever answered or shown, so nothing of that can be lost here. But what
/// is not asked for stays behind, marked, and the owners are not equal before C asks about its mark.)
fn lost_while_settling(mutation: Option<Mutation>) -> Play {
    let chapters = vec![
        Chapter::calm(&[A, B, C, D]),
        Chapter { when: When::Over(D), lost: &[D], ..Chapter::calm(&[A, B, C, D]) },
        Chapter { when: When::Over(A), lost: &[D, A], ..Chapter::calm(&[A, B, C, D]) },
    ];
    let mut play = Play::new(Tale { callers: vec![vec![set("<1>")]], mutation, ..Tale::new(4, chapters) });
    play.send(0, 0);
    play.deliver(0, 2, replicate);
    play.act(Action::LeaseOver(3));
    play.publish(&[1, 2]);
    play.deliver(1, 2, |message| matches!(message, Message::Settle { .. }));
    play.deliver(2, 1, |message| matches!(message, Message::Settled { .. }));
    play.act(Action::LeaseOver(0));
    play.publish(&[1, 2]);
    play.settle(&[1, 2], |message| !matches!(message, Message::AskPrimary { .. }));
    play
}

#[test]
fn a_settlement_that_goes_on_with_old_answers_leaves_owners_unequal() {
    let play = lost_while_settling(Some(Mutation::SettlementNotRestarted));
    let held = [1, 2].map(|place| play.state.nodes[place].record().is_some());
    assert_eq!(held, [false, true], "the write was left behind");
}

#[test]
fn a_settlement_begins_again_in_a_new_space() {
    let mut play = lost_while_settling(None);
    while play.allows(&Action::Watermarks(1)) {
        play.act(Action::Watermarks(1));
        play.settle(&[1, 2], any);
    }
    assert!(play.tale.equal(&play.state));
    assert!(play.state.nodes[1].record().is_some(), "the write was carried on");
}

/// A takes the key over from B, which does not hear of it.
fn taken_over_unheard(mutation: Option<Mutation>) -> Play {
    let chapters = vec![
        Chapter::calm(&[B]),
        Chapter { whs: &[A], since: 2, ..Chapter::calm(&[B]) },
        Chapter { when: When::Copied, earlier: &[B], old: &[B], since: 2, ..Chapter::calm(&[A]) },
    ];
    let callers = vec![vec![set("<6>")], vec![GET]];
    let mut play = Play::new(Tale { before: vec![set("5")], callers, mutation, ..Tale::new(2, chapters) });
    play.publish(&[0, 1]);
    play.settle(&[0, 1], copy);
    play.publish(&[0]);
    play
}

#[test]
fn an_old_member_that_is_forgotten_shows_what_is_over() {
    let mut play = taken_over_unheard(Some(Mutation::OldMembersForgotten));
    assert!(matches!(play.send(1, 0), Some(Answer::Reply(_))));
    assert_eq!(value(play.send(2, 1)), "5");
    assert!(play.state.wrong.is_some());
}

#[test]
fn an_old_member_is_waited_for() {
    let mut play = taken_over_unheard(None);
    assert_eq!(play.send(1, 0), None);
    assert_eq!(value(play.send(2, 1)), "5");
    play.adopt(&[1]);
    play.settle(&[0, 1], any);
    play.send(1, 0);
    play.settle(&[0, 1], any);
    assert!(matches!(play.answer(1), Some(Answer::Reply(_))));
    assert_eq!(play.state.wrong, None);
}

/// A takes the key over from B, which does not hear of it, and then C is lost: the space that says so still names B as
/// an old member, or forgets it. (That the cell's spaces name it is for the manager's tests: see
/// [`Mutation::OldMembersNotCarried`].)
fn taken_over_unheard_and_another_lost(old: &'static [Life]) -> Play {
    let earlier: &[Life] = if old.is_empty() { &[] } else { &[B, C] };
    let chapters = vec![
        Chapter::calm(&[B, C]),
        Chapter { whs: &[A, C], since: 2, ..Chapter::calm(&[B, C]) },
        Chapter { when: When::Copied, earlier: &[B, C], old: &[B, C], since: 2, ..Chapter::calm(&[A, C]) },
        Chapter { when: When::Over(C), lost: &[C], earlier, old, since: 2, ..Chapter::calm(&[A, C]) },
    ];
    let callers = vec![vec![set("<6>")], vec![GET]];
    let mut play = Play::new(Tale { before: vec![set("5")], callers, ..Tale::new(3, chapters) });
    play.publish(&[0, 1, 2]);
    play.settle(&[0, 1], copy);
    play.publish(&[0]);
    play.act(Action::LeaseOver(2));
    play.publish(&[0]);
    play
}

#[test]
fn an_old_member_that_a_later_space_forgets_shows_what_is_over() {
    let mut play = taken_over_unheard_and_another_lost(&[]);
    assert!(matches!(play.send(1, 0), Some(Answer::Reply(_))));
    assert_eq!(value(play.send(2, 1)), "5");
    assert!(play.state.wrong.is_some());
}

#[test]
fn an_old_member_is_waited_for_in_later_spaces_too() {
    let mut play = taken_over_unheard_and_another_lost(&[B]);
    assert_eq!(play.send(1, 0), None);
    assert_eq!(value(play.send(2, 1)), "5");
    play.adopt(&[1]);
    play.settle(&[0, 1], any);
    play.send(1, 0);
    play.settle(&[0, 1], any);
    assert!(matches!(play.answer(1), Some(Answer::Reply(_))));
    assert_eq!(play.state.wrong, None);
}

/// B comes to own the key beside A, while a write is under way at A of which B does not hear.
fn copied_while_pending(mutation: Option<Mutation>) -> Play {
    let chapters = vec![
        Chapter::calm(&[A]),
        Chapter { whs: &[A, B], since: 2, ..Chapter::calm(&[A]) },
        Chapter { when: When::Copied, earlier: &[A], old: &[A], since: 2, ..Chapter::calm(&[A, B]) },
    ];
    let callers = vec![vec![set("<6>")], vec![GET, GET]];
    let mut play = Play::new(Tale { before: vec![set("5")], callers, mutation, ..Tale::new(2, chapters) });
    play.publish(&[0, 1]);
    play.send(1, 0);
    play.settle(&[0, 1], copy);
    play
}

#[test]
fn a_copy_of_what_is_pending_is_shown_too_early() {
    let mut play = copied_while_pending(Some(Mutation::CopyPending));
    play.publish(&[0, 1]);
    assert_eq!(value(play.send(2, 1)), "<6>");
    assert_eq!(value(play.send(3, 0)), "5");
    assert!(play.state.wrong.is_some());
}

#[test]
fn a_copy_waits_for_what_is_pending() {
    let mut play = copied_while_pending(None);
    assert!(!play.allows(&Action::Publish), "a write of the bucket is not committed");
    play.settle(&[0, 1], any);
    play.publish(&[0, 1]);
    play.settle(&[0, 1], any);
    assert_eq!(read(&mut play, 2, 1, &[0, 1]), "<6>");
    assert_eq!(read(&mut play, 3, 0, &[0, 1]), "<6>");
    assert_eq!(play.state.wrong, None);
}

/// A comes to own the key beside B and C. A write is under way at B, of which nobody else hears, when the ids are copied;
/// then B is lost.
fn ids_copied_while_pending(mutation: Option<Mutation>) -> Play {
    let chapters = vec![
        Chapter::calm(&[B, C]),
        Chapter { whs: &[A, B, C], since: 2, ..Chapter::calm(&[B, C]) },
        Chapter { when: When::Over(B), whs: &[A, B, C], lost: &[B], since: 2, ..Chapter::calm(&[B, C]) },
    ];
    let callers = vec![vec![INCR], vec![GET]];
    let mut play = Play::new(Tale { before: vec![set("5")], callers, mutation, ..Tale::new(3, chapters) });
    assert_eq!(play.send(1, 1), None);
    play.publish(&[0, 1, 2]);
    play.settle(&[0, 1], copy);
    play.act(Action::LeaseOver(1));
    play.publish(&[0, 2]);
    play.settle(&[0, 2], any);
    play.send(1, 2);
    play.settle(&[0, 2], any);
    assert!(matches!(play.answer(1), Some(Answer::Reply(Reply::Number { number: 6, .. }))));
    play
}

#[test]
fn a_copied_id_of_what_is_pending_answers_for_a_write_that_nobody_has() {
    let mut play = ids_copied_while_pending(Some(Mutation::CopyPendingIds));
    assert_eq!(read(&mut play, 2, 2, &[0, 2]), "5");
    assert!(play.state.wrong.is_some());
}

#[test]
fn the_id_of_what_is_pending_is_not_copied() {
    let mut play = ids_copied_while_pending(None);
    assert_eq!(read(&mut play, 2, 2, &[0, 2]), "6");
    assert_eq!(play.state.wrong, None);
}

/// C comes to own the key beside A and B. A has copied it when a write comes, of which B has heard and C has not.
fn written_after_the_copy(mutation: Option<Mutation>) -> Play {
    let chapters = vec![
        Chapter::calm(&[A, B]),
        Chapter { whs: &[A, B, C], since: 2, ..Chapter::calm(&[A, B]) },
        Chapter { when: When::Copied, earlier: &[A, B], old: &[A, B], since: 2, ..Chapter::calm(&[A, B, C]) },
    ];
    let callers = vec![vec![set("<6>")], vec![GET, GET]];
    let mut play = Play::new(Tale { before: vec![set("5")], callers, mutation, ..Tale::new(3, chapters) });
    play.publish(&[0, 1, 2]);
    play.settle(&[0, 2], copy);
    play.send(1, 0);
    play.deliver(0, 1, replicate);
    play.settle(&[1, 2], copy);
    play.publish(&[0, 1, 2]);
    play
}

#[test]
fn a_copy_from_another_owner_is_shown_too_early() {
    let mut play = written_after_the_copy(Some(Mutation::CopyFromAnyOwner));
    assert_eq!(value(play.send(2, 2)), "<6>");
    assert_eq!(value(play.send(3, 0)), "5");
    assert!(play.state.wrong.is_some());
}

#[test]
fn the_primary_alone_copies() {
    let mut play = written_after_the_copy(None);
    assert_eq!(value(play.send(2, 2)), "5");
    play.settle(&[0, 1, 2], any);
    assert_eq!(read(&mut play, 3, 0, &[0, 1, 2]), "<6>");
    assert_eq!(play.state.wrong, None);
}

/// B has what A wrote first, C what A wrote last, which nobody else has. A is lost, and C comes back from its disk: the
/// first write is settled by B, and comes to C while that catches up.
fn back_with_a_greater_stamp(mutation: Option<Mutation>) -> Play {
    const BACK: Life = (2, 2);
    let chapters = vec![
        Chapter::calm(&[A, B, C]),
        Chapter {
            when: When::Over(A),
            whs: &[A, B, BACK],
            lost: &[A, C],
            since: 2,
            ..Chapter::calm(&[A, B, C])
        },
        Chapter {
            when: When::Copied,
            lost: &[A],
            earlier: &[B],
            old: &[B],
            since: 2,
            ..Chapter::calm(&[A, B, BACK])
        },
    ];
    let callers = vec![vec![set("<1>"), set("<2>")], vec![GET, GET]];
    let mut play = Play::new(Tale { callers, mutation, ..Tale::new(3, chapters) });
    play.send(0, 0);
    play.settle(&[0, 1, 2], any);
    assert!(matches!(play.answer(0), Some(Answer::Reply(_))));
    play.send(1, 0);
    play.deliver(0, 2, replicate);
    play.act(Action::Restart(2));
    play.act(Action::LeaseOver(0));
    play.publish(&[1, 2]);
    play.settle(&[1, 2], |message| matches!(message, Message::Settle { .. } | Message::Settled { .. }));
    play.settle(&[1, 2], copy);
    play.settle(&[1, 2], any);
    play.publish(&[1, 2]);
    play.settle(&[1, 2], any);
    play
}

#[test]
fn an_old_record_that_wins_by_its_stamp_comes_back() {
    let mut play = back_with_a_greater_stamp(Some(Mutation::CatchingOldWins));
    assert_eq!(value(play.send(2, 2)), "<2>");
    assert_eq!(value(play.send(3, 1)), "<1>");
    assert!(play.state.wrong.is_some());
}

#[test]
fn an_old_record_never_wins() {
    let mut play = back_with_a_greater_stamp(None);
    assert_eq!(read(&mut play, 2, 2, &[1, 2]), "<1>");
    assert_eq!(read(&mut play, 3, 1, &[1, 2]), "<1>");
    assert_eq!(play.state.wrong, None);
}

/// A is to take over from B, and has nothing yet.
fn before_the_copy(mutation: Option<Mutation>) -> Play {
    let chapters = vec![Chapter::calm(&[B]), Chapter { whs: &[A], since: 2, ..Chapter::calm(&[B]) }];
    let callers = vec![vec![INCR]];
    let mut play = Play::new(Tale { before: vec![set("5")], callers, mutation, ..Tale::new(2, chapters) });
    play.publish(&[0, 1]);
    play
}

#[test]
fn a_primary_of_the_write_ring_misses_what_is_not_copied() {
    let mut play = before_the_copy(Some(Mutation::WriteRingPrimary));
    play.settle(&[0, 1], |message| matches!(message, Message::Settle { .. } | Message::Settled { .. }));
    assert_eq!(play.send(1, 0), Some(Answer::Missing));
    assert!(play.state.wrong.is_some());
}

#[test]
fn the_primary_stays_in_the_read_ring() {
    let mut play = before_the_copy(None);
    assert_eq!(play.send(1, 1), None);
    play.settle(&[0, 1], any);
    assert!(matches!(play.answer(1), Some(Answer::Reply(Reply::Number { number: 6, .. }))));
}

/// The only owner executes a request whose answer gets lost, and comes back from its disk.
fn back_without_ids(mutation: Option<Mutation>) -> Play {
    const BACK: Life = (0, 2);
    let chapters = vec![
        Chapter::calm(&[A]),
        Chapter { when: When::Born(BACK), returned: &[BACK], id_floor: 2, ..Chapter::calm(&[BACK]) },
    ];
    let (before, callers) = (vec![set("5")], vec![vec![INCR], vec![GET]]);
    let mut play = Play::new(Tale { before, callers, deaf: 1, mutation, ..Tale::new(1, chapters) });
    play.send(1, 0);
    let late = play.state.letters.first().cloned().expect("the request is on its way");
    play.act(Action::Deliver(late));
    play.act(Action::Restart(0));
    play.publish(&[0]);
    play
}

#[test]
fn without_a_floor_a_request_is_executed_twice() {
    let mut play = back_without_ids(Some(Mutation::NoIdFloor));
    assert!(matches!(play.send(1, 0), Some(Answer::Reply(Reply::Number { number: 7, .. }))));
    assert!(play.state.wrong.is_some());
}

#[test]
fn below_the_floor_the_outcome_is_unknown() {
    let mut play = back_without_ids(None);
    assert_eq!(play.send(1, 0), None);
    assert!(play.state.asks[1].is_over(), "it is not asked for again");
    assert_eq!(value(play.send(2, 0)), "6");
    assert_eq!(play.state.wrong, None);
}
