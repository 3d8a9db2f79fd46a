//! [`Connection`]: one framed connection to a member, polled by the driver.

use crate::clock;
use crate::transport::{Stream, Transport};
use bytes::{Buf, BytesMut};
use kumo_paxos::{CellId, Hello, Incarnation, MAGIC, Side, Time, VERSION};
use kumo_session::{CLIENT_FRAME_BYTES_MAX, CellMessage, ClientMessage, GREETING_BYTES_MAX, Greeting};
use kumo_wire::{Wire, Writer, frame};
use std::future::Future;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A connection that is being made, or is up. Every error is the sentence to show for it.
pub(crate) enum Connection {
    Dialling(Pin<Box<dyn Future<Output = Result<Link, String>> + Send>>),
    Up(Link),
}

/// What a connection has to tell.
pub(crate) enum Progress {
    /// Hellos were exchanged, with a replica of this cell.
    Up(CellId),
    /// Messages were added.
    Messages,
    Gone(String),
}

impl Connection {
    pub(crate) fn dial(address: SocketAddr, transport: Arc<dyn Transport>) -> Connection {
        Connection::Dialling(Box::pin(dial(address, transport)))
    }

    /// Takes what arrived. Pending: nothing now.
    pub(crate) fn poll_input(&mut self, cx: &mut Context, messages: &mut Vec<CellMessage>) -> Poll<Progress> {
        match self {
            Connection::Dialling(dialling) => match dialling.as_mut().poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(reason)) => Poll::Ready(Progress::Gone(reason)),
                Poll::Ready(Ok(link)) => {
                    let cell = link.cell;
                    *self = Connection::Up(link);
                    Poll::Ready(Progress::Up(cell))
                }
            },
            Connection::Up(link) => link.poll_input(cx, messages),
        }
    }

    /// Writes what is queued, as far as the socket takes it. An error: the connection is gone.
    pub(crate) fn poll_output(&mut self, cx: &mut Context) -> Result<(), String> {
        match self {
            Connection::Dialling(_) => Ok(()),
            Connection::Up(link) => link.poll_output(cx),
        }
    }

    /// Whether hellos were exchanged.
    pub(crate) fn is_up(&self) -> bool {
        match self {
            Connection::Dialling(_) => false,
            Connection::Up(_) => true,
        }
    }

    /// Queues a message. Dropped while the connection is not up: what matters is sent again. So is what was sent over it
    /// before, while it is busy: on a slow line a large request, or reply, would be on its way several times over.
    pub(crate) fn send(&mut self, message: &ClientMessage) {
        if let Connection::Up(link) = self
            && !(link.is_repeated(message) && link.is_busy())
        {
            let was_busy = link.is_busy();
            frame::put(message, &mut link.output);
            if link.is_busy() {
                link.note_large(was_busy);
            }
        }
    }

    /// Whether something large was on its way over it, and no renewal sent since was answered over it.
    pub(crate) fn is_held_up(&self) -> bool {
        match self {
            Connection::Dialling(_) => false,
            Connection::Up(link) => link.large.is_some(),
        }
    }
}

/// A connection with hellos exchanged.
pub(crate) struct Link {
    stream: Box<dyn Stream>,
    cell: CellId,
    input: BytesMut,
    output: Writer,
    /// When bytes last went over it, in either direction.
    moved: Time,
    /// When something large was last seen on its way over it. An answer to what was sent later tells that it is through:
    /// of what the kernel holds, nothing else does.
    large: Option<Time>,
    /// The newest request, and the newest read, that was sent over it.
    request: u64,
    read: u64,
}

impl Link {
    /// Whether a request or a read was sent over this connection before. Their numbers grow.
    fn is_repeated(&mut self, message: &ClientMessage) -> bool {
        let (newest, number) = match message {
            ClientMessage::Request { number, .. } => (&mut self.request, *number),
            ClientMessage::Read { tag, .. } => (&mut self.read, *tag),
            ClientMessage::Open { .. }
            | ClientMessage::Attach { .. }
            | ClientMessage::Renew { .. }
            | ClientMessage::Events { .. }
            | ClientMessage::Who
            | ClientMessage::Status { .. }
            | ClientMessage::Sessions { .. }
            | ClientMessage::Change { .. }
            | ClientMessage::Transfer { .. }
            | ClientMessage::Snapshot { .. } => return false,
        };
        let repeated = number <= *newest;
        *newest = number.max(*newest);
        repeated
    }

