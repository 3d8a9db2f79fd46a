//! [`Table`]: the replicated sessions, and the one place where a decided entry is executed.

use crate::application::{Application, Entry, Outcome, SessionId, UnixMillis, numbered};
use crate::digest::Digest;
use crate::entry::LogEntry;
use crate::protocol::{Ask, EndReason, Label, Reply};
use crate::room::Room;
use crate::session::{REPLIES_MAX, Session};
use bytes::Bytes;
use kumo_paxos::{DataName, Instance};
use kumo_wire::{Wire, wire_struct};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// All sessions of the cell. Equal on all replicas that executed the same entries; cheap to freeze, because
/// a session is copied only when it changes while a frozen copy lives.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Of the newest entry executed: never decreases.
    pub(crate) time: UnixMillis,
    /// Sessions ever opened.
    pub(crate) count: u64,
    pub(crate) sessions: BTreeMap<SessionId, Arc<Session>>,
    /// The same, by token.
    pub(crate) tokens: BTreeMap<u128, SessionId>,
    /// The latest ones that ended, so that their clients hear why, and a late copy of an open opens nothing.
    pub(crate) ended: VecDeque<Ended>,
    pub(crate) digest: Digest,
    /// Sessions whose replies leave no room. Follows from the sessions.
    pub(crate) full: Arc<BTreeSet<SessionId>>,
}

/// A session that is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub session: SessionId,
    pub token: u128,
    pub reason: EndReason,
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub instance: Instance,
    pub generation: u32,
}

/// What executing led to, for the clients that are connected here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Opened {
        token: u128,
        session: SessionId,
    },
    /// The session of that token is over already.
    NotOpened {
        token: u128,
        session: SessionId,
        reason: EndReason,
    },
    Reply {
        session: SessionId,
        number: u64,
        reply: Reply,
    },
    Event(SessionId),
    Ended {
        session: SessionId,
        reason: EndReason,
    },
}

/// Which proposal an executed entry was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Open(u128),
    Request(SessionId, u64),
    Expire(SessionId),
}

impl Table {
    pub fn get(&self, session: SessionId) -> Option<&Session> {
        self.sessions.get(&session).map(Arc::as_ref)
    }

    pub fn by_token(&self, token: u128) -> Option<SessionId> {
        self.tokens.get(&token).copied()
    }

    /// How a session ended; `Unknown` when that is forgotten or it never was.
    pub fn end_of(&self, session: SessionId) -> EndReason {
        let found = self.ended.iter().find(|ended| ended.session == session);
        found.map_or(EndReason::Unknown, |ended| ended.reason)
    }

    pub fn ended_by_token(&self, token: u128) -> Option<&Ended> {
        self.ended.iter().find(|ended| ended.token == token)
    }

    /// Executes one decided command; a large one has a name. `None`: its bytes are no entry of this layer, and it is void.
    pub fn execute<A: Application>(
        &mut self,
        at: At,
        command: Bytes,
        name: Option<DataName>,
        application: &mut A,
        told: &mut Vec<Told>,
    ) -> Option<Named> {
        self.digest.number(at.instance.0);
        // The name of a large command was compared with its bytes when they came, on every replica.
        match name {
            Some(name) => self.digest.bytes(&name.0),
            None => self.digest.bytes(&command),
        }
        match LogEntry::from_bytes(command).ok()? {
            LogEntry::Open { time, token, label } => {
                self.time = self.time.max(time);
                self.open(at, token, label, told);
                Some(Named::Open(token))
            }
            LogEntry::Request { time, session, number, acknowledged, unanswered, events_seen, ask } => {
                self.time = self.time.max(time);
                let admitted = self.admit(session, number, acknowledged, &unanswered, events_seen);
                self.make_room(self.entry(at, session, 0), application, told);
                if admitted {
                    let entry = self.entry(at, session, number);
                    self.request(entry, ask, application, told);
                }
                Some(Named::Request(session, number))
            }
            LogEntry::Expire { time, session, seen } => {
                self.time = self.time.max(time);
                if self.get(session).is_some_and(|known| known.executed <= seen) {
                    let entry = self.entry(at, session, 0);
                    self.end(entry, EndReason::Expired, application, told);
                }
                Some(Named::Expire(session))
            }
            LogEntry::House { time, command } => {
                self.time = self.time.max(time);
                let entry = self.entry(at, SessionId::HOUSE, 0);
                let mut outcome = self.outcome();
                application.apply(entry, command, &mut outcome);
                // Nobody waits for it.
                outcome.reply = None;
                self.settle(entry, outcome, told);
                None
            }
        }
    }

