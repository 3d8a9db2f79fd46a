//! [`Segment`]: one file of the log, and what of it is still current.

use crate::disk::{Access, Disk, DiskFile, fault};
use crate::layout::{self, LogRecord, checksum, seed};
use kumo_cluster::Fault;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One file of the log. It begins with:
///
/// | offset | size | field                        |
/// |--------|------|------------------------------|
/// |      0 |    8 | magic, `kumoseg1`            |
/// |      8 |    4 | number                       |
/// |     12 |    4 | salt of the checksums        |
/// |     16 |    4 | CRC-32 of the 16 bytes above |
///
/// Records follow without gaps, see [`LogRecord`]. All numbers are big-endian.
pub struct Segment {
    pub number: u32,
    pub salt: u32,
    pub path: PathBuf,
    pub file: Box<dyn DiskFile>,
    /// Bytes that were handed to the system; less than what is appended while some are in the buffer.
    pub written: AtomicU64,
    /// Bytes that survive a power failure.
    pub synced: AtomicU64,
    /// Of records that the index points at.
    pub live: AtomicU64,
    /// Of markers of removed keys, which are needed while there are older segments.
    pub markers: AtomicU64,
    /// A record of it could not be read: it stays as it is, for a person to look at, as long as something of it is needed.
    pub damaged: AtomicBool,
    /// Since then all was moved that the index points at and that can be read.
    pub salvaged: AtomicBool,
    /// Never written again, and its hint file is there.
    pub hinted: AtomicBool,
    /// It is about to be removed, so that no start may miss it.
    pub leaving: AtomicBool,
}

/// Bytes before the first record.
pub const HEADER_BYTES: u64 = 20;

const MAGIC: &[u8; 8] = b"kumoseg1";

pub fn segment_name(number: u32) -> String {
    format!("{number:010}.segment")
}

pub fn hint_name(number: u32) -> String {
    format!("{number:010}.hint")
}

/// The number in a segment's or hint's file name.
pub fn number_of(name: &str, suffix: &str) -> Option<u32> {
    let digits = name.strip_suffix(suffix)?;
    (digits.len() == 10 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

impl Segment {
    /// A new and empty one, durable by name, with room for `room` bytes.
    pub fn create(disk: &dyn Disk, folder: &Path, number: u32, room: u64) -> Result<Arc<Segment>, Fault> {
        let path = folder.join(segment_name(number));
        let create = || {
            let file = disk.create(&path)?;
            file.allocate(room.max(HEADER_BYTES))?;
            let salt = RandomState::new().hash_one(number) as u32;
            file.write_at(0, &header(number, salt))?;
            file.sync()?;
            disk.sync_folder(folder)?;
            Ok((file, salt))
        };
        let (file, salt) = create().map_err(|error| {
            // Half a segment is in the way of the next try, and it holds nothing.
            let _ = disk.remove(&path);
            fault("create", &path, &error)
        })?;
        let segment = Segment::new(number, salt, path, file, HEADER_BYTES);
        segment.synced.store(HEADER_BYTES, Ordering::Release);
        Ok(Arc::new(segment))
    }

    /// One that is there. `None`: not even its header was written, so nothing is lost with it.
    pub fn open(
        disk: &dyn Disk,
        folder: &Path,
        number: u32,
        access: Access,
    ) -> Result<Option<Segment>, Fault> {
        let path = folder.join(segment_name(number));
        let failed = |error| fault("open", &path, &error);
        let file = disk.open(&path, access).map_err(failed)?;
        let bytes = file.bytes().map_err(failed)?;
        // The header is durable before a record is written, so a file without one has no records.
        let Some(head) = read_head(&*file, bytes).map_err(failed)? else { return Ok(None) };
        if let Some(salt) = salt_in(&head, number) {
            return Ok(Some(Segment::new(number, salt, path, file, bytes)));
        }
        if bytes == HEADER_BYTES && head == [0; HEADER_BYTES as usize] {
            return Ok(None);
        }
        Err(Fault::Damaged(format!(
            "{}: damaged at offset 0: not the header of segment {number}",
            path.display()
        )))
    }

    fn new(number: u32, salt: u32, path: PathBuf, file: Box<dyn DiskFile>, bytes: u64) -> Segment {
        Segment {
            number,
            salt,
            path,
            file,
            written: AtomicU64::new(bytes),
            synced: AtomicU64::new(0),
            live: AtomicU64::new(0),
            markers: AtomicU64::new(0),
            damaged: AtomicBool::new(false),
            salvaged: AtomicBool::new(false),
            hinted: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
        }
    }

    pub fn seed(&self, offset: u64) -> u32 {
        seed(self.salt, offset)
    }

    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Gives back what is reserved behind its end.
    pub fn trim(&self) -> Result<(), Fault> {
        let trimmed = self.file.truncate(self.written());
        trimmed.map_err(|error| fault("give back the space behind", &self.path, &error))
    }

    /// What a rewriting would free.
    pub fn garbage(&self) -> u64 {
        let needed = self.live.load(Ordering::Relaxed) + self.markers.load(Ordering::Relaxed);
        self.written().saturating_sub(HEADER_BYTES + needed)
    }

    pub fn garbage_percent(&self) -> u64 {
        self.garbage() * 100 / self.written().max(1)
    }

    /// Damaged, and needed by nobody any more: the index points nowhere in it, and what its markers would hide is gone with
    /// the segments before it, of which there are so many.
    pub fn is_relic(&self, older: usize) -> bool {
        let marks = older > 0 && self.markers.load(Ordering::Relaxed) > 0;
        self.damaged.load(Ordering::Relaxed) && self.live.load(Ordering::Relaxed) == 0 && !marks
    }

    /// What is needed of it can be moved, as far as anybody knows, or a part of it that was not tried yet.
    pub fn is_movable(&self) -> bool {
        !self.damaged.load(Ordering::Relaxed) || !self.salvaged.load(Ordering::Relaxed)
    }

    /// The record of this length at this offset, from what was handed to the system.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; length];
        self.read_into(offset, &mut bytes)?;
        Ok(bytes)
    }

    pub fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.file.read_at(offset, into).map_err(|error| self.damage(offset, &error.to_string()))
    }

    /// The record in these bytes, which were read at this offset.
    pub fn decode<'a>(&self, offset: u64, bytes: &'a [u8]) -> Result<LogRecord<'a>, Fault> {
        LogRecord::decode(self.seed(offset), bytes).ok_or_else(|| self.damage(offset, "wrong checksum"))
    }

    pub fn damage(&self, offset: u64, what: &str) -> Fault {
        Fault::Damaged(format!("{}: damaged at offset {offset}: {what}", self.path.display()))
    }
}

