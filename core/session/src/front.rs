//! [`Front`]: what this node alone knows of clients: connections, and a seat per session that is served here.

use crate::application::SessionId;
use crate::protocol::Ask;
use crate::step::ConnectionId;
use bytes::Bytes;
use kumo_paxos::{IN_BAND_MAX, Instance, Time};
use std::collections::BTreeMap;

/// Clients as this node sees them. Not replicated, never in a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Front {
    pub connections: BTreeMap<ConnectionId, Connection>,
    pub seats: BTreeMap<SessionId, Seat>,
    /// Opens proposed in this reign, by token: who waits for it, and its bytes.
    pub opening: BTreeMap<u128, (ConnectionId, usize)>,
    /// Proposed in this reign and not executed yet.
    pub in_flight: usize,
    pub in_flight_bytes: usize,
    /// Bytes of requests that wait for one before them.
    pub waiting_bytes: usize,
}

/// A client's connection: the sessions it says it speaks for, with the tokens that show it. A token is
/// checked when it is used, because a replica that lags may not know the session yet.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub claims: BTreeMap<SessionId, u128>,
}

/// A session that is served here.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    /// Where replies go.
    pub connection: Option<ConnectionId>,
    /// When this node last heard of it.
    pub heard: Time,
    /// Numbers proposed in this reign and not executed yet, with their bytes.
    pub in_flight: BTreeMap<u64, usize>,
    /// Requests that came before their predecessor.
    pub waiting: BTreeMap<u64, Waiting>,
    /// Who waits for events.
    pub events: Option<EventWait>,
}

impl Seat {
    /// Whether the one before it is under way, and keeps its place before it. A large value gets its place in the log
    /// when a majority holds it: what follows would overtake it.
    pub fn follows(&self, number: u64) -> bool {
        self.in_flight.get(&(number - 1)).is_some_and(|bytes| *bytes <= IN_BAND_MAX)
    }
}

/// A request, without the name of its session.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub number: u64,
    pub acknowledged: u64,
    pub unanswered: Vec<u64>,
    pub events_seen: u64,
    pub ask: Ask,
}

impl Waiting {
    /// Bytes it takes in the log, at most.
    pub fn weight(&self) -> usize {
        let command = match &self.ask {
            Ask::Command(command) => command.len(),
            Ask::Cancel { .. } | Ask::Close | Ask::Kill { .. } => 0,
        };
        ENVELOPE_BYTES + self.unanswered.len() * size_of::<u64>() + command
    }
}

/// A question for events that has no answer yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventWait {
    pub connection: ConnectionId,
    pub tag: u64,
    pub after: u64,
}

/// A read that waits for this node to get as far as it asks.
#[derive(Clone, Debug)]
pub(crate) struct ParkedRead {
    pub session: SessionId,
    pub want: Want,
}

#[derive(Clone, Debug)]
pub(crate) enum Want {
    Read(Bytes),
    Events { after: u64 },
}

/// Parked reads: by the instance they wait for, so that they wake in execution order; a repeated one
/// replaces the first.
pub(crate) type ParkedReads = BTreeMap<(Instance, ConnectionId, u64), ParkedRead>;

