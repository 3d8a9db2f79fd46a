//! [`Connection`]: one socket of a hub with what has arrived and what is to be sent.

use crate::{Signal, prepare};
use bytes::{Buf, BytesMut};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

/// One connection.
pub struct Connection {
    pub signal: Arc<Signal>,
    pub inbox: BytesMut,
    pub outbox: BytesMut,
    pub stage: Stage,
    /// In this turn's list of connections to flush.
    pub dirty: bool,
    /// Taken in from elsewhere.
    pub client: bool,
    waker: Waker,
    socket: Socket,
    /// A client: not read while its replies pile up. Nodes of the store are always read: two that each wait for
    /// the other to read would wait for ever.
    slows: bool,
    /// Not read because its replies pile up, or because its owner wants it so.
    full: bool,
    paused: bool,
    /// Its owner has not looked at all that arrived: it does before any more is read.
    behind: bool,
    /// All was read, and its owner knows.
    ended: bool,
    /// What the last flush left unwritten, and how often it was looked at since any of it could be written.
    pub left: usize,
    pub stuck_looks: u32,
    /// Bytes written from the front of the outbox that its memory still holds.
    passed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Dialling,
    Open,
    /// To be closed after what was sent to it.
    Leaving,
}

/// What came of a wake.
pub enum Advance {
    Dialled,
    Read,
    /// Nothing more will come; it may still be listening.
    Ended,
}

type Dialling = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

enum Socket {
    Dialling(Dialling),
    Open(TcpStream),
}

impl Connection {
    pub fn dialling(address: SocketAddr, dial_for: Duration, signal: Arc<Signal>) -> Connection {
        let dial = async move {
            match tokio::time::timeout(dial_for, TcpStream::connect(address)).await {
                Ok(connected) => connected,
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to the dial")),
            }
        };
        Connection::new(Socket::Dialling(Box::pin(dial)), Stage::Dialling, signal)
    }

    pub fn accepted(stream: TcpStream, signal: Arc<Signal>) -> Connection {
        Connection::new(Socket::Open(stream), Stage::Open, signal)
    }

    pub fn client(stream: TcpStream, signal: Arc<Signal>) -> Connection {
        Connection { client: true, slows: true, ..Connection::accepted(stream, signal) }
    }

    fn new(socket: Socket, stage: Stage, signal: Arc<Signal>) -> Connection {
        Connection {
            waker: Waker::from(signal.clone()),
            signal,
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
            stage,
            dirty: false,
            client: false,
            socket,
            slows: false,
            full: false,
            paused: false,
            behind: false,
            ended: false,
            left: 0,
            stuck_looks: 0,
            passed: 0,
        }
    }

    /// Dials on, or reads what is there, only little of it if memory is short. An error is the end.
    pub fn advance(&mut self, short: bool) -> Result<Option<Advance>, String> {
        let mut context = Context::from_waker(&self.waker);
        match &mut self.socket {
            Socket::Dialling(dialling) => match dialling.as_mut().poll(&mut context) {
                Poll::Pending => Ok(None),
                Poll::Ready(Err(error)) => Err(error.to_string()),
                Poll::Ready(Ok(stream)) => {
                    prepare(&stream, UNACKNOWLEDGED_MAX).map_err(|error| error.to_string())?;
                    self.socket = Socket::Open(stream);
                    self.stage = Stage::Open;
                    // Nothing is registered with the new socket yet: look again.
                    self.signal.raise();
                    Ok(Some(Advance::Dialled))
                }
            },
            Socket::Open(_) => self.read(if short { SHORT_BYTES_PER_TURN } else { BYTES_PER_TURN }),
        }
    }

    fn read(&mut self, bytes_max: usize) -> Result<Option<Advance>, String> {
        if self.stage == Stage::Leaving || self.paused {
            return Ok(None);
        }
        if self.has_much_unread() {
            self.full = true;
            return Ok(None);
        }
        if self.behind {
            return Ok(Some(Advance::Read));
        }
        let Socket::Open(stream) = &mut self.socket else { return Ok(None) };
        if self.ended {
            return Ok(None);
        }
        let mut context = Context::from_waker(&self.waker);
        let before = self.inbox.len();
        // What is left over from before is looked at again though nothing new came.
        let mut read = before > 0;
        while self.inbox.len() - before < bytes_max {
            if self.inbox.capacity() - self.inbox.len() < SPARE_BYTES_MIN {
                self.inbox.reserve(READ_BYTES);
            }
            match pin!(stream.read_buf(&mut self.inbox)).poll(&mut context) {
                Poll::Pending => {
                    if !read {
                        // An idle connection keeps no buffer.
                        self.inbox = BytesMut::new();
                    }
                    return Ok(read.then_some(Advance::Read));
                }
                Poll::Ready(Ok(0)) if self.inbox.len() > before => {
                    // First what came before the end.
                    self.signal.raise();
                    return Ok(Some(Advance::Read));
                }
                Poll::Ready(Ok(0)) => {
                    self.ended = true;
                    return Ok(Some(Advance::Ended));
                }
                Poll::Ready(Ok(_)) => read = true,
                Poll::Ready(Err(error)) => return Err(error.to_string()),
            }
        }
        self.signal.raise();
        Ok(Some(Advance::Read))
    }

