//! [`Pieces`]: memory for small byte strings, some to a piece.

use bytes::{Bytes, BytesMut};

/// Where small byte strings are put that are to outlive the buffer they came in, without holding on to it. A piece is used
/// again when nothing holds on to it any more: what is done with at once takes no memory from the allocator.
#[derive(Debug, Default)]
pub struct Pieces {
    /// For strings up to `SMALLEST_BYTES`, up to twice as much, and so on: one keeps little more than its like from being
    /// used again.
    classes: [BytesMut; CLASSES],
}

impl Pieces {
    pub fn copy(&mut self, bytes: &[u8]) -> Bytes {
        let Some(piece) = self.piece(bytes.len()) else {
            return Bytes::copy_from_slice(bytes);
        };
        piece.extend_from_slice(bytes);
        piece.split().freeze()
    }

    /// So many bytes, as `fill` makes them, and what it says.
    pub fn fill<T, E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<T, E>,
    ) -> Result<(Bytes, T), E> {
        let Some(piece) = self.piece(length) else {
            let mut bytes = vec![0; length];
            return fill(&mut bytes).map(|said| (bytes.into(), said));
        };
        piece.resize(length, 0);
        let filled = fill(piece);
        let bytes = piece.split();
        filled.map(|said| (bytes.freeze(), said))
    }

    /// An empty one with room for so many bytes; none: they are to have memory of their own.
    fn piece(&mut self, length: usize) -> Option<&mut BytesMut> {
        let class_bytes = length.next_power_of_two().max(SMALLEST_BYTES);
        let class = class_bytes.ilog2() - SMALLEST_BYTES.ilog2();
        let piece = self.classes.get_mut(class as usize)?;
        if piece.capacity() < length {
            piece.reserve(STRINGS * class_bytes);
        }
        Some(piece)
    }
}

/// Strings of a piece, at least: one of them holds on to twice as many times its own length, or to the smallest piece.
const STRINGS: usize = 4;

const SMALLEST_BYTES: usize = 256;

const CLASSES: usize = 5;

/// Longer strings have memory of their own: to copy them costs more than to get it.
pub const SHARED_BYTES_MAX: usize = SMALLEST_BYTES << (CLASSES - 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_what_was_copied() {
        let mut pieces = Pieces::default();
        let frames: Vec<Vec<u8>> = (0..200_u8).map(|length| vec![length; usize::from(length) * 30]).collect();
        let copies: Vec<Bytes> = frames.iter().map(|frame| pieces.copy(frame)).collect();
        assert_eq!(copies, frames);
        let sevens = |bytes: &mut [u8]| {
            bytes.fill(7);
            Ok::<_, ()>("said")
        };
        for length in [0, 1, 256, 257, SHARED_BYTES_MAX, SHARED_BYTES_MAX + 1] {
            assert_eq!(pieces.fill(length, sevens), Ok((vec![7; length].into(), "said")));
        }
        assert_eq!(pieces.fill(10, |_| Err::<(), _>("no")), Err("no"));
        assert_eq!(pieces.copy(b"after it"), &b"after it"[..]);
    }

    #[test]
    fn a_piece_is_used_again_when_all_in_it_is_done_with() {
        let mut pieces = Pieces::default();
        for length in [100, 300, 4000] {
            let first = pieces.copy(&vec![1; length]).as_ptr();
            let places: Vec<*const u8> = (0..1000).map(|_| pieces.copy(&vec![2; length]).as_ptr()).collect();
            assert!(places.contains(&first), "the same memory ever again");
            let held = pieces.copy(&vec![3; length]);
            (0..1000).for_each(|_| drop(pieces.copy(&vec![4; length])));
            assert_eq!(held, vec![3; length], "what is held on to is left alone");
        }
        let largest = pieces.classes.iter().map(BytesMut::capacity).max();
        assert!(largest <= Some(STRINGS * SHARED_BYTES_MAX), "no piece is larger");
    }
}
