//! [`LogRecord`]: what a segment is a sequence of, byte by byte.

use kumo_cluster::{Clock, Head, KeyHash, Kind, Record, SpaceNumber, Stamp};

/// Beyond what any gateway lets through (250 bytes and a prefix), small beside a leaf of the index.
pub const KEY_BYTES_MAX: usize = 4096;

/// As much as memcached allows to configure. With [`crate::Options::SEGMENT_BYTES_MAX`] it keeps offsets within 32 bits.
pub const DATA_BYTES_MAX: usize = 1 << 30;

/// What a record takes on disk beyond its key and its data.
pub const RECORD_BYTES: usize = FRONT_BYTES + BACK_BYTES;

/// One record of the log. Big-endian; key and value are laid out as in the original (KUMOFS.md, 4).
///
/// | offset | size | field                                                             |
/// |--------|------|-------------------------------------------------------------------|
/// |      0 |    4 | CRC-32 of all that follows, begun with the record's [`seed`]      |
/// |      4 |    2 | k, the bytes of the key                                           |
/// |      6 |    4 | d, the bytes of the data                                          |
/// |     10 |    8 | hash of the key (`Synced`: the number of a segment)               |
/// |     18 |    k | key                                                               |
/// |   18+k |    8 | clock (`Synced`: the bytes of that segment which are on the disk) |
/// |   26+k |    4 | flags                                                             |
/// |   30+k |    4 | expiry                                                            |
/// |   34+k |    8 | space number                                                      |
/// |   42+k |    1 | kind, see [`LogKind`]                                             |
/// |   43+k |    d | data                                                              |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord<'a> {
    pub kind: LogKind,
    pub hash: KeyHash,
    pub key: &'a [u8],
    pub stamp: Stamp,
    pub flags: u32,
    pub expiry: u32,
    pub data: &'a [u8],
}

/// What a record of the log says. The first two are [`Kind`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogKind {
    Value = 1,
    Tombstone = 2,
    /// The key was forgotten: older records of it count no more.
    Removed = 3,
    /// A segment was on the disk up to here. What is damaged before this place was not torn by a crash.
    Synced = 4,
    /// The segment ends here, and is never written again.
    Sealed = 5,
}

/// Where a record's checksum begins. It binds a record to its place, and the salt (drawn for each segment) is not
/// known to clients: no value can hold bytes that pass for a record.
pub fn seed(salt: u32, offset: u64) -> u32 {
    salt.wrapping_add(offset as u32)
}

impl<'a> LogRecord<'a> {
    pub fn version(hash: KeyHash, key: &'a [u8], record: &'a Record) -> LogRecord<'a> {
        let kind = match record.kind {
            Kind::Value => LogKind::Value,
            Kind::Tombstone => LogKind::Tombstone,
        };
        let Record { stamp, kind: _, flags, expiry, data } = record;
        LogRecord { kind, hash, key, stamp: *stamp, flags: *flags, expiry: *expiry, data }
    }

    pub fn removed(hash: KeyHash, key: &'a [u8]) -> LogRecord<'a> {
        LogRecord { kind: LogKind::Removed, hash, key, ..LogRecord::bare() }
    }

    pub fn synced(segment: u32, bytes: u64) -> LogRecord<'static> {
        let stamp = Stamp { clock: Clock(bytes), ..Stamp::default() };
        LogRecord { kind: LogKind::Synced, hash: KeyHash(u64::from(segment)), stamp, ..LogRecord::bare() }
    }

    pub fn sealed() -> LogRecord<'static> {
        LogRecord { kind: LogKind::Sealed, ..LogRecord::bare() }
    }

    fn bare() -> LogRecord<'static> {
        let (hash, stamp) = (KeyHash(0), Stamp::default());
        LogRecord { kind: LogKind::Sealed, hash, key: &[], stamp, flags: 0, expiry: 0, data: &[] }
    }

    pub fn bytes(&self) -> usize {
        RECORD_BYTES + self.key.len() + self.data.len()
    }

    /// The head and kind, if this is a version of its key.
    pub fn head(&self) -> Option<Head> {
        let kind = match self.kind {
            LogKind::Value => Kind::Value,
            LogKind::Tombstone => Kind::Tombstone,
            LogKind::Removed | LogKind::Synced | LogKind::Sealed => return None,
        };
        let data_bytes = self.data.len() as u32;
        Some(Head { stamp: self.stamp, kind, expiry: self.expiry, data_bytes })
    }

    /// Appends the bytes of the record. Key and data are within their limits: checked when they came in.
    pub fn encode(&self, seed: u32, out: &mut Vec<u8>) {
        debug_assert!(self.key.len() <= KEY_BYTES_MAX && self.data.len() <= DATA_BYTES_MAX);
        let start = out.len();
        out.reserve(self.bytes());
        let mut front = [0; FRONT_BYTES];
        front[4..6].copy_from_slice(&(self.key.len() as u16).to_be_bytes());
        front[6..10].copy_from_slice(&(self.data.len() as u32).to_be_bytes());
        front[10..18].copy_from_slice(&self.hash.0.to_be_bytes());
        out.extend_from_slice(&front);
        out.extend_from_slice(self.key);
        let mut back = [0; BACK_BYTES];
        back[..8].copy_from_slice(&self.stamp.clock.0.to_be_bytes());
        back[8..12].copy_from_slice(&self.flags.to_be_bytes());
        back[12..16].copy_from_slice(&self.expiry.to_be_bytes());
        back[16..24].copy_from_slice(&self.stamp.space.0.to_be_bytes());
        back[24] = self.kind as u8;
        out.extend_from_slice(&back);
        out.extend_from_slice(self.data);
        let crc = checksum(seed, &out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_be_bytes());
    }

    /// The record that these bytes begin with, if they are whole and its checksum is right.
    pub fn decode(seed: u32, bytes: &'a [u8]) -> Option<LogRecord<'a>> {
        let bytes = bytes.get(..length(bytes)?)?;
        let (crc, summed) = bytes.split_first_chunk::<4>()?;
        if checksum(seed, summed) != u32::from_be_bytes(*crc) {
            return None;
        }
        let key_bytes = usize::from(u16::from_be_bytes(*bytes[4..].first_chunk()?));
        let (key, rest) = bytes[FRONT_BYTES..].split_at_checked(key_bytes)?;
        let (back, data) = rest.split_first_chunk::<BACK_BYTES>()?;
        let clock = Clock(u64::from_be_bytes(*back.first_chunk()?));
        let space = SpaceNumber(u64::from_be_bytes(*back[16..].first_chunk()?));
        Some(LogRecord {
            kind: LogKind::from_byte(back[24])?,
            hash: KeyHash(u64::from_be_bytes(*bytes[10..].first_chunk()?)),
            key,
            stamp: Stamp { space, clock },
            flags: u32::from_be_bytes(*back[8..].first_chunk()?),
            expiry: u32::from_be_bytes(*back[12..].first_chunk()?),
            data,
        })
    }
}

