//! Nonsense, strangers and twins on a replica's port: refused with a reason, one line in the log, nobody disturbed.

use crate::load::Load;
use crate::process::{Cell, Running, bounded, ended, places, until};
use crate::raw::{self, Raw, hello};
use bytes::{BufMut, BytesMut};
use kumo_paxos::{CellId, Envelope, FRAME_BYTES_MAX, Hello, Incarnation, Instance, Message, Side};
use kumo_session::{Ask, CLIENT_FRAME_BYTES_MAX, CellMessage, ClientMessage, EndReason, Greeting, SessionId};
use kumo_wire::{Writer, frame};
use std::io::Read;
use std::process::Stdio;

#[tokio::test(flavor = "multi_thread")]
async fn bad_bytes_are_refused_and_others_are_served() {
    bounded(async {
        let mut cell = Cell::start(&["--session-timeout", "60"]).await;
        let load = Load::start(&cell).await;
        let mut refused = 0;
        for index in 0..3 {
            refused += bad_greetings(&cell, index);
            refused += bad_clients(&cell, index);
            refused += bad_replicas(&cell, index);
            load.further(100).await;
        }
        let noise = noise(&cell);
        load.further(200).await;
        assert!(cell.all_run(), "no bytes end a replica");
        assert!(cell.voting().await.generation == 1);
        let tally = load.finish(&cell).await;
        println!("bad input: {refused} senders were told why, {noise} connections of noise changed nothing, {tally}");
        assert_eq!(refused, 3 * 14);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_and_twins_do_not_get_in() {
    bounded(async {
        let mut cell = Cell::start(&["--session-timeout", "60"]).await;
        let load = Load::start(&cell).await;
        let before = cell.voting().await;

        // A replica that no configuration names. It is told what to do, and every member says so.
        let stranger = places(1)[0].address.to_string();
        let mut process = replica(&cell, &stranger);
        let reason = "is not in the configuration of this cell: add it with `kumo cell add";
        until("the members tell of the stranger", async || {
            let told = |index| cell.log(index).contains(&format!("{stranger} {reason}"));
            (0..3).all(told).then_some(())
        })
        .await;
        load.further(500).await;
        process.0.kill().unwrap();
        let mut log = String::new();
        process.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(log.contains(reason), "the stranger is told: {log}");
        let lines = (0..3).map(|index| cell.log(index).matches(reason).count()).max().unwrap();

        // A second process with a member's address on this host, and one elsewhere that only says so.
        let taken = cell.address(1);
        let mut twin = replica(&cell, &taken.to_string());
        let status = ended(&mut twin.0).await;
        let mut said = String::new();
        twin.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(&format!("{taken} is taken")), "{said}");
        let mut ghost = Raw::connect(cell.address(0));
        ghost.send(&Greeting::Hello(Hello {
            cell: before.cell,
            generation: before.generation,
            side: Side::Replica,
            address: taken,
            incarnation: Incarnation(5),
            ..hello()
        }));
        load.further(500).await;

        let after = cell.voting().await;
        let members = |status: &pfs::Status| -> Vec<_> {
            status.replicas.iter().map(|replica| replica.member.clone()).collect()
        };
        assert_eq!(members(&after), members(&before), "nothing changed");
        assert!(cell.all_run());
        let tally = load.finish(&cell).await;
        println!("strangers: 3 of 3 kept out (at most {lines} lines about one in a log), {tally}");
    })
    .await;
}

fn replica(cell: &Cell, address: &str) -> Running {
    let mut command = cell.replica_command(&[]);
    command.args(["-l", address]).stderr(Stdio::piped());
    for peer in cell.addresses() {
        command.args(["-p", &peer.to_string()]);
    }
    Running(command.spawn().unwrap())
}

/// First frames that are no greeting, or one from somebody who is not wanted. Returns how many.
fn bad_greetings(cell: &Cell, index: usize) -> usize {
    let address = cell.address(index);
    let belongs = raw::status(address).expect("a status").cell;
    let of_replica = |address| Hello {
        cell: belongs,
        generation: 1,
        side: Side::Replica,
        address,
        incarnation: Incarnation(9),
        ..hello()
    };
    let hellos = [
        (Hello { magic: 7, ..hello() }, "wrong magic"),
        (Hello { version: 99, ..hello() }, "protocol version 99 is not spoken here"),
        (Hello { cell: CellId(belongs.0 ^ 1), generation: 1, ..hello() }, "is not this cell"),
        (of_replica(places(1)[0].address), "is not in the configuration of this cell"),
        (of_replica(address), "is this replica's own address"),
    ];
    for (hello, reason) in &hellos {
        let mut raw = Raw::connect(address);
        raw.send(&Greeting::Hello(hello.clone()));
        told_and_logged(cell, index, &raw.local().to_string(), &raw.refused_greeting(), reason);
    }
    let mut whole = Writer::default();
    frame::put(&Greeting::Hello(hello()), &mut whole);
    let whole = whole.into_bytes();
    let mut cut = BytesMut::from(&whole[..]);
    cut[0] -= 1;
    let bytes: [(&[u8], &str); 4] = [
        (b"GET / HTTP/1.1\r\nHost: kumo\r\n\r\n", "not a greeting"),
        (&[255; 64], "not a greeting"),
        (&cut, "not a greeting"),
        // Half a greeting, and then nothing.
        (&whole[..whole.len() / 2], "no greeting within"),
    ];
    for (bytes, reason) in &bytes {
        let mut raw = Raw::connect(address);
        raw.send_bytes(bytes);
        told_and_logged(cell, index, &raw.local().to_string(), &raw.refused_greeting(), reason);
    }
    hellos.len() + bytes.len()
}

/// Clients that greet well and go on badly. Returns how many.
fn bad_clients(cell: &Cell, index: usize) -> usize {
    let mut unknown = BytesMut::new();
    unknown.put_u32_le(3);
    unknown.put_slice(&[200, 1, 2]);
    let mut oversized = BytesMut::new();
    oversized.put_u32_le(CLIENT_FRAME_BYTES_MAX as u32 + 1);
    for bytes in [&unknown, &oversized] {
        let mut raw = Raw::client(cell.address(index));
        raw.send_bytes(bytes);
        told_and_logged(cell, index, &raw.local().to_string(), &raw.refused(), "bad message");
    }
    // A session that is another's: nothing is executed for it.
    let mut raw = Raw::client(cell.address(index));
    let session = SessionId(4711);
    let ask = Ask::Command(Default::default());
    raw.send(&ClientMessage::Request {
        session,
        number: 1,
        acknowledged: 0,
        unanswered: Vec::new(),
        events_seen: 0,
        ask,
    });
    loop {
        match raw.receive::<CellMessage>() {
            Some(CellMessage::Ended { session: ended, reason }) => {
                assert_eq!((ended, reason), (session, EndReason::Unknown));
                break;
            }
            Some(CellMessage::Refused { reason }) => {
                assert!(reason.contains("session"), "{reason}");
                break;
            }
            // Who does not lead sends the client to who does.
            Some(CellMessage::Master { master: Some(_), .. }) if cell_does_not_lead(cell, index) => break,
            Some(CellMessage::Master { .. }) => {}
            other => panic!("not refused: {other:?}"),
        }
    }
    3
}

fn cell_does_not_lead(cell: &Cell, index: usize) -> bool {
    raw::status(cell.address(index)).expect("a status").master != Some(cell.address(index))
}

/// A member by its hello, which then speaks in another's name, or too much. It is cut off: what dials as a replica
/// reads nothing but a hello. Returns how many.
fn bad_replicas(cell: &Cell, index: usize) -> usize {
    let status = raw::status(cell.address(index)).expect("a status");
    let addressee = raw::incarnation(cell.address(index)).expect("a hello");
    let (cell_id, generation, name) = (status.cell, status.generation, cell.address((index + 1) % 3));
    let mut lie = Writer::default();
    let envelope = Envelope {
        cell: cell_id,
        generation,
        from: cell.address((index + 2) % 3),
        sender: Incarnation(78),
        addressee,
        kept: 0,
        message: Message::CatchUp { from: Instance(0) },
    };
    frame::put(&envelope, &mut lie);
    let lie = lie.into_bytes();
    let oversized = (FRAME_BYTES_MAX as u32 + 1).to_le_bytes();
    let bytes: [(&[u8], &str); 2] =
        [(&lie, "in another replica's name"), (&oversized, "bad message from a replica")];
    for (bytes, reason) in bytes {
        let mut raw = Raw::connect(cell.address(index));
        raw.send(&Greeting::Hello(Hello {
            cell: cell_id,
            generation,
            side: Side::Replica,
            address: name,
            incarnation: Incarnation(77),
            ..hello()
        }));
        assert!(matches!(raw.receive(), Some(Greeting::Hello(_))));
        raw.send_bytes(bytes);
        assert_eq!(raw.receive::<Greeting>(), None, "cut off");
        logged_once(cell, index, &raw.local().to_string(), reason);
    }
    bytes.len()
}

/// Connections that send random bytes, some after a good greeting, and go. Returns how many.
fn noise(cell: &Cell) -> usize {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0..NOISE {
        let mut raw = match number % 2 {
            0 => Raw::connect(cell.address(number % 3)),
            _ => Raw::client(cell.address(number % 3)),
        };
        let mut bytes = Vec::new();
        for _ in 0..number {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        raw.send_bytes(&bytes);
    }
    NOISE
}

fn told_and_logged(cell: &Cell, index: usize, from: &str, told: &str, expected: &str) {
    assert!(told.contains(expected), "told {told:?}, not {expected:?}");
    logged_once(cell, index, from, expected);
}

/// The refusal was logged before it was sent, so it is there now.
fn logged_once(cell: &Cell, index: usize, from: &str, expected: &str) {
    let log = cell.log(index);
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&format!("from={from} "))).collect();
    assert!(
        lines.len() == 1 && lines[0].contains(expected),
        "one line about {from}, {expected:?}: {lines:?}"
    );
}

const NOISE: usize = 60;
