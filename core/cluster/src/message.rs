//! [`Message`]: everything that managers, servers and gateways say to each other about the store.
//!
//! Every message that acts on keys names the sender's hash space. Layouts follow from the field order below
//! (numbers little-endian, byte strings with a `u32` length, lists with a `u32` count).

use crate::{Alive, GatewayId, KeyHash, Range, Record, RequestId, Space, SpaceNumber, Stamp, StoreKey};
use bytes::Bytes;
use kumo_paxos::{CellId, Time};
use kumo_wire::{wire_enum, wire_struct};
use std::net::SocketAddr;

/// What a gateway wants of a key. Expiries are as the client said them: what they mean depends on the time, and that
/// is the cell's, at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Get,
    /// A get that also changes the expiry: a write. (gat, gats, mg with T)
    GetAndTouch {
        expiry: i64,
    },
    Set {
        flags: u32,
        expiry: i64,
        data: Bytes,
    },
    Add {
        flags: u32,
        expiry: i64,
        data: Bytes,
    },
    Replace {
        flags: u32,
        expiry: i64,
        data: Bytes,
    },
    /// Only if the version's clock is `unique`.
    Cas {
        unique: u64,
        flags: u32,
        expiry: i64,
        data: Bytes,
    },
    Append {
        unique: Option<u64>,
        data: Bytes,
    },
    Prepend {
        unique: Option<u64>,
        data: Bytes,
    },
    Delete {
        unique: Option<u64>,
    },
    Touch {
        expiry: i64,
    },
    /// `initial`: the value and expiry of a key that is missing; none: a missing key is NotFound.
    Add64 {
        unique: Option<u64>,
        delta: u64,
        down: bool,
        initial: Option<Initial>,
        /// The new expiry, also of a key that was missing; none: it stays.
        touch: Option<i64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initial {
    pub value: u64,
    pub expiry: i64,
}

/// A request of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub space: SpaceNumber,
    /// The space it was first sent in; a retry keeps it.
    pub first_space: SpaceNumber,
    pub id: RequestId,
    /// The gateway has an answer to every request below: their ids need not be remembered.
    pub lowest_open: u64,
    pub hash: KeyHash,
    pub key: Bytes,
    pub operation: Operation,
    /// Answer before the replicas did (`-As`, `-Ad`): outside promise 1.
    pub early: bool,
}

/// What a write came to. Remembered by id on all owners until the gateway has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done; the version's clock, which is the cas unique.
    Done { clock: u64 },
    /// Done, and this is the new number, and for how many seconds more it will be there; none: for ever.
    Number { clock: u64, number: u64, ttl: Option<u32> },
    /// Done, and this is the value (get and touch).
    Value { clock: u64, flags: u32, ttl: Option<u32>, data: Bytes },
    /// Done, and these are the flags of the value (touch).
    Touched { clock: u64, flags: u32 },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Reply(Reply),
    /// No such key.
    Missing,
    /// `add` of a key that is there, `replace`, `append`, `prepend` of one that is not.
    NotStored,
    /// The version is another one.
    Exists,
    NotNumeric,
    /// An append or prepend would exceed the limit on values.
    TooLarge,
    /// Sent to the wrong server, or with an old space. The newer space comes before this answer on the same
    /// connection if the server has one.
    WrongSpace {
        newest: SpaceNumber,
    },
    /// Not now, and nothing happened; ask again shortly. Not an error.
    Wait,
    /// It may or may not have been executed, and nobody can tell any more.
    Unknown,
    /// Nothing happened, and asking again will not help now; why, for people.
    Refused {
        reason: Refusal,
    },
}

/// Why a server refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no space left on a server of this key")]
    Full,
    #[error("fewer copies than --min-copies")]
    FewCopies,
    #[error("this gateway was given up by the managers")]
    GatewayExpired,
    #[error("the stored record is damaged")]
    Damaged,
    #[error("an answer to this request was already received")]
    Answered,
    #[error("the key is too long")]
    KeyTooLong,
}

/// A write that carries its request's id and reply along. The data of a value is in the record beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub id: RequestId,
    /// The gateway had all answers below, when it sent the request.
    pub lowest_open: u64,
    pub reply: Reply,
}

/// A record that may not be committed, as settlement lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsettled {
    pub key: StoreKey,
    pub record: Record,
    pub origin: Option<Origin>,
}

/// A remembered request: which key's place, and the reply; none: it may have been done, and nobody can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    pub id: RequestId,
    pub hash: KeyHash,
    pub reply: Option<Reply>,
}

/// How far the answer to a settlement has come: first what is marked, by key, then the ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upto {
    Marked { upto: StoreKey },
    Ids { upto: Option<RequestId> },
}

/// What a server must know to start a replica of the cell: where the others are, and how managers were told to behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recruit {
    /// Memory of another cell is of no use in this one.
    pub cell: CellId,
    pub peers: Vec<SocketAddr>,
    pub unit_micros: u64,
    pub session_timeout_micros: u64,
    pub lease_micros: u64,
    pub keepalive_micros: u64,
    pub connect_retry_limit: u32,
    pub connect_timeout_steps: u32,
    pub clock_interval_micros: u64,
    pub replace_delay_micros: u64,
    pub voter_patience_micros: u64,
}

