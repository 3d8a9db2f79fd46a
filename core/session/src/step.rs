//! The shapes of the two machines of this crate seen from outside: a node ([`Input`], [`Effect`]) and a
//! client's session ([`ClientInput`], [`ClientEffect`]).

use crate::application::{SessionId, UnixMillis};
use crate::protocol::{CellMessage, ClientMessage, EndReason, Label, SessionInfo};
use bytes::Bytes;
use kumo_paxos::{Change, Envelope, ExitReason, Hello, Note, Record, Status};
use std::net::SocketAddr;

/// A client's connection to this node, numbered by the edge; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What happens to a node.
// The large one, a peer's message, is also the most frequent: boxing it would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Input {
    /// The deadline has passed.
    Timeout,
    /// What time people have; once per batch of inputs is enough.
    Wall(UnixMillis),
    /// This node dialled a peer, and it answered with its hello.
    PeerUp(Hello),
    /// The link this node dialled to that address is gone.
    PeerDown(SocketAddr),
    Peer(Envelope),
    ClientUp(ConnectionId),
    ClientDown(ConnectionId),
    Client(ConnectionId, ClientMessage),
    /// The process that hosts this node wants a command executed, in no session: proposed if this node is
    /// the master, dropped otherwise. See [`SessionId::HOUSE`].
    House(Bytes),
    /// The process that hosts this node wants the members changed: tried if no operator's change is under way,
    /// and unanswered. What came of it shows in the configuration.
    HouseChange(Change),
    /// A clean end is wanted: hand mastership on.
    Stop,
}

/// What a node wants done, in order. Everything a step asks to [`Persist`](Effect::Persist) must be on disk before
/// any other effect of that or a later step is performed.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Over the link this node dialled to that address; dropped when there is none.
    Peer(SocketAddr, Envelope),
    Client(ConnectionId, CellMessage),
    /// Close after what was sent to it.
    Hangup(ConnectionId),
    /// Keep a link to that peer, and dial again whenever it breaks.
    Dial(SocketAddr),
    /// Give the link to that peer up.
    Undial(SocketAddr),
    Persist(Record),
    /// A durable node should write a snapshot (see `Cell::snapshot`) and drop the log before it.
    WriteSnapshot,
    Note(NodeNote),
    Exit(ExitReason),
}

/// A change of state worth a line in the text log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeNote {
    Paxos(Note),
    SessionExpired(SessionId),
    /// Executing that instance panicked here; this node waits for a snapshot from one that got past it.
    Panicked {
        instance: u64,
    },
    /// A snapshot from a peer was taken over.
    Restored {
        from: SocketAddr,
        bytes: u64,
    },
    /// A snapshot from a peer could not be read.
    SnapshotMalformed {
        from: SocketAddr,
    },
    /// A client asked for something that no state allows, and was told so.
    RequestRefused {
        connection: ConnectionId,
        reason: String,
    },
    /// A client broke a rule of the protocol.
    ClientRefused {
        connection: ConnectionId,
        reason: String,
    },
}

/// What a node is told at its start, besides [`kumo_paxos::Settings`].
#[derive(Clone, Copy, Debug)]
pub struct CellSettings {
    /// How long a session lives without renewal.
    pub session_timeout_micros: u64,
    pub sessions_max: usize,
}

/// What happens to a client's session.
#[derive(Clone, Debug)]
pub enum ClientInput {
    Timeout,
    /// A connection the client asked for is up, hellos exchanged.
    Connected(SocketAddr),
    /// It is gone, or could not be made.
    Disconnected(SocketAddr),
    Message(SocketAddr, CellMessage),
    /// The application's calls. `ticket` is its own number for the call, never used twice.
    Command {
        ticket: u64,
        command: Bytes,
    },
    Read {
        ticket: u64,
        query: Bytes,
    },
    /// The next events after those already handed out.
    Events {
        ticket: u64,
    },
    /// Gives up a waiting command. The command's own ticket is answered, with [`CallError::Cancelled`] or,
    /// if it was quicker, with its reply.
    Cancel {
        ticket: u64,
    },
    Kill {
        ticket: u64,
        session: SessionId,
    },
    Close {
        ticket: u64,
    },
    Status {
        ticket: u64,
    },
    Sessions {
        ticket: u64,
    },
    /// `at`: the member to ask; the master when `None`.
    Change {
        ticket: u64,
        change: Change,
        at: Option<SocketAddr>,
    },
    Transfer {
        ticket: u64,
    },
    Snapshot {
        ticket: u64,
    },
}

/// What a client's session wants done.
#[derive(Clone, Debug)]
pub enum ClientEffect {
    /// Connect (and exchange hellos); answered by Connected or Disconnected.
    Connect(SocketAddr),
    Disconnect(SocketAddr),
    Send(SocketAddr, ClientMessage),
    /// A call is answered, exactly once per ticket.
    Done(u64, Result<Answer, CallError>),
    /// How the session stands has changed.
    State(SessionState),
}

/// What a call gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Body(Bytes),
    /// Events with the number of the first, and how many were dropped before it.
    Events {
        omitted: u64,
        first: u64,
        events: Vec<Bytes>,
    },
    Done,
    Status {
        status: Status,
        session_timeout_ms: u64,
    },
    Sessions(Vec<SessionInfo>),
}

/// How a client's session stands, as far as the client can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Being opened.
    Opening,
    Safe,
    /// Not renewed for so long that the cell may be without a majority; it is not lost yet.
    Jeopardy,
    /// Over, or so long without renewal that it may be.
    Lost,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("session ended: {0:?}")]
    Ended(EndReason),
    #[error("session lost: no renewal within its timeout")]
    Lost,
    #[error("cancelled")]
    Cancelled,
    #[error("no member answers")]
    Unreachable,
    #[error("the cell has no master")]
    NoMaster,
    #[error("{0}")]
    Refused(String),
    #[error("no such session")]
    NoSession,
    #[error("too many calls under way")]
    Busy,
}

/// What a client's session is told at its start.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The members to try first; more are learned from them.
    pub members: Vec<SocketAddr>,
    /// Random bits: the session's token, and the order in which members are tried.
    pub token: u128,
    /// Reads are linear, at the master; otherwise at the least-loaded replica, never older than this
    /// session's own updates.
    pub sync: bool,
    pub label: Label,
    /// Without an answer this long a request is sent again.
    pub resend_micros: u64,
    /// Opening, and calls that need no session, give up after this long without a master.
    pub patience_micros: u64,
    /// Open a session; false for operators' questions alone.
    pub session: bool,
}
