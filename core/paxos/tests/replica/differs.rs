//! The state hash: a replica whose state is not the cell's finds that out, stops itself and says so.

use crate::world::World;
use kumo_paxos::ExitReason;

/// Replicas whose heartbeats do not fall together, led by 1.
fn cell(size: u16) -> World {
    let mut world = World::default();
    let ids: Vec<String> = (1..=size).map(|id| id.to_string()).collect();
    world.commands(&format!("start {}; run 2000", ids.join(" ")));
    world.paused.extend(1..=size);
    world.run(100);
    for id in 1..=size {
        world.paused.remove(&id);
        world.run(100 / u64::from(size));
    }
    assert_eq!(world.master(), Some(1), "{}", world.out);
    world
}

/// So many entries a millisecond: the digests that heartbeats carry are of many different instances.
fn load(world: &mut World, millis: u64, entries: usize) {
    for _ in 0..millis {
        let Some(master) = world.master() else { return world.run(millis) };
        for _ in 0..entries {
            world.command(&format!("propose {master} x"));
        }
        world.run(1);
    }
}

fn assert_only_exits(world: &World, id: u16) {
    let [(exited, ExitReason::Differs(_))] = world.exits[..] else { panic!("{:?}", world.exits) };
    assert_eq!(exited, id);
}

#[test]
fn a_replica_that_differs_stops_itself_and_the_others_go_on() {
    let mut world = cell(3);
    world.wrong.insert(3, 1);
    load(&mut world, 70, 1);
    world.run(1000);
    assert_only_exits(&world, 3);
    assert!(world.out.contains("3 exits: state differs from the cell's at instance "), "{}", world.out);
    let before = world.processes[&2].executed.len();
    world.commands("propose 1 y; run 300");
    assert_eq!(world.processes[&2].executed.len(), before + 1, "{}", world.out);
    // Its next life learns the cell's state.
    world.wrong.clear();
    world.commands("restart 3 knowing 1 2 3; run 3000; propose 1 z; run 1000");
    assert_eq!(world.processes[&3].executed, world.processes[&1].executed, "{}", world.out);
}

#[test]
fn a_difference_shows_under_load() {
    for id in 2..=5 {
        let mut world = cell(5);
        world.wrong.insert(id, 1);
        load(&mut world, 500, 20);
        assert_only_exits(&world, id);
    }
}

#[test]
fn a_master_that_differs_stops_itself() {
    let mut world = cell(3);
    world.wrong.insert(1, 1);
    load(&mut world, 500, 5);
    assert_only_exits(&world, 1);
    world.run(3000);
    let master = world.master().unwrap_or_else(|| panic!("{}", world.out));
    world.commands(&format!("propose {master} y; run 300"));
    assert_eq!(world.processes[&2].executed, world.processes[&3].executed, "{}", world.out);
}

#[test]
fn what_more_than_half_have_is_the_cells_state() {
    // Two of five that went wrong in the same way stop; the three go on.
    let mut world = cell(5);
    world.wrong.extend([(2, 1), (4, 1)]);
    load(&mut world, 500, 5);
    let mut exited: Vec<u16> = world.exits.iter().map(|(id, _)| *id).collect();
    exited.sort_unstable();
    assert_eq!(exited, [2, 4], "{}", world.out);
    world.run(300);
    let before = world.processes[&5].executed.len();
    world.commands("propose 1 y; run 300");
    assert_eq!(world.processes[&5].executed.len(), before + 1, "{}", world.out);
}

#[test]
fn an_extension_that_differs_stops_itself() {
    let mut world = cell(3);
    world.commands("extension 9 knowing 1 2 3; run 1000");
    world.wrong.insert(9, 1);
    load(&mut world, 500, 5);
    assert_only_exits(&world, 9);
}
