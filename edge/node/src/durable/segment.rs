//! [`Segment`]: a stretch of the log on disk, and how one is read back.
//!
//! Every commit begins with a mark that names its own offset: what lies before a mark was safely on disk when
//! the mark was written. So a record that cannot be read is a *torn tail* (the commit that was under way when
//! the machine stopped, never acknowledged) unless a mark follows it; then it is *damage*.
//!
//! | offset | size | body of a mark                           |
//! |      0 |    1 | 0 (records count from 1)                 |
//! |      1 |    8 | "kumosync"                               |
//! |      9 |    8 | offset of the mark's frame in this file  |

use super::failure::Failure;
use super::frame::{self, FRAME_HEADER_BYTES, HEADER_BYTES, Header, Kind};
use bytes::{BufMut, Bytes, BytesMut};
use kumo_paxos::Record;
use kumo_wire::Wire;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// A log file that is open for appending. Everything before `length` is on disk.
#[derive(Debug)]
pub struct Segment {
    file: File,
    length: u64,
}

impl Segment {
    /// A new segment that holds nothing. It is on disk after its first commit.
    pub fn create(directory: &Path, number: u64) -> io::Result<Segment> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path(directory, number))?;
        let mut header = BytesMut::with_capacity(HEADER_BYTES);
        Kind::Segment.put_header(number, &mut header);
        file.write_all(&header)?;
        Ok(Segment { file, length: HEADER_BYTES as u64 })
    }

    /// Goes on with a segment read back: what lies beyond `length` is cut off.
    pub fn reopen(path: &Path, number: u64, length: u64) -> Result<Segment, Failure> {
        let segment = Segment::cut(path, number, length).map_err(Failure::Unwritten)?;
        segment.file.sync_all().map_err(Failure::Unsynced)?;
        Ok(segment)
    }

    fn cut(path: &Path, number: u64, length: u64) -> io::Result<Segment> {
        // Appending, so that writing goes on behind a header just made again.
        let mut file = OpenOptions::new().append(true).open(path)?;
        if file.metadata()?.len() != length {
            file.set_len(length)?;
        }
        if length > 0 {
            return Ok(Segment { file, length });
        }
        let mut header = BytesMut::with_capacity(HEADER_BYTES);
        Kind::Segment.put_header(number, &mut header);
        file.write_all(&header)?;
        Ok(Segment { file, length: HEADER_BYTES as u64 })
    }

    /// Writes one commit with one call and waits until the disk has it.
    pub fn commit(&mut self, commit: &mut Commit) -> Result<(), Failure> {
        let bytes = commit.sealed(self.length);
        self.file.write_all(bytes).map_err(Failure::Unwritten)?;
        self.file.sync_data().map_err(Failure::Unsynced)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// A segment that is written to another file, which may be a device that fails in its own way.
    #[cfg(test)]
    pub fn at(path: &Path) -> Segment {
        Segment { file: OpenOptions::new().append(true).open(path).unwrap(), length: 0 }
    }
}

/// Records on their way to the disk together.
#[derive(Debug, Default)]
pub struct Commit {
    bytes: BytesMut,
}

impl Commit {
    pub fn put(&mut self, record: &Record) {
        if self.bytes.is_empty() {
            self.bytes.put_bytes(0, MARK_BYTES);
        }
        frame::put(record, &mut self.bytes);
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Empty again, with its memory kept unless it grew large.
    pub fn clear(&mut self) {
        match self.bytes.capacity() > COMMIT_KEEP_BYTES {
            true => self.bytes = BytesMut::new(),
            false => self.bytes.clear(),
        }
    }

    fn sealed(&mut self, offset: u64) -> &[u8] {
        if let Some(mark) = self.bytes.get_mut(..MARK_BYTES) {
            mark[FRAME_HEADER_BYTES] = MARK;
            mark[FRAME_HEADER_BYTES + 1..FRAME_HEADER_BYTES + 9].copy_from_slice(MARK_WORD);
            mark[FRAME_HEADER_BYTES + 9..].copy_from_slice(&offset.to_le_bytes());
            frame::seal(mark);
        }
        &self.bytes
    }
}

/// What was read from a segment.
#[derive(Debug, PartialEq, Eq)]
pub enum Contents {
    /// All records up to `length`; the file goes on beyond it only if its tail is torn.
    Whole {
        records: Vec<Record>,
        length: u64,
    },
    /// Nothing but zeros. The header is safe when the first commit is: if it was being begun, nothing of it was.
    Blank,
    /// What was safely on disk cannot be read at `offset`.
    Damaged {
        offset: u64,
    },
    OtherFormat(u32),
    Foreign,
}

/// Reads a segment's bytes.
pub fn read(number: u64, file: &Bytes) -> Contents {
    match Kind::Segment.read_header(number, file) {
        Header::Good => {}
        // Not even the header was safe, so no record was.
        Header::Short => return Contents::Whole { records: Vec::new(), length: 0 },
        Header::Blank if file.iter().all(|byte| *byte == 0) => return Contents::Blank,
        Header::Blank => return Contents::Damaged { offset: 0 },
        Header::OtherFormat(version) => return Contents::OtherFormat(version),
        Header::Foreign => return Contents::Foreign,
        Header::Damaged => return Contents::Damaged { offset: 0 },
    }
    let mut records = Vec::new();
    let mut offset = HEADER_BYTES;
    while offset < file.len() {
        let Some((body, next)) = frame::read(file, offset) else {
            return match mark_after(file, offset) {
                true => Contents::Damaged { offset: offset as u64 },
                false => Contents::Whole { records, length: offset as u64 },
            };
        };
        if body.first() != Some(&MARK) {
            // Its checksum holds, so these bytes were written: a record this kumo cannot read is damage.
            let Ok(record) = Record::from_bytes(body) else {
                return Contents::Damaged { offset: offset as u64 };
            };
            records.push(record);
        }
        offset = next;
    }
    Contents::Whole { records, length: offset as u64 }
}

/// Whether a mark stands behind `offset`, at the place it names.
fn mark_after(file: &Bytes, offset: usize) -> bool {
    let tail = &file[offset..];
    let distance = FRAME_HEADER_BYTES + 1;
    tail.windows(MARK_WORD.len()).enumerate().any(|(at, window)| {
        if window != MARK_WORD || at < distance {
            return false;
        }
        let start = offset + at - distance;
        let Some((body, _)) = frame::read(file, start) else { return false };
        start > offset && body.first() == Some(&MARK) && body[9..] == (start as u64).to_le_bytes()
    })
}

pub fn path(directory: &Path, number: u64) -> std::path::PathBuf {
    directory.join(format!("{NAME}{number}"))
}

/// A segment's file name, before its number.
pub const NAME: &str = "log-";

/// The first byte of a mark's body.
const MARK: u8 = 0;
const MARK_WORD: &[u8; 8] = b"kumosync";
const MARK_BYTES: usize = FRAME_HEADER_BYTES + 17;

/// Memory a commit keeps for the next one.
const COMMIT_KEEP_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_paxos::{Incarnation, Instance, Round, Value};

