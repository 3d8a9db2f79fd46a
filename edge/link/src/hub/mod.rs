//! [`Hub`]: all sockets of a store process, read and written by the one loop that owns them.
//!
//! Like `transport`, it has no task per connection: a socket that wakes is put on the ready list, the loop reads
//! all that woke, decides, and everything for one connection leaves with one write call at the end of the turn.
//! Unlike it, a hub does not know what the bytes mean: the same one serves frames and memcached.

mod alarm;
mod connection;

pub use alarm::Alarm;

use crate::clock;
use crate::{ReadyList, Signal, Token, prepare};
use bytes::BytesMut;
use connection::{Connection, Stage};
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use rustix::net::sockopt;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tracing::warn;

/// The sockets of a process.
pub struct Hub {
    ready: Arc<ReadyList>,
    /// How long a dial may take.
    dial_for: Duration,
    /// With each: connections of this hub beyond which it refuses.
    listeners: Vec<(TcpListener, usize)>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: usize,
    /// Of them, taken in from elsewhere.
    clients: usize,
    dirty: Vec<ConnectionId>,
    woken: Vec<Token>,
    /// No accepting before this, if there is such a time: the process had no file descriptors left.
    accept_after: Option<Time>,
    /// What clients have not taken, as of the last flush, and how much that may be.
    left: usize,
    left_max: usize,
    /// How often a client may be seen to have taken nothing of it when it is more.
    looks_max: u32,
    cut_after: Time,
    /// There is no memory for what clients send.
    short: bool,
}

/// A connection's number is its slot and how often that slot was used, so it is never used again.
struct Slot {
    uses: u32,
    connection: Option<Box<Connection>>,
}

/// What happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Somebody connected to a listener.
    Accepted { id: ConnectionId, from: SocketAddr },
    /// A dial succeeded.
    Dialled(ConnectionId),
    /// There are bytes in its inbox that were not there before.
    Readable(ConnectionId),
    /// Nothing more will come from it. It may still read answers.
    Ended(ConnectionId),
    /// It is gone, or a dial led to nothing; the number means nothing any more.
    Closed { id: ConnectionId, reason: String },
}

impl Hub {
    pub fn new(dial_for: Duration) -> Hub {
        Hub {
            ready: Arc::default(),
            dial_for,
            listeners: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            clients: 0,
            dirty: Vec::new(),
            woken: Vec::new(),
            accept_after: None,
            left: 0,
            left_max: usize::MAX,
            looks_max: u32::MAX,
            cut_after: Time::default(),
            short: false,
        }
    }

    /// Accepts connections on that socket from now on, as long as there are fewer than so many.
    pub fn listen(&mut self, listener: TcpListener, connections_max: usize) {
        self.listeners.push((listener, connections_max));
    }

    /// Beyond so many bytes that clients have not taken, those of them are cut off that have taken nothing for so many
    /// seconds, in which this process ran.
    pub fn bound_left(&mut self, bytes_max: usize, seconds_max: u32) {
        (self.left_max, self.looks_max) = (bytes_max, seconds_max);
    }

    /// Clients leave more than that unread.
    pub fn is_crowded(&self) -> bool {
        self.left > self.left_max
    }

    /// Whether there is no memory left for what clients send: then little of it is read in a turn.
    pub fn short(&mut self, short: bool) {
        self.short = short;
    }

    pub fn is_short(&self) -> bool {
        self.short
    }

    /// What it sends is read.
    pub fn is_read(&self, id: ConnectionId) -> bool {
        self.get(id).is_some_and(|connection| connection.is_read())
    }

    /// It has taken nothing of its answers for as long as [`bound_left`](Hub::bound_left) says, in which there was no memory.
    pub fn is_stuck(&self, id: ConnectionId) -> bool {
        self.get(id).is_some_and(|connection| connection.stuck_looks > self.looks_max)
    }

    /// No more connections are taken in.
    pub fn close_listeners(&mut self) {
        self.listeners.clear();
    }

    /// Takes in a client that was accepted elsewhere. If it does not read its answers, it is not read either. No
    /// `Accepted` follows.
    pub fn take_in(&mut self, stream: std::net::TcpStream) -> io::Result<ConnectionId> {
        let stream = TcpStream::from_std(stream)?;
        prepare(&stream, UNACKNOWLEDGED_MAX)?;
        sockopt::set_socket_send_buffer_size(&stream, CLIENT_SEND_BYTES)?;
        let id = self.insert(|signal| Connection::client(stream, signal));
        self.clients += 1;
        Ok(id)
    }

    /// Clients that were taken in and have a socket still, if only for their last answers.
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// Begins to dial; it ends in `Dialled` or `Closed`.
    pub fn dial(&mut self, address: SocketAddr) -> ConnectionId {
        let dial_for = self.dial_for;
        self.insert(|signal| Connection::dialling(address, dial_for, signal))
    }

