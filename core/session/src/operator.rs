//! Operators' questions and orders to a node.

use crate::application::Application;
use crate::cell::Cell;
use crate::protocol::{CellMessage, SessionInfo};
use crate::step::{ConnectionId, Effect};
use kumo_paxos::{Change, ChangeRefusal, Time};

/// Who waits for the answer to a change of members. One at a time: so answers need no names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingChange {
    connection: ConnectionId,
    tag: u64,
}

impl<A: Application> Cell<A> {
    pub(crate) fn tell_status(
        &self,
        now: Time,
        connection: ConnectionId,
        tag: u64,
        effects: &mut Vec<Effect>,
    ) {
        let session_timeout_ms = self.settings.session_timeout_micros / 1000;
        let message = CellMessage::Status { tag, status: self.status(now), session_timeout_ms };
        self.say(connection, message, effects);
    }

    pub(crate) fn tell_sessions(
        &self,
        now: Time,
        connection: ConnectionId,
        tag: u64,
        effects: &mut Vec<Effect>,
    ) {
        // Only the master knows who was heard of when.
        if self.reign.is_none() {
            return self.redirect(connection, effects);
        }
        let info = |session: &crate::session::Session| SessionInfo {
            session: session.id,
            label: session.label.clone(),
            opened: session.opened,
            requests: session.executed,
            parked: session.parked_count() as u64,
            silent_ms: self.silence(now, session.id) / 1000,
        };
        let sessions = self.table.sessions.values().map(|session| info(session)).collect();
        self.say(connection, CellMessage::Sessions { tag, sessions }, effects);
    }

    pub(crate) fn order(
        &mut self,
        now: Time,
        connection: ConnectionId,
        tag: u64,
        change: Change,
        effects: &mut Vec<Effect>,
    ) {
        if self.change.is_some() {
            let error = Some(ChangeRefusal::Busy.to_string());
            return self.say(connection, CellMessage::Done { tag, error }, effects);
        }
        self.change = Some(PendingChange { connection, tag });
        self.agree(now, kumo_paxos::Input::Change(change));
    }

    /// Nobody waits for the answer; so it must not be taken for an operator's.
    pub(crate) fn house_change(&mut self, now: Time, change: Change) {
        if self.change.is_none() && self.reign.is_some() {
            self.agree(now, kumo_paxos::Input::Change(change));
        }
    }

    pub(crate) fn changed(&mut self, result: Result<(), ChangeRefusal>, effects: &mut Vec<Effect>) {
        let Some(PendingChange { connection, tag }) = self.change.take() else { return };
        if self.front.connections.contains_key(&connection) {
            let error = result.err().map(|refusal| refusal.to_string());
            self.say(connection, CellMessage::Done { tag, error }, effects);
        }
    }

    pub(crate) fn transfer(
        &mut self,
        now: Time,
        connection: ConnectionId,
        tag: u64,
        effects: &mut Vec<Effect>,
    ) {
        let error = match self.reign {
            Some(_) => None,
            None => Some(ChangeRefusal::NotMaster.to_string()),
        };
        self.say(connection, CellMessage::Done { tag, error }, effects);
        self.stop(now);
    }

    pub(crate) fn write_snapshot(&mut self, connection: ConnectionId, tag: u64, effects: &mut Vec<Effect>) {
        let error = if !self.paxos.durable {
            Some("this replica keeps its state in memory only".to_owned())
        } else if self.torn || self.replica.position().is_none() {
            Some("this replica has no state to write".to_owned())
        } else {
            self.want_snapshot(effects);
            None
        };
        self.say(connection, CellMessage::Done { tag, error }, effects);
    }
}