    /// Whether there are sessions of earlier generations.
    pub fn has_earlier(&self, at: At) -> bool {
        self.sessions.keys().next().is_some_and(|session| session.0 < numbered(at.generation, 0))
    }

    /// A recovery may have lost what sessions of earlier generations were told: a lock that was granted, a request
    /// that was answered. They end before anything of the new one is executed.
    ///
    /// All of them leave, and their parked requests with them, before the application frees anything: what one held
    /// must not be handed to another whose end is already certain. A message would be lost with it.
    pub fn end_earlier<A: Application>(&mut self, at: At, application: &mut A, told: &mut Vec<Told>) {
        let mut left = Vec::new();
        while self.has_earlier(at) {
            let Some(&session) = self.sessions.keys().next() else { break };
            left.extend(self.leave(session, EndReason::Unknown, told));
        }
        let gone = left.iter().map(|session| session.id);
        let full: Arc<BTreeSet<SessionId>> = Arc::new(self.full.iter().copied().chain(gone).collect());
        for session in &left {
            let entry = self.entry(at, session.id, 0);
            for target in session.parked() {
                let mut outcome = Outcome { room: Room::new(full.clone()), ..Outcome::default() };
                application.cancel(entry, target, &mut outcome);
                outcome.reply = None;
                self.settle(entry, outcome, told);
            }
        }
        for session in left {
            self.free(self.entry(at, session.id, 0), application, told);
        }
    }

    fn entry(&self, at: At, session: SessionId, number: u64) -> Entry {
        Entry { instance: at.instance, generation: at.generation, time: self.time, session, number }
    }

    fn open(&mut self, at: At, token: u128, label: Label, told: &mut Vec<Told>) {
        if let Some(session) = self.by_token(token) {
            told.push(Told::Opened { token, session });
            return;
        }
        if let Some(ended) = self.ended_by_token(token) {
            told.push(Told::NotOpened { token, session: ended.session, reason: ended.reason });
            return;
        }
        self.count += 1;
        let session = SessionId(numbered(at.generation, self.count));
        self.digest.number(session.0);
        self.sessions.insert(session, Arc::new(Session::new(session, token, label, self.time)));
        self.tokens.insert(token, session);
        told.push(Told::Opened { token, session });
    }

    /// Takes note of a request. False: it is void, because its session is no more, because it was executed
    /// before, or because one before it is missing; its client sends it again if it still waits.
    fn admit(
        &mut self,
        id: SessionId,
        number: u64,
        acknowledged: u64,
        unanswered: &[u64],
        events_seen: u64,
    ) -> bool {
        let Some(session) = self.session_mut(id) else { return false };
        session.acknowledge(acknowledged.min(session.executed), unanswered);
        session.events_seen(events_seen);
        if number != session.executed + 1 || session.is_overfull() {
            return false;
        }
        session.executed = number;
        true
    }

    /// What a session has acknowledged may have left room for what it has parked.
    fn make_room<A: Application>(&mut self, entry: Entry, application: &mut A, told: &mut Vec<Told>) {
        let left = self.get(entry.session).is_some_and(Session::has_room);
        if !left || !self.full.contains(&entry.session) {
            return;
        }
        Arc::make_mut(&mut self.full).remove(&entry.session);
        let mut outcome = self.outcome();
        application.session_has_room(entry, &mut outcome);
        outcome.reply = None;
        self.settle(entry, outcome, told);
    }

    fn outcome(&self) -> Outcome {
        Outcome { room: Room::new(self.full.clone()), ..Outcome::default() }
    }

