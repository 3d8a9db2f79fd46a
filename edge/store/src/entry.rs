//! [`Entry`]: one key of the index, packed.

use kumo_cluster::{Clock, Head, KeyHash, Kind, SpaceNumber, Stamp};

/// One key with its head and where its data is. Small numbers are small: 26 bytes beyond the key in file mode as
/// long as there is no expiry and the data's size, the space's count and the segment are below 128.
///
/// | size | field                                                                    |
/// |------|--------------------------------------------------------------------------|
/// |    1 | tag: kind in bits 0-1, has an expiry in bit 2, form of the body in 4-5,  |
/// |      | no longer in use in 7                                                    |
/// |    8 | hash, as all of fixed size big-endian                                    |
/// |  1-2 | bytes of the key, as all of unnamed size a number of 7-bit groups        |
/// |  1-5 | bytes of the data                                                        |
/// |  1-3 | generation of the space                                                  |
/// |  1-7 | count of the space                                                       |
/// |    8 | clock                                                                    |
/// |  0,4 | expiry                                                                   |
/// |    k | key                                                                      |
/// |      | body: segment 1-5, offset 4; or flags 1-5, data; or flags 1-5, slot 4    |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub hash: KeyHash,
    pub key: &'a [u8],
    pub head: Head,
    pub body: Body<'a>,
}

/// Where the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// In a file.
    At(Place),
    /// Here (memory mode, small data).
    Inline { flags: u32, data: &'a [u8] },
    /// In the shard's heap (memory mode, larger data).
    Held { flags: u32, slot: u32 },
}

/// A record's place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub segment: u32,
    pub offset: u32,
}

impl<'a> Entry<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Head { stamp, kind, expiry, data_bytes } = self.head;
        let form = match self.body {
            Body::At(_) => FORM_AT,
            Body::Inline { .. } => FORM_INLINE,
            Body::Held { .. } => FORM_HELD,
        };
        let expires = if expiry == 0 { 0 } else { EXPIRES };
        out.push(kind as u8 | expires | form);
        out.extend_from_slice(&self.hash.0.to_be_bytes());
        push_number(self.key.len() as u64, out);
        push_number(u64::from(data_bytes), out);
        push_number(stamp.space.0 >> COUNT_BITS, out);
        push_number(stamp.space.0 & COUNT_MASK, out);
        out.extend_from_slice(&stamp.clock.0.to_be_bytes());
        if expiry != 0 {
            out.extend_from_slice(&expiry.to_be_bytes());
        }
        out.extend_from_slice(self.key);
        match self.body {
            Body::At(place) => {
                push_number(u64::from(place.segment), out);
                out.extend_from_slice(&place.offset.to_be_bytes());
            }
            Body::Inline { flags, data } => {
                push_number(u64::from(flags), out);
                out.extend_from_slice(data);
            }
            Body::Held { flags, slot } => {
                push_number(u64::from(flags), out);
                out.extend_from_slice(&slot.to_be_bytes());
            }
        }
    }

    /// The entry that begins here, and its length. The bytes are our own memory, so they are in order.
    pub fn decode(bytes: &'a [u8]) -> (Entry<'a>, usize) {
        let mut from = Reader { bytes, at: 0 };
        let tag = from.u8();
        let hash = KeyHash(from.u64());
        let key_bytes = from.number() as usize;
        let data_bytes = from.number() as u32;
        let generation = from.number();
        let space = SpaceNumber(generation << COUNT_BITS | from.number());
        let stamp = Stamp { space, clock: Clock(from.u64()) };
        let expiry = if tag & EXPIRES == 0 { 0 } else { from.u32() };
        let kind = if tag & KIND_MASK == Kind::Value as u8 { Kind::Value } else { Kind::Tombstone };
        let key = from.slice(key_bytes);
        let body = match tag & FORM_MASK {
            FORM_AT => Body::At(Place { segment: from.number() as u32, offset: from.u32() }),
            FORM_INLINE => {
                Body::Inline { flags: from.number() as u32, data: from.slice(data_bytes as usize) }
            }
            _held => Body::Held { flags: from.number() as u32, slot: from.u32() },
        };
        (Entry { hash, key, head: Head { stamp, kind, expiry, data_bytes }, body }, from.at)
    }

    /// The hash of the entry that begins here, without the rest.
    pub fn hash_at(bytes: &[u8]) -> KeyHash {
        KeyHash(u64::from_be_bytes(*bytes[1..].first_chunk().expect("an entry begins with tag and hash")))
    }

    /// Marks the entry that begins here as no longer in use.
    pub fn discard(bytes: &mut [u8]) {
        bytes[0] |= DISCARDED;
    }

    pub fn is_discarded(bytes: &[u8]) -> bool {
        bytes[0] & DISCARDED != 0
    }

    /// What counts as live: key and data.
    pub fn live_bytes(&self) -> u64 {
        self.key.len() as u64 + u64::from(self.head.data_bytes)
    }
}

