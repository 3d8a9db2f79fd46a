//! [`Wire`]: a value's bytes, and back. [`Reader`] hands out parts of a shared buffer without copying.

use crate::Writer;
use bytes::{Bytes, BytesMut};
use std::cmp::Ordering;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Why bytes are not the value they were said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("message ends early")]
    Short,
    #[error("message has {0} bytes too many")]
    Long(usize),
    #[error("length {0} exceeds the limit")]
    Length(u64),
    #[error("unknown kind {0}")]
    Kind(u8),
    #[error("text is not UTF-8")]
    Text,
    #[error("value breaks a rule: {0}")]
    Rule(&'static str),
}

/// A value with a fixed, documented byte form.
pub trait Wire: Sized {
    fn encode(&self, out: &mut Writer);
    fn decode(input: &mut Reader) -> Result<Self, Malformed>;

    /// The value alone, as a message of its own.
    fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(USUAL_BYTES);
        self.append(&mut out);
        out.freeze()
    }

    /// Writes the value behind what is in a buffer.
    fn append(&self, out: &mut BytesMut) {
        let mut writer = Writer::flat(std::mem::take(out));
        self.encode(&mut writer);
        *out = writer.into_buffer();
    }

    /// Reads a message that must hold this value and nothing else.
    fn from_bytes(bytes: Bytes) -> Result<Self, Malformed> {
        let mut input = Reader::new(bytes);
        // Handed on where it is: a message is large, and each move of it is a copy.
        let decoded = Self::decode(&mut input);
        if decoded.is_ok() && input.left() > 0 {
            return Err(Malformed::Long(input.left()));
        }
        decoded
    }
}

/// Reads from the front of a shared buffer. Byte strings it hands out share that buffer.
pub struct Reader {
    bytes: Bytes,
    /// So many of them were read: what is shared stays as it is while numbers are taken from it.
    at: usize,
}

impl Reader {
    pub fn new(bytes: Bytes) -> Reader {
        Reader { bytes, at: 0 }
    }

    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `count` bytes, shared.
    pub fn take(&mut self, count: usize) -> Result<Bytes, Malformed> {
        match count.cmp(&self.left()) {
            Ordering::Greater => Err(Malformed::Short),
            // The last one needs no share of its own.
            Ordering::Equal => Ok(self.rest()),
            Ordering::Less => {
                let from = self.at;
                self.at += count;
                Ok(self.bytes.slice(from..self.at))
            }
        }
    }

    /// All that is left, shared.
    pub fn rest(&mut self) -> Bytes {
        let mut whole = std::mem::take(&mut self.bytes);
        bytes::Buf::advance(&mut whole, std::mem::take(&mut self.at));
        whole
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let Some(&array) = self.bytes[self.at..].first_chunk::<N>() else { return Err(Malformed::Short) };
        self.at += N;
        Ok(array)
    }
}

/// Writes a count and the items.
pub fn write_list<T: Wire>(items: &[T], out: &mut Writer) {
    out.put_u32_le(items.len() as u32);
    for item in items {
        item.encode(out);
    }
}

