//! [`Content`]: the bytes of a file, in chunks that copies of the file share.

use crate::map::Map;
use bytes::{Bytes, BytesMut};

/// What is in a file. A chunk holds the bytes of one [`CHUNK_BYTES`] long stretch of it, or fewer: what is not
/// held, up to the file's length, is zeros. So a write changes the chunks it touches, a gap costs nothing,
/// and clone is O(1).
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    length: u64,
    /// Most files are small: their one chunk is here, without a map around it.
    first: Bytes,
    /// The others that hold anything.
    rest: Map<u32, Bytes>,
    /// Bytes of the buffers that chunks arrived in and may share, since they were last copied out of them.
    /// Local: it is no part of the state that replicas agree on.
    arrived: u64,
}

impl Content {
    pub fn len(&self) -> u64 {
        self.length
    }

    /// The data becomes the whole content. Whole chunks of it stay where they are, shared.
    pub fn replace(&mut self, data: Bytes) {
        *self = Content::default();
        self.write(0, data);
    }

    /// Nothing at all happens when there is no data, not even at an offset beyond the end.
    pub fn write(&mut self, offset: u64, mut data: Bytes) {
        let count = data.len() as u64;
        if offset == 0 && count >= self.length {
            *self = Content::default();
        }
        if count >= CHUNK_BYTES {
            self.arrived += count;
        }
        let mut at = offset;
        while !data.is_empty() {
            let within = (at % CHUNK_BYTES) as usize;
            let piece = data.split_to(data.len().min(CHUNK_BYTES as usize - within));
            let index = (at / CHUNK_BYTES) as u32;
            at += piece.len() as u64;
            self.put(index, patched(self.chunk(index), within, piece));
        }
        if at > offset {
            self.length = self.length.max(at);
        }
        self.own_if_few();
    }

    /// Cuts, or lengthens by zeros.
    pub fn truncate(&mut self, length: u64) {
        if length < self.length {
            self.cut(length);
        }
        self.length = length;
        self.own_if_few();
    }

    /// Up to `length` bytes, fewer at the end.
    pub fn read(&self, offset: u64, length: u64) -> Bytes {
        let length = length.min(self.length.saturating_sub(offset)) as usize;
        if length == 0 {
            return Bytes::new();
        }
        let within = (offset % CHUNK_BYTES) as usize;
        let chunk = self.chunk((offset / CHUNK_BYTES) as u32);
        if within + length <= chunk.len() {
            return chunk.slice(within..within + length);
        }
        let mut out = BytesMut::zeroed(length);
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = (at % CHUNK_BYTES) as usize;
            let chunk = self.chunk((at / CHUNK_BYTES) as u32);
            let count = (CHUNK_BYTES as usize - within).min(length - done);
            let held = &chunk[within.min(chunk.len())..(within + count).min(chunk.len())];
            out[done..done + held.len()].copy_from_slice(held);
            done += count;
        }
        out.freeze()
    }

    /// The chunks that hold anything, in order, of a copy frozen now.
    pub fn walk(&self) -> impl Iterator<Item = (u32, Bytes)> + Send + use<> {
        let first = (!self.first.is_empty()).then(|| (0, self.first.clone()));
        first.into_iter().chain(self.rest.walk())
    }

    /// Of that length, without a byte held.
    pub fn zeros(length: u64) -> Content {
        Content { length, ..Content::default() }
    }

    /// Puts a chunk in its place, as [`walk`](Content::walk) gave it. False if it cannot be there.
    pub fn restore(&mut self, index: u32, bytes: Bytes) -> bool {
        let end = u64::from(index) * CHUNK_BYTES + bytes.len() as u64;
        let fits = !bytes.is_empty() && bytes.len() as u64 <= CHUNK_BYTES && end <= self.length;
        if fits {
            self.arrived += bytes.len() as u64;
            self.put(index, kept(bytes));
        }
        fits
    }

    fn chunk(&self, index: u32) -> &Bytes {
        static NOTHING: Bytes = Bytes::new();
        if index == 0 { &self.first } else { self.rest.get(&index).unwrap_or(&NOTHING) }
    }

    fn put(&mut self, index: u32, bytes: Bytes) {
        if index == 0 {
            self.first = bytes;
        } else {
            self.rest.insert(index, bytes);
        }
    }

    /// Lets go of everything beyond.
    fn cut(&mut self, length: u64) {
        let last = (length / CHUNK_BYTES) as u32;
        let within = (length % CHUNK_BYTES) as usize;
        let beyond: Vec<u32> = self.rest.iter_from(&last).map(|(&index, _)| index).collect();
        let kept = self.chunk(last);
        let kept = Bytes::copy_from_slice(&kept[..within.min(kept.len())]);
        for index in beyond {
            self.rest.remove(&index);
        }
        if last == 0 || !kept.is_empty() {
            self.put(last, kept);
        }
    }

    /// A few chunks must not keep the large buffers alive that they arrived in. The copy is paid for by the writes
    /// that brought several times as much as there is.
    fn own_if_few(&mut self) {
        if self.arrived > self.length.saturating_mul(ARRIVED_SHARE) {
            self.own();
            self.arrived = 0;
        }
    }

    /// Gives every chunk a buffer of its own.
    fn own(&mut self) {
        self.first = Bytes::copy_from_slice(&self.first);
        let rest: Vec<(u32, Bytes)> = self.rest.walk().collect();
        for (index, bytes) in rest {
            self.rest.insert(index, Bytes::copy_from_slice(&bytes));
        }
    }
}

/// Equal when a reader sees no difference and a snapshot neither.
impl PartialEq for Content {
    fn eq(&self, other: &Content) -> bool {
        self.length == other.length && self.first == other.first && self.rest == other.rest
    }
}

