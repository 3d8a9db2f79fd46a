//! Bug or noise: one replica that panics at an instance comes back, a second one that does stops the cell.

use crate::world::{World, address};
use kumo_paxos::{Envelope, Hello, Incarnation, Input, Instance, Message, Time};

/// Three replicas, led by 1, and the instance that they execute next.
fn three() -> (World, u64) {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; propose 1 a; run 300");
    assert_eq!(world.master(), Some(1), "{}", world.out);
    world.out.clear();
    let next = world.processes[&1].replica.executed_upto().0 + 1;
    (world, next)
}

fn trouble(world: &World, id: u16) -> Option<String> {
    world.processes[&id].replica.status(Time(world.now)).trouble
}

/// Every process knows the bug at that instance, says so once, and executes nothing more.
fn assert_stopped(world: &mut World, instance: u64) {
    let ids: Vec<u16> = world.processes.keys().copied().collect();
    let executed = |world: &World| -> Vec<_> {
        ids.iter().map(|id| world.processes[id].replica.executed_upto()).collect()
    };
    let before = executed(world);
    for id in &ids {
        let said = format!("{id} says: a bug at {instance}\n");
        assert_eq!(world.out.matches(&said).count(), 1, "{}", world.out);
        let trouble = trouble(world, *id).unwrap_or_default();
        let named = format!("two replicas panicked executing instance {instance}: a bug");
        assert!(trouble.contains(&named), "{id}: {trouble}");
        world.commands(&format!("propose {id} more; run 50"));
    }
    world.run(10_000);
    assert_eq!(world.master(), None, "{}", world.out);
    assert_eq!(executed(world), before, "{}", world.out);
}

#[test]
fn one_panic_is_noise() {
    let (mut world, next) = three();
    world.panic_at.insert((3, next));
    world.commands("propose 1 b; run 20");
    assert_eq!(
        trouble(&world, 3),
        Some(format!("executing instance {next} panicked on this replica")),
        "{}",
        world.out
    );
    world.commands("run 1000; propose 1 c; run 300");
    assert!(world.out.contains("3 takes a snapshot from"), "{}", world.out);
    assert!(!world.out.contains("a bug"), "{}", world.out);
    assert_eq!(trouble(&world, 3), None);
    let executed: Vec<_> = world.processes.values().map(|process| process.executed.clone()).collect();
    assert_eq!(executed[0].len(), 3);
    assert!(executed.iter().all(|one| *one == executed[0]), "{executed:?}");
    // It serves and leads like any other, though it still reports what happened.
    assert!(world.processes[&3].replica.serves_reads());
    world.commands("transfer 1; run 1500; transfer 2; run 1500; crash 1; run 1500; show");
    world.commands("transfer 2; run 1500");
    assert_eq!(world.master(), Some(3), "{}", world.out);
}

#[test]
fn two_that_panic_at_one_instance_at_the_same_time_are_a_bug() {
    let (mut world, next) = three();
    world.panic_at.extend([(2, next), (3, next)]);
    world.commands("propose 1 b; run 1000");
    assert_stopped(&mut world, next);
}

#[test]
fn all_that_panic_at_one_instance_are_a_bug() {
    let (mut world, next) = three();
    world.panic_at.extend([(1, next), (2, next), (3, next)]);
    world.commands("propose 1 b; run 1000");
    assert_stopped(&mut world, next);
}

#[test]
fn a_second_panic_after_the_first_came_back_is_a_bug() {
    let (mut world, next) = three();
    world.panic_at.extend([(2, next), (3, next)]);
    world.commands("cut 1 2; cut 2 3; run 1000; propose 1 b; run 1000; propose 1 c; run 300");
    assert!(world.out.contains("3 takes a snapshot from 1"), "{}", world.out);
    assert_eq!(world.processes[&3].executed.len(), 3, "3 is back: {}", world.out);
    assert!(!world.out.contains("a bug"), "{}", world.out);
    // 2 catches up from 1, which has the entry still, and 3 hears of that last.
    world.commands("heal; cut 2 3; run 1000; heal; run 1000");
    assert_stopped(&mut world, next);
}

#[test]
fn a_second_panic_after_the_first_was_started_again_is_a_bug() {
    let (mut world, next) = three();
    world.panic_at.insert((3, next));
    world.commands("propose 1 b; run 1000; restart 3 knowing 1 2 3; run 3000; propose 1 c; run 300");
    // It panicked again on its way, or not: it is the same replica.
    assert!(!world.out.contains("a bug"), "{}", world.out);
    assert_eq!(world.processes[&3].executed.len(), 3, "3 is back: {}", world.out);
    // 2 comes back empty, and panics where 3 did, which nobody reports any more: 1 remembers.
    world.panic_at.insert((2, next));
    world.commands("restart 2 knowing 1 2 3; run 3000");
    assert!(world.out.contains(&format!("1 says: a bug at {next}")), "{}", world.out);
    assert_eq!(world.master(), None, "{}", world.out);
}

#[test]
fn panics_at_two_instances_are_noise_twice() {
    let (mut world, next) = three();
    world.panic_at.extend([(2, next), (3, next + 1)]);
    world.commands("propose 1 b; run 1000; propose 1 c; run 1000; propose 1 d; run 300");
    assert!(!world.out.contains("a bug"), "{}", world.out);
    for id in 1..=3 {
        assert_eq!(world.processes[&id].executed.len(), 4, "{id}: {}", world.out);
    }
}

#[test]
fn an_extension_is_a_replica_too() {
    let (mut world, next) = three();
    world.panic_at.extend([(3, next), (9, next)]);
    world.commands("propose 1 b; run 1000; extension 9 knowing 1 2 3; run 1000");
    assert_stopped(&mut world, next);
}

#[test]
fn a_stranger_that_panics_stops_nobody() {
    let (mut world, next) = three();
    world.panic_at.insert((3, next));
    world.commands("propose 1 b; run 1000");
    let stranger =
        Hello { address: address(9), incarnation: Incarnation(99), ..world.processes[&2].replica.hello() };
    world.wire.clear();
    world.step(1, Input::PeerUp(stranger));
    let Some((_, Envelope { message: Message::Heartbeat(mut beat), .. })) = world.wire.pop_front() else {
        panic!("a link that comes up is greeted with a heartbeat");
    };
    (beat.leads, beat.votes, beat.panicked) = (None, false, Some(Instance(next)));
    let mut said = world.envelope(3, 1, Message::Heartbeat(beat));
    (said.from, said.sender) = (address(9), Incarnation(99));
    world.step(1, Input::Message(said));
    world.commands("run 1000; propose 1 c; run 300");
    assert_eq!(world.processes[&1].executed.len(), 3, "{}", world.out);
}

#[test]
fn who_did_not_panic_goes_on_when_an_operator_says_so() {
    let (mut world, next) = three();
    world.panic_at.extend([(2, next), (3, next)]);
    world.commands("propose 1 b; run 1000");
    assert_stopped(&mut world, next);
    // The program is mended: what was executed by 1 is kept, and the others learn it.
    world.panic_at.clear();
    world.commands("restart 2 knowing 1 2 3; restart 3 knowing 1 2 3; run 2000; recover 1; run 2000");
    world.commands("restart 2 knowing 1 2 3; restart 3 knowing 1 2 3; run 3000");
    let master = world.master().unwrap_or_else(|| panic!("{}", world.out));
    world.commands(&format!("propose {master} c; run 300"));
    for id in 1..=3 {
        assert_eq!(world.processes[&id].executed.len(), 3, "{id}: {}", world.out);
    }
}
