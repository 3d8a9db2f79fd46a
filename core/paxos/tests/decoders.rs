//! Every decoder of this crate, fed valid messages, all their truncations, flipped bits and random bytes: an error or
//! a value, never a panic, and never more memory than the input could justify.

#[path = "../../wire/tests/memory/mod.rs"]
mod memory;

use bytes::Bytes;
use kumo_paxos::{
    CellId, Change, Configuration, DataName, Envelope, Genesis, Heartbeat, Hello, Incarnation, Instance,
    MAGIC, Member, Message, Position, Proposal, Record, ReplicaId, ReplicaState, ReplicaStatus, Report, Role,
    Round, Schedule, Side, Status, Time, VERSION, Value,
};
use kumo_wire::Wire;
use std::fmt::Debug;

/// A small generator of its own: the same bytes in every run.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
}

fn configuration() -> Configuration {
    let member = |id: u32, role| Member {
        id: ReplicaId(id),
        address: ([127, 0, 0, 1], 19700 + id as u16).into(),
        incarnation: Incarnation(u128::from(id) << 64 | 7),
        role,
    };
    let members = vec![member(0, Role::Core), member(1, Role::Extension), member(2, Role::Returning)];
    Configuration { version: 3, next_id: ReplicaId(3), members }
}

fn genesis() -> Genesis {
    Genesis { cell: CellId(9), generation: 1, window: 512, configuration: configuration() }
}

fn round() -> Round {
    Round { sequence: 5, id: ReplicaId(1), incarnation: Incarnation(77) }
}

fn values() -> Vec<Value> {
    vec![
        Value::Noop,
        Value::Command(Bytes::from_static(b"command")),
        Value::Large { name: DataName::of(b"large"), length: 100_000 },
        Value::Config(configuration()),
        Value::Genesis(genesis()),
    ]
}

fn messages() -> Vec<Message> {
    let (at, name) = (Instance(4), DataName::of(b"x"));
    let proposals: Vec<Proposal> =
        values().into_iter().map(|value| Proposal { instance: at, value }).collect();
    let reports =
        values().into_iter().map(|value| Report { instance: at, round: Some(round()), value }).collect();
    let schedule = Schedule::new(Instance(0), &genesis());
    let position = Position { cell: CellId(9), generation: 1, executed: at, schedule, digest: 1 };
    let heartbeat = Heartbeat {
        age_ms: 1,
        names: Some(Incarnation(1)),
        hears: vec![Incarnation(2)],
        votes: true,
        leads: Some(round()),
        promised: round(),
        sent: Time(3),
        success: at,
        executed: at,
        first: at,
        load: 0,
        digest: (at, 5),
        nonce: 6,
        echo: 7,
        panicked: None,
        extension: false,
        yours: 8,
    };
    vec![
        Message::Collect { round: round(), from: at },
        Message::Last { round: round(), executed: at, from: at, next: Some(at), reports },
        Message::Begin { round: round(), sent: Time(1), success: at, proposals: proposals.clone() },
        Message::Accept {
            round: round(),
            sent: Time(1),
            granted_micros: 5,
            executed: at,
            instances: vec![at, at],
        },
        Message::Success { round: round(), upto: at },
        Message::Refuse { refused: round(), promised: round() },
        Message::Heartbeat(heartbeat),
        Message::Grant { round: round(), sent: Time(1), granted_micros: 5, executed: at },
        Message::CatchUp { from: at },
        Message::Decided { entries: proposals, executed: at },
        Message::TooFar { first: at },
        Message::SnapshotAsk { at: Some(at), part: 1 },
        Message::SnapshotPart { position, part: 1, last: true, bytes: Bytes::from_static(b"part") },
        Message::Offer { name, length: 9 },
        Message::Held { name },
        Message::Fetch { name, offset: 3 },
        Message::Chunk { name, length: 9, offset: 3, bytes: Bytes::from_static(b"chunk") },
        Message::Ask { nonce: 1 },
        Message::New { nonce: 1 },
        Message::Formed { nonce: 1, genesis: genesis() },
        Message::Over { generation: 2 },
        Message::Release { round: round() },
    ]
}

