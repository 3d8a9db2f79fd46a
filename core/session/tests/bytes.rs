//! Every message, cut short anywhere and stirred: an error or another message, never a panic.

use bytes::Bytes;
use kumo_paxos::{
    CellId, Change, Incarnation, Instance, Member, ReplicaId, ReplicaState, ReplicaStatus, Role, Round,
    Status,
};
use kumo_session::{
    Ask, CellMessage, ClientMessage, EndReason, Label, Reply, SessionId, SessionInfo, UnixMillis,
};
use kumo_wire::Wire;

fn client_messages() -> Vec<ClientMessage> {
    let (session, tag) = (SessionId(1 << 48 | 7), 9);
    let label = Label { address: "host".to_owned(), pid: 3, number: -1 };
    let request = |ask| ClientMessage::Request {
        session,
        number: 4,
        acknowledged: 2,
        unanswered: vec![1, 3],
        events_seen: 5,
        ask,
    };
    vec![
        ClientMessage::Open { token: 1 << 100, label },
        ClientMessage::Attach { session, token: 2 },
        request(Ask::Command(Bytes::from_static(b"command"))),
        request(Ask::Cancel { target: 3 }),
        request(Ask::Close),
        request(Ask::Kill { session }),
        ClientMessage::Renew { session, sent: 1 },
        ClientMessage::Read {
            session,
            tag,
            after: Instance(4),
            linear: true,
            query: Bytes::from_static(b"q"),
        },
        ClientMessage::Events { session, tag, after: 1, executed: Instance(2) },
        ClientMessage::Who,
        ClientMessage::Status { tag },
        ClientMessage::Sessions { tag },
        ClientMessage::Change { tag, change: Change::Add("127.0.0.1:1".parse().unwrap()) },
        ClientMessage::Transfer { tag },
        ClientMessage::Snapshot { tag },
    ]
}

fn cell_messages() -> Vec<CellMessage> {
    let (session, tag, instance) = (SessionId(7), 9, Instance(5));
    let address = "[::1]:19700".parse().unwrap();
    let member = Member { id: ReplicaId(1), address, incarnation: Incarnation(2), role: Role::Core };
    let replica = ReplicaStatus {
        member,
        state: ReplicaState::Voting,
        decided: instance,
        executed: instance,
        age_ms: 1,
        load: 2,
    };
    let status = Status {
        cell: CellId(1),
        generation: 1,
        master: Some(address),
        round: Round::default(),
        replicas: vec![replica],
        trouble: Some("none".to_owned()),
    };
    let info = SessionInfo {
        session,
        label: Label::default(),
        opened: UnixMillis(1),
        requests: 2,
        parked: 3,
        silent_ms: 4,
    };
    let reply = |reply| CellMessage::Reply { session, number: 1, instance, reply };
    vec![
        CellMessage::Opened { token: 3, session, instance, timeout_ms: 10 },
        CellMessage::Attached { session },
        reply(Reply::Body(Bytes::from_static(b"body"))),
        reply(Reply::Cancelled),
        reply(Reply::Closed),
        reply(Reply::NoSession),
        reply(Reply::Refused("no".to_owned())),
        CellMessage::Renewed { session, sent: 3 },
        CellMessage::Answer { session, tag, instance, body: Bytes::from_static(b"answer") },
        CellMessage::Events { session, tag, omitted: 1, first: 2, events: vec![Bytes::from_static(b"e")] },
        CellMessage::Master { master: Some(address), members: vec![address], least_loaded: None },
        CellMessage::Ended { session, reason: EndReason::Killed },
        CellMessage::Status { tag, status, session_timeout_ms: 1 },
        CellMessage::Sessions { tag, sessions: vec![info] },
        CellMessage::Done { tag, error: Some("error".to_owned()) },
        CellMessage::Refused { reason: "reason".to_owned() },
    ]
}

fn stir<T: Wire + PartialEq + std::fmt::Debug>(messages: Vec<T>) {
    let mut seed = 1u64;
    let mut draw = move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    };
    for message in messages {
        let whole = message.to_bytes();
        assert_eq!(T::from_bytes(whole.clone()), Ok(message));
        for length in 0..whole.len() {
            assert!(T::from_bytes(whole.slice(..length)).is_err(), "length {length} of {whole:?}");
        }
        for _ in 0..2000 {
            let mut bytes = whole.to_vec();
            for _ in 0..1 + draw() % 4 {
                let place = draw() % bytes.len();
                bytes[place] = draw() as u8;
            }
            let _ = T::from_bytes(Bytes::from(bytes));
        }
    }
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..draw() % 64).map(|_| draw() as u8).collect();
        let _ = T::from_bytes(Bytes::from(bytes));
    }
}

#[test]
fn no_bytes_of_a_client_break_a_node() {
    stir(client_messages());
}

#[test]
fn no_bytes_of_a_cell_break_a_client() {
    stir(cell_messages());
}

#[test]
fn a_long_label_is_refused() {
    let label = Label { address: "x".repeat(300), pid: 0, number: 0 };
    assert!(ClientMessage::from_bytes(ClientMessage::Open { token: 1, label }.to_bytes()).is_err());
}
