//! Requests of a session that are wrong: each is answered with its reason, and nothing changes. What breaks the
//! protocol ends the connection. There is one line in the log, however often they come.

use crate::process::{Cell, bounded, places};
use crate::raw::{Raw, hello};
use bytes::Bytes;
use kumo_paxos::Instance;
use kumo_session::{Ask, CellMessage, ClientMessage, Greeting, Reply as Answered, SessionId};
use kumo_wire::Wire;
use pfs::{Command, Condition, Place, Query, Refusal, Reply};
use std::collections::BTreeSet;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_request_is_told_why_and_changes_nothing() {
    bounded(async {
        let mut cell = Cell::start_at(places(1), &["--session-timeout", "60"], false).await;
        let session = cell.session().await;
        session.put("/file", "as it was").await.unwrap();
        let before = session.usage().await.unwrap();

        let mut raw = Raw::client(cell.address(0));
        let own = raw.open(7);
        let mut reasons = BTreeSet::new();
        let commands = wrong_commands();
        for (number, (command, expected)) in commands.iter().enumerate() {
            let refusal = refused_command(&mut raw, own, number as u64 + 1, command.clone());
            assert!(refusal.to_string().contains(expected), "told {refusal}, not {expected}");
            reasons.insert(refusal.to_string());
        }
        let queries = wrong_queries();
        for (tag, (query, expected)) in queries.iter().enumerate() {
            let refusal = refused_query(&mut raw, own, tag as u64, query.clone());
            assert!(refusal.to_string().contains(expected), "told {refusal}, not {expected}");
            reasons.insert(refusal.to_string());
        }
        let log = cell.log(0);
        let told = log.lines().filter(|line| line.contains("request refused")).count();
        assert_eq!(told, reasons.len(), "one line each of {reasons:?}: {log}");
        let broken = breaches(&cell, own);

        assert_eq!(session.usage().await.unwrap(), before, "nothing changed");
        assert_eq!(session.read("/file").await.unwrap().bytes, "as it was");
        assert!(cell.all_run());
        println!(
            "wrong requests: {} commands, {} queries and {broken} breaches of the protocol were told why",
            commands.len(),
            queries.len()
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_cannot_fill_the_log() {
    bounded(async {
        let mut cell = Cell::start_at(places(1), &["--session-timeout", "60"], false).await;
        let began = Instant::now();
        for number in 0..STRANGERS {
            let mut raw = Raw::connect(cell.address(0));
            raw.send(&Greeting::Hello(kumo_paxos::Hello { magic: 7, ..hello() }));
            assert!(raw.refused_greeting().contains("wrong magic"), "number {number} is told");
        }
        // A line at first, and how many more with every minute.
        let minutes = 1 + began.elapsed().as_secs() as usize / 60;
        let lines = cell.log(0).matches("wrong magic").count();
        assert!((1..=1 + minutes).contains(&lines), "{lines} lines in {minutes} minutes");
        assert!(cell.all_run());
    })
    .await;
}

fn wrong_commands() -> Vec<(Bytes, &'static str)> {
    let write = |path: &str, place| Command::Write {
        path: path.to_owned(),
        place,
        data: Bytes::from_static(b"changed"),
        ephemeral: false,
        condition: Condition::Always,
    };
    let long = "x".repeat(256);
    let commands = [
        (write("/a/../file", Place::End), "bad path"),
        (write("/./file", Place::End), "bad path"),
        (write("/fi\0le", Place::End), "bad path"),
        (write("file", Place::End), "bad path"),
        (write("", Place::End), "bad path"),
        (write(&format!("/{long}"), Place::End), "bad path"),
        (write(&"/x".repeat(65), Place::End), "bad path"),
        (write("/file", Place::Offset(u64::MAX)), "limit"),
        (write("/file", Place::Offset(pfs::WRITE_BYTES_MAX << 10)), "limit"),
        (Command::Truncate { path: "/file".to_owned(), length: u64::MAX }, "limit"),
        (Command::Rename { from: "/file".to_owned(), to: "/../file".to_owned() }, "bad path"),
        (Command::Lock { name: "a\0b".to_owned(), exclusive: true, try_only: true }, "bad name"),
        (Command::Post { queue: long, data: Bytes::new() }, "bad name"),
    ];
    let unknown = (Bytes::from_static(&[200, 1, 2, 3]), "unknown or malformed command");
    let empty = (Bytes::new(), "unknown or malformed command");
    let whole = write("/file", Place::End).to_bytes();
    let cut = (whole.slice(..whole.len() - 1), "unknown or malformed command");
    let encoded = commands.into_iter().map(|(command, expected)| (command.to_bytes(), expected));
    encoded.chain([unknown, empty, cut]).collect()
}

fn wrong_queries() -> Vec<(Bytes, &'static str)> {
    let read = |path: &str| Query::Read { path: path.to_owned(), offset: 0, length: 1 }.to_bytes();
    vec![
        (read("/../etc/passwd"), "bad path"),
        (read("/fi\0le"), "bad path"),
        (Bytes::from_static(&[200]), "unknown or malformed command"),
        (Bytes::new(), "unknown or malformed command"),
    ]
}

/// What ends a connection: another's session, an attach with a wrong token, numbers and sizes that cannot be. Returns
/// how many.
fn breaches(cell: &Cell, of_another: SessionId) -> usize {
    let request = |session, number| ClientMessage::Request {
        session,
        number,
        acknowledged: 0,
        unanswered: Vec::new(),
        events_seen: 0,
        ask: Ask::Close,
    };
    let read =
        |session, query| ClientMessage::Read { session, tag: 1, after: Instance(0), linear: true, query };
    let messages = [
        (request(of_another, 1), "neither opened nor attached"),
        (ClientMessage::Renew { session: of_another, sent: 1 }, "neither opened nor attached"),
        (read(of_another, Bytes::new()), "neither opened nor attached"),
        (ClientMessage::Attach { session: of_another, token: 8 }, "belongs to another client"),
        (read(of_another, vec![0; 64 * 1024 + 1].into()), "query is too large"),
    ];
    for (message, expected) in &messages {
        let mut raw = Raw::client(cell.address(0));
        raw.send(message);
        let told = raw.refused();
        assert!(told.contains(expected), "told {told}, not {expected}");
    }
    let mut raw = Raw::client(cell.address(0));
    let own = raw.open(9);
    raw.send(&request(own, 0));
    assert!(raw.refused().contains("numbered from 1"));
    let log = cell.log(0);
    for expected in messages.iter().map(|(_, expected)| *expected).chain(["numbered from 1"]) {
        let told = |line: &&str| line.contains(expected) && line.contains("connection refused");
        assert_eq!(log.lines().filter(told).count(), 1, "{expected}: {log}");
    }
    messages.len() + 1
}

fn refused_command(raw: &mut Raw, session: SessionId, wanted: u64, command: Bytes) -> Refusal {
    raw.send(&ClientMessage::Request {
        session,
        number: wanted,
        acknowledged: wanted - 1,
        unanswered: Vec::new(),
        events_seen: 0,
        ask: Ask::Command(command),
    });
    loop {
        match raw.receive() {
            Some(CellMessage::Reply { number, reply: Answered::Body(body), .. }) if number == wanted => {
                return refusal(body);
            }
            Some(CellMessage::Master { .. }) => {}
            other => panic!("no reply but {other:?}"),
        }
    }
}

fn refused_query(raw: &mut Raw, session: SessionId, wanted: u64, query: Bytes) -> Refusal {
    raw.send(&ClientMessage::Read { session, tag: wanted, after: Instance(0), linear: true, query });
    loop {
        match raw.receive() {
            Some(CellMessage::Answer { tag, body, .. }) if tag == wanted => return refusal(body),
            Some(CellMessage::Master { .. }) => {}
            other => panic!("no answer but {other:?}"),
        }
    }
}

fn refusal(body: Bytes) -> Refusal {
    match Reply::from_bytes(body).unwrap() {
        Reply::Refused(refusal) => refusal,
        reply => panic!("not refused: {reply:?}"),
    }
}

const STRANGERS: usize = 50;
