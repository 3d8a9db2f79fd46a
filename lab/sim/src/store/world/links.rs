//! Connections between nodes, as the shell makes them: in order, both ways, until they break. A cut holds back what
//! is sent; when it lasts, the connection breaks and what it held is lost.

use super::processes::{ProcessId, Program};
use super::{Event, Kind, World};
use bytes::Bytes;
use kumo_cluster::{GatewayInput, ManagerInput, Message, ServerId, ServerInput};
use kumo_paxos::{Envelope, Hello};
use kumo_session::ConnectionId;
use kumo_wire::Wire;
use lot::Host;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Whom a process wants a connection with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A manager's peer in the cell: what is dialled is used one way.
    Peer(SocketAddr),
    Manager(SocketAddr),
    /// That very life.
    Server(ServerId),
}

/// A connection that a process wants.
pub struct Link {
    /// Which try this is; what belongs to an earlier one is ignored.
    pub attempt: u64,
    pub connection: Option<ConnectionId>,
}

/// A connection: its dialler is side 0, its listener side 1.
pub struct Connection {
    pub ends: [ProcessId; 2],
    hosts: [Host; 2],
    target: Target,
    open: [bool; 2],
    /// The latest arrival at each side.
    last: [u64; 2],
    /// What waits for a cut to end, by the side it is for.
    held: [VecDeque<Parcel>; 2],
    /// Since when something waits.
    held_since: Option<u64>,
    /// How long it may.
    patience: u64,
    /// How much longer what the dialler sends is on its way.
    late_micros: u64,
    /// Until then what is sent arrives twice, the second time that much later.
    echo: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
pub enum Parcel {
    Message(Bytes),
    /// The other side has closed.
    End,
}

impl World {
    pub fn end(&self, connection: ConnectionId, side: usize) -> Option<ProcessId> {
        self.connections.get(&connection).map(|connection| connection.ends[side])
    }

    fn host(&self, process: ProcessId) -> Option<Host> {
        self.processes.get(&process).map(|process| self.host_of(process.slot))
    }

    fn host_of(&self, slot: usize) -> Host {
        Host(self.slots[slot].host as u32)
    }

    pub fn listener(&self, target: &Target) -> Option<ProcessId> {
        self.slots[self.slot_at(target.address())?].listener
    }

    pub fn want_link(&mut self, id: ProcessId, target: Target) {
        let attempt = self.fresh();
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.links.contains_key(&target) {
            return;
        }
        process.links.insert(target, Link { attempt, connection: None });
        self.schedule.put(self.now, Event::Dial { process: id, target, attempt });
    }

    /// Gives a link up; whether there was one.
    pub fn drop_link(&mut self, id: ProcessId, target: Target) -> bool {
        let Some(process) = self.processes.get_mut(&id) else { return false };
        let Some(Link { connection: Some(connection), .. }) = process.links.remove(&target) else {
            return false;
        };
        self.hang_up(connection, 0);
        true
    }

    /// The link of that attempt, if it still counts and is not made yet.
    fn attempted(&mut self, id: ProcessId, target: &Target, attempt: u64) -> Option<&mut Link> {
        let link = self.processes.get_mut(&id)?.links.get_mut(target)?;
        (link.attempt == attempt && link.connection.is_none()).then_some(link)
    }

    pub fn dial(&mut self, id: ProcessId, target: Target, attempt: u64) {
        if self.attempted(id, &target, attempt).is_none() {
            return;
        }
        let from = self.host(id).expect("its attempt counts");
        let to = self.slot_at(target.address()).map(|slot| self.host_of(slot));
        let open = to.is_some_and(|to| self.network.passes(from, to) && self.network.passes(to, from));
        if !open || self.listener(&target).is_none() {
            self.schedule.put(self.now + REDIAL_MICROS, Event::DialTimeout { process: id, target, attempt });
            return;
        }
        let hello = match &self.processes[&id].program {
            Program::Manager(node) => node.cell.hello().to_bytes(),
            Program::Server(server) => server.id.to_bytes(),
            Program::Gateway(_) => Bytes::new(),
        };
        let delay = self.delay(from, to.expect("it is open"));
        self.schedule.put(self.now + delay, Event::Knock { dialler: id, target, attempt, hello });
        self.schedule.put(self.now + DIAL_MICROS, Event::DialTimeout { process: id, target, attempt });
    }