/// The salt of a segment, by which it is told from others of its name; none if the file does not begin as it should.
pub fn read_salt(file: &dyn DiskFile, number: u32) -> io::Result<Option<u32>> {
    let head = read_head(file, file.bytes()?)?;
    Ok(head.and_then(|head| salt_in(&head, number)))
}

/// None: a file of so many bytes is too short to have one.
fn read_head(file: &dyn DiskFile, bytes: u64) -> io::Result<Option<[u8; HEADER_BYTES as usize]>> {
    let mut head = [0; HEADER_BYTES as usize];
    if bytes < HEADER_BYTES {
        return Ok(None);
    }
    file.read_at(0, &mut head)?;
    Ok(Some(head))
}

fn salt_in(head: &[u8; HEADER_BYTES as usize], number: u32) -> Option<u32> {
    let salt = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
    (*head == header(number, salt)).then_some(salt)
}

fn header(number: u32, salt: u32) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&number.to_be_bytes());
    header[12..16].copy_from_slice(&salt.to_be_bytes());
    let crc = checksum(0, &header[..16]);
    header[16..].copy_from_slice(&crc.to_be_bytes());
    header
}

/// Walks the records of a segment through a window of bounded size.
pub struct Walk<'a> {
    segment: &'a Segment,
    end: u64,
    at: u64,
    window: Vec<u8>,
    window_at: u64,
}

/// What a walk comes upon.
pub enum Step<'a> {
    Record {
        offset: u64,
        record: LogRecord<'a>,
    },
    /// All has been seen.
    End,
    /// No whole record is here.
    Bad {
        offset: u64,
    },
}

impl<'a> Walk<'a> {
    /// From the first record up to offset `end`.
    pub fn new(segment: &'a Segment, end: u64) -> Walk<'a> {
        Walk { segment, end, at: HEADER_BYTES, window: Vec::new(), window_at: HEADER_BYTES }
    }

    /// Goes on with the record at this offset, wherever it is.
    pub fn go_to(&mut self, offset: u64) {
        let window = self.window_at..=self.window_at + self.window.len() as u64;
        if !window.contains(&offset) {
            self.window.clear();
            self.window_at = offset;
        }
        self.at = offset;
    }

    pub fn step(&mut self) -> Result<Step<'_>, Fault> {
        let offset = self.at;
        if offset >= self.end {
            return Ok(Step::End);
        }
        let left = (self.end - offset) as usize;
        if left < layout::RECORD_BYTES {
            return Ok(Step::Bad { offset });
        }
        self.fill(layout::RECORD_BYTES)?;
        let Some(length) = layout::length(self.seen()).filter(|length| *length <= left) else {
            return Ok(Step::Bad { offset });
        };
        self.fill(length)?;
        let start = (offset - self.window_at) as usize;
        match LogRecord::decode(self.segment.seed(offset), &self.window[start..start + length]) {
            Some(record) => {
                self.at += length as u64;
                Ok(Step::Record { offset, record })
            }
            None => Ok(Step::Bad { offset }),
        }
    }

    fn seen(&self) -> &[u8] {
        &self.window[(self.at - self.window_at) as usize..]
    }

    /// Makes `count` bytes from here on visible.
    fn fill(&mut self, count: usize) -> Result<(), Fault> {
        if self.seen().len() >= count {
            return Ok(());
        }
        let wanted = count.max(WINDOW_BYTES).min((self.end - self.at) as usize);
        self.window_at = self.at;
        self.window.resize(wanted, 0);
        let file = &self.segment.file;
        let read = file.read_at(self.at, &mut self.window).or_else(|_| {
            // What cannot be read may be behind what is wanted.
            self.window.resize(count, 0);
            file.read_at(self.at, &mut self.window)
        });
        read.map_err(|error| {
            self.window.clear();
            self.segment.damage(self.at, &error.to_string())
        })
    }
}

/// How much of a segment is read at once. Not more: allocators keep what they gave to a thread, the more the larger.
const WINDOW_BYTES: usize = 56 << 10;
