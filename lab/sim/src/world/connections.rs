//! Connections between clients and nodes, as the shell makes them: in order, both ways, until they break.

use super::clients::{client_host, clip};
use super::processes::ProcessId;
use super::{Event, World};
use crate::history::ClientNumber;
use bytes::Bytes;
use kumo_paxos::{CellId, Hello, Incarnation, MAGIC, Side, VERSION};
use kumo_session::{CellMessage, ClientInput, ClientMessage, ConnectionId, Input};
use kumo_wire::Wire;
use lot::Host;
use std::net::SocketAddr;

/// A connection between a client and a node: in order, both ways, until it breaks.
pub struct Connection {
    pub client: ClientNumber,
    pub process: ProcessId,
    address: SocketAddr,
    to_node: u64,
    to_client: u64,
    stalled: bool,
    node_open: bool,
    client_open: bool,
}

impl World {
    pub fn connect(&mut self, number: ClientNumber, address: SocketAddr) {
        let knock = self.fresh();
        let client = self.clients.get_mut(&number).expect("it has just made a step");
        client.knocks.insert(address, knock);
        let hello = Hello {
            magic: MAGIC,
            version: VERSION,
            cell: self.cell,
            generation: 0,
            side: Side::Client,
            address: SocketAddr::from(([10, 1, (number.0 >> 8) as u8, number.0 as u8], 40_000)),
            incarnation: Incarnation(0),
        };
        let from = client_host(number);
        let delay = self.network.delay();
        let open = self
            .host_at(address)
            .is_some_and(|to| self.network.passes(from, to) && self.network.passes(to, from));
        if open && self.listener(address).is_some() {
            let hello = self.packer.pack(&hello);
            self.schedule.put(self.now + delay, Event::Knock { client: number, address, knock, hello });
        }
        let patience = match open && self.listener(address).is_none() {
            true => delay,
            false => KNOCK_MICROS,
        };
        self.schedule.put(self.now + patience, Event::KnockFailed { client: number, address, knock });
    }

    /// At the node: a client knocks.
    pub fn knock(&mut self, number: ClientNumber, address: SocketAddr, knock: u64, hello: Bytes) {
        let wanted =
            self.clients.get(&number).is_some_and(|client| client.knocks.get(&address) == Some(&knock));
        let Some(process) = self.listener(address).filter(|_| wanted) else { return };
        let hello = Hello::from_bytes(hello).expect("a hello is read as it was written");
        let cell = &self.processes[&process].cell;
        if cell.greet(&hello).is_err() {
            return;
        }
        let theirs = cell.hello().cell;
        // A node without a cell may yet form another one: who knows its cell waits until the node does.
        if self.cell != CellId(0) && theirs != self.cell {
            return;
        }
        if self.cell == CellId(0) {
            self.cell = theirs;
        }
        let id = ConnectionId(self.fresh());
        let delay = self.network.delay();
        self.connections.insert(
            id,
            Connection {
                client: number,
                process,
                address,
                to_node: self.now,
                to_client: self.now + delay,
                stalled: false,
                node_open: true,
                client_open: false,
            },
        );
        self.schedule.put(self.now + delay, Event::Connected { connection: id, knock });
        self.step(process, Input::ClientUp(id));
    }

    pub fn connected(&mut self, id: ConnectionId, knock: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (number, address) = (connection.client, connection.address);
        let Some(client) =
            self.clients.get_mut(&number).filter(|client| client.knocks.get(&address) == Some(&knock))
        else {
            return self.client_hangs_up(id);
        };
        connection.client_open = true;
        client.knocks.remove(&address);
        client.connections.insert(address, id);
        self.trace.note(self.now, &[26, u64::from(number.0), id.0], &[], || {
            format!("c{} is connected to {address}", number.0)
        });
        self.client_step(number, ClientInput::Connected(address));
    }

