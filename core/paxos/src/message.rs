//! What replicas say to each other. The names are the seed's: collect, last, begin, accept, success, ack.
//!
//! Every message may be lost, repeated, delayed and reordered. Each names the sender's and the
//! addressee's incarnation, the cell and its generation ([`Envelope`]); one that does not fit is dropped.

use crate::configuration::{Genesis, Schedule};
use crate::identity::{CellId, Incarnation, Instance, Round, Time};
use crate::value::{DataName, Value};
use bytes::Bytes;
use kumo_wire::{wire_enum, wire_struct};
use std::net::SocketAddr;

/// A message with its two ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Envelope {
    pub cell: CellId,
    pub generation: u32,
    pub from: SocketAddr,
    pub sender: Incarnation,
    pub addressee: Incarnation,
    /// Promises and accepts that the sender has kept in this life so far: a later life with the same incarnation has no
    /// fewer, or it has lost some. Zero where it does not matter.
    pub kept: u64,
    pub message: Message,
}

/// | number | message      | seed's name | answered by         |
/// |      1 | Collect      | collect     | Last, Refuse        |
/// |      2 | Last         | last        |                     |
/// |      3 | Begin        | begin       | Accept, Refuse      |
/// |      4 | Accept       | accept      |                     |
/// |      5 | Success      | success     |                     |
/// |      6 | Refuse       |             |                     |
/// |      7 | Heartbeat    |             | Grant (to a master) |
/// |      8 | Grant        | ack         |                     |
/// |      9 | CatchUp      | catch-up    | Decided, TooFar     |
/// |     10 | Decided      |             |                     |
/// |     11 | TooFar       |             |                     |
/// |     12 | SnapshotAsk  | snapshot    | SnapshotPart        |
/// |     13 | SnapshotPart |             |                     |
/// |     14 | Offer        | validation  | Held                |
/// |     15 | Held         |             |                     |
/// |     16 | Fetch        |             | Chunk, TooFar       |
/// |     17 | Chunk        | outbound    |                     |
/// |     18 | Ask          |             | New                 |
/// |     19 | New          |             |                     |
/// |     20 | Formed       |             |                     |
/// |     21 | Over         |             |                     |
/// |     22 | Release      |             |                     |
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Promise this round, and report what you accepted from instance `from` on.
    Collect {
        round: Round,
        from: Instance,
    },
    /// The promise. `executed`: everything up to there is decided and executed here, nothing of it is reported.
    /// Reports `from` up to below `next` (to the end when `None`); the proposer collects the rest.
    Last {
        round: Round,
        executed: Instance,
        from: Instance,
        next: Option<Instance>,
        reports: Vec<Report>,
    },
    /// Accept these. All instances up to `success` are decided. `sent` is the master's own time, for its lease.
    Begin {
        round: Round,
        sent: Time,
        success: Instance,
        proposals: Vec<Proposal>,
    },
    /// `granted_micros`: for how long the answerer will answer no other round's collect.
    Accept {
        round: Round,
        sent: Time,
        granted_micros: u64,
        executed: Instance,
        instances: Vec<Instance>,
    },
    /// All instances up to `upto` are decided; what was accepted in this round there is the decision.
    Success {
        round: Round,
        upto: Instance,
    },
    /// A stronger round is promised here.
    Refuse {
        refused: Round,
        promised: Round,
    },
    Heartbeat(Heartbeat),
    /// Answers a master's heartbeat, and grants its lease as an accept does.
    Grant {
        round: Round,
        sent: Time,
        granted_micros: u64,
        executed: Instance,
    },
    /// Send me what was decided from here on.
    CatchUp {
        from: Instance,
    },
    Decided {
        entries: Vec<Proposal>,
        executed: Instance,
    },
    /// Entries below `first`, or the bytes that were asked for, are gone here: take a snapshot.
    TooFar {
        first: Instance,
    },
    /// `at`: the snapshot being read, `None` to start one. `part` counts from 0.
    SnapshotAsk {
        at: Option<Instance>,
        part: u64,
    },
    SnapshotPart {
        position: Position,
        part: u64,
        last: bool,
        bytes: Bytes,
    },
    /// A large value is here to fetch.
    Offer {
        name: DataName,
        length: u32,
    },
    Held {
        name: DataName,
    },
    Fetch {
        name: DataName,
        offset: u32,
    },
    Chunk {
        name: DataName,
        length: u32,
        offset: u32,
        bytes: Bytes,
    },
    /// Forming: are you new? Then obey only me.
    Ask {
        nonce: u64,
    },
    New {
        nonce: u64,
    },
    /// The cell is formed: entry 0.
    Formed {
        nonce: u64,
        genesis: Genesis,
    },
    /// The cell went on without this incarnation, in the generation or configuration named by the envelope.
    Over {
        generation: u32,
    },
    /// This round is led no more and its lease is used no more: grants given to it are void.
    Release {
        round: Round,
    },
}

