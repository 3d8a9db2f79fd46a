//! [`Connection`]: one memcached connection with the requests under way on it, in order.

use bytes::{Buf, BytesMut};
use kumo_wire::memcache::{BadReply, Call, Protocol, Reply, ReplyDecoder, VALUE_BYTES_MAX_DEFAULT};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A connection that nobody waits for.
pub struct Connection {
    pub stream: TcpStream,
    decoder: ReplyDecoder,
    inbox: BytesMut,
    outbox: BytesMut,
    pub under_way: VecDeque<Asked>,
}

/// A request without a whole answer.
#[derive(Clone, Copy)]
pub struct Asked {
    /// Since when it counts: when it was sent, or when it was due.
    pub since: Instant,
    pub what: What,
}

#[derive(Clone, Copy)]
pub enum What {
    Set {
        key: u32,
        number: u32,
    },
    /// `count` keys from `key` on, wrapping; `floor` is that of the first.
    Get {
        key: u32,
        count: u32,
        floor: u32,
        found: u32,
    },
}

impl Connection {
    pub fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            decoder: ReplyDecoder::new(Protocol::Text, VALUE_BYTES_MAX_DEFAULT),
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
            under_way: VecDeque::new(),
        })
    }

    /// It leaves with the next [`flush`](Connection::flush).
    pub fn ask(&mut self, asked: Asked, call: &Call) {
        call.write(Protocol::Text, &mut self.outbox);
        self.under_way.push_back(asked);
    }

    /// Writes all that was asked, with one call if the socket takes it. Returns whether it did.
    pub fn flush(&mut self) -> io::Result<bool> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.outbox.advance(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads what has arrived.
    pub fn read(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        loop {
            match self.stream.read(scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.inbox.extend_from_slice(&scratch[..count]);
                    if count < scratch.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub fn next_reply(&mut self) -> Result<Option<Reply>, BadReply> {
        self.decoder.next(&mut self.inbox)
    }
}

/// A server that does not answer by then is not there.
const CONNECT_MAX: Duration = Duration::from_secs(2);
