//! Cells and clients joined by a perfect network under one virtual clock, with links that tests can cut.
#![allow(dead_code)] // Each test file uses its part.

pub mod board;

use board::Board;
use bytes::Bytes;
use kumo_paxos::{Incarnation, Message, Settings, Time};
use kumo_session::{
    Answer, CallError, Cell, CellMessage, CellSettings, Client, ClientEffect, ClientInput, ClientMessage,
    ClientSettings, ConnectionId, Effect, Input, Label, NodeNote, SessionState, UnixMillis,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// The heartbeat.
pub const UNIT: u64 = 100_000;
pub const TIMEOUT: u64 = 10_000_000;
/// Sessions at a time.
pub const SESSIONS_MAX: usize = 100;

pub struct Node {
    pub address: SocketAddr,
    pub cell: Cell<Board>,
    pub dialled: BTreeSet<SocketAddr>,
    pub linked: BTreeSet<SocketAddr>,
    pub up: bool,
    pub notes: Vec<NodeNote>,
    pub snapshots_wanted: usize,
}

pub struct User {
    pub client: Client,
    /// Connections by member.
    pub connections: BTreeMap<SocketAddr, ConnectionId>,
    pub done: BTreeMap<u64, Result<Answer, CallError>>,
    pub states: Vec<SessionState>,
    pub up: bool,
}

enum Event {
    Node(usize, Input),
    User(usize, ClientInput),
}

pub struct World {
    pub now: Time,
    pub nodes: Vec<Node>,
    pub users: Vec<User>,
    queue: VecDeque<Event>,
    connections: u64,
    tickets: u64,
    incarnations: u128,
    /// What connections without a client core were told; a hangup is `None`.
    pub raw: Vec<(ConnectionId, Option<CellMessage>)>,
    /// Nodes that hear and reach nobody: neither peers nor clients. Their links stay up.
    pub deaf: BTreeSet<usize>,
    /// The message between nodes that is lost.
    pub loses: Option<Loss>,
}

/// One message of a kind that gets lost: the so-manieth.
pub struct Loss {
    pub kind: fn(&Message) -> bool,
    pub number: usize,
    pub seen: usize,
}

impl Loss {
    fn takes(&mut self, message: &Message) -> bool {
        self.seen += usize::from((self.kind)(message));
        (self.kind)(message) && self.seen == self.number
    }
}

pub fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 100 + index as u16))
}

impl World {
    pub fn new(size: usize) -> World {
        World::with_fragile(size, &[])
    }

    /// The applications of these nodes panic on `panic`.
    pub fn with_fragile(size: usize, fragile: &[usize]) -> World {
        let mut world = World {
            now: Time(1_000_000),
            nodes: Vec::new(),
            users: Vec::new(),
            queue: VecDeque::new(),
            connections: 0,
            tickets: 0,
            incarnations: 0,
            raw: Vec::new(),
            deaf: BTreeSet::new(),
            loses: None,
        };
        for index in 0..size {
            let cell = world.empty_cell(index, size, fragile.contains(&index));
            world.nodes.push(Node {
                address: address(index),
                cell,
                dialled: BTreeSet::new(),
                linked: BTreeSet::new(),
                up: true,
                notes: Vec::new(),
                snapshots_wanted: 0,
            });
        }
        world.run(3_000_000);
        world
    }

    fn empty_cell(&mut self, index: usize, size: usize, fragile: bool) -> Cell<Board> {
        self.incarnations += 1;
        let (paxos, settings) = self.settings(index, size);
        Cell::new(paxos, settings, Board { fragile, ..Board::default() }, self.now)
    }

    /// Of the node that was started last.
    pub fn settings(&self, index: usize, size: usize) -> (Settings, CellSettings) {
        let paxos = Settings {
            address: address(index),
            peers: (0..size).filter(|other| *other != index).map(address).collect(),
            extension: false,
            incarnation: Incarnation(1000 + self.incarnations),
            unit_micros: UNIT,
            entropy: 0x1234_5678_9abc_def0 * (self.incarnations + 1),
            durable: false,
            forms_after_micros: 0,
        };
        (paxos, CellSettings { session_timeout_micros: TIMEOUT, sessions_max: SESSIONS_MAX })
    }

