//! Protocol buffers, as far as etcd's messages go: numbers (varints) and bytes.

use crate::failure::{Failure, Result};
use crate::load::bytes::Reader;

/// Appends a field of bytes, or of a message.
pub fn write_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    write_varint(out, u64::from(field) << 3 | BYTES);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field of a number or a switch.
pub fn write_number(out: &mut Vec<u8>, field: u32, number: u64) {
    write_varint(out, u64::from(field) << 3 | VARINT);
    write_varint(out, number);
}

fn write_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A message that was received.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a>(pub &'a [u8]);

impl<'a> Message<'a> {
    /// The first field of that number that has bytes.
    pub fn bytes(self, field: u32) -> Result<Option<&'a [u8]>> {
        self.find(|found, value| match value {
            Value::Bytes(bytes) if found == field => Some(bytes),
            Value::Bytes(_) | Value::Number(_) => None,
        })
    }

    /// The first field of that number that has a number.
    pub fn number(self, field: u32) -> Result<Option<u64>> {
        self.find(|found, value| match value {
            Value::Number(number) if found == field => Some(number),
            Value::Bytes(_) | Value::Number(_) => None,
        })
    }

    fn find<T>(self, wanted: impl Fn(u32, Value<'a>) -> Option<T>) -> Result<Option<T>> {
        let mut reader = Reader(self.0);
        let mut first = None;
        while !reader.0.is_empty() {
            let key = varint(&mut reader)?;
            let value = match key & 7 {
                VARINT => Value::Number(varint(&mut reader)?),
                BYTES => {
                    let length = varint(&mut reader)?;
                    Value::Bytes(reader.take(usize::try_from(length).unwrap_or(usize::MAX))?)
                }
                1 => Value::Bytes(reader.take(8)?),
                5 => Value::Bytes(reader.take(4)?),
                kind => return Err(Failure::new(format!("etcd sends a field of kind {kind}"))),
            };
            first = first.or_else(|| wanted((key >> 3) as u32, value));
        }
        Ok(first)
    }
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(reader: &mut Reader) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = reader.u8()?;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Failure::new("etcd sends a number without end"))
}

const VARINT: u64 = 0;
const BYTES: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_format_says() {
        let mut out = Vec::new();
        write_number(&mut out, 1, 150);
        write_bytes(&mut out, 2, b"testing");
        assert_eq!(out, [&[0x08, 0x96, 0x01, 0x12, 0x07][..], b"testing"].concat());
    }

    #[test]
    fn fields_are_found_behind_others() {
        let mut out = Vec::new();
        write_number(&mut out, 3, u64::MAX);
        write_bytes(&mut out, 1, b"first");
        write_bytes(&mut out, 1, b"second");
        out.extend([0x29, 1, 2, 3, 4, 5, 6, 7, 8]); // Field 5, eight bytes.
        write_number(&mut out, 6, 1);
        let message = Message(&out);
        assert_eq!(message.bytes(1).unwrap(), Some(&b"first"[..]));
        assert_eq!(message.number(3).unwrap(), Some(u64::MAX));
        assert_eq!(message.number(6).unwrap(), Some(1));
        assert_eq!((message.number(1).unwrap(), message.bytes(9).unwrap()), (None, None));
    }

    #[test]
    fn what_ends_too_early_or_not_at_all_is_refused() {
        let mut out = Vec::new();
        write_bytes(&mut out, 1, b"value");
        for length in 1..out.len() {
            assert!(Message(&out[..length]).bytes(1).is_err(), "{length}");
        }
        assert!(Message(&[0xFF; 20]).number(1).is_err());
        assert!(Message(&[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]).bytes(1).is_err(), "longer than the message");
        assert!(Message(&[0x0B]).number(1).is_err(), "groups are gone from the format");
    }
}
