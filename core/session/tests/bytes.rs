//! Every message, cut short anywhere and stirred: an error or another message, never a panic.

#[path = "../../wire/tests/memory/mod.rs"]
mod memory;
mod world;

use bytes::Bytes;
use kumo_paxos::{
    CellId, Change, Hello, Incarnation, Instance, MAGIC, Member, Record, ReplicaId, ReplicaState,
    ReplicaStatus, Role, Round, Side, Status, VERSION, Value,
};
use kumo_session::{
    Ask, Cell, CellMessage, ClientMessage, Effect, EndReason, Greeting, Input, Label, NodeNote, Reply,
    SessionId, SessionInfo, UnixMillis,
};
use kumo_wire::{Malformed, Wire};
use std::collections::BTreeSet;
use world::board::Board;
use world::{TIMEOUT, World};

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

/// The same numbers in every run.
fn numbers(mut seed: u64) -> impl FnMut() -> usize {
    move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    }
}

fn stir<T: Wire + PartialEq + std::fmt::Debug>(messages: Vec<T>) {
    let mut draw = numbers(1);
    for message in messages {
        let whole = message.to_bytes();
        assert_eq!(T::from_bytes(whole.clone()), Ok(message));
        for length in 0..whole.len() {
            assert!(T::from_bytes(whole.slice(..length)).is_err(), "length {length} of {whole:?}");
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = T::from_bytes(flipped.into());
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

fn greetings() -> Vec<Greeting> {
    let hello = Hello {
        magic: MAGIC,
        version: VERSION,
        cell: CellId(7),
        generation: 1,
        side: Side::Client,
        address: "127.0.0.1:19700".parse().unwrap(),
        incarnation: Incarnation(0),
    };
    vec![Greeting::Hello(hello), Greeting::Refused { reason: "no".to_owned() }]
}

#[test]
fn no_bytes_of_a_stranger_break_a_greeting() {
    stir(greetings());
}

#[test]
fn no_length_is_believed() {
    fn measure<T: Wire>(values: &[T]) {
        let whole: Vec<Bytes> = values.iter().map(Wire::to_bytes).collect();
        memory::lengths_are_not_believed(&whole, |bytes| drop(T::from_bytes(bytes)));
    }
    measure(&client_messages());
    measure(&cell_messages());
    measure(&greetings());
}

/// A cell of one whose sessions have done something of everything, and the entries of its log.
fn busy() -> (World, Vec<Bytes>) {
    let mut world = World::new(1);
    let users = [world.user(true), world.user(true), world.user(true)];
    for user in users {
        world.command(user, "add 1");
        world.start(user, "wait");
    }
    world.command(users[0], "tell something");
    world.house(0, "add 1");
    world.kill_user(users[2]);
    world.run(TIMEOUT * 2);
    let log = world.nodes[0].cell.replica().agreement().log();
    let mut entries = Vec::new();
    for instance in 0..=log.executed().0 {
        if let Some(Value::Command(command)) = log.get(Instance(instance)) {
            entries.push(command.clone());
        }
    }
    let kinds: BTreeSet<u8> = entries.iter().map(|entry| entry[0]).collect();
    assert_eq!(kinds, BTreeSet::from([1, 2, 3, 4]), "open, request, expire, house");
    (world, entries)
}

fn parts(world: &World) -> Vec<Bytes> {
    world.nodes[0].cell.snapshot().expect("a snapshot").1.collect()
}

/// A node wakes up with that snapshot and that entry after it: refused, or executed without a panic.
fn wake(world: &World, parts: Vec<Bytes>, entry: Option<Bytes>) -> Result<(), Malformed> {
    let (position, _) = world.nodes[0].cell.snapshot().expect("a snapshot");
    let instance = position.executed.next();
    let decided = entry.map(|entry| Record::Decided { instance, value: Value::Command(entry) });
    let last = if decided.is_some() { instance } else { position.executed };
    let (paxos, settings) = world.settings(0, 1);
    let records = decided.into_iter().collect();
    let snapshot = Some((position, parts));
    let mut cell = Cell::recover(paxos, settings, Board::default(), snapshot, records, world.now)?;
    let mut effects = Vec::new();
    cell.step(world.now, Input::Timeout, &mut effects);
    let panicked = |effect: &Effect| matches!(effect, Effect::Note(NodeNote::Panicked { .. }));
    assert!(!effects.iter().any(panicked));
    assert_eq!(cell.executed_upto(), last);
    Ok(())
}

#[test]
fn no_bytes_in_the_log_break_a_node() {
    let (world, entries) = busy();
    let parts = parts(&world);
    let execute = |bytes: Vec<u8>| wake(&world, parts.clone(), Some(bytes.into())).expect("a good snapshot");
    let mut draw = numbers(5);
    for entry in &entries {
        for length in 1..entry.len() {
            execute(entry[..length].to_vec());
        }
        for bit in 0..entry.len() * 8 {
            let mut flipped = entry.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            execute(flipped);
        }
    }
    for _ in 0..5000 {
        let length = 1 + draw() % 80;
        execute((0..length).map(|_| if draw().is_multiple_of(3) { draw() as u8 } else { 1 }).collect());
    }
    memory::lengths_are_not_believed(&entries, |bytes| execute(bytes.to_vec()));
}

#[test]
fn no_bytes_of_a_snapshot_break_a_node() {
    let (world, _) = busy();
    let whole = parts(&world);
    assert_eq!(wake(&world, whole.clone(), None), Ok(()));
    let restore = |index: usize, bytes: Bytes| {
        let mut parts = whole.clone();
        parts[index] = bytes;
        wake(&world, parts, None)
    };
    for count in 0..whole.len() {
        assert!(wake(&world, whole[..count].to_vec(), None).is_err());
    }
    let mut draw = numbers(6);
    for (index, part) in whole.iter().enumerate() {
        for length in 0..part.len() {
            assert!(restore(index, part.slice(..length)).is_err(), "part {index} cut at {length}");
        }
        for bit in 0..part.len() * 8 {
            let mut flipped = part.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = restore(index, flipped.into());
        }
        for _ in 0..1000 {
            let length = draw() % 200;
            let _ = restore(
                index,
                (0..length).map(|_| if draw().is_multiple_of(3) { draw() as u8 } else { 0 }).collect(),
            );
        }
        memory::lengths_are_not_believed(std::slice::from_ref(part), |bytes| {
            let _ = restore(index, bytes);
        });
    }
}

#[test]
fn a_long_label_is_refused() {
    let label = Label { address: "x".repeat(300), pid: 0, number: 0 };
    assert!(ClientMessage::from_bytes(ClientMessage::Open { token: 1, label }.to_bytes()).is_err());
}
