//! What the cell says to a client.

use super::asked::Asked;
use super::calls::done;
use super::questions::Kind;
use super::{Client, Open};
use crate::application::SessionId;
use crate::protocol::{Ask, CellMessage, EndReason, Reply};
use crate::step::{Answer, CallError, ClientEffect};
use bytes::Bytes;
use kumo_paxos::{ChangeRefusal, Instance, Time};
use std::net::SocketAddr;

impl Client {
    pub(super) fn message(
        &mut self,
        now: Time,
        from: SocketAddr,
        message: CellMessage,
        effects: &mut Vec<ClientEffect>,
    ) {
        self.answered = true;
        match message {
            CellMessage::Opened { token, session, instance, timeout_ms } => {
                self.heard(now, from);
                if token == self.settings.token {
                    self.opened(from, session, instance, timeout_ms);
                }
            }
            CellMessage::Attached { .. } => {}
            CellMessage::Reply { session, number, instance, reply } => {
                self.heard(now, from);
                let sent = self.commands.get(&number).and_then(|command| command.asked.first());
                if self.session() == Some(session) && self.lives(now, sent, effects) {
                    self.reply(number, instance, reply, effects);
                }
            }
            CellMessage::Renewed { session, sent } => {
                self.heard(now, from);
                if let Some(open) = self.open.as_mut().filter(|open| open.session == session) {
                    open.renewed(Time(sent).min(now));
                }
            }
            CellMessage::Answer { session, tag, body, .. } => {
                self.heard(now, from);
                // Only a master with a lease answers a linear read, so it is as good as a renewal.
                let read = self.reads.get(&tag).filter(|_| self.settings.sync);
                let sent = read.and_then(|read| read.asked.first());
                if self.session() == Some(session) && self.lives(now, sent, effects) {
                    self.answer(tag, body, effects);
                }
            }
            CellMessage::Events { session, tag, omitted, first, events } => {
                self.heard(now, from);
                let asked = self.session() == Some(session) && tag == self.event_tag;
                if asked && self.lives(now, None, effects) {
                    self.hand_out(omitted, first, events, effects);
                }
            }
            CellMessage::Master { master, members, least_loaded } => {
                self.turned_away(from);
                if master != Some(from) {
                    // Whatever it was asked as master, it has not done and will not answer.
                    self.forget_asked(from);
                }
                self.links.told(now, from, master, members, least_loaded);
                self.calls_at = Some(Time(0));
            }
            CellMessage::Ended { session, reason } => self.ended(session, reason, effects),
            CellMessage::Status { tag, status, session_timeout_ms } => {
                self.settle(tag, Ok(Answer::Status { status, session_timeout_ms }), effects);
            }
            CellMessage::Sessions { tag, sessions } => {
                self.settle(tag, Ok(Answer::Sessions(sessions)), effects);
            }
            CellMessage::Done { tag, error } => self.carried_out(now, tag, error, effects),
            CellMessage::Refused { reason } => {
                if self.failure.is_none() && self.open.is_none() {
                    self.fail(CallError::Refused(reason), effects);
                }
            }
        }
    }

    fn opened(&mut self, from: SocketAddr, session: SessionId, instance: Instance, timeout_ms: u64) {
        // Opening speaks for the session on that connection, too.
        self.links.attach(from);
        if self.open.is_some() || self.failure.is_some() {
            return;
        }
        let Some(renewed) = self.opening.first() else { return };
        let timeout_micros = timeout_ms.max(1).saturating_mul(1000);
        self.open = Some(Open { session, timeout_micros, renewed, renewing: Asked::default() });
        self.updated = self.updated.max(instance);
        self.calls_at = Some(Time(0));
    }

