//! [`Post`]: messages of the store between processes. It greets, dials again whenever a link breaks, and tells
//! who is at the other end; what is said is the cores' business.

mod dial;
mod packed;
mod refusals;

pub use refusals::Refusals;

use crate::Strangers;
use crate::hub::{Happening, Hub};
use bytes::{Buf, Bytes, BytesMut};
use dial::Dials;
use kumo_cluster::{Incarnation, Message, ServerId};
use kumo_paxos::{CellId, Hello, MAGIC, Side, Time, VERSION};
use kumo_session::{ConnectionId, GREETING_BYTES_MAX, Greeting};
use kumo_wire::{Pieces, SHARED_BYTES_MAX, Wire, frame};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::task::Context;

/// The post office of a server, a gateway or a tool.
pub struct Post {
    pub(crate) hub: Hub,
    me: Me,
    lines: BTreeMap<ConnectionId, Line>,
    servers: BTreeMap<ServerId, ConnectionId>,
    managers: BTreeMap<SocketAddr, ConnectionId>,
    dials: Dials,
    /// When those that have not greeted are given up, in order.
    greeting_until: VecDeque<(Time, ConnectionId)>,
    /// What happened to connections and was not looked at yet.
    happened: VecDeque<Happening>,
    /// Where that came to more than one thing.
    arrived: VecDeque<Arrived>,
    /// The connection whose frames are being taken, and what they have unpacked to in this turn.
    reading: Option<(ConnectionId, usize)>,
    /// Where small frames are: one that waits somewhere does not hold on to a whole receive buffer.
    pieces: Pieces,
    /// Connections that had their share of a turn and have more.
    unfinished: Vec<ConnectionId>,
    strangers: Strangers,
}

/// Who this process is.
#[derive(Clone, Copy, Debug)]
pub struct Me {
    pub side: Side,
    /// A server's own; nothing for others.
    pub id: Option<ServerId>,
    /// The cluster, once known: processes of another one are refused.
    pub cell: CellId,
}

/// Whom this process dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Server(ServerId),
    Manager(SocketAddr),
}

/// A connection of this protocol.
enum Line {
    /// Dialled or accepted, and the other side has not said who it is.
    Greeting {
        target: Option<Target>,
        from: Option<SocketAddr>,
    },
    Server(ServerId),
    Manager(SocketAddr),
    Gateway,
    Tool,
}

/// What arrived.
// The large one, a message, is also the most frequent.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Arrived {
    ServerUp(ServerId),
    ServerDown(ServerId),
    Server(ServerId, Message),
    ManagerUp(SocketAddr),
    ManagerDown(SocketAddr),
    Manager(SocketAddr, Message),
    Gateway(ConnectionId, Message),
    GatewayDown(ConnectionId),
    Tool(ConnectionId, Bytes),
    /// On a connection that speaks another protocol: one that the hub took in.
    Foreign(Happening),
    /// A process that was dialled does not want this one; why.
    Refused(Target, String),
}

impl Post {
    pub fn new(hub: Hub, me: Me, noise: u64) -> Post {
        Post {
            hub,
            me,
            lines: BTreeMap::new(),
            servers: BTreeMap::new(),
            managers: BTreeMap::new(),
            dials: Dials::new(noise),
            greeting_until: VecDeque::new(),
            happened: VecDeque::new(),
            arrived: VecDeque::new(),
            reading: None,
            pieces: Pieces::default(),
            unfinished: Vec::new(),
            strangers: Strangers::default(),
        }
    }

    pub fn hub(&mut self) -> &mut Hub {
        &mut self.hub
    }

    /// Another life begins, or the cluster became known.
    pub fn set_me(&mut self, me: Me) {
        self.me = me;
    }

    pub fn me(&self) -> Me {
        self.me
    }

    /// Keep a connection there, whenever it breaks.
    pub fn dial(&mut self, now: Time, target: Target) {
        self.dials.want(now, target);
    }

    pub fn undial(&mut self, target: Target) {
        self.dials.drop(target);
        let line = match target {
            Target::Server(id) => self.servers.remove(&id),
            Target::Manager(address) => self.managers.remove(&address),
        };
        if let Some(id) = line {
            self.lines.remove(&id);
            self.hub.leave(id);
        }
    }

