//! [`Link`]: the connection this node keeps to one peer, dialled again whenever it breaks.

use super::greeting;
use super::inbox::Inbox;
use super::outbox::Lanes;
use kumo_link::Signal;
use kumo_link::prepare;
use kumo_paxos::{Envelope, Hello, Message, Time};
use kumo_session::{Application, Cell, Greeting, Input};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::net::TcpStream;
use tracing::{info, warn};

/// A link to one peer. Messages go out on it; only the greeting comes back.
pub struct Link {
    pub address: SocketAddr,
    pub lane: Lane,
    pub signal: Arc<Signal>,
    /// In this turn's list of links to flush.
    pub dirty: bool,
    waker: Waker,
    state: State,
    /// Dials in a row that led to nothing.
    failures: u32,
    /// Why the last dial led to nothing. Said once, not at every dial.
    reason: Option<String>,
    unit_micros: u64,
}

/// What a link carries. Large values go over a connection of their own: in one stream what is small would wait for
/// everything that the kernels on both sides hold, and for the peer to work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// All messages while there is no other link, and what is not bulk. While it is up, the peer is.
    Main,
    /// Kept while the main link is up.
    Bulk,
}

type Dialling = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

enum State {
    /// Not wanted now.
    Resting,
    Waiting {
        until: Time,
    },
    Dialling {
        dialling: Dialling,
        until: Time,
    },
    Greeting {
        connection: Connection,
        until: Time,
    },
    Up {
        connection: Connection,
    },
}

struct Connection {
    stream: TcpStream,
    inbox: Inbox,
    lanes: Lanes,
}

impl Link {
    pub fn new(now: Time, address: SocketAddr, lane: Lane, signal: Arc<Signal>, unit_micros: u64) -> Link {
        let waker = Waker::from(signal.clone());
        let state = match lane {
            Lane::Main => State::Waiting { until: now },
            Lane::Bulk => State::Resting,
        };
        signal.raise();
        Link { address, lane, signal, dirty: false, waker, state, failures: 0, reason: None, unit_micros }
    }

    /// Goes as far as it can: dials when it is time, greets, notices the end. `jitter` is any number.
    pub fn advance<A: Application>(
        &mut self,
        now: Time,
        cell: &Cell<A>,
        jitter: u64,
        inputs: &mut Vec<Input>,
    ) {
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        loop {
            let stepped = match &mut self.state {
                State::Resting => return,
                State::Waiting { until } if *until > now => return,
                State::Waiting { .. } => {
                    let dialling = Box::pin(TcpStream::connect(self.address));
                    self.state = State::Dialling { dialling, until: now.plus_micros(GREETING_MICROS) };
                    Ok(())
                }
                State::Dialling { dialling, until } => match dialling.as_mut().poll(&mut context) {
                    Poll::Pending if *until > now => return,
                    Poll::Pending => Err("no answer to the dial".to_owned()),
                    Poll::Ready(Err(error)) => Err(error.to_string()),
                    Poll::Ready(Ok(stream)) => self.greet(now, stream, cell, &mut context),
                },
                State::Greeting { connection, until } => match connection.greeting(&mut context) {
                    Poll::Pending if *until > now => return,
                    Poll::Pending => Err("no greeting".to_owned()),
                    Poll::Ready(Err(reason)) => Err(reason),
                    Poll::Ready(Ok(hello)) => self.greeted(hello, cell, inputs),
                },
                State::Up { connection } => match connection.end(&mut context) {
                    Poll::Pending => return,
                    Poll::Ready(reason) => Err(reason),
                },
            };
            if let Err(reason) = stepped {
                self.fail(now, reason, jitter, inputs);
            }
        }
    }