/// Bytes to be kept for long: small ones are copied, lest they keep alive the whole frame or batch that
/// they arrived in; large ones are most of what they arrived in.
pub(crate) fn kept(bytes: Bytes) -> Bytes {
    if (bytes.len() as u64) < CHUNK_BYTES { Bytes::copy_from_slice(&bytes) } else { bytes }
}

/// A chunk with `piece` written at `within`.
fn patched(chunk: &Bytes, within: usize, piece: Bytes) -> Bytes {
    let end = within + piece.len();
    if within == 0 && end >= chunk.len() {
        return kept(piece);
    }
    let mut out = BytesMut::with_capacity(chunk.len().max(end));
    out.extend_from_slice(&chunk[..within.min(chunk.len())]);
    out.resize(within, 0);
    out.extend_from_slice(&piece);
    out.extend_from_slice(&chunk[end.min(chunk.len())..]);
    out.freeze()
}

/// The grid of a file. A small write copies at most this much; a full chunk is never copied.
pub(crate) const CHUNK_BYTES: u64 = 64 * 1024;
/// A file that is less than one part in so many of the buffers that came for it gets buffers of its own.
const ARRIVED_SHARE: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn data(seed: u8, length: usize) -> Bytes {
        (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
    }

    #[test]
    fn it_behaves_as_a_byte_vector() {
        let mut state = 1u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % bound
        };
        for _ in 0..60 {
            let mut content = Content::default();
            let mut model: Vec<u8> = Vec::new();
            for turn in 0..40u8 {
                let offset = below(4 * CHUNK_BYTES);
                let length = below([10, 70_000, 200_000][turn as usize % 3]) as usize;
                match below(5) {
                    0 => {
                        content.truncate(offset);
                        model.resize(offset as usize, 0);
                    }
                    1 => {
                        content.replace(data(turn, length));
                        model = data(turn, length).to_vec();
                    }
                    _ if length == 0 => {}
                    _ => {
                        content.write(offset, data(turn, length));
                        let end = offset as usize + length;
                        model.resize(model.len().max(end), 0);
                        model[offset as usize..end].copy_from_slice(&data(turn, length));
                    }
                }
                assert_eq!(content.len(), model.len() as u64);
                assert_eq!(content.read(0, u64::MAX), model);
                let from = below(5 * CHUNK_BYTES);
                let count = below(CHUNK_BYTES);
                let start = model.len().min(from as usize);
                let end = model.len().min((from + count) as usize);
                assert_eq!(content.read(from, count), model[start..end]);
                let mut again = Content::zeros(content.len());
                assert!(content.walk().all(|(index, bytes)| again.restore(index, bytes)));
                assert_eq!(again, content);
            }
        }
    }

    #[test]
    fn a_large_replace_keeps_the_buffer_it_was_given() {
        let given = data(1, 64 * CHUNK_BYTES as usize);
        let mut content = Content::default();
        content.replace(given.clone());
        assert!(content.walk().all(|(index, bytes)| {
            bytes.as_ptr() == given[index as usize * CHUNK_BYTES as usize..].as_ptr()
        }));
    }

    #[test]
    fn a_small_write_into_a_large_file_changes_one_chunk() {
        let mut content = Content::default();
        content.replace(data(1, 64 * CHUNK_BYTES as usize));
        let before = content.clone();
        content.write(10 * CHUNK_BYTES + 5, Bytes::from_static(b"kumo"));
        let moved = before.walk().zip(content.walk()).filter(|(a, b)| a.1.as_ptr() != b.1.as_ptr()).count();
        assert_eq!(moved, 1);
        assert_ne!(before, content);
    }

    #[test]
    fn what_is_left_of_a_large_file_does_not_hold_its_buffer() {
        let given = data(1, 64 * CHUNK_BYTES as usize);
        let mut content = Content::default();
        content.replace(given.clone());
        content.truncate(2 * CHUNK_BYTES);
        assert_eq!(content.read(0, u64::MAX), given.slice(..2 * CHUNK_BYTES as usize));
        assert!(given.is_unique(), "no chunk shares it any more");
    }

    #[test]
    fn a_small_write_does_not_hold_the_frame_it_came_in() {
        let frame = data(1, 1 << 20);
        let mut content = Content::default();
        content.write(0, frame.slice(100..200));
        content.write(150, frame.slice(100..200));
        assert!(frame.is_unique());
    }

    /// The bytes of those buffers that something still shares.
    fn held(given: &[Bytes]) -> usize {
        given.iter().filter(|buffer| !buffer.is_unique()).map(Bytes::len).sum()
    }

    #[test]
    fn what_is_left_of_many_writes_does_not_hold_their_buffers() {
        let chunk = CHUNK_BYTES as usize;
        let mut content = Content::default();
        let mut given = Vec::new();
        // Each leaves one chunk of itself, for the next begins one chunk later.
        for index in 0..64 {
            given.push(data(index as u8, (64 - index) * chunk));
            content.write((index * chunk) as u64, given[index].clone());
            let (held, length) = (held(&given), content.len() as usize);
            assert!(held <= ARRIVED_SHARE as usize * length, "{held} bytes for {length} after {index}");
        }
        for (index, buffer) in given.iter().enumerate() {
            let at = (index * chunk) as u64;
            assert_eq!(content.read(at, CHUNK_BYTES), buffer.slice(..chunk), "{index}");
        }
    }

    #[test]
    fn a_file_written_over_and_over_is_not_copied() {
        let mut content = Content::default();
        for seed in 0..20 {
            let given = data(seed, 4 * CHUNK_BYTES as usize);
            content.write(0, given.clone());
            assert!(content.walk().all(|(index, bytes)| {
                bytes.as_ptr() == given[index as usize * CHUNK_BYTES as usize..].as_ptr()
            }));
        }
    }
}
