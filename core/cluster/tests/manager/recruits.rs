//! Two managers find further voters among the servers; the cell itself is played by a list that obeys.

use crate::log::{CELL, Log};
use bytes::Bytes;
use kumo_cluster::{
    Alive, CellView, Command, Incarnation, Manager, ManagerEffect, ManagerInput, ManagerSettings, Message,
    Progress, ReplicaView, Seat, ServerId, SpaceNumber, Usage,
};
use kumo_paxos::{Change, ReplicaState, Role, Time};
use kumo_session::ConnectionId;
use kumo_wire::Wire;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The master among its cell and its servers.
struct Bench {
    manager: Manager,
    log: Log,
    now: u64,
    replicas: Vec<ReplicaView>,
    /// Connected servers by connection, and whether they obey when they are told to run a replica.
    servers: BTreeMap<u64, (Alive, bool)>,
    changes: Vec<Change>,
    told: Vec<SocketAddr>,
    /// What was put up while the cell is slow, and is not executed yet.
    held: Option<Vec<Bytes>>,
}

impl Bench {
    /// So many managers, on hosts 1, 2, ...
    fn new(managers: u8) -> Bench {
        let settings = ManagerSettings {
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
            voter_patience_micros: PATIENCE_MICROS,
            broken: Default::default(),
        };
        Bench {
            manager: Manager::new(settings, Time(0)),
            log: Log::new(),
            now: 0,
            replicas: (1..=managers).map(|host| voter(at(host, 19700))).collect(),
            servers: BTreeMap::new(),
            changes: Vec::new(),
            told: Vec::new(),
            held: None,
        }
    }

    fn with_servers(managers: u8, hosts: &[u8]) -> Bench {
        let mut bench = Bench::new(managers);
        bench.pass(1_000_000);
        hosts.iter().for_each(|&host| bench.connect(host, true));
        bench.pass(20_000_000);
        bench
    }

    fn connect(&mut self, host: u8, durable: bool) {
        let alive = Alive {
            server: ServerId { address: at(host, 19800), incarnation: Incarnation(u128::from(host)) },
            previous: Vec::new(),
            cluster: None,
            stamped: SpaceNumber(0),
            digest: 7,
            space: SpaceNumber(0),
            sent: Time(0),
            usage: Usage::default(),
            progress: Progress::default(),
            gets: 0,
            sets: 0,
            deletes: 0,
            seat: Some(Seat { address: at(host, 19900), durable }),
            leased: false,
            full: false,
        };
        self.step(ManagerInput::Up(ConnectionId(u64::from(host))));
        self.servers.insert(u64::from(host), (alive, true));
    }

    /// The process is gone, and its replica with it.
    fn kill(&mut self, host: u8) {
        self.servers.remove(&u64::from(host));
        self.step(ManagerInput::Down(ConnectionId(u64::from(host))));
        self.set(at(host, 19900), ReplicaState::Down);
    }

    fn set(&mut self, address: SocketAddr, state: ReplicaState) {
        for replica in self.replicas.iter_mut().filter(|replica| replica.address == address) {
            replica.state = state;
        }
    }

    /// Time goes on: everybody speaks every half second, and replicas that were told to start become extensions.
    fn pass(&mut self, micros: u64) {
        let until = self.now + micros;
        while self.now < until {
            self.now += 100_000;
            if self.now.is_multiple_of(500_000) {
                let alive: Vec<(u64, Alive)> =
                    self.servers.iter().map(|(&at, (alive, _))| (at, alive.clone())).collect();
                for (connection, mut alive) in alive {
                    alive.space = self.log.cluster.space().number;
                    let message = Message::Alive(Box::new(alive));
                    self.step(ManagerInput::From(ConnectionId(connection), message));
                }
            }
            let view = CellView {
                cluster: CELL,
                master: Some(self.replicas[0].address),
                leads: true,
                lease_end: Some(Time(u64::MAX)),
                members: self.replicas.iter().map(|replica| replica.address).collect(),
                replicas: self.replicas.clone(),
            };
            self.step(ManagerInput::Cell(view));
            self.step(ManagerInput::Timeout);
        }
    }

