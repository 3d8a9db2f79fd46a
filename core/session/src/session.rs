//! [`Session`]: what every replica knows of one session.

use crate::application::{GENERATION_SHIFT, SessionId, UnixMillis, numbered};
use crate::protocol::{Label, Reply};
use bytes::Bytes;
use kumo_paxos::Instance;
use kumo_wire::{Malformed, Reader, Wire, Writer, wire_struct};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One session as the log made it. Part of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub id: SessionId,
    pub token: u128,
    pub label: Label,
    pub opened: UnixMillis,
    /// The number of the newest request executed; all up to it are executed, once, in order.
    pub executed: u64,
    /// Answered, and not known to have reached the client.
    replies: BTreeMap<u64, Remembered>,
    reply_bytes: usize,
    /// Executed, and not answered yet.
    parked: BTreeSet<u64>,
    /// Not known to have reached the client, oldest first, with their numbers.
    events: VecDeque<(u64, Bytes)>,
    event_bytes: usize,
    /// The number of the newest event, kept or not. 0: there was none.
    event_last: u64,
}

/// A reply and where it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub instance: Instance,
    pub reply: Reply,
}

/// Events for a reader: consecutive from `first`, with `omitted` dropped before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub omitted: u64,
    pub first: u64,
    pub events: Vec<Bytes>,
}

impl Session {
    pub fn new(id: SessionId, token: u128, label: Label, opened: UnixMillis) -> Session {
        Session {
            id,
            token,
            label,
            opened,
            executed: 0,
            replies: BTreeMap::new(),
            reply_bytes: 0,
            parked: BTreeSet::new(),
            events: VecDeque::new(),
            event_bytes: 0,
            event_last: 0,
        }
    }

    /// The remembered reply to a request, if it has one.
    pub fn reply(&self, number: u64) -> Option<&Remembered> {
        self.replies.get(&number)
    }

    pub fn is_parked(&self, number: u64) -> bool {
        self.parked.contains(&number)
    }

    /// The numbers of its parked requests.
    pub fn parked(&self) -> impl Iterator<Item = u64> {
        self.parked.iter().copied()
    }

    pub fn parked_count(&self) -> usize {
        self.parked.len()
    }

    /// Whether one more request may be executed, or must be refused: its reply would have to be remembered.
    pub fn is_full(&self) -> bool {
        self.replies.len() + self.parked.len() >= REPLIES_MAX || !self.has_room()
    }

    /// Whether what is parked may be answered with something large.
    pub fn has_room(&self) -> bool {
        self.reply_bytes < REPLY_BYTES_MAX
    }

    /// Whether not even a refusal can be remembered: the client acknowledges nothing.
    pub fn is_overfull(&self) -> bool {
        self.replies.len() + self.parked.len() >= REFUSALS_MAX
    }

    pub fn park(&mut self, number: u64) {
        self.parked.insert(number);
    }

    /// Answers a request that is executing or parked. Returns false if it is neither.
    pub fn answer(&mut self, number: u64, instance: Instance, reply: Reply) -> bool {
        if !self.parked.remove(&number) {
            return false;
        }
        self.reply_bytes += weight(&reply);
        self.replies.insert(number, Remembered { instance, reply });
        true
    }

    /// Whether acknowledging that would let go of any reply.
    pub fn acknowledges(&self, upto: u64, unanswered: &[u64]) -> bool {
        self.replies.range(..=upto).any(|(number, _)| unanswered.binary_search(number).is_err())
    }

    /// Replies up to `upto` have reached the client, but for those in `unanswered`, which ascends.
    pub fn acknowledge(&mut self, upto: u64, unanswered: &[u64]) {
        // The usual case is that nothing is waited for, and the oldest replies are the ones to forget.
        let mut kept = 0;
        while let Some((&number, _)) = self.replies.range(kept..).next() {
            if number > upto {
                return;
            }
            if unanswered.binary_search(&number).is_ok() {
                kept = number + 1;
            } else if let Some(gone) = self.replies.remove(&number) {
                self.reply_bytes -= weight(&gone.reply);
            }
        }
    }

    /// Counts events that nobody made, because as many follow as are kept: those before them are dropped.
    pub fn omit_events(&mut self, generation: u32, count: u64) {
        self.event_last = self.event_next(generation).saturating_add(count.saturating_sub(1));
        self.events.clear();
        self.event_bytes = 0;
    }

    /// The number of the next event.
    fn event_next(&self, generation: u32) -> u64 {
        // A recovery may have lost events that the client has seen: their numbers must not come again.
        let fresh = numbered(generation, 1);
        if self.event_last >= fresh { self.event_last + 1 } else { fresh }
    }