    /// Whether the session lives, after an answer to what was `sent` then has renewed it. One that comes when
    /// the cell may have ended it, as to a client that stood still, is not handed out: a lock granted by it may
    /// be another's by now.
    fn lives(&mut self, now: Time, sent: Option<Time>, effects: &mut Vec<ClientEffect>) -> bool {
        let Some(open) = self.open.as_mut().filter(|_| self.failure.is_none()) else { return false };
        if let Some(sent) = sent {
            open.renewed(sent);
        }
        let over = open.over(now);
        if over {
            self.fail(CallError::Lost, effects);
        }
        !over
    }

    fn reply(&mut self, number: u64, instance: Instance, reply: Reply, effects: &mut Vec<ClientEffect>) {
        // A reply that came twice finds nothing.
        let Some(command) = self.take(number) else { return };
        self.updated = self.updated.max(instance);
        let closed = command.ask == Ask::Close && reply == Reply::Closed;
        self.acknowledge_large(number, &reply);
        let result = match reply {
            Reply::Body(body) => Ok(Answer::Body(body)),
            Reply::Cancelled => Err(CallError::Cancelled),
            Reply::Closed => Ok(Answer::Done),
            Reply::NoSession => Err(CallError::NoSession),
            Reply::Refused(reason) => Err(CallError::Refused(reason)),
        };
        if let Some(ticket) = command.ticket {
            done(ticket, result, effects);
        }
        if closed {
            self.fail(CallError::Ended(EndReason::Closed), effects);
        }
    }

    fn answer(&mut self, tag: u64, body: Bytes, effects: &mut Vec<ClientEffect>) {
        let Some(read) = self.reads.remove(&tag) else { return };
        done(read.ticket, Ok(Answer::Body(body)), effects);
    }

    /// Hands new events to the first call that waits for some.
    fn hand_out(&mut self, omitted: u64, first: u64, events: Vec<Bytes>, effects: &mut Vec<ClientEffect>) {
        let last = first.saturating_add((events.len() as u64).saturating_sub(1));
        if events.is_empty() || last <= self.events_seen {
            return;
        }
        let Some(ticket) = self.event_tickets.pop_front() else { return };
        self.events_seen = last;
        done(ticket, Ok(Answer::Events { omitted, first, events }), effects);
        if !self.event_tickets.is_empty() {
            self.ask_events();
        }
    }

    /// A member that tells who is master may do so instead of an answer: reads that wait there are asked
    /// elsewhere, each member once before any is asked again.
    fn turned_away(&mut self, from: SocketAddr) {
        let members = self.links.read_targets(0).len() as u32;
        for read in self.reads.values_mut() {
            if !self.settings.sync && read.asked.to() == Some(from) && read.asked.tries() < members {
                read.asked.turned_away();
            }
        }
    }

    fn ended(&mut self, session: SessionId, reason: EndReason, effects: &mut Vec<ClientEffect>) {
        let ours = match self.session() {
            Some(known) => known == session,
            // Our own open came twice, and the session is over already.
            None => self.opening.first().is_some(),
        };
        if ours && self.failure.is_none() {
            self.fail(CallError::Ended(reason), effects);
        }
    }

    fn settle(&mut self, tag: u64, result: Result<Answer, CallError>, effects: &mut Vec<ClientEffect>) {
        if let Some(question) = self.questions.remove(&tag) {
            done(question.ticket, result, effects);
        }
    }

    fn carried_out(&mut self, now: Time, tag: u64, error: Option<String>, effects: &mut Vec<ClientEffect>) {
        let Some(question) = self.questions.get_mut(&tag) else { return };
        let for_master = matches!(question.kind, Kind::Change { at: None, .. } | Kind::Transfer);
        let not_master = error.as_ref().is_some_and(|error| *error == ChangeRefusal::NotMaster.to_string());
        if for_master && not_master {
            // Nothing was done: ask the next master, when there is one.
            question.asked.turned_away();
            self.links.not_master(now);
            return;
        }
        self.settle(tag, error.map_or(Ok(Answer::Done), |error| Err(CallError::Refused(error))), effects);
    }
}
