//! [`Arrival`]: one connection that someone else opened, from its greeting to its end.

use super::greeting;
use super::inbox::Inbox;
use super::outbox::Outbox;
use crate::house::HouseInput;
use bytes::Bytes;
use kumo_link::Signal;
use kumo_paxos::{Envelope, FRAME_BYTES_MAX, Hello, Incarnation, Side, Time};
use kumo_session::{
    Application, CLIENT_FRAME_BYTES_MAX, Cell, CellMessage, ClientMessage, ConnectionId, Greeting, Input,
};
use kumo_wire::Wire;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

/// A connection that arrived.
pub struct Arrival {
    pub from: SocketAddr,
    pub stage: Stage,
    pub signal: Arc<Signal>,
    /// In this turn's list of connections to flush.
    pub dirty: bool,
    /// In the list of those that must not stop inside a frame.
    pub watched: bool,
    /// When bytes last came.
    heard: Time,
    waker: Waker,
    stream: TcpStream,
    inbox: Inbox,
    outbox: Outbox,
    /// Not read because its replies pile up.
    paused: bool,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is known of it yet.
    Greeting,
    /// A replica that dialled us: only read from.
    Replica {
        address: SocketAddr,
        incarnation: Incarnation,
    },
    Client,
    /// Of the store: a server, a gateway, a tool.
    House,
    /// To be closed after what was sent to it.
    Leaving,
    /// All is sent. What still arrives is thrown away: closing on unread bytes would reset the connection, and the
    /// other side might never see why it was refused.
    Lingering,
}

/// Why a connection does not go on.
#[derive(Debug)]
pub enum Ending {
    /// It is gone.
    Gone,
    /// It broke a rule; the reason is for its sender and for the log.
    Refused(String),
}

impl From<io::Error> for Ending {
    fn from(_: io::Error) -> Ending {
        Ending::Gone
    }
}

impl Arrival {
    pub fn new(now: Time, stream: TcpStream, from: SocketAddr, signal: Arc<Signal>) -> Arrival {
        let waker = Waker::from(signal.clone());
        Arrival {
            from,
            stage: Stage::Greeting,
            signal,
            dirty: false,
            watched: false,
            heard: now,
            waker,
            stream,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            paused: false,
        }
    }

    /// Reads what is there, within one connection's share of a turn, into `inputs`. Returns the bytes read.
    pub fn read<A: Application>(
        &mut self,
        now: Time,
        id: ConnectionId,
        cell: &Cell<A>,
        inputs: &mut Vec<Input>,
        house: &mut Porch,
    ) -> Result<usize, Ending> {
        if self.outbox.len() > OUT_BYTES_PAUSE {
            self.paused = true;
            return Ok(0);
        }
        let mut frames = 0;
        let mut bytes = 0;
        loop {
            while self.frame(id, cell, inputs, house)? {
                frames += 1;
                if frames == self.frames_per_turn() {
                    self.signal.raise();
                    return Ok(bytes);
                }
            }
            if bytes >= BYTES_PER_TURN {
                self.signal.raise();
                return Ok(bytes);
            }
            match self.inbox.fill(&mut self.stream, &mut Context::from_waker(&self.waker)) {
                Poll::Pending => return Ok(bytes),
                Poll::Ready(Ok(0)) => return Err(Ending::Gone),
                Poll::Ready(Ok(count)) => {
                    self.heard = now;
                    bytes += count;
                }
                Poll::Ready(Err(error)) => return Err(error.into()),
            }
        }
    }

    /// Takes one frame, if a whole one is there.
    fn frame<A: Application>(
        &mut self,
        id: ConnectionId,
        cell: &Cell<A>,
        inputs: &mut Vec<Input>,
        house: &mut Porch,
    ) -> Result<bool, Ending> {
        match self.stage {
            Stage::Greeting => self.greet(id, cell, inputs, house),
            Stage::Replica { address, incarnation } => self.replica_frame(address, incarnation, inputs),
            Stage::Client => self.client_frame(id, inputs),
            Stage::House => {
                let malformed = |error| Ending::Refused(format!("bad message: {error}"));
                let Some(body) = self.inbox.take(HOUSE_FRAME_BYTES_MAX).map_err(malformed)? else {
                    return Ok(false);
                };
                house.arrived.push(HouseInput::Frame(id, body));
                Ok(true)
            }
            Stage::Leaving | Stage::Lingering => {
                self.inbox.discard();
                Ok(false)
            }
        }
    }

    fn greet<A: Application>(
        &mut self,
        id: ConnectionId,
        cell: &Cell<A>,
        inputs: &mut Vec<Input>,
        house: &mut Porch,
    ) -> Result<bool, Ending> {
        let hello = match greeting::take(&mut self.inbox).map_err(Ending::Refused)? {
            None => return Ok(false),
            Some(Greeting::Hello(hello)) => hello,
            Some(Greeting::Refused { .. }) => {
                return Err(Ending::Refused("a refusal is no greeting".to_owned()));
            }
        };
        greeting::judge(&hello, cell).map_err(Ending::Refused)?;
        let of_store = matches!(hello.side, Side::Server | Side::Gateway | Side::Tool);
        if of_store && !house.open {
            return Err(Ending::Refused("this cell manages no store".to_owned()));
        }
        self.outbox.put(&Greeting::Hello(cell.hello()));
        self.welcome(id, &hello, inputs, house);
        Ok(true)
    }

