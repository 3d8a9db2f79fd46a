//! The same programs while the master, or one of them, is killed.

use super::build::{Program, Workshop, kill_master, run};
use super::support::{Cell, eventually, signal};
use rustix::process::Signal;
use std::collections::BTreeMap;

/// Runs a program and kills the master when it is halfway. What it checks must hold all the same.
fn survives_the_master(test: &str, arguments: &[&str]) {
    let (cell, workshop) = (Cell::up(), Workshop::new(&format!("{test}-master")));
    let mut program = Program::start(&cell, workshop.c(test), arguments);
    program.says("halfway");
    kill_master(&cell);
    program.ends_well();
}

#[test]
fn files_and_directories_outlive_the_master() {
    survives_the_master("files", &[]);
}

#[test]
fn events_outlive_the_master_in_order() {
    survives_the_master("events", &[]);
}

#[test]
fn large_writes_outlive_the_master() {
    survives_the_master("large", &["8", "33554432"]);
}

#[test]
fn a_transport_of_the_programs_own_outlives_the_master() {
    survives_the_master("transport", &[]);
}

#[test]
fn four_processes_count_under_a_lock_while_the_master_dies() {
    let (cell, workshop) = (Cell::up(), Workshop::new("locks"));
    let program = workshop.c("locks");
    for file in ["/locks/a", "/locks/b"] {
        assert!(cell.kumo_with(&["fs", "put", file], b"0").status.success());
    }
    let mut four: Vec<Program> =
        (0..PROCESSES).map(|_| Program::start(&cell, &program, &["counter", ROUNDS])).collect();
    four[0].says("halfway");
    kill_master(&cell);
    four.into_iter().for_each(|one| drop(one.ends_well()));
    let expected = (PROCESSES * ROUNDS.parse::<usize>().unwrap()).to_string();
    for file in ["/locks/a", "/locks/b"] {
        assert_eq!(cell.done(&["fs", "cat", file]), expected.as_bytes());
    }
}

#[test]
fn what_a_killed_process_held_goes_on_to_the_next() {
    let (cell, workshop) = (Cell::up(), Workshop::new("hold"));
    let mut holder = Program::start(&cell, workshop.c("hold"), &[]);
    holder.says("holding");
    let mut next = Program::start(&cell, workshop.c("succeed"), &[]);
    next.says("waiting");
    signal(holder.pid(), Signal::KILL);
    kill_master(&cell);
    next.ends_well();
    let gone = cell.kumo(&["fs", "stat", "/hold/here"]);
    assert!(!gone.status.success());
}

#[test]
fn a_session_that_is_lost_is_told_and_opened_again() {
    let (cell, workshop) = (Cell::up(), Workshop::new("lost"));
    let mut program = Program::start(&cell, workshop.c("lost"), &[]);
    let id = program.next_line();
    cell.done(&["session", "kill", &id]);
    program.ends_well();
}

#[test]
fn a_message_that_came_is_in_the_programs_hands_whatever_follows() {
    let (cell, workshop) = (Cell::up_with(&["--session-timeout", "4"]), Workshop::new("handed"));
    assert!(cell.kumo_with(&["queue", "post", "handed"], &[b'M'; 1000]).status.success());
    run(&cell, workshop.c("handed"), &[]);
}

#[test]
fn messages_outlive_killed_consumers_and_the_master() {
    let (cell, workshop) = (Cell::up(), Workshop::new("queues"));
    let program = workshop.c("queues");
    // One that waits first in line and is killed there: what it would get goes to the next.
    let mut waiting = Program::start(&cell, &program, &["wait", "work", "1"]);
    eventually("it waits", || waits(&cell).then_some(()));
    signal(waiting.pid(), Signal::KILL);
    assert_eq!(waiting.next_line(), "");

    let mut poster = Program::start(&cell, &program, &["post", "work", MESSAGES]);
    poster.says("halfway");
    kill_master(&cell);
    poster.ends_well();

    let mut seen = BTreeMap::<u64, usize>::new();
    let mut killed = Program::start(&cell, &program, &["work", "work"]);
    let mut count = |line: &str| *seen.entry(line.parse().unwrap()).or_default() += 1;
    for _ in 0..20 {
        count(&killed.next_line());
    }
    signal(killed.pid(), Signal::KILL);
    loop {
        match killed.next_line() {
            line if line.is_empty() => break,
            line => count(&line),
        }
    }
    // Two at a time, again and again: what the killed ones had comes back when their sessions have ended.
    let all: usize = MESSAGES.parse().unwrap();
    eventually("all messages come", || {
        let two = [(); 2].map(|()| Program::start(&cell, &program, &["work", "work"]));
        for worker in two {
            for line in worker.ends_well() {
                *seen.entry(line.parse().unwrap()).or_default() += 1;
            }
        }
        (seen.len() == all).then_some(())
    });
    let twice = seen.values().filter(|&&times| times > 1).count();
    assert!(twice <= 1, "only what the killed worker had was given out again: {twice}");
    assert!(seen.values().all(|&times| times <= 2));
    run(&cell, &program, &["work", "work"]);
}

fn waits(cell: &Cell) -> bool {
    let queues = cell.json(&["queue", "ls"]);
    queues.to_string().contains("\"waiting\":1")
}

const PROCESSES: usize = 4;
const ROUNDS: &str = "60";
const MESSAGES: &str = "300";
