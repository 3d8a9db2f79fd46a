//! `kumo queue` and `kumo watch`.

mod support;

use pfs::{Options, Session};
use rustix::process::Signal;
use std::io::BufReader;
use std::process::Stdio;
use support::{Cell, assert_status, ends, eventually, next_line, signal};

#[test]
fn messages_by_command() {
    let cell = Cell::up();
    cell.fails(&["queue", "wait", "q", "--timeout", "0"], 3);
    cell.fails(&["queue", "wait", "q", "--timeout", "0.1"], 3);
    cell.fails(&["queue", "peek", "q"], 3);
    cell.done(&["queue", "post", "q", "one"]);
    assert_status(&["post"], &cell.kumo_with(&["queue", "post", "q"], b"two\0\xff"), 0);
    cell.done(&["queue", "post", "q", "three"]);
    let head = cell.json(&["queue", "peek", "q"]);
    assert_eq!((head["data"].as_str(), head["encoding"].as_str()), (Some("one"), Some("utf-8")));
    let listed = cell.json(&["queue", "ls"]);
    assert_eq!((&listed["queues"][0]["name"], &listed["queues"][0]["ready"]), (&"q".into(), &3.into()));
    assert_eq!(cell.done(&["queue", "wait", "q"]), b"one");
    assert_eq!(cell.done(&["queue", "wait", "q", "--timeout", "5"]), b"two\0\xff");
    // What cannot be written is not lost.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let refused = cell.command(&["queue", "wait", "q"]).stdout(full).stderr(Stdio::null()).status().unwrap();
    assert_eq!(refused.code(), Some(1));
    let id = cell.json(&["queue", "peek", "q"])["id"].to_string();
    cell.done(&["queue", "delete", "q", &id]);
    cell.fails(&["queue", "delete", "q", &id], 3);
    cell.fails(&["queue", "peek", "q"], 3);
}

#[test]
fn a_waiting_taker_gets_what_is_posted() {
    let cell = Cell::up();
    let taker = cell.command(&["queue", "wait", "w"]).stdout(Stdio::piped()).spawn().unwrap();
    eventually("it waits", || {
        let queues = cell.json(&["queue", "ls"]);
        (queues["queues"][0]["waiting"] == 1).then_some(())
    });
    cell.done(&["queue", "post", "w", "here"]);
    let output = taker.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"here".to_vec()));
}

#[test]
fn work_acknowledges_what_succeeded_and_gives_back_what_failed() {
    let cell = Cell::up();
    for message in ["good", "bad", "later"] {
        cell.done(&["queue", "post", "jobs", message]);
    }
    let worker =
        ["queue", "work", "jobs", "--", "sh", "-c", "read job; echo did $job; [ $job = good ] || exit 9"];
    let output = cell.kumo(&worker);
    assert_status(&worker, &output, 9);
    assert_eq!(output.stdout, b"did good\ndid bad\n");
    assert_eq!(cell.done(&["queue", "work", "jobs", "--once", "--", "cat"]), b"bad");
    assert_eq!(cell.done(&["queue", "wait", "jobs"]), b"later");
    cell.fails(&["queue", "peek", "jobs"], 3);
}

#[test]
fn watch_tells_events_in_order() {
    let cell = Cell::up();
    let mut watch = cell
        .command(&["watch", "/w", "--count", "3", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(watch.stderr.take().unwrap());
    assert!(next_line(&mut errors).contains("watching"));
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/w/x"], b"1"), 0);
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/w/x"], b"2"), 0);
    cell.done(&["fs", "rm", "/w/x"]);
    let mut out = BufReader::new(watch.stdout.take().unwrap());
    let mut numbers = Vec::new();
    for change in ["created", "updated", "deleted"] {
        let event: serde_json::Value = serde_json::from_str(&next_line(&mut out)).unwrap();
        assert_eq!((&event["path"], &event["change"]), (&"/w/x".into(), &change.into()));
        assert_eq!(event["omitted"], 0);
        numbers.push(event["number"].as_u64().unwrap());
    }
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    assert!(ends(&mut watch).success());
}

#[test]
fn a_file_is_watched_before_it_is_there() {
    let cell = Cell::up();
    let mut watch = cell
        .command(&["watch", "/config/app.toml", "--count", "3"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(watch.stderr.take().unwrap());
    assert!(next_line(&mut errors).contains("watching"));
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/config/other"], b"1"), 0);
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/config/app.toml"], b"1"), 0);
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/config/app.toml"], b"2"), 0);
    cell.done(&["fs", "rm", "/config/app.toml"]);
    let mut out = BufReader::new(watch.stdout.take().unwrap());
    for change in ["created", "updated", "deleted"] {
        assert_eq!(next_line(&mut out), format!("{change} /config/app.toml"));
    }
    assert!(ends(&mut watch).success());
}

#[test]
fn watch_tells_how_many_events_were_omitted() {
    let cell = Cell::up_with(&["--session-timeout", "60"]);
    let mut watch = cell
        .command(&["watch", "/w/file", "--count", "1", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(watch.stderr.take().unwrap());
    assert!(next_line(&mut errors).contains("watching"));
    // It does not fetch them while more happens than is kept for it: none of it is what it was asked for.
    signal(watch.id(), Signal::STOP);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let session = Session::open(&Options::new(cell.addresses())).await.unwrap();
        let puts = |number: usize| {
            let session = session.clone();
            async move {
                for number in (number..EVENTS).step_by(WRITERS) {
                    session.put(&format!("/w/{number}"), "x").await.unwrap();
                }
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|number| tokio::spawn(puts(number))).collect();
        for writer in writers {
            writer.await.unwrap();
        }
        session.put("/w/file", "x").await.unwrap();
    });
    signal(watch.id(), Signal::CONT);
    assert!(next_line(&mut errors).ends_with("events omitted"), "at once, on standard error");
    let event: serde_json::Value =
        serde_json::from_str(&next_line(&mut BufReader::new(watch.stdout.take().unwrap()))).unwrap();
    assert_eq!(event["path"], "/w/file");
    assert!(event["omitted"].as_u64().unwrap() > 0, "and with the event that is told: {event}");
    assert!(ends(&mut watch).success());
}

#[test]
fn watch_runs_a_command_for_each_event() {
    let cell = Cell::up();
    let script = "echo $KUMO_EVENT_RESOURCE $KUMO_EVENT_NAME $KUMO_EVENT_CHANGE";
    let mut watch = cell
        .command(&["watch", "--queue", "jobs", "--count", "1", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(watch.stderr.take().unwrap());
    assert!(next_line(&mut errors).contains("watching"));
    cell.done(&["queue", "post", "jobs", "x"]);
    let mut out = BufReader::new(watch.stdout.take().unwrap());
    assert_eq!(next_line(&mut out), "queue jobs posted");
    assert!(ends(&mut watch).success());
}

/// More than a session is kept events for, and who makes them.
const EVENTS: usize = 1200;
const WRITERS: usize = 16;