    /// Keeps connections with these managers and no others. Returns those that are given up.
    pub fn only_managers(&mut self, now: Time, wanted: &[SocketAddr]) -> Vec<SocketAddr> {
        wanted.iter().for_each(|&manager| self.dial(now, Target::Manager(manager)));
        let dropped: Vec<SocketAddr> =
            self.dials.managers().filter(|manager| !wanted.contains(manager)).collect();
        dropped.iter().for_each(|&manager| self.undial(Target::Manager(manager)));
        dropped
    }

    /// Ends every connection of this protocol but those with tools: a new life begins.
    pub fn hang_up_all(&mut self) {
        for (id, line) in std::mem::take(&mut self.lines) {
            match line {
                Line::Tool => {
                    self.lines.insert(id, Line::Tool);
                }
                Line::Greeting { .. } | Line::Server(_) | Line::Manager(_) | Line::Gateway => {
                    self.hub.forget(id)
                }
            }
        }
        self.servers.clear();
        self.managers.clear();
        // Of links that were.
        self.arrived.clear();
        self.dials.restart();
    }

    pub fn send_server(&mut self, to: ServerId, message: &Message) {
        if let Some(&id) = self.servers.get(&to)
            && let Some(outbox) = self.hub.outbox(id)
        {
            packed::append(message, outbox);
        }
    }

    pub fn send_manager(&mut self, to: SocketAddr, message: &Message) {
        if let Some(&id) = self.managers.get(&to) {
            self.send(id, message);
        }
    }

    pub fn send<T: Wire>(&mut self, id: ConnectionId, message: &T) {
        if let Some(outbox) = self.hub.outbox(id) {
            frame::append(message, outbox);
        }
    }

    /// There is something to take: a socket woke since the last poll, or not all was taken.
    pub fn has_more(&self) -> bool {
        self.hub.has_woken() || self.has_left()
    }

    /// Not all was taken: a turn must follow though nothing wakes.
    pub fn has_left(&self) -> bool {
        !self.happened.is_empty() || !self.unfinished.is_empty()
    }

    /// Reads all that can be read now. It is taken one by one, with [`next`](Post::next).
    pub fn poll(&mut self, now: Time, context: &mut Context) {
        self.dial_due(now);
        self.give_up_greetings(now);
        self.strangers.expire(now);
        self.hub.poll(context, &mut self.happened);
        for id in self.unfinished.drain(..).filter(|id| self.lines.contains_key(id)) {
            self.hub.pause(id, false);
            self.happened.push_back(Happening::Readable(id));
        }
    }

    /// The next that arrived; none: that was all, or all that this turn takes.
    pub fn next(&mut self, now: Time) -> Option<Arrived> {
        loop {
            if let Some(arrived) = self.arrived.pop_front() {
                return Some(arrived);
            }
            if let Some((id, unpacked_bytes)) = self.reading {
                if let Some(arrived) = self.read(now, id, unpacked_bytes) {
                    return Some(arrived);
                }
                continue;
            }
            let happening = self.happened.pop_front()?;
            self.happening(now, happening);
        }
    }

    /// Writes all that waits.
    pub fn flush(&mut self) {
        self.hub.flush(&mut self.happened);
    }

    pub fn deadline(&self) -> Option<Time> {
        let greeting = self.greeting_until.front().map(|&(until, _)| until);
        [greeting, self.dials.deadline(), self.strangers.deadline()].into_iter().flatten().min()
    }

    fn dial_due(&mut self, now: Time) {
        for target in self.dials.due(now) {
            // One connection a pair: the lower address dials, the other waits for it.
            let address = match target {
                Target::Server(id) if self.me.id.is_some_and(|me| me.address > id.address) => continue,
                Target::Server(id) => id.address,
                Target::Manager(address) => address,
            };
            let id = self.hub.dial(address);
            self.lines.insert(id, Line::Greeting { target: Some(target), from: None });
            self.greeting_until.push_back((now.plus_micros(GREETING_MICROS), id));
        }
    }

    fn give_up_greetings(&mut self, now: Time) {
        while let Some(&(until, id)) = self.greeting_until.front()
            && until <= now
        {
            self.greeting_until.pop_front();
            if let Some(Line::Greeting { target, .. }) = self.lines.get(&id) {
                if let Some(target) = *target {
                    self.dials.failed(now, target, "no greeting".to_owned());
                }
                self.lines.remove(&id);
                self.hub.forget(id);
            }
        }
    }

