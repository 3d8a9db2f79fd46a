//! Who reigns, and what a master may believe of itself.

use crate::world::{World, address};
use kumo_paxos::{Hello, Incarnation, Input, Message, Time};
use std::cell::RefCell;
use std::rc::Rc;

/// 1 leads the stronger round, and the weaker one of 3 has decided `x` in a configuration where 1 did not collect.
///
/// The cell was 1, 2, 3, and is 1, 3, 4 now. 3 was cut off while 1 and 2 raised two rounds and decided the change; it
/// learned of that from 4, and the two of them are a majority that never heard of those rounds.
fn overtaken() -> World {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; extension 4 knowing 1 2 3; run 1000");
    world.filter = Some(Box::new(|from, to, message| match (from, to) {
        (1 | 2, 3) | (3, 1 | 2) => false,
        (1 | 2, 4) => !matches!(message, Message::Collect { .. } | Message::Begin { .. }),
        _ => true,
    }));
    world.commands("transfer 1; run 1500; transfer 2; run 1500");
    assert_eq!(world.master(), Some(1), "{}", world.out);
    world.commands("replace 1 2 4");
    reach(&mut world, "a vote of 4", |world| world.processes[&4].replica.agreement().votes());
    // 4 is heard by 1, and hears 3 alone.
    world.filter = Some(Box::new(|from, to, _| matches!((from, to), (3, 4) | (4, 3 | 1))));
    reach(&mut world, "a reign of 3", |world| world.processes[&3].replica.is_master().is_some());
    world.commands("propose 3 x; run 50");
    assert!(knows(&world, 3) && knows(&world, 4), "3 and 4 decide: {}", world.out);
    assert!(!knows(&world, 1) && world.processes[&1].replica.is_master().is_some(), "{}", world.out);
    world
}

fn knows(world: &World, id: u16) -> bool {
    world.processes[&id].executed.iter().any(|(_, text)| text == "x")
}

fn reach(world: &mut World, what: &str, reached: impl Fn(&World) -> bool) {
    for _ in 0..20_000 {
        if reached(world) {
            return;
        }
        world.run(1);
    }
    panic!("{what} is not reached\n{}", world.out);
}

#[test]
fn a_master_has_no_lease_where_it_did_not_collect() {
    let mut world = overtaken();
    // 4 is gone. 3 promises the round of 1 and grants it a lease, but what it tells about the round of its own is lost.
    world.filter = Some(Box::new(|from, to, message| {
        from != 4 && to != 4 && !((from, to) == (3, 1) && matches!(message, Message::Last { .. }))
    }));
    for _ in 0..3000 {
        world.run(1);
        let stale = world.processes[&1].replica.has_lease(Time(world.now)) && !knows(&world, 1);
        assert!(!stale, "1 would answer a read without x\n{}", world.out);
    }
}

#[test]
fn a_master_that_was_overtaken_gives_way_and_learns() {
    let mut world = overtaken();
    world.filter = Some(Box::new(|from, to, _| from != 4 && to != 4));
    reach(&mut world, "x at 1", |world| knows(world, 1));
    world.filter = None;
    reach(&mut world, "a master", |world| world.master().is_some());
    let master = world.master().expect("just seen");
    world.command(&format!("propose {master} y"));
    reach(&mut world, "y at all", |world| {
        world.processes.values().all(|process| process.executed.iter().any(|(_, text)| text == "y"))
    });
}

#[test]
fn voters_are_heard_among_any_number_of_others() {
    let mut world = World::default();
    world.commands("start 101 102 103; run 1500");
    // So many others that not all of them are named.
    for id in 1..=90 {
        let (address, incarnation) = (address(id), Incarnation(1000 + u128::from(id)));
        let other = Hello { address, incarnation, ..world.processes[&102].replica.hello() };
        world.step(101, Input::PeerUp(other));
    }
    let heard = Rc::new(RefCell::new(Vec::new()));
    let hears = heard.clone();
    world.filter = Some(Box::new(move |from, to, message| {
        if let (101, 102, Message::Heartbeat(heartbeat)) = (from, to, message) {
            hears.borrow_mut().push(heartbeat.hears.clone());
        }
        true
    }));
    world.run(200);
    let heard = heard.borrow();
    let last = heard.last().expect("a heartbeat");
    for id in [102, 103] {
        assert!(
            last.contains(&world.processes[&id].replica.hello().incarnation),
            "{id} among {}",
            last.len()
        );
    }
}

/// More than a window is begun on the way to the newcomer and back.
#[test]
fn a_newcomer_that_always_trails_is_waited_for() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500; crash 3; run 1000; restart 3 knowing 1 2 3");
    world.far = Some((3, 30));
    let master = world.master().expect("a master");
    let (mut millis, mut stands, mut longest) = (0, 0, 0);
    while !world.processes[&3].replica.agreement().votes() {
        let before = world.processes[&master].executed.len();
        for _ in 0..50 {
            world.command(&format!("propose {master} x"));
        }
        world.run(1);
        millis += 1;
        assert!(millis < 4000, "{}", world.out);
        stands = if world.processes[&master].executed.len() == before { stands + 1 } else { 0 };
        longest = longest.max(stands);
    }
    assert!(millis > 1000, "it was never within the window by itself");
    assert!(longest < 200, "the cell stood still for {longest} ms");
}

/// However the ticks of the newcomer fall between those of the master: what it told a few milliseconds ago is more than a
/// window behind.
#[test]
fn a_newcomer_votes_soon_though_the_log_runs_on() {
    for phase in (0..100).step_by(20) {
        let mut world = World::default();
        world.commands("start 1 2 3; run 1500; crash 3; run 1000");
        let master = world.master().expect("a master");
        world.run(phase);
        world.commands("restart 3 knowing 1 2 3");
        let mut millis = 0;
        while !world.processes[&3].replica.agreement().votes() {
            for _ in 0..100 {
                world.command(&format!("propose {master} x"));
            }
            world.run(1);
            millis += 1;
            assert!(millis < 1000, "after {phase} ms: {}", world.out);
        }
    }
}

#[test]
fn a_reign_of_a_moment_leaves_all_of_one_opinion() {
    let mut world = World::default();
    world.commands("start 1 2 3; run 1500");
    let first = world.master().expect("a master");
    // Nobody collects: all have been without a master for so long that they name the lowest id.
    world.filter = Some(Box::new(|_, _, message| !matches!(message, Message::Last { .. })));
    world.commands(&format!("transfer {first}; run 4000"));
    assert_eq!(world.master(), None, "{}", world.out);
    // One leads, and steps down before anybody heard of it.
    world.filter = Some(Box::new(
        |_, _, message| !matches!(message, Message::Heartbeat(heartbeat) if heartbeat.leads.is_some()),
    ));
    reach(&mut world, "a short reign", |world| world.master().is_some());
    let short = world.master().expect("just seen");
    world.commands(&format!("transfer {short}; run 3"));
    world.filter = None;
    world.run(1500);
    assert!(world.master().is_some(), "one says {short}, the others another\n{}", world.out);
}