    pub fn knock_failed(&mut self, number: ClientNumber, address: SocketAddr, knock: u64) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        if client.knocks.get(&address) == Some(&knock) {
            client.knocks.remove(&address);
            self.client_step(number, ClientInput::Disconnected(address));
        }
    }

    pub fn disconnect(&mut self, number: ClientNumber, address: SocketAddr) {
        let client = self.clients.get_mut(&number).expect("it has just made a step");
        client.knocks.remove(&address);
        if let Some(id) = client.connections.remove(&address) {
            self.client_hangs_up(id);
        }
    }

    pub fn send_node(&mut self, number: ClientNumber, address: SocketAddr, message: &ClientMessage) {
        let client = &self.clients[&number];
        let Some(id) = client.connections.get(&address).copied() else { return };
        let bytes = self.packer.pack(message);
        self.trace.note(self.now, &[27, u64::from(number.0), id.0], &bytes, || {
            format!("c{} -> {address} {}", number.0, clip(message))
        });
        let to = self.host_at(address).expect("it is connected there");
        if !self.passes(id, client_host(number), to) {
            return;
        }
        let delay = self.network.delay();
        let connection = self.connections.get_mut(&id).expect("its client knows it");
        connection.to_node = connection.to_node.max(self.now + delay);
        self.schedule.put(connection.to_node, Event::ToNode { connection: id, bytes });
    }

    pub fn to_node(&mut self, id: ConnectionId, bytes: Bytes) {
        let Some(connection) = self.connections.get(&id) else { return };
        if !connection.node_open {
            return;
        }
        let process = connection.process;
        match ClientMessage::from_bytes(bytes) {
            Ok(message) => self.step(process, Input::Client(id, message)),
            Err(malformed) => self.fail(format!("a client's message cannot be read: {malformed}")),
        }
    }

    pub fn send_client(&mut self, id: ConnectionId, message: &CellMessage) {
        let Some(connection) = self.connections.get(&id).filter(|connection| connection.node_open) else {
            return;
        };
        let bytes = self.packer.pack(message);
        let (number, process) = (connection.client, connection.process);
        self.trace.note(self.now, &[28, process.0, id.0], &bytes, || {
            format!("p{} -> c{} {}", process.0, number.0, clip(message))
        });
        let from = self.host_at(connection.address).expect("it is connected there");
        if !self.passes(id, from, client_host(number)) {
            return;
        }
        let delay = self.network.delay();
        let connection = self.connections.get_mut(&id).expect("it was just there");
        connection.to_client = connection.to_client.max(self.now + delay);
        self.schedule.put(connection.to_client, Event::ToClient { connection: id, bytes });
    }

    pub fn to_client(&mut self, id: ConnectionId, bytes: Bytes) {
        let Some(connection) = self.connections.get(&id) else { return };
        if !connection.client_open {
            return;
        }
        let (number, address) = (connection.client, connection.address);
        match CellMessage::from_bytes(bytes) {
            Ok(message) => self.client_step(number, ClientInput::Message(address, message)),
            Err(malformed) => self.fail(format!("a node's message cannot be read: {malformed}")),
        }
    }

    /// Whether a connection still carries anything that way. One that lost something carries nothing more,
    /// and breaks after a while.
    fn passes(&mut self, id: ConnectionId, from: Host, to: Host) -> bool {
        let open = self.network.passes(from, to);
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        if connection.stalled {
            return false;
        }
        if !open {
            connection.stalled = true;
            let patience = self.network.delay() * 1000;
            self.schedule.put(self.now + patience, Event::NodeHungUp { connection: id });
            self.schedule.put(self.now + patience * 2, Event::ClientHungUp { connection: id });
        }
        open
    }

    /// The node closes, after what it has sent.
    pub fn node_hangs_up(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.node_open = false;
        let last = connection.to_client.max(self.now) + 1;
        self.schedule.put(last, Event::NodeHungUp { connection: id });
    }

    /// At the client: the node's end is closed.
    pub fn node_hung_up(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (number, address) = (connection.client, connection.address);
        if std::mem::take(&mut connection.client_open)
            && let Some(client) = self.clients.get_mut(&number)
        {
            client.connections.remove(&address);
            self.client_hangs_up(id);
            self.client_step(number, ClientInput::Disconnected(address));
        }
        self.forget_connection(id);
    }

    pub fn client_hangs_up(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.client_open = false;
        let last = connection.to_node.max(self.now) + 1;
        self.schedule.put(last, Event::ClientHungUp { connection: id });
    }

    /// At the node: the client's end is closed.
    pub fn client_hung_up(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let process = connection.process;
        if std::mem::take(&mut connection.node_open) {
            self.node_hangs_up(id);
            self.step(process, Input::ClientDown(id));
        }
        self.forget_connection(id);
    }

    fn forget_connection(&mut self, id: ConnectionId) {
        if self
            .connections
            .get(&id)
            .is_some_and(|connection| !connection.node_open && !connection.client_open)
        {
            self.connections.remove(&id);
        }
    }

    pub fn break_connections_of(&mut self, dead: ProcessId) {
        let here: Vec<ConnectionId> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.process == dead)
            .map(|(id, _)| *id)
            .collect();
        for id in here {
            self.node_hangs_up(id);
        }
    }

    /// Breaks a connection from the middle: both ends notice.
    pub fn break_connection(&mut self, nth: u64) -> bool {
        let up: Vec<ConnectionId> = self
            .connections
            .iter()
            .filter(|(_, c)| c.client_open && c.node_open)
            .map(|(id, _)| *id)
            .collect();
        let Some(id) = up.get(nth as usize % up.len().max(1)).copied() else { return false };
        let connection = self.connections.get_mut(&id).expect("it was just listed");
        connection.stalled = true;
        self.schedule.put(self.now + 1_000, Event::NodeHungUp { connection: id });
        self.schedule.put(self.now + 30_000, Event::ClientHungUp { connection: id });
        true
    }
}

/// How long a client waits for a connection.
const KNOCK_MICROS: u64 = 1_000_000;
