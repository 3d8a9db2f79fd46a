//! What waits to be written: [`Outbox`] for one connection, and [`Lanes`] for a link where bulk must not hold up
//! heartbeats.

use bytes::{Buf, Bytes};
use kumo_wire::{Wire, Writer, frame};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

/// Frames for one connection, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    frames: Writer,
}

impl Outbox {
    pub fn put<T: Wire>(&mut self, value: &T) {
        frame::put(value, &mut self.frames);
    }

    /// A frame whose body is made already.
    pub fn put_body(&mut self, body: &Bytes) {
        self.frames.put_u32_le(body.len() as u32);
        self.frames.put_bytes(body);
    }

    pub fn len(&self) -> usize {
        self.frames.len()
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Writes until all is written or the socket is full; then the waker is registered.
    pub fn flush(&mut self, stream: &mut TcpStream, context: &mut Context) -> io::Result<()> {
        while !self.frames.is_empty() {
            match self.write(stream, context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(count)) => self.frames.advance(count),
            }
        }
        self.frames.reset(KEEP_BYTES);
        Ok(())
    }

    /// One write call: for all of it, wherever its parts are.
    fn write(&self, stream: &mut TcpStream, context: &mut Context) -> Poll<io::Result<usize>> {
        let stream = Pin::new(stream);
        let first = self.frames.chunk();
        if first.len() == self.frames.len() {
            return stream.poll_write(context, first);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = self.frames.chunks_vectored(&mut slices);
        stream.poll_write_vectored(context, &slices[..count])
    }
}

/// Frames for a link in two lanes: what is small overtakes what is bulk, between frames.
#[derive(Debug, Default)]
pub struct Lanes {
    /// Being written; begins inside a frame when a write was cut short.
    writing: Outbox,
    small: Writer,
    bulk: VecDeque<Writer>,
    bulk_bytes: usize,
}

impl Lanes {
    /// False: so much waits that the other side cannot be reading; give the link up.
    #[must_use]
    pub fn put<T: Wire>(&mut self, value: &T) -> bool {
        frame::put(value, &mut self.small);
        self.small.len() <= SMALL_BYTES_MAX
    }

    /// Dropped when the lane is full: whoever wants bulk asks again.
    pub fn put_bulk<T: Wire>(&mut self, value: &T) {
        if self.bulk_bytes >= BULK_BYTES_MAX {
            return;
        }
        let mut frame = Writer::default();
        frame::put(value, &mut frame);
        self.bulk_bytes += frame.len();
        self.bulk.push_back(frame);
    }

    pub fn is_empty(&self) -> bool {
        self.writing.is_empty() && self.small.is_empty() && self.bulk.is_empty()
    }

    pub fn flush(&mut self, stream: &mut TcpStream, context: &mut Context) -> io::Result<()> {
        loop {
            self.load();
            if self.writing.is_empty() {
                return Ok(());
            }
            self.writing.flush(stream, context)?;
            if !self.writing.is_empty() {
                return Ok(());
            }
        }
    }

    /// What the next write call takes: all that is small, then as much bulk as does not delay what comes next.
    fn load(&mut self) {
        if !self.writing.is_empty() {
            return;
        }
        std::mem::swap(&mut self.writing.frames, &mut self.small);
        while self.writing.len() < BULK_WRITE_BYTES
            && let Some(frame) = self.bulk.pop_front()
        {
            self.bulk_bytes -= frame.len();
            self.writing.frames.append(frame);
        }
    }
}

/// Parts that one write call takes: a few shared values, and what stands between them.
const SLICES_MAX: usize = 16;

/// Memory an empty outbox keeps for the next turn.
const KEEP_BYTES: usize = 256 * 1024;

/// Small frames that wait for a peer. They are what agreement needs now; a peer this far behind is not reading.
const SMALL_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bulk that waits for a peer: all that it may have asked for at once of large values, and more.
const BULK_BYTES_MAX: usize = 48 * 1024 * 1024;

/// Bulk that one write call takes: what is small waits at most for this, and for what the kernel holds.
const BULK_WRITE_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{Bytes, BytesMut};

    fn frames(lanes: &mut Lanes) -> Vec<Bytes> {
        let mut seen = Vec::new();
        loop {
            lanes.load();
            if lanes.writing.is_empty() {
                return seen;
            }
            let mut buffer = BytesMut::from(std::mem::take(&mut lanes.writing.frames).into_bytes());
            while let Some(body) = frame::take(&mut buffer, BULK_BYTES_MAX).unwrap() {
                seen.push(Bytes::from_bytes(body).unwrap());
            }
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn small_overtakes_bulk() {
        let mut lanes = Lanes::default();
        let bulk = Bytes::from(vec![1; BULK_WRITE_BYTES]);
        lanes.put_bulk(&bulk);
        lanes.put_bulk(&bulk);
        assert!(lanes.put(&Bytes::from_static(b"heartbeat")));
        let order: Vec<usize> = frames(&mut lanes).iter().map(Bytes::len).collect();
        assert_eq!(order, [9, BULK_WRITE_BYTES, BULK_WRITE_BYTES]);
        assert!(lanes.is_empty() && lanes.bulk_bytes == 0);
    }

    #[test]
    fn both_lanes_are_bounded() {
        let mut lanes = Lanes::default();
        let bulk = Bytes::from(vec![1; 1024 * 1024]);
        for _ in 0..100 {
            lanes.put_bulk(&bulk);
        }
        assert!(lanes.bulk_bytes < BULK_BYTES_MAX + 2 * 1024 * 1024);
        let refused = (0..100).position(|_| !lanes.put(&bulk)).unwrap();
        assert!(refused <= 32);
    }
}