    /// Whether something large is on its way, in either direction.
    fn is_busy(&self) -> bool {
        let missing = frame::missing(&self.input);
        self.output.len() > LARGE_BYTES || missing > 0 && self.input.len() + missing > LARGE_BYTES
    }

    fn note_large(&mut self, was_busy: bool) {
        let now = clock::now();
        self.large = Some(now);
        if !was_busy {
            // What stood still so far was nothing.
            self.moved = now;
        }
    }

    fn poll_input(&mut self, cx: &mut Context, messages: &mut Vec<CellMessage>) -> Poll<Progress> {
        loop {
            match self.take_frames(messages) {
                Ok(0) => {}
                Ok(_) => return Poll::Ready(Progress::Messages),
                Err(reason) => return Poll::Ready(Progress::Gone(reason)),
            }
            // The rest of a large answer has its room already: more would move what is here of it.
            let spare = self.input.capacity() - self.input.len();
            if spare == 0 || self.input.len() < READ_BYTES_MIN || frame::missing(&self.input) == 0 {
                self.input.reserve(READ_BYTES_MIN);
            }
            // The future keeps nothing between polls, so making it anew each time loses nothing.
            match pin!(self.stream.read_buf(&mut self.input)).poll(cx) {
                Poll::Pending => {
                    if self.is_busy() {
                        self.large = Some(clock::now());
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Progress::Gone("connection closed".to_owned())),
                Poll::Ready(Ok(_)) => self.moved = clock::now(),
                Poll::Ready(Err(error)) => return Poll::Ready(Progress::Gone(error.to_string())),
            }
        }
    }

    fn take_frames(&mut self, messages: &mut Vec<CellMessage>) -> Result<usize, String> {
        let before = messages.len();
        while let Some(body) =
            frame::take(&mut self.input, CLIENT_FRAME_BYTES_MAX).map_err(|error| error.to_string())?
        {
            let message = CellMessage::from_bytes(body).map_err(|error| error.to_string())?;
            if let CellMessage::Renewed { sent, .. } = message {
                self.large.take_if(|large| large.0 < sent);
            }
            messages.push(message);
        }
        Ok(messages.len() - before)
    }

    fn poll_output(&mut self, cx: &mut Context) -> Result<(), String> {
        while self.output.has_remaining() {
            match self.write(cx) {
                Poll::Pending if self.output.len() > BACKLOG_BYTES_MAX => {
                    return Err("the member does not read what is sent to it".to_owned());
                }
                Poll::Pending => return self.check(clock::now()),
                Poll::Ready(Ok(0)) => return Err("connection closed".to_owned()),
                Poll::Ready(Ok(count)) => {
                    self.moved = clock::now();
                    self.output.advance(count);
                }
                Poll::Ready(Err(error)) => return Err(error.to_string()),
            }
        }
        self.output.reset(BUFFER_BYTES_KEPT);
        self.check(clock::now())
    }

    /// What is large may take its time, but it must move: the rest of it might never come.
    fn check(&self, now: Time) -> Result<(), String> {
        if self.is_busy() && now.since(self.moved) > STILL_MICROS_MAX {
            return Err("the member stands still half-way".to_owned());
        }
        Ok(())
    }

    /// One write call: for all of it, wherever its parts are.
    fn write(&mut self, cx: &mut Context) -> Poll<std::io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        let first = self.output.chunk();
        if first.len() == self.output.len() {
            return stream.poll_write(cx, first);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = self.output.chunks_vectored(&mut slices);
        stream.poll_write_vectored(cx, &slices[..count])
    }
}

async fn dial(address: SocketAddr, transport: Arc<dyn Transport>) -> Result<Link, String> {
    match tokio::time::timeout(DIAL_TIMEOUT, greet(address, transport)).await {
        Ok(result) => result,
        Err(_) => Err("no answer".to_owned()),
    }
}

async fn greet(address: SocketAddr, transport: Arc<dyn Transport>) -> Result<Link, String> {
    let line = transport.connect(address).await.map_err(|error| error.to_string())?;
    let mut stream = line.stream;
    let mut output = Writer::default();
    frame::put(&Greeting::Hello(hello(line.local)), &mut output);
    stream.write_all_buf(&mut output).await.map_err(|error| error.to_string())?;
    let mut input = BytesMut::with_capacity(READ_BYTES_MIN);
    let body = loop {
        if let Some(body) =
            frame::take(&mut input, GREETING_BYTES_MAX).map_err(|_| "not a kumo cell".to_owned())?
        {
            break body;
        }
        if stream.read_buf(&mut input).await.map_err(|error| error.to_string())? == 0 {
            return Err("connection closed".to_owned());
        }
    };
    let greeting = Greeting::from_bytes(body).map_err(|_| "not a kumo cell".to_owned())?;
    let (cell, itself) = check(greeting)?;
    transport.met(address, itself);
    Ok(Link { stream, cell, input, output, large: None, moved: clock::now(), request: 0, read: 0 })
}

fn hello(local: SocketAddr) -> Hello {
    Hello {
        magic: MAGIC,
        version: VERSION,
        cell: CellId::default(),
        generation: 0,
        side: Side::Client,
        address: local,
        incarnation: Incarnation::default(),
    }
}

fn check(greeting: Greeting) -> Result<(CellId, SocketAddr), String> {
    match greeting {
        Greeting::Refused { reason } => Err(reason),
        Greeting::Hello(hello) if hello.magic != MAGIC => Err("not a kumo cell".to_owned()),
        Greeting::Hello(hello) if hello.version != VERSION => {
            Err(format!("speaks version {}, this is version {VERSION}", hello.version))
        }
        Greeting::Hello(hello) => match hello.side {
            Side::Replica | Side::Extension => Ok((hello.cell, hello.address)),
            Side::Client | Side::Server | Side::Gateway | Side::Tool => {
                Err("not a member of a cell".to_owned())
            }
        },
    }
}

/// A member that does not shake hands within this is tried again later.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Room for a read call: many small replies at once.
const READ_BYTES_MIN: usize = 16 * 1024;

/// Output not taken by the member. Two of the largest requests fit; beyond, the connection is given up and what
/// matters is sent again elsewhere.
const BACKLOG_BYTES_MAX: usize = 2 * CLIENT_FRAME_BYTES_MAX;

/// How long a large message may stand still. Renewals may go beside it, so nothing else would end it.
const STILL_MICROS_MAX: u64 = 60_000_000;

/// What takes its time on a slow line.
const LARGE_BYTES: usize = 256 * 1024;

/// A buffer that grew beyond this for a burst of requests is given back.
const BUFFER_BYTES_KEPT: usize = 256 * 1024;

/// Parts that one write call takes: a few large requests, and what stands between them.
const SLICES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Link {
        let (stream, _) = tokio::io::duplex(1);
        let (input, output) = (BytesMut::new(), Writer::default());
        Link {
            stream: Box::new(stream),
            cell: CellId::default(),
            input,
            output,
            large: None,
            moved: Time(7),
            request: 0,
            read: 0,
        }
    }

