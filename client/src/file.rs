//! [`File`]: a path with an offset, as the seed's PFSOpen, PFSRead, PFSWrite and PFSLseek.

use crate::error::Error;
use crate::files::Written;
use crate::session::Session;
use bytes::Bytes;
use kumo_pfs::{Condition, Place, Refusal, Stat};
use std::io::SeekFrom;

/// A file of a session. The offset lives here alone; the cell does not know that a file is open.
#[derive(Clone)]
pub struct File {
    session: Session,
    path: String,
    offset: u64,
    ephemeral: bool,
}

impl File {
    pub(crate) fn new(session: Session, path: String, ephemeral: bool) -> File {
        File { session, path, offset: 0, ephemeral }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Up to `length` bytes from the offset on, which moves behind them; none at the end.
    pub async fn read(&mut self, length: u64) -> Result<Bytes, Error> {
        let piece = self.session.read_at(&self.path, self.offset, length).await?;
        self.offset += piece.bytes.len() as u64;
        Ok(piece.bytes)
    }

    /// Writes at the offset, which moves behind what was written.
    pub async fn write(&mut self, data: impl Into<Bytes>) -> Result<Written, Error> {
        let written = self.place(Place::Offset(self.offset), data.into()).await?;
        self.offset += written.count;
        Ok(written)
    }

    /// Writes at the end; the offset moves there.
    pub async fn append(&mut self, data: impl Into<Bytes>) -> Result<Written, Error> {
        let written = self.place(Place::End, data.into()).await?;
        self.offset = written.length;
        Ok(written)
    }

    /// Makes `data` the whole content; the offset moves to its end.
    pub async fn replace(&mut self, data: impl Into<Bytes>) -> Result<Written, Error> {
        let written = self.place(Place::Replace, data.into()).await?;
        self.offset = written.length;
        Ok(written)
    }

    async fn place(&self, place: Place, data: Bytes) -> Result<Written, Error> {
        self.session.write_as(&self.path, place, data, self.ephemeral, Condition::Always).await
    }

    /// Moves the offset; only a place counted from the end asks the cell.
    pub async fn seek(&mut self, to: SeekFrom) -> Result<u64, Error> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.offset.checked_add_signed(by),
            SeekFrom::End(by) => self.stat().await?.length.checked_add_signed(by),
        };
        let before_start = || Refusal::NotAllowed("a place before the start of the file".to_owned());
        self.offset = target.ok_or_else(|| Error::Refused(before_start()))?;
        Ok(self.offset)
    }

    pub async fn truncate(&self, length: u64) -> Result<(), Error> {
        self.session.truncate(&self.path, length).await
    }

    pub async fn stat(&self) -> Result<Stat, Error> {
        self.session.stat(&self.path).await
    }

    pub async fn delete(&self) -> Result<(), Error> {
        self.session.delete(&self.path).await
    }
}