    fn step(&mut self, input: ManagerInput) {
        let mut effects = Vec::new();
        self.manager.step(Time(self.now), input, &self.log.cluster, &mut effects);
        for effect in effects {
            match effect {
                ManagerEffect::Send(connection, Message::Recruit(recruit)) => {
                    let (alive, obeys) = self.servers[&connection.0].clone();
                    let seat = alive.seat.expect("who has no seat is not recruited").address;
                    assert!(self.log.cluster.recruited().contains_key(&seat), "it is on record first");
                    assert_eq!((recruit.cell, recruit.peers.contains(&seat)), (CELL, false));
                    self.told.push(seat);
                    if obeys {
                        self.start(seat);
                    }
                }
                ManagerEffect::Propose(command) => match &mut self.held {
                    Some(held) => held.push(command),
                    None => {
                        let _ = self.log.apply_bytes(command);
                    }
                },
                ManagerEffect::Change(change) => self.change(change),
                ManagerEffect::Send(..)
                | ManagerEffect::Answer(..)
                | ManagerEffect::Hangup(_)
                | ManagerEffect::Note(_) => {}
            }
        }
    }

    fn start(&mut self, seat: SocketAddr) {
        match self.replicas.iter_mut().find(|replica| replica.address == seat) {
            Some(replica) if replica.role == Role::Core => replica.state = ReplicaState::Voting,
            Some(replica) => replica.state = ReplicaState::Learning,
            None => self.replicas.push(ReplicaView {
                address: seat,
                role: Role::Extension,
                state: ReplicaState::Learning,
            }),
        }
    }

    /// As the cell would do it; a bare majority is never given up.
    fn change(&mut self, change: Change) {
        self.changes.push(change.clone());
        match change {
            Change::Promote(address) => self.promote(address),
            Change::Remove(address) => self.replicas.retain(|replica| replica.address != address),
            Change::Replace { old, new } => {
                self.replicas.retain(|replica| replica.address != old);
                self.promote(new);
            }
            Change::Add(_) | Change::Recover => panic!("{change:?} is not the master's to ask for"),
        }
        let voters = self.replicas.iter().filter(|replica| replica.role == Role::Core);
        let alive = voters.clone().filter(|replica| replica.state == ReplicaState::Voting).count();
        assert!(2 * alive > voters.count());
    }

    fn promote(&mut self, address: SocketAddr) {
        let replica = self.replicas.iter_mut().find(|replica| replica.address == address).unwrap();
        (replica.role, replica.state) = (Role::Core, ReplicaState::Voting);
    }

    /// The cell has executed what was put up.
    fn catch_up(&mut self) {
        for command in self.held.take().into_iter().flatten() {
            let _ = self.log.apply_bytes(command);
        }
    }

    /// Hosts of the voters, without the managers.
    fn recruits(&self) -> Vec<u8> {
        let voters = self.replicas.iter().filter(|one| one.role == Role::Core && one.address.port() == 19900);
        let mut hosts: Vec<u8> = voters.map(|voter| host(voter.address)).collect();
        hosts.sort_unstable();
        hosts
    }
}

#[test]
fn two_managers_and_four_servers_make_five_voters_on_hosts_without_managers_first() {
    let bench = Bench::with_servers(2, &[1, 2, 3, 4]);
    assert_eq!(bench.recruits(), [1, 3, 4]);
    assert_eq!(bench.log.cluster.recruited().len(), 3);
    assert_eq!(bench.log.cluster.recruited()[&at(3, 19900)], at(3, 19800));
}

#[test]
fn two_managers_and_one_or_two_servers_make_three_voters() {
    assert_eq!(Bench::with_servers(2, &[1]).recruits(), [1]);
    assert_eq!(Bench::with_servers(2, &[1, 3]).recruits(), [3]);
}

