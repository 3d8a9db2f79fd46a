//! [`World`]: a whole cell and one client of it, the real cores, in one thread and in virtual time. Machines can be
//! taken from it; what is left then answers, or does not.

mod client;
mod peers;

use bytes::Bytes;
use client::Visitor;
use kumo_paxos::{Envelope, Hello, Incarnation, Settings};
use kumo_pfs::{Command, Condition, Pfs, Place, Query, Reply};
use kumo_session::{
    Application, Cell, CellMessage, CellSettings, ClientInput, ClientMessage, ConnectionId, Effect, Input,
    SessionId,
};
use kumo_wire::Wire;
use lot::{Clock, Network, Random, Schedule};
use peers::Link;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What is left of a cell that lost machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// A write that was asked for after the loss was decided, executed and answered.
    pub works: bool,
    /// Some survivor has what was written before the loss.
    pub survives: bool,
}

/// Forms a cell of `lost.len()` replicas, writes, takes the machines for which `lost` holds, and writes again.
pub fn lose(lost: &[bool], seed: u64) -> Verdict {
    let mut world = World::new(lost.len(), seed);
    let formed = world.run_until(FORMING_MICROS, |world| world.nodes().any(Cell::is_master));
    assert!(formed, "a cell that nothing happens to forms");
    world.visit();
    let ticket = world.call(write(BEFORE));
    let written = world.run_until(WRITING_MICROS, |world| world.is_written(ticket));
    assert!(written, "a cell that nothing happens to answers");
    // An answered write is with a majority, and with the others soon after. Machines are lost years apart: what
    // falls between those two moments is too rare to be part of a rate.
    world.run_until(RESTING_MICROS, |_| false);
    for (index, _) in lost.iter().enumerate().filter(|(_, lost)| **lost) {
        world.crash(index);
    }
    let ticket = world.call(write(AFTER));
    let works = world.run_until(ELECTION_MICROS, |world| world.is_written(ticket));
    Verdict { works, survives: world.nodes().any(|cell| holds(cell, BEFORE)) }
}

/// Everything there is.
struct World {
    now: u64,
    schedule: Schedule<Event>,
    network: Network,
    random: Random,
    machines: Vec<Machine>,
    visitor: Option<Visitor>,
    /// Numbers of attempts, connections and calls: none is used twice.
    next: u64,
}

struct Machine {
    address: SocketAddr,
    clock: Clock,
    /// `None`: the machine is lost, and all that it knew.
    cell: Option<Cell<Pfs>>,
    links: BTreeMap<SocketAddr, Link>,
    /// When it was last told the time of day.
    wall_told: Option<u64>,
}

/// What is under way.
enum Event {
    Dial { from: usize, to: SocketAddr, attempt: u64 },
    Greeting { from: usize, to: SocketAddr, attempt: u64, hello: Hello },
    Greeted { from: usize, to: SocketAddr, attempt: u64, hello: Hello },
    LinkDown { from: usize, to: SocketAddr, attempt: u64 },
    Peer { to: usize, envelope: Envelope },
    Knock { at: usize, connection: ConnectionId },
    Connected { at: usize, connection: ConnectionId },
    Disconnected { at: usize, connection: ConnectionId },
    ClientDown { at: usize, connection: ConnectionId },
    ToNode { at: usize, connection: ConnectionId, message: ClientMessage },
    ToClient { at: usize, connection: ConnectionId, message: CellMessage },
}

/// Whose deadline is next.
#[derive(Clone, Copy)]
enum Sleeper {
    Machine(usize),
    Visitor,
}

