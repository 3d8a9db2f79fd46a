//! [`LogEntry`]: what the session layer puts up for agreement.

use crate::application::{SessionId, UnixMillis};
use crate::protocol::{Ask, Label};
use kumo_wire::wire_enum;

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
}

wire_enum!(LogEntry {
    1 = Open { time, token, label },
    2 = Request { time, session, number, acknowledged, unanswered, events_seen, ask },
    3 = Expire { time, session, seen },
});