    fn records() -> Vec<Record> {
        vec![
            Record::Life { incarnation: Incarnation(7), grant_micros: 500_000, kept: 3 },
            Record::Promised(Round { sequence: 3, ..Round::default() }),
            Record::Decided { instance: Instance(1), value: Value::Command(Bytes::from_static(b"abc")) },
        ]
    }

    /// A segment as its two commits would leave it, and where the second begins.
    fn file() -> (Bytes, usize) {
        let mut out = BytesMut::new();
        Kind::Segment.put_header(1, &mut out);
        let mut commit = Commit::default();
        records().iter().for_each(|record| commit.put(record));
        let second = {
            out.put_slice(commit.sealed(HEADER_BYTES as u64));
            out.len()
        };
        out.put_slice(commit.sealed(second as u64));
        (out.freeze(), second)
    }

    #[test]
    fn every_truncation_gives_the_records_before_it() {
        let (whole, second) = file();
        for length in 0..=whole.len() {
            let Contents::Whole { records, length: kept } = read(1, &whole.slice(..length)) else {
                panic!("a cut tail is not damage: {length}");
            };
            assert!(kept as usize <= length);
            assert_eq!(records.len() >= 3, length >= second, "length {length}");
            let again = read(1, &whole.slice(..kept as usize));
            assert_eq!(again, Contents::Whole { records, length: kept }, "what is kept reads the same");
        }
    }

    #[test]
    fn a_bit_flip_before_the_last_mark_is_damage_and_after_it_a_torn_tail() {
        let (whole, second) = file();
        for bit in 0..whole.len() * 8 {
            let mut damaged = BytesMut::from(&whole[..]);
            damaged[bit / 8] ^= 1 << (bit % 8);
            let contents = read(1, &damaged.freeze());
            let byte = bit / 8;
            match contents {
                Contents::Foreign => assert!(byte < 8),
                Contents::Damaged { .. } => assert!((8..second).contains(&byte), "bit {bit}"),
                Contents::Whole { records, .. } => {
                    assert!(byte >= second && records.len() < 6, "bit {bit}")
                }
                Contents::Blank => panic!("there is more than zeros: bit {bit}"),
                Contents::OtherFormat(_) => panic!("a flipped version fails its checksum: bit {bit}"),
            }
        }
    }

    #[test]
    fn a_segment_goes_on_behind_a_cut() {
        let directory = crate::durable::scratch("segment-goes-on");
        let mut commit = Commit::default();
        commit.put(&records()[0]);
        let mut segment = Segment::create(&directory, 4).unwrap();
        segment.commit(&mut commit).unwrap();
        let length = segment.length();
        segment.commit(&mut commit).unwrap();
        for kept in [length, 0] {
            let mut segment = Segment::reopen(&path(&directory, 4), 4, kept).unwrap();
            segment.commit(&mut commit).unwrap();
            let file = Bytes::from(std::fs::read(path(&directory, 4)).unwrap());
            let Contents::Whole { records, length } = read(4, &file) else { panic!("unreadable") };
            assert_eq!(length as usize, file.len());
            assert_eq!(records.len(), if kept == 0 { 1 } else { 2 });
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
