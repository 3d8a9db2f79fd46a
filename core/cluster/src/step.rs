//! The shapes of the three roles seen from outside: what happens to a server, a gateway and a manager, and what
//! they want done.

use crate::control::{ControlAnswer, ControlRequest};
use crate::{
    Answer, Broken, Early, Incarnation, KeyHash, Limits, Message, Objection, Operation, Recruit, Seat,
    ServerId, Space, SpaceNumber,
};
use bytes::Bytes;
use kumo_paxos::{CellId, Change, ReplicaState, Role, Time};
use kumo_session::{ConnectionId, UnixMillis};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// What happens to a server.
// The large one, a message, is also the most frequent: boxing it would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum ServerInput {
    /// The deadline has passed.
    Timeout,
    /// People's clock, for stamps and nothing else; once per batch of inputs is enough.
    Wall(UnixMillis),
    /// There is a link with that life of another server, good for both directions.
    ServerUp(ServerId),
    /// It is gone, and what was under way on it may be lost.
    ServerDown(ServerId),
    Server(ServerId, Message),
    /// A gateway's connection; never used again once it is down.
    Gateway(ConnectionId, Message),
    GatewayDown(ConnectionId),
    ManagerUp(SocketAddr),
    ManagerDown(SocketAddr),
    Manager(SocketAddr, Message),
    /// A copy of the store was written, or could not be.
    BackedUp {
        suffix: String,
        result: Result<String, String>,
    },
}

/// What a server wants done, in order.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEffect {
    /// Over the link with that server; dropped when there is none.
    Server(ServerId, Message),
    Gateway(ConnectionId, Message),
    Manager(SocketAddr, Message),
    /// Keep a link with that server, and make it again whenever it breaks.
    Dial(ServerId),
    /// Give it up.
    Undial(ServerId),
    /// Keep this on disk, before any later effect is performed. It names this life, which is therefore on record
    /// before it acts: the next one is its successor.
    KeepSpace(Space),
    /// Managers to keep a connection with, besides those this server was started with; with no others.
    Managers(Vec<SocketAddr>),
    /// Run a replica of the cell in this process, unless one of that cell runs.
    Recruit(Recruit),
    /// Write a copy of the store beside it while serving.
    Backup {
        suffix: String,
    },
    Note(ServerNote),
    /// This life is over, the process need not be: drop all links and start a new core with a new
    /// incarnation on the same store, with this one as the life before.
    Reborn {
        reason: String,
    },
    /// This process must end; why, for people.
    Exit(String),
}

/// A change of a server's state worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerNote {
    Adopted {
        space: Space,
    },
    Settling {
        arcs: usize,
    },
    SettlementDone {
        arcs: usize,
        micros: u64,
    },
    CopyBegan {
        copies: u64,
    },
    CopyDone {
        records: u64,
        bytes: u64,
    },
    Dropped {
        records: u64,
    },
    StoreFault {
        what: String,
    },
    /// Whether the disk has no space left.
    Full(bool),
    /// A server was given up before it had acknowledged a write: that has a copy less.
    Unreplicated {
        to: SocketAddr,
        key: Bytes,
        record: crate::Record,
    },
    /// So many more than those that were noted by this change of the space; a write counts for each server.
    UnreplicatedMore {
        writes: u64,
    },
    /// Managers of another cell handed in a space, and it was ignored.
    Stranger {
        cluster: CellId,
    },
}

/// What a server is told at its start.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    pub id: ServerId,
    /// The lives before on this store, if it was found whole: see [`Alive::previous`](crate::Alive::previous).
    pub previous: Vec<Incarnation>,
    /// The cluster its store belongs to.
    pub cluster: Option<CellId>,
    /// The newest space it had adopted.
    pub space: Option<Space>,
    /// Least acknowledgers of a write, this server included.
    pub copies_min: usize,
    /// Answered early whatever the request says (`-As`, `-Ad`).
    pub early: Early,
    /// Longest value that append and prepend may make.
    pub value_bytes_max: usize,
    /// A collected tombstone is at least this old.
    pub tombstone_micros_min: u64,
    /// Five signs of life in it; more where leases or managers want them oftener.
    pub keepalive_micros: u64,
    /// A replace gives way to clients. Not in a model whose time stands still.
    pub courteous: bool,
    /// Where a replica of the cell could run in this process.
    pub seat: Option<Seat>,
    pub limits: Limits,
    pub broken: Broken,
}

