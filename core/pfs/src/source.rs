//! [`Source`]: the parts of a snapshot as one stream of records.

use crate::protocol::PATH_BYTES_MAX;
use crate::snapshot::Record;
use bytes::{Bytes, BytesMut};
use kumo_wire::{Malformed, Wire};
use std::collections::VecDeque;

/// Reads from the front and lets go of what was read.
pub(crate) struct Source {
    /// None of them empty.
    parts: VecDeque<Bytes>,
    left: usize,
    /// The record that comes next: read, but not used yet. Raw bytes may stand between it and the one after.
    pub next: Record,
}

impl Source {
    pub fn new(parts: Vec<Bytes>) -> Source {
        let parts: VecDeque<Bytes> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let left = parts.iter().map(Bytes::len).sum();
        Source { parts, left, next: Record::End }
    }

    pub fn left(&self) -> usize {
        self.left
    }

    /// The next bytes: shared when they lie in one part, and nothing is allocated for what is not there.
    pub fn take(&mut self, count: usize) -> Result<Bytes, Malformed> {
        if count > self.left {
            return Err(Malformed::Short);
        }
        let first = self.take_front(count);
        if first.len() == count {
            return Ok(first);
        }
        let mut out = BytesMut::with_capacity(count);
        out.extend_from_slice(&first);
        while out.len() < count {
            let more = self.take_front(count - out.len());
            out.extend_from_slice(&more);
        }
        Ok(out.freeze())
    }

    /// Hands out the record that is next and reads the one after it.
    pub fn advance(&mut self) -> Result<Record, Malformed> {
        let length = u32::from_bytes(self.take(4)?)? as usize;
        if length > RECORD_BYTES_MAX {
            return Err(Malformed::Length(length as u64));
        }
        let record = Record::from_bytes(self.take(length)?)?;
        Ok(std::mem::replace(&mut self.next, record))
    }

    /// Hands out the raw bytes that belong to the record that is next, and reads the one after it.
    pub fn advance_raw(&mut self, length: u32) -> Result<Bytes, Malformed> {
        let raw = self.take(length as usize)?;
        self.advance()?;
        Ok(raw)
    }

    /// Up to so many bytes, of the first part alone.
    fn take_front(&mut self, count: usize) -> Bytes {
        let Some(part) = self.parts.front_mut() else { return Bytes::new() };
        let taken = part.split_to(count.min(part.len()));
        self.left -= taken.len();
        if part.is_empty() {
            self.parts.pop_front();
        }
        taken
    }
}

/// A record without its raw bytes: at most a path and some numbers.
const RECORD_BYTES_MAX: usize = PATH_BYTES_MAX + 256;
