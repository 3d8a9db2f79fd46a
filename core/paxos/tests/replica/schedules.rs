//! Schedules that broke a promise once: each is kept as it was found.

use crate::world::{World, address};
use bytes::Bytes;
use kumo_paxos::{
    DataName, Effect, Envelope, Hello, Incarnation, Input, Instance, Message, Proposal, ReplicaId,
    ReplicaState, Round, Time, Value,
};

#[test]
fn a_master_that_learns_another_decision_says_success_no_more() {
    let mut world = World::default();
    world.commands("start 1 2 3 4 5; run 1500; propose 1 a; run 300; show");
    // 1 -> 3,4,5 lost; 4,5 -> 1 lost but Decided; 2 hears only 1 (and nobody hears 2 but 1); 3 -> 1 delivers heartbeats.
    world.filter = Some(Box::new(|f, t, m| match (f, t) {
        (1, 3..=5) => false,
        (4 | 5, 1) => matches!(m, Message::Decided { .. }),
        (3, 1) => matches!(m, Message::Heartbeat(_) | Message::Decided { .. }),
        (3..=5, 2) | (2, 3..=5) => false,
        _ => true,
    }));
    world.commands("propose 1 v; run 1500; show");
    let m = world
        .processes
        .iter()
        .find(|(id, p)| **id >= 3 && p.replica.is_master().is_some())
        .map(|(id, _)| *id)
        .expect("new master");
    world.commands(&format!("propose {m} w; run 100; show"));
    // a CatchUp that 1 sent long ago arrives now
    let late = world.envelope(1, m, Message::CatchUp { from: Instance(1) });
    world.step(m, Input::Message(late));
    world.commands("run 300; show");
    let a: Vec<_> = world.processes[&2].executed.clone();
    let b: Vec<_> = world.processes[&m].executed.clone();
    let n = a.len().min(b.len());
    assert_eq!(a[..n], b[..n]);
}

#[test]
fn a_begin_of_another_round_waits_for_the_lease() {
    let mut world = World::default();
    world.commands("restart 1 knowing 1 2 3; restart 2 knowing 1 2 3; run 1000; restart 3 knowing 1 2 3; run 1500; propose 1 a; add 1 4; run 200; restart 4 knowing 1 2 3; run 1000; show");
    world.out.clear();
    world.filter = Some(Box::new(|f, t, m| match (f, t) {
        (1, 2) => false,
        (1, 3) => matches!(m, Message::Begin { .. }),
        (3, 1) => matches!(m, Message::Accept { .. } | Message::Heartbeat(_)),
        (4, 2 | 3) | (2 | 3, 4) | (2, 3) | (3, 2) => false,
        _ => true,
    }));
    world.commands("replace 1 3 4; run 1000; show");
    // 2,3 apart from 1,4; 2-3 talk, but no begin passes
    world.filter = Some(Box::new(|f, t, m| match (f, t) {
        (1, 4) | (4, 1) => true,
        (2, 3) | (3, 2) => matches!(
            m,
            Message::Heartbeat(_) | Message::Collect { .. } | Message::Last { .. } | Message::Refuse { .. }
        ),
        _ => false,
    }));
    world.commands("transfer 1; run 1500; transfer 2; run 1500; show");
    // 4 is cut off, 1 2 3 talk
    world.filter = Some(Box::new(|f, t, _| f != 4 && t != 4));
    let t0 = world.now;
    for _ in 0..300 {
        world.commands("run 1");
        if world.processes[&2].replica.is_master().is_some() {
            break;
        }
    }
    world.commands("propose 2 x; run 5");
    world.out.clear();
    world.commands("show");
    let acked = world.processes[&2].executed.iter().any(|(_, t)| t == "x");
    let stale = world.processes[&4].replica.has_lease(Time(world.now))
        && !world.processes[&4].executed.iter().any(|(_, t)| t == "x");
    assert!(!(acked && stale), "stale read possible {} ms after the cut", (world.now - t0) / 1000);
}

#[test]
fn abandoned_fetches_make_room() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500");
    for k in 0..16 {
        world.commands(&format!("large 1 {}", 600 + k));
    }
    world.commands("run 1; crash 1; run 70000; show");
    let m = world.master().expect("a master");
    world.commands(&format!("large {m} 300; propose {m} small; run 20000; show"));
    assert!(world.processes[&m].executed.len() == 2);
}

#[test]
fn a_removed_extension_stays_removed() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; extension 9 knowing 1 2 3; run 1000; remove 1 9; run 3000; show");
    assert!(!world.processes.contains_key(&9));
    assert!(
        world.processes[&1].replica.configuration().unwrap().at(address(9)).is_none(),
        "9 is back in the configuration"
    );
}

