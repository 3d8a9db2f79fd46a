//! How a node serves sessions: connections, opening, attaching, requests, renewals.

use crate::application::{Application, SessionId};
use crate::cell::Cell;
use crate::entry::LogEntry;
use crate::front::{CLAIMS_MAX, ENVELOPE_BYTES, WAITING_SPAN_MAX, Waiting};
use crate::protocol::{CellMessage, ClientMessage, EndReason, Label};
use crate::session::REFUSALS_MAX;
use crate::step::{ConnectionId, Effect, NodeNote};
use bytes::Bytes;
use kumo_paxos::{Instance, OUT_OF_BAND_MAX, Time};
use kumo_wire::{Wire, Writer};

/// What a session named on a connection is to it.
pub(crate) enum Claim {
    Good,
    /// The session is over, or not known here.
    Gone,
    /// It broke the rules and was refused.
    Refused,
}

impl<A: Application> Cell<A> {
    pub(crate) fn client_up(&mut self, connection: ConnectionId, effects: &mut Vec<Effect>) {
        self.front.connections.insert(connection, Default::default());
        self.redirect(connection, effects);
    }

    pub(crate) fn client_down(&mut self, connection: ConnectionId) {
        self.front.disconnect(connection);
        self.parked.retain(|(_, of, _), _| *of != connection);
        self.linear.retain(|read| read.connection != connection);
    }

    pub(crate) fn client(
        &mut self,
        now: Time,
        connection: ConnectionId,
        message: ClientMessage,
        effects: &mut Vec<Effect>,
    ) {
        // What arrives after a refusal is not looked at.
        if !self.front.connections.contains_key(&connection) {
            return;
        }
        match message {
            ClientMessage::Open { token, label } => self.open(now, connection, token, label, effects),
            ClientMessage::Attach { session, token } => {
                self.attach(now, connection, session, token, effects);
            }
            ClientMessage::Request { session, number, acknowledged, unanswered, events_seen, ask } => {
                let request = Waiting { number, acknowledged, unanswered, events_seen, ask };
                self.request(now, connection, session, request, effects);
            }
            ClientMessage::Renew { session, sent } => self.renew(now, connection, session, sent, effects),
            ClientMessage::Read { session, tag, after, linear: true, query } => {
                let _ = after; // The master has executed everything it ever answered.
                self.read_linear(now, connection, session, tag, query, effects);
            }
            ClientMessage::Read { session, tag, after, linear: false, query } => {
                self.read(now, connection, session, tag, after, query, effects);
            }
            ClientMessage::Events { session, tag, after, executed } => {
                self.events(now, connection, session, tag, after, executed, effects);
            }
            ClientMessage::Who => self.redirect(connection, effects),
            ClientMessage::Status { tag } => self.tell_status(now, connection, tag, effects),
            ClientMessage::Sessions { tag } => self.tell_sessions(now, connection, tag, effects),
            ClientMessage::Change { tag, change } => self.order(now, connection, tag, change, effects),
            ClientMessage::Transfer { tag } => self.transfer(now, connection, tag, effects),
            ClientMessage::Snapshot { tag } => self.write_snapshot(connection, tag, effects),
        }
    }

    /// Tells a client whom to ask instead.
    pub(crate) fn redirect(&self, connection: ConnectionId, effects: &mut Vec<Effect>) {
        self.say(connection, self.who(), effects);
    }

    fn who(&self) -> CellMessage {
        let members = match self.replica.configuration() {
            Some(configuration) => configuration.members.iter().map(|member| member.address).collect(),
            None => std::iter::once(self.paxos.address).chain(self.paxos.peers.iter().copied()).collect(),
        };
        let least_loaded = self.replica.least_loaded();
        CellMessage::Master { master: self.known_master(), members, least_loaded }
    }

    fn known_master(&self) -> Option<std::net::SocketAddr> {
        match self.reign {
            Some(_) => Some(self.paxos.address),
            // It may still name itself while it is not ready to serve as one.
            None => self.replica.master().filter(|master| *master != self.paxos.address),
        }
    }

