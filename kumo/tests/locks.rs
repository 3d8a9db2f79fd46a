//! `kumo lock`: the command's status, the fencing number, and what happens when the lock is lost.

mod support;

use rustix::process::Signal;
use std::io::BufReader;
use std::process::Stdio;
use support::{Cell, ends, eventually, is_alive, next_line, signal};

#[test]
fn the_status_is_the_commands_and_the_number_grows() {
    let cell = Cell::up();
    let number = |cell: &Cell| -> u64 {
        let out = cell.done(&["lock", "a", "--", "sh", "-c", "echo $KUMO_LOCK_NUMBER"]);
        String::from_utf8(out).unwrap().trim().parse().unwrap()
    };
    let first = number(&cell);
    assert!(number(&cell) > first);
    for status in [0, 1, 7, 42] {
        let script = format!("exit {status}");
        let output = cell.kumo(&["lock", "a", "--", "sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(status));
    }
    assert_eq!(cell.kumo(&["lock", "a", "--", "sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    assert_eq!(cell.kumo(&["lock", "a", "--", "/no/such/program"]).status.code(), Some(127));
    assert_eq!(cell.kumo(&["lock", "a"]).status.code(), Some(2));
}

#[test]
fn a_held_lock_is_not_obtained_but_shared_by_readers() {
    let cell = Cell::up();
    let mut holder = cell
        .command(&["lock", "b", "--", "sh", "-c", "echo in; read end || true"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap());
    assert_eq!(next_line(&mut said), "in");
    cell.fails(&["lock", "b", "--try", "--", "true"], 3);
    cell.fails(&["lock", "b", "--timeout", "0.1", "--", "true"], 3);
    cell.fails(&["lock", "-r", "b", "--try", "--", "true"], 3);
    drop(holder.stdin.take());
    ends(&mut holder);
    cell.done(&["lock", "b", "--try", "--", "true"]);

    let mut reader = cell
        .command(&["lock", "-r", "b", "--", "sh", "-c", "echo in; read end || true"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(reader.stdout.take().unwrap());
    assert_eq!(next_line(&mut said), "in");
    cell.done(&["lock", "-r", "b", "--try", "--", "true"]);
    cell.fails(&["lock", "b", "--try", "--", "true"], 3);
    drop(reader.stdin.take());
    assert!(ends(&mut reader).success());
}

#[test]
fn the_command_is_killed_with_the_lock_and_signals_are_passed_on() {
    let cell = Cell::up();
    let start = || {
        let mut lock = cell
            .command(&["lock", "c", "--", "sh", "-c", "echo $$; sleep 600 & wait"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid: u32 = next_line(&mut BufReader::new(lock.stdout.take().unwrap())).parse().unwrap();
        (lock, pid)
    };
    let (mut lock, command) = start();
    let mut errors = BufReader::new(lock.stderr.take().unwrap());
    let sessions = cell.json(&["session", "ls"]);
    let own = lock.id();
    let sessions = sessions["sessions"].as_array().unwrap();
    let session = sessions.iter().find(|session| session["pid"] == own).unwrap();
    cell.done(&["session", "kill", session["id"].as_str().unwrap()]);
    assert_eq!(ends(&mut lock).code(), Some(1));
    assert!(next_line(&mut errors).contains("the lock c was lost"));
    assert!(next_line(&mut errors).contains("session ended: killed"));
    eventually("the command is gone", || (!is_alive(command)).then_some(()));
    // The lock is free again.
    cell.done(&["lock", "c", "--try", "--", "true"]);

    let (mut lock, command) = start();
    signal(lock.id(), Signal::TERM);
    assert_eq!(ends(&mut lock).code(), Some(128 + 15));
    eventually("the command is gone", || (!is_alive(command)).then_some(()));
    cell.done(&["lock", "c", "--try", "--", "true"]);

    // Who is killed cannot pass anything on: the command ends all the same, before another gets the lock.
    let (mut lock, command) = start();
    signal(lock.id(), Signal::KILL);
    ends(&mut lock);
    eventually("the command is gone", || (!is_alive(command)).then_some(()));
}
