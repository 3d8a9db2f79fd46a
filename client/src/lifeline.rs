//! [`Lifeline`]: a second connection to the master, for renewals alone.
//!
//! In one stream a renewal waits for everything before it, and its answer for every answer before it: on a slow line a
//! large write, or a large reply, would cost the session. It is dialled when a renewal is not answered in time and
//! something large is on its way, and given up when that is through: a member has one connection of most clients.

use crate::connection::{Connection, Progress};
use crate::transport::Transport;
use kumo_paxos::Time;
use kumo_session::{CellMessage, ClientMessage};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A connection that carries nothing but renewals.
pub(crate) struct Lifeline {
    pub(crate) address: SocketAddr,
    connection: Connection,
    /// Said as soon as it is up.
    waiting: Option<ClientMessage>,
    /// When the first renewal without an answer was sent over it.
    asked: Option<Time>,
}

impl Lifeline {
    pub(crate) fn dial(
        address: SocketAddr,
        transport: Arc<dyn Transport>,
        renewal: ClientMessage,
    ) -> Lifeline {
        let connection = Connection::dial(address, transport);
        Lifeline { address, connection, waiting: Some(renewal), asked: None }
    }

    /// Takes a renewal. False: what is sent over it is not answered either.
    #[must_use]
    pub(crate) fn renew(&mut self, now: Time, renewal: &ClientMessage) -> bool {
        if !self.connection.is_up() {
            self.waiting = Some(renewal.clone());
            return true;
        }
        let asked = *self.asked.get_or_insert(now);
        self.connection.send(renewal);
        now.since(asked) < SILENT_MICROS_MAX
    }

    /// It is up: says for whom it speaks, and what waited.
    pub(crate) fn begin(&mut self, now: Time, attach: &ClientMessage) {
        self.connection.send(attach);
        if let Some(renewal) = self.waiting.take() {
            self.asked = Some(now);
            self.connection.send(&renewal);
        }
    }

    pub(crate) fn answered(&mut self) {
        self.asked = None;
    }

    pub(crate) fn poll_input(&mut self, cx: &mut Context, messages: &mut Vec<CellMessage>) -> Poll<Progress> {
        self.connection.poll_input(cx, messages)
    }

    pub(crate) fn poll_output(&mut self, cx: &mut Context) -> Result<(), String> {
        self.connection.poll_output(cx)
    }
}

/// What of a lifeline's messages concerns the session. The member said the others when it was greeted, or to no
/// question: on the first connection they would mean that it cannot answer what it was asked there.
pub(crate) fn concerns(message: &CellMessage) -> bool {
    match message {
        CellMessage::Renewed { .. }
        | CellMessage::Ended { .. }
        // Replies go to the connection that spoke last.
        | CellMessage::Reply { .. }
        | CellMessage::Answer { .. }
        | CellMessage::Events { .. } => true,
        CellMessage::Opened { .. }
        | CellMessage::Attached { .. }
        | CellMessage::Master { .. }
        | CellMessage::Status { .. }
        | CellMessage::Sessions { .. }
        | CellMessage::Done { .. }
        | CellMessage::Refused { .. } => false,
    }
}

/// A lifeline that is silent for so long is replaced by another: a large reply may have found its way onto it.
const SILENT_MICROS_MAX: u64 = 2_000_000;