    fn request<A: Application>(&mut self, entry: Entry, ask: Ask, application: &mut A, told: &mut Vec<Told>) {
        let (id, number) = (entry.session, entry.number);
        let Some(session) = self.session_mut(id) else { return };
        let full = session.is_full();
        // Parked until something below answers it.
        session.park(number);
        match ask {
            Ask::Command(_) if full => {
                let reason =
                    format!("more than {REPLIES_MAX} replies, or too many bytes, are not acknowledged");
                self.answer(entry, id, number, Reply::Refused(reason), told);
            }
            Ask::Command(command) => {
                let mut outcome = self.outcome();
                application.apply(entry, command, &mut outcome);
                self.settle(entry, outcome, told);
            }
            Ask::Cancel { target } => {
                // The session layer knows what is parked; only the application can forget it.
                let parked = target < number && self.get(id).is_some_and(|session| session.is_parked(target));
                let mut outcome = self.outcome();
                if parked && application.cancel(entry, target, &mut outcome) {
                    self.answer(entry, id, target, Reply::Cancelled, told);
                    outcome.reply = None;
                    self.settle(entry, outcome, told);
                }
                self.answer(entry, id, number, Reply::Cancelled, told);
            }
            Ask::Close => {
                self.answer(entry, id, number, Reply::Closed, told);
                self.end(entry, EndReason::Closed, application, told);
            }
            Ask::Kill { session: target } if self.sessions.contains_key(&target) => {
                self.answer(entry, id, number, Reply::Closed, told);
                self.end(Entry { session: target, ..entry }, EndReason::Killed, application, told);
            }
            Ask::Kill { .. } => self.answer(entry, id, number, Reply::NoSession, told),
        }
    }

    /// Ends `entry.session`: the application frees what it held, and nothing more is executed for it.
    fn end<A: Application>(
        &mut self,
        entry: Entry,
        reason: EndReason,
        application: &mut A,
        told: &mut Vec<Told>,
    ) {
        if self.leave(entry.session, reason, told).is_some() {
            self.free(entry, application, told);
        }
    }

    /// Takes a session out of the table, if it is in it.
    fn leave(&mut self, session: SessionId, reason: EndReason, told: &mut Vec<Told>) -> Option<Arc<Session>> {
        let gone = self.sessions.remove(&session)?;
        self.tokens.remove(&gone.token);
        if self.full.contains(&session) {
            Arc::make_mut(&mut self.full).remove(&session);
        }
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { session, token: gone.token, reason });
        self.digest.number(session.0);
        told.push(Told::Ended { session, reason });
        Some(gone)
    }

    /// What a session that left held goes to others, or to nobody.
    fn free<A: Application>(&mut self, entry: Entry, application: &mut A, told: &mut Vec<Told>) {
        let mut outcome = self.outcome();
        application.session_ended(entry, &mut outcome);
        outcome.reply = None;
        self.settle(entry, outcome, told);
    }

    /// Does what an outcome says: the reply, answers to parked requests, events.
    fn settle(&mut self, entry: Entry, outcome: Outcome, told: &mut Vec<Told>) {
        if let Some(body) = outcome.reply {
            self.answer(entry, entry.session, entry.number, Reply::Body(body), told);
        }
        for (session, number, body) in outcome.answers {
            self.answer(entry, session, number, Reply::Body(body), told);
        }
        for (id, count) in outcome.omitted {
            self.digest.number(id.0);
            self.digest.number(count);
            if let Some(session) = self.session_mut(id) {
                session.omit_events(entry.generation, count);
            }
        }
        for (id, event) in outcome.events {
            self.digest.number(id.0);
            self.digest.bytes(&event);
            let Some(session) = self.session_mut(id) else { continue };
            session.event(entry.generation, event);
            told.push(Told::Event(id));
        }
    }

    fn answer(&mut self, entry: Entry, id: SessionId, number: u64, reply: Reply, told: &mut Vec<Told>) {
        self.digest.number(id.0);
        self.digest.number(number);
        match &reply {
            Reply::Body(body) => self.digest.bytes(body),
            Reply::Refused(reason) => self.digest.bytes(reason.as_bytes()),
            Reply::Cancelled => self.digest.number(1),
            Reply::Closed => self.digest.number(2),
            Reply::NoSession => self.digest.number(3),
        }
        let Some(session) = self.session_mut(id) else { return };
        let answered = session.answer(number, entry.instance, reply.clone());
        if !session.has_room() && !self.full.contains(&id) {
            Arc::make_mut(&mut self.full).insert(id);
        }
        if answered {
            told.push(Told::Reply { session: id, number, reply });
        }
    }

    fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id).map(Arc::make_mut)
    }
}

/// Ended sessions remembered with their reason. A client that asks later is told that its session is unknown,
/// which means the same to it.
pub(crate) const ENDED_MAX: usize = 1024;