impl Front {
    /// Whether one more proposal of that size may be under way. One is always allowed.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.in_flight == 0
            || self.in_flight < IN_FLIGHT_MAX && self.in_flight_bytes + bytes <= IN_FLIGHT_BYTES_MAX
    }

    pub fn proposed(&mut self, bytes: usize) {
        self.in_flight += 1;
        self.in_flight_bytes += bytes;
    }

    fn settled(&mut self, bytes: usize) {
        self.in_flight -= 1;
        self.in_flight_bytes -= bytes;
    }

    pub fn open_settled(&mut self, token: u128) -> Option<ConnectionId> {
        let (connection, bytes) = self.opening.remove(&token)?;
        self.settled(bytes);
        Some(connection)
    }

    pub fn request_settled(&mut self, session: SessionId, number: u64) {
        let found = self.seats.get_mut(&session).and_then(|seat| seat.in_flight.remove(&number));
        if let Some(bytes) = found {
            self.settled(bytes);
        }
    }

    /// Holds a request back until the one before it is proposed. `next`: it is proposed right after, so it needs no
    /// room here; else it would be kept out by those that wait for what comes before them. Without room it is
    /// dropped, and its client sends it again.
    pub fn hold(&mut self, session: SessionId, request: Waiting, next: bool) {
        let bytes = request.weight();
        if !next && self.waiting_bytes + bytes > WAITING_BYTES_MAX {
            return;
        }
        let seat = self.seats.entry(session).or_default();
        if let Some(before) = seat.waiting.insert(request.number, request) {
            self.waiting_bytes -= before.weight();
        }
        self.waiting_bytes += bytes;
    }

    /// The first request held back, if its number is at most `number`.
    pub fn unhold(&mut self, session: SessionId, number: u64) -> Option<Waiting> {
        let seat = self.seats.get_mut(&session)?;
        let first = seat.waiting.first_entry().filter(|first| *first.key() <= number)?;
        let request = first.remove();
        self.waiting_bytes -= request.weight();
        Some(request)
    }

    /// The session is no more.
    pub fn unseat(&mut self, session: SessionId) -> Option<Seat> {
        let seat = self.seats.remove(&session)?;
        for bytes in seat.in_flight.values() {
            self.settled(*bytes);
        }
        self.waiting_bytes -= seat.waiting.values().map(Waiting::weight).sum::<usize>();
        Some(seat)
    }

    /// A reign ended or begins: what was proposed in another is known to nobody here.
    pub fn new_reign(&mut self) {
        self.opening.clear();
        self.seats.retain(|_, seat| seat.connection.is_some() || seat.events.is_some());
        for seat in self.seats.values_mut() {
            seat.in_flight.clear();
            seat.waiting.clear();
        }
        (self.in_flight, self.in_flight_bytes, self.waiting_bytes) = (0, 0, 0);
    }

    /// A connection is gone. Its sessions live on.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        let Some(gone) = self.connections.remove(&connection) else { return };
        for session in gone.claims.keys() {
            let Some(seat) = self.seats.get_mut(session) else { continue };
            if seat.connection == Some(connection) {
                seat.connection = None;
            }
            if seat.events.is_some_and(|wait| wait.connection == connection) {
                seat.events = None;
            }
        }
    }

    /// Every count is the sum of its parts.
    pub fn check(&self) {
        debug_assert_eq!(
            self.in_flight,
            self.opening.len() + self.seats.values().map(|seat| seat.in_flight.len()).sum::<usize>()
        );
        debug_assert_eq!(
            self.waiting_bytes,
            self.seats.values().flat_map(|seat| seat.waiting.values()).map(Waiting::weight).sum::<usize>()
        );
    }
}

/// What a request costs beside its command: names and numbers.
pub(crate) const ENVELOPE_BYTES: usize = 128;

/// Proposals under way at a master. Beyond, a request is dropped and its client sends it again after a
/// while: that is all the back-pressure there is, and it keeps a burst out of the agreement's memory.
pub(crate) const IN_FLIGHT_MAX: usize = 16 * 1024;

/// Bytes of the proposals under way; room for the largest and more.
pub(crate) const IN_FLIGHT_BYTES_MAX: usize = 2 * kumo_paxos::OUT_OF_BAND_MAX;

/// Bytes of the requests held back because one before them is missing.
pub(crate) const WAITING_BYTES_MAX: usize = kumo_paxos::OUT_OF_BAND_MAX;

/// How far ahead of the newest executed request one is held back; more would never be remembered anyway.
pub(crate) const WAITING_SPAN_MAX: u64 = crate::session::REFUSALS_MAX as u64;

/// Sessions one connection may speak for.
pub(crate) const CLAIMS_MAX: usize = 1024;

/// Reads parked on one node. Beyond, the client is told where else to ask.
pub(crate) const READS_PARKED_MAX: usize = 4096;

/// Bytes of one query: a question is short.
pub(crate) const QUERY_BYTES_MAX: usize = 64 * 1024;