    /// Tells all clients when the master or the members have changed, and now and then who has least to do.
    pub(crate) fn tell_master(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let version = self.replica.configuration().map_or(0, |configuration| configuration.version);
        let master = self.known_master();
        let (told_master, told_version, told_load) = self.told_master;
        let changed = (master, version) != (told_master, told_version);
        if !changed && now < self.tell_load_at {
            return;
        }
        self.tell_load_at = now.plus_micros(LOAD_UNITS * self.paxos.unit_micros);
        let least_loaded = self.replica.least_loaded();
        if !changed && least_loaded == told_load {
            return;
        }
        self.told_master = (master, version, least_loaded);
        let message = self.who();
        for connection in self.front.connections.keys() {
            effects.push(Effect::Client(*connection, message.clone()));
        }
    }

    /// Ends a connection that broke a rule.
    pub(crate) fn refuse(&mut self, connection: ConnectionId, reason: &str, effects: &mut Vec<Effect>) {
        let reason = reason.to_owned();
        self.say(connection, CellMessage::Refused { reason: reason.clone() }, effects);
        effects.push(Effect::Hangup(connection));
        effects.push(Effect::Note(NodeNote::ClientRefused { connection, reason }));
        self.client_down(connection);
    }

    fn open(
        &mut self,
        now: Time,
        connection: ConnectionId,
        token: u128,
        label: Label,
        effects: &mut Vec<Effect>,
    ) {
        if self.reign.is_none() {
            return self.redirect(connection, effects);
        }
        if self.claims(connection) >= CLAIMS_MAX {
            return self.refuse(connection, TOO_MANY_CLAIMS, effects);
        }
        if let Some(session) = self.table.by_token(token) {
            let instance = self.replica.executed_upto();
            self.seat(now, connection, session, token);
            return self.say_opened(connection, session, token, instance, effects);
        }
        if let Some(ended) = self.table.ended_by_token(token) {
            let (session, reason) = (ended.session, ended.reason);
            return self.say(connection, CellMessage::Ended { session, reason }, effects);
        }
        if let Some(waiting) = self.front.opening.get_mut(&token) {
            waiting.0 = connection;
            return;
        }
        // Checked here and not when it is executed: the limit is this node's setting, not agreed.
        if self.table.sessions.len() + self.front.opening.len() >= self.settings.sessions_max {
            return self.refuse(connection, "the cell has as many sessions as it may", effects);
        }
        let bytes = ENVELOPE_BYTES + label.address.len();
        if self.front.has_room(bytes) {
            self.front.opening.insert(token, (connection, bytes));
            self.front.proposed(bytes);
            self.propose(now, LogEntry::Open { time: self.wall, token, label });
        }
    }

    /// A session was opened by an entry (or found there by a later one).
    pub(crate) fn opened(
        &mut self,
        now: Time,
        token: u128,
        session: SessionId,
        instance: Instance,
        effects: &mut Vec<Effect>,
    ) {
        if self.reign.is_none() {
            return;
        }
        self.front.seats.entry(session).or_default().heard = now;
        let Some(connection) = self.front.open_settled(token) else { return };
        if self.front.connections.contains_key(&connection) {
            self.seat(now, connection, session, token);
            self.say_opened(connection, session, token, instance, effects);
        }
    }

    fn say_opened(
        &self,
        connection: ConnectionId,
        session: SessionId,
        token: u128,
        instance: Instance,
        effects: &mut Vec<Effect>,
    ) {
        let timeout_ms = self.settings.session_timeout_micros / 1000;
        self.say(connection, CellMessage::Opened { token, session, instance, timeout_ms }, effects);
    }

    /// The connection speaks for the session from now on, and gets its replies.
    fn seat(&mut self, now: Time, connection: ConnectionId, session: SessionId, token: u128) {
        if let Some(known) = self.front.connections.get_mut(&connection) {
            known.claims.insert(session, token);
        }
        let seat = self.front.seats.entry(session).or_default();
        seat.connection = Some(connection);
        seat.heard = now;
    }

