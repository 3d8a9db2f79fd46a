//! The promises of the session layer, each shown on three cells and the real client cores.

mod world;

use kumo_paxos::{Message, Note};
use kumo_session::{Answer, CallError, ClientInput, EndReason, NodeNote, SessionState};
use world::{Loss, TIMEOUT, World};

#[test]
fn a_session_opens_and_a_request_is_answered() {
    let mut world = World::new(3);
    let user = world.user(true);
    assert_eq!(world.users[user].client.state(), SessionState::Safe);
    assert_eq!(world.command(user, "add 5"), "5");
    assert_eq!(world.command(user, "add 2"), "7");
    assert_eq!(world.read(user), "7");
    world.run(1_000_000);
    world.assert_equal();
}

#[test]
fn several_requests_outstanding_are_executed_in_order() {
    let mut world = World::new(3);
    let user = world.user(true);
    let tickets: Vec<u64> = (0..200).map(|_| world.start(user, "add 1")).collect();
    for (index, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(world.text(user, ticket), (index + 1).to_string());
    }
}

#[test]
fn a_request_behind_a_large_one_is_executed_after_it() {
    let mut world = World::new(3);
    let user = world.user(true);
    let large = format!("add 1 {}", ".".repeat(3 * kumo_paxos::IN_BAND_MAX)).replace(" ...", "...");
    let tickets = [world.start(user, &large), world.start(user, "add 1"), world.start(user, &large)];
    let texts: Vec<String> = tickets.into_iter().map(|ticket| world.text(user, ticket)).collect();
    assert_eq!(texts, ["1", "2", "3"]);
}

#[test]
fn a_request_is_executed_exactly_once_across_master_changes() {
    let mut world = World::new(3);
    let users: Vec<usize> = (0..4).map(|_| world.user(true)).collect();
    let mut expected = 0;
    for round in 0..6 {
        let master = world.master();
        let mut tickets = Vec::new();
        for user in &users {
            for _ in 0..20 {
                tickets.push((*user, world.start(*user, "add 1")));
                expected += 1;
            }
        }
        world.crash(master);
        world.restart(master);
        for (user, ticket) in tickets {
            let text = world.text(user, ticket);
            assert!(text.parse::<u64>().is_ok(), "round {round}: {text}");
        }
        world.run(3_000_000);
    }
    assert_eq!(world.read(users[0]), expected.to_string());
    world.run(1_000_000);
    world.assert_equal();
    let history = &world.nodes[world.master()].cell.application().history;
    let mut numbers = std::collections::BTreeMap::new();
    for (session, number) in history {
        let last = numbers.insert(*session, *number).unwrap_or(0);
        assert_eq!(*number, last + 1, "session {session} is executed in order");
    }
}

#[test]
fn a_request_that_waits_does_not_hold_up_the_next() {
    let mut world = World::new(3);
    let (user, other) = (world.user(true), world.user(true));
    let waits = world.start(user, "wait");
    // More than the cell would remember, were the waiting one to keep them.
    for count in 1..=1500 {
        assert_eq!(world.command(user, "add 1"), count.to_string());
    }
    assert_eq!(world.answer(user, waits), None);
    assert_eq!(world.command(other, "wake"), "ok");
    assert_eq!(world.text(user, waits), "woken");
}

#[test]
fn a_parked_request_is_answered_after_a_master_change() {
    let mut world = World::new(3);
    let (user, other) = (world.user(true), world.user(true));
    let waits = world.start(user, "wait");
    world.run(1_000_000);
    let master = world.master();
    world.crash(master);
    world.run(2_000_000);
    assert_eq!(world.command(other, "wake"), "ok");
    assert_eq!(world.text(user, waits), "woken");
    assert_eq!(world.users[user].client.state(), SessionState::Safe);
}

#[test]
fn a_cancelled_request_is_answered_as_cancelled() {
    let mut world = World::new(3);
    let (user, other) = (world.user(true), world.user(true));
    let waits = world.start(user, "wait");
    world.run(100_000);
    world.call(user, |_| ClientInput::Cancel { ticket: waits });
    world.run(1_000_000);
    assert_eq!(world.answer(user, waits), Some(&Err(CallError::Cancelled)));
    // Nobody is left to wake, and the session goes on.
    assert_eq!(world.command(other, "wake"), "ok");
    assert_eq!(world.command(user, "add 3"), "3");
}