    fn welcome(&mut self, id: ConnectionId, hello: &Hello, inputs: &mut Vec<Input>, house: &mut Porch) {
        self.stage = match hello.side {
            Side::Replica | Side::Extension => {
                Stage::Replica { address: hello.address, incarnation: hello.incarnation }
            }
            Side::Client => {
                inputs.push(Input::ClientUp(id));
                Stage::Client
            }
            Side::Server | Side::Gateway | Side::Tool => {
                house.arrived.push(HouseInput::Up(id, hello.clone()));
                Stage::House
            }
        };
    }

    fn replica_frame(
        &mut self,
        address: SocketAddr,
        incarnation: Incarnation,
        inputs: &mut Vec<Input>,
    ) -> Result<bool, Ending> {
        let malformed = |error| Ending::Refused(format!("bad message from a replica: {error}"));
        let Some(body) = self.inbox.take(FRAME_BYTES_MAX).map_err(malformed)? else { return Ok(false) };
        let envelope = Envelope::from_bytes(body).map_err(malformed)?;
        if envelope.from != address || envelope.sender != incarnation {
            return Err(Ending::Refused("a message in another replica's name".to_owned()));
        }
        inputs.push(Input::Peer(envelope));
        Ok(true)
    }

    fn client_frame(&mut self, id: ConnectionId, inputs: &mut Vec<Input>) -> Result<bool, Ending> {
        let malformed = |error| Ending::Refused(format!("bad message: {error}"));
        let Some(body) = self.inbox.take(CLIENT_FRAME_BYTES_MAX).map_err(malformed)? else {
            return Ok(false);
        };
        inputs.push(Input::Client(id, ClientMessage::from_bytes(body).map_err(malformed)?));
        Ok(true)
    }

    /// False: it does not read its replies; cut it off.
    #[must_use]
    pub fn send(&mut self, message: &CellMessage) -> bool {
        if self.outbox.len() > OUT_BYTES_MAX {
            return false;
        }
        self.outbox.put(message);
        true
    }

    /// As [`Arrival::send`], for one of the house; the body of a frame is made already.
    #[must_use]
    pub fn send_body(&mut self, body: &Bytes) -> bool {
        if self.outbox.len() > OUT_BYTES_MAX {
            return false;
        }
        self.outbox.put_body(body);
        true
    }

    /// Tells the other side why this is the end, in the words it understands at this stage.
    pub fn refuse(&mut self, reason: String) {
        match self.stage {
            Stage::Greeting => self.outbox.put(&Greeting::Refused { reason }),
            Stage::Client => self.outbox.put(&CellMessage::Refused { reason }),
            // A replica does not read on this connection.
            Stage::Replica { .. } | Stage::House | Stage::Leaving | Stage::Lingering => {}
        }
        self.stage = Stage::Leaving;
    }

    /// Writes what waits.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut context = Context::from_waker(&self.waker);
        self.outbox.flush(&mut self.stream, &mut context)?;
        if self.paused && self.outbox.len() <= OUT_BYTES_PAUSE {
            self.paused = false;
            self.signal.raise();
        }
        if self.stage == Stage::Leaving && self.outbox.is_empty() {
            // On a socket this takes effect at once.
            let _ = Pin::new(&mut self.stream).poll_shutdown(&mut context)?;
            self.stage = Stage::Lingering;
        }
        Ok(())
    }

    /// Whether the rest of a frame is waited for.
    pub fn is_inside_frame(&self) -> bool {
        match self.stage {
            Stage::Replica { .. } | Stage::Client | Stage::House => self.inbox.is_inside_frame(),
            // These have time limits of their own.
            Stage::Greeting | Stage::Leaving | Stage::Lingering => false,
        }
    }

    /// Whether nothing has come since then, though it was looked for.
    pub fn is_silent_since(&self, then: Time) -> bool {
        !self.paused && self.heard <= then
    }

    fn frames_per_turn(&self) -> usize {
        match self.stage {
            Stage::Replica { .. } => REPLICA_FRAMES_PER_TURN,
            Stage::Greeting | Stage::Client | Stage::House | Stage::Leaving | Stage::Lingering => {
                FRAMES_PER_TURN
            }
        }
    }

    pub fn has_output(&self) -> bool {
        !self.outbox.is_empty()
    }
}

/// What the house's connections bring, until it looks.
#[derive(Debug, Default)]
pub struct Porch {
    /// There is a house.
    pub open: bool,
    pub arrived: Vec<HouseInput>,
}

/// The largest frame of a server, gateway or tool to a manager: a space of the largest cluster, with room.
const HOUSE_FRAME_BYTES_MAX: usize = 1024 * 1024;

/// Frames and bytes taken from one connection before the others have their turn.
const FRAMES_PER_TURN: usize = 32;
const REPLICA_FRAMES_PER_TURN: usize = 256;
const BYTES_PER_TURN: usize = 512 * 1024;

/// Replies waiting for a client beyond which its requests are not read: it slows itself down.
const OUT_BYTES_PAUSE: usize = 1024 * 1024;

/// Replies waiting for a client beyond which it is cut off. The largest replies to one turn's requests fit, so
/// only what comes unasked for (events, answers to parked requests) to one that does not read reaches it.
const OUT_BYTES_MAX: usize = 256 * 1024 * 1024;
