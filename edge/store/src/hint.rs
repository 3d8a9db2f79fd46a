//! [`Hint`]: the records of a closed segment without their data, for a fast start.

use crate::disk::{Access, Disk, DiskFile, UNFINISHED, What, fault, read_whole};
use crate::layout::{KEY_BYTES_MAX, LogKind, LogRecord, RECORD_BYTES};
use crate::segment::{Segment, Step, Walk, hint_name};
use kumo_cluster::{Clock, Fault, KeyHash, SpaceNumber, Stamp};
use std::path::Path;

/// A hint file. It speaks for a segment that is closed and on the disk, as are all before it. Big-endian.
///
/// | offset | size | field                                                        |
/// |--------|------|--------------------------------------------------------------|
/// |      0 |    8 | magic, `kumohnt2`                                            |
/// |      8 |    4 | number of the segment                                        |
/// |     12 |    4 | salt of the segment                                          |
/// |     16 |    8 | bytes of the segment                                         |
/// |     24 |      | for each version or marker: offset 4, k 2, d 4, hash 8, key k, |
/// |        |      | clock 8, expiry 4, space number 8, kind 1                    |
/// |    end |    4 | CRC-32 of all above                                          |
///
/// `kumohnt1` had no salt, so that it could be another segment's of that name: it is not read, but written anew.
pub struct Hint {
    bytes: Vec<u8>,
}

/// What recovery needs to know of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    pub offset: u32,
    pub kind: LogKind,
    pub hash: KeyHash,
    pub key: &'a [u8],
    pub stamp: Stamp,
    pub expiry: u32,
    pub data_bytes: u32,
}

impl<'a> Seen<'a> {
    pub fn new(offset: u64, record: &LogRecord<'a>) -> Seen<'a> {
        let LogRecord { kind, hash, key, stamp, flags: _, expiry, data } = *record;
        Seen { offset: offset as u32, kind, hash, key, stamp, expiry, data_bytes: data.len() as u32 }
    }

    /// Of the record in its segment.
    pub fn bytes(&self) -> u64 {
        (RECORD_BYTES + self.key.len()) as u64 + u64::from(self.data_bytes)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&(self.key.len() as u16).to_be_bytes());
        out.extend_from_slice(&self.data_bytes.to_be_bytes());
        out.extend_from_slice(&self.hash.0.to_be_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(&self.stamp.clock.0.to_be_bytes());
        out.extend_from_slice(&self.expiry.to_be_bytes());
        out.extend_from_slice(&self.stamp.space.0.to_be_bytes());
        out.push(self.kind as u8);
    }

    fn decode(bytes: &'a [u8]) -> Option<(Seen<'a>, &'a [u8])> {
        let (front, rest) = bytes.split_first_chunk::<18>()?;
        let key_bytes = u16::from_be_bytes(*front[4..].first_chunk()?);
        let (key, rest) = rest.split_at_checked(usize::from(key_bytes))?;
        let (back, rest) = rest.split_first_chunk::<21>()?;
        let clock = Clock(u64::from_be_bytes(*back.first_chunk()?));
        let space = SpaceNumber(u64::from_be_bytes(*back[12..].first_chunk()?));
        let seen = Seen {
            offset: u32::from_be_bytes(*front.first_chunk()?),
            kind: LogKind::from_byte(back[20])?,
            hash: KeyHash(u64::from_be_bytes(*front[10..].first_chunk()?)),
            key,
            stamp: Stamp { space, clock },
            expiry: u32::from_be_bytes(*back[8..].first_chunk()?),
            data_bytes: u32::from_be_bytes(*front[6..].first_chunk()?),
        };
        Some((seen, rest))
    }
}

impl Hint {
    /// Reads every record of the closed segment and writes its hint file.
    pub fn write(disk: &dyn Disk, folder: &Path, segment: &Segment) -> Result<(), Fault> {
        let name = hint_name(segment.number);
        let unfinished = folder.join(format!("{name}{UNFINISHED}"));
        let failed = |error| fault("write", &unfinished, &error);
        if disk.what(&unfinished).map_err(failed)? == What::File {
            disk.remove(&unfinished).map_err(failed)?;
        }
        let file = disk.create(&unfinished).map_err(failed)?;
        let written = Writer {
            file: &*file,
            offset: 0,
            crc: crc32fast::Hasher::new(),
            buffer: Vec::with_capacity(BUFFER_BYTES),
        };
        let finish = written.all(segment, &unfinished).and_then(|()| {
            file.sync().map_err(failed)?;
            disk.rename(&unfinished, &folder.join(name)).map_err(failed)?;
            disk.sync_folder(folder).map_err(failed)
        });
        finish.inspect_err(|_| {
            let _ = disk.remove(&unfinished);
        })
    }

