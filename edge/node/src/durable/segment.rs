//! [`Segment`]: a stretch of the log on disk, and how one is read back.
//!
//! A segment begins with a frame that says how long the one before it was when that was complete: the only way to
//! see that what is whole frame by frame was longer once.
//!
//! Every commit begins with a mark that names its own offset: what lies before a mark was safely on disk when
//! the mark was written. So a record that cannot be read is a *torn tail* (the commit that was under way when
//! the machine stopped, never acknowledged) unless a mark follows it; then it is *damage*. What is in a record, a
//! client may have chosen: a mark names its segment's salt too, which nobody outside can know.
//!
//! | offset | size | body of the first frame                                |
//! |      0 |    8 | salt: random                                           |
//! |      8 |    8 | length of the segment before; 0: there was none        |
//!
//! | offset | size | body of a mark                           |
//! |      0 |    1 | 0 (records count from 1)                 |
//! |      1 |    8 | salt of the segment                      |
//! |      9 |    8 | offset of the mark's frame in this file  |

use super::failure::Failure;
use super::frame::{self, FRAME_HEADER_BYTES, HEADER_BYTES, Header, Kind};
use crate::entropy;
use bytes::{BufMut, Bytes, BytesMut};
use kumo_paxos::Record;
use kumo_wire::{Wire, wire_struct};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// A log file that is open for appending. Everything before `length` is on disk.
#[derive(Debug)]
pub struct Segment {
    file: File,
    salt: u64,
    length: u64,
}

/// What the first frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    pub salt: u64,
    pub length_before: u64,
}

wire_struct!(Birth { salt, length_before });

impl Segment {
    /// A new segment that holds nothing. It is on disk after its first commit. Nothing is written any more to the
    /// one before it, which has `length_before` bytes.
    pub fn create(directory: &Path, number: u64, length_before: u64) -> io::Result<Segment> {
        let file = OpenOptions::new().write(true).create_new(true).open(path(directory, number))?;
        Segment::begin(file, number, length_before)
    }

    /// Goes on with a segment read back: what lies beyond `length` is cut off.
    pub fn reopen(path: &Path, birth: Birth, length: u64) -> Result<Segment, Failure> {
        let file = cut(path, length).map_err(Failure::Unwritten)?;
        file.sync_all().map_err(Failure::Unsynced)?;
        Ok(Segment { file, salt: birth.salt, length })
    }

    /// Makes a segment anew that is there and was not begun.
    pub fn restart(path: &Path, number: u64, length_before: u64) -> Result<Segment, Failure> {
        let begun = cut(path, 0).and_then(|file| Segment::begin(file, number, length_before));
        let segment = begun.map_err(Failure::Unwritten)?;
        segment.file.sync_all().map_err(Failure::Unsynced)?;
        Ok(segment)
    }

    fn begin(mut file: File, number: u64, length_before: u64) -> io::Result<Segment> {
        let salt = entropy::draw().map_err(io::Error::other)? as u64;
        file.write_all(&beginning(number, Birth { salt, length_before }))?;
        Ok(Segment { file, salt, length: BEGINNING_BYTES as u64 })
    }

    /// Writes one commit with one call and waits until the disk has it.
    pub fn commit(&mut self, commit: &mut Commit) -> Result<(), Failure> {
        let bytes = commit.sealed(self.salt, self.length);
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
        Segment { file: OpenOptions::new().append(true).open(path).unwrap(), salt: 0, length: 0 }
    }
}

/// A file with no more than its first `length` bytes, to be gone on with behind them.
fn cut(path: &Path, length: u64) -> io::Result<File> {
    let file = OpenOptions::new().append(true).open(path)?;
    if file.metadata()?.len() != length {
        file.set_len(length)?;
    }
    Ok(file)
}

/// What a segment begins with.
fn beginning(number: u64, birth: Birth) -> BytesMut {
    let mut out = BytesMut::with_capacity(BEGINNING_BYTES);
    Kind::Segment.put_header(number, &mut out);
    frame::put(&birth, &mut out);
    out
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

    fn sealed(&mut self, salt: u64, offset: u64) -> &[u8] {
        if let Some(frame) = self.bytes.get_mut(..MARK_BYTES) {
            frame[FRAME_HEADER_BYTES..].copy_from_slice(&mark(salt, offset));
            frame::seal(frame);
        }
        &self.bytes
    }
}

