//! The structures of `pfs.h`, field for field. A test in C compares sizes and offsets.

use super::text::copy;
use kumo_pfs::{DirectoryEntry, EntryChange, NAME_BYTES_MAX, PATH_BYTES_MAX, QueueChange, Stat};
use libc::c_int;
use std::ffi::c_char;

pub(super) type Name = [c_char; NAME_BYTES_MAX + 1];
pub(super) type PathName = [c_char; PATH_BYTES_MAX + 1];

/// `FileStat_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileStat {
    length: u64,
    version: u64,
    created: i64,
    modified: i64,
    session: u64,
    directory: i32,
    ephemeral: i32,
}

/// `FileDirent_t`
#[repr(C)]
pub struct FileDirent {
    name: Name,
    stat: FileStat,
}

/// `FileEventDir_t`
#[repr(C)]
pub struct FileEventDir {
    path: PathName,
    name: Name,
    change: i32,
    number: u64,
}

/// `FileEventLock_t`
#[repr(C)]
pub struct FileEventLock {
    name: Name,
    exclusive: i32,
    number: u64,
}

/// `FileEventQueue_t`
#[repr(C)]
pub struct FileEventQueue {
    name: Name,
    change: i32,
    number: u64,
}

/// `PaxosClientId_t`: which message of a queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MessageId {
    pub(super) number: u64,
}

impl From<&Stat> for FileStat {
    fn from(stat: &Stat) -> FileStat {
        FileStat {
            length: stat.length,
            version: stat.version,
            created: i64::try_from(stat.created.0).unwrap_or(i64::MAX),
            modified: i64::try_from(stat.modified.0).unwrap_or(i64::MAX),
            session: stat.ephemeral.map_or(0, |session| session.0),
            directory: stat.directory.into(),
            ephemeral: stat.ephemeral.is_some().into(),
        }
    }
}

impl From<&DirectoryEntry> for FileDirent {
    fn from(entry: &DirectoryEntry) -> FileDirent {
        let mut dirent = FileDirent { name: [0; NAME_BYTES_MAX + 1], stat: (&entry.stat).into() };
        copy(&entry.name, &mut dirent.name);
        dirent
    }
}

impl FileEventDir {
    pub(super) fn new(number: u64, path: &str, name: &str, change: EntryChange) -> Box<FileEventDir> {
        let change = match change {
            EntryChange::Created => CREATED,
            EntryChange::Updated => UPDATED,
            EntryChange::Deleted => DELETED,
        };
        let empty =
            FileEventDir { path: [0; PATH_BYTES_MAX + 1], name: [0; NAME_BYTES_MAX + 1], change, number };
        let mut event = Box::new(empty);
        copy(path, &mut event.path);
        copy(name, &mut event.name);
        event
    }
}

impl FileEventLock {
    pub(super) fn new(number: u64, name: &str, exclusive: bool) -> FileEventLock {
        let mut event = FileEventLock { name: [0; NAME_BYTES_MAX + 1], exclusive: exclusive.into(), number };
        copy(name, &mut event.name);
        event
    }
}

impl FileEventQueue {
    pub(super) fn new(number: u64, name: &str, change: QueueChange) -> FileEventQueue {
        let change = match change {
            QueueChange::Posted => POSTED,
            QueueChange::Waiting => WAITING,
        };
        let mut event = FileEventQueue { name: [0; NAME_BYTES_MAX + 1], change, number };
        copy(name, &mut event.name);
        event
    }
}

/// `FILE_EPHEMERAL`, a flag of `PFSOpen`.
pub(super) const FILE_EPHEMERAL: c_int = 1;

/// `PFS_CREATED`, `PFS_UPDATED`, `PFS_DELETED`
const CREATED: i32 = 1;
const UPDATED: i32 = 2;
const DELETED: i32 = 3;

/// `PFS_POSTED`, `PFS_WAITING`
const POSTED: i32 = 1;
const WAITING: i32 = 2;

/// `PAXOS_SESSION_OPENING`, `_SAFE`, `_JEOPARDY`, `_LOST`
pub(super) const OPENING: c_int = 0;
pub(super) const SAFE: c_int = 1;
pub(super) const JEOPARDY: c_int = 2;
pub(super) const LOST: c_int = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The numbers are those of client/c/header.cpp, where a C++ compiler finds them in `pfs.h`.
    #[test]
    fn structures_are_laid_out_as_in_the_header() {
        assert_eq!((size_of::<FileStat>(), offset_of!(FileStat, session)), (48, 32));
        assert_eq!((size_of::<FileDirent>(), offset_of!(FileDirent, stat)), (304, 256));
        assert_eq!((size_of::<FileEventDir>(), offset_of!(FileEventDir, name)), (4368, 4097));
        assert_eq!((offset_of!(FileEventDir, change), offset_of!(FileEventDir, number)), (4356, 4360));
        assert_eq!((size_of::<FileEventLock>(), offset_of!(FileEventLock, number)), (272, 264));
        assert_eq!((size_of::<FileEventQueue>(), offset_of!(FileEventQueue, change)), (272, 256));
        assert_eq!(size_of::<MessageId>(), 8);
    }
}