    /// The attempt led nowhere: try again.
    pub fn redial(&mut self, id: ProcessId, target: Target, attempt: u64) {
        let next = self.fresh();
        let Some(link) = self.attempted(id, &target, attempt) else { return };
        link.attempt = next;
        self.schedule.put(self.now, Event::Dial { process: id, target, attempt: next });
    }

    /// At the listener: somebody knocks.
    pub fn knock(&mut self, dialler: ProcessId, target: Target, attempt: u64, hello: Bytes) {
        let Some(listener) = self.listener(&target) else { return };
        let Some(from) = self.host(dialler) else { return };
        let to = self.host(listener).expect("a listener runs");
        let answer = match self.welcome(listener, &target, hello.clone()) {
            Ok(answer) => answer,
            Err(reason) => {
                self.trace.note(self.now, &[10, listener.0, dialler.0], &[], || {
                    format!("p{} refuses p{}: {reason}", listener.0, dialler.0)
                });
                return;
            }
        };
        let id = ConnectionId(self.fresh());
        let delay = self.delay(to, from);
        let patience = self.randoms.weather.between(self.plan.patience_micros.0, self.plan.patience_micros.1);
        let arrival = self.now + delay;
        self.connections.insert(
            id,
            Connection {
                ends: [dialler, listener],
                hosts: [from, to],
                target,
                open: [false, true],
                last: [arrival, self.now],
                held: [VecDeque::new(), VecDeque::new()],
                held_since: None,
                patience,
                late_micros: 0,
                echo: None,
            },
        );
        self.schedule.put(arrival, Event::Connected { connection: id, attempt, hello: answer });
        self.accepted(listener, id, &target, hello);
    }

    /// Whether the listener lets that dialler in, and what it says then.
    fn welcome(&mut self, listener: ProcessId, target: &Target, hello: Bytes) -> Result<Bytes, String> {
        match (target, &self.processes[&listener].program) {
            (Target::Peer(_), Program::Manager(node)) => {
                let read = Hello::from_bytes(hello).expect("a hello is read as it was written");
                node.cell.greet(&read)?;
                Ok(node.cell.hello().to_bytes())
            }
            (Target::Manager(_), Program::Manager(_)) => Ok(Bytes::new()),
            (Target::Server(wanted), Program::Server(server)) if server.id == *wanted => Ok(Bytes::new()),
            (target, _) => Err(format!("it is not {target:?}")),
        }
    }

    /// The listener learns of the connection.
    fn accepted(&mut self, listener: ProcessId, id: ConnectionId, target: &Target, hello: Bytes) {
        match target {
            Target::Peer(_) => {}
            Target::Manager(_) => self.manager_step(listener, ManagerInput::Up(id)),
            Target::Server(_) if hello.is_empty() => {}
            Target::Server(_) => {
                let dialler = ServerId::from_bytes(hello).expect("an id is read as it was written");
                let process = self.processes.get_mut(&listener).expect("it listens");
                let before = process.peers.insert(dialler, id);
                // The same life again: what it had before is broken, whether or not that was noticed here.
                if let Some(before) = before {
                    self.hang_up(before, 1);
                    self.server_step(listener, ServerInput::ServerDown(dialler));
                }
                self.server_step(listener, ServerInput::ServerUp(dialler));
            }
        }
    }

