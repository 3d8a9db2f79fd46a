//! [`Inbox`]: bytes of a socket on their way to being frames.

use bytes::{Bytes, BytesMut};
use kumo_wire::{Malformed, frame};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The receive buffer of one connection.
#[derive(Debug, Default)]
pub struct Inbox {
    buffer: BytesMut,
}

impl Inbox {
    /// Reads once. 0: the other side is done. `Pending`: nothing is there, and the waker is registered.
    /// A read that did not fill the buffer has drained the socket; the next call then costs no system call.
    pub fn fill(&mut self, stream: &mut TcpStream, context: &mut Context) -> Poll<io::Result<usize>> {
        // A large frame has its room since its length is known: more would move what is here of it.
        let large = self.buffer.len() > COPY_BYTES_MAX && frame::missing(&self.buffer) > 0;
        let spare = self.buffer.capacity() - self.buffer.len();
        if spare < SPARE_BYTES_MIN && !(large && spare > 0) {
            self.buffer.reserve(READ_BYTES);
        }
        let read = pin!(stream.read_buf(&mut self.buffer));
        read.poll(context)
    }

    /// The next whole frame.
    pub fn take(&mut self, limit: usize) -> Result<Option<Bytes>, Malformed> {
        let Some(body) = frame::take(&mut self.buffer, limit)? else { return Ok(None) };
        // A small frame gets memory of its own: a hundred bytes that the log keeps must not hold on to a whole
        // receive buffer, and the buffer can be used again at once.
        Ok(Some(match body.len() <= COPY_BYTES_MAX {
            true => Bytes::copy_from_slice(&body),
            false => body,
        }))
    }

    /// Whether there is the beginning of a frame, and not its end.
    pub fn is_inside_frame(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Throws away what was read.
    pub fn discard(&mut self) {
        self.buffer.clear();
    }
}

/// Room made for a read when less than [`SPARE_BYTES_MIN`] is left. Enough for a hundred small requests.
const READ_BYTES: usize = 32 * 1024;
const SPARE_BYTES_MIN: usize = 4 * 1024;

/// Frames up to this are copied out of the receive buffer, larger ones share it.
const COPY_BYTES_MAX: usize = 16 * 1024;
