//! What a session asks of PFS and what it is told: commands change the tree through the log, queries read it.

use bytes::Bytes;
use kumo_session::{SessionId, UnixMillis};
use kumo_wire::{wire_enum, wire_struct};

/// A change, executed once on every replica. Paths are absolute; names of locks and queues are any text of
/// 1 to [`NAME_BYTES_MAX`] bytes without NUL. Answered by [`Reply::Written`] (write), [`Reply::Granted`] (lock),
/// [`Reply::Message`] (wait, receive) or [`Reply::Done`] (all others), or by [`Reply::Refused`], which leaves
/// everything as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Creates the file and its parents if missing. An existing file keeps its kind, ephemeral or not.
    Write {
        path: String,
        place: Place,
        data: Bytes,
        ephemeral: bool,
        condition: Condition,
    },
    Truncate {
        path: String,
        length: u64,
    },
    Delete {
        path: String,
        condition: Condition,
    },
    /// Files and directories; the target must not exist, nor lie below the source, and its directory must exist.
    Rename {
        from: String,
        to: String,
    },
    /// With parents. An existing directory is refused.
    Mkdir {
        path: String,
    },
    /// Empty ones only.
    Rmdir {
        path: String,
    },
    /// Granted, or parked until it is; with `try_only` refused instead of parked. Who holds it already gets
    /// the same grant again, but who holds it for reading and asks to write has to unlock first.
    Lock {
        name: String,
        exclusive: bool,
        try_only: bool,
    },
    Unlock {
        name: String,
    },
    /// Subscribe this session to events on a resource; returns at once.
    Watch {
        resource: Resource,
    },
    Unwatch {
        resource: Resource,
    },
    Post {
        queue: String,
        data: Bytes,
    },
    /// Takes the head, or parks until there is one; with `try_only` refused instead.
    Wait {
        queue: String,
        try_only: bool,
    },
    /// As Wait, but the message is hidden for this session until it acknowledges it or ends.
    Receive {
        queue: String,
        try_only: bool,
    },
    Acknowledge {
        queue: String,
        id: u64,
    },
    /// Removes a message by its id, wherever it stands in the queue; a hidden one only by who hides it.
    DeleteMessage {
        queue: String,
        id: u64,
    },
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A gap before it reads as zeros.
    Offset(u64),
    /// Append.
    End,
    /// The data becomes the whole content.
    Replace,
}

/// Under which circumstances a change is made at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Always,
    /// The file has this version; 0: it does not exist.
    Version(u64),
    /// The lock is held, exclusively or not, under this fencing number.
    Fence {
        lock: String,
        number: u64,
    },
}

/// What events are about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Entries of a directory created, updated or deleted. The directory need not exist yet.
    Directory(String),
    /// Someone waits for the lock.
    Lock(String),
    /// A post, or a wait that found the queue empty.
    Queue(String),
}

/// A question. Changes nothing, runs on one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Up to `length` bytes (at most [`READ_BYTES_MAX`]); none at the end.
    Read {
        path: String,
        offset: u64,
        length: u64,
    },
    Stat {
        path: String,
    },
    /// Entries from the `index`-th on in byte order of names, at most `count` ([`ENTRIES_MAX`]).
    ReadDir {
        path: String,
        index: u64,
        count: u64,
    },
    /// The head of a queue, left there.
    Peek {
        queue: String,
    },
    /// Queues and locks in byte order of their names, after `after`, at most [`ENTRIES_MAX`].
    Queues {
        after: String,
    },
    Locks {
        after: String,
    },
    Usage,
}

/// The answer to a command or a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    /// A write: bytes written, and the file's new version and length.
    Written {
        count: u64,
        version: u64,
        length: u64,
    },
    /// A read: the bytes and the file's version.
    Data {
        bytes: Bytes,
        version: u64,
    },
    Stat(Stat),
    /// `total`: entries in the directory.
    Entries {
        entries: Vec<DirectoryEntry>,
        total: u64,
    },
    /// A lock: its fencing number, which grows with every grant.
    Granted {
        number: u64,
    },
    Message {
        id: u64,
        data: Bytes,
    },
    Queues(Vec<QueueInfo>),
    Locks(Vec<LockInfo>),
    Usage(Usage),
    Refused(Refusal),
}