#[test]
fn a_cancel_that_comes_too_late_changes_nothing() {
    let mut world = World::new(3);
    let (user, other) = (world.user(true), world.user(true));
    let waits = world.start(user, "wait");
    let wakes = world.start(other, "wake");
    world.call(user, |_| ClientInput::Cancel { ticket: waits });
    assert_eq!(world.text(user, waits), "woken");
    assert_eq!(world.text(other, wakes), "ok");
}

#[test]
fn a_session_lives_while_its_client_does() {
    let mut world = World::new(3);
    let user = world.user(true);
    world.run(5 * TIMEOUT);
    assert_eq!(world.users[user].client.state(), SessionState::Safe);
    assert_eq!(world.users[user].states, [SessionState::Safe]);
    assert_eq!(world.command(user, "add 1"), "1");
}

#[test]
fn a_session_that_is_not_renewed_expires_through_the_log() {
    let mut world = World::new(3);
    let (dead, alive) = (world.user(true), world.user(true));
    let session = world.users[dead].client.session().unwrap();
    world.command(dead, "add 1");
    world.command(alive, "add 1");
    world.start(dead, "wait");
    world.run(100_000);
    world.kill_user(dead);
    world.run(TIMEOUT / 2);
    assert!(world.nodes[0].cell.sessions().any(|known| known == session), "closing the socket ends nothing");
    world.run(TIMEOUT);
    for node in &world.nodes {
        assert!(!node.cell.sessions().any(|known| known == session));
        assert!(node.cell.application().parked.is_empty());
        assert!(node.notes.contains(&NodeNote::SessionExpired(session)));
    }
    assert_eq!(world.users[alive].client.state(), SessionState::Safe);
    world.assert_equal();
}

#[test]
fn after_a_master_change_every_session_gets_a_full_period() {
    let mut world = World::new(3);
    let user = world.user(true);
    let session = world.users[user].client.session().unwrap();
    world.kill_user(user);
    world.run(TIMEOUT - 1_000_000);
    let master = world.master();
    world.crash(master);
    world.run(TIMEOUT - 2_000_000);
    let master = world.master();
    assert!(world.nodes[master].cell.sessions().any(|known| known == session));
    world.run(TIMEOUT);
    let master = world.master();
    assert!(!world.nodes[master].cell.sessions().any(|known| known == session));
}

#[test]
fn a_starved_master_expires_nobody() {
    let mut world = World::new(1);
    let user = world.user(true);
    let session = world.users[user].client.session().unwrap();
    world.users[user].up = false;
    world.run(TIMEOUT - 1_000_000);
    // The whole node stands still for a minute, and then reads what waits.
    world.now = world.now.plus_micros(60_000_000);
    world.run(TIMEOUT - 1_000_000);
    assert!(world.nodes[0].cell.sessions().any(|known| known == session));
    world.run(TIMEOUT);
    assert!(!world.nodes[0].cell.sessions().any(|known| known == session));
}

#[test]
fn a_closed_session_is_over_at_once() {
    let mut world = World::new(3);
    let user = world.user(true);
    world.command(user, "add 1");
    let waits = world.start(user, "wait");
    let closes = world.call(user, |ticket| ClientInput::Close { ticket });
    world.run(500_000);
    assert_eq!(world.answer(user, closes), Some(&Ok(Answer::Done)));
    let ended = Some(&Err(CallError::Ended(EndReason::Closed)));
    assert_eq!(world.answer(user, waits), ended);
    assert_eq!(world.users[user].client.state(), SessionState::Lost);
    let late = world.start(user, "add 1");
    assert_eq!(world.answer(user, late), ended);
    assert_eq!(world.nodes[0].cell.sessions().count(), 0);
    assert!(world.users[user].connections.is_empty());
}

