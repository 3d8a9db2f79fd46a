//! Frames are acknowledged together where they came together, and no others with them.

use super::house::{House, manager, server, set};
#[cfg(feature = "mutants")]
use kumo_cluster::Mutation;
use kumo_cluster::{
    Answer, Broken, GatewayId, Job, Limits, Message, Operation, Range, Reply, RequestId, ServerEffect,
    ServerInput, StoreKey,
};
use kumo_session::ConnectionId;
use std::ops::RangeInclusive;

/// Keys that the first server leads.
fn led(house: &House) -> Vec<StoreKey> {
    let mut keys = house.keys_of(&[], 200);
    keys.retain(|key| house.primary(key.hash) == 0);
    keys
}

/// Writes at the first server, whose frames nobody got yet, and what each of the others is sent.
fn under_way(house: &mut House, count: u64) -> [Vec<Message>; 2] {
    let keys = led(house);
    let mut effects = Vec::new();
    for (seq, key) in (1..=count).zip(&keys) {
        effects.extend(written(house, seq, key, "v"));
    }
    [1, 2].map(|to| frames_to(to, &effects))
}

fn written(house: &mut House, seq: u64, key: &StoreKey, data: &'static str) -> Vec<ServerEffect> {
    let request = Message::Request(house.request(seq, 1, key, set(data)));
    stepped(house, ServerInput::Gateway(ConnectionId(1), request))
}

/// Parts of ids that the other is sent for that range, or for any: where each begins.
fn id_parts(effects: &[ServerEffect], wanted: Option<Range>) -> Vec<(Range, Option<RequestId>)> {
    let parts = effects.iter().filter_map(|effect| match effect {
        ServerEffect::Server(_, Message::CopyIds { range, after, .. }) => Some((*range, *after)),
        _other => None,
    });
    parts.filter(|(range, _)| wanted.is_none_or(|wanted| *range == wanted)).collect()
}

/// What the first server wants done.
fn stepped(house: &mut House, input: ServerInput) -> Vec<ServerEffect> {
    let mut effects = Vec::new();
    house.servers[0].step(house.now, input, &mut effects);
    effects
}

fn frames_to(to: usize, effects: &[ServerEffect]) -> Vec<Message> {
    let frames = effects.iter().filter_map(|effect| match effect {
        ServerEffect::Server(id, message @ Message::Replicate { .. }) if *id == server(to) => {
            Some(message.clone())
        }
        _other => None,
    });
    frames.collect()
}

/// What a server acknowledges of frames that it gets in one turn.
fn acknowledged(house: &mut House, at: usize, frames: &[Message]) -> Vec<(u64, u64)> {
    let mut effects = Vec::new();
    for frame in frames {
        let input = ServerInput::Server(server(0), frame.clone());
        house.servers[at].step(house.now, input, &mut effects);
    }
    let said = effects.iter().filter_map(|effect| match effect {
        ServerEffect::Server(_, Message::Replicated { first, last, .. }) => Some((*first, *last)),
        _other => None,
    });
    said.collect()
}

fn acknowledge(house: &mut House, from: usize, seqs: RangeInclusive<u64>) {
    let (first, last) = seqs.into_inner();
    let message = Message::Replicated { epoch: house.space.number, first, last };
    house.step(0, ServerInput::Server(server(from), message));
}

fn is_done(house: &House, seq: u64) -> bool {
    matches!(house.answers.get(&seq), Some(Answer::Reply(Reply::Done { .. })))
}

#[test]
fn what_comes_in_one_turn_is_acknowledged_with_one_message() {
    let mut house = House::new(3, 3, 1);
    let [frames, _] = under_way(&mut house, 6);
    assert_eq!(acknowledged(&mut house, 1, &frames[..4]), [(1, 4)]);
    // Again, and in any order: each is acknowledged, and none that did not come.
    assert_eq!(acknowledged(&mut house, 1, &[frames[3].clone(), frames[1].clone()]), [(4, 4), (2, 2)]);
    assert_eq!(acknowledged(&mut house, 1, &[frames[3].clone(), frames[5].clone()]), [(4, 4), (6, 6)]);
}

#[test]
fn a_write_is_answered_when_all_have_acknowledged_its_own_frame() {
    let mut house = House::new(3, 3, 1);
    under_way(&mut house, 5);
    acknowledge(&mut house, 1, 1..=5);
    assert!(house.answers.is_empty());
    acknowledge(&mut house, 2, 2..=3);
    assert_eq!([1, 2, 3, 4, 5].map(|seq| is_done(&house, seq)), [false, true, true, false, false]);
    acknowledge(&mut house, 2, 1..=4);
    assert_eq!([1, 2, 3, 4, 5].map(|seq| is_done(&house, seq)), [true, true, true, true, false]);
}