    /// Adds an event; the oldest make room.
    pub fn event(&mut self, generation: u32, event: Bytes) {
        self.event_last = self.event_next(generation);
        self.event_bytes += event.len();
        self.events.push_back((self.event_last, event));
        while self.events.len() > EVENTS_MAX || self.events.len() > 1 && self.event_bytes > EVENT_BYTES_MAX {
            self.drop_event();
        }
    }

    pub fn events_seen(&mut self, upto: u64) {
        while self.events.front().is_some_and(|(number, _)| *number <= upto) {
            self.drop_event();
        }
    }

    fn drop_event(&mut self) {
        if let Some((_, event)) = self.events.pop_front() {
            self.event_bytes -= event.len();
        }
    }

    /// The kept events numbered above `after`, if there are any.
    pub fn events_after(&self, after: u64) -> Option<Run> {
        let start = self.events.partition_point(|(number, _)| *number <= after);
        let (first, _) = *self.events.get(start)?;
        let omitted = if first >> GENERATION_SHIFT == after >> GENERATION_SHIFT {
            first - after - 1
        } else {
            // The reader has seen none of this generation, whose events count from 1.
            (first & ((1 << GENERATION_SHIFT) - 1)) - 1
        };
        let consecutive =
            self.events.range(start..).zip(first..).take_while(|((number, _), at)| number == at);
        Some(Run { omitted, first, events: consecutive.map(|((_, event), _)| event.clone()).collect() })
    }
}

/// What a remembered reply costs.
fn weight(reply: &Reply) -> usize {
    match reply {
        Reply::Body(body) => REPLY_BYTES + body.len(),
        Reply::Refused(reason) => REPLY_BYTES + reason.len(),
        Reply::Cancelled | Reply::Closed | Reply::NoSession => REPLY_BYTES,
    }
}

/// What a remembered reply costs beside its bytes, about.
const REPLY_BYTES: usize = 64;

/// Requests of a session that are parked or whose replies are remembered. A client that waits for more is
/// refused the next, so that one client cannot eat every replica's memory.
pub(crate) const REPLIES_MAX: usize = 1024;

/// Bytes of one session's remembered replies, after which the next request is refused. One reply may be large
/// (a message from a queue), and is remembered all the same.
pub(crate) const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Refusals are remembered too: a client that sends on and acknowledges nothing is cut off here.
pub(crate) const REFUSALS_MAX: usize = 2 * REPLIES_MAX;

/// Events kept for a session that does not fetch them; beyond, the oldest are dropped and counted.
pub const EVENTS_MAX: usize = 1024;

/// Bytes of the events kept for a session.
pub(crate) const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// No session gets to this number; a snapshot that says so is not one of ours.
const COUNT_END: u64 = 1 << 62;

wire_struct!(Remembered { instance, reply });

impl Wire for Session {
    fn encode(&self, out: &mut Writer) {
        self.id.encode(out);
        self.token.encode(out);
        self.label.encode(out);
        self.opened.encode(out);
        self.executed.encode(out);
        (self.replies.len() as u32).encode(out);
        for (number, remembered) in &self.replies {
            number.encode(out);
            remembered.encode(out);
        }
        (self.parked.len() as u32).encode(out);
        for number in &self.parked {
            number.encode(out);
        }
        (self.events.len() as u32).encode(out);
        for (number, event) in &self.events {
            number.encode(out);
            event.encode(out);
        }
        self.event_last.encode(out);
    }

    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        let mut session = Session::new(
            Wire::decode(input)?,
            Wire::decode(input)?,
            Wire::decode(input)?,
            Wire::decode(input)?,
        );
        session.executed = Wire::decode(input)?;
        session.replies = Vec::<(u64, Remembered)>::decode(input)?.into_iter().collect();
        session.parked = Vec::<u64>::decode(input)?.into_iter().collect();
        session.events = Vec::<(u64, Bytes)>::decode(input)?.into();
        session.event_last = Wire::decode(input)?;
        session.reply_bytes = session.replies.values().map(|remembered| weight(&remembered.reply)).sum();
        session.event_bytes = session.events.iter().map(|(_, event)| event.len()).sum();
        session.check()?;
        Ok(session)
    }
}

