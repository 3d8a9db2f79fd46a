//! Files and directories by path.

use crate::caller::unexpected;
use crate::error::Error;
use crate::file::File;
use crate::session::Session;
use bytes::{Bytes, BytesMut};
use kumo_pfs::{
    Command, Condition, DirectoryEntry, ENTRIES_MAX, Place, Query, READ_BYTES_MAX, Refusal, Reply, Stat,
    Usage, WRITE_BYTES_MAX,
};

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub count: u64,
    /// The file's new version and length.
    pub version: u64,
    pub length: u64,
}

/// Part of a file, and the version it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub bytes: Bytes,
    pub version: u64,
}

/// Part of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<DirectoryEntry>,
    /// Entries in the whole directory.
    pub total: u64,
}

impl Session {
    /// A file with an offset of its own, as the seed's PFSOpen. Nothing is asked of the cell.
    pub fn file(&self, path: impl Into<String>) -> File {
        File::new(self.clone(), path.into(), false)
    }

    /// As [`file`](Session::file); if a write creates it, it goes with this session.
    pub fn ephemeral(&self, path: impl Into<String>) -> File {
        File::new(self.clone(), path.into(), true)
    }

    /// Writes at an offset, in one atomic entry; creates the file and its parents if missing.
    pub async fn write(&self, path: &str, offset: u64, data: impl Into<Bytes>) -> Result<Written, Error> {
        self.write_if(path, Place::Offset(offset), data, Condition::Always).await
    }

    /// Makes `data` the whole content.
    pub async fn put(&self, path: &str, data: impl Into<Bytes>) -> Result<Written, Error> {
        self.write_if(path, Place::Replace, data, Condition::Always).await
    }

    pub async fn append(&self, path: &str, data: impl Into<Bytes>) -> Result<Written, Error> {
        self.write_if(path, Place::End, data, Condition::Always).await
    }

    /// [`put`](Session::put), if the file still has that version; 0: if it does not exist.
    pub async fn compare_and_put(
        &self,
        path: &str,
        version: u64,
        data: impl Into<Bytes>,
    ) -> Result<Written, Error> {
        self.write_if(path, Place::Replace, data, Condition::Version(version)).await
    }

    /// [`put`](Session::put), if the lock is still held under that fencing number.
    pub async fn fenced_put(
        &self,
        path: &str,
        lock: &str,
        number: u64,
        data: impl Into<Bytes>,
    ) -> Result<Written, Error> {
        let condition = Condition::Fence { lock: lock.to_owned(), number };
        self.write_if(path, Place::Replace, data, condition).await
    }

    /// Any write under any condition.
    pub async fn write_if(
        &self,
        path: &str,
        place: Place,
        data: impl Into<Bytes>,
        condition: Condition,
    ) -> Result<Written, Error> {
        self.write_as(path, place, data.into(), false, condition).await
    }

    pub(crate) async fn write_as(
        &self,
        path: &str,
        place: Place,
        data: Bytes,
        ephemeral: bool,
        condition: Condition,
    ) -> Result<Written, Error> {
        if data.len() as u64 > WRITE_BYTES_MAX {
            // It would not fit a frame: the cell would have to hang up instead of refusing.
            return Err(Error::Refused(Refusal::Limit("write".to_owned(), WRITE_BYTES_MAX)));
        }
        let path = path.to_owned();
        match self.command(&Command::Write { path, place, data, ephemeral, condition }).await? {
            Reply::Written { count, version, length } => Ok(Written { count, version, length }),
            reply => Err(unexpected(reply)),
        }
    }

    /// Up to `length` bytes from `offset` on; none at the end.
    pub async fn read_at(&self, path: &str, offset: u64, length: u64) -> Result<Piece, Error> {
        let query = Query::Read { path: path.to_owned(), offset, length: length.min(READ_BYTES_MAX) };
        match self.query(&query).await? {
            Reply::Data { bytes, version } => Ok(Piece { bytes, version }),
            reply => Err(unexpected(reply)),
        }
    }