#[test]
fn one_manager_or_three_recruit_nobody() {
    for managers in [1, 3] {
        let bench = Bench::with_servers(managers, &[1, 2, 3, 4]);
        assert_eq!((bench.recruits(), bench.changes.len()), (vec![], 0));
        assert!(bench.log.cluster.recruited().is_empty());
    }
}

#[test]
fn a_voter_that_is_silent_for_long_is_replaced_in_one_change() {
    let mut bench = Bench::with_servers(2, &[1, 2, 3, 4]);
    bench.set(at(3, 19900), ReplicaState::Down);
    bench.servers.get_mut(&3).unwrap().1 = false;
    let before = bench.changes.len();
    bench.pass(PATIENCE_MICROS - 1_000_000);
    assert_eq!(bench.changes.len(), before, "it may come back");
    assert!(bench.told.iter().filter(|&&seat| seat == at(3, 19900)).count() > 3, "it is told to");
    bench.pass(10_000_000);
    assert_eq!(bench.changes[before..], [Change::Replace { old: at(3, 19900), new: at(2, 19900) }]);
    assert_eq!(bench.recruits(), [1, 2, 4]);
    assert_eq!(bench.log.cluster.recruited().len(), 3, "who is out is dismissed");
}

#[test]
fn a_voter_whose_server_left_the_cluster_is_replaced_soon() {
    let mut bench = Bench::with_servers(2, &[1, 2, 3, 4]);
    bench.kill(4);
    bench.pass(8_000_000);
    assert_eq!(bench.recruits(), [1, 2, 3]);
}

#[test]
fn a_voter_that_nobody_can_replace_keeps_its_place() {
    let mut bench = Bench::with_servers(2, &[1, 3, 4]);
    bench.set(at(3, 19900), ReplicaState::Down);
    bench.servers.get_mut(&3).unwrap().1 = false;
    let before = bench.changes.len();
    bench.pass(2 * PATIENCE_MICROS);
    assert_eq!((bench.recruits(), bench.changes.len()), (vec![1, 3, 4], before));
    bench.set(at(3, 19900), ReplicaState::Voting);
    bench.pass(2 * PATIENCE_MICROS);
    assert_eq!((bench.recruits(), bench.changes.len()), (vec![1, 3, 4], before));
}

#[test]
fn voters_that_forget_are_never_half_of_all() {
    let mut bench = Bench::new(2);
    bench.pass(1_000_000);
    [1, 2, 3, 4].into_iter().for_each(|host| bench.connect(host, false));
    bench.pass(20_000_000);
    assert_eq!(bench.recruits(), [3], "the managers are most of the voters, and remember");
    bench.connect(5, true);
    bench.connect(6, true);
    bench.pass(20_000_000);
    assert_eq!(bench.recruits(), [3, 5, 6]);
}

#[test]
fn servers_that_go_shrink_the_cell_after_a_while_and_one_by_one() {
    let mut bench = Bench::with_servers(2, &[1, 3, 4]);
    let before = bench.changes.len();
    bench.kill(4);
    bench.pass(PATIENCE_MICROS / 2);
    assert_eq!(bench.changes.len(), before);
    bench.pass(PATIENCE_MICROS);
    assert_eq!(bench.changes[before], Change::Remove(at(4, 19900)), "who is gone goes first");
    assert_eq!((bench.recruits().len(), bench.log.cluster.recruited().len()), (1, 1));
}

#[test]
fn a_third_manager_lets_the_recruited_go() {
    let mut bench = Bench::with_servers(2, &[1, 2, 3, 4]);
    bench.replicas.push(voter(at(9, 19700)));
    bench.pass(PATIENCE_MICROS / 2);
    assert_eq!(bench.recruits().len(), 3);
    bench.pass(PATIENCE_MICROS);
    assert!(bench.recruits().is_empty() && bench.log.cluster.recruited().is_empty());
}