#[test]
fn a_killed_session_hears_of_it() {
    let mut world = World::new(3);
    let (operator, victim) = (world.user(true), world.user(true));
    let session = world.users[victim].client.session().unwrap();
    let kills = world.call(operator, |ticket| ClientInput::Kill { ticket, session });
    world.run(500_000);
    assert_eq!(world.answer(operator, kills), Some(&Ok(Answer::Done)));
    assert_eq!(world.users[victim].client.failure(), Some(&CallError::Ended(EndReason::Killed)));
    let again = world.call(operator, |ticket| ClientInput::Kill { ticket, session });
    world.run(500_000);
    assert_eq!(world.answer(operator, again), Some(&Err(CallError::NoSession)));
}

#[test]
fn reads_see_the_sessions_own_last_update_wherever_they_are_served() {
    let mut world = World::new(3);
    let user = world.user(false);
    for count in 1..=50 {
        let ticket = world.start(user, "add 1");
        assert_eq!(world.text(user, ticket), count.to_string());
        assert_eq!(world.read(user), count.to_string());
    }
}

#[test]
fn a_deaf_master_answers_no_linear_read() {
    let mut world = World::new(3);
    let (user, other) = (world.user(true), world.user(true));
    world.command(user, "add 1");
    let old = world.master();
    world.deaf.insert(old);
    world.run(3_000_000);
    assert_eq!(world.command(other, "add 1"), "2");
    // It wakes up, still taking itself for the master, and hears the client first.
    world.deaf.clear();
    assert_eq!(world.read(user), "2");
}

#[test]
fn a_client_is_told_of_jeopardy_then_that_it_is_safe_again() {
    let mut world = World::new(3);
    let user = world.user(true);
    world.deaf = [0, 1, 2].into();
    world.run(TIMEOUT * 3 / 4);
    assert_eq!(world.users[user].client.state(), SessionState::Jeopardy);
    world.deaf.clear();
    world.run(TIMEOUT / 4);
    assert_eq!(world.users[user].states, [SessionState::Safe, SessionState::Jeopardy, SessionState::Safe]);
    assert_eq!(world.command(user, "add 1"), "1");
}

#[test]
fn a_client_without_a_cell_loses_its_session_before_the_cell_ends_it() {
    let mut world = World::new(3);
    let user = world.user(true);
    world.deaf = [0, 1, 2].into();
    let ticket = world.start(user, "add 1");
    world.run(TIMEOUT + 100_000);
    assert_eq!(world.users[user].states.last(), Some(&SessionState::Lost));
    assert_eq!(world.answer(user, ticket), Some(&Err(CallError::Lost)));
}

#[test]
fn events_are_delivered_in_order_and_survive_a_master_change() {
    let mut world = World::new(3);
    let (user, other) = (world.user(true), world.user(true));
    world.command(user, "add 1");
    let mut seen = Vec::new();
    for round in 0..3 {
        let waits = world.call(user, |ticket| ClientInput::Events { ticket });
        world.run(200_000);
        assert_eq!(world.answer(user, waits), None);
        if round == 1 {
            let master = world.master();
            world.crash(master);
            world.run(2_000_000);
        }
        world.command(other, &format!("tell event {round}"));
        world.run(1_000_000);
        let Some(Ok(Answer::Events { omitted: 0, first, events })) = world.answer(user, waits) else {
            panic!("{:?}", world.answer(user, waits));
        };
        seen.push((*first, events.clone()));
    }
    let first = seen[0].0;
    for (round, (number, events)) in seen.iter().enumerate() {
        assert_eq!((*number, events.len()), (first + round as u64, 1));
        assert_eq!(events[0], format!("event {round}"));
    }
}

#[test]
fn overflowing_events_are_counted() {
    let mut world = World::new(1);
    let (user, other) = (world.user(true), world.user(true));
    world.command(user, "add 1");
    for index in 0..1030 {
        world.command(other, &format!("tell {index}"));
    }
    let waits = world.call(user, |ticket| ClientInput::Events { ticket });
    world.run(100_000);
    let Some(Ok(Answer::Events { omitted: 6, events, .. })) = world.answer(user, waits) else {
        panic!("{:?}", world.answer(user, waits).map(|answer| answer.is_ok()));
    };
    assert_eq!((events.len(), &events[0][..]), (1024, &b"6"[..]));
}

