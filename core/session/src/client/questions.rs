//! Operators' questions and orders: they need no session.

use super::Client;
use super::asked::Asked;
use super::calls::done;
use crate::protocol::ClientMessage;
use crate::step::{CallError, ClientEffect};
use kumo_paxos::{Change, Time};
use std::net::SocketAddr;

/// A question that waits for its answer.
pub(super) struct Question {
    pub ticket: u64,
    pub kind: Kind,
    pub started: Time,
    pub asked: Asked,
}

pub(super) enum Kind {
    Status,
    Sessions,
    Change { change: Change, at: Option<SocketAddr> },
    Transfer,
    Snapshot,
}

impl Question {
    /// The member that alone is asked, if one is named.
    pub fn at(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Change { at, .. } => *at,
            Kind::Status | Kind::Sessions | Kind::Transfer | Kind::Snapshot => None,
        }
    }

    /// Whether asking twice is as good as asking once.
    fn is_repeatable(&self) -> bool {
        match self.kind {
            Kind::Status | Kind::Sessions => true,
            Kind::Change { .. } | Kind::Transfer | Kind::Snapshot => false,
        }
    }

    fn message(&self, tag: u64) -> ClientMessage {
        match &self.kind {
            Kind::Status => ClientMessage::Status { tag },
            Kind::Sessions => ClientMessage::Sessions { tag },
            Kind::Change { change, .. } => ClientMessage::Change { tag, change: change.clone() },
            Kind::Transfer => ClientMessage::Transfer { tag },
            Kind::Snapshot => ClientMessage::Snapshot { tag },
        }
    }
}

impl Client {
    pub(super) fn question(&mut self, now: Time, ticket: u64, kind: Kind, effects: &mut Vec<ClientEffect>) {
        if self.questions.len() >= QUESTIONS_MAX {
            return done(ticket, Err(CallError::Busy), effects);
        }
        let tag = self.tag();
        self.questions.insert(tag, Question { ticket, kind, started: now, asked: Asked::default() });
        self.calls_at = Some(Time(0));
    }

    pub(super) fn questions_deadline(&self) -> Option<Time> {
        let patience = self.settings.patience_micros;
        self.questions.values().map(|question| question.started.plus_micros(patience)).min()
    }

    /// Gives up on questions that were not answered in time.
    pub(super) fn drop_questions(&mut self, now: Time, effects: &mut Vec<ClientEffect>) {
        let (patience, no_answer) = (self.settings.patience_micros, self.no_answer());
        self.questions.retain(|_, question| {
            if now.since(question.started) < patience {
                return true;
            }
            let error = match question.at() {
                Some(_) => CallError::Unreachable,
                None => no_answer.clone(),
            };
            done(question.ticket, Err(error), effects);
            false
        });
    }

    /// The member asked is gone. What cannot be repeated has an unknown outcome.
    pub(super) fn break_questions(&mut self, address: SocketAddr, effects: &mut Vec<ClientEffect>) {
        self.questions.retain(|_, question| {
            if question.asked.to() != Some(address) {
                return true;
            }
            question.asked.forget(address);
            if question.is_repeatable() {
                return true;
            }
            let reason = "the member went away before it answered: the order may have been carried out";
            done(question.ticket, Err(CallError::Refused(reason.to_owned())), effects);
            false
        });
        self.calls_at = Some(Time(0));
    }

    pub(super) fn send_questions(&mut self, now: Time, effects: &mut Vec<ClientEffect>) {
        let (master, anybody) = (self.links.ready_master(), self.links.anybody());
        for (&tag, question) in &mut self.questions {
            let target = match &question.kind {
                Kind::Status | Kind::Snapshot => anybody,
                Kind::Sessions | Kind::Transfer => master,
                Kind::Change { at, .. } => at.or(master),
            };
            let Some(to) = target.filter(|to| self.links.is_up(*to)) else { continue };
            let waits = question.asked.to().is_some() && !question.is_repeatable();
            if waits || !question.asked.is_due(now, to) {
                continue;
            }
            question.asked.sent(now, to, self.settings.resend_micros);
            effects.push(ClientEffect::Send(to, question.message(tag)));
        }
    }
}

/// Operators' questions outstanding.
const QUESTIONS_MAX: usize = 64;
