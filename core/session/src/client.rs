//! [`Client`]: a client's session without IO. It finds the master, keeps the session alive, numbers and resends.

mod asked;
mod calls;
mod links;
mod messages;
mod questions;
#[cfg(test)]
mod tests;

use crate::application::SessionId;
use crate::protocol::{Ask, ClientMessage, EndReason};
use crate::step::{Answer, CallError, ClientEffect, ClientInput, ClientSettings, SessionState};
use asked::Asked;
use bytes::Bytes;
use kumo_paxos::{Instance, Time};
use links::Links;
use questions::{Kind, Question};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// A client's session: from opening until it is lost or closed.
///
/// It is `Safe` while the master has answered something that was sent less than half a time-out ago (renewals
/// are sent every third), in `Jeopardy` after that, and `Lost` when a whole time-out has passed: from then on
/// the cell may have ended it, so nothing is sent or answered any more.
pub struct Client {
    settings: ClientSettings,
    links: Links,
    state: SessionState,
    failure: Option<CallError>,
    /// Whether any member said anything yet.
    answered: bool,
    started: Time,
    opening: Asked,
    open: Option<Open>,
    /// Numbered requests without a reply.
    commands: BTreeMap<u64, Command>,
    command_bytes: usize,
    next_number: u64,
    /// The highest number that was answered.
    answered_max: u64,
    /// Bytes of replies that no new request has acknowledged since.
    reply_bytes: usize,
    reads: BTreeMap<u64, Read>,
    /// Calls for events, first come first served.
    event_tickets: VecDeque<u64>,
    event_asked: Asked,
    event_tag: u64,
    /// The last event handed out.
    events_seen: u64,
    questions: BTreeMap<u64, Question>,
    next_tag: u64,
    /// Where the session's last update was executed.
    updated: Instance,
    /// No call is due before this.
    calls_at: Option<Time>,
}

/// The session, once it is open.
struct Open {
    session: SessionId,
    timeout_micros: u64,
    /// When the newest thing the master answered was sent.
    renewed: Time,
    renewing: Asked,
}

/// A numbered request that waits for its reply.
struct Command {
    /// `None` for a cancel, which nobody waits for.
    ticket: Option<u64>,
    ask: Ask,
    asked: Asked,
}

struct Read {
    ticket: u64,
    query: Bytes,
    asked: Asked,
}

impl Client {
    /// Nothing happens before the first step: give it [`ClientInput::Timeout`] at once.
    pub fn new(settings: ClientSettings, now: Time) -> Client {
        let (state, failure) = match settings.session {
            true => (SessionState::Opening, None),
            false => (SessionState::Lost, Some(CallError::NoSession)),
        };
        Client {
            links: Links::new(&settings),
            settings,
            state,
            failure,
            answered: false,
            started: now,
            opening: Asked::default(),
            open: None,
            commands: BTreeMap::new(),
            command_bytes: 0,
            next_number: 1,
            answered_max: 0,
            reply_bytes: 0,
            reads: BTreeMap::new(),
            event_tickets: VecDeque::new(),
            event_asked: Asked::default(),
            event_tag: 0,
            events_seen: 0,
            questions: BTreeMap::new(),
            next_tag: 1,
            updated: Instance(0),
            calls_at: None,
        }
    }

    /// All change happens here.
    pub fn step(&mut self, now: Time, input: ClientInput, effects: &mut Vec<ClientEffect>) {
        match input {
            ClientInput::Timeout => {}
            ClientInput::Connected(address) => {
                self.links.connected(address);
                self.calls_at = Some(Time(0));
            }
            ClientInput::Disconnected(address) => self.disconnected(now, address, effects),
            ClientInput::Message(from, message) => self.message(now, from, message, effects),
            ClientInput::Command { ticket, command } => self.command(ticket, command, effects),
            ClientInput::Read { ticket, query } => self.read(ticket, query, effects),
            ClientInput::Events { ticket } => self.events(ticket, effects),
            ClientInput::Cancel { ticket } => self.cancel(ticket, effects),
            ClientInput::Kill { ticket, session } => {
                self.number(ticket, Ask::Kill { session }, effects);
            }
            ClientInput::Close { ticket } => self.close(ticket, effects),
            ClientInput::Status { ticket } => self.question(now, ticket, Kind::Status, effects),
            ClientInput::Sessions { ticket } => self.question(now, ticket, Kind::Sessions, effects),
            ClientInput::Change { ticket, change, at } => {
                self.question(now, ticket, Kind::Change { change, at }, effects);
            }
            ClientInput::Transfer { ticket } => self.question(now, ticket, Kind::Transfer, effects),
            ClientInput::Snapshot { ticket } => self.question(now, ticket, Kind::Snapshot, effects),
        }
        self.watch_session(now, effects);
        self.drop_questions(now, effects);
        self.connect(now, effects);
        self.send_session(now, effects);
        self.send_calls(now, effects);
    }

