//! A byte stream cut into messages: a `u32` length, then that many bytes.
//!
//! | offset | size | field                                  |
//! |      0 |    4 | length of the body, little-endian      |
//! |      4 |    n | body: one [`Wire`] value  |

use crate::{Malformed, Wire, Writer};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The length field of a frame.
pub const HEADER_BYTES: usize = 4;

/// Takes the next whole frame off the front of what a socket delivered, sharing its memory.
/// `None`: not all of it is here yet. A length above `limit` is an error before a byte of it is stored.
pub fn take(buffer: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, Malformed> {
    let Some(length) = next(buffer, limit)? else { return Ok(None) };
    buffer.advance(HEADER_BYTES);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// How long the body of the next frame is, if all of it is here; see [`take`].
pub fn next(buffer: &mut BytesMut, limit: usize) -> Result<Option<usize>, Malformed> {
    let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*header) as usize;
    if length > limit {
        return Err(Malformed::Length(length as u64));
    }
    if buffer.len() < HEADER_BYTES + length {
        // Room for the whole frame at once: a large one is then read in few calls.
        buffer.reserve(HEADER_BYTES + length - buffer.len());
        return Ok(None);
    }
    Ok(Some(length))
}

/// Bytes that are still to come of a frame whose first are here.
pub fn missing(buffer: &[u8]) -> usize {
    let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else { return 0 };
    (HEADER_BYTES + u32::from_le_bytes(*header) as usize).saturating_sub(buffer.len())
}

/// Appends one value as a frame.
pub fn put<T: Wire>(value: &T, out: &mut Writer) {
    let start = out.mark();
    out.put_u32_le(0);
    value.encode(out);
    let length = (out.since(start) - HEADER_BYTES) as u32;
    out.patch(start, &length.to_le_bytes());
}

/// As [`put`], into a plain buffer: for what is small, or is written beside other bytes.
pub fn append<T: Wire>(value: &T, out: &mut BytesMut) {
    let start = out.len();
    out.put_u32_le(0);
    value.append(out);
    let length = (out.len() - start - HEADER_BYTES) as u32;
    out[start..start + HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_whole_and_in_order() {
        let mut stream = Writer::default();
        put(&"first".to_owned(), &mut stream);
        put(&"second".to_owned(), &mut stream);
        let mut arrived = BytesMut::new();
        let mut seen = Vec::new();
        for &byte in stream.into_bytes().iter() {
            arrived.put_u8(byte);
            while let Some(body) = take(&mut arrived, 64).unwrap() {
                seen.push(String::from_bytes(body).unwrap());
            }
        }
        assert_eq!(seen, ["first", "second"]);
    }

    #[test]
    fn a_length_above_the_limit_is_refused_at_once() {
        let mut arrived = BytesMut::from(&[0, 0, 0, 1][..]);
        assert_eq!(take(&mut arrived, 1 << 20), Err(Malformed::Length(1 << 24)));
    }
}
