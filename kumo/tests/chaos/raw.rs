//! [`Raw`]: a connection to a replica on which a test says what it likes.

use bytes::{Bytes, BytesMut};
use kumo_paxos::{CellId, Hello, Incarnation, Instance, MAGIC, Side, Status, VERSION};
use kumo_session::{CLIENT_FRAME_BYTES_MAX, CellMessage, ClientMessage, Greeting, Label, SessionId};
use kumo_wire::{Wire, Writer, frame};
use pfs::Query;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub struct Raw {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Raw {
    pub fn connect(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT).unwrap();
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream, buffer: BytesMut::new() }
    }

    /// A connection after hellos, as a client's.
    pub fn client(address: SocketAddr) -> Raw {
        let mut raw = Raw::connect(address);
        raw.send(&Greeting::Hello(hello()));
        match raw.receive() {
            Some(Greeting::Hello(_)) => raw,
            other => panic!("no hello from {address}: {other:?}"),
        }
    }

    /// As the other side's log calls this connection.
    pub fn local(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }

    pub fn send<T: Wire>(&mut self, value: &T) {
        let mut out = Writer::default();
        frame::put(value, &mut out);
        self.send_bytes(&out.into_bytes());
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        // An error means that the other side has hung up already; what it said before can still be read.
        let _ = self.stream.write_all(bytes);
    }

    /// The next frame; `None` at the end of the connection.
    pub fn receive<T: Wire>(&mut self) -> Option<T> {
        loop {
            if let Some(body) = frame::take(&mut self.buffer, CLIENT_FRAME_BYTES_MAX).unwrap() {
                return Some(T::from_bytes(body).unwrap());
            }
            let mut bytes = [0; 16 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// Why the greeting was refused; the connection must end after that.
    pub fn refused_greeting(&mut self) -> String {
        let answer = self.receive();
        let Some(Greeting::Refused { reason }) = answer else { panic!("no refusal but {answer:?}") };
        assert_eq!(self.receive::<Greeting>(), None, "closed after a refusal");
        reason
    }

    /// Why a client is thrown out; the connection must end after that.
    pub fn refused(&mut self) -> String {
        let reason = loop {
            match self.receive() {
                Some(CellMessage::Refused { reason }) => break reason,
                Some(CellMessage::Master { .. }) => {}
                other => panic!("no refusal but {other:?}"),
            }
        };
        assert_eq!(self.receive::<CellMessage>(), None, "closed after a refusal");
        reason
    }

    /// Opens a session at the master, and keeps it to this connection.
    pub fn open(&mut self, token: u128) -> SessionId {
        self.send(&ClientMessage::Open { token, label: Label::default() });
        loop {
            match self.receive() {
                Some(CellMessage::Opened { session, .. }) => return session,
                Some(CellMessage::Master { .. }) => {}
                other => panic!("not opened: {other:?}"),
            }
        }
    }

    /// Puts a linear read on the way. The answer is another matter.
    pub fn ask_linear(&mut self, session: SessionId, tag: u64, path: &str) {
        let query = Query::Read { path: path.to_owned(), offset: 0, length: 1024 }.to_bytes();
        self.send(&ClientMessage::Read { session, tag, after: Instance(0), linear: true, query });
    }

    /// The answer to that read, or `None` when the replica says that it is not the one to ask.
    pub fn linear_answer(&mut self, wanted: u64) -> Option<Bytes> {
        loop {
            match self.receive() {
                Some(CellMessage::Answer { tag, body, .. }) if tag == wanted => {
                    let pfs::Reply::Data { bytes, .. } = pfs::Reply::from_bytes(body).unwrap() else {
                        panic!("the file is there")
                    };
                    return Some(bytes);
                }
                Some(CellMessage::Master { .. }) => return None,
                Some(_) => {}
                None => return None,
            }
        }
    }
}

/// What this one replica itself says about the cell. `None`: it does not answer.
pub fn status(address: SocketAddr) -> Option<Status> {
    let mut raw = quick(address)?;
    raw.send(&Greeting::Hello(hello()));
    raw.send(&ClientMessage::Status { tag: 1 });
    let _: Greeting = raw.try_receive()?;
    loop {
        if let CellMessage::Status { status, .. } = raw.try_receive()? {
            return Some(status);
        }
    }
}

/// Whose memory the process at that address has. `None`: no process answers there.
pub fn incarnation(address: SocketAddr) -> Option<Incarnation> {
    let mut raw = quick(address)?;
    raw.send(&Greeting::Hello(hello()));
    match raw.try_receive()? {
        Greeting::Hello(hello) => Some(hello.incarnation),
        Greeting::Refused { .. } => None,
    }
}

/// A connection for a question that is asked again if it is not answered soon.
fn quick(address: SocketAddr) -> Option<Raw> {
    let stream = TcpStream::connect_timeout(&address, QUICK_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(QUICK_TIMEOUT)).ok()?;
    Some(Raw { stream, buffer: BytesMut::new() })
}

impl Raw {
    fn try_receive<T: Wire>(&mut self) -> Option<T> {
        loop {
            if let Some(body) = frame::take(&mut self.buffer, CLIENT_FRAME_BYTES_MAX).ok()? {
                return T::from_bytes(body).ok();
            }
            let mut bytes = [0; 16 * 1024];
            let count = self.stream.read(&mut bytes).ok().filter(|&count| count > 0)?;
            self.buffer.extend_from_slice(&bytes[..count]);
        }
    }
}

/// A client's hello.
pub fn hello() -> Hello {
    Hello {
        magic: MAGIC,
        version: VERSION,
        cell: CellId(0),
        generation: 0,
        side: Side::Client,
        address: SocketAddr::from(([127, 0, 0, 1], 1)),
        incarnation: Incarnation(0),
    }
}

/// Longer than a replica may take to lose patience with us.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const QUICK_TIMEOUT: Duration = Duration::from_secs(2);
