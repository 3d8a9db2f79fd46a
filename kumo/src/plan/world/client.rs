//! [`Visitor`]: the one client of the cell, with its session and its connections.

use super::{Event, SESSION_MICROS, World};
use bytes::Bytes;
use kumo_pfs::Reply;
use kumo_session::{
    Answer, CallError, CellMessage, Client, ClientEffect, ClientInput, ClientMessage, ClientSettings,
    ConnectionId, Input, Label,
};
use kumo_wire::Wire;
use lot::Clock;
use std::collections::BTreeMap;
use std::net::SocketAddr;

pub struct Visitor {
    pub client: Client,
    pub clock: Clock,
    connections: BTreeMap<usize, Connection>,
    done: BTreeMap<u64, Result<Answer, CallError>>,
}

/// A connection with a machine, or one that is being made.
struct Connection {
    id: ConnectionId,
    up: bool,
    /// The latest arrivals: messages keep their order.
    last_there: u64,
    last_here: u64,
}

impl World {
    /// The client comes, and opens its session.
    pub fn visit(&mut self) {
        let clock = self.clock();
        let settings = ClientSettings {
            members: self.machines.iter().map(|machine| machine.address).collect(),
            token: self.random.wide(),
            sync: false,
            label: Label { address: "kumo plan".to_owned(), pid: 0, number: 0 },
            resend_micros: RESEND_MICROS,
            patience_micros: SESSION_MICROS,
            session: true,
        };
        let client = Client::new(settings, clock.local(self.now));
        let (connections, done) = (BTreeMap::new(), BTreeMap::new());
        self.visitor = Some(Visitor { client, clock, connections, done });
        self.visitor_step(ClientInput::Timeout);
    }

    /// Asks for a command; the call's ticket.
    pub fn call(&mut self, command: Bytes) -> u64 {
        let ticket = self.fresh();
        self.visitor_step(ClientInput::Command { ticket, command });
        ticket
    }

    /// Whether that call was answered, and the write made.
    pub fn is_written(&self, ticket: u64) -> bool {
        let answer = self.visitor.as_ref().and_then(|visitor| visitor.done.get(&ticket));
        let Some(Ok(Answer::Body(body))) = answer else { return false };
        matches!(Reply::from_bytes(body.clone()), Ok(Reply::Written { .. }))
    }

    pub fn visitor_step(&mut self, input: ClientInput) {
        let Some(visitor) = &mut self.visitor else { return };
        let mut effects = Vec::new();
        visitor.client.step(visitor.clock.local(self.now), input, &mut effects);
        for effect in effects {
            match effect {
                ClientEffect::Connect(member) => self.connect(member),
                ClientEffect::Disconnect(member) => self.disconnect(member),
                ClientEffect::Send(member, message) => self.send_node(member, message),
                ClientEffect::Done(ticket, result) => self.done(ticket, result),
                // Calls of a lost session are answered: that is all that is asked here.
                ClientEffect::State(_) => {}
            }
        }
    }

    fn done(&mut self, ticket: u64, result: Result<Answer, CallError>) {
        if let Some(visitor) = &mut self.visitor {
            visitor.done.insert(ticket, result);
        }
    }

    /// The connection with that machine, if it is still that one.
    fn connection(&mut self, at: usize, id: ConnectionId) -> Option<&mut Connection> {
        self.visitor.as_mut()?.connections.get_mut(&at).filter(|connection| connection.id == id)
    }

    fn connect(&mut self, member: SocketAddr) {
        let (at, id) = (self.index_of(member), ConnectionId(self.fresh()));
        let arrival = self.now + self.network.delay();
        let Some(visitor) = &mut self.visitor else { return };
        visitor.connections.insert(at, Connection { id, up: false, last_there: arrival, last_here: 0 });
        self.schedule.put(arrival, Event::Knock { at, connection: id });
    }

    /// At the machine. Where none is, nobody opens.
    pub fn knock(&mut self, at: usize, connection: ConnectionId) {
        let there = self.machines[at].cell.is_some();
        let arrival = self.now + self.network.delay();
        let Some(open) = self.connection(at, connection) else { return };
        open.last_here = arrival;
        match there {
            true => {
                self.schedule.put(arrival, Event::Connected { at, connection });
                self.step(at, Input::ClientUp(connection));
            }
            false => self.schedule.put(arrival, Event::Disconnected { at, connection }),
        }
    }

    pub fn connected(&mut self, at: usize, connection: ConnectionId) {
        let member = self.machines[at].address;
        let Some(open) = self.connection(at, connection) else { return };
        open.up = true;
        self.visitor_step(ClientInput::Connected(member));
    }

    /// At the client: the other end is closed, or was never there.
    pub fn disconnected(&mut self, at: usize, connection: ConnectionId) {
        let member = self.machines[at].address;
        if self.connection(at, connection).is_some() {
            self.forget(at);
            self.visitor_step(ClientInput::Disconnected(member));
        }
    }

    /// The client closes, after what it has sent.
    fn disconnect(&mut self, member: SocketAddr) {
        let at = self.index_of(member);
        if let Some(closed) = self.forget(at) {
            let last = closed.last_there.max(self.now) + 1;
            self.schedule.put(last, Event::ClientDown { at, connection: closed.id });
        }
    }

    fn forget(&mut self, at: usize) -> Option<Connection> {
        self.visitor.as_mut()?.connections.remove(&at)
    }

    fn send_node(&mut self, member: SocketAddr, message: ClientMessage) {
        let at = self.index_of(member);
        let arrival = self.now + self.network.delay();
        let Some(visitor) = &mut self.visitor else { return };
        let Some(open) = visitor.connections.get_mut(&at).filter(|open| open.up) else { return };
        open.last_there = open.last_there.max(arrival);
        self.schedule.put(open.last_there, Event::ToNode { at, connection: open.id, message });
    }

    pub fn send_client(&mut self, at: usize, connection: ConnectionId, message: CellMessage) {
        let arrival = self.now + self.network.delay();
        let Some(open) = self.connection(at, connection) else { return };
        open.last_here = open.last_here.max(arrival);
        let arrival = open.last_here;
        self.schedule.put(arrival, Event::ToClient { at, connection, message });
    }

    pub fn client_hears(&mut self, at: usize, connection: ConnectionId, message: CellMessage) {
        let member = self.machines[at].address;
        if self.connection(at, connection).is_some() {
            self.visitor_step(ClientInput::Message(member, message));
        }
    }

    /// A node closes, after what it has sent.
    pub fn hang_up(&mut self, at: usize, connection: ConnectionId) {
        let now = self.now;
        let Some(open) = self.connection(at, connection) else { return };
        let last = open.last_here.max(now) + 1;
        self.schedule.put(last, Event::Disconnected { at, connection });
    }

    pub fn break_connections_to(&mut self, dead: usize) {
        let id = self.visitor.as_ref().and_then(|visitor| Some(visitor.connections.get(&dead)?.id));
        if let Some(connection) = id {
            self.hang_up(dead, connection);
        }
    }
}

/// Without an answer for so long a request is sent again.
const RESEND_MICROS: u64 = 300_000;
