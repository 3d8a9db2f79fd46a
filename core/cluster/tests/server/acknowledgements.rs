//! Frames are acknowledged together where they came together, and no others with them.

use super::house::{House, server, set};
use kumo_cluster::{Answer, Message, Reply, ServerEffect, ServerInput};
use kumo_session::ConnectionId;
use std::ops::RangeInclusive;

/// Writes at the first server, whose frames nobody got yet, and what each of the others is sent.
fn under_way(house: &mut House, count: u64) -> [Vec<Message>; 2] {
    let mut keys = house.keys_of(&[], 200);
    keys.retain(|key| house.primary(key.hash) == 0);
    let mut effects = Vec::new();
    for (seq, key) in (1..=count).zip(&keys) {
        let request = Message::Request(house.request(seq, 1, key, set("v")));
        house.servers[0].step(house.now, ServerInput::Gateway(ConnectionId(1), request), &mut effects);
    }
    [1, 2].map(|to| {
        let frames = effects.iter().filter_map(|effect| match effect {
            ServerEffect::Server(id, message @ Message::Replicate { .. }) if *id == server(to) => {
                Some(message.clone())
            }
            _other => None,
        });
        frames.collect()
    })
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
    let mut keys = house.keys_of(&[], 200);
    keys.retain(|key| house.primary(key.hash) == 0);
    house.cut_off = Some(2);
    assert_eq!(house.ask(0, 9, 1, &keys[9], set("v")), None, "nobody has it yet");
    #[expect(clippy::reversed_empty_ranges)]
    acknowledge(&mut house, 1, u64::MAX..=0);
    assert!(!is_done(&house, 9));
}
