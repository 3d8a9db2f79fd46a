//! [`LogEntry`]: what the session layer puts up for agreement.

use crate::application::{SessionId, UnixMillis};
use crate::protocol::{Ask, Label};
use bytes::Bytes;
use kumo_wire::{SHARE_BYTES_MIN, wire_enum};

/// One command of the agreed sequence. `time` is the proposing master's; executing takes the larger of it
/// and the time of the entry before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogEntry {
    Open {
        time: UnixMillis,
        token: u128,
        label: Label,
    },
    /// The fields are those of [`ClientMessage::Request`](crate::ClientMessage::Request).
    Request {
        time: UnixMillis,
        session: SessionId,
        number: u64,
        acknowledged: u64,
        unanswered: Vec<u64>,
        events_seen: u64,
        ask: Ask,
    },
    /// The master has not heard of the session for too long. Void if the session has executed a request
    /// above `seen`: then it lived after the master gave it up.
    Expire {
        time: UnixMillis,
        session: SessionId,
        seen: u64,
    },
    /// A command of the house: of no session, put up by the process that hosts the master. It may be lost
    /// or stand twice in the log; whoever uses it makes its commands so that this does no harm.
    House {
        time: UnixMillis,
        command: Bytes,
    },
}

impl LogEntry {
    /// Room that all but unusual entries fit into, without the bytes of a large command, which are shared.
    pub fn usual_bytes(&self) -> usize {
        match self {
            LogEntry::Request { ask: Ask::Command(command), .. } if command.len() < SHARE_BYTES_MIN => {
                HEAD_BYTES + command.len()
            }
            LogEntry::House { command, .. } => HEAD_BYTES + command.len(),
            LogEntry::Open { .. } | LogEntry::Request { .. } | LogEntry::Expire { .. } => HEAD_BYTES,
        }
    }
}

/// What an entry has before its command.
const HEAD_BYTES: usize = 64;

wire_enum!(LogEntry {
    1 = Open { time, token, label },
    2 = Request { time, session, number, acknowledged, unanswered, events_seen, ask },
    3 = Expire { time, session, seen },
    4 = House { time, command },
});
