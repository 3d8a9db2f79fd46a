//! Copied records on the wire: compressed, if that makes them shorter.
//!
//! A replace moves more than all else, and what it moves often says the same again and again; on a network that it shares
//! with clients each byte saved is theirs. Other messages are small or in a hurry.

use bytes::{BufMut, Bytes, BytesMut};
use kumo_cluster::Message;
use kumo_wire::{Wire, frame};

/// Appends a frame; one of copied records as a packed body, if that is shorter:
///
/// | offset | size | field                                             |
/// |--------|------|---------------------------------------------------|
/// |      0 |    1 | 255, the number of no message                     |
/// |      1 |    4 | n, the bytes of the body as it was; little-endian |
/// |      5 |    … | the body as it was, as one block of LZ4           |
pub fn append(message: &Message, out: &mut BytesMut) {
    let start = out.len();
    frame::append(message, out);
    let body = start + frame::HEADER_BYTES;
    if !matches!(message, Message::CopyRecords { .. }) || out.len() - body < PACK_BYTES_MIN {
        return;
    }
    let block = lz4_flex::block::compress(&out[body..]);
    if PREFIX_BYTES + block.len() >= out.len() - body {
        return;
    }
    let plain_bytes = (out.len() - body) as u32;
    out.truncate(start);
    out.put_u32_le((PREFIX_BYTES + block.len()) as u32);
    out.put_u8(PACKED);
    out.put_u32_le(plain_bytes);
    out.put_slice(&block);
}

/// What a packed body says it comes to; nothing, if it is not packed.
pub fn unpacked_bytes(body: &[u8]) -> usize {
    match body.split_first_chunk::<PREFIX_BYTES>() {
        Some(([PACKED, count @ ..], _)) => u32::from_le_bytes(*count) as usize,
        _plain => 0,
    }
}

/// The message in a body, packed or not. A plain body may have so many bytes.
pub fn read(body: Bytes, bytes_max: usize) -> Result<Message, String> {
    if body.first() != Some(&PACKED) {
        return message(body);
    }
    match message(unpack(&body, bytes_max)?)? {
        records @ Message::CopyRecords { .. } => Ok(records),
        _other => Err("bad message: only copied records are packed".to_owned()),
    }
}

fn message(body: Bytes) -> Result<Message, String> {
    Message::from_bytes(body).map_err(|error| format!("bad message: {error}"))
}

fn unpack(body: &[u8], bytes_max: usize) -> Result<Bytes, String> {
    let malformed = || "bad message: a packed body that cannot be read".to_owned();
    let (prefix, block) = body.split_first_chunk::<PREFIX_BYTES>().ok_or_else(malformed)?;
    let plain_bytes = u32::from_le_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    // Before memory is taken for it: what may be, and what so few bytes can stand for.
    if plain_bytes > bytes_max || plain_bytes > block.len().saturating_mul(RATIO_MAX) {
        return Err(malformed());
    }
    let mut plain = vec![0; plain_bytes];
    match lz4_flex::block::decompress_into(block, &mut plain) {
        Ok(count) if count == plain_bytes => Ok(plain.into()),
        Ok(_) | Err(_) => Err(malformed()),
    }
}

/// Messages are numbered from 1.
const PACKED: u8 = 255;

const PREFIX_BYTES: usize = 5;

/// Shorter ones are not worth the work.
const PACK_BYTES_MIN: usize = 512;

/// One byte of LZ4 stands for 255 at most.
const RATIO_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::{KeyHash, Kind, Record, Stamp, StoreKey};

    fn copied(data: Bytes) -> Message {
        let record = Record { stamp: Stamp::default(), kind: Kind::Value, flags: 0, expiry: 0, data };
        let key = StoreKey { hash: KeyHash(1), key: Bytes::from_static(b"key") };
        let records = vec![(key, record)];
        Message::CopyRecords {
            job: Default::default(),
            space: Default::default(),
            range: kumo_cluster::Range { first: KeyHash(0), last: KeyHash(9) },
            records,
            pending: Vec::new(),
        }
    }

    /// Bytes in which nothing repeats.
    fn noise(count: usize) -> Bytes {
        let mut state = 1u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(count).collect::<Vec<u8>>().into()
    }

    fn body(message: &Message) -> Bytes {
        let mut stream = BytesMut::from(&b"before"[..]);
        append(message, &mut stream);
        let mut stream = stream.split_off(6);
        let body = frame::take(&mut stream, LIMIT).unwrap().expect("a whole frame");
        assert!(stream.is_empty());
        body
    }

    const LIMIT: usize = 1 << 20;

    #[test]
    fn records_that_repeat_themselves_are_shorter_on_the_wire_and_the_same_behind_it() {
        let message = copied(vec![b'v'; 100_000].into());
        let body = body(&message);
        assert!(body[0] == PACKED && body.len() < 2_000, "{} bytes", body.len());
        assert_eq!(read(body, LIMIT), Ok(message));
    }

    #[test]
    fn what_does_not_shrink_and_what_is_no_copy_is_sent_as_it_is() {
        for message in [
            copied(noise(100_000)),
            copied(Bytes::from_static(b"vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv")),
            Message::Backup { suffix: "v".repeat(10_000) },
        ] {
            let body = body(&message);
            assert_eq!(body, message.to_bytes());
            assert_eq!(read(body, LIMIT), Ok(message));
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_refused_before_memory_is_taken() {
        let good = body(&copied(vec![b'v'; 100_000].into()));
        for length in [u32::MAX, LIMIT as u32 + 1, 99_999, 1, 0] {
            let mut bad = good.to_vec();
            bad[1..5].copy_from_slice(&length.to_le_bytes());
            assert!(read(bad.into(), LIMIT).is_err(), "{length}");
        }
        let few = [&[PACKED][..], &(LIMIT as u32).to_le_bytes(), &[0; 10]].concat();
        assert!(read(few.into(), LIMIT).is_err(), "ten bytes stand for no megabyte");
    }

    #[test]
    fn no_bytes_lead_to_a_panic() {
        let good = body(&copied(vec![b'v'; 100_000].into()));
        for cut in 0..good.len() {
            assert!(read(good.slice(..cut), LIMIT).is_err(), "cut at {cut}");
        }
        let noise = noise(4 * good.len());
        for at in 0..good.len() {
            let mut bad = good.to_vec();
            bad[at] ^= noise[at] | 1;
            // Some of it may still be a message: what matters is that it is read or refused.
            let _ = read(bad.into(), LIMIT);
        }
        let nested = Message::Backup { suffix: "v".repeat(10_000) }.to_bytes();
        let block = lz4_flex::block::compress(&nested);
        let packed = [&[PACKED][..], &(nested.len() as u32).to_le_bytes(), &block].concat();
        assert!(read(packed.into(), LIMIT).is_err(), "only copied records are packed");
    }
}