    /// Writes until all is written or the socket is full; then the waker is registered.
    pub fn flush(&mut self) -> io::Result<()> {
        let Socket::Open(stream) = &mut self.socket else { return Ok(()) };
        let mut context = Context::from_waker(&self.waker);
        let before = self.outbox.len();
        while !self.outbox.is_empty() {
            match Pin::new(&mut *stream).poll_write(&mut context, &self.outbox) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(count)) if count == self.outbox.len() => self.outbox.clear(),
                Poll::Ready(Ok(count)) => {
                    self.outbox.advance(count);
                    self.passed += count;
                }
            }
        }
        self.left = self.outbox.len();
        if self.left == 0 && self.passed + self.outbox.capacity() > KEEP_BYTES {
            self.outbox = BytesMut::new();
            self.passed = 0;
        } else if self.passed > KEEP_BYTES && self.left < self.passed / 4 {
            // The rest does not hold on to the memory of all that was there.
            self.outbox = BytesMut::from(&self.outbox[..]);
            self.passed = 0;
        }
        if self.left < before {
            self.stuck_looks = 0;
        }
        // One that is slowed down got no more than it was asked for before: it may read as slowly as it wants.
        if self.outbox.len() > OUT_BYTES_MAX && !self.slows {
            return Err(io::Error::other("the other side does not read"));
        }
        if self.full && self.outbox.len() <= OUT_BYTES_PAUSE {
            self.full = false;
            self.signal.raise();
        }
        if self.behind && self.left < before {
            self.signal.raise();
        }
        Ok(())
    }

    pub fn pause(&mut self, paused: bool) {
        if self.paused && !paused {
            self.signal.raise();
        }
        self.paused = paused;
    }

    pub fn fall_behind(&mut self, behind: bool) {
        if self.behind && !behind {
            // Nobody has asked the socket to tell of more.
            self.signal.raise();
        }
        self.behind = behind;
    }

    /// What comes is read: nothing has to wait for it.
    pub fn is_read(&self) -> bool {
        self.stage == Stage::Open && !self.paused && !self.behind && !self.has_much_unread()
    }

    fn has_much_unread(&self) -> bool {
        self.slows && self.outbox.len() > OUT_BYTES_PAUSE
    }

    /// From now on it is not read while its answers pile up.
    pub fn slow(&mut self) {
        self.slows = true;
    }

    pub fn has_output(&self) -> bool {
        !self.outbox.is_empty()
    }
}

const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

/// Bytes taken from one connection before the others have their turn.
const BYTES_PER_TURN: usize = 256 * 1024;

/// The same from a client while memory is short: as much as each may have sent then.
const SHORT_BYTES_PER_TURN: usize = 64 * 1024;

/// Room made for a read when less than [`SPARE_BYTES_MIN`] is left. Enough for a hundred small requests.
const READ_BYTES: usize = 32 * 1024;
const SPARE_BYTES_MIN: usize = 4 * 1024;

/// Bytes waiting to be sent beyond which nothing more is read: a client that does not read its replies slows
/// itself down, and costs no more memory than this and what its last requests led to.
const OUT_BYTES_PAUSE: usize = 1024 * 1024;

/// Bytes waiting to be sent beyond which a connection is given up. A node of the store that does not read so long is
/// as good as lost, and gets what it needs when it is back.
const OUT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Memory an empty outbox keeps for the next turn.
const KEEP_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReadyList, Token};
    use kumo_session::ConnectionId;

    #[test]
    fn who_is_slowed_is_never_cut_and_a_node_that_does_not_read_is() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let flushed = |make: fn(TcpStream, Arc<Signal>) -> Connection| {
                let _deaf = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (stream, _) = listener.accept().unwrap();
                stream.set_nonblocking(true).unwrap();
                let signal = Signal::new(Token::Arrival(ConnectionId(1)), &Arc::new(ReadyList::default()));
                let mut connection = make(TcpStream::from_std(stream).unwrap(), signal);
                // More than a kernel takes at once.
                connection.outbox = BytesMut::zeroed(OUT_BYTES_MAX + (64 << 20));
                connection.flush()
            };
            assert!(flushed(Connection::client).is_ok());
            assert!(flushed(Connection::accepted).is_err());
        });
    }
}