/// Everything that is said about the store.
// The large ones are the frequent ones: boxing those would cost more than it saves. What is large and rare is boxed, for
// every message is moved as the largest is.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    // Anyone to anyone.
    /// The newest space the sender has.
    NewSpace {
        space: Box<Space>,
    },
    /// The sender has not heard of the space named to it: send it.
    WantSpace {
        above: SpaceNumber,
    },

    // Gateway and server.
    Request(Request),
    Answer {
        seq: u64,
        answer: Answer,
    },

    /// Delete everything that the receiver is primary of in that space and that begins with that. (flush_all)
    Flush {
        space: SpaceNumber,
        id: RequestId,
        lowest_open: u64,
        prefix: Bytes,
    },
    Flushed {
        space: SpaceNumber,
        seq: u64,
    },

    // Primary and the others in A(k). `epoch` is the space in which the sender is primary.
    Replicate {
        epoch: SpaceNumber,
        seq: u64,
        watermark: u64,
        origin: Option<Origin>,
        /// The request of a version in whose place this one is put, and of which nobody can say whether it was done.
        over: Option<RequestId>,
        key: StoreKey,
        record: Record,
    },
    /// All of these are stored (or exceeded), and marked.
    Replicated {
        epoch: SpaceNumber,
        first: u64,
        last: u64,
    },
    /// Not stored: the disk is full. The primary goes on asking, and stamps nothing more for this server's keys.
    ReplicaFull {
        epoch: SpaceNumber,
        seq: u64,
    },
    /// Every frame of this epoch up to `upto` is committed, or was sent again under a later number and acknowledged.
    Watermark {
        epoch: SpaceNumber,
        upto: u64,
    },

    // Reads that one server cannot answer alone.
    /// Are you in this space too?
    Confirm {
        space: SpaceNumber,
        ticket: u64,
    },
    Confirmed {
        space: SpaceNumber,
        ticket: u64,
    },
    /// What is committed for this key?
    AskPrimary {
        space: SpaceNumber,
        ticket: u64,
        key: StoreKey,
    },
    /// Nothing found: ask again later. `unreadable`: a version with that stamp is committed, and the primary cannot read it.
    PrimarySays {
        space: SpaceNumber,
        ticket: u64,
        found: Option<Committed>,
        unreadable: Option<Stamp>,
    },

    // Settlement. (Rule 11)
    /// What do you hold unconfirmed there, and which ids? The answer from that place on.
    Settle {
        space: SpaceNumber,
        ranges: Vec<Range>,
        after: Option<Upto>,
    },
    /// As much of the answer as one message takes; the rest is asked for by its place.
    Settled {
        space: SpaceNumber,
        unsettled: Vec<Unsettled>,
        remembered: Vec<Remembered>,
        lowest_open: Vec<(GatewayId, u64)>,
        /// None: this was the last of it.
        next: Option<Upto>,
    },

    // Copy. (Rule 15)
    /// Do you hold exactly this in the range? The digest is over keys and stamps of values.
    CopyDigest {
        job: SpaceNumber,
        space: SpaceNumber,
        range: Range,
        count: u64,
        digest: u64,
    },
    CopySame {
        job: SpaceNumber,
        range: Range,
    },
    CopyDiffers {
        job: SpaceNumber,
        range: Range,
    },
    /// Make the range equal to this, except keys replicated since the job began, and `pending` ones.
    CopyRecords {
        job: SpaceNumber,
        space: SpaceNumber,
        range: Range,
        records: Vec<(StoreKey, Record)>,
        pending: Vec<StoreKey>,
    },
    CopyStored {
        job: SpaceNumber,
        range: Range,
    },
    /// The receiver could not store it, or is not in that space yet: again later.
    CopyLater {
        job: SpaceNumber,
        range: Range,
    },
    /// What an owner holds in a range, for a full replace: keys and stamps of values.
    CopyHeads {
        job: SpaceNumber,
        range: Range,
        heads: Vec<(StoreKey, Stamp)>,
    },
    /// The receiver of a bucket holds more in its range than it can look at in one step: only up to there.
    CopyNarrow {
        job: SpaceNumber,
        range: Range,
        last: KeyHash,
    },
    /// Ids of committed writes in the range, those after that one, as many as one message takes.
    CopyIds {
        job: SpaceNumber,
        space: SpaceNumber,
        range: Range,
        after: Option<RequestId>,
        remembered: Vec<Remembered>,
        lowest_open: Vec<(GatewayId, u64)>,
    },
    CopyIdsStored {
        job: SpaceNumber,
        range: Range,
        after: Option<RequestId>,
    },

    // Server, gateway and manager.
    Alive(Box<Alive>),
    /// `sent` is the server's; valid for `micros` from then on its clock. `unix_millis`: the cell's time.
    Lease {
        sent: Time,
        micros: u64,
        unix_millis: u64,
    },
    /// A gateway wants an id. `nonce` is random: a repeated wish gets the same id.
    Register {
        nonce: u128,
    },
    /// Of that cluster: another one counts its own.
    Registered {
        nonce: u128,
        gateway: GatewayId,
        cluster: CellId,
    },
    GatewayAlive {
        gateway: GatewayId,
        space: SpaceNumber,
    },
    /// Who the managers of that cluster are and who leads them, as the sender knows.
    Managers {
        cluster: CellId,
        managers: Vec<SocketAddr>,
        master: Option<SocketAddr>,
    },
    /// A manager wants a copy of the store written beside it.
    Backup {
        suffix: String,
    },
    BackedUp {
        suffix: String,
        path: Option<String>,
        error: Option<String>,
    },
    /// The cell wants a replica in the server's process. Said again until there is one.
    Recruit(Recruit),
    /// A manager asks whether the receiver is there, at this moment. `nonce` is another for each question.
    Probe {
        nonce: u64,
    },
    Probed {
        nonce: u64,
    },
    /// The sender will not work with the receiver; why, for people. Final.
    Unwelcome {
        reason: String,
    },
}