impl World {
    fn new(replicas: usize, seed: u64) -> World {
        let mut world = World {
            now: 0,
            schedule: Schedule::default(),
            network: Network::new(seed),
            random: Random::new(seed, "machines"),
            machines: Vec::new(),
            visitor: None,
            next: 0,
        };
        let addresses: Vec<SocketAddr> = (0..replicas).map(address).collect();
        for &address in &addresses {
            let clock = world.clock();
            let settings = Settings {
                address,
                peers: addresses.iter().copied().filter(|peer| *peer != address).collect(),
                extension: false,
                incarnation: Incarnation(world.random.wide() | 1),
                unit_micros: UNIT_MICROS,
                entropy: world.random.wide(),
                durable: false,
                forms_after_micros: 0,
            };
            let sessions = CellSettings { session_timeout_micros: SESSION_MICROS, sessions_max: 1 };
            let cell = Some(Cell::new(settings, sessions, Pfs::default(), clock.local(world.now)));
            let links = BTreeMap::new();
            world.machines.push(Machine { address, clock, cell, links, wall_told: None });
        }
        world
    }

    /// Hosts' clocks are a day apart, and do not quite run alike.
    fn clock(&mut self) -> Clock {
        Clock::new(self.random.below(DAY_MICROS), 0, self.random.between(960, 1040))
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The cores of the machines that are left.
    fn nodes(&self) -> impl Iterator<Item = &Cell<Pfs>> {
        self.machines.iter().filter_map(|machine| machine.cell.as_ref())
    }

    /// The machine is gone, with its memory, and stays away. What it had sent arrives; whoever was connected to it
    /// notices a little later.
    fn crash(&mut self, index: usize) {
        self.machines[index].cell = None;
        self.break_links_to(index);
        self.break_connections_to(index);
    }

    /// Lets so much time pass, but not more than until `done`; whether it is.
    fn run_until(&mut self, micros: u64, done: impl Fn(&World) -> bool) -> bool {
        let end = self.now + micros;
        while !done(self) {
            if self.now == end {
                return false;
            }
            self.go_on(end);
        }
        true
    }

    /// One event, one deadline, or nothing until the end.
    fn go_on(&mut self, end: u64) {
        let due = self.deadline().filter(|(moment, _)| *moment <= end);
        let until = due.map_or(end, |(moment, _)| moment);
        if let Some((time, event)) = self.schedule.take(until) {
            self.now = time;
            return self.dispatch(event);
        }
        self.now = until;
        match due {
            Some((_, Sleeper::Machine(index))) => self.step(index, Input::Timeout),
            Some((_, Sleeper::Visitor)) => self.visitor_step(ClientInput::Timeout),
            None => {}
        }
    }

    /// The next deadline of a core. One that has passed comes a moment later, so that time goes on.
    fn deadline(&self) -> Option<(u64, Sleeper)> {
        let machines = self.machines.iter().enumerate().filter_map(|(index, machine)| {
            let deadline = machine.cell.as_ref()?.deadline()?;
            Some((machine.clock.moment(deadline, self.now + 1), Sleeper::Machine(index)))
        });
        let visitor = self.visitor.as_ref().and_then(|visitor| {
            let deadline = visitor.client.deadline()?;
            Some((visitor.clock.moment(deadline, self.now + 1), Sleeper::Visitor))
        });
        machines.chain(visitor).min_by_key(|(moment, _)| *moment)
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Dial { from, to, attempt } => self.dial(from, to, attempt),
            Event::Greeting { from, to, attempt, hello } => self.greeting(from, to, attempt, hello),
            Event::Greeted { from, to, attempt, hello } => self.greeted(from, to, attempt, hello),
            Event::LinkDown { from, to, attempt } => self.link_down(from, to, attempt),
            Event::Peer { to, envelope } => self.step(to, Input::Peer(envelope)),
            Event::Knock { at, connection } => self.knock(at, connection),
            Event::Connected { at, connection } => self.connected(at, connection),
            Event::Disconnected { at, connection } => self.disconnected(at, connection),
            Event::ClientDown { at, connection } => self.step(at, Input::ClientDown(connection)),
            Event::ToNode { at, connection, message } => self.step(at, Input::Client(connection, message)),
            Event::ToClient { at, connection, message } => self.client_hears(at, connection, message),
        }
    }