    /// When to call `step` with [`ClientInput::Timeout`] at the latest.
    pub fn deadline(&self) -> Option<Time> {
        let mut earliest = [self.calls_at, self.questions_deadline(), None, None];
        if self.failure.is_none() {
            earliest[2] = Some(self.session_deadline());
        }
        if self.needs_links() {
            earliest[3] = self.links.deadline();
        }
        earliest.into_iter().flatten().min()
    }

    /// When the session's state changes by itself, or something is sent again to the master we have.
    fn session_deadline(&self) -> Time {
        let reachable = self.links.ready_master().is_some();
        let Some(open) = &self.open else {
            let again = self.opening.again_at().filter(|_| reachable);
            let end = self.started.plus_micros(self.settings.patience_micros);
            return again.map_or(end, |again| again.min(end));
        };
        let share = match self.state {
            SessionState::Opening | SessionState::Safe => open.timeout_micros / JEOPARDY_SHARE,
            SessionState::Jeopardy | SessionState::Lost => open.timeout_micros,
        };
        let change = open.renewed.plus_micros(share);
        let renew = open.renewed.plus_micros(open.timeout_micros / RENEW_SHARE);
        let renew = open.renewing.again_at().unwrap_or(renew);
        if reachable { change.min(renew) } else { change }
    }

    pub fn session(&self) -> Option<SessionId> {
        self.open.as_ref().map(|open| open.session)
    }

    pub fn state(&self) -> SessionState {
        self.state
    }

    /// Until when nobody else can have been given what this session holds. `None`: it is not open, or over.
    pub fn safe_until(&self) -> Option<Time> {
        let open = self.open.as_ref().filter(|_| self.failure.is_none())?;
        Some(open.renewed.plus_micros(open.timeout_micros))
    }

    /// Why the session is lost or could not be opened; every later call fails with it.
    pub fn failure(&self) -> Option<&CallError> {
        self.failure.as_ref()
    }

    fn needs_links(&self) -> bool {
        self.failure.is_none() || !self.questions.is_empty()
    }

    /// Looks how old the last renewal is, or how long opening has taken.
    fn watch_session(&mut self, now: Time, effects: &mut Vec<ClientEffect>) {
        if self.failure.is_some() {
            return;
        }
        let Some(open) = &self.open else {
            if now.since(self.started) >= self.settings.patience_micros {
                self.fail(self.no_answer(), effects);
            }
            return;
        };
        if open.over(now) {
            self.fail(CallError::Lost, effects);
        } else if now.since(open.renewed) >= open.timeout_micros / JEOPARDY_SHARE {
            self.turn(SessionState::Jeopardy, effects);
        } else {
            self.turn(SessionState::Safe, effects);
        }
    }

    fn turn(&mut self, state: SessionState, effects: &mut Vec<ClientEffect>) {
        if self.state != state {
            self.state = state;
            effects.push(ClientEffect::State(state));
        }
    }

    /// Why a call that ran out of patience did.
    fn no_answer(&self) -> CallError {
        if self.answered { CallError::NoMaster } else { CallError::Unreachable }
    }

    /// The session is over: every call of it fails. Who is told so by a call's end finds it lost already.
    fn fail(&mut self, error: CallError, effects: &mut Vec<ClientEffect>) {
        self.failure = Some(error.clone());
        self.turn(SessionState::Lost, effects);
        for (_, command) in std::mem::take(&mut self.commands) {
            let Some(ticket) = command.ticket else { continue };
            let closed = command.ask == Ask::Close && error == CallError::Ended(EndReason::Closed);
            let result = if closed { Ok(Answer::Done) } else { Err(error.clone()) };
            effects.push(ClientEffect::Done(ticket, result));
        }
        self.command_bytes = 0;
        let reads = std::mem::take(&mut self.reads).into_values().map(|read| read.ticket);
        for ticket in reads.chain(std::mem::take(&mut self.event_tickets)) {
            effects.push(ClientEffect::Done(ticket, Err(error.clone())));
        }
    }

