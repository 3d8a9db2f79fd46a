//! [`Arrivals`]: all connections that others opened.

use super::arrival::{Arrival, Ending, Porch, Stage};
use crate::house::HouseInput;
use bytes::Bytes;
use kumo_link::{ReadyList, Signal, Strangers, Token, prepare};
use kumo_paxos::Time;
use kumo_session::{Application, Cell, CellMessage, ConnectionId, Input};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tracing::{debug, warn};

/// The connections that arrived, by number.
pub struct Arrivals {
    ready: Arc<ReadyList>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: usize,
    /// Of them, clients; and how many there may be.
    clients: usize,
    clients_max: usize,
    dirty: Vec<ConnectionId>,
    /// When those that have not greeted are given up; and those that were refused, whatever they do.
    greeting_until: VecDeque<(Time, ConnectionId)>,
    lingering_until: VecDeque<(Time, ConnectionId)>,
    /// When those inside a frame are looked at again.
    inside_until: VecDeque<(Time, ConnectionId)>,
    /// Clients not read because the node is behind.
    held: Option<Vec<ConnectionId>>,
    strangers: Strangers,
    pub porch: Porch,
}

/// A connection's number is its slot and how often that slot was used, so it is never used again.
struct Slot {
    uses: u32,
    arrival: Option<Box<Arrival>>,
}

impl Arrivals {
    /// `house`: connections of the store are taken in.
    pub fn new(ready: Arc<ReadyList>, house: bool) -> Arrivals {
        Arrivals {
            ready,
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            clients: 0,
            clients_max: CLIENTS_MAX,
            dirty: Vec::new(),
            greeting_until: VecDeque::new(),
            lingering_until: VecDeque::new(),
            inside_until: VecDeque::new(),
            held: None,
            strangers: Strangers::default(),
            porch: Porch { open: house, arrived: Vec::new() },
        }
    }