fn torment<T: Wire + Debug + PartialEq>(value: &T) {
    let whole = value.to_bytes();
    assert_eq!(T::from_bytes(whole.clone()).as_ref(), Ok(value));
    for length in 0..whole.len() {
        assert!(T::from_bytes(whole.slice(..length)).is_err(), "{value:?} cut at {length}");
    }
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        // Any answer will do, as long as there is one.
        let _ = T::from_bytes(flipped.into());
    }
    let mut long = whole.to_vec();
    long.push(0);
    assert!(T::from_bytes(long.into()).is_err());
}

fn envelopes() -> Vec<Envelope> {
    let envelope = |message| Envelope {
        cell: CellId(9),
        generation: 1,
        from: ([127, 0, 0, 1], 19700).into(),
        sender: Incarnation(1),
        addressee: Incarnation(2),
        kept: 3,
        message,
    };
    messages().into_iter().map(envelope).collect()
}

fn hello() -> Hello {
    Hello {
        magic: MAGIC,
        version: VERSION,
        cell: CellId(1),
        generation: 1,
        side: Side::Client,
        address: "[::1]:9".parse().expect("an address"),
        incarnation: Incarnation(3),
    }
}

fn records() -> Vec<Record> {
    let accepted = |value| Record::Accepted { instance: Instance(1), round: round(), value };
    let decided = |value| Record::Decided { instance: Instance(1), value };
    let others = [
        Record::Life { incarnation: Incarnation(1), grant_micros: 5, kept: 9 },
        Record::Promised(round()),
        Record::Data { name: DataName::of(b""), bytes: Bytes::from_static(b"data") },
    ];
    values().into_iter().map(accepted).chain(values().into_iter().map(decided)).chain(others).collect()
}

fn changes() -> Vec<Change> {
    let (old, new) = (([127, 0, 0, 1], 1).into(), "[::1]:2".parse().expect("an address"));
    vec![
        Change::Add(new),
        Change::Promote(new),
        Change::Remove(old),
        Change::Replace { old, new },
        Change::Recover,
    ]
}

fn statuses() -> Vec<Status> {
    let states = [ReplicaState::Voting, ReplicaState::Learning, ReplicaState::Down];
    let replica = |(member, state): (Member, ReplicaState)| ReplicaStatus {
        member,
        state,
        decided: Instance(3),
        executed: Instance(2),
        age_ms: 4,
        load: 5,
    };
    let replicas = configuration().members.into_iter().zip(states).map(replica).collect();
    let (cell, generation, round) = (CellId(9), 2, round());
    let master = Some(([127, 0, 0, 1], 19700).into());
    let trouble = Some("words".to_owned());
    vec![
        Status { cell, generation, master, round, replicas, trouble },
        Status { cell, generation, master: None, round, replicas: Vec::new(), trouble: None },
    ]
}

#[test]
fn messages_survive_anything() {
    envelopes().iter().for_each(torment);
    torment(&hello());
}

#[test]
fn records_survive_anything() {
    records().iter().for_each(torment);
}

#[test]
fn changes_and_statuses_survive_anything() {
    changes().iter().for_each(torment);
    statuses().iter().for_each(torment);
}

#[test]
fn no_length_is_believed() {
    fn measure<T: Wire>(values: &[T]) {
        let whole: Vec<Bytes> = values.iter().map(Wire::to_bytes).collect();
        memory::lengths_are_not_believed(&whole, |bytes| drop(T::from_bytes(bytes)));
    }
    measure(&envelopes());
    measure(&[hello()]);
    measure(&records());
    measure(&changes());
    measure(&statuses());
}

#[test]
fn random_bytes_are_refused_or_read() {
    let mut bits = Bits(4711);
    for _ in 0..200_000 {
        let length = bits.next() as usize % 96;
        let bytes: Bytes =
            (0..length).map(|_| if bits.next().is_multiple_of(3) { 1 } else { bits.next() as u8 }).collect();
        let _ = Envelope::from_bytes(bytes.clone());
        let _ = Message::from_bytes(bytes.clone());
        let _ = Record::from_bytes(bytes.clone());
        let _ = Status::from_bytes(bytes.clone());
        let _ = Change::from_bytes(bytes.clone());
        let _ = Hello::from_bytes(bytes);
    }
}
