//! [`World`]: three managers on one log, and servers that keep to the rules, all under faults. Leadership moves, commands
//! are delayed, lost, repeated and executed late, clocks differ by up to a tenth.

mod mischief;

use crate::log::CELL;
use crate::random::Random;
use crate::server::{Clock, Server};
use crate::watch::Watch;
use bytes::Bytes;
use kumo_cluster::control::{ControlAnswer, ControlRequest};
use kumo_cluster::{
    Broken, CellView, Cluster, GatewayId, Manager, ManagerEffect, ManagerInput, ManagerSettings, Message,
    SpaceNumber,
};
use kumo_paxos::Time;
use kumo_session::{Application, ConnectionId, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

pub const MANAGERS: usize = 3;

/// Servers 0 to 5, and what happens to them.
pub const SERVERS: usize = 6;

pub struct World {
    pub now: u64,
    pub random: Random,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    pub managers: Vec<Node>,
    pub servers: Vec<Server>,
    gateways: Vec<Gateway>,
    /// Who speaks on a connection, and with which manager.
    links: BTreeMap<ConnectionId, (End, usize)>,
    delivered: BTreeMap<(ConnectionId, bool), u64>,
    next_link: u64,
    /// The cell: its log, its leader and until when that one has its lease.
    log: Vec<Bytes>,
    pub leader: Option<usize>,
    lease_until: u64,
    /// The leader does not get its lease renewed any more.
    fading: bool,
    pub watch: Watch,
    broken: Broken,
    /// Of a hundred commands, how many get lost, and how many are decided late.
    mess: u64,
    /// Whether faults still happen.
    pub calm: bool,
}

pub struct Node {
    pub manager: Manager,
    pub cluster: Cluster,
    executed: usize,
    clock: Clock,
    up: BTreeSet<ConnectionId>,
    /// When it is woken next.
    tick: u64,
}

struct Gateway {
    nonce: u128,
    id: Option<GatewayId>,
    silent: bool,
    links: [Option<ConnectionId>; MANAGERS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Server(usize, u128),
    Gateway(usize),
}

enum Event {
    Tick(usize),
    ToManager(usize, ConnectionId, Message),
    ManagerDown(usize, ConnectionId),
    ToEnd(ConnectionId, Message),
    EndDown(ConnectionId),
    ServerAlive(usize, u128),
    GatewayAlive(usize),
    Dial(End, usize),
    Append(Bytes),
    Execute(usize),
    Cell,
    /// The leader that was learns that it is none any more.
    Deposed(usize),
    /// The leader's lease is not renewed any more.
    Fade,
    Start(usize),
    Mischief,
    Operator,
}

impl World {
    pub fn new(seed: u64, broken: Broken) -> World {
        let mut world = World {
            now: 1_000_000,
            random: Random::new(seed),
            events: BTreeMap::new(),
            sequence: 0,
            managers: Vec::new(),
            servers: Vec::new(),
            gateways: Vec::new(),
            links: BTreeMap::new(),
            delivered: BTreeMap::new(),
            next_link: 0,
            log: Vec::new(),
            leader: None,
            lease_until: 0,
            fading: false,
            watch: Watch::new(broken),
            broken,
            mess: if seed.is_multiple_of(2) { 10 } else { 35 },
            calm: false,
        };
        for _ in 0..MANAGERS {
            let node = world.node(Cluster::with_broken(broken), 0);
            world.managers.push(node);
        }
        for number in 0..SERVERS {
            let server = Server::new(number, world.clock());
            world.servers.push(server);
            world.after(1000, Event::Start(number));
        }
        for number in 0..4 {
            world.gateways.push(Gateway {
                nonce: number + 1,
                id: None,
                silent: false,
                links: [None; MANAGERS],
            });
            for manager in 0..MANAGERS {
                world.after(5000, Event::Dial(End::Gateway(number as usize), manager));
            }
            world.after(10_000, Event::GatewayAlive(number as usize));
        }
        world.after(10, Event::Cell);
        world.after(2_000_000, Event::Mischief);
        world.after(2_000_000, Event::Operator);
        world
    }

    /// Goes on until that time.
    pub fn run_until(&mut self, end: u64) {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.happen(event);
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(manager) => {
                // A step in between may have put it off.
                let node = &mut self.managers[manager];
                if node.tick <= self.now {
                    node.tick = u64::MAX;
                    self.step(manager, ManagerInput::Timeout);
                }
            }
            Event::ToManager(manager, connection, message) => {
                if self.managers[manager].up.contains(&connection) {
                    self.step(manager, ManagerInput::From(connection, message));
                }
            }
            Event::ManagerDown(manager, connection) => {
                if self.managers[manager].up.remove(&connection) {
                    self.step(manager, ManagerInput::Down(connection));
                }
            }
            Event::ToEnd(connection, message) => self.deliver(connection, message),
            Event::EndDown(connection) => self.end_down(connection),
            Event::ServerAlive(server, life) => self.server_alive(server, life),
            Event::GatewayAlive(gateway) => self.gateway_alive(gateway),
            Event::Dial(end, manager) => self.dial(end, manager),
            Event::Append(command) => self.append(command),
            Event::Execute(manager) => self.execute(manager),
            Event::Cell => self.cell(),
            Event::Deposed(manager) => {
                if self.leader != Some(manager) {
                    self.view(manager);
                }
            }
            Event::Fade => self.fading = !self.calm,
            Event::Start(server) => self.start(server),
            Event::Mischief => self.mischief(),
            Event::Operator => self.operator(),
        }
    }

    fn step(&mut self, manager: usize, input: ManagerInput) {
        let node = &mut self.managers[manager];
        let now = Time(node.clock.at(self.now));
        let mut effects = Vec::new();
        let wall = ManagerInput::Wall(UnixMillis(1_700_000_000_000 + now.0 / 1000));
        node.manager.step(now, wall, &node.cluster, &mut effects);
        node.manager.step(now, input, &node.cluster, &mut effects);
        if let Some(deadline) = node.manager.deadline() {
            let at = node.clock.truly(deadline.0).max(self.now + 1);
            if at < node.tick {
                node.tick = at;
                self.at(at, Event::Tick(manager));
            }
        }
        for effect in effects {
            self.perform(manager, effect);
        }
    }

    fn perform(&mut self, manager: usize, effect: ManagerEffect) {
        match effect {
            ManagerEffect::Send(connection, message) => {
                self.watch.sent(&message);
                let at = self.delivery(connection, true);
                self.at(at, Event::ToEnd(connection, message));
            }
            ManagerEffect::Answer(_, answer) => self.watch.answered(answer),
            ManagerEffect::Hangup(connection) => {
                self.managers[manager].up.remove(&connection);
                self.after(1000, Event::EndDown(connection));
                self.step(manager, ManagerInput::Down(connection));
            }
            ManagerEffect::Propose(command) => self.propose(command),
            ManagerEffect::Change(change) => panic!("nobody is to be recruited: {change:?}"),
            ManagerEffect::Note(_) => {}
        }
    }

    /// A command gets lost, is decided soon, late, or twice.
    fn propose(&mut self, command: Bytes) {
        if !self.calm && self.random.chance(self.mess) {
            return;
        }
        let mut times = 1;
        if !self.calm && self.random.chance(15) {
            times = 2;
        }
        for _ in 0..times {
            let late = !self.calm && self.random.chance(self.mess);
            let delay = if late { self.random.below(20_000_000) } else { 500 + self.random.below(20_000) };
            self.after(delay, Event::Append(command.clone()));
        }
    }

    fn append(&mut self, command: Bytes) {
        self.log.push(command.clone());
        self.watch.append(self.now, command, self.log.len() as u64, &self.servers);
        for manager in 0..MANAGERS {
            let slow = !self.calm && self.random.chance(5);
            let delay = 100 + self.random.below(if slow { 3_000_000 } else { 10_000 });
            self.after(delay, Event::Execute(manager));
        }
    }

    fn execute(&mut self, manager: usize) {
        let node = &mut self.managers[manager];
        while node.executed < self.log.len() {
            let entry = Watch::entry(node.executed as u64 + 1);
            node.cluster.apply(entry, self.log[node.executed].clone(), &mut Default::default());
            node.executed += 1;
        }
        self.step(manager, ManagerInput::Timeout);
    }

    /// The leader's lease is renewed, or it is over and someone else leads.
    fn cell(&mut self) {
        let lasts = self.now < self.lease_until;
        self.fading |= !self.calm && self.random.chance(3);
        match self.leader {
            Some(leader) if !self.fading => {
                self.lease_until = self.now + 700_000;
                self.view(leader);
            }
            Some(_) if lasts => {}
            former => {
                let leader = self.random.below(MANAGERS as u64) as usize;
                if let Some(former) = former.filter(|&former| former != leader) {
                    let delay = self.random.below(2_000_000);
                    self.after(delay, Event::Deposed(former));
                }
                self.leader = Some(leader);
                self.fading = false;
                self.lease_until = self.now + 700_000;
                self.watch.leaders += 1;
                self.view(leader);
            }
        }
        self.after(200_000, Event::Cell);
    }

    fn view(&mut self, manager: usize) {
        let leads = self.leader == Some(manager);
        let members: Vec<SocketAddr> = (0..MANAGERS).map(manager_address).collect();
        let clock = self.managers[manager].clock;
        let view = CellView {
            cluster: CELL,
            master: self.leader.map(manager_address),
            leads,
            lease_end: leads.then(|| Time(clock.at(self.lease_until))),
            members,
            replicas: Vec::new(),
        };
        self.step(manager, ManagerInput::Cell(view));
    }

    pub fn ask(&mut self, manager: usize, request: ControlRequest) {
        self.next_link += 1;
        let connection = ConnectionId(self.next_link);
        self.step(manager, ManagerInput::Control(connection, request));
    }

    fn start(&mut self, number: usize) {
        let server = &mut self.servers[number];
        if server.running {
            return;
        }
        server.running = true;
        server.born();
        let life = server.incarnation;
        for manager in 0..MANAGERS {
            let delay = self.random.below(300_000);
            self.after(delay, Event::Dial(End::Server(number, life), manager));
        }
        self.after(1000, Event::ServerAlive(number, life));
    }

    fn server_alive(&mut self, number: usize, life: u128) {
        let server = &mut self.servers[number];
        if !server.running || server.incarnation != life {
            return;
        }
        if server.paused_until > self.now {
            let until = server.paused_until;
            self.at(until, Event::ServerAlive(number, life));
            return;
        }
        let step = if self.calm { 100 } else { self.random.below(40) };
        server.progress.copies_done = (server.progress.copies_done + step).min(server.progress.copies);
        let alive = server.alive(self.now);
        self.watch.reported(&alive);
        for connection in server.links.into_iter().flatten() {
            self.send_to_manager(connection, Message::Alive(Box::new(alive.clone())));
        }
        let delay = 300_000 + self.random.below(100_000);
        self.after(delay, Event::ServerAlive(number, life));
    }

    fn gateway_alive(&mut self, number: usize) {
        let gateway = &self.gateways[number];
        let message = match gateway.id {
            Some(gateway) => Message::GatewayAlive { gateway, space: SpaceNumber(0) },
            None => Message::Register { nonce: gateway.nonce },
        };
        if !gateway.silent {
            for connection in gateway.links.into_iter().flatten() {
                self.send_to_manager(connection, message.clone());
            }
        }
        self.after(2_000_000, Event::GatewayAlive(number));
    }

    fn dial(&mut self, end: End, manager: usize) {
        let current = match end {
            End::Server(number, life) => {
                self.servers[number].running && self.servers[number].incarnation == life
            }
            End::Gateway(_) => true,
        };
        if !current || self.links_of(end)[manager].is_some() {
            return;
        }
        self.next_link += 1;
        let connection = ConnectionId(self.next_link);
        self.links.insert(connection, (end, manager));
        self.links_of(end)[manager] = Some(connection);
        self.managers[manager].up.insert(connection);
        self.step(manager, ManagerInput::Up(connection));
    }

    fn links_of(&mut self, end: End) -> &mut [Option<ConnectionId>; MANAGERS] {
        match end {
            End::Server(number, _) => &mut self.servers[number].links,
            End::Gateway(number) => &mut self.gateways[number].links,
        }
    }

    fn end_down(&mut self, connection: ConnectionId) {
        let Some((end, manager)) = self.links.remove(&connection) else { return };
        let link = &mut self.links_of(end)[manager];
        if *link == Some(connection) {
            *link = None;
        }
        self.after(100, Event::ManagerDown(manager, connection));
        let delay = 50_000 + self.random.below(500_000);
        self.after(delay, Event::Dial(end, manager));
    }

    fn deliver(&mut self, connection: ConnectionId, message: Message) {
        let Some(&(end, manager)) = self.links.get(&connection) else { return };
        match end {
            End::Server(number, life) => self.deliver_to_server(number, life, connection, message),
            End::Gateway(number) => match message {
                Message::Registered { gateway, .. } => self.gateways[number].id = Some(gateway),
                Message::NewSpace { space } => {
                    let gateway = &mut self.gateways[number];
                    if gateway.id.is_some_and(|id| space.expired(id)) {
                        gateway.id = None;
                    }
                }
                message => assert!(matches!(message, Message::Managers { .. }), "{manager}: {message:?}"),
            },
        }
    }

    fn deliver_to_server(&mut self, number: usize, life: u128, connection: ConnectionId, message: Message) {
        let server = &mut self.servers[number];
        if !server.running || server.incarnation != life {
            return;
        }
        if server.paused_until > self.now {
            let until = server.paused_until;
            self.at(until, Event::ToEnd(connection, message));
            return;
        }
        match message {
            Message::Lease { sent, micros, .. } => {
                server.lease_until = server.lease_until.max(sent.0 + micros);
            }
            Message::NewSpace { space } => {
                if server.adopt(*space, self.watch.tables()) {
                    self.reborn(number);
                }
            }
            Message::Probe { nonce } => self.send_to_manager(connection, Message::Probed { nonce }),
            Message::Unwelcome { .. } => self.crash(number),
            message => assert!(matches!(message, Message::Managers { .. }), "{message:?}"),
        }
    }

    /// A server that learns that it is lost ends this life and begins another.
    fn reborn(&mut self, number: usize) {
        let links = std::mem::take(&mut self.servers[number].links);
        for (manager, connection) in links.into_iter().enumerate() {
            if let Some(connection) = connection {
                self.links.remove(&connection);
                self.after(100, Event::ManagerDown(manager, connection));
            }
        }
        self.servers[number].running = false;
        self.after(1000, Event::Start(number));
    }

    fn send_to_manager(&mut self, connection: ConnectionId, message: Message) {
        let Some(&(_, manager)) = self.links.get(&connection) else { return };
        let at = self.delivery(connection, false);
        self.at(at, Event::ToManager(manager, connection, message));
    }

    /// A connection keeps the order of what is sent on it, in each direction.
    fn delivery(&mut self, connection: ConnectionId, down: bool) -> u64 {
        let slow = !self.calm && self.random.chance(3);
        let delay = 100 + self.random.below(if slow { 2_000_000 } else { 5_000 });
        let last = self.delivered.entry((connection, down)).or_default();
        *last = (*last + 1).max(self.now + delay);
        *last
    }

    fn node(&mut self, cluster: Cluster, executed: usize) -> Node {
        let clock = self.clock();
        let life = u128::from(self.random.below(1 << 30)) << 32 | u128::from(self.sequence);
        self.sequence += 1;
        let settings = ManagerSettings {
            life,
            lease_micros: 1_500_000,
            keepalive_micros: 2_000_000,
            connect_retry_limit: 4,
            connect_timeout_steps: 3,
            clock_interval_micros: 500_000,
            replace_delay_micros: 4_000_000,
            auto_replace: false,
            unit_micros: 100_000,
            session_timeout_micros: 10_000_000,
            durable: true,
            voter_patience_micros: 60_000_000,
            broken: self.broken,
        };
        let manager = Manager::new(settings, Time(clock.at(self.now)));
        Node { manager, cluster, executed, clock, up: BTreeSet::new(), tick: u64::MAX }
    }

    fn clock(&mut self) -> Clock {
        Clock::new(self.random.below(1 << 40), 900_000 + self.random.below(200_001))
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }
}

fn manager_address(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 9], 19700 + number as u16))
}

/// What a heal is judged by.
impl World {
    pub fn leading(&self) -> Option<usize> {
        self.leader.filter(|&leader| self.managers[leader].manager.term().is_some())
    }

    pub fn is_whole(&self) -> bool {
        let space = self.watch.cluster.space();
        let all = self
            .servers
            .iter()
            .all(|server| space.index_of(server.id()).is_some_and(|index| space.member(index).is_active()));
        all && space.settled() && space.job.is_none() && space.rhs.len() == SERVERS
    }

    /// Whether exactly those gateways are given up that say nothing.
    pub fn gateways_are_right(&self) -> bool {
        let live = |gateway: &Gateway| self.watch.cluster.gateway_for(gateway.nonce).is_some();
        self.gateways.iter().all(|gateway| live(gateway) != gateway.silent)
    }

    pub fn last_answer(&self) -> Option<&ControlAnswer> {
        self.watch.answers.last()
    }
}
