//! [`Writer`]: bytes on their way out. Large byte strings stay where they are and are shared, not copied.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Values written one after another, the opposite of [`Reader`](crate::Reader). What is small is gathered in one
/// buffer; a byte string of [`SHARE_BYTES_MIN`] or more only leaves a mark where it stands. As a [`Buf`] it gives all
/// of it in order, ready for a vectored write.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    small: BytesMut,
    /// Bytes of `small` that were taken from its front.
    taken: usize,
    /// Large strings, each with the count of small bytes that stand before it.
    shared: VecDeque<(usize, Bytes)>,
    shared_bytes: usize,
    /// Everything is copied into the one buffer.
    flat: bool,
}

impl Writer {
    /// A writer with room for so many small bytes.
    pub fn with_capacity(bytes: usize) -> Writer {
        Writer { small: BytesMut::with_capacity(bytes), ..Writer::default() }
    }

    /// A writer that copies everything behind what is in `buffer`.
    pub fn flat(buffer: BytesMut) -> Writer {
        Writer { small: buffer, flat: true, ..Writer::default() }
    }

    pub fn len(&self) -> usize {
        self.small.len() + self.shared_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn put_u8(&mut self, number: u8) {
        self.small.put_u8(number);
    }

    pub fn put_u16_le(&mut self, number: u16) {
        self.small.put_u16_le(number);
    }

    pub fn put_u32_le(&mut self, number: u32) {
        self.small.put_u32_le(number);
    }

    pub fn put_slice(&mut self, bytes: &[u8]) {
        self.small.put_slice(bytes);
    }

    /// Writes a byte string, without its length; a large one is shared.
    pub fn put_bytes(&mut self, bytes: &Bytes) {
        if self.flat || bytes.len() < SHARE_BYTES_MIN {
            return self.small.put_slice(bytes);
        }
        self.shared.push_back((self.taken + self.small.len(), bytes.clone()));
        self.shared_bytes += bytes.len();
    }

    /// Everything of `other` behind everything here.
    pub fn append(&mut self, other: Writer) {
        if self.is_empty() && !self.flat {
            *self = other;
            return;
        }
        let mut start = other.taken;
        let mut small = other.small;
        for (place, bytes) in other.shared {
            self.small.put_slice(&small.split_to(place - start));
            start = place;
            self.put_bytes(&bytes);
        }
        self.small.put_slice(&small);
    }

    /// All of it in one piece; copied only when it is not.
    pub fn into_bytes(mut self) -> Bytes {
        if self.shared.is_empty() { self.small.freeze() } else { self.copy_to_bytes(self.len()) }
    }

    /// The buffer of a [`flat`](Writer::flat) writer.
    pub(crate) fn into_buffer(self) -> BytesMut {
        debug_assert!(self.shared.is_empty(), "a flat writer shares nothing");
        self.small
    }

    /// Overwrites small bytes written before: a length that is known afterwards.
    pub(crate) fn patch(&mut self, mark: Mark, bytes: &[u8]) {
        let place = mark.small - self.taken;
        self.small[place..place + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { small: self.taken + self.small.len(), all: self.len() }
    }

    /// Bytes written since.
    pub(crate) fn since(&self, mark: Mark) -> usize {
        self.len() - mark.all
    }

    /// Nothing is left. Keeps the buffer for what comes next unless it grew beyond `keep_bytes_max`.
    pub fn reset(&mut self, keep_bytes_max: usize) {
        if self.small.capacity() > keep_bytes_max {
            self.small = BytesMut::new();
        }
        self.small.clear();
        self.shared.clear();
        (self.taken, self.shared_bytes) = (0, 0);
    }

    /// Small bytes before the first shared string.
    fn lead(&self) -> usize {
        self.shared.front().map_or(self.small.len(), |(place, _)| place - self.taken)
    }
}

/// A place in what is being written. Valid while nothing is taken from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    small: usize,
    all: usize,
}

impl From<Bytes> for Writer {
    fn from(bytes: Bytes) -> Writer {
        let mut writer = Writer::default();
        writer.put_bytes(&bytes);
        writer
    }
}

impl Buf for Writer {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        match (self.lead(), self.shared.front()) {
            (0, Some((_, bytes))) => bytes,
            (lead, _) => &self.small[..lead],
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        let mut start = 0;
        let ends = self.shared.iter().map(|(place, bytes)| (place - self.taken, Some(bytes)));
        for (end, bytes) in ends.chain([(self.small.len(), None)]) {
            for part in [Some(&self.small[start..end]), bytes.map(|bytes| &bytes[..])].into_iter().flatten() {
                if part.is_empty() {
                    continue;
                }
                let Some(slice) = slices.get_mut(count) else { return count };
                *slice = IoSlice::new(part);
                count += 1;
            }
            start = end;
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len(), "no more than there is can be taken");
        if count == self.len() {
            // The usual case: all of it was written, and the buffer is free from its start again.
            return self.reset(usize::MAX);
        }
        while count > 0 {
            let lead = self.lead().min(count);
            self.small.advance(lead);
            self.taken += lead;
            count -= lead;
            if count == 0 {
                break;
            }
            let Some((_, bytes)) = self.shared.front_mut() else { break };
            let part = bytes.len().min(count);
            bytes.advance(part);
            self.shared_bytes -= part;
            count -= part;
            if bytes.is_empty() {
                self.shared.pop_front();
            }
        }
    }
}

/// Byte strings from this size on are shared: below, a copy costs less than one more piece in a write call.
pub const SHARE_BYTES_MIN: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wire;