    /// Says hello over a new connection.
    fn greet<A: Application>(
        &mut self,
        now: Time,
        stream: TcpStream,
        cell: &Cell<A>,
        context: &mut Context,
    ) -> Result<(), String> {
        let patience = Duration::from_micros(self.unit_micros * SILENT_UNITS_MAX).max(SILENT_MIN);
        let fault = |error: io::Error| error.to_string();
        prepare(&stream, patience).map_err(fault)?;
        let mut connection = Connection { stream, inbox: Inbox::default(), lanes: Lanes::default() };
        let room = connection.lanes.put(&Greeting::Hello(cell.hello()));
        debug_assert!(room, "a greeting fits into an empty lane");
        connection.lanes.flush(&mut connection.stream, context).map_err(fault)?;
        self.state = State::Greeting { connection, until: now.plus_micros(GREETING_MICROS) };
        Ok(())
    }

    fn greeted<A: Application>(
        &mut self,
        hello: Hello,
        cell: &Cell<A>,
        inputs: &mut Vec<Input>,
    ) -> Result<(), String> {
        greeting::judge(&hello, cell)?;
        if hello.address != self.address {
            return Err(format!("the process there calls itself {}", hello.address));
        }
        let state = std::mem::replace(&mut self.state, State::Waiting { until: Time::default() });
        let State::Greeting { connection, .. } = state else { unreachable!("greeted while greeting") };
        self.state = State::Up { connection };
        self.failures = 0;
        self.reason = None;
        if self.lane == Lane::Main {
            info!(peer = %self.address, "link up");
            inputs.push(Input::PeerUp(hello));
        }
        Ok(())
    }

    /// Drops what there is of a connection and waits before the next dial.
    fn fail(&mut self, now: Time, reason: String, jitter: u64, inputs: &mut Vec<Input>) {
        match &self.state {
            State::Up { .. } if self.lane == Lane::Main => {
                info!(peer = %self.address, reason, "link down");
                inputs.push(Input::PeerDown(self.address));
            }
            State::Greeting { .. } if self.reason.as_ref() != Some(&reason) => {
                warn!(peer = %self.address, reason, "peer refused");
            }
            State::Resting
            | State::Waiting { .. }
            | State::Dialling { .. }
            | State::Greeting { .. }
            | State::Up { .. } => {
                tracing::debug!(peer = %self.address, lane = ?self.lane, reason, "dial failed");
            }
        }
        self.reason = Some(reason);
        let pause = back_off(self.unit_micros, self.failures, jitter);
        self.failures += 1;
        self.state = State::Waiting { until: now.plus_micros(pause) };
    }

    /// The peer is known to be alive: dial now.
    pub fn hurry(&mut self, now: Time) {
        if let State::Waiting { until } = &mut self.state {
            *until = now;
            self.signal.raise();
        }
    }

    /// The main link is up, or not: so is this one to be.
    pub fn follow(&mut self, now: Time, main_up: bool) {
        match (&self.state, main_up) {
            (State::Resting, true) => {
                self.state = State::Waiting { until: now };
                self.signal.raise();
            }
            (State::Resting, false) => {}
            (
                State::Waiting { .. } | State::Dialling { .. } | State::Greeting { .. } | State::Up { .. },
                up,
            ) => {
                if !up {
                    self.state = State::Resting;
                }
            }
        }
    }

    /// Puts a message on its lane; while the link is not up, messages to it are lost.
    pub fn send(&mut self, now: Time, envelope: &Envelope, jitter: u64, inputs: &mut Vec<Input>) {
        let State::Up { connection } = &mut self.state else { return };
        if is_bulk(&envelope.message) {
            connection.lanes.put_bulk(envelope);
        } else if !connection.lanes.put(envelope) {
            self.fail(now, "does not read what is sent to it".to_owned(), jitter, inputs);
            self.signal.raise();
        }
    }

    pub fn flush(&mut self, now: Time, jitter: u64, inputs: &mut Vec<Input>) {
        let (State::Greeting { connection, .. } | State::Up { connection }) = &mut self.state else { return };
        let mut context = Context::from_waker(&self.waker);
        if let Err(error) = connection.lanes.flush(&mut connection.stream, &mut context) {
            self.fail(now, error.to_string(), jitter, inputs);
        }
    }

