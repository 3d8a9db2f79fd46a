//! [`Parts`]: the state as bytes, written piece by piece from a frozen copy while the state goes on.
//!
//! | size | field                                                                |
//! |    8 | [`MAGIC`]                                                            |
//! |    4 | [`VERSION`]                                                          |
//! |      | pieces: a `u32` length, a [`Record`] of that length, what belongs to it raw |
//!
//! The bytes follow from the state alone, so equal replicas write equal snapshots, and what can be read is
//! written again as it was. They are cut into parts anywhere.

use crate::locks::Lock;
use crate::map::{Map, Set, Walk};
use crate::pfs::Pfs;
use crate::protocol::Resource;
use crate::queues::Queue;
use crate::tree::{Directory, File, Node, Stamp};
use bytes::{BufMut, Bytes, BytesMut};
use kumo_session::{SessionId, UnixMillis};
use kumo_wire::{Wire, wire_enum};
use std::sync::Arc;

/// The parts of a snapshot, each of 256 KiB but for the last, made when they are asked for.
pub struct Parts {
    pieces: Box<dyn Iterator<Item = Piece> + Send>,
    buffer: BytesMut,
    /// What is still to be written of the last piece.
    raw: Bytes,
}

/// One thing in a snapshot, and the bytes that follow it as they are.
pub(crate) struct Piece {
    record: Record,
    raw: Bytes,
}

/// Numbers, then the tree from its root, then locks, queues and watches, then the end.
#[derive(Debug)]
pub(crate) enum Record {
    Numbers {
        changes: u64,
        grants: u64,
        messages: u64,
        arrivals: u64,
    },
    /// Its entries follow, then [`Record::Up`]. The root's name is empty.
    Directory {
        name: String,
        version: u64,
        created: UnixMillis,
        modified: UnixMillis,
    },
    Up,
    /// Its chunks follow.
    File {
        name: String,
        version: u64,
        created: UnixMillis,
        modified: UnixMillis,
        ephemeral: Option<SessionId>,
        length: u64,
    },
    /// Followed by that many bytes.
    Chunk {
        index: u32,
        length: u32,
    },
    /// Its holders and then its waiters follow.
    Lock {
        name: String,
        exclusive: bool,
    },
    Holder {
        number: u64,
        session: SessionId,
    },
    LockWaiter {
        arrival: u64,
        session: SessionId,
        number: u64,
        exclusive: bool,
    },
    /// Its ready messages, then its hidden ones, then its waiters follow.
    Queue {
        name: String,
    },
    /// Followed by that many bytes.
    Message {
        id: u64,
        hidden: Option<SessionId>,
        length: u32,
    },
    QueueWaiter {
        arrival: u64,
        session: SessionId,
        number: u64,
        receive: bool,
    },
    Watch {
        resource: Resource,
        session: SessionId,
    },
    End,
}

impl Parts {
    pub(crate) fn new(pfs: &Pfs) -> Parts {
        let mut buffer = BytesMut::with_capacity(PART_BYTES);
        buffer.put_slice(&MAGIC);
        buffer.put_u32_le(VERSION);
        Parts { pieces: Box::new(pieces(pfs)), buffer, raw: Bytes::new() }
    }
}

impl Iterator for Parts {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        while self.buffer.len() < PART_BYTES {
            if self.raw.is_empty() {
                let Some(piece) = self.pieces.next() else { break };
                piece.encode(&mut self.buffer);
                self.raw = piece.raw;
            }
            let room = PART_BYTES.saturating_sub(self.buffer.len());
            self.buffer.put_slice(&self.raw.split_to(room.min(self.raw.len())));
        }
        let part = self.buffer.split_to(PART_BYTES.min(self.buffer.len())).freeze();
        (!part.is_empty()).then_some(part)
    }
}