    fn large(seed: u8) -> Bytes {
        (0..SHARE_BYTES_MIN + 5).map(|at| (at as u8).wrapping_add(seed)).collect()
    }

    fn written() -> (Writer, Bytes) {
        let value = vec![large(1), Bytes::from_static(b"small"), large(2), Bytes::new()];
        let mut writer = Writer::default();
        value.encode(&mut writer);
        (writer, value.to_bytes())
    }

    #[test]
    fn shared_or_flat_the_bytes_are_the_same() {
        let (writer, whole) = written();
        assert_eq!(writer.len(), whole.len());
        assert_eq!(writer.clone().into_bytes(), whole);
        let mut twice = Writer::default();
        twice.put_u8(7);
        twice.append(writer.clone());
        twice.append(writer);
        assert_eq!(twice.into_bytes(), [&[7], &whole[..], &whole[..]].concat());
    }

    #[test]
    fn a_large_string_is_not_copied() {
        let bytes = large(3);
        let mut writer = Writer::default();
        bytes.encode(&mut writer);
        let mut slices = [IoSlice::new(&[]); 8];
        assert_eq!(writer.chunks_vectored(&mut slices), 2);
        assert_eq!(slices[1].as_ptr(), bytes.as_ptr());
    }

    #[test]
    fn it_can_be_taken_in_any_steps() {
        for step in [7, 64, 1000, SHARE_BYTES_MIN, 3 * SHARE_BYTES_MIN] {
            let (mut writer, whole) = written();
            let mut seen = Vec::new();
            while writer.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 3];
                let count = writer.chunks_vectored(&mut slices);
                let all: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                let taken = all.len().min(step);
                assert!(all.starts_with(&writer.chunk()[..writer.chunk().len().min(taken)]));
                seen.extend_from_slice(&all[..taken]);
                writer.advance(taken);
            }
            assert_eq!(seen, whole, "step {step}");
            assert!(writer.is_empty());
        }
    }

    #[test]
    fn writing_goes_on_while_the_front_is_taken() {
        let (mut writer, whole) = written();
        writer.advance(6);
        writer.put_u8(9);
        writer.put_bytes(&large(4));
        let rest = [&whole[6..], &[9], &large(4)].concat();
        assert_eq!(writer.into_bytes(), rest);
    }
}
