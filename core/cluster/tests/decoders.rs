//! Every decoder of the store's protocol, fed valid messages, all their truncations, flipped bits, lengths beyond all
//! bounds and random bytes: an error or exactly what the bytes say, never a panic, and never more than they hold.

use bytes::{Bytes, BytesMut};
use kumo_cluster::control::{
    BackupResult, ControlAnswer, ControlRequest, Plan, ServerReport, ServerStat, ShareChange, Stat,
    ToolAnswer, ToolRequest, VoterStat,
};
use kumo_cluster::{
    Alive, Answer, Author, Clock, Command, Committed, Garbage, GatewayId, Incarnation, Initial, Job, KeyHash,
    Kind, Lead, Member, MemberState, Message, Objection, Operation, Order, Origin, Progress, Query, Range,
    Record, Recruit, Refusal, Remembered, Reply, Request, RequestId, Seat, ServerId, Space, SpaceNumber,
    Stamp, StoreKey, Table, Unsettled, Upto, Usage, key_hash,
};
use kumo_paxos::{CellId, ReplicaState, Time};
use kumo_wire::{Wire, frame};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::SocketAddr;

/// A small generator of its own: the same bytes in every run.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn server(port: u16) -> ServerId {
    ServerId { address: address(port), incarnation: Incarnation(u128::from(port) << 64 | 7) }
}

fn space() -> Space {
    let member = |port, state| {
        let ServerId { address, incarnation } = server(port);
        Member { address, incarnation, state }
    };
    Space {
        clock: Clock(8),
        members: vec![
            member(1, MemberState::Active),
            member(2, MemberState::Fault { order: 1 }),
            member(3, MemberState::Returned { order: 2 }),
        ],
        rhs: vec![0, 1],
        whs: vec![0, 1, 2],
        earlier: vec![1],
        old: vec![1],
        job: Some(Job { full: false, paused: true, rate: 9 }),
        gateways: vec![GatewayId(3), GatewayId(5)],
        ..Space::empty(CellId(9), SpaceNumber(4))
    }
}

fn range() -> Range {
    Range { first: KeyHash(5), last: KeyHash(500) }
}

fn key() -> StoreKey {
    StoreKey { hash: key_hash(b"key"), key: Bytes::from_static(b"key") }
}

fn record(kind: Kind) -> Record {
    let stamp = Stamp { space: SpaceNumber(4), clock: Clock(7) };
    Record { stamp, kind, flags: 5, expiry: 6, data: Bytes::from_static(b"data") }
}

fn id() -> RequestId {
    RequestId { gateway: GatewayId(3), seq: 11 }
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Done { clock: 1 },
        Reply::Number { clock: 1, number: 2, ttl: Some(3) },
        Reply::Value { clock: 1, flags: 2, ttl: None, data: Bytes::from_static(b"value") },
        Reply::Touched { clock: 1, flags: 2 },
    ]
}

fn operations() -> Vec<Operation> {
    let data = Bytes::from_static(b"data");
    let (flags, expiry, unique) = (1, -1, Some(7));
    vec![
        Operation::Get,
        Operation::GetAndTouch { expiry },
        Operation::Set { flags, expiry, data: data.clone() },
        Operation::Add { flags, expiry, data: data.clone() },
        Operation::Replace { flags, expiry, data: data.clone() },
        Operation::Cas { unique: 7, flags, expiry, data: data.clone() },
        Operation::Append { unique, data: data.clone() },
        Operation::Prepend { unique: None, data },
        Operation::Delete { unique },
        Operation::Touch { expiry },
        Operation::Add64 {
            unique,
            delta: 4,
            down: true,
            initial: Some(Initial { value: 1, expiry }),
            touch: Some(expiry),
        },
    ]
}