#[test]
fn a_replica_that_comes_when_it_is_not_wanted_any_more_is_sent_away_or_taken() {
    let mut bench = Bench::with_servers(2, &[1, 2, 3, 4]);
    bench.start(at(2, 19900));
    // An operator's extension is not ours to judge.
    bench.start(at(7, 19700));
    bench.pass(5_000_000);
    assert_eq!(bench.changes.last(), Some(&Change::Remove(at(2, 19900))));
    assert!(bench.replicas.iter().any(|replica| replica.address == at(7, 19700)));
    let mut bench = Bench::with_servers(2, &[1, 2]);
    bench.start(at(2, 19900));
    bench.connect(3, true);
    bench.pass(20_000_000);
    assert_eq!(bench.recruits(), [1, 2, 3]);
}

#[test]
fn a_replica_that_comes_while_it_is_dismissed_gets_no_vote_off_the_record() {
    let mut bench = Bench::new(2);
    bench.pass(1_000_000);
    bench.connect(3, true);
    bench.servers.get_mut(&3).unwrap().1 = false;
    bench.pass(PATIENCE_MICROS);
    assert_eq!(bench.log.cluster.recruited().len(), 1);
    // It is given up; that is put up, and takes its time.
    bench.held = Some(Vec::new());
    let dismissed = |bench: &Bench| {
        let held = bench.held.iter().flatten().cloned();
        held.filter(|command| matches!(Command::from_bytes(command.clone()), Ok(Command::Dismiss { .. })))
            .count()
    };
    while dismissed(&bench) == 0 {
        bench.pass(100_000);
    }
    // In that moment it comes.
    bench.start(at(3, 19900));
    bench.pass(3_000_000);
    assert_eq!(bench.changes, [], "its dismissal may be executed any time");
    assert!(dismissed(&bench) > 1, "the first may have been lost");
    bench.catch_up();
    bench.servers.get_mut(&3).unwrap().1 = true;
    bench.pass(20_000_000);
    assert_eq!(bench.recruits(), [3], "it is recruited anew");
    assert_eq!(bench.log.cluster.recruited().len(), 1);
}

#[test]
fn a_servers_replica_that_votes_off_the_record_is_no_manager() {
    let mut bench = Bench::new(2);
    bench.pass(1_000_000);
    bench.start(at(3, 19900));
    bench.promote(at(3, 19900));
    bench.connect(3, true);
    bench.pass(5_000_000);
    assert_eq!(bench.log.cluster.recruited().get(&at(3, 19900)), Some(&at(3, 19800)));
    [1, 2, 4].into_iter().for_each(|host| bench.connect(host, true));
    bench.pass(20_000_000);
    assert_eq!(bench.recruits(), [1, 3, 4], "two managers want three");
}

#[test]
fn a_living_voter_is_not_let_go_while_the_cell_could_not_lose_one_more() {
    let mut bench = Bench::with_servers(2, &[1, 2, 3, 4]);
    bench.replicas.push(voter(at(9, 19700)));
    bench.set(at(9, 19700), ReplicaState::Down);
    bench.set(at(2, 19700), ReplicaState::Down);
    let before = bench.changes.len();
    bench.pass(3 * PATIENCE_MICROS);
    // 4 of 6 is no better than 3 of 5; 2 of 4 would be the end.
    assert_eq!((bench.changes.len(), bench.recruits().len()), (before + 1, 2));
}

fn voter(address: SocketAddr) -> ReplicaView {
    ReplicaView { address, role: Role::Core, state: ReplicaState::Voting }
}

fn at(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

fn host(address: SocketAddr) -> u8 {
    match address {
        SocketAddr::V4(address) => address.ip().octets()[3],
        SocketAddr::V6(_) => panic!("hosts have short addresses here"),
    }
}

const PATIENCE_MICROS: u64 = 30_000_000;