impl Reply {
    /// Whether an encoded reply refuses: told by its first byte.
    pub(crate) fn is_refused(encoded: &[u8]) -> bool {
        encoded.first() == Some(&REFUSED)
    }
}

/// Why nothing was done. Equal on all replicas: it holds no address, time or local error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no such file or directory: {0}")]
    NotFound(String),
    #[error("exists already: {0}")]
    Exists(String),
    #[error("not a directory: {0}")]
    NotDirectory(String),
    #[error("is a directory: {0}")]
    IsDirectory(String),
    #[error("directory is not empty: {0}")]
    NotEmpty(String),
    #[error("bad path: {0}")]
    BadPath(String),
    #[error("bad name: {0}")]
    BadName(String),
    #[error("version is {0}")]
    Version(u64),
    #[error("fencing number is not current")]
    Fenced,
    #[error("lock is held by another session: {0}")]
    Locked(String),
    #[error("lock is not held by this session: {0}")]
    NotLocked(String),
    #[error("queue is empty: {0}")]
    Empty(String),
    #[error("no such message in the queue: {0}")]
    NoMessage(u64),
    #[error("not allowed here: {0}")]
    NotAllowed(String),
    #[error("{0} would exceed the limit of {1}")]
    Limit(String, u64),
    #[error("unknown or malformed command")]
    Malformed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub directory: bool,
    /// Bytes of a file; entries of a directory.
    pub length: u64,
    /// Grows with every change; of a directory, with every change of its entries.
    pub version: u64,
    pub created: UnixMillis,
    pub modified: UnixMillis,
    /// The session whose end removes it.
    pub ephemeral: Option<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub name: String,
    pub stat: Stat,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    pub name: String,
    /// Messages there to take, and hidden by a receive.
    pub ready: u64,
    pub hidden: u64,
    pub waiting: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    pub name: String,
    pub exclusive: bool,
    /// Fencing number of the newest grant.
    pub number: u64,
    pub holders: Vec<SessionId>,
    pub waiters: Vec<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    pub files: u64,
    pub directories: u64,
    pub messages: u64,
}