fn answers() -> Vec<Answer> {
    let mut answers: Vec<Answer> = replies().into_iter().map(Answer::Reply).collect();
    answers.extend([
        Answer::Missing,
        Answer::NotStored,
        Answer::Exists,
        Answer::NotNumeric,
        Answer::TooLarge,
        Answer::WrongSpace { newest: SpaceNumber(5) },
        Answer::Wait,
        Answer::Unknown,
    ]);
    let refusals =
        [Refusal::Full, Refusal::FewCopies, Refusal::GatewayExpired, Refusal::Damaged, Refusal::Answered];
    answers.extend(refusals.map(|reason| Answer::Refused { reason }));
    answers
}

fn remembered() -> Vec<Remembered> {
    let known = replies().into_iter().map(Some).chain([None]);
    known.map(|reply| Remembered { id: id(), hash: KeyHash(9), reply }).collect()
}

fn progress() -> Progress {
    Progress {
        job: SpaceNumber(4),
        copies: 3,
        copies_done: 2,
        records_sent: 5,
        bytes_sent: 6,
        bytes_left: 7,
        unreadable: 8,
    }
}

fn usage() -> Usage {
    Usage { items: 1, tombstones: 2, live_bytes: 3, file_bytes: 4, unreadable: 5 }
}

fn alive() -> Alive {
    Alive {
        server: server(1),
        previous: vec![Incarnation(1), Incarnation(2)],
        cluster: Some(CellId(9)),
        stamped: SpaceNumber(2),
        digest: 7,
        space: SpaceNumber(4),
        sent: Time(5),
        usage: usage(),
        progress: progress(),
        gets: 1,
        sets: 2,
        deletes: 3,
        seat: Some(Seat { address: "[::1]:9".parse().expect("an address"), durable: true }),
        leased: true,
        full: false,
    }
}

fn recruit() -> Recruit {
    Recruit {
        cell: CellId(9),
        peers: vec![address(1), address(2)],
        unit_micros: 1,
        session_timeout_micros: 2,
        lease_micros: 3,
        keepalive_micros: 4,
        connect_retry_limit: 5,
        connect_timeout_steps: 6,
        clock_interval_micros: 7,
        replace_delay_micros: 8,
        voter_patience_micros: 9,
    }
}