    pub fn accept(&mut self, now: Time, stream: TcpStream, from: SocketAddr) {
        if let Err(error) = prepare(&stream, UNACKNOWLEDGED_MAX) {
            debug!(%from, %error, "connection is gone");
            return;
        }
        if self.open >= CONNECTIONS_MAX + REFUSED_MAX {
            return self.strangers.tell(now, from, "connection refused", TOO_MANY);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { uses: 0, arrival: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.uses = slot.uses.wrapping_add(1);
        let id = ConnectionId(u64::from(slot.uses) << 32 | u64::from(index));
        let signal = Signal::new(Token::Arrival(id), &self.ready);
        signal.raise();
        slot.arrival = Some(Box::new(Arrival::new(now, stream, from, signal)));
        self.open += 1;
        if self.open > CONNECTIONS_MAX {
            return self.refuse(now, id, TOO_MANY.to_owned());
        }
        self.greeting_until.push_back((now.plus_micros(GREETING_MICROS), id));
    }

    /// Whether that connection carries replicas' messages: those are read first.
    pub fn is_replica(&self, id: ConnectionId) -> bool {
        self.get(id).is_some_and(|arrival| matches!(arrival.stage, Stage::Replica { .. }))
    }

    /// Reads and writes what a connection that woke can. Returns the bytes read, and the address of a replica
    /// that has just said hello.
    pub fn wake<A: Application>(
        &mut self,
        now: Time,
        id: ConnectionId,
        cell: &Cell<A>,
        inputs: &mut Vec<Input>,
    ) -> (usize, Option<SocketAddr>) {
        let Some(arrival) = self.get_mut(id) else { return (0, None) };
        arrival.signal.seen();
        let before = arrival.stage;
        if before == Stage::Client
            && let Some(held) = &mut self.held
        {
            held.push(id);
            self.touch(id);
            return (0, None);
        }
        let mut porch = std::mem::take(&mut self.porch);
        let arrival = self.get_mut(id).expect("found just now");
        let read = arrival.read(now, id, cell, inputs, &mut porch);
        let stage = arrival.stage;
        self.porch = porch;
        self.watch(now, id);
        self.touch(id);
        let new_client = (before, stage) == (Stage::Greeting, Stage::Client);
        self.clients += usize::from(new_client);
        let read = match read {
            Ok(_) if new_client && self.clients > self.clients_max => {
                Err(Ending::Refused(TOO_MANY.to_owned()))
            }
            read => read,
        };
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(Ending::Gone) => {
                self.close(id, inputs);
                0
            }
            Err(Ending::Refused(reason)) => {
                self.leave(id, inputs);
                self.refuse(now, id, reason);
                0
            }
        };
        let greeted = match (before, stage) {
            (Stage::Greeting, Stage::Replica { address, .. }) => Some(address),
            (_, _) => None,
        };
        (bytes, greeted)
    }

    /// Sends to a client; one that is gone, or does not read its replies, is passed over.
    pub fn send(&mut self, id: ConnectionId, message: &CellMessage, inputs: &mut Vec<Input>) {
        let Some(arrival) = self.get_mut(id) else { return };
        if arrival.stage != Stage::Client {
            return;
        }
        let from = arrival.from;
        if arrival.send(message) {
            return self.touch(id);
        }
        warn!(%from, "client does not read its replies: cut off");
        self.close(id, inputs);
    }

    /// Sends to one of the house.
    pub fn send_body(&mut self, id: ConnectionId, body: &Bytes, inputs: &mut Vec<Input>) {
        let Some(arrival) = self.get_mut(id) else { return };
        if arrival.stage != Stage::House {
            return;
        }
        let from = arrival.from;
        if arrival.send_body(body) {
            return self.touch(id);
        }
        warn!(%from, "a node of the store does not read: cut off");
        self.close(id, inputs);
    }

    /// Closes a client's connection after what was sent to it.
    pub fn hang_up(&mut self, now: Time, id: ConnectionId, inputs: &mut Vec<Input>) {
        self.leave(id, inputs);
        let Some(arrival) = self.get_mut(id) else { return };
        arrival.stage = Stage::Leaving;
        self.linger(now, id);
    }

    /// Gives up on connections whose time is over.
    pub fn expire(&mut self, now: Time, inputs: &mut Vec<Input>) {
        while let Some(&(until, id)) = self.greeting_until.front()
            && until <= now
        {
            self.greeting_until.pop_front();
            if self.get(id).is_some_and(|arrival| arrival.stage == Stage::Greeting) {
                self.refuse(now, id, format!("no greeting within {} s", GREETING_MICROS / 1_000_000));
            }
        }
        while let Some(&(until, id)) = self.lingering_until.front()
            && until <= now
        {
            self.lingering_until.pop_front();
            self.close(id, inputs);
        }
        while let Some(&(until, id)) = self.inside_until.front()
            && until <= now
        {
            self.inside_until.pop_front();
            self.look(now, id, inputs);
        }
        self.strangers.expire(now);
    }

    /// A connection inside a frame is looked at after a while.
    fn watch(&mut self, now: Time, id: ConnectionId) {
        let Some(arrival) = self.get_mut(id) else { return };
        if arrival.is_inside_frame() && !std::mem::replace(&mut arrival.watched, true) {
            self.inside_until.push_back((now.plus_micros(FRAME_PAUSE_MICROS), id));
        }
    }

    /// Ends a connection that has begun a frame and does not go on with it: what is here of it would be kept for ever.
    fn look(&mut self, now: Time, id: ConnectionId, inputs: &mut Vec<Input>) {
        let held = self.held.is_some();
        let Some(arrival) = self.get_mut(id) else { return };
        arrival.watched = false;
        let then = Time(now.0.saturating_sub(FRAME_PAUSE_MICROS));
        if arrival.is_inside_frame() && arrival.is_silent_since(then) && !held {
            self.leave(id, inputs);
            let seconds = FRAME_PAUSE_MICROS / 1_000_000;
            return self.refuse(now, id, format!("half a message and then nothing for {seconds} s"));
        }
        self.watch(now, id);
    }

    pub fn deadline(&self) -> Option<Time> {
        let first = |queue: &VecDeque<(Time, ConnectionId)>| queue.front().map(|&(until, _)| until);
        let queues = [&self.greeting_until, &self.lingering_until, &self.inside_until].map(first);
        queues.into_iter().chain([self.strangers.deadline()]).flatten().min()
    }

    /// Stops or resumes reading from clients; replicas are read all the same.
    pub fn hold_clients(&mut self, hold: bool) {
        match (hold, self.held.take()) {
            (true, held) => self.held = Some(held.unwrap_or_default()),
            (false, held) => {
                for id in held.unwrap_or_default() {
                    if let Some(arrival) = self.get(id) {
                        arrival.signal.raise();
                    }
                }
            }
        }
    }

    /// Writes to every connection that has something to write, one call each.
    pub fn flush(&mut self, inputs: &mut Vec<Input>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            let Some(arrival) = self.get_mut(id) else { continue };
            arrival.dirty = false;
            if arrival.flush().is_err() {
                self.close(id, inputs);
            }
        }
        self.dirty = dirty;
    }

