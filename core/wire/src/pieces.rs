//! [`Pieces`]: memory for small byte strings, some to a piece.

use bytes::{Bytes, BytesMut};

/// Where small byte strings are put that are to outlive the buffer they came in, without holding on to it. A piece is used
/// again when nothing holds on to it any more: what is done with at once takes no memory from the allocator.
#[derive(Debug, Default)]
pub struct Pieces {
    piece: BytesMut,
}

impl Pieces {
    pub fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.is_empty() || bytes.len() > SHARED_BYTES_MAX {
            return Bytes::copy_from_slice(bytes);
        }
        self.make_room(bytes.len());
        self.piece.extend_from_slice(bytes);
        self.piece.split().freeze()
    }

    /// So many bytes, as `fill` makes them, and what it says.
    pub fn fill<T, E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<T, E>,
    ) -> Result<(Bytes, T), E> {
        if length > SHARED_BYTES_MAX {
            let mut bytes = vec![0; length];
            return fill(&mut bytes).map(|said| (bytes.into(), said));
        }
        self.make_room(length);
        self.piece.resize(length, 0);
        let filled = fill(&mut self.piece);
        let bytes = self.piece.split();
        filled.map(|said| (bytes.freeze(), said))
    }

    fn make_room(&mut self, length: usize) {
        if self.piece.capacity() < length {
            self.piece.reserve(PIECE_BYTES);
        }
    }
}

/// A piece: what one of its strings may hold on to, however small it is.
const PIECE_BYTES: usize = 1024;

/// Longer strings have memory of their own: it is the number of them that makes a piece worth while.
pub const SHARED_BYTES_MAX: usize = PIECE_BYTES / 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_what_was_copied() {
        let mut pieces = Pieces::default();
        let frames: Vec<Vec<u8>> = (0..200_u8).map(|length| vec![length; usize::from(length) * 3]).collect();
        let copies: Vec<Bytes> = frames.iter().map(|frame| pieces.copy(frame)).collect();
        assert_eq!(copies, frames);
        let sevens = |bytes: &mut [u8]| {
            bytes.fill(7);
            Ok::<_, ()>("said")
        };
        for length in [0, 1, SHARED_BYTES_MAX, 3000] {
            assert_eq!(pieces.fill(length, sevens), Ok((vec![7; length].into(), "said")));
        }
        assert_eq!(pieces.fill(10, |_| Err::<(), _>("no")), Err("no"));
        assert_eq!(pieces.copy(b"after it"), &b"after it"[..]);
    }

    #[test]
    fn a_piece_is_used_again_when_all_in_it_is_done_with() {
        let mut pieces = Pieces::default();
        let first = pieces.copy(&[1; 100]).as_ptr();
        let places: Vec<*const u8> = (0..1000).map(|_| pieces.copy(&[2; 100]).as_ptr()).collect();
        assert!(places.contains(&first), "the same memory ever again");
        let held = pieces.copy(&[3; 100]);
        (0..1000).for_each(|_| drop(pieces.copy(&[4; 100])));
        assert_eq!(held, &[3; 100][..], "what is held on to is left alone");
        assert!(pieces.piece.capacity() <= PIECE_BYTES, "no piece is larger");
    }
}
