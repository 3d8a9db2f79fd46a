//! [`Flushes`]: flush_all, which every server carries out for the keys it orders.

use super::route::Route;
use crate::{Answer, GatewayEffect, GatewayError, Message, Reply, ServerId, Space};
use bytes::Bytes;
use kumo_paxos::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Flushes under way, by the caller's ticket.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    open: BTreeMap<u64, Flush>,
}

#[derive(Debug)]
struct Flush {
    /// Servers that have not said that they are done.
    waiting: BTreeSet<ServerId>,
    until: Time,
}

impl Flushes {
    pub fn begin(
        &mut self,
        (ticket, prefix): (u64, Bytes),
        until: Time,
        space: Option<&Space>,
        up: &BTreeMap<ServerId, bool>,
        effects: &mut Vec<GatewayEffect>,
    ) {
        let Some(space) = space.filter(|space| !space.rhs.is_empty()) else {
            return done(ticket, Err(GatewayError::NoServers), effects);
        };
        let waiting: BTreeSet<ServerId> = Route::servers(space).collect();
        if waiting.iter().any(|server| up.get(server) != Some(&true)) {
            return done(ticket, Err(GatewayError::Unreachable), effects);
        }
        for &server in &waiting {
            let flush = Message::Flush { ticket, prefix: prefix.clone() };
            effects.push(GatewayEffect::Server(server, flush));
        }
        self.open.insert(ticket, Flush { waiting, until });
    }

    pub fn flushed(&mut self, server: ServerId, ticket: u64, effects: &mut Vec<GatewayEffect>) {
        let Some(flush) = self.open.get_mut(&ticket) else { return };
        flush.waiting.remove(&server);
        if flush.waiting.is_empty() {
            self.open.remove(&ticket);
            done(ticket, Ok(Answer::Reply(Reply::Done { clock: 0 })), effects);
        }
    }

    /// Somebody who was to flush is gone, or owns something else now: nobody can say any more that all is flushed.
    pub fn broken(&mut self, server: Option<ServerId>, effects: &mut Vec<GatewayEffect>) {
        let hit = |flush: &Flush| server.is_none_or(|server| flush.waiting.contains(&server));
        self.fail(hit, GatewayError::Unknown, effects);
    }

    pub fn timeout(&mut self, now: Time, effects: &mut Vec<GatewayEffect>) {
        self.fail(|flush| flush.until <= now, GatewayError::TimedOut, effects);
    }

    pub fn deadline(&self) -> Option<Time> {
        self.open.values().map(|flush| flush.until).min()
    }

    fn fail(&mut self, hit: impl Fn(&Flush) -> bool, error: GatewayError, effects: &mut Vec<GatewayEffect>) {
        self.open.retain(|&ticket, flush| {
            let fails = hit(flush);
            if fails {
                done(ticket, Err(error), effects);
            }
            !fails
        });
    }
}

fn done(ticket: u64, result: Result<Answer, GatewayError>, effects: &mut Vec<GatewayEffect>) {
    effects.push(GatewayEffect::Done { ticket, result });
}