/// At least one of every kind.
fn messages() -> Vec<Message> {
    let (number, job, ticket) = (SpaceNumber(4), SpaceNumber(3), 12);
    let origin = Some(Origin { id: id(), lowest_open: 10, reply: Reply::Done { clock: 7 } });
    let unsettled = Unsettled { key: key(), record: record(Kind::Value), origin: origin.clone() };
    let lowest_open = vec![(GatewayId(3), 10)];
    let mut messages: Vec<Message> = operations()
        .into_iter()
        .map(|operation| {
            let key = Bytes::from_static(b"key");
            let (hash, lowest_open) = (key_hash(&key), 10);
            let request = Request {
                space: number,
                first_space: job,
                id: id(),
                lowest_open,
                hash,
                key,
                operation,
                early: false,
            };
            Message::Request(request)
        })
        .collect();
    messages.extend(answers().into_iter().map(|answer| Message::Answer { seq: 11, answer }));
    messages.extend([
        Message::new_space(space()),
        Message::WantSpace { above: number },
        Message::Flush { space: number, id: id(), lowest_open: 3, prefix: Bytes::from_static(b"app:") },
        Message::Flushed { space: number, seq: 9 },
        Message::Replicate {
            epoch: number,
            seq: 1,
            watermark: 2,
            origin,
            over: Some(id()),
            key: key(),
            record: record(Kind::Tombstone),
        },
        Message::Replicated { epoch: number, first: 1, last: 3 },
        Message::ReplicaFull { epoch: number, seq: 1 },
        Message::Watermark { epoch: number, upto: 1 },
        Message::Confirm { space: number, ticket },
        Message::Confirmed { space: number, ticket },
        Message::AskPrimary { space: number, ticket, key: key() },
        Message::PrimarySays {
            space: number,
            ticket,
            found: Some(Committed { record: Some(record(Kind::Value)), settled: true }),
            unreadable: Some(Stamp { space: number, clock: Clock(9) }),
        },
        Message::Settle { space: number, ranges: vec![range()], after: Some(Upto::Marked { upto: key() }) },
        Message::Settled {
            space: number,
            unsettled: vec![unsettled],
            remembered: remembered(),
            lowest_open: lowest_open.clone(),
            next: Some(Upto::Ids { upto: Some(id()) }),
        },
        Message::CopyDigest { job, space: number, range: range(), count: 1, digest: 2 },
        Message::CopySame { job, range: range() },
        Message::CopyDiffers { job, range: range() },
        Message::CopyRecords {
            job,
            space: number,
            range: range(),
            records: vec![(key(), record(Kind::Value))],
            pending: vec![key()],
        },
        Message::CopyStored { job, range: range() },
        Message::CopyLater { job, range: range() },
        Message::CopyHeads { job, range: range(), heads: vec![(key(), record(Kind::Value).stamp)] },
        Message::CopyNarrow { job, range: range(), last: KeyHash(9) },
        Message::CopyIds {
            job,
            space: number,
            range: range(),
            after: Some(id()),
            remembered: remembered(),
            lowest_open,
        },
        Message::CopyIdsStored { job, range: range(), after: None },
        Message::Alive(Box::new(alive())),
        Message::Lease { sent: Time(1), micros: 2, unix_millis: 3 },
        Message::Register { nonce: 1 },
        Message::Registered { nonce: 1, gateway: GatewayId(3), cluster: CellId(9) },
        Message::GatewayAlive { gateway: GatewayId(3), space: number },
        Message::Managers { cluster: CellId(9), managers: vec![address(1)], master: Some(address(2)) },
        Message::Backup { suffix: "20081203".to_owned() },
        Message::BackedUp {
            suffix: "20081203".to_owned(),
            path: Some("a/b".to_owned()),
            error: Some("雲".to_owned()),
        },
        Message::Recruit(recruit()),
        Message::Probe { nonce: 1 },
        Message::Probed { nonce: 1 },
        Message::Unwelcome { reason: "no".to_owned() },
    ]);
    messages
}

fn control_requests() -> Vec<ControlRequest> {
    let servers = vec![address(1), "[::1]:2".parse().expect("an address")];
    vec![
        ControlRequest::Stat,
        ControlRequest::Attach { servers: servers.clone(), replace: true, accept_data_loss: false },
        ControlRequest::Detach { servers: servers.clone(), replace: false },
        ControlRequest::Replace,
        ControlRequest::FullReplace,
        ControlRequest::Plan { attach: servers.clone(), detach: servers },
        ControlRequest::Backup { suffix: "x".to_owned() },
        ControlRequest::AutoReplace { on: true },
        ControlRequest::Pause,
        ControlRequest::Resume,
        ControlRequest::Cancel,
        ControlRequest::Rate { bytes: 5 },
        ControlRequest::Rebuild { accept_data_loss: true },
    ]
}

fn control_answers() -> Vec<ControlAnswer> {
    let stat = ServerStat {
        server: server(1),
        connected: true,
        heard_ms: 1,
        space: SpaceNumber(4),
        usage: usage(),
        progress: progress(),
        gets: 1,
        sets: 2,
        deletes: 3,
        foreign: false,
        full: true,
    };
    let voter =
        VoterStat { address: address(1), server: Some(address(2)), state: Some(ReplicaState::Learning) };
    let share = ShareChange { server: address(1), before: 1, after: 2, gained: 3 };
    let backup = BackupResult { server: address(1), path: Some("a".to_owned()), error: None };
    vec![
        ControlAnswer::Done,
        ControlAnswer::Stat(Stat {
            space: space(),
            servers: vec![stat],
            auto_replace: true,
            attach_wanted: vec![address(4)],
            detach_wanted: vec![address(5)],
            gateways: 2,
            managers: vec![address(1)],
            master: Some(address(1)),
            voters: vec![voter],
            loss_accepted: true,
        }),
        ControlAnswer::Plan(Plan { shares: vec![share], bytes: 1, records: 2 }),
        ControlAnswer::Backup(vec![backup]),
        ControlAnswer::Master(None),
        ControlAnswer::Refused("why".to_owned()),
    ]
}