    /// A client with a session, or one that is being opened.
    pub fn user(&mut self, sync: bool) -> usize {
        let index = self.users.len();
        let settings = ClientSettings {
            members: self.nodes.iter().map(|node| node.address).collect(),
            token: 0xabcd_0000 + index as u128,
            sync,
            label: Label { address: format!("user {index}"), pid: 7, number: index as i64 },
            resend_micros: 500_000,
            patience_micros: 5_000_000,
            session: true,
        };
        self.users.push(User {
            client: Client::new(settings, self.now),
            connections: BTreeMap::new(),
            done: BTreeMap::new(),
            states: Vec::new(),
            up: true,
        });
        self.queue.push_back(Event::User(index, ClientInput::Timeout));
        self.run(100_000);
        index
    }

    pub fn master(&self) -> usize {
        self.find_master().expect("a master")
    }

    pub fn find_master(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|index| self.nodes[*index].up && self.nodes[*index].cell.is_master())
    }

    /// Starts a call; its ticket.
    pub fn call(&mut self, user: usize, input: impl FnOnce(u64) -> ClientInput) -> u64 {
        self.tickets += 1;
        let ticket = self.tickets;
        self.queue.push_back(Event::User(user, input(ticket)));
        self.drain();
        ticket
    }

    pub fn start(&mut self, user: usize, command: &str) -> u64 {
        let command = Bytes::from(command.to_owned());
        self.call(user, |ticket| ClientInput::Command { ticket, command })
    }

    pub fn start_read(&mut self, user: usize) -> u64 {
        self.call(user, |ticket| ClientInput::Read { ticket, query: Bytes::new() })
    }

    pub fn answer(&self, user: usize, ticket: u64) -> Option<&Result<Answer, CallError>> {
        self.users[user].done.get(&ticket)
    }

    /// The text of an answer that is there or comes within a few seconds.
    pub fn text(&mut self, user: usize, ticket: u64) -> String {
        for _ in 0..100 {
            if self.users[user].done.contains_key(&ticket) {
                break;
            }
            self.run(100_000);
        }
        match self.users[user].done.get(&ticket) {
            Some(Ok(Answer::Body(body))) => String::from_utf8_lossy(body).into_owned(),
            other => format!("{other:?}"),
        }
    }

    pub fn command(&mut self, user: usize, command: &str) -> String {
        let ticket = self.start(user, command);
        self.text(user, ticket)
    }

    pub fn read(&mut self, user: usize) -> String {
        let ticket = self.start_read(user);
        self.text(user, ticket)
    }

    pub fn crash(&mut self, index: usize) {
        self.nodes[index].up = false;
        let gone = address(index);
        for other in 0..self.nodes.len() {
            if self.nodes[other].linked.remove(&gone) {
                self.queue.push_back(Event::Node(other, Input::PeerDown(gone)));
            }
        }
        for user in 0..self.users.len() {
            if self.users[user].connections.remove(&gone).is_some() {
                self.queue.push_back(Event::User(user, ClientInput::Disconnected(gone)));
            }
        }
        self.drain();
    }

    /// Starts a crashed node again, without memory.
    pub fn restart(&mut self, index: usize) {
        let cell = self.empty_cell(index, self.nodes.len(), false);
        let node = &mut self.nodes[index];
        node.cell = cell;
        node.up = true;
        (node.dialled, node.linked) = (BTreeSet::new(), BTreeSet::new());
    }

    /// A client's process dies: its connections close, nothing is said.
    pub fn kill_user(&mut self, user: usize) {
        self.users[user].up = false;
        for (member, connection) in std::mem::take(&mut self.users[user].connections) {
            let node = self.index(member);
            self.queue.push_back(Event::Node(node, Input::ClientDown(connection)));
        }
        self.drain();
    }

    pub fn index(&self, member: SocketAddr) -> usize {
        (0..self.nodes.len()).find(|index| address(*index) == member).expect("a member")
    }

    /// A connection that the test itself speaks on.
    pub fn raw_connect(&mut self, node: usize) -> ConnectionId {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.queue.push_back(Event::Node(node, Input::ClientUp(connection)));
        self.drain();
        connection
    }

    /// Says something, and what was answered at once.
    pub fn raw_say(
        &mut self,
        node: usize,
        connection: ConnectionId,
        message: ClientMessage,
    ) -> Vec<Option<CellMessage>> {
        self.raw.clear();
        self.queue.push_back(Event::Node(node, Input::Client(connection, message)));
        self.drain();
        self.raw.iter().filter(|(to, _)| *to == connection).map(|(_, message)| message.clone()).collect()
    }

    /// A command of the process that hosts the node.
    pub fn house(&mut self, node: usize, command: &str) {
        let command = Bytes::from(command.to_owned());
        self.queue.push_back(Event::Node(node, Input::House(command)));
        self.drain();
    }

    /// Lets time pass.
    pub fn run(&mut self, micros: u64) {
        let end = self.now.plus_micros(micros);
        while self.now < end {
            self.link();
            self.drain();
            self.now = self.next_time().clamp(self.now.plus_micros(1), end);
            for index in 0..self.nodes.len() {
                let node = &self.nodes[index];
                if node.up && node.cell.deadline().is_some_and(|at| at <= self.now) {
                    let wall = UnixMillis(1_700_000_000_000 + self.now.0 / 1000);
                    self.queue.push_back(Event::Node(index, Input::Wall(wall)));
                    self.queue.push_back(Event::Node(index, Input::Timeout));
                }
            }
            for index in 0..self.users.len() {
                let user = &self.users[index];
                if user.up && user.client.deadline().is_some_and(|at| at <= self.now) {
                    self.queue.push_back(Event::User(index, ClientInput::Timeout));
                }
            }
            self.drain();
        }
    }

    fn next_time(&self) -> Time {
        let nodes = self.nodes.iter().filter(|node| node.up).filter_map(|node| node.cell.deadline());
        let users = self.users.iter().filter(|user| user.up).filter_map(|user| user.client.deadline());
        nodes.chain(users).min().unwrap_or(Time(u64::MAX))
    }

    /// Links that were dialled come up when both ends are.
    fn link(&mut self) {
        for index in 0..self.nodes.len() {
            let wanted: Vec<SocketAddr> =
                self.nodes[index].dialled.difference(&self.nodes[index].linked).copied().collect();
            for member in wanted {
                let other = self.index(member);
                if self.nodes[index].up && self.nodes[other].up {
                    let hello = self.nodes[other].cell.hello();
                    self.nodes[index].linked.insert(member);
                    self.queue.push_back(Event::Node(index, Input::PeerUp(hello)));
                }
            }
        }
    }

    /// Delivers everything, and lets the cells go on as long as they are in a hurry.
    pub fn drain(&mut self) {
        loop {
            while let Some(event) = self.queue.pop_front() {
                match event {
                    Event::Node(index, input) => self.node_step(index, input),
                    Event::User(index, input) => self.user_step(index, input),
                }
            }
            let hurried: Vec<usize> = (0..self.nodes.len())
                .filter(|index| self.nodes[*index].up && self.nodes[*index].cell.deadline() == Some(Time(0)))
                .collect();
            if hurried.is_empty() {
                return;
            }
            self.queue.extend(hurried.into_iter().map(|index| Event::Node(index, Input::Timeout)));
        }
    }

    fn node_step(&mut self, index: usize, input: Input) {
        let outside = matches!(input, Input::Peer(_) | Input::Client(..));
        if !self.nodes[index].up || outside && self.deaf.contains(&index) {
            return;
        }
        let mut effects = Vec::new();
        self.nodes[index].cell.step(self.now, input, &mut effects);
        for effect in effects {
            self.perform(index, effect);
        }
    }

    fn perform(&mut self, index: usize, effect: Effect) {
        let deaf = self.deaf.contains(&index);
        match effect {
            Effect::Peer(to, envelope) => {
                let other = self.index(to);
                let lost = self.loses.as_mut().is_some_and(|loss| loss.takes(&envelope.message));
                if self.nodes[index].linked.contains(&to) && self.nodes[other].up && !deaf && !lost {
                    self.queue.push_back(Event::Node(other, Input::Peer(envelope)));
                }
            }
            Effect::Client(connection, message) => match self.user_of(index, connection) {
                Some(user) if !deaf => {
                    let input = ClientInput::Message(address(index), message);
                    self.queue.push_back(Event::User(user, input));
                }
                Some(_) => {}
                None => self.raw.push((connection, Some(message))),
            },
            Effect::Hangup(connection) => match self.user_of(index, connection) {
                Some(user) => {
                    self.users[user].connections.remove(&address(index));
                    self.queue.push_back(Event::User(user, ClientInput::Disconnected(address(index))));
                }
                None => self.raw.push((connection, None)),
            },
            Effect::Dial(member) => {
                self.nodes[index].dialled.insert(member);
            }
            Effect::Undial(member) => {
                self.nodes[index].dialled.remove(&member);
                self.nodes[index].linked.remove(&member);
            }
            Effect::Persist(_) => {}
            Effect::WriteSnapshot => self.nodes[index].snapshots_wanted += 1,
            Effect::Note(note) => self.nodes[index].notes.push(note),
            Effect::Exit(reason) => panic!("node {index} exits: {reason}"),
        }
    }

    fn user_of(&self, index: usize, connection: ConnectionId) -> Option<usize> {
        let member = address(index);
        (0..self.users.len()).find(|user| self.users[*user].connections.get(&member) == Some(&connection))
    }

    fn user_step(&mut self, index: usize, input: ClientInput) {
        if !self.users[index].up {
            return;
        }
        let mut effects = Vec::new();
        self.users[index].client.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                ClientEffect::Connect(member) => self.connect(index, member),
                ClientEffect::Disconnect(member) => {
                    if let Some(connection) = self.users[index].connections.remove(&member) {
                        let node = self.index(member);
                        self.queue.push_back(Event::Node(node, Input::ClientDown(connection)));
                    }
                }
                ClientEffect::Send(member, message) => {
                    if let Some(connection) = self.users[index].connections.get(&member).copied() {
                        let node = self.index(member);
                        self.queue.push_back(Event::Node(node, Input::Client(connection, message)));
                    }
                }
                ClientEffect::Done(ticket, result) => {
                    let before = self.users[index].done.insert(ticket, result);
                    assert!(before.is_none(), "ticket {ticket} was answered twice");
                }
                ClientEffect::State(state) => self.users[index].states.push(state),
            }
        }
    }

    fn connect(&mut self, user: usize, member: SocketAddr) {
        let node = self.index(member);
        if !self.nodes[node].up {
            self.queue.push_back(Event::User(user, ClientInput::Disconnected(member)));
            return;
        }
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.users[user].connections.insert(member, connection);
        self.queue.push_back(Event::User(user, ClientInput::Connected(member)));
        self.queue.push_back(Event::Node(node, Input::ClientUp(connection)));
    }

    /// Every live node is in the same state.
    pub fn assert_equal(&self) {
        let mut live = self.nodes.iter().filter(|node| node.up);
        let first = live.next().expect("a live node");
        for node in live {
            assert_eq!(node.cell.application(), first.cell.application());
            assert_eq!(node.cell.digest(), first.cell.digest());
            assert!(node.cell.sessions().eq(first.cell.sessions()));
        }
    }
}