    fn attach(
        &mut self,
        now: Time,
        connection: ConnectionId,
        session: SessionId,
        token: u128,
        effects: &mut Vec<Effect>,
    ) {
        if self.claims(connection) >= CLAIMS_MAX {
            return self.refuse(connection, TOO_MANY_CLAIMS, effects);
        }
        match self.table.get(session) {
            Some(known) if known.token != token => self.refuse(connection, WRONG_TOKEN, effects),
            Some(_) => {
                self.seat(now, connection, session, token);
                self.say(connection, CellMessage::Attached { session }, effects);
            }
            None => {
                // This replica may only be behind: the token is checked when the session is used. So may a master
                // without a lease be, that was replaced and has not heard of it.
                if let Some(known) = self.front.connections.get_mut(&connection) {
                    known.claims.insert(session, token);
                }
                if self.has_lease(now) {
                    self.say_ended(connection, session, effects);
                }
            }
        }
    }

    fn claims(&self, connection: ConnectionId) -> usize {
        self.front.connections.get(&connection).map_or(0, |known| known.claims.len())
    }

    pub(crate) fn say_ended(&self, connection: ConnectionId, session: SessionId, effects: &mut Vec<Effect>) {
        let reason = self.table.end_of(session);
        self.say(connection, CellMessage::Ended { session, reason }, effects);
    }

    /// The master does not know the session. That it is over can only be said by one that provably is master: one
    /// that was replaced may not have heard of it yet.
    pub(crate) fn say_gone(
        &self,
        now: Time,
        connection: ConnectionId,
        session: SessionId,
        effects: &mut Vec<Effect>,
    ) {
        if self.has_lease(now) {
            self.say_ended(connection, session, effects);
        }
    }

    /// Whether a connection may use a session; one that may not is refused.
    pub(crate) fn claim(
        &mut self,
        connection: ConnectionId,
        session: SessionId,
        effects: &mut Vec<Effect>,
    ) -> Claim {
        let claimed = self.front.connections.get(&connection).and_then(|known| known.claims.get(&session));
        let known = self.table.get(session);
        match (claimed, known) {
            (Some(token), Some(known)) if *token == known.token => Claim::Good,
            (Some(_), Some(_)) => {
                self.refuse(connection, WRONG_TOKEN, effects);
                Claim::Refused
            }
            (Some(_), None) => Claim::Gone,
            (None, _) => {
                self.refuse(connection, "the session was neither opened nor attached here", effects);
                Claim::Refused
            }
        }
    }

    fn renew(
        &mut self,
        now: Time,
        connection: ConnectionId,
        session: SessionId,
        sent: u64,
        effects: &mut Vec<Effect>,
    ) {
        if self.reign.is_none() {
            return self.redirect(connection, effects);
        }
        match self.claim(connection, session, effects) {
            Claim::Refused => {}
            Claim::Gone => self.say_gone(now, connection, session, effects),
            Claim::Good => {
                self.touch(now, connection, session);
                // Without a lease another master may have given the session up: promise nothing.
                if self.replica.has_lease(now) {
                    self.say(connection, CellMessage::Renewed { session, sent }, effects);
                }
            }
        }
    }

    /// The master has heard of a session.
    pub(crate) fn touch(&mut self, now: Time, connection: ConnectionId, session: SessionId) {
        let seat = self.front.seats.entry(session).or_default();
        seat.heard = now;
        seat.connection = Some(connection);
    }

    fn request(
        &mut self,
        now: Time,
        connection: ConnectionId,
        session: SessionId,
        request: Waiting,
        effects: &mut Vec<Effect>,
    ) {
        self.load = self.load.saturating_add(1);
        if self.reign.is_none() {
            return self.redirect(connection, effects);
        }
        match self.claim(connection, session, effects) {
            Claim::Refused => return,
            Claim::Gone => return self.say_gone(now, connection, session, effects),
            Claim::Good => self.touch(now, connection, session),
        }
        if let Err(reason) = acceptable(&request) {
            return self.refuse(connection, reason, effects);
        }
        let Some(known) = self.table.get(session) else { return };
        if request.number <= known.executed {
            // Executed before: the same reply again, if it was given and is not acknowledged.
            if let Some(remembered) = known.reply(request.number) {
                let message = CellMessage::Reply {
                    session,
                    number: request.number,
                    instance: remembered.instance,
                    reply: remembered.reply.clone(),
                };
                self.say(connection, message, effects);
            }
            return;
        }
        if request.acknowledged > known.executed {
            // It has replies that this cell does not know of: they were lost in a recovery, and the session's
            // order with them.
            let seen = known.executed;
            return self.give_up(now, session, seen);
        }
        // One that acknowledges something makes room for itself.
        if known.is_overfull() && !known.acknowledges(request.acknowledged, &request.unanswered) {
            return self.refuse(connection, "too many replies are not acknowledged", effects);
        }
        let (number, executed) = (request.number, known.executed);
        let seat = self.front.seats.get(&session);
        let in_flight = seat.is_some_and(|it| it.in_flight.contains_key(&number));
        if !in_flight && number - executed <= WAITING_SPAN_MAX {
            let is_next = number == executed + 1 || seat.is_some_and(|it| it.follows(number));
            let next = is_next && self.front.has_room(request.weight());
            self.front.hold(session, request, next);
            self.propose_waiting(now, session);
        }
    }