#[test]
fn a_large_value_is_accepted_only_by_who_holds_it() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300");
    world.filter = Some(Box::new(|f, t, m| {
        !(t == 3 && matches!(m, Message::Chunk { .. })
            || (f, t) == (1, 2) && matches!(m, Message::Begin { .. }))
    }));
    world.commands("large 1 500; run 60");
    // 2 is cut off; no chunk reaches 3
    world.filter =
        Some(Box::new(|f, t, m| f != 2 && t != 2 && !(t == 3 && matches!(m, Message::Chunk { .. }))));
    world.commands("transfer 1; run 700; show");
    world.commands("crash 1; run 70000");
    world.filter = None;
    world.commands("run 20000; show");
    for _ in 0..8 {
        world.run(300);
    }
    assert!(world.master().is_some(), "no master with 2 of 3");
}

#[test]
fn a_halted_replica_is_not_elected() {
    let mut world = World::default();
    world.commands("start 1 2 3 4 5; run 1500; transfer 1; run 1500; restart 3 knowing 1 2 3 4 5; run 2000; restart 4 knowing 1 2 3 4 5; run 2000; restart 5 knowing 1 2 3 4 5; run 2000; show");
    world.no_snapshot = true;
    let next = world.processes[&2].replica.executed_upto().0 + 1;
    world.panic_at.insert((1, next));
    world.out.clear();
    world.commands("propose 2 x; run 300; show; crash 2; run 30000; show");
    assert!(world.master().is_some(), "no master with 4 of 5 connected");
}

#[test]
fn executed_large_values_go_with_their_entries() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500");
    let mut names = Vec::new();
    for k in 0..600u32 {
        let mut b = vec![0u8; 1 << 20];
        b[..4].copy_from_slice(&k.to_le_bytes());
        names.push(DataName::of(&b));
        world.step(1, Input::Propose(bytes::Bytes::from(b).into()));
        world.run(20);
        for p in world.processes.values_mut() {
            p.executed.clear();
        }
    }
    world.run(7000);
    let mut held = 0;
    for name in names {
        let h = world.processes[&1].replica.hello();
        let t = world.processes[&2].replica.hello();
        let e = Envelope {
            cell: h.cell,
            generation: h.generation,
            from: h.address,
            sender: h.incarnation,
            addressee: t.incarnation,
            kept: 0,
            message: Message::Fetch { name, offset: 0 },
        };
        let mut fx = Vec::new();
        world.processes.get_mut(&2).unwrap().replica.step(Time(world.now), Input::Message(e), &mut fx);
        if fx.iter().any(|f| matches!(f, Effect::Send(_, Envelope { message: Message::Chunk { .. }, .. }))) {
            held += 1;
        }
    }
    assert!(held <= 160);
}

#[test]
fn a_cell_is_formed_by_the_living() {
    let mut world = World::default();
    world.commands("restart 1 knowing 1 2 3 4 5; restart 2 knowing 1 2 3 4 5; restart 3 knowing 1 2 3 4 5; restart 4 knowing 1 2 3 4 5; run 1000; restart 2 knowing 1 2 3 4 5; restart 3 knowing 1 2 3 4 5; restart 4 knowing 1 2 3 4 5; run 1000; restart 5 knowing 1 2 3 4 5; run 10000; show");
    assert!(world.master().is_some());
}

#[test]
fn a_candidate_that_cannot_recover_gives_way() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; transfer 1; run 1500; restart 3 knowing 1 2 3; run 3000; show");
    assert!(world.processes[&2].replica.is_master().is_some());
    world.filter = Some(Box::new(|f, t, m| match (f, t) {
        (2, 1) => !matches!(m, Message::Begin { .. } | Message::Success { .. } | Message::Heartbeat(_)),
        (2, 3) => !matches!(m, Message::Success { .. } | Message::Heartbeat(_)),
        _ => true,
    }));
    world.commands("propose 2 x; run 5; show");
    world.filter = Some(Box::new(|f, t, m| match (f, t) {
        (3, 1) => !matches!(m, Message::Last { .. }),
        (1, 2) => !matches!(m, Message::CatchUp { .. }),
        (2, 3) => {
            matches!(m, Message::Heartbeat(h) if h.leads.is_none()) || matches!(m, Message::Release { .. })
        }
        _ => true,
    }));
    world.commands("transfer 2");
    for _ in 0..2000 {
        world.run(1);
        if world.processes[&1]
            .replica
            .agreement()
            .proposer()
            .is_some_and(|p| p.floor() >= world.processes[&2].replica.executed_upto())
        {
            break;
        }
    }
    world.out.clear();
    world.filter = None;
    world.commands("crash 2; run 60000; show; restart 2 knowing 1 2 3; run 60000; show");
    assert!(world.master().is_some(), "no master 120 s after healing");
}