/// What an acceptor knows of one instance: accepted in `round`, or decided when `None`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Report {
    pub instance: Instance,
    pub round: Option<Round>,
    pub value: Value,
}

/// An instance and its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Proposal {
    pub instance: Instance,
    pub value: Value,
}

/// Sent to every peer each unit. Everything in it is a hint, except `round` and `success` of a master,
/// which are a success message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Heartbeat {
    /// Milliseconds since this replica started or last stepped down.
    pub age_ms: u64,
    /// Whom this replica names as master: the eldest it can reach.
    pub names: Option<Incarnation>,
    /// Peers heard from lately.
    pub hears: Vec<Incarnation>,
    /// May vote: not a learner.
    pub votes: bool,
    /// The round this replica leads, when it does.
    pub leads: Option<Round>,
    pub promised: Round,
    pub sent: Time,
    pub success: Instance,
    pub executed: Instance,
    /// The oldest entry still here for catch-up.
    pub first: Instance,
    pub load: u32,
    /// The state digest after the last instance that is a multiple of the digest interval.
    pub digest: (Instance, u64),
    /// Drawn for this link; the peer echoes it, which shows that it is alive and not a replay.
    pub nonce: u64,
    pub echo: u64,
    /// The last instance whose execution panicked here, told also after the sender has got past it.
    pub panicked: Option<Instance>,
    /// Asks to follow as an extension.
    pub extension: bool,
    /// The most promises and accepts that the addressee's incarnation ever said it had kept.
    pub yours: u64,
}

impl Heartbeat {
    /// Its sender could not execute an entry, and has not got past it.
    pub fn is_halted(&self) -> bool {
        self.panicked.is_some_and(|instance| instance > self.executed)
    }
}

/// Everything agreement must know to go on after `executed`: what a snapshot carries besides the application.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub cell: CellId,
    pub generation: u32,
    pub executed: Instance,
    pub schedule: Schedule,
    /// The state digest after `executed`.
    pub digest: u64,
}

/// The first words on a connection, both ways. Only a valid hello counts as a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// The cell it belongs to; zero when it belongs to none yet.
    pub cell: CellId,
    pub generation: u32,
    pub side: Side,
    /// Where this process is reached; for a client, where it connects from.
    pub address: SocketAddr,
    /// Zero for a client.
    pub incarnation: Incarnation,
}

/// What is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Replica,
    Extension,
    Client,
    /// Of the store: a server, a gateway, an operator's tool.
    Server,
    Gateway,
    Tool,
}

/// "kumocell" as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"kumocell");
/// Of the messages here, in the session protocol and in the store's, and of the commands in them.
pub const VERSION: u32 = 3;

/// The largest frame between replicas: parts are cut well below it.
pub const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Payload bytes put into one message that may hold many entries (last, begin, decided).
pub const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// Bytes in one part of a snapshot.
pub const CHUNK_BYTES: usize = 256 * 1024;

wire_struct!(Envelope { cell, generation, from, sender, addressee, kept, message });
wire_struct!(Report { instance, round, value });
wire_struct!(Proposal { instance, value });
wire_struct!(Position { cell, generation, executed, schedule, digest });
wire_struct!(Hello { magic, version, cell, generation, side, address, incarnation });
wire_enum!(Side { 1 = Replica, 2 = Extension, 3 = Client, 4 = Server, 5 = Gateway, 6 = Tool });
wire_struct!(Heartbeat {
    age_ms,
    names,
    hears,
    votes,
    leads,
    promised,
    sent,
    success,
    executed,
    first,
    load,
    digest,
    nonce,
    echo,
    panicked,
    extension,
    yours,
});
wire_enum!(Message {
    1 = Collect { round, from },
    2 = Last { round, executed, from, next, reports },
    3 = Begin { round, sent, success, proposals },
    4 = Accept { round, sent, granted_micros, executed, instances },
    5 = Success { round, upto },
    6 = Refuse { refused, promised },
    7 = Heartbeat(heartbeat),
    8 = Grant { round, sent, granted_micros, executed },
    9 = CatchUp { from },
    10 = Decided { entries, executed },
    11 = TooFar { first },
    12 = SnapshotAsk { at, part },
    13 = SnapshotPart { position, part, last, bytes },
    14 = Offer { name, length },
    15 = Held { name },
    16 = Fetch { name, offset },
    17 = Chunk { name, length, offset, bytes },
    18 = Ask { nonce },
    19 = New { nonce },
    20 = Formed { nonce, genesis },
    21 = Over { generation },
    22 = Release { round },
});