/// What happened to a resource a session watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Directory {
        path: String,
        name: String,
        change: EntryChange,
    },
    /// Someone waits for this lock.
    Lock {
        name: String,
        exclusive: bool,
    },
    Queue {
        name: String,
        change: QueueChange,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange {
    Created,
    Updated,
    Deleted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueChange {
    Posted,
    Waiting,
}

/// Bytes of one path component, and of a lock's or queue's name.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a whole path.
pub const PATH_BYTES_MAX: usize = 4096;
/// Components of a path.
pub const DEPTH_MAX: usize = 64;
/// Bytes of one write, and so of one log entry. Larger files are written in several.
pub const WRITE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of one file.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes of one message in a queue.
pub const MESSAGE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes one read returns at most.
pub const READ_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Entries one listing returns at most.
pub const ENTRIES_MAX: u64 = 1000;

wire_enum!(Command {
    1 = Write { path, place, data, ephemeral, condition },
    2 = Truncate { path, length },
    3 = Delete { path, condition },
    4 = Rename { from, to },
    5 = Mkdir { path },
    6 = Rmdir { path },
    7 = Lock { name, exclusive, try_only },
    8 = Unlock { name },
    9 = Watch { resource },
    10 = Unwatch { resource },
    11 = Post { queue, data },
    12 = Wait { queue, try_only },
    13 = Receive { queue, try_only },
    14 = Acknowledge { queue, id },
    15 = DeleteMessage { queue, id },
});
wire_enum!(Place { 1 = Offset(offset), 2 = End, 3 = Replace });
wire_enum!(Condition { 1 = Always, 2 = Version(version), 3 = Fence { lock, number } });
wire_enum!(Resource { 1 = Directory(path), 2 = Lock(name), 3 = Queue(name) });
wire_enum!(Query {
    1 = Read { path, offset, length },
    2 = Stat { path },
    3 = ReadDir { path, index, count },
    4 = Peek { queue },
    5 = Queues { after },
    6 = Locks { after },
    7 = Usage,
});
wire_enum!(Reply {
    1 = Done,
    2 = Written { count, version, length },
    3 = Data { bytes, version },
    4 = Stat(stat),
    5 = Entries { entries, total },
    6 = Granted { number },
    7 = Message { id, data },
    8 = Queues(queues),
    9 = Locks(locks),
    10 = Usage(usage),
    11 = Refused(refusal),
});
/// The kind of a refusal.
const REFUSED: u8 = 11;

wire_struct!(Stat { directory, length, version, created, modified, ephemeral });
wire_struct!(DirectoryEntry { name, stat });
wire_struct!(QueueInfo { name, ready, hidden, waiting });
wire_struct!(LockInfo { name, exclusive, number, holders, waiters });
wire_struct!(Usage { bytes, files, directories, messages });
wire_enum!(Event { 1 = Directory { path, name, change }, 2 = Lock { name, exclusive }, 3 = Queue { name, change } });
wire_enum!(EntryChange { 1 = Created, 2 = Updated, 3 = Deleted });
wire_enum!(QueueChange { 1 = Posted, 2 = Waiting });

impl kumo_wire::Wire for Refusal {
    fn encode(&self, out: &mut kumo_wire::Writer) {
        let (kind, text, number) = match self {
            Refusal::NotFound(path) => (1, path.as_str(), 0),
            Refusal::Exists(path) => (2, path.as_str(), 0),
            Refusal::NotDirectory(path) => (3, path.as_str(), 0),
            Refusal::IsDirectory(path) => (4, path.as_str(), 0),
            Refusal::NotEmpty(path) => (5, path.as_str(), 0),
            Refusal::BadPath(why) => (6, why.as_str(), 0),
            Refusal::BadName(why) => (7, why.as_str(), 0),
            Refusal::Version(version) => (8, "", *version),
            Refusal::Fenced => (9, "", 0),
            Refusal::Locked(name) => (10, name.as_str(), 0),
            Refusal::NotLocked(name) => (11, name.as_str(), 0),
            Refusal::Empty(queue) => (12, queue.as_str(), 0),
            Refusal::NoMessage(id) => (13, "", *id),
            Refusal::NotAllowed(why) => (14, why.as_str(), 0),
            Refusal::Limit(what, limit) => (15, what.as_str(), *limit),
            Refusal::Malformed => (16, "", 0),
        };
        out.put_u8(kind);
        text.to_owned().encode(out);
        number.encode(out);
    }

    fn decode(input: &mut kumo_wire::Reader) -> Result<Self, kumo_wire::Malformed> {
        let (kind, (text, number)): (u8, (String, u64)) = kumo_wire::Wire::decode(input)?;
        Ok(match kind {
            1 => Refusal::NotFound(text),
            2 => Refusal::Exists(text),
            3 => Refusal::NotDirectory(text),
            4 => Refusal::IsDirectory(text),
            5 => Refusal::NotEmpty(text),
            6 => Refusal::BadPath(text),
            7 => Refusal::BadName(text),
            8 => Refusal::Version(number),
            9 => Refusal::Fenced,
            10 => Refusal::Locked(text),
            11 => Refusal::NotLocked(text),
            12 => Refusal::Empty(text),
            13 => Refusal::NoMessage(number),
            14 => Refusal::NotAllowed(text),
            15 => Refusal::Limit(text, number),
            16 => Refusal::Malformed,
            kind => return Err(kumo_wire::Malformed::Kind(kind)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pfs;
    use kumo_session::Application;
    use kumo_wire::Wire;

    #[test]
    fn complaints_are_of_what_no_state_allows() {
        let complaint = |reply: Reply| Pfs::complaint(&reply.to_bytes());
        let text = complaint(Reply::Refused(Refusal::BadPath("it is empty".to_owned())));
        assert_eq!(text.as_deref(), Some("bad path: it is empty"));
        assert!(complaint(Reply::Refused(Refusal::Malformed)).is_some());
        assert!(complaint(Reply::Refused(Refusal::Limit("a write".to_owned(), 7))).is_some());
        assert_eq!(complaint(Reply::Refused(Refusal::NotFound("/a".to_owned()))), None);
        assert_eq!(complaint(Reply::Refused(Refusal::Fenced)), None);
        assert_eq!(complaint(Reply::Done), None);
    }
}