wire_struct!(Ended { session, token, reason });

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_wire::Malformed;

    /// The first session that asks holds the baton; the others are parked, and get it in their turn.
    #[derive(Clone, Default)]
    struct Baton {
        line: VecDeque<(SessionId, u64)>,
    }

    impl Application for Baton {
        type Parts = std::iter::Empty<Bytes>;

        fn apply(&mut self, entry: Entry, _: Bytes, outcome: &mut Outcome) {
            outcome.reply = self.line.is_empty().then(Bytes::new);
            self.line.push_back((entry.session, entry.number));
        }
        fn cancel(&mut self, _: Entry, _: u64, _: &mut Outcome) -> bool {
            false
        }
        fn session_ended(&mut self, entry: Entry, outcome: &mut Outcome) {
            let before = self.line.front().copied();
            self.line.retain(|&(session, _)| session != entry.session);
            let now = self.line.front().copied();
            if let Some((session, number)) = now.filter(|_| now != before) {
                outcome.answers.push((session, number, Bytes::new()));
            }
        }
        fn read(&self, _: SessionId, query: Bytes) -> Bytes {
            query
        }
        fn snapshot(&self) -> Self::Parts {
            std::iter::empty()
        }
        fn restore(_: Vec<Bytes>) -> Result<Self, Malformed> {
            Ok(Baton::default())
        }
    }

    /// One parcel, handed to the first session that asks until that ends; the next in line then gets it for good.
    #[derive(Clone, Default)]
    struct Parcel {
        keeper: Option<SessionId>,
        line: VecDeque<(SessionId, u64)>,
        gone: bool,
    }

    impl Application for Parcel {
        type Parts = std::iter::Empty<Bytes>;

        fn apply(&mut self, entry: Entry, _: Bytes, outcome: &mut Outcome) {
            if self.keeper.is_none() {
                self.keeper = Some(entry.session);
                outcome.reply = Some(Bytes::new());
            } else {
                self.line.push_back((entry.session, entry.number));
            }
        }
        fn cancel(&mut self, entry: Entry, target: u64, _: &mut Outcome) -> bool {
            let before = self.line.len();
            self.line.retain(|waiter| *waiter != (entry.session, target));
            self.line.len() < before
        }
        fn session_ended(&mut self, entry: Entry, outcome: &mut Outcome) {
            self.line.retain(|(session, _)| *session != entry.session);
            if self.keeper.take_if(|keeper| *keeper == entry.session).is_some()
                && let Some((session, number)) = self.line.pop_front()
            {
                self.gone = true;
                outcome.answers.push((session, number, Bytes::new()));
            }
        }
        fn read(&self, _: SessionId, query: Bytes) -> Bytes {
            query
        }
        fn snapshot(&self) -> Self::Parts {
            std::iter::empty()
        }
        fn restore(_: Vec<Bytes>) -> Result<Self, Malformed> {
            Ok(Parcel::default())
        }
    }

    /// Three sessions of the first generation, each of which has asked for what there is.
    fn three_sessions<A: Application>(application: &mut A) -> Table {
        let mut table = Table::default();
        let (time, at) = (UnixMillis(5), At { instance: Instance(1), generation: 1 });
        for count in 1..=3 {
            let open = LogEntry::Open { time, token: count, label: Label::default() };
            table.execute(at, open.to_bytes(), None, application, &mut Vec::new());
        }
        for count in 1..=3 {
            let request = LogEntry::Request {
                time,
                session: SessionId(numbered(1, count)),
                number: 1,
                acknowledged: 0,
                unanswered: Vec::new(),
                events_seen: 0,
                ask: Ask::Command(Bytes::new()),
            };
            table.execute(at, request.to_bytes(), None, application, &mut Vec::new());
        }
        table
    }

    #[test]
    fn a_recovery_grants_nothing_to_a_session_that_it_ends() {
        let mut baton = Baton::default();
        let mut table = three_sessions(&mut baton);
        let mut told = Vec::new();
        table.end_earlier(At { instance: Instance(2), generation: 2 }, &mut baton, &mut told);
        let all_end = told.iter().all(|one| matches!(one, Told::Ended { .. }));
        assert!(all_end && told.len() == 3, "{told:?}");
        assert!(table.sessions.is_empty() && baton.line.is_empty());
    }

    #[test]
    fn a_recovery_hands_nothing_to_a_request_that_nobody_waits_for() {
        let mut parcel = Parcel::default();
        let mut table = three_sessions(&mut parcel);
        assert_eq!(parcel.line.len(), 2);
        table.end_earlier(At { instance: Instance(2), generation: 2 }, &mut parcel, &mut Vec::new());
        assert!(!parcel.gone, "it is there for those who come");
        assert!(parcel.keeper.is_none() && parcel.line.is_empty());
    }
}