    #[test]
    fn what_is_large_may_take_its_time_but_not_stand_still() {
        let mut link = link();
        let late = link.moved.plus_micros(STILL_MICROS_MAX + 1);
        assert_eq!(link.check(late), Ok(()));
        // The beginning of a large answer.
        link.input.extend_from_slice(&(LARGE_BYTES as u32 * 2).to_le_bytes());
        assert!(link.check(late).is_err());
        link.moved = late;
        assert_eq!(link.check(late), Ok(()));
    }

    #[test]
    fn nothing_is_repeated_on_a_line_that_is_busy() {
        let read = |tag| {
            let session = kumo_session::SessionId(1);
            let (after, query) = (kumo_paxos::Instance(0), bytes::Bytes::new());
            ClientMessage::Read { session, tag, after, linear: true, query }
        };
        let mut connection = Connection::Up(link());
        let mut sent = |tag, busy: bool| {
            let Connection::Up(link) = &mut connection else { unreachable!("it is up") };
            link.input.clear();
            if busy {
                link.input.extend_from_slice(&(LARGE_BYTES as u32 * 2).to_le_bytes());
            }
            let before = link.output.len();
            connection.send(&read(tag));
            let Connection::Up(link) = &connection else { unreachable!("it is up") };
            link.output.len() > before
        };
        assert!(sent(1, false) && sent(1, false));
        assert!(sent(2, true) && !sent(2, true) && !sent(1, true));
        assert!(sent(2, false));
    }
}
