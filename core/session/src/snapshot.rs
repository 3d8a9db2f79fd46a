//! The bytes of a snapshot: first the session table, then the application's own parts.
//!
//! The table is one stream, cut into parts of [`CHUNK_BYTES`]:
//!
//! | size | field                                                                 |
//! |    1 | 1: more of the table follows in the next part; 0: this is its last    |
//! |    n | a piece of the stream                                                 |
//!
//! and the stream is the time, the count of sessions ever opened, the ended sessions, the number of live
//! sessions, and each of them.

use crate::application::{Application, SessionId};
use crate::digest::Digest;
use crate::session::Session;
use crate::table::{ENDED_MAX, Ended, Table};
use bytes::{BufMut, Bytes, BytesMut};
use kumo_paxos::CHUNK_BYTES;
use kumo_wire::{Malformed, Reader, Wire};
use std::sync::Arc;

/// The parts of a frozen copy of a node's state, made one by one.
pub struct Parts<A: Application> {
    /// Bytes of the table encoded and not handed out yet.
    buffer: BytesMut,
    sessions: std::vec::IntoIter<Arc<Session>>,
    table_done: bool,
    application: A::Parts,
}

impl<A: Application> Parts<A> {
    pub(crate) fn new(table: &Table, application: &A) -> Parts<A> {
        let mut buffer = BytesMut::new();
        table.time.append(&mut buffer);
        table.count.append(&mut buffer);
        (table.ended.len() as u32).append(&mut buffer);
        for ended in &table.ended {
            ended.append(&mut buffer);
        }
        (table.sessions.len() as u32).append(&mut buffer);
        let sessions: Vec<Arc<Session>> = table.sessions.values().cloned().collect();
        Parts {
            buffer,
            sessions: sessions.into_iter(),
            table_done: false,
            application: application.snapshot(),
        }
    }
}

impl<A: Application> Iterator for Parts<A> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.table_done {
            return self.application.next();
        }
        while self.buffer.len() <= CHUNK_BYTES
            && let Some(session) = self.sessions.next()
        {
            session.append(&mut self.buffer);
        }
        let piece = self.buffer.split_to(self.buffer.len().min(CHUNK_BYTES));
        self.table_done = self.buffer.is_empty() && self.sessions.len() == 0;
        let mut part = BytesMut::with_capacity(piece.len() + 1);
        part.put_u8(u8::from(!self.table_done));
        part.put_slice(&piece);
        Some(part.freeze())
    }
}

/// Builds table and application from all parts. `digest` is the position's.
pub(crate) fn restore<A: Application>(parts: Vec<Bytes>, digest: u64) -> Result<(Table, A), Malformed> {
    let mut parts = parts.into_iter();
    let mut stream = BytesMut::new();
    loop {
        let mut part = Reader::new(parts.next().ok_or(Malformed::Short)?);
        let more = bool::decode(&mut part)?;
        stream.put_slice(&part.rest());
        if !more {
            break;
        }
    }
    let table = read_table(stream.freeze(), digest)?;
    Ok((table, A::restore(parts.collect())?))
}

