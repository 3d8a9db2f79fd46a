//! What clients and the cell say to each other, after hellos ([`kumo_paxos::Hello`]) in both directions.

use crate::application::{SessionId, UnixMillis};
use bytes::Bytes;
use kumo_paxos::{Change, Instance, Status};
use kumo_wire::{wire_enum, wire_struct};
use std::net::SocketAddr;

/// From a client to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// Open a session. `token` is drawn at random by the client: a repeated open finds the same session, and
    /// who knows the token may attach to it.
    Open {
        token: u128,
        label: Label,
    },
    /// This connection speaks for that session (after a reconnect). Requests on other sessions are refused.
    Attach {
        session: SessionId,
        token: u128,
    },
    /// A numbered request. Numbers of a session start at 1 and are consecutive. Replies up to `acknowledged`, but
    /// for those in `unanswered` (ascending), were received and need not be remembered (a lock that is waited for must
    /// not keep the replies after it); events up to `events_seen` need not be kept.
    Request {
        session: SessionId,
        number: u64,
        acknowledged: u64,
        unanswered: Vec<u64>,
        events_seen: u64,
        ask: Ask,
    },
    /// Keep the session alive. `sent` is the client's own time, returned as it is.
    Renew {
        session: SessionId,
        sent: u64,
    },
    /// Answer from a state not older than `after`; `linear`: from the master under its lease.
    Read {
        session: SessionId,
        tag: u64,
        after: Instance,
        linear: bool,
        query: Bytes,
    },
    /// Answer when there are events numbered above `after`, from a state not older than `executed`.
    Events {
        session: SessionId,
        tag: u64,
        after: u64,
        executed: Instance,
    },
    /// Who is master?
    Who,
    /// Operators' questions and orders; they need no session.
    Status {
        tag: u64,
    },
    Sessions {
        tag: u64,
    },
    Change {
        tag: u64,
        change: Change,
    },
    /// The master steps down.
    Transfer {
        tag: u64,
    },
    /// A durable replica writes a snapshot now (the seed's PaxosSessionSnapshot).
    Snapshot {
        tag: u64,
    },
}

/// What a numbered request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The application's own command.
    Command(Bytes),
    /// Give up the parked request of that number. Both are answered: the target with
    /// [`Reply::Cancelled`] unless it was answered before.
    Cancel { target: u64 },
    /// End this session.
    Close,
    /// End another session (operators).
    Kill { session: SessionId },
}

/// From a replica to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellMessage {
    /// `instance`: the session is known from there on; `timeout_ms`: how long it lives without renewal.
    Opened {
        token: u128,
        session: SessionId,
        instance: Instance,
        timeout_ms: u64,
    },
    Attached {
        session: SessionId,
    },
    /// `instance`: where the answering entry was executed; later reads name it as `after`.
    Reply {
        session: SessionId,
        number: u64,
        instance: Instance,
        reply: Reply,
    },
    Renewed {
        session: SessionId,
        sent: u64,
    },
    Answer {
        session: SessionId,
        tag: u64,
        instance: Instance,
        body: Bytes,
    },
    /// `first` is the number of the first event here; `omitted` of those asked for were dropped before it.
    Events {
        session: SessionId,
        tag: u64,
        omitted: u64,
        first: u64,
        events: Vec<Bytes>,
    },
    /// Sent at hello, on every change, and instead of an answer by a replica that cannot give one.
    Master {
        master: Option<SocketAddr>,
        members: Vec<SocketAddr>,
        least_loaded: Option<SocketAddr>,
    },
    /// The session is over or never was: nothing more will be executed for it.
    Ended {
        session: SessionId,
        reason: EndReason,
    },
    Status {
        tag: u64,
        status: Status,
        session_timeout_ms: u64,
    },
    Sessions {
        tag: u64,
        sessions: Vec<SessionInfo>,
    },
    /// The answer to Change, Transfer and Snapshot; an error is a sentence for the operator.
    Done {
        tag: u64,
        error: Option<String>,
    },
    /// The connection is about to be closed, and why.
    Refused {
        reason: String,
    },
}

/// The agreed answer to a numbered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The application's.
    Body(Bytes),
    /// The request was cancelled while parked; or, for the cancel itself: too late or done.
    Cancelled,
    /// For Close and Kill.
    Closed,
    /// Kill: no such session.
    NoSession,
    /// The request or a quota of the session layer was exceeded; nothing was executed.
    Refused(String),
}

/// Why a session is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Not renewed in time.
    Expired,
    Closed,
    Killed,
    /// The cell does not know it, or the token is not its token.
    Unknown,
}

/// Who opened a session: the seed's (address, process id, number), for people to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    pub address: String,
    pub pid: u32,
    pub number: i64,
}

/// A session as `kumo session ls` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    pub session: SessionId,
    pub label: Label,
    pub opened: UnixMillis,
    /// Requests executed.
    pub requests: u64,
    pub parked: u64,
    /// Milliseconds since the master last heard of it.
    pub silent_ms: u64,
}

/// The largest frame a client may send: the largest out-of-band command with its envelope.
pub const CLIENT_FRAME_BYTES_MAX: usize = kumo_paxos::OUT_OF_BAND_MAX + 4096;

wire_enum!(ClientMessage {
    1 = Open { token, label },
    2 = Attach { session, token },
    3 = Request { session, number, acknowledged, unanswered, events_seen, ask },
    4 = Renew { session, sent },
    5 = Read { session, tag, after, linear, query },
    6 = Events { session, tag, after, executed },
    7 = Who,
    8 = Status { tag },
    9 = Sessions { tag },
    10 = Change { tag, change },
    11 = Transfer { tag },
    12 = Snapshot { tag },
});
wire_enum!(Ask { 1 = Command(command), 2 = Cancel { target }, 3 = Close, 4 = Kill { session } });
wire_enum!(CellMessage {
    1 = Opened { token, session, instance, timeout_ms },
    2 = Attached { session },
    3 = Reply { session, number, instance, reply },
    4 = Renewed { session, sent },
    5 = Answer { session, tag, instance, body },
    6 = Events { session, tag, omitted, first, events },
    7 = Master { master, members, least_loaded },
    8 = Ended { session, reason },
    9 = Status { tag, status, session_timeout_ms },
    10 = Sessions { tag, sessions },
    11 = Done { tag, error },
    12 = Refused { reason },
});
wire_enum!(Reply { 1 = Body(body), 2 = Cancelled, 3 = Closed, 4 = NoSession, 5 = Refused(reason) });
wire_enum!(EndReason { 1 = Expired, 2 = Closed, 3 = Killed, 4 = Unknown });
wire_struct!(SessionInfo { session, label, opened, requests, parked, silent_ms });

impl kumo_wire::Wire for Label {
    fn encode(&self, out: &mut kumo_wire::Writer) {
        self.address.encode(out);
        self.pid.encode(out);
        self.number.encode(out);
    }
    fn decode(input: &mut kumo_wire::Reader) -> Result<Self, kumo_wire::Malformed> {
        use kumo_wire::Wire;
        let label =
            Label { address: Wire::decode(input)?, pid: Wire::decode(input)?, number: Wire::decode(input)? };
        if label.address.len() > LABEL_BYTES_MAX {
            return Err(kumo_wire::Malformed::Length(label.address.len() as u64));
        }
        Ok(label)
    }
}

/// A label's address is shown, not used: no reason for it to be long.
const LABEL_BYTES_MAX: usize = 256;