    /// Accepts, dials on and reads, as far as it can be done now.
    pub fn poll(&mut self, context: &mut Context, happened: &mut VecDeque<Happening>) {
        self.ready.watch(context.waker());
        self.accept(context, happened);
        let mut woken = std::mem::take(&mut self.woken);
        self.ready.take(&mut woken);
        let mut read_bytes = 0;
        for token in woken.drain(..) {
            let Token::Arrival(id) = token else { continue };
            let short = self.short || read_bytes >= CLIENTS_BYTES_PER_TURN;
            let Some(connection) = self.get_mut(id) else { continue };
            connection.signal.seen();
            let before = connection.inbox.len();
            let advanced = connection.advance(short && connection.client);
            if connection.client {
                read_bytes += connection.inbox.len().saturating_sub(before);
            }
            let output = connection.has_output();
            match advanced {
                Ok(Some(stage)) => happened.push_back(match stage {
                    connection::Advance::Dialled => Happening::Dialled(id),
                    connection::Advance::Read => Happening::Readable(id),
                    connection::Advance::Ended => Happening::Ended(id),
                }),
                Ok(None) => {}
                Err(reason) => {
                    self.forget(id);
                    happened.push_back(Happening::Closed { id, reason });
                    continue;
                }
            }
            if output {
                self.touch(id);
            }
        }
        self.woken = woken;
    }

    /// A socket woke since the last poll.
    pub fn has_woken(&self) -> bool {
        !self.ready.is_empty()
    }

    fn accept(&mut self, context: &mut Context, happened: &mut VecDeque<Happening>) {
        if self.accept_after.is_some_and(|after| clock::now() < after) {
            return;
        }
        self.accept_after = None;
        for number in 0..self.listeners.len() {
            for _ in 0..ACCEPTS_PER_TURN {
                let (listener, connections_max) = &self.listeners[number];
                let full = self.open >= *connections_max;
                match listener.poll_accept(context) {
                    Poll::Pending => break,
                    Poll::Ready(Ok((stream, from))) => {
                        if full || prepare(&stream, UNACKNOWLEDGED_MAX).is_err() {
                            // Closed without a word: whoever it is speaks before it listens.
                            continue;
                        }
                        let id = self.insert(|signal| Connection::accepted(stream, signal));
                        happened.push_back(Happening::Accepted { id, from });
                    }
                    Poll::Ready(Err(error)) => {
                        warn!(%error, "cannot accept a connection");
                        self.accept_after = Some(clock::now().plus_micros(ACCEPT_PAUSE_MICROS));
                        return;
                    }
                }
            }
        }
    }

    fn insert(&mut self, make: impl FnOnce(Arc<Signal>) -> Connection) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { uses: 0, connection: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.uses = slot.uses.wrapping_add(1);
        let id = number(slot.uses, index);
        let signal = Signal::new(Token::Arrival(id), &self.ready);
        signal.raise();
        slot.connection = Some(Box::new(make(signal)));
        self.open += 1;
        id
    }

    /// What has arrived and was not taken yet.
    pub fn inbox(&mut self, id: ConnectionId) -> Option<&mut BytesMut> {
        self.get_mut(id).map(|connection| &mut connection.inbox)
    }

    /// Where to put what is to be sent; it leaves at the end of the turn.
    pub fn outbox(&mut self, id: ConnectionId) -> Option<&mut BytesMut> {
        self.get(id).filter(|connection| connection.stage == Stage::Open)?;
        self.touch(id);
        self.get_mut(id).map(|connection| &mut connection.outbox)
    }

    /// Bytes that the other side has not taken yet.
    pub fn backlog(&self, id: ConnectionId) -> usize {
        self.get(id).map_or(0, |connection| connection.outbox.len())
    }

    /// Of these, those that could not be written at the end of the last turn.
    pub fn left(&self, id: ConnectionId) -> usize {
        self.get(id).map_or(0, |connection| connection.left)
    }

    /// The same of all clients.
    pub fn left_of_all(&self) -> usize {
        self.left
    }

    /// Whoever is there asks for more than it reads: from now on it waits.
    pub fn slow(&mut self, id: ConnectionId) {
        if let Some(connection) = self.get_mut(id) {
            connection.slow();
        }
    }

    /// Reads no more from it until `resume`: what it wants cannot be done faster.
    pub fn pause(&mut self, id: ConnectionId, paused: bool) {
        if let Some(connection) = self.get_mut(id) {
            connection.pause(paused);
        }
    }

    /// Whether some of its inbox is to be looked at later: it counts as readable whenever some of its outbox was taken, and
    /// no more is read from it until then. Only for who has something in its outbox, or will.
    pub fn fall_behind(&mut self, id: ConnectionId, behind: bool) {
        if let Some(connection) = self.get_mut(id) {
            connection.fall_behind(behind);
        }
    }