#[test]
fn who_gets_the_bytes_after_the_begin_needs_no_catch_up() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500");
    // 1 and 2 decide while the bytes are still on their way to 3.
    world.filter = Some(Box::new(|_, to, message| to != 3 || !matches!(message, Message::Chunk { .. })));
    world.commands("large 1 100; run 100");
    let decided = world.processes[&1].replica.executed_upto();
    assert!(world.processes[&3].replica.executed_upto() < decided);
    world.filter =
        Some(Box::new(|from, _, message| from != 3 || !matches!(message, Message::CatchUp { .. })));
    world.run(1000);
    assert!(world.processes[&3].replica.executed_upto() >= decided);
}

#[test]
fn a_link_to_a_former_holder_of_the_address_is_dialled_again() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500");
    // 1's connection to 3 is held by a process that had the address before.
    let mut former = world.processes[&3].replica.hello();
    former.incarnation = Incarnation(77);
    world.step(1, Input::PeerUp(former));
    world.commands("run 1000; crash 2; run 3000; show");
    assert!(world.master().is_some(), "1 and 3 are a majority");
}

#[test]
fn a_member_removed_and_added_again_stays() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; extension 9 knowing 1 2 3; run 1000; pause 9");
    world.commands("remove 1 9; run 300; add 1 9; run 300; resume 9; run 2000; show");
    let incarnation = world.processes[&9].replica.hello().incarnation;
    let configuration = world.processes[&1].replica.configuration().unwrap();
    assert!(configuration.member(incarnation).is_some(), "9 is a member again: {configuration:?}");
}

#[test]
fn a_replaced_incarnation_does_not_take_its_successors_place() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500");
    let replaced = world.processes[&3].replica.hello();
    world.commands("restart 3 knowing 1 2 3; run 2000");
    let successor = world.processes[&3].replica.hello().incarnation;
    world.filter = Some(Box::new(|f, t, _| (f, t) != (3, 1)));
    // The replaced one holds 1's connection again, echoes its nonce and has caught up.
    world.wire.clear();
    world.step(1, Input::PeerUp(replaced.clone()));
    let Some((_, Envelope { message: Message::Heartbeat(mut beat), .. })) = world.wire.pop_front() else {
        panic!("a link that comes up is greeted with a heartbeat");
    };
    (beat.echo, beat.leads, beat.votes) = (beat.nonce, None, false);
    for _ in 0..20 {
        let mut said = world.envelope(3, 1, Message::Heartbeat(beat.clone()));
        said.sender = replaced.incarnation;
        world.step(1, Input::Message(said));
        world.run(50);
    }
    let configuration = world.processes[&1].replica.configuration().unwrap();
    assert!(configuration.member(successor).is_some(), "{configuration:?}");
}

#[test]
fn a_second_decision_for_an_instance_stops_who_is_told() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300");
    let instance = world.processes[&2].replica.executed_upto();
    let executed = instance;
    let entries = vec![Proposal { instance, value: Value::Command(Bytes::from_static(b"b")) }];
    let lie = world.envelope(3, 2, Message::Decided { entries, executed });
    world.out.clear();
    world.step(2, Input::Message(lie));
    assert!(world.out.contains("2 exits: two values are told as decided"), "{}", world.out);
    world.commands("propose 1 c; run 300");
    assert_eq!(world.processes[&1].executed.len(), 2, "the others go on");
}

#[test]
fn a_disk_that_lost_an_accept_does_not_vote_again() {
    let mut world = World { durable: true, ..World::default() };
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300; cut 2 3; propose 1 b; run 20");
    let last = world.processes[&3].records.iter().rposition(|record| record.is_vote());
    let lost = world.processes[&3].records.len() - last.expect("3 accepted b");
    world.out.clear();
    world.commands(&format!("reopen 3 without {lost}; run 300"));
    assert!(world.out.contains("3 exits: this replica's disk has lost promises or accepts"), "{}", world.out);
}

#[test]
fn a_disk_that_kept_everything_votes_again() {
    let mut world = World { durable: true, ..World::default() };
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300");
    for round in 0..3 {
        world.commands(
            "reopen 3 without 0; run 700; reopen 2 without 0; run 700; reopen 1 without 0; run 3000",
        );
        let master = world.master().expect("a master");
        world.commands(&format!("propose {master} again; run 300"));
        assert_eq!(world.processes[&3].executed.len(), 2 + round, "{}", world.out);
    }
}