impl Session {
    fn check(&self) -> Result<(), Malformed> {
        let newest = self.replies.keys().chain(&self.parked).max();
        if self.executed >= COUNT_END || self.event_last == u64::MAX {
            return Err(Malformed::Rule("numbers of a session end"));
        }
        if newest.is_some_and(|number| *number > self.executed) {
            return Err(Malformed::Rule("a session answers only what it executed"));
        }
        let ascending = self.events.iter().zip(self.events.iter().skip(1)).all(|(a, b)| a.0 < b.0);
        if !ascending || self.events.back().is_some_and(|(number, _)| *number > self.event_last) {
            return Err(Malformed::Rule("events are numbered upwards"));
        }
        // Counts restart at 1 in every generation: a count of 0 would have no predecessor.
        if self.events.iter().any(|(number, _)| number & ((1 << GENERATION_SHIFT) - 1) == 0) {
            return Err(Malformed::Rule("events are counted from 1"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session::new(SessionId(1), 7, Label::default(), UnixMillis(0))
    }

    fn body(text: &'static str) -> Reply {
        Reply::Body(Bytes::from_static(text.as_bytes()))
    }

    fn execute(session: &mut Session, count: u64) {
        for _ in 0..count {
            session.executed += 1;
            session.park(session.executed);
            session.answer(session.executed, Instance(session.executed), body("x"));
        }
    }

    #[test]
    fn replies_are_remembered_until_acknowledged() {
        let mut session = session();
        execute(&mut session, 5);
        session.acknowledge(3, &[]);
        assert_eq!(session.reply(3), None);
        assert!(session.reply(4).is_some() && session.reply(5).is_some());
    }

    #[test]
    fn a_request_waited_for_does_not_keep_the_replies_after_it() {
        let mut session = session();
        session.executed = 1;
        session.park(1);
        execute(&mut session, 2);
        session.acknowledge(3, &[1]);
        assert!(session.answer(1, Instance(9), body("granted")));
        session.acknowledge(3, &[1]);
        assert_eq!(session.reply(1).map(|it| it.reply.clone()), Some(body("granted")));
        assert_eq!(session.reply(2), None);
        session.acknowledge(3, &[]);
        assert_eq!(session.reply(1), None);
        assert_eq!(session.reply_bytes, 0);
    }

    #[test]
    fn a_client_that_acknowledges_nothing_is_refused_and_then_cut_off() {
        let mut session = session();
        execute(&mut session, REPLIES_MAX as u64);
        assert!(session.is_full() && !session.is_overfull());
        execute(&mut session, REPLIES_MAX as u64);
        assert!(session.is_overfull());
    }

    #[test]
    fn events_are_numbered_and_overflow_is_counted() {
        let mut session = session();
        assert_eq!(session.events_after(0), None);
        for index in 0..EVENTS_MAX + 10 {
            session.event(1, Bytes::from(index.to_string()));
        }
        let run = session.events_after(0).unwrap();
        assert_eq!((run.omitted, run.first, run.events.len()), (10, numbered(1, 11), EVENTS_MAX));
        let run = session.events_after(numbered(1, 4)).unwrap();
        assert_eq!((run.omitted, run.first), (6, numbered(1, 11)));
        let run = session.events_after(numbered(1, 20)).unwrap();
        assert_eq!((run.omitted, run.first), (0, numbered(1, 21)));
        session.events_seen(numbered(1, EVENTS_MAX as u64 + 10));
        assert_eq!(session.events_after(numbered(1, 20)), None);
        assert_eq!(session.event_bytes, 0);
    }

    #[test]
    fn events_that_were_not_made_are_counted() {
        let mut session = session();
        session.event(1, Bytes::from_static(b"before"));
        session.omit_events(1, 9);
        for index in 0..EVENTS_MAX {
            session.event(1, Bytes::from(index.to_string()));
        }
        let run = session.events_after(0).unwrap();
        assert_eq!((run.omitted, run.first, run.events.len()), (10, numbered(1, 11), EVENTS_MAX));
    }

    #[test]
    fn large_events_make_room_by_bytes() {
        let mut session = session();
        for _ in 0..5 {
            session.event(1, Bytes::from(vec![0; EVENT_BYTES_MAX / 2]));
        }
        assert_eq!(session.events_after(0).unwrap().omitted, 3);
    }

    #[test]
    fn a_recovered_generation_uses_no_event_number_again() {
        let mut session = session();
        session.event(1, Bytes::from_static(b"a"));
        session.event(2, Bytes::from_static(b"b"));
        session.event(2, Bytes::from_static(b"c"));
        // The lost generation handed out 1 to 9; the reader saw them all.
        let run = session.events_after(numbered(1, 9)).unwrap();
        assert_eq!((run.omitted, run.first, run.events.len()), (0, numbered(2, 1), 2));
        // A slower reader gets the runs one by one.
        let run = session.events_after(0).unwrap();
        assert_eq!((run.omitted, run.first, run.events.len()), (0, numbered(1, 1), 1));
    }

    #[test]
    fn a_session_survives_its_bytes() {
        let mut session = session();
        execute(&mut session, 3);
        session.executed += 1;
        session.park(4);
        session.event(1, Bytes::from_static(b"event"));
        let bytes = session.to_bytes();
        assert_eq!(Session::from_bytes(bytes.clone()), Ok(session));
        for length in 0..bytes.len() {
            assert!(Session::from_bytes(bytes.slice(..length)).is_err(), "length {length}");
        }
    }
}