    /// Keeps the links that are needed: to the master, or to somebody who may know it.
    fn connect(&mut self, now: Time, effects: &mut Vec<ClientEffect>) {
        if self.needs_links() {
            self.links.keep(now, effects);
            for at in self.questions.values().filter_map(Question::at) {
                self.links.want(now, at, effects);
            }
        } else if self.settings.session {
            self.links.drop_all(effects);
        }
    }

    fn disconnected(&mut self, now: Time, address: SocketAddr, effects: &mut Vec<ClientEffect>) {
        self.links.disconnected(now, address);
        self.forget_asked(address);
        for read in self.reads.values_mut() {
            read.asked.forget(address);
        }
        self.break_questions(address, effects);
    }

    /// What a master was asked there must be asked again.
    fn forget_asked(&mut self, address: SocketAddr) {
        let linear = self.settings.sync;
        let calls = self.commands.values_mut().map(|command| &mut command.asked);
        let reads = self.reads.values_mut().filter(|_| linear).map(|read| &mut read.asked);
        let renewing = self.open.as_mut().map(|open| &mut open.renewing);
        let others = [Some(&mut self.opening), Some(&mut self.event_asked), renewing];
        for asked in calls.chain(reads).chain(others.into_iter().flatten()) {
            asked.forget(address);
        }
    }

    /// Opens, or renews.
    fn send_session(&mut self, now: Time, effects: &mut Vec<ClientEffect>) {
        if self.failure.is_some() {
            return;
        }
        let Some(master) = self.links.ready_master() else { return };
        let resend = self.settings.resend_micros;
        let Some(open) = &mut self.open else {
            if self.opening.is_due(now, master) {
                self.suspect(now, self.opening);
                self.opening.sent_steadily(now, master, resend);
                let (token, label) = (self.settings.token, self.settings.label.clone());
                effects.push(ClientEffect::Send(master, ClientMessage::Open { token, label }));
            }
            return;
        };
        let wanted = now.since(open.renewed) >= open.timeout_micros / RENEW_SHARE;
        if wanted && open.renewing.is_due(now, master) {
            let (session, before) = (open.session, open.renewing);
            open.renewing.sent_steadily(now, master, resend);
            self.suspect(now, before);
            self.attach(master, effects);
            effects.push(ClientEffect::Send(master, ClientMessage::Renew { session, sent: now.0 }));
        }
    }

    /// Something must be sent to the master again: if it has said nothing since, ask others who is master.
    fn suspect(&mut self, now: Time, asked: Asked) {
        if let Some(since) = asked.sent_at() {
            self.links.suspect(now, since);
        }
    }

    /// A master said something that only a master says. If it was silent before, what it was asked may be lost.
    fn heard(&mut self, now: Time, from: SocketAddr) {
        if self.links.heard(now, from) {
            self.forget_asked(from);
            self.calls_at = Some(Time(0));
        }
    }

    /// Says on a new connection for whom it speaks.
    fn attach(&mut self, to: SocketAddr, effects: &mut Vec<ClientEffect>) {
        if let Some(open) = &self.open
            && self.links.attach(to)
        {
            let (session, token) = (open.session, self.settings.token);
            effects.push(ClientEffect::Send(to, ClientMessage::Attach { session, token }));
        }
    }
}

impl Open {
    /// The master answered something that was sent at `sent`.
    fn renewed(&mut self, sent: Time) {
        if sent > self.renewed {
            self.renewed = sent;
            self.renewing = Asked::default();
        }
    }

    /// Whether the cell may have ended it.
    fn over(&self, now: Time) -> bool {
        now.since(self.renewed) >= self.timeout_micros
    }
}

/// A renewal is sent when the last one is a third of the time-out old: two may be lost.
const RENEW_SHARE: u64 = 3;

/// The session is in jeopardy when the last renewal is half a time-out old: the next was due a sixth of the
/// time-out ago, much longer than a change of masters takes.
const JEOPARDY_SHARE: u64 = 2;
