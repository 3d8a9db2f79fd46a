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
        table.time.encode(&mut buffer);
        table.count.encode(&mut buffer);
        (table.ended.len() as u32).encode(&mut buffer);
        for ended in &table.ended {
            ended.encode(&mut buffer);
        }
        (table.sessions.len() as u32).encode(&mut buffer);
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
            session.encode(&mut self.buffer);
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
        table.sessions.insert(id, Arc::new(session));
    }
    match input.left() {
        0 => Ok(table),
        more => Err(Malformed::Long(more)),
    }
}
