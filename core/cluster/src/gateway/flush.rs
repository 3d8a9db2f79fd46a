//! [`Flushes`]: flush_all, which every server carries out for the keys it orders.

use super::Gateway;
use super::route::Route;
use super::slots::PAUSES_MICROS;
use crate::{Answer, GatewayEffect, GatewayError, Message, Refusal, Reply, RequestId, ServerId, SpaceNumber};
use bytes::Bytes;
use kumo_paxos::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Flushes under way, by the caller's ticket.
///
/// A flush is a request like others: it has a seq of its own, which stays open until all servers of one space have said
/// that they are done in that space. In a newer space other servers may order the keys, who do not know which of them were
/// flushed; to begin anew there would delete what was set after them. So a flush that was sent ends with its space, and
/// nobody knows how far it got. A try that is still on its way names a number that is closed, or that its server
/// remembers, or a space that is over.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    open: BTreeMap<u64, Flush>,
}

#[derive(Debug)]
struct Flush {
    prefix: Bytes,
    until: Time,
    /// None: it waits for an id and a space.
    seq: Option<u64>,
    /// Servers that have not said that they are done.
    waiting: BTreeSet<ServerId>,
    /// Those of them that have it in their hands.
    asked: BTreeSet<ServerId>,
    /// When those that told it to come again are asked again.
    again_at: Option<Time>,
    /// Whether anybody was ever asked.
    sent: bool,
}

impl Flushes {
    pub fn deadline(&self) -> Option<Time> {
        self.open.values().flat_map(|flush| [Some(flush.until), flush.again_at]).flatten().min()
    }

    /// The flush of that number.
    pub fn find(&self, seq: u64) -> Option<u64> {
        self.open.iter().find(|(_, flush)| flush.seq == Some(seq)).map(|(&ticket, _)| ticket)
    }

    fn tickets(&self, which: impl Fn(&Flush) -> bool) -> Vec<u64> {
        self.open.iter().filter(|(_, flush)| which(flush)).map(|(&ticket, _)| ticket).collect()
    }

    /// The link is gone, and with it what was asked on it.
    pub fn server_down(&mut self, server: ServerId) {
        for flush in self.open.values_mut() {
            flush.asked.remove(&server);
        }
    }
}

impl Gateway {
    pub(super) fn flush(&mut self, now: Time, ticket: u64, prefix: Bytes, effects: &mut Vec<GatewayEffect>) {
        if self.flushes.open.len() >= FLUSHES_MAX {
            effects.push(GatewayEffect::Done { ticket, result: Err(GatewayError::Busy) });
            return;
        }
        let flush = Flush {
            prefix,
            until: now.plus_micros(self.settings.request_micros),
            seq: None,
            waiting: BTreeSet::new(),
            asked: BTreeSet::new(),
            again_at: None,
            sent: false,
        };
        self.flushes.open.insert(ticket, flush);
        self.place(now, effects);
    }

    /// Gives those that wait for it a seq, and sends them.
    pub(super) fn place_flushes(&mut self, effects: &mut Vec<GatewayEffect>) {
        for ticket in self.flushes.tickets(|flush| flush.seq.is_none()) {
            let flush = self.flushes.open.get_mut(&ticket).expect("it was just listed");
            flush.seq = Some(self.window.reserve());
            self.begin_flush(ticket, effects);
        }
    }

    /// There is nothing to flush.
    pub(super) fn turn_flushes_down(&mut self, effects: &mut Vec<GatewayEffect>) {
        for ticket in self.flushes.tickets(|flush| flush.seq.is_none()) {
            self.flushed(ticket, Err(GatewayError::NoServers), effects);
        }
    }

    /// In a new space all who order keys there have to carry it out. One that was sent in an earlier space is not begun
    /// again: some may have carried it out, and what was set there since would go with it.
    pub(super) fn restart_flushes(&mut self, effects: &mut Vec<GatewayEffect>) {
        for ticket in self.flushes.tickets(|flush| flush.sent) {
            self.flushed(ticket, Err(GatewayError::Unknown), effects);
        }
        for ticket in self.flushes.tickets(|flush| flush.seq.is_some()) {
            self.begin_flush(ticket, effects);
        }
    }

    fn begin_flush(&mut self, ticket: u64, effects: &mut Vec<GatewayEffect>) {
        let Some(route) = &self.route else { return };
        if route.space.rhs.is_empty() {
            return self.flushed(ticket, Err(GatewayError::NoServers), effects);
        }
        // What nobody acts for comes back with its last owner, unflushed.
        if !route.is_whole() {
            return self.flushed(ticket, Err(GatewayError::AllLost), effects);
        }
        let Some(flush) = self.flushes.open.get_mut(&ticket) else { return };
        flush.waiting = Route::servers(&route.space).collect();
        flush.asked.clear();
        self.send_flush(ticket, effects);
    }

