//! Large values: their bytes are on disk where they were accepted, and what is asked for them leads nowhere else.

use crate::world::{World, address};
use bytes::Bytes;
use kumo_paxos::{DataName, Input, Instance, Message, Proposal, Record, Value};
use std::collections::BTreeSet;

fn is_large(proposal: &Proposal) -> bool {
    matches!(proposal.value, Value::Large { .. })
}

/// The names of the large values that were accepted according to these records.
fn accepted(records: &[Record]) -> Vec<DataName> {
    let name = |record: &Record| match record {
        Record::Accepted { value: Value::Large { name, .. }, .. } => Some(*name),
        _ => None,
    };
    records.iter().filter_map(name).collect()
}

/// The names of the values whose bytes are among these records.
fn written(records: &[Record]) -> BTreeSet<DataName> {
    let name = |record: &Record| match record {
        Record::Data { name, .. } => Some(*name),
        _ => None,
    };
    records.iter().filter_map(name).collect()
}

#[test]
fn what_answers_a_fetch_does_not_lead_to_a_snapshot() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300; pause 3; propose 1 b; run 1000; resume 3");
    // 3 has asked for what it missed, and the answer is on its way.
    world.filter = Some(Box::new(|_, to, message| to != 3 || !matches!(message, Message::Decided { .. })));
    let asks = |world: &World| {
        let asked = |(to, envelope): &(_, kumo_paxos::Envelope)| {
            let asks = matches!(envelope.message, Message::CatchUp { .. });
            (envelope.from == address(3) && asks).then_some(*to)
        };
        world.wire.iter().find_map(asked)
    };
    let mut donor = None;
    for _ in 0..1000 {
        world.run(1);
        donor = asks(&world);
        if donor.is_some() {
            break;
        }
    }
    let donor = donor.expect("3 asks for what it missed").port();
    let (first, next) = (Instance(0), world.processes[&3].replica.executed_upto().next());
    assert!(first < next);
    let answer = world.envelope(donor, 3, Message::TooFar { first });
    world.step(3, Input::Message(answer));
    assert!(!world.out.contains("3 takes a snapshot"), "{}", world.out);
    world.filter = None;
    world.run(1000);
    assert_eq!(world.processes[&3].executed.len(), 2, "{}", world.out);
}

#[test]
fn a_snapshot_on_disk_keeps_the_bytes_of_what_is_not_executed() {
    let mut world = World { durable: true, ..World::default() };
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300");
    // 3 holds the bytes, and is not asked to accept them.
    let begins = |message: &Message| match message {
        Message::Begin { proposals, .. } => proposals.iter().any(is_large),
        _ => false,
    };
    world.filter = Some(Box::new(move |_, _, message| !begins(message)));
    world.commands("large 1 100; run 100");
    assert_eq!(written(&world.processes[&3].records).len(), 1);
    world.compact(3);
    world.filter = None;
    world.run(500);
    let accepted = accepted(&world.processes[&3].records);
    assert!(!accepted.is_empty(), "3 accepts it after its snapshot");
    let written = written(&world.processes[&3].records);
    assert!(accepted.iter().all(|name| written.contains(name)), "its bytes are on disk");
    world.commands("reopen 3 without 0; run 1000");
    assert_eq!(world.processes[&3].executed.len(), 2);
}

#[test]
fn the_bytes_of_a_value_accepted_again_are_on_disk_again() {
    let mut world = World { durable: true, ..World::default() };
    world.commands("start 1 2 3; run 1500; large 1 100; run 500");
    for id in 1..=3 {
        assert_eq!(world.processes[&id].executed.len(), 1);
        world.compact(id);
        assert!(written(&world.processes[&id].records).is_empty(), "it is executed");
    }
    // A client sends again what it had no answer to.
    world.commands("large 1 100; run 500");
    for id in 1..=3 {
        let records = &world.processes[&id].records;
        let (accepted, written) = (accepted(records), written(records));
        assert!(!accepted.is_empty() && accepted.iter().all(|name| written.contains(name)), "{id}");
    }
}

#[test]
fn values_on_offer_do_not_keep_one_that_execution_waits_for() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500");
    // 2 offers values and does not send them; 3 learns of a decision, and gets no bytes.
    let offered: Vec<DataName> = (0..32u32).map(|count| DataName::of(&count.to_le_bytes())).collect();
    let names = offered.clone();
    let withheld =
        move |message: &Message| matches!(message, Message::Fetch { name, .. } if names.contains(name));
    let also = withheld.clone();
    world.filter = Some(Box::new(move |_, to, message| {
        let large = matches!(message, Message::Chunk { .. } | Message::Offer { .. } | Message::Begin { .. });
        !(withheld(message) || to == 3 && large)
    }));
    for name in offered {
        let offer = world.envelope(2, 3, Message::Offer { name, length: 100_000 });
        world.step(3, Input::Message(offer));
    }
    let decided = Bytes::from(vec![b'y'; 100_000]);
    world.step(1, Input::Propose(decided.into()));
    world.run(1000);
    assert!(world.processes[&3].replica.agreement().executable().is_some(), "3 knows the decision");
    world.filter = Some(Box::new(move |_, _, message| !also(message)));
    world.run(3000);
    assert_eq!(world.processes[&3].executed.len(), 1, "and executes it");
}

/// What that process answers to a message of 3.
fn answer(world: &mut World, id: u16, message: Message) -> Message {
    let question = world.envelope(3, id, message);
    world.wire.clear();
    world.step(id, Input::Message(question));
    let answer = world.wire.iter().find(|(to, _)| *to == address(3)).map(|(_, envelope)| &envelope.message);
    answer.expect("it answers").clone()
}

#[test]
fn who_hands_out_a_snapshot_keeps_what_follows_it() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300");
    let position = world.processes[&1].replica.executed_upto();
    world.processes.get_mut(&1).expect("it runs").replica.pin(Some(position));
    let mut first = None;
    for count in 0..80u32 {
        let mut bytes = vec![0; 1 << 20];
        bytes[..4].copy_from_slice(&count.to_le_bytes());
        first = first.or(Some(DataName::of(&bytes)));
        world.step(1, Input::Propose(Bytes::from(bytes).into()));
        world.run(20);
        world.processes.values_mut().for_each(|process| process.executed.clear());
    }
    world.run(1000);
    let name = first.expect("one was proposed");
    let asks = Message::CatchUp { from: position.next() };
    assert!(
        matches!(answer(&mut world, 2, asks.clone()), Message::TooFar { .. }),
        "2 keeps no more than ever"
    );
    assert!(matches!(answer(&mut world, 1, asks), Message::Decided { entries, .. } if !entries.is_empty()));
    let fetch = Message::Fetch { name, offset: 0 };
    assert!(matches!(answer(&mut world, 1, fetch), Message::Chunk { .. }), "its bytes are there, too");
}