    /// The whole file, all of it of one version.
    pub async fn read(&self, path: &str) -> Result<Piece, Error> {
        for _ in 0..WHOLE_ATTEMPTS_MAX {
            let first = self.read_at(path, 0, READ_BYTES_MAX).await?;
            if (first.bytes.len() as u64) < READ_BYTES_MAX {
                return Ok(first);
            }
            if let Some(bytes) = self.read_rest(path, &first).await? {
                return Ok(Piece { bytes, version: first.version });
            }
        }
        Err(Error::Changing(path.to_owned()))
    }

    /// `None`: the file changed meanwhile.
    async fn read_rest(&self, path: &str, first: &Piece) -> Result<Option<Bytes>, Error> {
        let mut whole = BytesMut::from(&first.bytes[..]);
        loop {
            let piece = self.read_at(path, whole.len() as u64, READ_BYTES_MAX).await?;
            if piece.version != first.version {
                return Ok(None);
            }
            whole.extend_from_slice(&piece.bytes);
            if (piece.bytes.len() as u64) < READ_BYTES_MAX {
                return Ok(Some(whole.freeze()));
            }
        }
    }

    pub async fn stat(&self, path: &str) -> Result<Stat, Error> {
        match self.query(&Query::Stat { path: path.to_owned() }).await? {
            Reply::Stat(stat) => Ok(stat),
            reply => Err(unexpected(reply)),
        }
    }

    pub async fn truncate(&self, path: &str, length: u64) -> Result<(), Error> {
        match self.command(&Command::Truncate { path: path.to_owned(), length }).await? {
            Reply::Done | Reply::Written { .. } => Ok(()),
            reply => Err(unexpected(reply)),
        }
    }

    pub async fn delete(&self, path: &str) -> Result<(), Error> {
        self.delete_if(path, Condition::Always).await
    }

    pub async fn delete_if(&self, path: &str, condition: Condition) -> Result<(), Error> {
        self.change(Command::Delete { path: path.to_owned(), condition }).await
    }

    /// Files and directories; the target must not exist.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        self.change(Command::Rename { from: from.to_owned(), to: to.to_owned() }).await
    }

    /// With parents; an existing directory is refused.
    pub async fn mkdir(&self, path: &str) -> Result<(), Error> {
        self.change(Command::Mkdir { path: path.to_owned() }).await
    }

    /// Empty ones only.
    pub async fn rmdir(&self, path: &str) -> Result<(), Error> {
        self.change(Command::Rmdir { path: path.to_owned() }).await
    }

    /// Entries from the `index`-th on in byte order of names, at most `count` and at most [`ENTRIES_MAX`].
    pub async fn readdir_page(&self, path: &str, index: u64, count: u64) -> Result<Page, Error> {
        let query = Query::ReadDir { path: path.to_owned(), index, count: count.min(ENTRIES_MAX) };
        match self.query(&query).await? {
            Reply::Entries { entries, total } => Ok(Page { entries, total }),
            reply => Err(unexpected(reply)),
        }
    }

    /// All entries. A directory of several pages is read again when it changed between them.
    pub async fn readdir(&self, path: &str) -> Result<Vec<DirectoryEntry>, Error> {
        for _ in 0..WHOLE_ATTEMPTS_MAX {
            let first = self.readdir_page(path, 0, ENTRIES_MAX).await?;
            if first.entries.len() as u64 >= first.total {
                return Ok(first.entries);
            }
            let before = self.stat(path).await?.version;
            let mut entries = Vec::new();
            loop {
                let page = self.readdir_page(path, entries.len() as u64, ENTRIES_MAX).await?;
                let over = page.entries.is_empty();
                entries.extend(page.entries);
                if over || entries.len() as u64 >= page.total {
                    break;
                }
            }
            if self.stat(path).await?.version == before {
                return Ok(entries);
            }
        }
        Err(Error::Changing(path.to_owned()))
    }

    /// What the whole tree takes.
    pub async fn usage(&self) -> Result<Usage, Error> {
        match self.query(&Query::Usage).await? {
            Reply::Usage(usage) => Ok(usage),
            reply => Err(unexpected(reply)),
        }
    }
}

/// How often something that changes under the reader is read from the start again.
const WHOLE_ATTEMPTS_MAX: usize = 16;