    /// Asks those that have not got it.
    fn send_flush(&mut self, ticket: u64, effects: &mut Vec<GatewayEffect>) {
        let (Some(gateway), Some(space)) = (self.id(), self.route.as_ref().map(|route| route.space.number))
        else {
            return;
        };
        let lowest_open = self.window.lowest_open();
        let Some(flush) = self.flushes.open.get_mut(&ticket) else { return };
        let Some(seq) = flush.seq else { return };
        flush.again_at = None;
        for &server in &flush.waiting {
            if self.links.get(&server) == Some(&true) && flush.asked.insert(server) {
                let id = RequestId { gateway, seq };
                let message = Message::Flush { space, id, lowest_open, prefix: flush.prefix.clone() };
                effects.push(GatewayEffect::Server(server, message));
                flush.sent = true;
            }
        }
    }

    pub(super) fn send_flushes(&mut self, effects: &mut Vec<GatewayEffect>) {
        for ticket in self.flushes.tickets(|_| true) {
            self.send_flush(ticket, effects);
        }
    }

    /// A server is done, in that space.
    pub(super) fn flush_done(
        &mut self,
        from: ServerId,
        space: SpaceNumber,
        seq: u64,
        effects: &mut Vec<GatewayEffect>,
    ) {
        let ours = self.space_number();
        let Some(ticket) = self.flushes.find(seq).filter(|_| space == ours) else { return };
        let Some(flush) = self.flushes.open.get_mut(&ticket) else { return };
        flush.waiting.remove(&from);
        if flush.waiting.is_empty() {
            self.flushed(ticket, Ok(Answer::Reply(Reply::Done { clock: 0 })), effects);
        }
    }

    /// A server is not done, and says why.
    pub(super) fn flush_answered(
        &mut self,
        now: Time,
        from: ServerId,
        ticket: u64,
        answer: &Answer,
        effects: &mut Vec<GatewayEffect>,
    ) {
        let ours = self.space_number();
        let Some(flush) = self.flushes.open.get_mut(&ticket) else { return };
        if !flush.asked.remove(&from) {
            return;
        }
        match answer {
            Answer::WrongSpace { newest } if *newest > ours && self.managers.may_renew(now) => {
                flush.again_at.get_or_insert(now.plus_micros(AGAIN_MICROS));
                effects.push(GatewayEffect::Server(from, Message::WantSpace { above: ours }));
            }
            Answer::WrongSpace { .. } | Answer::Wait => {
                flush.again_at.get_or_insert(now.plus_micros(AGAIN_MICROS));
            }
            Answer::Refused { reason: Refusal::GatewayExpired } => self.expired(now, effects),
            // Others may have carried it out, and whoever refuses it has perhaps done so with some keys.
            Answer::Refused { .. } | Answer::Unknown => {
                self.flushed(ticket, Err(GatewayError::Unknown), effects);
            }
            // Of no meaning for a flush: its time runs out.
            Answer::Reply(_)
            | Answer::Missing
            | Answer::NotStored
            | Answer::Exists
            | Answer::NotNumeric
            | Answer::TooLarge => {}
        }
    }

    /// The id under which they were asked for is void: what was begun under it nobody will tell.
    pub(super) fn flushes_expired(&mut self, effects: &mut Vec<GatewayEffect>) {
        for ticket in self.flushes.tickets(|flush| flush.seq.is_some()) {
            self.flushed(ticket, Err(GatewayError::Unknown), effects);
        }
    }

    pub(super) fn flushes_timeout(&mut self, now: Time, effects: &mut Vec<GatewayEffect>) {
        for ticket in self.flushes.tickets(|flush| flush.until <= now) {
            let error = match &self.flushes.open[&ticket] {
                Flush { sent: true, .. } => GatewayError::TimedOut,
                Flush { seq: Some(_), .. } => GatewayError::Unreachable,
                Flush { seq: None, .. } => GatewayError::NoManagers,
            };
            self.flushed(ticket, Err(error), effects);
        }
        for ticket in self.flushes.tickets(|flush| flush.again_at.is_some_and(|at| at <= now)) {
            self.send_flush(ticket, effects);
        }
    }

    /// The one answer of a flush.
    fn flushed(
        &mut self,
        ticket: u64,
        result: Result<Answer, GatewayError>,
        effects: &mut Vec<GatewayEffect>,
    ) {
        let Some(flush) = self.flushes.open.remove(&ticket) else { return };
        if let Some(seq) = flush.seq {
            self.window.close(seq);
        }
        effects.push(GatewayEffect::Done { ticket, result });
    }
}

/// Flushes of one gateway under way. Each goes through all that is stored.
const FLUSHES_MAX: usize = 64;

/// Who said "not now" is asked again after this long.
const AGAIN_MICROS: u64 = PAUSES_MICROS[PAUSES_MICROS.len() - 1];