/// What happens to a gateway (or to a native client, which is one without a memcached port).
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum GatewayInput {
    Timeout,
    ManagerUp(SocketAddr),
    ManagerDown(SocketAddr),
    Manager(SocketAddr, Message),
    ServerUp(ServerId),
    ServerDown(ServerId),
    Server(ServerId, Message),
    /// An application's call. `ticket` is the edge's own number for it, free again once it is answered.
    Call {
        ticket: u64,
        hash: KeyHash,
        key: Bytes,
        operation: Operation,
    },
    /// Delete everything whose key begins with that. Answered as a call.
    Flush {
        ticket: u64,
        prefix: Bytes,
    },
}

/// What a gateway wants done, in order.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayEffect {
    Manager(SocketAddr, Message),
    Server(ServerId, Message),
    Dial(ServerId),
    Undial(ServerId),
    Managers(Vec<SocketAddr>),
    /// A call is answered, exactly once per ticket.
    Done {
        ticket: u64,
        result: Result<Answer, GatewayError>,
    },
    Note(GatewayNote),
    /// This process must end; why, for people.
    Exit(String),
}

/// Why a call has no answer. The words are what a memcached client reads after SERVER_ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    #[error("timed out, the outcome is unknown")]
    TimedOut,
    #[error("no server of this key answers")]
    Unreachable,
    #[error("all servers of this key are lost")]
    AllLost,
    #[error("no server is attached")]
    NoServers,
    #[error("no manager answers")]
    NoManagers,
    #[error("the outcome is unknown")]
    Unknown,
    #[error("{0}")]
    Refused(#[from] crate::Refusal),
    #[error("too many requests under way")]
    Busy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayNote {
    Adopted {
        space: Space,
    },
    Registered {
        gateway: crate::GatewayId,
    },
    /// Given up by the managers; a new id is asked for.
    Expired {
        gateway: crate::GatewayId,
    },
    /// A space of another cell was handed in, and ignored.
    Stranger {
        from: SocketAddr,
        cluster: CellId,
    },
    /// A request failed for good, with what it wanted: the binary log keeps it, so that it can be replayed.
    Failed {
        key: Bytes,
        operation: Operation,
        error: GatewayError,
    },
}

/// What a gateway is told at its start.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Random: names the wish for an id.
    pub nonce: u128,
    /// Known to an earlier life or named by the operator: managers of another cell are refused.
    pub cluster: Option<CellId>,
    pub get_retry_max: u32,
    pub set_retry_max: u32,
    pub delete_retry_max: u32,
    /// Errors after which the managers are asked for the newest space.
    pub renew_threshold: u32,
    /// One try's patience.
    pub try_micros: u64,
    /// All tries together.
    pub request_micros: u64,
    /// Asked for with every request (`-As`, `-Ad`).
    pub early: Early,
    /// Read at any owner in turn.
    pub spread_reads: bool,
    /// Between signs of life, at most: managers may want them oftener.
    pub keepalive_micros: u64,
    /// Gateways in this process, itself included: what one process may hold is shared evenly among them.
    pub workers: usize,
}

/// What happens to a manager, which stands beside the replica of the cell in its process.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum ManagerInput {
    Timeout,
    Wall(UnixMillis),
    /// How the replica stands; after each of its steps that changed anything of it.
    Cell(CellView),
    /// A server's, gateway's or tool's connection.
    Up(ConnectionId),
    Down(ConnectionId),
    From(ConnectionId, Message),
    Control(ConnectionId, ControlRequest),
}

/// What a manager must know of its replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellView {
    pub cluster: CellId,
    pub master: Option<SocketAddr>,
    /// This node is the master.
    pub leads: bool,
    /// Until when on this node's clock it surely is; the end of its lease.
    pub lease_end: Option<Time>,
    pub members: Vec<SocketAddr>,
    /// The same with what each is for and how it does; looked at by the master alone.
    pub replicas: Vec<ReplicaView>,
}

