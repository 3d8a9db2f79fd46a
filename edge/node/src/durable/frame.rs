//! The file form shared by log segments and snapshots: a header, then checked frames.
//!
//! | offset | size | header                                      |
//! |      0 |    8 | magic: which kind of file                   |
//! |      8 |    4 | format version                              |
//! |     12 |    8 | number, as in the file's name               |
//! |     20 |    4 | CRC-32 of the bytes before                  |
//!
//! | offset | size | frame                                       |
//! |      0 |    4 | length of the body                          |
//! |      4 |    4 | CRC-32 of the length and the body           |
//! |      8 |    n | body                                        |

use bytes::{BufMut, Bytes, BytesMut};
use crc32fast::Hasher;
use kumo_wire::Wire;

/// What a file is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Segment,
    Snapshot,
}

/// What the first bytes of a file say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    Good,
    /// The file ends inside its header: it was being made when the machine stopped.
    Short,
    /// Nothing but zeros: its length reached the disk, and its first sector did not.
    Blank,
    /// Whole, and of another format than ours: this one.
    OtherFormat(u32),
    /// Not a file of ours.
    Foreign,
    Damaged,
}

impl Kind {
    fn magic(self) -> [u8; 8] {
        match self {
            Kind::Segment => *b"kumo-log",
            Kind::Snapshot => *b"kumosnap",
        }
    }

    pub fn put_header(self, number: u64, out: &mut BytesMut) {
        let start = out.len();
        out.put_slice(&self.magic());
        out.put_u32_le(FORMAT);
        out.put_u64_le(number);
        let check = crc32fast::hash(&out[start..]);
        out.put_u32_le(check);
    }

    /// An older format is no damage: what it says was promised, and another kumo can read it.
    pub fn read_header(self, number: u64, file: &[u8]) -> Header {
        let front = &file[..file.len().min(HEADER_BYTES)];
        if !front.is_empty() && front.iter().all(|byte| *byte == 0) {
            return Header::Blank;
        }
        let magic = self.magic();
        let known = file.len().min(magic.len());
        if file[..known] != magic[..known] {
            return Header::Foreign;
        }
        let Some(header) = file.first_chunk::<HEADER_BYTES>() else { return Header::Short };
        let mut wanted = BytesMut::with_capacity(HEADER_BYTES);
        self.put_header(number, &mut wanted);
        if header[..] == wanted[..] {
            return Header::Good;
        }
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let check = u32::from_le_bytes([header[20], header[21], header[22], header[23]]);
        if version != FORMAT && check == crc32fast::hash(&header[..20]) {
            return Header::OtherFormat(version);
        }
        Header::Damaged
    }
}

/// Appends a value as one frame.
pub fn put<T: Wire>(value: &T, out: &mut BytesMut) {
    let start = out.len();
    out.put_u64_le(0);
    value.append(out);
    seal(&mut out[start..]);
}

/// Fills in the length and the checksum of a frame whose body is in place.
pub fn seal(frame: &mut [u8]) {
    let length = (frame.len() - FRAME_HEADER_BYTES) as u32;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    let check = checksum(length, &frame[FRAME_HEADER_BYTES..]);
    frame[4..8].copy_from_slice(&check.to_le_bytes());
}

/// The body of the frame at `offset` and the offset after it. `None`: no whole, undamaged frame is there.
pub fn read(file: &Bytes, offset: usize) -> Option<(Bytes, usize)> {
    let rest = file.get(offset..)?;
    let header = rest.first_chunk::<FRAME_HEADER_BYTES>()?;
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let check = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let end = FRAME_HEADER_BYTES + length as usize;
    let body = rest.get(FRAME_HEADER_BYTES..end)?;
    if checksum(length, body) != check {
        return None;
    }
    Some((file.slice(offset + FRAME_HEADER_BYTES..offset + end), offset + end))
}

/// The length is checked too: otherwise a stretch of zeros would be a row of empty frames.
fn checksum(length: u32, body: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// Of the files here, and of what they hold: commands of clients and managers too, which a replica executes again at its
/// start. Another one is refused, never overwritten.
pub const FORMAT: u32 = 3;
pub const HEADER_BYTES: usize = 24;
pub const FRAME_HEADER_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_truncation_and_bit_flip_of_a_frame_is_found() {
        let mut out = BytesMut::new();
        put(&"a small body".to_owned(), &mut out);
        let whole = out.freeze();
        assert_eq!(read(&whole, 0).map(|(_, end)| end), Some(whole.len()));
        for length in 0..whole.len() {
            assert_eq!(read(&whole.slice(..length), 0), None, "length {length}");
        }
        for bit in 0..whole.len() * 8 {
            let mut damaged = BytesMut::from(&whole[..]);
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&damaged.freeze(), 0), None, "bit {bit}");
        }
        assert_eq!(read(&Bytes::from(vec![0; 64]), 0), None, "zeros are no frame");
        assert_eq!(read(&whole, whole.len() + 1), None);
    }

    #[test]
    fn a_header_says_what_is_wrong_with_it() {
        let mut out = BytesMut::new();
        Kind::Segment.put_header(7, &mut out);
        assert_eq!(out.len(), HEADER_BYTES);
        assert_eq!(Kind::Segment.read_header(7, &out), Header::Good);
        assert_eq!(Kind::Segment.read_header(8, &out), Header::Damaged);
        assert_eq!(Kind::Snapshot.read_header(7, &out), Header::Foreign);
        assert_eq!(Kind::Segment.read_header(7, &out[..5]), Header::Short);
        assert_eq!(Kind::Segment.read_header(7, b"#!/bin/sh"), Header::Foreign);
        assert_eq!(Kind::Segment.read_header(7, b""), Header::Short);
        assert_eq!(Kind::Segment.read_header(7, &[0; HEADER_BYTES]), Header::Blank);
        for other in [FORMAT - 1, FORMAT + 1] {
            out[8..12].copy_from_slice(&other.to_le_bytes());
            assert_eq!(Kind::Segment.read_header(7, &out), Header::Damaged);
            let check = crc32fast::hash(&out[..20]);
            out[20..].copy_from_slice(&check.to_le_bytes());
            assert_eq!(Kind::Segment.read_header(7, &out), Header::OtherFormat(other));
        }
    }
}