impl Message {
    pub fn new_space(space: Space) -> Message {
        Message::NewSpace { space: Box::new(space) }
    }
}

/// What a primary says is committed for a key; `record: None`: nothing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub record: Option<Record>,
    /// No write of the key is under way: all owners should have this.
    pub settled: bool,
}

wire_enum!(Operation {
    1 = Get,
    2 = GetAndTouch { expiry },
    3 = Set { flags, expiry, data },
    4 = Add { flags, expiry, data },
    5 = Replace { flags, expiry, data },
    6 = Cas { unique, flags, expiry, data },
    7 = Append { unique, data },
    8 = Prepend { unique, data },
    9 = Delete { unique },
    10 = Touch { expiry },
    11 = Add64 { unique, delta, down, initial, touch },
});
wire_struct!(Initial { value, expiry });
wire_struct!(Request { space, first_space, id, lowest_open, hash, key, operation, early });
wire_enum!(Reply {
    1 = Done { clock },
    2 = Number { clock, number, ttl },
    3 = Value { clock, flags, ttl, data },
    4 = Touched { clock, flags },
});
wire_enum!(Answer {
    1 = Reply(reply),
    2 = Missing,
    3 = NotStored,
    4 = Exists,
    5 = NotNumeric,
    6 = TooLarge,
    7 = WrongSpace { newest },
    8 = Wait,
    9 = Unknown,
    10 = Refused { reason },
});
wire_enum!(Refusal { 1 = Full, 2 = FewCopies, 3 = GatewayExpired, 4 = Damaged, 5 = Answered, 6 = KeyTooLong });
wire_struct!(Origin { id, lowest_open, reply });
wire_struct!(Unsettled { key, record, origin });
wire_struct!(Remembered { id, hash, reply });
wire_enum!(Upto { 1 = Marked { upto }, 2 = Ids { upto } });

wire_struct!(Recruit {
    cell,
    peers,
    unit_micros,
    session_timeout_micros,
    lease_micros,
    keepalive_micros,
    connect_retry_limit,
    connect_timeout_steps,
    clock_interval_micros,
    replace_delay_micros,
    voter_patience_micros,
});
wire_struct!(Committed { record, settled });
wire_enum!(Message {
    1 = NewSpace { space },
    2 = WantSpace { above },
    3 = Request(request),
    4 = Answer { seq, answer },
    5 = Replicate { epoch, seq, watermark, origin, over, key, record },
    6 = Replicated { epoch, first, last },
    7 = ReplicaFull { epoch, seq },
    8 = Watermark { epoch, upto },
    9 = Confirm { space, ticket },
    10 = Confirmed { space, ticket },
    11 = AskPrimary { space, ticket, key },
    12 = PrimarySays { space, ticket, found, unreadable },
    13 = Settle { space, ranges, after },
    14 = Settled { space, unsettled, remembered, lowest_open, next },
    15 = CopyDigest { job, space, range, count, digest },
    16 = CopySame { job, range },
    17 = CopyDiffers { job, range },
    18 = CopyRecords { job, space, range, records, pending },
    19 = CopyStored { job, range },
    20 = CopyLater { job, range },
    21 = CopyHeads { job, range, heads },
    22 = Alive(alive),
    23 = Lease { sent, micros, unix_millis },
    24 = Register { nonce },
    25 = Registered { nonce, gateway, cluster },
    26 = GatewayAlive { gateway, space },
    27 = Managers { cluster, managers, master },
    28 = Unwelcome { reason },
    29 = Backup { suffix },
    30 = BackedUp { suffix, path, error },
    31 = Flush { space, id, lowest_open, prefix },
    32 = Flushed { space, seq },
    33 = CopyNarrow { job, range, last },
    34 = CopyIds { job, space, range, after, remembered, lowest_open },
    35 = CopyIdsStored { job, range, after },
    36 = Recruit(recruit),
    37 = Probe { nonce },
    38 = Probed { nonce },
});