    pub fn has_output(&self) -> bool {
        match &self.state {
            State::Resting | State::Waiting { .. } | State::Dialling { .. } => false,
            State::Greeting { connection, .. } | State::Up { connection } => !connection.lanes.is_empty(),
        }
    }

    /// When to call [`advance`](Link::advance) even if the socket does not wake.
    pub fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Waiting { until } | State::Dialling { until, .. } | State::Greeting { until, .. } => {
                Some(*until)
            }
            State::Resting | State::Up { .. } => None,
        }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }
}

impl Connection {
    /// The peer's answer to our hello.
    fn greeting(&mut self, context: &mut Context) -> Poll<Result<Hello, String>> {
        loop {
            match greeting::take(&mut self.inbox) {
                Err(reason) => return Poll::Ready(Err(reason)),
                Ok(Some(Greeting::Hello(hello))) => return Poll::Ready(Ok(hello)),
                Ok(Some(Greeting::Refused { reason })) => return Poll::Ready(Err(reason)),
                Ok(None) => {}
            }
            match self.inbox.fill(&mut self.stream, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Err("closed without a greeting".to_owned())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.to_string())),
            }
        }
    }

    /// Why the connection is over; pending while it is not. Nothing but its end is expected here.
    fn end(&mut self, context: &mut Context) -> Poll<String> {
        self.inbox.fill(&mut self.stream, context).map(|read| match read {
            Ok(0) => "closed by the peer".to_owned(),
            Ok(_) => "the peer spoke on a link that is only read".to_owned(),
            Err(error) => error.to_string(),
        })
    }
}

/// What may wait behind everything else: it is large, and whoever needs it asks again.
pub fn is_bulk(message: &Message) -> bool {
    match message {
        Message::Chunk { .. } | Message::SnapshotPart { .. } | Message::Decided { .. } => true,
        Message::Collect { .. }
        | Message::Last { .. }
        | Message::Begin { .. }
        | Message::Accept { .. }
        | Message::Success { .. }
        | Message::Refuse { .. }
        | Message::Heartbeat(_)
        | Message::Grant { .. }
        | Message::CatchUp { .. }
        | Message::TooFar { .. }
        | Message::SnapshotAsk { .. }
        | Message::Offer { .. }
        | Message::Held { .. }
        | Message::Fetch { .. }
        | Message::Ask { .. }
        | Message::New { .. }
        | Message::Formed { .. }
        | Message::Over { .. }
        | Message::Release { .. } => false,
    }
}

/// Half a unit, doubled with every failure up to ten units, and up to a quarter more so that nodes that lost
/// each other at once do not meet again at once.
fn back_off(unit_micros: u64, failures: u32, jitter: u64) -> u64 {
    let doubled = (unit_micros / 2).max(1).saturating_mul(1 << failures.min(16));
    let pause = doubled.min(unit_micros.saturating_mul(BACK_OFF_UNITS_MAX));
    pause + jitter % (pause / 4 + 1)
}

/// How long a dial, and then the answer to a greeting, may take.
const GREETING_MICROS: u64 = 5_000_000;

/// The longest pause between two dials, without its jitter.
const BACK_OFF_UNITS_MAX: u64 = 10;

/// How long a peer's kernel may leave bytes unacknowledged: a machine that vanished must be dialled anew when
/// it returns, not when the kernel gives up.
const SILENT_UNITS_MAX: u64 = 20;
const SILENT_MIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_between_dials_doubles_up_to_ten_units() {
        let pauses: Vec<u64> = (0..7).map(|failures| back_off(100_000, failures, 0)).collect();
        assert_eq!(pauses, [50_000, 100_000, 200_000, 400_000, 800_000, 1_000_000, 1_000_000]);
        for jitter in [1, 7, u64::MAX] {
            let pause = back_off(100_000, 60, jitter);
            assert!((1_000_000..=1_250_000).contains(&pause), "{pause}");
        }
    }
}