#[test]
fn numbers_that_were_never_sent_are_passed_over() {
    let mut house = House::new(3, 3, 1);
    under_way(&mut house, 2);
    // Whoever says that it has everything does not keep the other busy for ever, nor is anything taken for had
    // that is sent later.
    for from in [1, 2] {
        acknowledge(&mut house, from, 0..=u64::MAX);
    }
    assert!(is_done(&house, 1) && is_done(&house, 2));
    let keys = led(&house);
    house.cut_off = Some(2);
    assert_eq!(house.ask(0, 9, 1, &keys[9], set("v")), None, "nobody has it yet");
    #[expect(clippy::reversed_empty_ranges)]
    acknowledge(&mut house, 1, u64::MAX..=0);
    assert!(!is_done(&house, 9));
}

#[test]
fn a_number_whose_write_is_committed_carries_no_other() {
    assert_eq!(carried_by_an_old_number(Broken::default()), None);
}

#[cfg(feature = "mutants")]
#[test]
fn a_number_that_is_used_again_carries_what_is_not_committed() {
    let carried = carried_by_an_old_number(Broken(Some(Mutation::NumberUsedAgain)));
    assert_eq!(carried.as_deref(), Some("later"));
}

/// The second server has a write for which the third is waited for, and which is sent again under a new number; that one
/// gets lost with its connection, and the write is committed all the same. What follows it under that number?
fn carried_by_an_old_number(broken: Broken) -> Option<String> {
    let limits = Limits { held_max: 4, resent_max: 1, ..Limits::default() };
    let mut house = House::with(3, 3, |settings| (settings.limits, settings.broken) = (limits, broken));
    let keys = led(&house);
    under_way(&mut house, 5);
    acknowledge(&mut house, 1, 1..=2);
    let sent = frames_to(1, &written(&mut house, 6, &keys[5], "v"));
    let again = sent.iter().filter_map(|frame| match frame {
        Message::Replicate { seq, key, .. } if *key == keys[0] => Some(*seq),
        _other => None,
    });
    let again = again.collect::<Vec<_>>();
    assert_eq!(again, [7], "it holds up the others, and stands again behind them");
    stepped(&mut house, ServerInput::ServerDown(server(1)));
    acknowledge(&mut house, 2, 1..=1);
    assert!(is_done(&house, 1), "all have it");
    let mut effects = stepped(&mut house, ServerInput::ServerUp(server(1)));
    effects.extend(written(&mut house, 7, &keys[0], "later"));
    for _ in 0..30 {
        // More comes when what came is acknowledged.
        for frame in frames_to(1, &effects) {
            let Message::Replicate { seq, .. } = frame else { panic!("{frame:?}") };
            acknowledge(&mut house, 1, seq..=seq.min(6));
        }
        house.now = house.now.plus_micros(10_000);
        effects.extend(stepped(&mut house, ServerInput::Timeout));
    }
    let frames = frames_to(1, &effects);
    let numbers = frames.iter().filter_map(|frame| match frame {
        Message::Replicate { seq, record, .. } => Some((*seq, &record.data)),
        _other => None,
    });
    let mut numbers = numbers.collect::<Vec<_>>();
    assert!(
        numbers.iter().any(|(seq, _)| *seq == 6),
        "all that is not acknowledged comes again: {numbers:?}"
    );
    numbers.retain(|(seq, _)| *seq == 7);
    numbers.first().map(|(_, data)| String::from_utf8_lossy(data).into_owned())
}

#[test]
fn a_late_frame_does_not_take_the_place_of_the_same_write_under_a_later_number() {
    assert_eq!(shown_after_an_old_frame(Broken::default()), None);
}

#[cfg(feature = "mutants")]
#[test]
fn a_mark_that_is_lowered_lets_out_what_is_not_committed() {
    let shown = shown_after_an_old_frame(Broken(Some(Mutation::MarkLowered)));
    assert!(matches!(shown, Some(Answer::Reply(Reply::Value { .. }))), "{shown:?}");
}