#[test]
fn a_node_that_lost_its_memory_takes_a_snapshot_with_the_sessions() {
    let mut world = World::new(3);
    let user = world.user(true);
    let waits = world.start(user, "wait");
    let slow = (world.master() + 1) % 3;
    world.crash(slow);
    // More than is kept for catch-up.
    for _ in 0..5000 {
        world.command(user, "add 1");
    }
    // A reply that takes the table several parts.
    assert_eq!(world.command(user, "big 600000").len(), 600_000);
    world.restart(slow);
    world.run(5_000_000);
    let restored = world.nodes[slow].notes.iter().any(|note| matches!(note, NodeNote::Restored { .. }));
    assert!(restored, "{:?}", world.nodes[slow].notes);
    world.assert_equal();
    // The restored node carries on when it is asked to.
    let master = world.master();
    world.crash(master);
    let other = world.user(true);
    world.command(other, "wake");
    assert_eq!(world.text(user, waits), "woken");
}

#[test]
fn a_panic_is_noise_and_the_node_comes_back() {
    let weak = 1;
    let mut world = World::with_fragile(3, &[weak]);
    let user = world.user(true);
    assert_eq!(world.command(user, "panic"), "survived");
    world.run(5_000_000);
    let notes = &world.nodes[weak].notes;
    assert!(notes.iter().any(|note| matches!(note, NodeNote::Panicked { .. })));
    assert!(notes.iter().any(|note| matches!(note, NodeNote::Restored { .. })));
    assert_eq!(world.command(user, "add 4"), "4");
    world.run(1_000_000);
    world.assert_equal();
}

#[test]
fn a_second_panic_at_one_instance_is_a_bug_and_the_cell_stops() {
    let mut world = World::with_fragile(3, &[1, 2]);
    let user = world.user(true);
    world.start(user, "panic");
    world.run(3_000_000);
    for node in &world.nodes {
        let bugs = node.notes.iter().filter(|note| matches!(note, NodeNote::Paxos(Note::Bug(_))));
        assert_eq!(bugs.count(), 1, "{:?}", node.notes);
        let trouble = node.cell.status(world.now).trouble.unwrap_or_default();
        assert!(trouble.contains("a bug; execution stops there"), "{trouble}");
    }
    // Nobody leads, and the client says so instead of waiting silently.
    let late = world.start(user, "add 1");
    world.run(20_000_000);
    assert_eq!(world.find_master(), None);
    assert!(world.users[user].states.contains(&SessionState::Jeopardy), "{:?}", world.users[user].states);
    assert!(!matches!(world.answer(user, late), Some(Ok(_))), "{:?}", world.answer(user, late));
    assert!(world.nodes.iter().all(|node| node.cell.application().sum == 0));
}

/// A node panics and takes a snapshot, of which one message is lost; how many of its kind there were.
fn restored_without(kind: fn(&Message) -> bool, number: usize) -> usize {
    let weak = 1;
    let mut world = World::with_fragile(3, &[weak]);
    let user = world.user(true);
    world.loses = Some(Loss { kind, number, seen: 0 });
    assert_eq!(world.command(user, "panic"), "survived");
    world.run(3_000_000);
    let restored = |note: &&NodeNote| matches!(note, NodeNote::Restored { .. });
    assert_eq!(world.nodes[weak].notes.iter().filter(restored).count(), 1, "without {number}");
    assert_eq!(world.command(user, "add 4"), "4");
    world.run(1_000_000);
    world.assert_equal();
    world.loses.expect("just set").seen
}

#[test]
fn a_snapshot_arrives_though_one_of_its_messages_is_lost() {
    let kinds: [fn(&Message) -> bool; 2] = [
        |message| matches!(message, Message::SnapshotAsk { .. }),
        |message| matches!(message, Message::SnapshotPart { .. }),
    ];
    for kind in kinds {
        let count = restored_without(kind, 0);
        assert!(count >= 4, "several parts");
        for number in 1..=count {
            assert!(restored_without(kind, number) > count, "what is lost is sent again");
        }
    }
}
