//! Reads: linear ones at the master under its lease, others at any replica that has got far enough; and events,
//! which are reads that wait.

use crate::application::{Application, SessionId};
use crate::cell::Cell;
use crate::front::{EventWait, ParkedRead, QUERY_BYTES_MAX, READS_PARKED_MAX, Want};
use crate::protocol::CellMessage;
use crate::serve::{Claim, complain};
use crate::step::{ConnectionId, Effect};
use bytes::Bytes;
use kumo_paxos::{Instance, Time};

/// A linear read that waits for the lease.
#[derive(Clone, Debug)]
pub(crate) struct LinearRead {
    pub connection: ConnectionId,
    session: SessionId,
    tag: u64,
    query: Bytes,
}

impl<A: Application> Cell<A> {
    pub(crate) fn read_linear(
        &mut self,
        now: Time,
        connection: ConnectionId,
        session: SessionId,
        tag: u64,
        query: Bytes,
        effects: &mut Vec<Effect>,
    ) {
        self.load = self.load.saturating_add(1);
        if query.len() > QUERY_BYTES_MAX {
            return self.refuse(connection, QUERY_TOO_LARGE, effects);
        }
        if self.reign.is_none() {
            return self.redirect(connection, effects);
        }
        match self.claim(connection, session, effects) {
            Claim::Refused => return,
            Claim::Gone => return self.say_gone(now, connection, session, effects),
            Claim::Good => self.touch(now, connection, session),
        }
        if self.replica.has_lease(now) {
            self.say_read(connection, session, tag, query, effects);
        } else if self.linear.len() < READS_PARKED_MAX {
            // A repeated question replaces the first.
            self.linear.retain(|read| (read.connection, read.tag) != (connection, tag));
            self.linear.push_back(LinearRead { connection, session, tag, query });
        } else {
            self.redirect(connection, effects);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of the message")]
    pub(crate) fn read(
        &mut self,
        now: Time,
        connection: ConnectionId,
        session: SessionId,
        tag: u64,
        after: Instance,
        query: Bytes,
        effects: &mut Vec<Effect>,
    ) {
        self.load = self.load.saturating_add(1);
        if query.len() > QUERY_BYTES_MAX {
            return self.refuse(connection, QUERY_TOO_LARGE, effects);
        }
        let read = ParkedRead { session, want: Want::Read(query) };
        self.read_when_executed(now, connection, tag, after, read, effects);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of the message")]
    pub(crate) fn events(
        &mut self,
        now: Time,
        connection: ConnectionId,
        session: SessionId,
        tag: u64,
        after: u64,
        executed: Instance,
        effects: &mut Vec<Effect>,
    ) {
        let read = ParkedRead { session, want: Want::Events { after } };
        self.read_when_executed(now, connection, tag, executed, read, effects);
    }

    /// Answers when this replica has executed `after`, which includes the session's own last update.
    fn read_when_executed(
        &mut self,
        now: Time,
        connection: ConnectionId,
        tag: u64,
        after: Instance,
        read: ParkedRead,
        effects: &mut Vec<Effect>,
    ) {
        if !self.reads_here() {
            return self.redirect(connection, effects);
        }
        if self.replica.executed_upto() >= after {
            return self.answer_read(now, connection, tag, read, effects);
        }
        // Whether it may is seen when the session is known here; whether it has any session, at once.
        let claims = self.front.connections.get(&connection).is_some_and(|known| !known.claims.is_empty());
        if !claims || self.parked.len() >= READS_PARKED_MAX {
            return self.redirect(connection, effects);
        }
        self.parked.insert((after, connection, tag), read);
    }

    fn reads_here(&self) -> bool {
        !self.torn && self.replica.serves_reads()
    }

    fn answer_read(
        &mut self,
        now: Time,
        connection: ConnectionId,
        tag: u64,
        read: ParkedRead,
        effects: &mut Vec<Effect>,
    ) {
        let session = read.session;
        match self.claim(connection, session, effects) {
            Claim::Refused => return,
            Claim::Gone => return self.say_ended(connection, session, effects),
            Claim::Good if self.reign.is_some() => self.touch(now, connection, session),
            Claim::Good => {}
        }
        match read.want {
            Want::Read(query) => self.say_read(connection, session, tag, query, effects),
            Want::Events { after } => {
                let seat = self.front.seats.entry(session).or_default();
                // One reader at a time: the newest question counts.
                seat.events = Some(EventWait { connection, tag, after });
                self.event_sessions.insert(session);
            }
        }
    }

    fn say_read(
        &self,
        connection: ConnectionId,
        session: SessionId,
        tag: u64,
        query: Bytes,
        effects: &mut Vec<Effect>,
    ) {
        let body = self.application.read(session, query);
        complain::<A>(connection, &body, effects);
        let instance = self.replica.executed_upto();
        self.say(connection, CellMessage::Answer { session, tag, instance, body }, effects);
    }

    /// Hands events to those who wait for them.
    pub(crate) fn answer_events(&mut self, effects: &mut Vec<Effect>) {
        if self.torn {
            return;
        }
        for session in std::mem::take(&mut self.event_sessions) {
            let Some(seat) = self.front.seats.get_mut(&session) else { continue };
            let (Some(wait), Some(known)) = (seat.events, self.table.get(session)) else { continue };
            let Some(run) = known.events_after(wait.after) else { continue };
            seat.events = None;
            let message = CellMessage::Events {
                session,
                tag: wait.tag,
                omitted: run.omitted,
                first: run.first,
                events: run.events,
            };
            self.say(wait.connection, message, effects);
        }
    }

    /// Answers what waited for execution to get from `before` to here, and for the lease.
    pub(crate) fn answer_parked(&mut self, now: Time, before: Instance, effects: &mut Vec<Effect>) {
        if !self.linear.is_empty() && self.replica.has_lease(now) {
            for read in std::mem::take(&mut self.linear) {
                match self.claim(read.connection, read.session, effects) {
                    Claim::Refused => {}
                    Claim::Gone => self.say_ended(read.connection, read.session, effects),
                    Claim::Good => {
                        self.say_read(read.connection, read.session, read.tag, read.query, effects)
                    }
                }
            }
        }
        if self.parked.is_empty() {
            return;
        }
        let executed = self.replica.executed_upto();
        let here = self.reads_here();
        if here && executed == before {
            return;
        }
        while let Some(first) = self.parked.first_entry() {
            let (after, connection, tag) = *first.key();
            if here && after > executed {
                break;
            }
            let read = first.remove();
            if here {
                self.answer_read(now, connection, tag, read, effects);
            } else {
                self.redirect(connection, effects);
            }
        }
        self.answer_events(effects);
    }
}

const QUERY_TOO_LARGE: &str = "the query is too large";