/// What was read from a segment.
#[derive(Debug, PartialEq, Eq)]
pub enum Contents {
    /// All records up to `length`; the file goes on beyond it only if its tail is torn.
    Whole {
        birth: Birth,
        records: Vec<Record>,
        length: u64,
    },
    /// It ends within its beginning, or there is nothing but zeros. The beginning is safe when the first commit is: if
    /// this was being begun, nothing of it was.
    Unbegun,
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
        Header::Good if file.len() < BEGINNING_BYTES => return Contents::Unbegun,
        Header::Good => {}
        Header::Short => return Contents::Unbegun,
        Header::Blank if file.iter().all(|byte| *byte == 0) => return Contents::Unbegun,
        Header::Blank => return Contents::Damaged { offset: 0 },
        Header::OtherFormat(version) => return Contents::OtherFormat(version),
        Header::Foreign => return Contents::Foreign,
        Header::Damaged => return Contents::Damaged { offset: 0 },
    }
    let body = frame::read(file, HEADER_BYTES).map(|(body, _)| body);
    let Some(Ok(birth)) = body.map(Birth::from_bytes) else {
        return Contents::Damaged { offset: HEADER_BYTES as u64 };
    };
    let mut records = Vec::new();
    let mut offset = BEGINNING_BYTES;
    while offset < file.len() {
        let Some((body, next)) = read_frame(file, birth.salt, offset) else {
            return match mark_after(file, birth.salt, offset) {
                true => Contents::Damaged { offset: offset as u64 },
                false => Contents::Whole { birth, records, length: offset as u64 },
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
    Contents::Whole { birth, records, length: offset as u64 }
}

/// As [`frame::read`]. A mark that was made for another place is none: behind the end of a file, a disk may show after
/// a power failure what was there before.
fn read_frame(file: &Bytes, salt: u64, offset: usize) -> Option<(Bytes, usize)> {
    frame::read(file, offset)
        .filter(|(body, _)| body.first() != Some(&MARK) || body[..] == mark(salt, offset as u64))
}

/// Whether a mark stands behind `offset`, at the place it names.
fn mark_after(file: &Bytes, salt: u64, offset: usize) -> bool {
    let front = &mark(salt, 0)[..MARK_FRONT_BYTES];
    let behind = offset + 1 + FRAME_HEADER_BYTES;
    let Some(tail) = file.get(behind..) else { return false };
    tail.windows(MARK_FRONT_BYTES).enumerate().any(|(at, window)| {
        let start = offset + 1 + at;
        window == front
            && frame::read(file, start).is_some_and(|(body, _)| body[..] == mark(salt, start as u64))
    })
}

/// The body of the mark at `offset`.
fn mark(salt: u64, offset: u64) -> [u8; MARK_BYTES - FRAME_HEADER_BYTES] {
    let mut body = [MARK; MARK_BYTES - FRAME_HEADER_BYTES];
    body[1..MARK_FRONT_BYTES].copy_from_slice(&salt.to_le_bytes());
    body[MARK_FRONT_BYTES..].copy_from_slice(&offset.to_le_bytes());
    body
}

pub fn path(directory: &Path, number: u64) -> std::path::PathBuf {
    directory.join(format!("{NAME}{number}"))
}

/// A segment's file name, before its number.
pub const NAME: &str = "log-";

/// The header and the first frame.
const BEGINNING_BYTES: usize = HEADER_BYTES + FRAME_HEADER_BYTES + 16;

/// The first byte of a mark's body.
const MARK: u8 = 0;
/// What all marks of a segment begin with: that byte and the salt.
const MARK_FRONT_BYTES: usize = 9;
const MARK_BYTES: usize = FRAME_HEADER_BYTES + MARK_FRONT_BYTES + 8;

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

    const BIRTH: Birth = Birth { salt: 0x1122_3344_5566_7788, length_before: 9 };

    /// A segment of these commits, and where each of them ends.
    fn segment(birth: Birth, commits: &[&[Record]]) -> (Bytes, Vec<usize>) {
        let mut out = beginning(1, birth);
        let mut ends = Vec::new();
        for records in commits {
            let mut commit = Commit::default();
            records.iter().for_each(|record| commit.put(record));
            out.put_slice(commit.sealed(birth.salt, out.len() as u64));
            ends.push(out.len());
        }
        (out.freeze(), ends)
    }

    fn whole(records: &[Record], length: usize) -> Contents {
        Contents::Whole { birth: BIRTH, records: records.to_vec(), length: length as u64 }
    }

    #[test]
    fn every_truncation_gives_the_records_before_it() {
        let (file, ends) = segment(BIRTH, &[&records(), &records()]);
        for length in 0..=file.len() {
            let (records, kept) = match read(1, &file.slice(..length)) {
                Contents::Whole { birth: BIRTH, records, length } => (records, length as usize),
                Contents::Unbegun if length < BEGINNING_BYTES => continue,
                damaged => panic!("a cut tail is not damage: {length}: {damaged:?}"),
            };
            assert!((BEGINNING_BYTES..=length).contains(&kept));
            assert_eq!(records.len() >= 3, length >= ends[0], "length {length}");
            assert_eq!(read(1, &file.slice(..kept)), whole(&records, kept), "what is kept reads the same");
        }
    }

    #[test]
    fn a_bit_flip_before_the_last_mark_is_damage_and_after_it_a_torn_tail() {
        let (file, ends) = segment(BIRTH, &[&records(), &records()]);
        let second = ends[0];
        for bit in 0..file.len() * 8 {
            let mut damaged = BytesMut::from(&file[..]);
            damaged[bit / 8] ^= 1 << (bit % 8);
            let contents = read(1, &damaged.freeze());
            let byte = bit / 8;
            match contents {
                Contents::Foreign => assert!(byte < 8),
                Contents::Damaged { .. } => assert!((8..second).contains(&byte), "bit {bit}"),
                Contents::Whole { records, .. } => {
                    assert!(byte >= second && records.len() < 6, "bit {bit}")
                }
                Contents::Unbegun => panic!("there is more than a part of a beginning: bit {bit}"),
                Contents::OtherFormat(_) => panic!("a flipped version fails its checksum: bit {bit}"),
            }
        }
    }

    /// The process ends, or the power fails, while a record is written that a client made up to look like marks.
    #[test]
    fn what_a_client_wrote_is_no_mark() {
        let command = |bytes: &[u8]| {
            let value = Value::Command(Bytes::copy_from_slice(bytes));
            [Record::Decided { instance: Instance(2), value }]
        };
        // As long as what the client writes, so that it knows where that will be.
        let filler = [b'#'; 4 * MARK_BYTES];
        let (file, ends) = segment(BIRTH, &[&records(), &command(&filler), &records()]);
        let body = file.windows(filler.len()).position(|window| window == filler).unwrap();
        // All but the salt is known.
        let mut forged = Vec::new();
        for salt in [0, u64::from_le_bytes(*b"kumosync"), !BIRTH.salt, BIRTH.salt ^ 1] {
            let mut frame = [0; MARK_BYTES];
            frame[FRAME_HEADER_BYTES..].copy_from_slice(&mark(salt, (body + forged.len()) as u64));
            frame::seal(&mut frame);
            forged.extend_from_slice(&frame);
        }
        let (file, same_ends) = segment(BIRTH, &[&records(), &command(&forged), &records()]);
        assert_eq!((&file[body..][..forged.len()], same_ends), (&forged[..], ends.clone()));
        let kept = ends[0] + MARK_BYTES;
        for length in kept..ends[1] {
            assert_eq!(read(1, &file.slice(..length)), whole(&records(), kept), "length {length}");
        }
        // Nor does it hide a true one.
        let mut damaged = BytesMut::from(&file[..]);
        damaged[body + forged.len() - 1] ^= 1;
        assert_eq!(read(1, &damaged.freeze()), Contents::Damaged { offset: kept as u64 });
    }

    /// A disk may show them behind the end of a file whose length it knew before its contents.
    #[test]
    fn what_another_segment_left_behind_is_a_torn_tail() {
        let (mine, ends) = segment(BIRTH, &[&records()]);
        let other = Birth { salt: BIRTH.salt + 1, ..BIRTH };
        let (others, _) = segment(other, &[&records(), &records(), &records()]);
        let file = [&mine[..], &others[mine.len()..]].concat();
        assert_eq!(read(1, &file.into()), whole(&records(), ends[0]));
    }

    #[test]
    fn a_segment_goes_on_behind_a_cut() {
        let directory = crate::durable::scratch("segment-goes-on");
        let path = path(&directory, 4);
        let mut commit = Commit::default();
        commit.put(&records()[0]);
        let mut segment = Segment::create(&directory, 4, 7).unwrap();
        segment.commit(&mut commit).unwrap();
        let length = segment.length();
        segment.commit(&mut commit).unwrap();
        let contents = || {
            let file = Bytes::from(std::fs::read(&path).unwrap());
            let Contents::Whole { birth, records, length } = read(4, &file) else { panic!("unreadable") };
            assert_eq!(length as usize, file.len());
            (birth, records.len())
        };
        let (birth, _) = contents();
        assert_eq!(birth.length_before, 7);
        Segment::reopen(&path, birth, length).unwrap().commit(&mut commit).unwrap();
        assert_eq!(contents(), (birth, 2));
        Segment::restart(&path, 4, 7).unwrap().commit(&mut commit).unwrap();
        let (again, count) = contents();
        assert_eq!((again.length_before, count), (7, 1));
        assert_ne!(again.salt, birth.salt, "drawn anew");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