    fn happening(&mut self, now: Time, happening: Happening) {
        match happening {
            Happening::Accepted { id, from } => {
                self.lines.insert(id, Line::Greeting { target: None, from: Some(from) });
                self.greeting_until.push_back((now.plus_micros(GREETING_MICROS), id));
            }
            Happening::Dialled(id) => {
                let hello = self.hello();
                self.send(id, &Greeting::Hello(hello));
            }
            Happening::Readable(id) if self.lines.contains_key(&id) => self.reading = Some((id, 0)),
            Happening::Ended(id) if self.lines.contains_key(&id) => {
                self.closed(now, id, "closed".to_owned());
                self.hub.forget(id);
            }
            Happening::Closed { id, reason } if self.lines.contains_key(&id) => self.closed(now, id, reason),
            foreign @ (Happening::Readable(_) | Happening::Ended(_) | Happening::Closed { .. }) => {
                self.arrived.push_back(Arrived::Foreign(foreign));
            }
        }
    }

    /// The next whole frame of the connection that is being read. A turn's share of it was read from the socket already;
    /// all of that is taken, unless it unpacks to far more. Then nothing more is read before the rest is taken in later
    /// turns.
    fn read(&mut self, now: Time, id: ConnectionId, unpacked_bytes: usize) -> Option<Arrived> {
        self.reading = None;
        if unpacked_bytes >= UNPACKED_BYTES_PER_TURN {
            self.hub.pause(id, true);
            self.unfinished.push(id);
            return None;
        }
        let line = self.lines.get(&id)?;
        let greets = matches!(line, Line::Greeting { .. });
        let limit = if greets { GREETING_BYTES_MAX } else { FRAME_BYTES_MAX };
        let body = match take(self.hub.inbox(id)?, &mut self.pieces, limit) {
            Ok(body) => body?,
            Err(error) => {
                let what = if greets { "not a greeting: " } else { "" };
                self.refuse(now, id, format!("{what}{error}"));
                return None;
            }
        };
        self.reading = Some((id, unpacked_bytes + packed::unpacked_bytes(&body)));
        let said = |body| Message::from_bytes(body).map_err(|error| format!("bad message: {error}"));
        let reason = match line {
            Line::Server(server) => match packed::read(body, FRAME_BYTES_MAX) {
                Ok(message) => return Some(Arrived::Server(*server, message)),
                Err(reason) => reason,
            },
            Line::Gateway => match said(body) {
                Ok(message) => return Some(Arrived::Gateway(id, message)),
                Err(reason) => reason,
            },
            Line::Manager(address) => match said(body) {
                Ok(message) => return Some(Arrived::Manager(*address, message)),
                Err(reason) => reason,
            },
            Line::Tool => return Some(Arrived::Tool(id, body)),
            Line::Greeting { target, .. } => match self.greeted(now, id, *target, body) {
                Ok(()) => return None,
                Err(reason) => reason,
            },
        };
        self.refuse(now, id, reason);
        None
    }

    fn greeted(
        &mut self,
        now: Time,
        id: ConnectionId,
        target: Option<Target>,
        body: Bytes,
    ) -> Result<(), String> {
        let hello = match Greeting::from_bytes(body).map_err(|error| format!("not a greeting: {error}"))? {
            Greeting::Hello(hello) => hello,
            Greeting::Refused { reason } => {
                if let Some(target) = target {
                    self.arrived.push_back(Arrived::Refused(target, reason.clone()));
                }
                return Err(reason);
            }
        };
        self.judge(&hello)?;
        let server = ServerId { address: hello.address, incarnation: Incarnation(hello.incarnation.0) };
        let line = match (target, hello.side) {
            (Some(Target::Manager(address)), Side::Replica | Side::Extension) => {
                self.managers.insert(address, id);
                self.arrived.push_back(Arrived::ManagerUp(address));
                Line::Manager(address)
            }
            (Some(Target::Manager(_)), _) => return Err("not a manager".to_owned()),
            (Some(Target::Server(wanted)), Side::Server) if wanted == server => self.server_up(server, id),
            // Another life of it: the one that was dialled is over.
            (Some(Target::Server(_)), _) => return Err("another server answers there".to_owned()),
            (None, Side::Server) if self.me.side == Side::Server => self.server_up(server, id),
            (None, Side::Gateway) if self.me.side == Side::Server => {
                self.hub.slow(id);
                Line::Gateway
            }
            (None, Side::Tool) => Line::Tool,
            (None, _) => return Err("this port is for servers and gateways of the store".to_owned()),
        };
        self.lines.insert(id, line);
        match target {
            Some(target) => self.dials.succeeded(now, target),
            None => {
                let hello = self.hello();
                self.send(id, &Greeting::Hello(hello));
            }
        }
        Ok(())
    }

