//! Frames, fed whole streams, all their truncations, flipped bits and random bytes: an error, a body within the limit,
//! or nothing yet; never a panic, and never more room than the limit.

mod memory;

use bytes::{Bytes, BytesMut};
use kumo_wire::{Malformed, Wire, Writer, frame};

const LIMIT: usize = 300;

/// The same numbers in every run.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
}

fn stream() -> Bytes {
    let mut out = Writer::default();
    for text in ["", "a", "several words", "雲"] {
        frame::put(&text.to_owned(), &mut out);
    }
    frame::put(&"x".repeat(LIMIT - 4), &mut out);
    out.into_bytes()
}

/// Everything that comes out of a stream that arrives in pieces, and how it ends.
fn bodies(stream: &[u8], piece: usize) -> (Vec<Bytes>, Result<usize, Malformed>) {
    let (mut arrived, mut bodies) = (BytesMut::new(), Vec::new());
    for piece in stream.chunks(piece) {
        arrived.extend_from_slice(piece);
        loop {
            match frame::take(&mut arrived, LIMIT) {
                Err(malformed) => return (bodies, Err(malformed)),
                Ok(None) => break,
                Ok(Some(body)) => bodies.push(body),
            }
        }
        assert!(arrived.capacity() <= 2 * (LIMIT + frame::HEADER_BYTES).max(stream.len()));
    }
    (bodies, Ok(arrived.len()))
}

#[test]
fn every_truncation_is_a_shorter_stream() {
    let whole = stream();
    let (all, end) = bodies(&whole, whole.len());
    assert_eq!((all.len(), end), (5, Ok(0)));
    for length in 0..whole.len() {
        for piece in [1, 3, 64, whole.len()] {
            let (some, end) = bodies(&whole[..length], piece);
            assert_eq!(some, all[..some.len()]);
            let taken: usize = some.iter().map(|body| body.len() + frame::HEADER_BYTES).sum();
            assert_eq!(end, Ok(length - taken));
        }
    }
}

#[test]
fn flipped_bits_and_random_bytes_give_bodies_within_the_limit() {
    let whole = stream();
    let check = |bytes: &[u8]| {
        let (bodies, end) = bodies(bytes, 50);
        assert!(bodies.iter().all(|body| body.len() <= LIMIT));
        if let Err(malformed) = end {
            assert!(matches!(malformed, Malformed::Length(length) if length > LIMIT as u64));
        }
    };
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        check(&flipped);
    }
    let mut bits = Bits(11);
    for _ in 0..20_000 {
        let length = bits.next() as usize % 600;
        // Mostly small numbers: lengths that are within the limit lead further.
        let byte = |bits: &mut Bits| if bits.next().is_multiple_of(4) { bits.next() as u8 } else { 0 };
        let bytes: Vec<u8> = (0..length).map(|_| byte(&mut bits)).collect();
        check(&bytes);
    }
}

#[test]
fn a_length_that_is_claimed_reserves_no_more_than_the_limit() {
    let mib = 1 << 20;
    let reserved = memory::Reserved::start();
    for claim in [16 * mib, 16 * mib + 1, 1 << 30, u32::MAX] {
        let mut arrived = BytesMut::from(&claim.to_le_bytes()[..]);
        let taken = frame::take(&mut arrived, 16 * mib as usize);
        assert_eq!(taken.is_ok(), claim == 16 * mib);
    }
    assert!(reserved.grown() <= 40 * mib as usize);
}

#[test]
fn no_length_of_a_list_or_a_text_is_believed() {
    type Nested = Vec<(u64, Vec<(String, Option<Bytes>)>)>;
    let value: Nested =
        vec![(1, vec![("text".to_owned(), Some(Bytes::from_static(b"bytes")))]), (2, Vec::new())];
    memory::lengths_are_not_believed(&[value.to_bytes()], |bytes| drop(Nested::from_bytes(bytes)));
}