#[test]
fn a_replica_with_a_memory_promises_nothing_before_the_others_have_spoken() {
    let mut world = World { durable: true, ..World::default() };
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300");
    world.filter = Some(Box::new(|_, t, m| t != 3 || !matches!(m, Message::Heartbeat(_))));
    world.commands("reopen 3 without 0; run 2000");
    let round = Round {
        sequence: 99,
        id: ReplicaId(1),
        incarnation: world.processes[&2].replica.hello().incarnation,
    };
    let collect = world.envelope(2, 3, Message::Collect { round, from: Instance(1) });
    world.step(3, Input::Message(collect));
    assert_ne!(world.processes[&3].replica.agreement().acceptor().promised(), round);
    world.filter = Some(Box::new(|f, _, _| f != 1));
    world.commands("run 3000");
    assert!([2, 3].iter().any(|id| world.processes[id].replica.is_master().is_some()), "3 votes again");
}

#[test]
fn a_replica_with_a_memory_accepts_nothing_before_the_others_have_spoken() {
    let mut world = World { durable: true, ..World::default() };
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300");
    world.filter = Some(Box::new(|_, to, message| to != 3 || !matches!(message, Message::Heartbeat(_))));
    world.commands("reopen 3 without 0; run 2000");
    // The round is the one that it promised, as far as it remembers.
    let round = world.processes[&3].replica.agreement().acceptor().promised();
    assert_eq!(world.processes[&1].replica.is_master(), Some(round), "{}", world.out);
    let instance = world.processes[&3].replica.executed_upto().plus(1);
    let proposals = vec![Proposal { instance, value: Value::Command(Bytes::from_static(b"b")) }];
    let begin = Message::Begin { round, sent: Time(world.now), success: Instance(0), proposals };
    let begin = world.envelope(1, 3, begin);
    world.step(3, Input::Message(begin));
    let accepted =
        |world: &World| world.processes[&3].replica.agreement().acceptor().accepted_from(instance).count();
    assert_eq!(accepted(&world), 0);
    assert!(
        !world
            .wire
            .iter()
            .any(|(_, sent)| matches!(sent.message, Message::Accept { .. } | Message::Grant { .. }))
    );
    let state =
        |world: &World, of: u16| world.processes[&of].replica.status(Time(world.now)).replicas[2].state;
    assert_eq!(state(&world, 3), ReplicaState::Learning, "nobody counts on it");
    world.filter = None;
    world.commands("run 500");
    assert_eq!([1, 3].map(|of| state(&world, of)), [ReplicaState::Voting; 2]);
    world.commands("cut 1 2; propose 1 c; run 200");
    let c = world.processes[&1].executed.last().map(|(_, text)| text.as_str());
    assert_eq!(c, Some("c"), "3 votes again: {}", world.out);
}

#[test]
fn a_link_that_comes_up_while_it_is_given_up_is_dialled_again() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; extension 9 knowing 1 2 3; run 1000; remove 1 9; run 7000");
    assert!(!world.processes[&1].dials.contains(&address(9)), "1 has given the link up");
    let back =
        Hello { address: address(9), incarnation: Incarnation(99), ..world.processes[&2].replica.hello() };
    world.step(1, Input::PeerUp(back));
    assert!(world.processes[&1].dials.contains(&address(9)));
}

#[test]
fn a_follower_made_a_voter_says_so_only_when_it_votes() {
    let mut world = World::default();
    world.commands("start 1; run 1500; extension 9 knowing 1; run 1000");
    // It learns that it is the only voter now, and nothing of what must be executed before it votes.
    world.filter = Some(Box::new(|_, to, message| match message {
        Message::Decided { entries, .. } if to == 9 => {
            entries.iter().all(|entry| matches!(entry.value, Value::Config(_)))
        }
        _ => true,
    }));
    world.commands("replace 1 1 9; run 500");
    let state = |world: &World| world.processes[&9].replica.status(Time(world.now)).replicas[0].state;
    let configuration = world.processes[&9].replica.configuration().unwrap();
    assert!(configuration.is_voter(world.processes[&9].replica.hello().incarnation));
    assert_eq!(state(&world), ReplicaState::Learning);
    world.filter = None;
    world.commands("run 2000; show");
    assert_eq!(state(&world), ReplicaState::Voting);
    assert_eq!(world.master(), Some(9));
}