fn push_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads what `encode` wrote.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn slice(&mut self, count: usize) -> &'a [u8] {
        let slice = &self.bytes[self.at..self.at + count];
        self.at += count;
        slice
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        *self.slice(N).first_chunk().expect("a slice of N bytes has N bytes")
    }

    fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    fn number(&mut self) -> u64 {
        let byte = self.u8();
        // Nearly all are small.
        if byte & 0x80 == 0 { u64::from(byte) } else { self.long_number(byte) }
    }

    fn long_number(&mut self, first: u8) -> u64 {
        let mut number = u64::from(first & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.u8();
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return number;
            }
            shift += 7;
        }
    }
}

/// A space number is its generation above, its count below; each is small by itself.
const COUNT_BITS: u32 = 48;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

const KIND_MASK: u8 = 0b0000_0011;
const EXPIRES: u8 = 0b0000_0100;
const FORM_MASK: u8 = 0b0011_0000;
const FORM_AT: u8 = 0b0000_0000;
const FORM_INLINE: u8 = 0b0001_0000;
const FORM_HELD: u8 = 0b0010_0000;
const DISCARDED: u8 = 0b1000_0000;

/// The longest an entry can be without key and data.
pub const ENTRY_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let spaces = [0, 1, 127, 128, 1 << 48, (1 << 48) | 5, u64::MAX];
        let bodies = [
            Body::At(Place { segment: u32::MAX, offset: 1 }),
            Body::Inline { flags: u32::MAX, data: b"data" },
            Body::Inline { flags: 0, data: b"data" },
            Body::Held { flags: 128, slot: 77 },
        ];
        for (space, body) in spaces.into_iter().flat_map(|space| bodies.map(|body| (space, body))) {
            for (kind, expiry) in [(Kind::Value, 0), (Kind::Tombstone, 5)] {
                let stamp = Stamp { space: SpaceNumber(space), clock: Clock(u64::MAX - 1) };
                let head = Head { stamp, kind, expiry, data_bytes: 4 };
                let entry = Entry { hash: KeyHash(42), key: b"some key", head, body };
                let mut bytes = vec![];
                entry.encode(&mut bytes);
                let length = bytes.len();
                bytes.extend_from_slice(b"what follows");
                assert_eq!(Entry::decode(&bytes), (entry, length));
                assert_eq!(Entry::hash_at(&bytes), KeyHash(42));
                assert!(length <= ENTRY_BYTES_MAX + entry.key.len() + 4);
                Entry::discard(&mut bytes);
                assert!(Entry::is_discarded(&bytes));
                assert_eq!(Entry::decode(&bytes), (entry, length));
            }
        }
    }

    #[test]
    fn an_entry_of_a_file_takes_26_bytes_beyond_its_key() {
        let stamp = Stamp { space: SpaceNumber(1 << 48 | 100), clock: Clock(u64::MAX) };
        let head = Head { stamp, kind: Kind::Value, expiry: 0, data_bytes: 100 };
        let body = Body::At(Place { segment: 1, offset: 1 });
        let mut bytes = vec![];
        Entry { hash: KeyHash(1), key: b"", head, body }.encode(&mut bytes);
        assert_eq!(bytes.len(), 26);
    }
}