fn report() -> ServerReport {
    ServerReport {
        server: server(1),
        pid: 1,
        uptime_ms: 2,
        unix_millis: 3,
        version: "0.1".to_owned(),
        gets: 4,
        sets: 5,
        deletes: 6,
        usage: usage(),
        garbage: Garbage { bytes: 3, age_seconds: 4, held: 5 },
        space: Some(space()),
        lease_ms: 7,
        pending: 8,
        dirty: 9,
        progress: progress(),
        latency: vec![1, 2],
    }
}

fn commands() -> Vec<Command> {
    let number = SpaceNumber(4);
    let lead = Lead { after: 1, life: 2, cluster: CellId(9), lease_micros: 3, auto_replace: true };
    let order = |order| Command::Order { term: 1, ticket: 2, order };
    vec![
        Command::Lead(lead),
        Command::Fault { term: 1, number, servers: vec![server(1)] },
        Command::Return { term: 1, number, servers: vec![(server(1), Incarnation(2))] },
        Command::Switch { term: 1, number },
        Command::Cleared { term: 1, number },
        Command::Register { nonce: 1 },
        Command::ExpireGateways { term: 1, gateways: vec![GatewayId(3)] },
        order(Order::Want { attach: vec![address(1)], detach: vec![address(2)] }),
        order(Order::Replace {
            number,
            above: SpaceNumber(3),
            attach: vec![server(1)],
            detach: vec![address(2)],
            accept_loss: true,
            author: Author::AutoReplace,
        }),
        order(Order::FullReplace { number }),
        order(Order::Cancel { author: Author::Operator }),
        order(Order::Pause),
        order(Order::Resume),
        order(Order::Rate { bytes: 1 }),
        order(Order::AutoReplace { on: true }),
        order(Order::Rebuild { space: space() }),
        Command::Recruit { term: 1, voter: address(1), server: address(2) },
        Command::Dismiss { term: 1, voter: address(1) },
        Command::Remembered { term: 1, number },
        Command::Forgotten { term: 1, number, server: address(1), knows: number },
        Command::Witnessed { term: 1, number },
    ]
}

/// What was read, if anything was, says what the bytes say and no more: written again it is the same bytes.
fn read<T: Wire + Debug>(bytes: Bytes) -> Option<T> {
    let value = T::from_bytes(bytes.clone()).ok()?;
    assert_eq!(value.to_bytes(), bytes, "{value:?}");
    Some(value)
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
        read::<T>(flipped.into());
    }
    // Any four bytes may be a length, or a count of things that are larger in memory than here.
    for at in 0..whole.len().saturating_sub(3) {
        for length in [u32::MAX, 1 << 31, 0x00ff_ffff, whole.len() as u32] {
            let mut long = whole.to_vec();
            long[at..at + 4].copy_from_slice(&length.to_le_bytes());
            read::<T>(long.into());
        }
    }
    let mut long = whole.to_vec();
    long.push(0);
    assert!(T::from_bytes(long.into()).is_err());
    framed(value);
}