impl Piece {
    fn encode(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_u32_le(0);
        self.record.append(out);
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

impl From<Record> for Piece {
    fn from(record: Record) -> Piece {
        Piece { record, raw: Bytes::new() }
    }
}

/// Everything, of a copy frozen now.
fn pieces(pfs: &Pfs) -> impl Iterator<Item = Piece> + Send + use<> {
    let numbers = pfs.numbers;
    let start = Record::Numbers {
        changes: numbers.changes,
        grants: numbers.grants,
        messages: numbers.messages,
        arrivals: numbers.arrivals,
    };
    let watches = &pfs.watches;
    std::iter::once(Piece::from(start))
        .chain(TreeWalk::new(&pfs.tree.root))
        .chain(pfs.locks.named.walk().flat_map(|(name, lock)| lock_pieces(&name, &lock)))
        .chain(pfs.queues.named.walk().flat_map(|(name, queue)| queue_pieces(&name, &queue)))
        .chain(watch_pieces(&watches.directories, Resource::Directory))
        .chain(watch_pieces(&watches.locks, Resource::Lock))
        .chain(watch_pieces(&watches.queues, Resource::Queue))
        .chain(std::iter::once(Piece::from(Record::End)))
}

/// The tree, each directory before its entries.
struct TreeWalk {
    /// What belongs to the last node and is not handed out yet.
    pending: Box<dyn Iterator<Item = Piece> + Send>,
    /// The directories on the way, the lowest last.
    open: Vec<Walk<Arc<str>, Node>>,
}

impl TreeWalk {
    fn new(root: &Directory) -> TreeWalk {
        let pending = Box::new(std::iter::once(directory_piece("", root)));
        TreeWalk { pending, open: vec![root.entries.walk()] }
    }
}

impl Iterator for TreeWalk {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if let Some(piece) = self.pending.next() {
            return Some(piece);
        }
        match self.open.last_mut()?.next() {
            None => {
                self.open.pop();
                Some(Record::Up.into())
            }
            Some((name, Node::Directory(directory))) => {
                self.open.push(directory.entries.walk());
                Some(directory_piece(&name, &directory))
            }
            Some((name, Node::File(file))) => {
                if file.content.len() > 0 {
                    self.pending = Box::new(chunk_pieces(&file));
                }
                Some(file_piece(&name, &file))
            }
        }
    }
}

fn directory_piece(name: &str, directory: &Directory) -> Piece {
    let Stamp { version, time: modified } = directory.stamp;
    Record::Directory { name: name.to_owned(), version, created: directory.created, modified }.into()
}

fn file_piece(name: &str, file: &File) -> Piece {
    let Stamp { version, time: modified } = file.stamp;
    let File { created, ephemeral, .. } = *file;
    let length = file.content.len();
    Record::File { name: name.to_owned(), version, created, modified, ephemeral, length }.into()
}

fn chunk_pieces(file: &File) -> impl Iterator<Item = Piece> + Send + use<> {
    file.content.walk().map(|(index, raw)| {
        let record = Record::Chunk { index, length: raw.len() as u32 };
        Piece { record, raw }
    })
}

fn lock_pieces(name: &str, lock: &Lock) -> impl Iterator<Item = Piece> + Send + use<> {
    let start = Record::Lock { name: name.to_owned(), exclusive: lock.exclusive };
    let holders = lock.holders.walk().map(|(number, session)| Record::Holder { number, session });
    let waiters = lock.waiters.walk().map(|(arrival, waiter)| Record::LockWaiter {
        arrival,
        session: waiter.session,
        number: waiter.number,
        exclusive: waiter.exclusive,
    });
    std::iter::once(start).chain(holders).chain(waiters).map(Piece::from)
}

fn queue_pieces(name: &str, queue: &Queue) -> impl Iterator<Item = Piece> + Send + use<> {
    let start = Record::Queue { name: name.to_owned() };
    let ready = queue.ready.walk().map(|(id, data)| message_piece(id, None, data));
    let hidden = queue.hidden.walk().map(|(id, (session, data))| message_piece(id, Some(session), data));
    let waiters = queue.waiters.walk().map(|(arrival, waiter)| Record::QueueWaiter {
        arrival,
        session: waiter.session,
        number: waiter.number,
        receive: waiter.receive,
    });
    std::iter::once(start.into()).chain(ready).chain(hidden).chain(waiters.map(Piece::from))
}

fn message_piece(id: u64, hidden: Option<SessionId>, raw: Bytes) -> Piece {
    Piece { record: Record::Message { id, hidden, length: raw.len() as u32 }, raw }
}

fn watch_pieces(
    watched: &Map<Arc<str>, Set<SessionId>>,
    resource: fn(String) -> Resource,
) -> impl Iterator<Item = Piece> + Send + use<> {
    watched.walk().flat_map(move |(name, sessions)| {
        sessions.walk().map(move |(session, ())| {
            Piece::from(Record::Watch { resource: resource(name.to_string()), session })
        })
    })
}

/// What a snapshot starts with.
pub(crate) const MAGIC: [u8; 8] = *b"kumo-pfs";
/// Of the format. Another one is refused.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a part: what travels between replicas as one message.
pub(crate) const PART_BYTES: usize = 256 * 1024;

wire_enum!(Record {
    1 = Numbers { changes, grants, messages, arrivals },
    2 = Directory { name, version, created, modified },
    3 = Up,
    4 = File { name, version, created, modified, ephemeral, length },
    5 = Chunk { index, length },
    6 = Lock { name, exclusive },
    7 = Holder { number, session },
    8 = LockWaiter { arrival, session, number, exclusive },
    9 = Queue { name },
    10 = Message { id, hidden, length },
    11 = QueueWaiter { arrival, session, number, receive },
    12 = Watch { resource, session },
    13 = End,
});
