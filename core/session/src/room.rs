//! [`Room`]: which sessions may be answered with something large.

use crate::application::SessionId;
use crate::session::REPLY_BYTES_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Replies are remembered until a client acknowledges them. A new request is refused when they take too much memory; an
/// application that answers a parked one with something large asks here first, and leaves it parked where there
/// is no room. [`session_has_room`](crate::Application::session_has_room) tells when there is some again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Sessions without any.
    full: Arc<BTreeSet<SessionId>>,
    /// Bytes of answers given since.
    taken: BTreeMap<SessionId, usize>,
}

impl Room {
    pub(crate) fn new(full: Arc<BTreeSet<SessionId>>) -> Room {
        Room { full, taken: BTreeMap::new() }
    }

    /// Whether one more request of that session may be answered, however long the answer.
    pub fn is_left(&self, session: SessionId) -> bool {
        let taken = self.taken.get(&session).copied().unwrap_or(0);
        taken < REPLY_BYTES_MAX && !self.full.contains(&session)
    }

    /// It is answered with so many bytes.
    pub fn take(&mut self, session: SessionId, bytes: usize) {
        let taken = self.taken.entry(session).or_default();
        *taken = taken.saturating_add(bytes);
    }

    /// As if that session had none: for tests of applications.
    pub fn fill(&mut self, session: SessionId) {
        self.take(session, REPLY_BYTES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::{Application, Entry, Outcome, UnixMillis, numbered};
    use crate::entry::LogEntry;
    use crate::protocol::{Ask, Label};
    use crate::table::{At, Table};
    use bytes::Bytes;
    use kumo_paxos::Instance;
    use kumo_wire::{Malformed, Wire};
    use std::collections::VecDeque;

    /// An empty command waits for water; any other lets it flow to all who wait and have room.
    #[derive(Clone, Default)]
    struct Spring {
        line: VecDeque<(SessionId, u64)>,
        flows: bool,
        given: usize,
    }

    impl Spring {
        fn flow(&mut self, outcome: &mut Outcome) {
            while let Some(&(session, number)) = self.line.front().filter(|_| self.flows)
                && outcome.room.is_left(session)
            {
                self.line.pop_front();
                self.given += 1;
                outcome.room.take(session, WATER_BYTES);
                outcome.answers.push((session, number, Bytes::from(vec![0; WATER_BYTES])));
            }
        }
    }

    impl Application for Spring {
        type Parts = std::iter::Empty<Bytes>;

        fn apply(&mut self, entry: Entry, command: Bytes, outcome: &mut Outcome) {
            if command.is_empty() {
                self.line.push_back((entry.session, entry.number));
            } else {
                outcome.reply = Some(Bytes::new());
                self.flows = true;
            }
            self.flow(outcome);
        }
        fn cancel(&mut self, _: Entry, target: u64, outcome: &mut Outcome) -> bool {
            self.line.retain(|&(_, number)| number != target);
            self.flow(outcome);
            true
        }
        fn session_ended(&mut self, _: Entry, _: &mut Outcome) {}
        fn session_has_room(&mut self, _: Entry, outcome: &mut Outcome) {
            self.flow(outcome);
        }
        fn read(&self, _: SessionId, query: Bytes) -> Bytes {
            query
        }
        fn snapshot(&self) -> Self::Parts {
            std::iter::empty()
        }
        fn restore(_: Vec<Bytes>) -> Result<Self, Malformed> {
            Ok(Spring::default())
        }
    }

    const WATER_BYTES: usize = REPLY_BYTES_MAX * 3 / 4;
    const WAITING: u64 = 5;

    fn request(number: u64, acknowledged: u64, ask: Ask) -> LogEntry {
        let (time, session) = (UnixMillis(5), SessionId(numbered(1, 1)));
        LogEntry::Request { time, session, number, acknowledged, unanswered: Vec::new(), events_seen: 0, ask }
    }

    #[test]
    fn what_is_parked_waits_for_room_and_is_answered_when_there_is_some() {
        let (mut table, mut spring) = (Table::default(), Spring::default());
        let mut execute = |entry: LogEntry| {
            let at = At { instance: Instance(1), generation: 1 };
            table.execute(at, entry.to_bytes(), None, &mut spring, &mut Vec::new());
            let session = table.get(SessionId(numbered(1, 1))).expect("it is open");
            let answered: Vec<u64> =
                (1..=WAITING).filter(|number| session.reply(*number).is_some()).collect();
            (answered, session.has_room())
        };
        execute(LogEntry::Open { time: UnixMillis(5), token: 1, label: Label::default() });
        for number in 1..=WAITING {
            execute(request(number, 0, Ask::Command(Bytes::new())));
        }
        let flow = Ask::Command(Bytes::from_static(b"flow"));
        assert_eq!(execute(request(6, 0, flow)), (vec![1, 2], false), "two fill it");
        assert_eq!(execute(request(7, 2, Ask::Cancel { target: 1 })), (vec![3, 4], false));
        assert_eq!(execute(request(8, 4, Ask::Cancel { target: 3 })), (vec![5], true));
    }

    #[test]
    fn a_recovery_hands_nothing_to_those_who_leave() {
        let (mut table, mut spring) = (Table::default(), Spring::default());
        let at = |generation| At { instance: Instance(u64::from(generation)), generation };
        let mut execute = |entry: LogEntry| {
            table.execute(at(1), entry.to_bytes(), None, &mut spring, &mut Vec::new());
        };
        execute(LogEntry::Open { time: UnixMillis(5), token: 1, label: Label::default() });
        for number in 1..=WAITING {
            execute(request(number, 0, Ask::Command(Bytes::new())));
        }
        execute(request(6, 0, Ask::Command(Bytes::from_static(b"flow"))));
        assert_eq!(spring.given, 2, "two fill it");
        table.end_earlier(at(2), &mut spring, &mut Vec::new());
        assert_eq!((spring.given, spring.line.len()), (2, 0), "the rest is for those who come");
    }
}