    fn server_up(&mut self, server: ServerId, id: ConnectionId) -> Line {
        // A newer connection takes the place of one whose end was not noticed yet.
        if let Some(earlier) = self.servers.insert(server, id) {
            self.lines.remove(&earlier);
            self.hub.forget(earlier);
            self.arrived.push_back(Arrived::ServerDown(server));
        }
        self.arrived.push_back(Arrived::ServerUp(server));
        Line::Server(server)
    }

    fn judge(&self, hello: &Hello) -> Result<(), String> {
        if hello.magic != MAGIC {
            return Err("wrong magic: this port speaks kumo's protocol only".to_owned());
        }
        if hello.version != VERSION {
            return Err(format!(
                "protocol version {} is not spoken here, version {VERSION} is",
                hello.version
            ));
        }
        // A manager's cell may be another than its store's, after a rebuild: the cores compare spaces.
        if matches!(hello.side, Side::Replica | Side::Extension) {
            return Ok(());
        }
        let none = CellId(0);
        if hello.cell != none && self.me.cell != none && hello.cell != self.me.cell {
            return Err(format!("cluster {} is not this one, {}", hello.cell, self.me.cell));
        }
        Ok(())
    }

    fn hello(&self) -> Hello {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Hello {
            magic: MAGIC,
            version: VERSION,
            cell: self.me.cell,
            generation: 0,
            side: self.me.side,
            address: self.me.id.map_or(nowhere, |id| id.address),
            incarnation: kumo_paxos::Incarnation(self.me.id.map_or(0, |id| id.incarnation.0)),
        }
    }

    /// It broke a rule: it is told so if it can be, and cut off.
    fn refuse(&mut self, now: Time, id: ConnectionId, reason: String) {
        self.reading = None;
        if let Some(Line::Greeting { target: None, from }) = self.lines.get(&id) {
            if let Some(from) = *from {
                self.strangers.tell(now, from, "connection refused", &reason);
            }
            self.send(id, &Greeting::Refused { reason: reason.clone() });
        }
        self.closed(now, id, reason);
        self.hub.leave(id);
    }

    fn closed(&mut self, now: Time, id: ConnectionId, reason: String) {
        match self.lines.remove(&id) {
            None | Some(Line::Greeting { target: None, .. } | Line::Tool) => {}
            Some(Line::Greeting { target: Some(target), .. }) => self.dials.failed(now, target, reason),
            Some(Line::Server(server)) => {
                self.servers.remove(&server);
                self.dials.failed(now, Target::Server(server), reason);
                self.arrived.push_back(Arrived::ServerDown(server));
            }
            Some(Line::Manager(address)) => {
                self.managers.remove(&address);
                self.dials.failed(now, Target::Manager(address), reason);
                self.arrived.push_back(Arrived::ManagerDown(address));
            }
            Some(Line::Gateway) => self.arrived.push_back(Arrived::GatewayDown(id)),
        }
    }
}

/// The next whole frame. A small one is copied out of the receive buffer, a larger one shares it.
fn take(
    inbox: &mut BytesMut,
    pieces: &mut Pieces,
    limit: usize,
) -> Result<Option<Bytes>, kumo_wire::Malformed> {
    match frame::next(inbox, limit)? {
        Some(length) if length <= SHARED_BYTES_MAX => {
            inbox.advance(frame::HEADER_BYTES);
            let body = pieces.copy(&inbox[..length]);
            inbox.advance(length);
            Ok(Some(body))
        }
        Some(_) | None => frame::take(inbox, limit),
    }
}

/// How long a connection may take to say who it is.
const GREETING_MICROS: u64 = 5_000_000;

/// The largest frame of the store's protocol: the largest value a gateway may be told to take, with its key.
pub const FRAME_BYTES_MAX: usize = 72 * 1024 * 1024;

/// What the packed frames of one connection may come to before the others have their turn; the last one may exceed it.
const UNPACKED_BYTES_PER_TURN: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests;