    /// At the dialler: the listener has opened.
    pub fn connected(&mut self, id: ConnectionId, attempt: u64, hello: Bytes) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (dialler, target) = (connection.ends[0], connection.target);
        let Some(link) = self.attempted(dialler, &target, attempt) else {
            return self.hang_up(id, 0);
        };
        link.connection = Some(id);
        self.connections.get_mut(&id).expect("it was just there").open[0] = true;
        self.trace.note(self.now, &[12, dialler.0, id.0], &[], || {
            format!("p{} is connected with {target:?}", dialler.0)
        });
        let slot = self.processes[&dialler].slot;
        match (target, self.slots[slot].kind) {
            (Target::Peer(_), _) => {
                let hello = Hello::from_bytes(hello).expect("a hello is read as it was written");
                self.cell_step(dialler, kumo_session::Input::PeerUp(hello));
            }
            (Target::Manager(address), Kind::Server) => {
                self.server_step(dialler, ServerInput::ManagerUp(address));
            }
            (Target::Manager(address), _) => self.gateway_step(dialler, GatewayInput::ManagerUp(address)),
            (Target::Server(server), Kind::Server) => {
                self.server_step(dialler, ServerInput::ServerUp(server));
            }
            (Target::Server(server), _) => self.gateway_step(dialler, GatewayInput::ServerUp(server)),
        }
    }

    /// Sends from that side.
    pub fn send(&mut self, id: ConnectionId, from: usize, message: &(impl Wire + std::fmt::Debug)) {
        let bytes = message.to_bytes();
        let Some(connection) = self.connections.get(&id).filter(|connection| connection.open[from]) else {
            return;
        };
        let (sender, receiver) = (connection.ends[from], connection.ends[1 - from]);
        self.trace.note(self.now, &[14, sender.0, id.0], &bytes, || {
            format!("p{} -> p{} {}", sender.0, receiver.0, super::clip(message))
        });
        self.post(id, 1 - from, Parcel::Message(bytes));
    }