/// How long the record is that begins with these bytes; none if they are too few to say, or no record begins so.
pub fn length(bytes: &[u8]) -> Option<usize> {
    let key_bytes = usize::from(u16::from_be_bytes(*bytes.get(4..)?.first_chunk()?));
    let data_bytes = u32::from_be_bytes(*bytes.get(6..)?.first_chunk()?) as usize;
    (key_bytes <= KEY_BYTES_MAX && data_bytes <= DATA_BYTES_MAX)
        .then_some(RECORD_BYTES + key_bytes + data_bytes)
}

/// Whether a record could begin so, without its checksum: a cheap look before a dear one.
pub fn plausible(bytes: &[u8]) -> bool {
    let Some(length) = length(bytes).filter(|length| *length <= bytes.len()) else { return false };
    let key_bytes = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
    length >= RECORD_BYTES && LogKind::from_byte(bytes[FRONT_BYTES + key_bytes + BACK_BYTES - 1]).is_some()
}

impl LogKind {
    pub fn from_byte(byte: u8) -> Option<LogKind> {
        let kinds = [LogKind::Value, LogKind::Tombstone, LogKind::Removed, LogKind::Synced, LogKind::Sealed];
        kinds.into_iter().find(|kind| *kind as u8 == byte)
    }
}

pub fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

/// Before the key.
const FRONT_BYTES: usize = 18;

/// Between key and data.
const BACK_BYTES: usize = 25;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn sample() -> Record {
        Record {
            stamp: Stamp { space: SpaceNumber(7 << 48 | 9), clock: Clock(0x0102_0304_0506_0708) },
            kind: Kind::Value,
            flags: 0xf1f2_f3f4,
            expiry: 0xe1e2_e3e4,
            data: Bytes::from_static(b"data"),
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let record = sample();
        let mut bytes = Vec::new();
        LogRecord::version(KeyHash(0x1112_1314_1516_1718), b"key", &record).encode(0, &mut bytes);
        let expected = [
            &[0, 3, 0, 0, 0, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18][..],
            b"key",
            &[1, 2, 3, 4, 5, 6, 7, 8, 0xf1, 0xf2, 0xf3, 0xf4, 0xe1, 0xe2, 0xe3, 0xe4],
            &[0, 7, 0, 0, 0, 0, 0, 9, 1],
            b"data",
        ]
        .concat();
        assert_eq!(bytes[4..], expected);
        assert_eq!(bytes.len(), RECORD_BYTES + 7);
    }

    #[test]
    fn a_record_is_bound_to_its_place_and_every_bit_counts() {
        let record = sample();
        let written = LogRecord::version(KeyHash(1), b"key", &record);
        let mut bytes = Vec::new();
        written.encode(seed(5, 100), &mut bytes);
        assert!(plausible(&bytes));
        assert_eq!(LogRecord::decode(seed(5, 100), &bytes), Some(written));
        assert_eq!(LogRecord::decode(seed(5, 101), &bytes), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(LogRecord::decode(seed(5, 100), &flipped), None, "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(LogRecord::decode(seed(5, 100), &bytes[..cut]), None);
        }
        assert!(!plausible(&[0; 100]), "zeros are no record");
    }
}
