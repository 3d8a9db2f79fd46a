//! Nodes over loopback form a cell and serve clients, well-behaved ones and others.

mod common;

use bytes::{BufMut, BytesMut};
use common::{Raw, Running, Session, cell, hello, members};
use kumo_node::NodeError;
use kumo_paxos::{CellId, Envelope, FRAME_BYTES_MAX, Incarnation, Message, Side};
use kumo_pfs::{Refusal, Reply};
use kumo_session::{CLIENT_FRAME_BYTES_MAX, CellMessage, ClientMessage, Greeting};
use std::io::Write;

fn stop(nodes: Vec<Running>) {
    for node in nodes {
        node.stop().unwrap();
    }
}

#[test]
fn three_nodes_form_a_cell_and_serve_a_client() {
    let nodes = cell(3, None);
    let mut session = Session::open(nodes[1].config.listen, 1);
    session.write("/greeting", "hello");
    assert_eq!(session.data("/greeting"), "hello");
    assert!(matches!(session.read("/missing"), Reply::Refused(Refusal::NotFound(_))));
    stop(nodes);
}

#[test]
fn a_node_without_peers_is_a_cell_of_one() {
    let nodes = cell(1, None);
    let mut session = Session::open(nodes[0].config.listen, 1);
    session.write("/alone", vec![7; 3_000_000]);
    assert_eq!(session.data("/alone").len(), 1 << 20);
    stop(nodes);
}

#[test]
fn a_large_write_beside_small_ones_arrives_whole() {
    let nodes = cell(3, None);
    let any = nodes[0].config.listen;
    let small = std::thread::spawn(move || {
        let mut session = Session::open(any, 2);
        for count in 0..200 {
            session.write("/small", format!("{count}"));
        }
        session.data("/small")
    });
    let mut session = Session::open(any, 1);
    let large: Vec<u8> = (0..10_000_000u32).map(|count| count as u8).collect();
    session.write("/large", large.clone());
    assert_eq!(session.data("/large"), large[..1 << 20]);
    assert_eq!(small.join().unwrap(), "199");
    stop(nodes);
}

#[test]
fn what_a_node_said_survives_a_clean_stop_of_the_master() {
    let mut nodes = cell(3, None);
    let mut session = Session::open(nodes[0].config.listen, 1);
    session.write("/kept", "through");
    let master = session.raw.stream.peer_addr().unwrap();
    let place = nodes.iter().position(|node| node.config.listen == master).unwrap();
    nodes.remove(place).stop().unwrap();
    let mut session = Session::open(nodes[0].config.listen, 2);
    assert_eq!(session.data("/kept"), "through");
    stop(nodes);
}

#[test]
fn a_connection_that_does_not_greet_well_is_told_why_and_others_are_served() {
    let nodes = cell(1, None);
    let address = nodes[0].config.listen;
    let mut session = Session::open(address, 1);
    let belongs = Raw::connect(address).greet(hello()).cell;

    let refused = |hello| {
        let mut raw = Raw::connect(address);
        raw.send(&Greeting::Hello(hello));
        raw.refusal()
    };
    let magic = refused(kumo_paxos::Hello { magic: 7, ..hello() });
    assert_eq!(magic, "wrong magic: this port speaks kumo's cell protocol only");
    let version = refused(kumo_paxos::Hello { version: 9, ..hello() });
    let expected = format!("protocol version 9 is not spoken here, version {} is", kumo_paxos::VERSION);
    assert_eq!(version, expected);
    let foreign = refused(kumo_paxos::Hello { cell: CellId(belongs.0 ^ 1), generation: 1, ..hello() });
    assert!(foreign.contains("cell"), "{foreign}");
    let twin = refused(kumo_paxos::Hello {
        side: Side::Replica,
        address,
        incarnation: Incarnation(5),
        cell: belongs,
        generation: 1,
        ..hello()
    });
    assert!(twin.contains("address"), "{twin}");

    let mut web = Raw::connect(address);
    web.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(web.refusal().starts_with("not a greeting: length"));
    let mut empty = Raw::connect(address);
    empty.stream.write_all(&[0; 4]).unwrap();
    assert_eq!(empty.refusal(), "not a greeting: message ends early");

    session.write("/served", "still");
    assert_eq!(session.data("/served"), "still");
    stop(nodes);
}