/// Reads a count and the items. Every item takes at least one byte, so a count beyond the bytes at hand
/// is refused before anything is allocated.
pub fn read_list<T: Wire>(input: &mut Reader) -> Result<Vec<T>, Malformed> {
    let count = u32::decode(input)? as usize;
    if count > input.left() {
        return Err(Malformed::Length(count as u64));
    }
    // The items may be larger in memory than on the wire: grow as they prove to be there.
    let mut items = Vec::with_capacity(count.min(LIST_RESERVE_MAX));
    for _ in 0..count {
        items.push(T::decode(input)?);
    }
    Ok(items)
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Wire for $number {
            fn encode(&self, out: &mut Writer) {
                out.put_slice(&self.to_le_bytes());
            }
            fn decode(input: &mut Reader) -> Result<Self, Malformed> {
                Ok(<$number>::from_le_bytes(input.array()?))
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64 u128 i64);

impl<const N: usize> Wire for [u8; N] {
    fn encode(&self, out: &mut Writer) {
        out.put_slice(self);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        input.array()
    }
}

impl Wire for bool {
    fn encode(&self, out: &mut Writer) {
        out.put_u8(u8::from(*self));
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        match u8::decode(input)? {
            0 => Ok(false),
            1 => Ok(true),
            kind => Err(Malformed::Kind(kind)),
        }
    }
}

impl Wire for Bytes {
    fn encode(&self, out: &mut Writer) {
        out.put_u32_le(self.len() as u32);
        out.put_bytes(self);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        let length = u32::decode(input)?;
        input.take(length as usize)
    }
}

impl Wire for String {
    fn encode(&self, out: &mut Writer) {
        out.put_u32_le(self.len() as u32);
        out.put_slice(self.as_bytes());
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        let bytes = Bytes::decode(input)?;
        std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| Malformed::Text)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, out: &mut Writer) {
        match self {
            None => out.put_u8(0),
            Some(value) => {
                out.put_u8(1);
                value.encode(out);
            }
        }
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        match bool::decode(input)? {
            false => Ok(None),
            true => Ok(Some(T::decode(input)?)),
        }
    }
}

/// As the value itself.
impl<T: Wire> Wire for Box<T> {
    fn encode(&self, out: &mut Writer) {
        (**self).encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        T::decode(input).map(Box::new)
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, out: &mut Writer) {
        write_list(self, out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        read_list(input)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn encode(&self, out: &mut Writer) {
        self.0.encode(out);
        self.1.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        Ok((A::decode(input)?, B::decode(input)?))
    }
}

/// | offset | size    | field              |
/// |      0 |       1 | 4 or 6             |
/// |      1 | 4 or 16 | IP, network order  |
/// |        |       2 | port               |
impl Wire for SocketAddr {
    fn encode(&self, out: &mut Writer) {
        match self.ip() {
            IpAddr::V4(ip) => {
                out.put_u8(4);
                out.put_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                out.put_u8(6);
                out.put_slice(&ip.octets());
            }
        }
        out.put_u16_le(self.port());
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        let ip: IpAddr = match u8::decode(input)? {
            4 => Ipv4Addr::from(input.array::<4>()?).into(),
            6 => Ipv6Addr::from(input.array::<16>()?).into(),
            kind => return Err(Malformed::Kind(kind)),
        };
        Ok(SocketAddr::new(ip, u16::decode(input)?))
    }
}

/// Room for a small message in one piece.
const USUAL_BYTES: usize = 64;

/// Items for which a list reserves room before it has seen them.
const LIST_RESERVE_MAX: usize = 1024;

/// Implements [`Wire`] for a struct: its fields in the order named.
#[macro_export]
macro_rules! wire_struct {
    ($name:ty { $($field:ident),* $(,)? }) => {
        impl $crate::Wire for $name {
            fn encode(&self, _out: &mut $crate::Writer) {
                $($crate::Wire::encode(&self.$field, _out);)*
            }
            fn decode(_input: &mut $crate::Reader) -> Result<Self, $crate::Malformed> {
                Ok(Self { $($field: $crate::Wire::decode(_input)?),* })
            }
        }
    };
}

/// Implements [`Wire`] for an enum: one byte says which variant, then its fields in the order named.
#[macro_export]
macro_rules! wire_enum {
    ($name:ty { $($kind:literal = $variant:ident $({ $($field:ident),* $(,)? })? $(($inner:ident))?),* $(,)? }) => {
        impl $crate::Wire for $name {
            fn encode(&self, out: &mut $crate::Writer) {
                match self {
                    $(Self::$variant $({ $($field),* })? $(($inner))? => {
                        out.put_u8($kind);
                        $($($crate::Wire::encode($field, out);)*)?
                        $($crate::Wire::encode($inner, out);)?
                    })*
                }
            }
            fn decode(input: &mut $crate::Reader) -> Result<Self, $crate::Malformed> {
                match <u8 as $crate::Wire>::decode(input)? {
                    $($kind => {
                        $($(let $field = $crate::Wire::decode(input)?;)*)?
                        $(let $inner = $crate::Wire::decode(input)?;)?
                        Ok(Self::$variant $({ $($field),* })? $(($inner))?)
                    })*
                    kind => Err($crate::Malformed::Kind(kind)),
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_the_bytes_is_refused() {
        let bytes = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 1, 2]);
        assert_eq!(Vec::<u64>::from_bytes(bytes), Err(Malformed::Length(u32::MAX as u64)));
    }

    #[test]
    fn what_was_written_is_read() {
        let address: SocketAddr = "[::1]:19700".parse().unwrap();
        let value = (Some(address), (vec![1u64, 2], "雲".to_owned()));
        assert_eq!(Wire::from_bytes(value.to_bytes()), Ok(value));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let whole = (vec![(7u64, "abc".to_owned())], Some(true)).to_bytes();
        for length in 0..whole.len() {
            let cut = whole.slice(..length);
            assert!(<(Vec<(u64, String)>, Option<bool>)>::from_bytes(cut).is_err(), "length {length}");
        }
    }
}