    /// Proposes what a session has waiting, in order, as long as nothing before it is missing. Numbers go up
    /// to the log once a reign: resending is the client's part, order is ours.
    pub(crate) fn propose_waiting(&mut self, now: Time, session: SessionId) {
        if self.reign.is_none() {
            return;
        }
        let Some(executed) = self.table.get(session).map(|known| known.executed) else { return };
        loop {
            let Some(seat) = self.front.seats.get(&session) else { return };
            let Some((&number, first)) = seat.waiting.first_key_value() else { return };
            let is_next = number == executed + 1 || seat.follows(number);
            let bytes = first.weight();
            if number > executed && (!is_next || !self.front.has_room(bytes)) {
                return;
            }
            let Some(request) = self.front.unhold(session, number) else { return };
            if number <= executed {
                continue;
            }
            if let Some(seat) = self.front.seats.get_mut(&session) {
                seat.in_flight.insert(number, bytes);
                self.front.proposed(bytes);
            }
            let Waiting { number, acknowledged, unanswered, events_seen, ask } = request;
            let time = self.wall;
            let entry =
                LogEntry::Request { time, session, number, acknowledged, unanswered, events_seen, ask };
            self.propose(now, entry);
        }
    }

    pub(crate) fn propose(&mut self, now: Time, entry: LogEntry) {
        let mut command = Writer::with_capacity(entry.usual_bytes());
        entry.encode(&mut command);
        self.agree(now, kumo_paxos::Input::Propose(command));
    }

    /// An open came too late: its session is over already.
    pub(crate) fn not_opened(
        &mut self,
        token: u128,
        session: SessionId,
        reason: EndReason,
        effects: &mut Vec<Effect>,
    ) {
        let Some(connection) = self.front.open_settled(token) else { return };
        if self.front.connections.contains_key(&connection) {
            self.say(connection, CellMessage::Ended { session, reason }, effects);
        }
    }

    /// A session ended by an entry, or is missing in a snapshot taken over.
    pub(crate) fn session_ended(&mut self, session: SessionId, reason: EndReason, effects: &mut Vec<Effect>) {
        self.expiring.remove(&session);
        self.event_sessions.remove(&session);
        let Some(seat) = self.front.unseat(session) else { return };
        let events = seat.events.map(|wait| wait.connection).filter(|waits| Some(*waits) != seat.connection);
        for connection in [seat.connection, events].into_iter().flatten() {
            self.say(connection, CellMessage::Ended { session, reason }, effects);
        }
    }
}

/// Tells those who run the cell if an answer says that what was asked for was wrong.
pub(crate) fn complain<A: Application>(connection: ConnectionId, answer: &Bytes, effects: &mut Vec<Effect>) {
    if let Some(reason) = A::complaint(answer) {
        effects.push(Effect::Note(NodeNote::RequestRefused { connection, reason }));
    }
}

/// What can be said of a request without knowing its session.
fn acceptable(request: &Waiting) -> Result<(), &'static str> {
    if request.number == 0 {
        return Err("requests are numbered from 1");
    }
    if request.unanswered.len() > REFUSALS_MAX {
        return Err("more requests are listed as unanswered than a session may have");
    }
    if request.weight() > OUT_OF_BAND_MAX {
        return Err("the request is larger than a log entry may be");
    }
    Ok(())
}

const TOO_MANY_CLAIMS: &str = "too many sessions on one connection";
const WRONG_TOKEN: &str = "the session belongs to another client";

/// Who has least to do is told anew at most every so many heartbeats.
const LOAD_UNITS: u64 = 10;