#[test]
fn a_client_that_breaks_the_framing_is_told_why_and_others_are_served() {
    let nodes = cell(1, None);
    let address = nodes[0].config.listen;
    let mut session = Session::open(address, 1);
    let broken = |bytes: &[u8]| {
        let mut raw = Raw::connect(address);
        raw.greet(hello());
        raw.stream.write_all(bytes).unwrap();
        loop {
            match raw.receive().expect("a refusal") {
                CellMessage::Refused { reason } => {
                    assert_eq!(raw.receive::<CellMessage>(), None);
                    return reason;
                }
                CellMessage::Master { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    };
    let mut oversized = BytesMut::new();
    oversized.put_u32_le(CLIENT_FRAME_BYTES_MAX as u32 + 1);
    let reason = broken(&oversized);
    assert_eq!(reason, format!("bad message: length {} exceeds the limit", CLIENT_FRAME_BYTES_MAX + 1));
    assert_eq!(broken(&[1, 0, 0, 0, 99]), "bad message: unknown kind 99");
    assert_eq!(broken(&[1, 0, 0, 0, 1]), "bad message: message ends early");

    // Half a frame, and gone: nobody is left to be told.
    let mut half = Raw::connect(address);
    half.greet(hello());
    half.stream.write_all(&[100, 0, 0, 0, 1]).unwrap();
    drop(half);

    session.write("/served", "still");
    assert_eq!(session.data("/served"), "still");
    stop(nodes);
}

#[test]
fn a_replica_that_speaks_for_another_is_cut_off() {
    let nodes = cell(1, None);
    let address = nodes[0].config.listen;
    drop(Session::open(address, 1));
    let mut raw = Raw::connect(address);
    let own = kumo_paxos::Hello {
        side: Side::Extension,
        address: "127.0.0.1:2".parse().unwrap(),
        incarnation: Incarnation(5),
        ..hello()
    };
    let theirs = raw.greet(own.clone());
    let envelope = Envelope {
        cell: theirs.cell,
        generation: theirs.generation,
        from: own.address,
        sender: Incarnation(6),
        addressee: theirs.incarnation,
        kept: 0,
        message: Message::CatchUp { from: kumo_paxos::Instance(0) },
    };
    raw.send(&envelope);
    assert_eq!(raw.receive::<Greeting>(), None);
    let mut raw = Raw::connect(address);
    raw.greet(own);
    raw.stream.write_all(&(FRAME_BYTES_MAX as u32 + 1).to_le_bytes()).unwrap();
    assert_eq!(raw.receive::<Greeting>(), None);
    stop(nodes);
}

#[test]
fn a_taken_address_is_one_clear_line() {
    let (config, listener) = members(1, None).remove(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(kumo_node::run(config.clone(), std::future::pending())).unwrap_err();
    assert!(matches!(error, NodeError::AddressTaken(_)));
    assert_eq!(error.to_string(), format!("address {} is taken by another process", config.listen));
    drop(listener);
}

#[test]
fn requests_sent_together_are_all_answered() {
    let nodes = cell(3, None);
    let mut session = Session::open(nodes[0].config.listen, 1);
    let mut out = kumo_wire::Writer::default();
    for tag in 0..500 {
        kumo_wire::frame::put(&ClientMessage::Status { tag }, &mut out);
    }
    session.raw.stream.write_all(&out.into_bytes()).unwrap();
    let mut expected = 0;
    while expected < 500 {
        if let CellMessage::Status { tag, .. } = session.raw.receive().unwrap() {
            assert_eq!(tag, expected);
            expected += 1;
        }
    }
    stop(nodes);
}