/// 3 has accepted what 1 did with `change`, and knows nothing of its decision; 1 and 4 forget everything.
fn a_survivor_of(change: &str) -> World {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; extension 4 knowing 1 2 3; run 1000");
    let changes = |proposal: &Proposal| matches!(proposal.value, Value::Config(_));
    world.filter = Some(Box::new(move |_, to, message| match message {
        Message::Begin { proposals, .. } => to != 3 || proposals.iter().any(changes),
        _ => to != 3,
    }));
    world.commands(change);
    world.commands("run 300; crash 1; crash 2; crash 4");
    world.filter = None;
    world.commands("restart 1 knowing 2 3 4; restart 4 knowing 1 2 3; run 2000; recover 3; run 3000; show");
    world
}

#[test]
fn a_survivor_keeps_the_change_of_members_that_it_accepted() {
    let world = a_survivor_of("replace 1 2 4");
    let replaced = "3 configuration 3: 1:Core 3:Core 4:Core\n";
    assert!(world.out.contains(replaced), "{}", world.out);
    let recovered = "3 configuration 4: 1:Returning 3:Core 4:Returning\n";
    assert!(world.out.contains(recovered), "{}", world.out);
    assert_eq!(world.master(), Some(3), "{}", world.out);
}

#[test]
fn a_survivor_goes_on_though_it_accepted_its_own_removal() {
    let world = a_survivor_of("replace 1 3 4");
    let recovered = "3 configuration 4: 1:Returning 2:Returning 3:Core 4:Extension\n";
    assert!(world.out.contains(recovered), "{}", world.out);
    assert_eq!(world.master(), Some(3), "{}", world.out);
}

#[test]
fn a_survivor_does_not_wait_for_bytes_that_are_lost() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300");
    world.filter = Some(Box::new(|_, to, message| to != 3 || !matches!(message, Message::Chunk { .. })));
    world.commands("large 1 100; run 300; propose 1 b; run 1000; crash 1; crash 2");
    assert!(world.processes[&3].replica.agreement().executable().is_some(), "3 knows the decision");
    world.commands("restart 1 knowing 2 3; restart 2 knowing 1 3; run 2000; recover 3; run 3000; show");
    assert_eq!(world.master(), Some(3), "{}", world.out);
}

#[test]
fn a_last_that_comes_late_does_not_hold_back_the_next_change() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300");
    // The next master has the others' lasts in time, but not that of 3.
    world.filter = Some(Box::new(|_, to, message| to != 3 || !matches!(message, Message::Collect { .. })));
    world.commands("transfer 1; run 1500");
    let master = world.master().expect("a master");
    // 3 accepts a change of members, and does not hear that it is decided.
    let changes = |message: &Message| match message {
        Message::Begin { proposals, .. } => proposals.iter().any(|one| matches!(one.value, Value::Config(_))),
        _ => false,
    };
    world.filter = Some(Box::new(move |_, to, message| to != 3 || changes(message)));
    world.commands(&format!("add {master} 4; run 300"));
    // It is asked again, and tells of the change as of one that may still be open.
    world.filter = Some(Box::new(|_, to, message| to != 3 || matches!(message, Message::Collect { .. })));
    world.commands("run 300");
    world.filter = None;
    world.commands("run 1000");
    world.out.clear();
    world.commands(&format!("add {master} 5; run 1000"));
    assert!(world.out.contains("changed: done"), "{}", world.out);
}

#[test]
fn founders_that_forgot_together_hear_of_their_cell_before_they_form_another() {
    let mut world = World { forms_after_micros: 2_000_000, ..World::default() };
    world.commands("start 1 2; run 4000");
    let master = world.master().expect("a master");
    for id in 3..=5 {
        world.commands(&format!("extension {id} knowing 1 2; run 1000; promote {master} {id}; run 1000"));
    }
    world.commands("crash 1; crash 2; run 3000; propose 3 a; run 300");
    let cell = world.processes[&3].replica.hello().cell;
    world.commands("start 1 2; run 6000");
    for id in 1..=5 {
        let replica = &world.processes[&id].replica;
        assert_eq!((replica.hello().cell, replica.agreement().votes()), (cell, true), "{id}");
    }
}

#[test]
fn who_cannot_execute_is_no_survivor() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300");
    world.no_snapshot = true;
    let next = world.processes[&3].replica.executed_upto().0 + 1;
    world.panic_at.insert((3, next));
    world.commands("propose 1 b; run 300; crash 1; crash 2; run 2000; recover 3; run 2000");
    assert!(world.out.contains("3 changed: this replica could not execute instance"), "{}", world.out);
    assert_eq!(world.master(), None, "{}", world.out);
}