    /// Closes it after what was put into its outbox. It counts as gone at once: no `Closed` follows.
    pub fn leave(&mut self, id: ConnectionId) {
        if let Some(connection) = self.get_mut(id) {
            connection.stage = Stage::Leaving;
            self.touch(id);
        }
    }

    /// Closes it now. No `Closed` follows.
    pub fn forget(&mut self, id: ConnectionId) {
        let Some(connection) = self.get(id) else { return };
        let (is_client, left) = (connection.client, connection.left);
        if is_client {
            self.clients -= 1;
            self.left -= left;
        }
        let index = id.0 as u32;
        self.slots[index as usize].connection = None;
        self.free.push(index);
        self.open -= 1;
    }

    /// Writes to every connection that has something to write, one call each.
    pub fn flush(&mut self, happened: &mut VecDeque<Happening>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            let Some(connection) = self.get_mut(id) else { continue };
            connection.dirty = false;
            let leaves = connection.stage == Stage::Leaving;
            let before = connection.left;
            let flushed = connection.flush();
            let (after, is_done) = (connection.left, !connection.has_output());
            if connection.client {
                self.left = self.left - before + after;
            }
            match flushed {
                Ok(()) if leaves && is_done => self.forget(id),
                Ok(()) => {}
                Err(_) if leaves => self.forget(id),
                Err(error) => {
                    self.forget(id);
                    happened.push_back(Happening::Closed { id, reason: error.to_string() });
                }
            }
        }
        self.dirty = dirty;
        if self.is_crowded() || self.short {
            self.cut_stuck(clock::now(), happened);
        }
    }

    /// Looks for clients that have taken nothing for long, and cuts off those that have not for the longest until there is
    /// room for answers.
    fn cut_stuck(&mut self, now: Time, happened: &mut VecDeque<Happening>) {
        if now < self.cut_after {
            return;
        }
        self.cut_after = now.plus_micros(CUT_PAUSE_MICROS);
        let mut stuck: Vec<(u32, ConnectionId)> = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(connection) = slot.connection.as_mut().filter(|connection| connection.client) else {
                continue;
            };
            if connection.left > 0 {
                connection.stuck_looks = connection.stuck_looks.saturating_add(1);
            }
            if connection.stuck_looks > self.looks_max {
                stuck.push((connection.stuck_looks, number(slot.uses, index as u32)));
            }
        }
        stuck.sort_unstable_by(|one, other| other.cmp(one));
        let (before, mut clients) = (self.left, 0);
        for (_, id) in stuck {
            if !self.is_crowded() {
                break;
            }
            let leaves = self.get(id).is_some_and(|connection| connection.stage == Stage::Leaving);
            self.forget(id);
            clients += 1;
            if !leaves {
                let reason = "it does not read its answers".to_owned();
                happened.push_back(Happening::Closed { id, reason });
            }
        }
        if clients > 0 {
            let bytes = before - self.left;
            warn!(
                clients,
                bytes, "cut off: they have not read their answers for long, and there is no room for more"
            );
        }
    }

    /// Whether something is still to be written.
    pub fn has_output(&self) -> bool {
        self.slots
            .iter()
            .filter_map(|slot| slot.connection.as_ref())
            .any(|connection| connection.has_output())
    }

    fn touch(&mut self, id: ConnectionId) {
        let Some(connection) = self.get_mut(id) else { return };
        if !std::mem::replace(&mut connection.dirty, true) {
            self.dirty.push(id);
        }
    }

    fn get(&self, id: ConnectionId) -> Option<&Connection> {
        let slot = self.slots.get(id.0 as u32 as usize)?;
        (u64::from(slot.uses) == id.0 >> 32).then_some(slot.connection.as_deref())?
    }

    fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.0 as u32 as usize)?;
        (u64::from(slot.uses) == id.0 >> 32).then_some(slot.connection.as_deref_mut())?
    }
}

fn number(uses: u32, index: u32) -> ConnectionId {
    ConnectionId(u64::from(uses) << 32 | u64::from(index))
}

/// What the kernel takes for a client that does not read, doubled for its own needs. By itself it takes megabytes, and all
/// that a host has for all connections when a thousand clients are so: then nobody is served.
const CLIENT_SEND_BYTES: usize = 256 * 1024;

/// Bytes taken from all clients in a turn beyond which little is taken from each: what they may send is bounded by who looks
/// at it after the turn.
const CLIENTS_BYTES_PER_TURN: usize = 16 * 1024 * 1024;

/// Between two looks for such clients.
const CUT_PAUSE_MICROS: u64 = 1_000_000;

/// Connections taken in on one listener before those that are here have their turn.
const ACCEPTS_PER_TURN: usize = 64;

/// How long accepting rests after it failed, as it does when no file descriptors are left.
const ACCEPT_PAUSE_MICROS: u64 = 100_000;

/// How long the other side may leave bytes unacknowledged.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);