/// A member of the cell as a replica sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaView {
    pub address: SocketAddr,
    pub role: Role,
    pub state: ReplicaState,
}

/// What a manager wants done, in order.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagerEffect {
    Send(ConnectionId, Message),
    Answer(ConnectionId, ControlAnswer),
    Hangup(ConnectionId),
    /// Put this command up for agreement; it may get lost, and be executed late.
    Propose(Bytes),
    /// Try to change the cell's members; what came of it shows in a later view.
    Change(Change),
    Note(ManagerNote),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagerNote {
    Joined {
        server: ServerId,
    },
    Left {
        server: ServerId,
    },
    /// Its store belongs to another cluster, and this one has no members: an operator has to say what that means.
    Foreign {
        server: ServerId,
    },
    FaultProposed {
        server: ServerId,
    },
    /// Auto-replace would make the first ring, without a copy, of stores that do not hold the same: an operator has to
    /// say which counts. Once a term.
    StoresDiffer,
    /// Auto-replace would make a restored store equal to a ring without its records: an operator has to want that.
    Restored {
        server: ServerId,
    },
    /// Auto-replace does not bring it in: an operator took it out, or an earlier life of its store.
    TakenOut {
        server: ServerId,
    },
    /// What auto-replace put up was void, for a reason that it had not been in this term.
    AutoRefused {
        objection: Objection,
    },
    /// Auto-replace gives up a replace that cannot end, since these are lost.
    Hopeless {
        lost: BTreeSet<SocketAddr>,
    },
    Space {
        space: Space,
    },
    /// An operator gave up the keys whose servers were all lost: a replace goes on without them.
    LossAccepted(GivenUp),
    /// The cell was recovered from a replica that knew no space after `number`, and that server has a later one: nothing
    /// is done any more, since the servers would drop what they have since.
    Forgotten {
        server: SocketAddr,
        knows: SpaceNumber,
        number: SpaceNumber,
    },
    Refused {
        address: SocketAddr,
        reason: String,
    },
    /// A server is to run a replica of the cell there.
    Recruiting {
        server: SocketAddr,
        voter: SocketAddr,
    },
    /// A replica is not wanted there any more.
    Dismissing {
        voter: SocketAddr,
    },
    Changing {
        change: Change,
    },
}

/// The keys that an accepted loss gives up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// In the space with which that began.
    pub number: SpaceNumber,
    /// In 2^-32 parts of the ring.
    pub parts: u64,
    /// Their servers. What those that came back since have of them is dropped.
    pub servers: Vec<SocketAddr>,
    /// Those that were the last to have them, of each key one: they alone have all that was acknowledged.
    pub lost_last: Vec<SocketAddr>,
}

/// What a manager is told at its start.
#[derive(Clone, Debug)]
pub struct ManagerSettings {
    /// Random: names this process, so that it knows its own terms from those of an earlier one.
    pub life: u128,
    /// How long a server may read on its own after a sign of life.
    pub lease_micros: u64,
    /// Below 2 s it makes the time shorter, in the same measure and down to 1.5 s, after which a silent server is lost.
    pub keepalive_micros: u64,
    /// A server that says nothing for so many tries of so many steps is lost.
    pub connect_retry_limit: u32,
    pub connect_timeout_steps: u32,
    pub clock_interval_micros: u64,
    /// Quiet time before auto-replace acts.
    pub replace_delay_micros: u64,
    /// Whether auto-replace is on in a cell that never had a master.
    pub auto_replace: bool,
    /// Told to the servers that are recruited: the cell's heartbeat, and how long a session lives.
    pub unit_micros: u64,
    pub session_timeout_micros: u64,
    /// This manager remembers its votes after a restart.
    pub durable: bool,
    /// A recruited voter that was down for so long is lost for good, one not needed for so long is let go.
    pub voter_patience_micros: u64,
    pub broken: Broken,
}