    /// One step of a core, if its machine is there, and what follows from it.
    fn step(&mut self, index: usize, input: Input) {
        let machine = &mut self.machines[index];
        let Some(cell) = &mut machine.cell else { return };
        let now = machine.clock.local(self.now);
        let mut effects = Vec::new();
        if machine.wall_told.is_none_or(|told| self.now >= told + WALL_MICROS) {
            machine.wall_told = Some(self.now);
            cell.step(now, Input::Wall(machine.clock.wall(self.now)), &mut effects);
        }
        cell.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Peer(to, envelope) => self.send_peer(index, to, envelope),
                Effect::Client(connection, message) => self.send_client(index, connection, message),
                Effect::Hangup(connection) => self.hang_up(index, connection),
                Effect::Dial(to) => self.want_link(index, to),
                Effect::Undial(to) => self.drop_link(index, to),
                Effect::Exit(_) => self.crash(index),
                // Nothing is on a disk here, and nobody reads the log.
                Effect::Persist(_) | Effect::WriteSnapshot | Effect::Note(_) => {}
            }
        }
    }

    fn index_of(&self, address: SocketAddr) -> usize {
        let found = self.machines.iter().position(|machine| machine.address == address);
        found.expect("nobody is told of an address but those of the machines")
    }
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, index as u8 + 1], PORT))
}

fn write(path: &str) -> Bytes {
    let (path, data) = (path.to_owned(), Bytes::from_static(CONTENT));
    let command =
        Command::Write { path, place: Place::Replace, data, ephemeral: false, condition: Condition::Always };
    command.to_bytes()
}

/// Whether that replica has the file, asked past the protocol: a survivor without a majority answers nobody.
fn holds(cell: &Cell<Pfs>, path: &str) -> bool {
    let query = Query::Read { path: path.to_owned(), offset: 0, length: CONTENT.len() as u64 };
    let reply = cell.application().read(SessionId::HOUSE, query.to_bytes());
    matches!(Reply::from_bytes(reply), Ok(Reply::Data { bytes, .. }) if bytes == CONTENT)
}

const BEFORE: &str = "/before";
const AFTER: &str = "/after";
const CONTENT: &[u8] = b"kumo";

/// Where cells listen unless told otherwise.
const PORT: u16 = 19700;
/// The default heartbeat.
const UNIT_MICROS: u64 = 100_000;
/// The default of a session.
const SESSION_MICROS: u64 = 10_000_000;
/// How often a node is told the time of day.
const WALL_MICROS: u64 = 100_000;
const DAY_MICROS: u64 = 86_400_000_000;
/// Many times what it takes.
const FORMING_MICROS: u64 = 60_000_000;
const WRITING_MICROS: u64 = 10_000_000;
/// Some heartbeats: by then all replicas have executed what is decided.
const RESTING_MICROS: u64 = 1_000_000;
/// An election may begin when a peer was silent for 4 heartbeats and a lease of 5 has run out. This is eight times as
/// long as both, and shorter than a session lives.
const ELECTION_MICROS: u64 = 8 * (4 + 5) * UNIT_MICROS;

#[cfg(test)]
mod tests {
    use super::*;

    /// The arithmetic and the cores agree on every set of lost machines.
    #[test]
    fn a_majority_works_and_anyone_survives() {
        for replicas in 1..=5 {
            for set in 0..1u32 << replicas {
                let lost: Vec<bool> = (0..replicas).map(|index| set >> index & 1 == 1).collect();
                let left = lost.iter().filter(|lost| !**lost).count();
                let expected = Verdict { works: left > replicas / 2, survives: left > 0 };
                for seed in [1, 2] {
                    assert_eq!(lose(&lost, seed), expected, "{lost:?} seed {seed}");
                }
            }
        }
    }

    #[test]
    fn who_never_got_the_write_does_not_hold_it() {
        let mut world = World::new(3, 1);
        assert!(world.run_until(FORMING_MICROS, |world| world.nodes().any(Cell::is_master)));
        world.visit();
        let ticket = world.call(write(BEFORE));
        assert!(!world.nodes().any(|cell| holds(cell, BEFORE)));
        assert!(world.run_until(WRITING_MICROS, |world| world.is_written(ticket)));
        assert!(
            world.nodes().any(|cell| holds(cell, BEFORE)) && !world.nodes().any(|cell| holds(cell, AFTER))
        );
    }
}