/// As it comes from a socket: nothing before the last byte, nothing above the limit.
fn framed<T: Wire + Debug + PartialEq>(value: &T) {
    let mut whole = BytesMut::new();
    frame::append(value, &mut whole);
    let body = whole.len() - frame::HEADER_BYTES;
    let mut arrived = BytesMut::new();
    for (at, &byte) in whole.iter().enumerate() {
        arrived.extend_from_slice(&[byte]);
        let taken = frame::take(&mut arrived, body).expect("a length within the limit");
        match taken {
            None => assert!(at + 1 < whole.len(), "{value:?} is all there"),
            Some(body) => {
                assert_eq!(at + 1, whole.len());
                assert_eq!(read::<T>(body).as_ref(), Some(value));
            }
        }
    }
    if body > 0 {
        assert!(frame::take(&mut whole, body - 1).is_err(), "{value:?}");
    }
}

/// All kinds that the corpus has.
fn kinds<T: Wire>(values: &[T]) -> BTreeSet<u8> {
    values.iter().map(|value| value.to_bytes()[0]).collect()
}

/// The kinds that there are: numbers are given without gaps, so the first that is unknown ends them.
fn known<T: Wire>(values: &[T]) -> BTreeSet<u8> {
    let last = kinds(values).into_iter().max().expect("a corpus");
    let unknown = T::from_bytes(Bytes::copy_from_slice(&[last + 1])).err();
    assert_eq!(unknown, Some(kumo_wire::Malformed::Kind(last + 1)), "the corpus lacks the newest kinds");
    (1..=last).collect()
}

fn complete<T: Wire>(values: Vec<T>) -> Vec<T> {
    assert_eq!(kinds(&values), known(&values));
    values
}

#[test]
fn messages_survive_anything() {
    complete(operations()).iter().for_each(torment);
    complete(answers()).iter().for_each(torment);
    complete(replies()).iter().for_each(torment);
    complete(messages()).iter().for_each(torment);
}

#[test]
fn what_tools_say_survives_anything() {
    complete(control_requests()).into_iter().for_each(|request| torment(&ToolRequest::Control(request)));
    torment(&ToolRequest::Inspect);
    complete(control_answers()).into_iter().for_each(|answer| torment(&ToolAnswer::Control(answer)));
    torment(&ToolAnswer::Report(report()));
    torment(&ToolAnswer::Refused { reason: "no".to_owned() });
}

#[test]
fn commands_survive_anything() {
    complete(commands()).iter().for_each(torment);
    torment(&Query::Space);
    torment(&Objection::BadSpace);
}

/// A space with one bit wrong is refused, or is one that owners can be computed from.
#[test]
fn a_space_that_is_taken_is_one_to_work_with() {
    let whole = space().to_bytes();
    let (mut refused, mut taken) = (0, 0);
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match Space::from_bytes(flipped.into()) {
            Ok(space) if space.well_formed() => {
                let table = Table::new(&space);
                assert!(table.arcs().iter().all(|arc| arc.first <= arc.last));
                space.places();
                taken += 1;
            }
            Ok(_) | Err(_) => refused += 1,
        }
    }
    assert!(refused > 100 && taken > 100, "{refused} refused, {taken} taken");
}

#[test]
fn random_bytes_are_refused_or_read() {
    let mut bits = Bits(4711);
    let mut found = 0;
    for _ in 0..200_000 {
        let length = bits.next() as usize % 96;
        let mut bytes: Vec<u8> =
            (0..length).map(|_| if bits.next().is_multiple_of(3) { 1 } else { bits.next() as u8 }).collect();
        // Otherwise most would end at their first byte.
        if let Some(kind) = bytes.first_mut() {
            *kind %= 40;
        }
        let bytes = Bytes::from(bytes);
        found += usize::from(read::<Message>(bytes.clone()).is_some());
        found += usize::from(read::<ToolRequest>(bytes.clone()).is_some());
        found += usize::from(read::<ToolAnswer>(bytes.clone()).is_some());
        found += usize::from(read::<Command>(bytes.clone()).is_some());
        let mut stream = BytesMut::from(&bytes[..]);
        while let Ok(Some(body)) = frame::take(&mut stream, 4096) {
            read::<Message>(body);
        }
    }
    assert!(found > 100, "hardly anything was read: {found}");
}
