//! [`Bench`]: one manager, and everything it hears and says in the test's hands.

use crate::log::{CELL, Log, address, server};
use kumo_cluster::control::{ControlAnswer, ControlRequest};
use kumo_cluster::{
    Alive, CellView, Command, Manager, ManagerEffect, ManagerInput, ManagerNote, ManagerSettings,
    MemberState, Message, Progress, ServerId, SpaceNumber, Usage,
};
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use kumo_wire::Wire;
use std::net::SocketAddr;

/// A manager on a log that decides at once what it puts up.
pub struct Bench {
    pub manager: Manager,
    pub log: Log,
    pub now: u64,
    pub sent: Vec<(u64, Message)>,
    pub answers: Vec<ControlAnswer>,
    pub hung_up: Vec<u64>,
    pub notes: Vec<ManagerNote>,
    pub proposed: Vec<Command>,
    /// Whether what is put up is decided.
    pub deciding: bool,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(|_| {})
    }

    /// With other settings.
    pub fn with(change: impl FnOnce(&mut ManagerSettings)) -> Bench {
        let mut settings = ManagerSettings {
            life: 77,
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
            broken: Default::default(),
        };
        change(&mut settings);
        Bench {
            manager: Manager::new(settings, Time(0)),
            log: Log::new(),
            now: 0,
            sent: Vec::new(),
            answers: Vec::new(),
            hung_up: Vec::new(),
            notes: Vec::new(),
            proposed: Vec::new(),
            deciding: true,
        }
    }

    /// A master with these servers attached, each on the connection of its number.
    pub fn with_servers(numbers: std::ops::RangeInclusive<u16>) -> Bench {
        Bench::new().attached(numbers)
    }

    pub fn attached(self, numbers: std::ops::RangeInclusive<u16>) -> Bench {
        let mut bench = self;
        bench.lead();
        for number in numbers {
            bench.connect(u64::from(number), server(number, 1));
        }
        bench.ask(ControlRequest::Attach { servers: vec![], replace: true, accept_data_loss: false });
        assert_eq!(bench.answers.pop(), Some(ControlAnswer::Done));
        bench
    }

    pub fn lead(&mut self) {
        let view = CellView {
            cluster: CELL,
            master: Some(address(900)),
            leads: true,
            lease_end: Some(Time(u64::MAX)),
            members: vec![address(900)],
            replicas: Vec::new(),
        };
        self.step(ManagerInput::Cell(view));
    }

    pub fn step(&mut self, input: ManagerInput) {
        let mut effects = Vec::new();
        self.manager.step(Time(self.now), input, &self.log.cluster, &mut effects);
        for effect in effects {
            match effect {
                ManagerEffect::Send(connection, message) => self.sent.push((connection.0, message)),
                ManagerEffect::Answer(_, answer) => self.answers.push(answer),
                ManagerEffect::Hangup(connection) => {
                    self.hung_up.push(connection.0);
                    self.step(ManagerInput::Down(connection));
                }
                ManagerEffect::Propose(command) => {
                    self.proposed.push(Command::from_bytes(command.clone()).unwrap());
                    if self.deciding {
                        let _ = self.log.apply_bytes(command);
                        self.step(ManagerInput::Timeout);
                    }
                }
                ManagerEffect::Change(change) => panic!("nobody is to be recruited: {change:?}"),
                ManagerEffect::Note(note) => self.notes.push(note),
            }
        }
    }

    pub fn connect(&mut self, connection: u64, server: ServerId) {
        self.step(ManagerInput::Up(ConnectionId(connection)));
        self.alive(connection, self.sign(server));
    }

    pub fn down(&mut self, connection: u64) {
        self.step(ManagerInput::Down(ConnectionId(connection)));
    }

    pub fn alive(&mut self, connection: u64, alive: Alive) {
        self.step(ManagerInput::From(ConnectionId(connection), Message::Alive(Box::new(alive))));
    }

    /// An up-to-date sign of life.
    pub fn sign(&self, server: ServerId) -> Alive {
        let space = self.log.cluster.space();
        Alive {
            server,
            previous: Vec::new(),
            cluster: None,
            stamped: SpaceNumber(0),
            digest: 7,
            space: space.number,
            sent: Time(self.now),
            usage: Usage { items: 1000, live_bytes: 64_000, ..Usage::default() },
            progress: Progress { job: space.whs_since, ..Progress::default() },
            gets: 0,
            sets: 0,
            deletes: 0,
            seat: None,
            leased: false,
            full: false,
        }
    }

    pub fn ask(&mut self, request: ControlRequest) {
        self.step(ManagerInput::Control(ConnectionId(1000), request));
    }

    /// Lets time pass in small steps; these servers say that they are alive meanwhile.
    pub fn pass(&mut self, micros: u64, speaking: &[(u64, ServerId)]) {
        let end = self.now + micros;
        while self.now < end {
            self.now += micros.min(100_000);
            for &(connection, server) in speaking {
                self.alive(connection, self.sign(server));
            }
            self.step(ManagerInput::Timeout);
        }
    }

    pub fn state(&self, server: ServerId) -> Option<MemberState> {
        self.log.state(server)
    }

    pub fn leases_to(&self, connection: u64) -> usize {
        self.sent
            .iter()
            .filter(|(to, message)| *to == connection && matches!(message, Message::Lease { .. }))
            .count()
    }

    pub fn probed(&mut self, connection: u64, nonce: u64) {
        self.step(ManagerInput::From(ConnectionId(connection), Message::Probed { nonce }));
    }

    pub fn probes_to(&self, connection: u64) -> Vec<u64> {
        let nonce = |(to, message): &(u64, Message)| match message {
            Message::Probe { nonce } if *to == connection => Some(*nonce),
            _ => None,
        };
        self.sent.iter().filter_map(nonce).collect()
    }

    pub fn unwelcome(&self, connection: u64) -> Option<&str> {
        self.sent.iter().find_map(|(to, message)| match message {
            Message::Unwelcome { reason } if *to == connection => Some(reason.as_str()),
            _ => None,
        })
    }
}

pub fn addresses(numbers: impl IntoIterator<Item = u16>) -> Vec<SocketAddr> {
    numbers.into_iter().map(address).collect()
}