    /// Puts a parcel on the wire to that side.
    fn post(&mut self, id: ConnectionId, to: usize, parcel: Parcel) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (from_host, to_host) = (connection.hosts[1 - to], connection.hosts[to]);
        let passes = connection.held[to].is_empty() && self.network.passes(from_host, to_host);
        let delay = self.delay(from_host, to_host);
        let now = self.now;
        let connection = self.connections.get_mut(&id).expect("it was just there");
        if passes {
            let late = if to == 1 { connection.late_micros } else { 0 };
            let arrival = connection.last[to].max(now + delay + late);
            connection.last[to] = arrival;
            let echo =
                connection.echo.filter(|&(until, _)| now < until && matches!(parcel, Parcel::Message(_)));
            if let Some((_, later)) = echo {
                let parcel = parcel.clone();
                self.schedule.put(arrival + later, Event::Arrive { connection: id, side: to, parcel });
            }
            self.schedule.put(arrival, Event::Arrive { connection: id, side: to, parcel });
            return;
        }
        connection.held[to].push_back(parcel);
        if connection.held_since.is_none() {
            connection.held_since = Some(now);
            self.schedule.put(now + FLUSH_MICROS, Event::Flush { connection: id });
        }
    }

    /// Tries again what a cut holds back, and gives the connection up when that has lasted too long.
    pub fn flush(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(since) = connection.held_since.take() else { return };
        if self.now > since + connection.patience {
            return self.snap(id);
        }
        let mut waits = false;
        for to in [0, 1] {
            let connection = self.connections.get_mut(&id).expect("it was just there");
            if connection.held[to].is_empty() {
                continue;
            }
            if self.network.passes(connection.hosts[1 - to], connection.hosts[to]) {
                for parcel in std::mem::take(&mut connection.held[to]) {
                    self.post(id, to, parcel);
                }
            } else {
                waits = true;
            }
        }
        if waits && let Some(connection) = self.connections.get_mut(&id) {
            connection.held_since = Some(since);
            self.schedule.put(self.now + FLUSH_MICROS, Event::Flush { connection: id });
        }
    }

    /// The connection breaks in the middle: both ends notice, and what was held is lost.
    pub fn snap(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.held = [VecDeque::new(), VecDeque::new()];
        let gap = self.randoms.weather.between(1, 400_000);
        for (side, delay) in [(0, 1), (1, gap)] {
            let parcel = Parcel::End;
            self.schedule.put(self.now + delay, Event::Arrive { connection: id, side, parcel });
        }
    }

    /// What its dialler sends from now on takes that much longer.
    pub fn make_late(&mut self, id: ConnectionId, micros: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.late_micros = micros;
        }
    }

    /// What is sent until then arrives twice, the second time that much later.
    pub fn make_echo(&mut self, id: ConnectionId, until: u64, later: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.echo = Some((until, later));
        }
    }

    /// Its dialler gives the connection up and makes another; what is on its way arrives, and then the end of it.
    pub fn give_up_late(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else { return };
        let last = connection.last[1].max(self.now);
        for (side, time) in [(0, self.now + 1), (1, last + 1)] {
            let parcel = Parcel::End;
            self.schedule.put(time, Event::Arrive { connection: id, side, parcel });
        }
    }

    /// Connections of gateways and servers that are up: what managers say among each other is the cell's affair.
    pub fn store_connections_up(&self) -> Vec<ConnectionId> {
        let is_peer = |id: &ConnectionId| matches!(self.connections[id].target, Target::Peer(_));
        self.connections_up().into_iter().filter(|id| !is_peer(id)).collect()
    }

    pub fn arrive(&mut self, id: ConnectionId, side: usize, parcel: Parcel) {
        let Some(connection) = self.connections.get(&id) else { return };
        if !connection.open[side] {
            if connection.open == [false, false] && matches!(parcel, Parcel::End) {
                self.connections.remove(&id);
            }
            return;
        }
        let (process, target) = (connection.ends[side], connection.target);
        let other = connection.ends[1 - side];
        match parcel {
            Parcel::End => self.closed(id, side),
            Parcel::Message(bytes) => {
                self.trace.note(self.now, &[15, process.0, id.0], &[], || {
                    format!("p{} <- p{} ({} bytes)", process.0, other.0, bytes.len())
                });
                self.deliver(id, side, process, target, bytes);
            }
        }
    }

    fn deliver(&mut self, id: ConnectionId, side: usize, process: ProcessId, target: Target, bytes: Bytes) {
        if let Target::Peer(_) = target {
            return match Envelope::from_bytes(bytes) {
                Ok(envelope) => self.cell_step(process, kumo_session::Input::Peer(envelope)),
                Err(malformed) => {
                    self.fail(format!("an envelope cannot be read as it was written: {malformed}"))
                }
            };
        }
        let message = match Message::from_bytes(bytes) {
            Ok(message) => message,
            Err(malformed) => {
                return self.fail(format!("a message cannot be read as it was written: {malformed}"));
            }
        };
        match (target, side, &self.processes[&process].program) {
            (Target::Manager(address), 0, Program::Server(_)) => {
                self.server_step(process, ServerInput::Manager(address, message));
            }
            (Target::Manager(address), 0, _) => {
                self.gateway_step(process, GatewayInput::Manager(address, message));
            }
            (Target::Manager(_), _, _) => self.manager_step(process, ManagerInput::From(id, message)),
            (Target::Server(server), 0, Program::Server(_)) => {
                self.server_step(process, ServerInput::Server(server, message));
            }
            (Target::Server(server), 0, _) => {
                self.gateway_step(process, GatewayInput::Server(server, message));
            }
            (_, _, Program::Server(_)) => {
                let input = match self.processes[&process].peer(id) {
                    Some(server) => ServerInput::Server(server, message),
                    None => ServerInput::Gateway(id, message),
                };
                self.server_step(process, input);
            }
            (_, _, Program::Manager(_) | Program::Gateway(_)) => {
                unreachable!("only servers are dialled as servers")
            }
        }
    }

    /// That side closes; the other is told after what was sent before.
    pub fn hang_up(&mut self, id: ConnectionId, side: usize) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.open[side] = false;
        let other = 1 - side;
        self.post(id, other, Parcel::End);
    }

    /// That side learns that the connection is over.
    fn closed(&mut self, id: ConnectionId, side: usize) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.open[side] = false;
        let (process, target) = (connection.ends[side], connection.target);
        self.trace.note(self.now, &[13, process.0, id.0], &[], || {
            format!("p{}: the connection with {target:?} is over", process.0)
        });
        // The other side hears of it in its turn, if it does not know yet.
        if connection.open[1 - side] {
            self.post(id, 1 - side, Parcel::End);
        } else {
            self.connections.remove(&id);
        }
        if side == 0 {
            self.dialler_lost(process, id, target);
        } else {
            self.listener_lost(process, id, target);
        }
    }

    fn dialler_lost(&mut self, id: ProcessId, connection: ConnectionId, target: Target) {
        let attempt = self.fresh();
        let Some(process) = self.processes.get_mut(&id) else { return };
        let kind = self.slots[process.slot].kind;
        // What was made anew meanwhile is another connection.
        let Some(link) = process.links.get_mut(&target) else { return };
        if link.connection != Some(connection) {
            return;
        }
        *link = Link { attempt, connection: None };
        self.schedule.put(self.now + REDIAL_MICROS / 4, Event::Dial { process: id, target, attempt });
        match (target, kind) {
            (Target::Peer(address), _) => self.cell_step(id, kumo_session::Input::PeerDown(address)),
            (Target::Manager(address), Kind::Server) => {
                self.server_step(id, ServerInput::ManagerDown(address));
            }
            (Target::Manager(address), _) => self.gateway_step(id, GatewayInput::ManagerDown(address)),
            (Target::Server(server), Kind::Server) => self.server_step(id, ServerInput::ServerDown(server)),
            (Target::Server(server), _) => self.gateway_step(id, GatewayInput::ServerDown(server)),
        }
    }

    fn listener_lost(&mut self, id: ProcessId, connection: ConnectionId, target: Target) {
        match target {
            Target::Peer(_) => {}
            Target::Manager(_) => self.manager_step(id, ManagerInput::Down(connection)),
            Target::Server(_) => {
                let Some(process) = self.processes.get_mut(&id) else { return };
                match process.peer(connection) {
                    Some(peer) => {
                        process.peers.remove(&peer);
                        self.server_step(id, ServerInput::ServerDown(peer));
                    }
                    None => self.server_step(id, ServerInput::GatewayDown(connection)),
                }
            }
        }
    }

    /// The process is gone. `silent`: so is its host, and nobody is told until they have waited long enough.
    pub fn abandon(&mut self, dead: ProcessId, silent: bool) {
        let of = |(id, connection): (&ConnectionId, &Connection)| {
            let side = connection.ends.iter().position(|end| *end == dead)?;
            Some((*id, side))
        };
        let all: Vec<(ConnectionId, usize)> = self.connections.iter().filter_map(of).collect();
        for (id, side) in all {
            if !silent {
                self.hang_up(id, side);
                continue;
            }
            let connection = self.connections.get_mut(&id).expect("it was just listed");
            connection.open[side] = false;
            let delay = self.randoms.weather.between(300_000, SILENCE_MICROS_MAX);
            let event = Event::Arrive { connection: id, side: 1 - side, parcel: Parcel::End };
            self.schedule.put(self.now + delay, event);
        }
    }

    /// Connections that are up, for whoever wants to break one.
    pub fn connections_up(&self) -> Vec<ConnectionId> {
        let up = self.connections.iter().filter(|(_, connection)| connection.open == [true, true]);
        up.map(|(id, _)| *id).collect()
    }

    /// How long one message is on its way.
    pub fn delay(&mut self, from: Host, to: Host) -> u64 {
        let mut delay = self.network.delay();
        if self.randoms.weather.permille(self.plan.late_permille) {
            delay += self.randoms.weather.below(LATE_MICROS_MAX);
        }
        for host in [from, to] {
            if let Some(most) = self.slow.get(&host).copied() {
                delay += self.randoms.weather.below(most);
            }
        }
        delay
    }
}

impl Target {
    pub fn address(&self) -> SocketAddr {
        match self {
            Target::Peer(address) | Target::Manager(address) => *address,
            Target::Server(server) => server.address,
        }
    }
}

/// Between two tries to dial.
const REDIAL_MICROS: u64 = 200_000;
/// How long a dialler waits for a hello.
const DIAL_MICROS: u64 = 1_000_000;
/// Between two tries to send what a cut holds back.
const FLUSH_MICROS: u64 = 100_000;
/// After which the other side of a dead host's connection notices, at the latest.
const SILENCE_MICROS_MAX: u64 = 6_000_000;
/// How much longer a message may take that others overtake.
const LATE_MICROS_MAX: u64 = 60_000;