/// The second server got a write twice, under two numbers, and then the first of these frames again, from a connection
/// that was given up. That number is passed, for the write stands again under the other one. What does it show?
fn shown_after_an_old_frame(broken: Broken) -> Option<Answer> {
    let mut house = House::with_broken(3, 3, 1, broken);
    let key = led(&house).remove(0);
    let [frames, _] = under_way(&mut house, 1);
    let mut again = frames[0].clone();
    let Message::Replicate { seq, .. } = &mut again else { panic!("{again:?}") };
    *seq = 7;
    let epoch = house.space.number;
    acknowledged(&mut house, 1, &[frames[0].clone(), again, frames[0].clone()]);
    house.step(1, ServerInput::Server(server(0), Message::Watermark { epoch, upto: 1 }));
    // Nobody else hears of it: what it does not show by itself it does not show.
    house.send(1, 2, 1, &key, Operation::Get);
    house.answers.get(&2).cloned()
}

#[test]
fn what_a_disk_failed_to_store_is_sent_again_soon() {
    let mut house = House::new(3, 3, 1);
    let keys = led(&house);
    house.disks[2].fail(true);
    for (seq, key) in (1..).zip(&keys) {
        house.send(0, seq, 1, key, set("v"));
    }
    house.settle();
    house.disks[2].fail(false);
    assert!(house.answers.is_empty());
    // It takes the next one, so that it is known to have overlooked the others.
    house.ask(0, 1000, 1, &keys[0], set("w"));
    house.send(0, 1001, 1, &house.keys_of(&[0], 500)[499].clone(), set("w"));
    house.wait(1_000_000);
    let waits = (1..).zip(&keys).filter(|(seq, _)| !is_done(&house, *seq)).count();
    assert_eq!(waits, 0, "of {}", keys.len());
}

#[test]
fn a_number_that_is_committed_does_not_hide_what_waits_behind_it() {
    let limits = Limits { held_max: 4, ..Limits::default() };
    let mut house = House::with(3, 3, |settings| settings.limits = limits);
    let keys = led(&house);
    under_way(&mut house, 5);
    acknowledge(&mut house, 1, 1..=5);
    // The first stands again as the seventh, which nobody acknowledges, and is committed.
    stepped(&mut house, ServerInput::Timeout);
    written(&mut house, 6, &keys[5], "v");
    acknowledge(&mut house, 2, 1..=1);
    assert!(is_done(&house, 1));
    acknowledge(&mut house, 1, 6..=6);
    written(&mut house, 7, &keys[6], "v");
    let mut effects = Vec::new();
    for _ in 0..20 {
        house.now = house.now.plus_micros(50_000);
        effects.extend(stepped(&mut house, ServerInput::Timeout));
    }
    let numbers = frames_to(1, &effects).into_iter().map(|frame| match frame {
        Message::Replicate { seq, .. } => seq,
        other => panic!("{other:?}"),
    });
    assert!(numbers.into_iter().any(|seq| seq == 8), "the eighth waits, and is asked about");
}

/// The first part of the ids is answered late, after it was sent again and covered more, for some had been closed.
#[test]
fn an_answer_passes_no_ids_that_an_earlier_sending_did_not_cover() {
    let limits = Limits { ids_looked_max: 4, ..Limits::default() };
    let mut house = House::with(2, 1, |settings| settings.limits = limits);
    let keys = led(&house);
    for (seq, key) in (1..=12).zip(&keys) {
        assert!(matches!(house.ask(0, seq, 1, key, set("v")), Some(Answer::Reply(_))));
    }
    house.space.number.0 += 1;
    (house.space.whs, house.space.whs_since) = (vec![0, 1], house.space.number);
    house.space.job = Some(Job { full: false, paused: false, rate: 0 });
    let space = Message::new_space(house.space.clone());
    let mut effects = stepped(&mut house, ServerInput::Manager(manager(), space));
    let wait = |house: &mut House, effects: &mut Vec<ServerEffect>| {
        for _ in 0..30 {
            house.now = house.now.plus_micros(50_000);
            effects.extend(stepped(house, ServerInput::Timeout));
        }
    };
    wait(&mut house, &mut effects);
    let (range, _) = id_parts(&effects, None)[0];
    // The gateway has answers to the first four: now a part ends further behind.
    let closing = house.request(13, 5, &keys[0], Operation::Get);
    stepped(&mut house, ServerInput::Gateway(ConnectionId(1), Message::Request(closing)));
    effects.clear();
    wait(&mut house, &mut effects);
    assert_eq!(id_parts(&effects, Some(range)).first(), Some(&(range, None)), "it is sent again");
    let stored = Message::CopyIdsStored { job: house.space.number, range, after: None };
    let next = stepped(&mut house, ServerInput::Server(server(1), stored));
    let covered = RequestId { gateway: GatewayId(7), seq: 4 };
    assert_eq!(id_parts(&next, Some(range)), [(range, Some(covered))]);
}