    /// Whether something is still to be written.
    pub fn has_output(&self) -> bool {
        self.slots.iter().filter_map(|slot| slot.arrival.as_ref()).any(|arrival| arrival.has_output())
    }

    fn refuse(&mut self, now: Time, id: ConnectionId, reason: String) {
        self.refused(now, id, "connection refused", &reason);
        let Some(arrival) = self.get_mut(id) else { return };
        arrival.refuse(reason);
        self.linger(now, id);
    }

    /// Who is at the other end of a connection broke a rule, and is being told so.
    pub fn refused(&mut self, now: Time, id: ConnectionId, what: &str, reason: &str) {
        let Some(from) = self.get(id).map(|arrival| arrival.from) else { return };
        self.strangers.tell(now, from, what, reason);
    }

    /// Its last words are written, then it is closed when the other side closes, or after a while.
    fn linger(&mut self, now: Time, id: ConnectionId) {
        self.touch(id);
        self.lingering_until.push_back((now.plus_micros(LINGER_MICROS), id));
    }

    /// Tells whom it concerns that a connection is gone.
    fn leave(&mut self, id: ConnectionId, inputs: &mut Vec<Input>) {
        match self.get(id).map(|arrival| arrival.stage) {
            Some(Stage::Client) => {
                self.clients -= 1;
                inputs.push(Input::ClientDown(id));
            }
            Some(Stage::House) => self.porch.arrived.push(HouseInput::Down(id)),
            None | Some(Stage::Greeting | Stage::Replica { .. } | Stage::Leaving | Stage::Lingering) => {}
        }
    }

    fn close(&mut self, id: ConnectionId, inputs: &mut Vec<Input>) {
        self.leave(id, inputs);
        let index = id.0 as u32;
        if self.get(id).is_some() {
            self.slots[index as usize].arrival = None;
            self.free.push(index);
            self.open -= 1;
        }
    }

    fn touch(&mut self, id: ConnectionId) {
        let Some(arrival) = self.get_mut(id) else { return };
        if arrival.has_output() || arrival.stage == Stage::Leaving {
            let first = !std::mem::replace(&mut arrival.dirty, true);
            if first {
                self.dirty.push(id);
            }
        }
    }

    fn get(&self, id: ConnectionId) -> Option<&Arrival> {
        let slot = self.slots.get(id.0 as u32 as usize)?;
        (u64::from(slot.uses) == id.0 >> 32).then_some(slot.arrival.as_deref())?
    }

    fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Arrival> {
        let slot = self.slots.get_mut(id.0 as u32 as usize)?;
        (u64::from(slot.uses) == id.0 >> 32).then_some(slot.arrival.as_deref_mut())?
    }
}

/// Connections at a time, replicas' included. Each costs some kilobytes here and in the kernel.
const CONNECTIONS_MAX: usize = 10_000;

/// Clients at a time: replicas, servers and gateways find room however many there are.
const CLIENTS_MAX: usize = 9_000;

/// Further ones that are told so; beyond, they are closed without a word.
const REFUSED_MAX: usize = 100;

const TOO_MANY: &str = "too many connections";

/// How long a connection may take to say who it is.
const GREETING_MICROS: u64 = 5_000_000;

/// How long a message may stand still half-way.
const FRAME_PAUSE_MICROS: u64 = 60_000_000;

/// How long one that was refused may take to read why.
const LINGER_MICROS: u64 = 1_000_000;

/// How long a client may leave bytes unacknowledged.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
