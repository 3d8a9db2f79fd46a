//! Expiry: the master of the moment finds who has been silent for too long, and lets the log decide.

use crate::application::{Application, SessionId};
use crate::cell::Cell;
use crate::entry::LogEntry;
use kumo_paxos::Time;

impl<A: Application> Cell<A> {
    /// Notices that this node was starved: whoever was silent may have been speaking to deaf ears, and what
    /// they said may still wait to be read. Everybody gets a fresh period.
    pub(crate) fn attend(&mut self, now: Time) {
        let starved = self.settings.session_timeout_micros / STARVED_SHARE;
        if now.since(self.stepped) > starved.max(STARVED_UNITS * self.paxos.unit_micros) {
            self.fresh_since = now;
        }
        self.stepped = now;
    }

    /// Proposes the end of sessions that were not renewed in time: by a master that provably is one now.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.reign.is_none() || now < self.expiry_at {
            return;
        }
        let timeout = self.settings.session_timeout_micros;
        self.expiry_at = now.plus_micros(self.paxos.unit_micros.max(timeout / LOOK_SHARE));
        if !self.replica.has_lease(now) {
            return;
        }
        let period = timeout + timeout / SLACK_SHARE;
        let silent: Vec<(SessionId, u64)> = self
            .table
            .sessions
            .values()
            .filter(|session| self.silence(now, session.id) > period && !self.expiring.contains(&session.id))
            .map(|session| (session.id, session.executed))
            .take(EXPIRIES_MAX)
            .collect();
        for (session, seen) in silent {
            self.give_up(now, session, seen);
        }
    }

    /// Microseconds since the master last heard of a session.
    pub(crate) fn silence(&self, now: Time, session: SessionId) -> u64 {
        let heard = self.front.seats.get(&session).map_or(self.fresh_since, |seat| seat.heard);
        now.since(heard.max(self.fresh_since))
    }

    /// Proposes the end of a session, once.
    pub(crate) fn give_up(&mut self, now: Time, session: SessionId, seen: u64) {
        if self.expiring.insert(session) {
            self.propose(now, LogEntry::Expire { time: self.wall, session, seen });
        }
    }
}

/// The master waits a quarter longer than it told the client: both clocks may be wrong by 10 %, one slow and the
/// other fast (1.1 / 0.9 = 1.22), and the client must be the first to know.
const SLACK_SHARE: u64 = 4;

/// A gap between two steps above this share of the time-out is starvation. A quarter of the slack: shorter ones
/// cannot expire anybody.
const STARVED_SHARE: u64 = 16;

/// And so many heartbeats are no gap at all.
const STARVED_UNITS: u64 = 3;

/// The master looks for silent sessions so often in a time-out.
const LOOK_SHARE: u64 = 64;

/// Expiries proposed in one look. The others wait for the next.
const EXPIRIES_MAX: usize = 256;