    /// The hint of a segment, if there is one that can be trusted. Without it the segment itself is read.
    pub fn read(disk: &dyn Disk, folder: &Path, segment: &Segment) -> Option<Hint> {
        let file = disk.open(&folder.join(hint_name(segment.number)), Access::Read).ok()?;
        // A record's hint is smaller than the record.
        let mut bytes = read_whole(&*file, segment.written() + PREFIX_BYTES as u64 + 4).ok()?;
        let (content, crc) = bytes.split_last_chunk::<4>()?;
        let right = crc32fast::hash(content) == u32::from_be_bytes(*crc)
            && content.len() >= PREFIX_BYTES
            && content[..8] == MAGIC[..]
            && content[8..12] == segment.number.to_be_bytes()
            && content[12..16] == segment.salt.to_be_bytes();
        let length = content.len();
        bytes.truncate(length);
        right.then_some(Hint { bytes })
    }

    /// How long its segment was when it was closed.
    pub fn segment_bytes(&self) -> u64 {
        u64::from_be_bytes(*self.bytes[16..].first_chunk().expect("checked when it was read"))
    }

    pub fn records(&self) -> impl Iterator<Item = Seen<'_>> {
        let mut rest = &self.bytes[PREFIX_BYTES..];
        std::iter::from_fn(move || {
            let (seen, left) = Seen::decode(rest)?;
            rest = left;
            Some(seen)
        })
    }
}

/// Writes a hint piece by piece.
struct Writer<'a> {
    file: &'a dyn DiskFile,
    offset: u64,
    crc: crc32fast::Hasher,
    buffer: Vec<u8>,
}

impl Writer<'_> {
    fn all(mut self, segment: &Segment, path: &Path) -> Result<(), Fault> {
        let end = segment.written();
        self.buffer.extend_from_slice(MAGIC);
        self.buffer.extend_from_slice(&segment.number.to_be_bytes());
        self.buffer.extend_from_slice(&segment.salt.to_be_bytes());
        self.buffer.extend_from_slice(&end.to_be_bytes());
        let mut walk = Walk::new(segment, end);
        loop {
            match walk.step()? {
                Step::Record { offset, record } => match record.kind {
                    LogKind::Value | LogKind::Tombstone | LogKind::Removed => {
                        Seen::new(offset, &record).encode(&mut self.buffer);
                    }
                    LogKind::Synced | LogKind::Sealed => {}
                },
                Step::End => break,
                Step::Bad { offset } => return Err(segment.damage(offset, "wrong checksum")),
            }
            if self.buffer.len() + 2 * KEY_BYTES_MAX > BUFFER_BYTES {
                self.write_out(path)?;
            }
        }
        self.write_out(path)?;
        self.buffer.extend_from_slice(&self.crc.clone().finalize().to_be_bytes());
        self.write_out(path)
    }

    fn write_out(&mut self, path: &Path) -> Result<(), Fault> {
        let written = self.file.write_at(self.offset, &self.buffer);
        written.map_err(|error| fault("write", path, &error))?;
        self.crc.update(&self.buffer);
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

const MAGIC: &[u8; 8] = b"kumohnt2";

/// Before the first record.
const PREFIX_BYTES: usize = 24;

/// Written at once. Not more: allocators keep what they gave to a thread, the more the larger.
const BUFFER_BYTES: usize = 56 << 10;