fn read_table(stream: Bytes, digest: u64) -> Result<Table, Malformed> {
    let mut input = Reader::new(stream);
    let mut table =
        Table { time: Wire::decode(&mut input)?, count: Wire::decode(&mut input)?, ..Table::default() };
    table.digest = Digest(digest);
    table.ended = Vec::<Ended>::decode(&mut input)?.into();
    if table.ended.len() > ENDED_MAX {
        return Err(Malformed::Length(table.ended.len() as u64));
    }
    let mut before = SessionId(0);
    for session in Vec::<Session>::decode(&mut input)? {
        let (id, token) = (session.id, session.token);
        if id <= before || table.tokens.insert(token, id).is_some() {
            return Err(Malformed::Rule("sessions are in order and differ in their tokens"));
        }
        before = id;
        if !session.has_room() {
            Arc::make_mut(&mut table.full).insert(id);
        }
        table.sessions.insert(id, Arc::new(session));
    }
    match input.left() {
        0 => Ok(table),
        more => Err(Malformed::Long(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::{Entry, Outcome, UnixMillis};
    use crate::entry::LogEntry;
    use crate::protocol::{Ask, Label};
    use crate::table::At;
    use kumo_paxos::Instance;

    /// Answers with what it was told, or parks.
    #[derive(Clone, Debug, PartialEq)]
    struct Echo(u64);

    impl Application for Echo {
        type Parts = std::iter::Once<Bytes>;

        fn apply(&mut self, entry: Entry, command: Bytes, outcome: &mut Outcome) {
            self.0 += 1;
            outcome.events.push((entry.session, command.clone()));
            outcome.reply = (!command.is_empty()).then_some(command);
        }
        fn cancel(&mut self, _: Entry, _: u64, _: &mut Outcome) -> bool {
            false
        }
        fn session_ended(&mut self, _: Entry, _: &mut Outcome) {}
        fn read(&self, _: SessionId, query: Bytes) -> Bytes {
            query
        }
        fn snapshot(&self) -> Self::Parts {
            std::iter::once(self.0.to_bytes())
        }
        fn restore(parts: Vec<Bytes>) -> Result<Self, Malformed> {
            let [count]: [Bytes; 1] = parts.try_into().map_err(|_| Malformed::Short)?;
            Ok(Echo(Wire::from_bytes(count)?))
        }
    }

    fn entries() -> Vec<LogEntry> {
        let time = UnixMillis(5);
        let session = |count| SessionId(crate::numbered(1, count));
        let request = |count, number, ask| LogEntry::Request {
            time,
            session: session(count),
            number,
            acknowledged: 0,
            unanswered: vec![1],
            events_seen: 0,
            ask,
        };
        let open = |token| LogEntry::Open { time, token, label: Label::default() };
        vec![
            open(1),
            open(2),
            open(3),
            request(1, 1, Ask::Command(Bytes::from(vec![7; CHUNK_BYTES]))),
            request(1, 2, Ask::Command(Bytes::from(vec![8; CHUNK_BYTES]))),
            request(2, 1, Ask::Command(Bytes::new())),
            request(2, 2, Ask::Kill { session: session(3) }),
            request(2, 3, Ask::Cancel { target: 1 }),
            LogEntry::Expire { time, session: session(1), seen: 0 },
        ]
    }

    fn state() -> (Table, Echo) {
        let (mut table, mut echo) = (Table::default(), Echo(0));
        for (index, entry) in entries().into_iter().enumerate() {
            let at = At { instance: Instance(index as u64), generation: 1 };
            table.execute(at, entry.to_bytes(), None, &mut echo, &mut Vec::new());
        }
        (table, echo)
    }

    #[test]
    fn a_snapshot_gives_the_state_back() {
        let (table, echo) = state();
        let parts: Vec<Bytes> = Parts::new(&table, &echo).collect();
        assert!(parts.len() > 3 && parts.iter().all(|part| part.len() <= CHUNK_BYTES + 1));
        let (restored, application) = restore::<Echo>(parts.clone(), table.digest.0).unwrap();
        assert_eq!(application, echo);
        assert_eq!((restored.sessions.len(), restored.ended.len()), (2, 1));
        assert_eq!(restored.tokens, table.tokens);
        assert_eq!(Parts::new(&restored, &application).collect::<Vec<_>>(), parts);
    }

    #[test]
    fn a_frozen_copy_does_not_change() {
        let (mut table, mut echo) = state();
        let parts = Parts::new(&table, &echo);
        let before: Vec<Bytes> = Parts::new(&table, &echo).collect();
        let more = LogEntry::Request {
            time: UnixMillis(9),
            session: SessionId(crate::numbered(1, 2)),
            number: 4,
            acknowledged: 3,
            unanswered: Vec::new(),
            events_seen: 9,
            ask: Ask::Close,
        };
        let at = At { instance: Instance(99), generation: 1 };
        table.execute(at, more.to_bytes(), None, &mut echo, &mut Vec::new());
        assert_eq!(parts.collect::<Vec<_>>(), before);
    }

    #[test]
    fn a_snapshot_that_is_cut_or_stirred_is_an_error_or_a_state() {
        let (table, echo) = state();
        let parts: Vec<Bytes> = Parts::new(&table, &echo).collect();
        for count in 0..parts.len() {
            assert!(restore::<Echo>(parts[..count].to_vec(), 0).is_err());
        }
        let mut seed = 3u64;
        let mut draw = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize
        };
        for round in 0..300 {
            let mut stirred = parts.clone();
            let which = if round % 2 == 0 { 0 } else { draw() % stirred.len() };
            let mut part = stirred[which].to_vec();
            for _ in 0..3 {
                // The beginning holds most of the structure.
                let place = draw() % part.len().min(200);
                part[place] = draw() as u8;
            }
            part.truncate(part.len() - draw() % 2);
            stirred[which] = Bytes::from(part);
            let _ = restore::<Echo>(stirred, 0);
        }
    }

    #[test]
    fn no_bytes_in_the_log_break_execution() {
        let mut seed = 8u64;
        let mut draw = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize
        };
        let (mut table, mut echo) = state();
        for entry in entries() {
            let whole = entry.to_bytes();
            assert_eq!(LogEntry::from_bytes(whole.clone()), Ok(entry));
            for length in 0..whole.len().min(100) {
                assert!(LogEntry::from_bytes(whole.slice(..length)).is_err());
            }
            for round in 0..500 {
                let mut bytes = whole.to_vec();
                let place = draw() % bytes.len().min(100);
                bytes[place] = draw() as u8;
                let at = At { instance: Instance(100 + round), generation: 1 };
                table.execute(at, Bytes::from(bytes), None, &mut echo, &mut Vec::new());
            }
        }
    }
}
