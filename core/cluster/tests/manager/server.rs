//! [`Server`]: a stand-in that keeps a server's side of leases, lives and reports, and stores nothing.

use crate::log::CELL;
use crate::world::MANAGERS;
use kumo_cluster::{Alive, Incarnation, MemberState, Progress, ServerId, Space, SpaceNumber, Table, Usage};
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use std::collections::BTreeMap;
use std::net::SocketAddr;

pub struct Server {
    pub address: SocketAddr,
    pub incarnation: u128,
    pub running: bool,
    pub paused_until: u64,
    clock: Clock,
    pub lease_until: u64,
    pub space: Option<Space>,
    /// The last life that a space named as a member.
    member_life: Option<u128>,
    /// The lives before this one, since then.
    lives: Vec<u128>,
    pub disk: bool,
    pub links: [Option<ConnectionId>; MANAGERS],
    pub progress: Progress,
}

/// A clock that goes its own way: within a tenth of the true rate, and from anywhere.
#[derive(Clone, Copy)]
pub struct Clock {
    offset: u64,
    rate: u64,
}

impl Server {
    pub fn new(number: usize, clock: Clock) -> Server {
        Server {
            address: crate::log::address(number as u16),
            incarnation: 0,
            running: false,
            paused_until: 0,
            clock,
            lease_until: 0,
            space: None,
            member_life: None,
            lives: Vec::new(),
            disk: true,
            links: [None; MANAGERS],
            progress: Progress::default(),
        }
    }

    pub fn id(&self) -> ServerId {
        ServerId { address: self.address, incarnation: Incarnation(self.incarnation) }
    }

    /// Whether it would read on its own now.
    pub fn has_lease(&self, now: u64) -> bool {
        self.running && self.clock.at(now) < self.lease_until
    }

    pub fn born(&mut self) {
        if self.incarnation > 0 {
            self.lives.push(self.incarnation);
        }
        self.incarnation += 1;
        self.lease_until = 0;
        self.paused_until = 0;
        self.progress = Progress::default();
        if !std::mem::replace(&mut self.disk, true) {
            self.member_life = None;
            self.lives.clear();
            self.space = None;
        }
    }

    pub fn alive(&self, now: u64) -> Alive {
        Alive {
            server: self.id(),
            previous: self.lives.iter().copied().map(Incarnation).collect(),
            cluster: self.member_life.and(Some(CELL)),
            stamped: SpaceNumber(0),
            digest: 7,
            space: self.space.as_ref().map_or(SpaceNumber(0), |space| space.number),
            sent: Time(self.clock.at(now)),
            usage: Usage::default(),
            progress: self.progress,
            gets: 0,
            sets: 0,
            deletes: 0,
            seat: None,
            leased: false,
            full: false,
        }
    }

    /// Goes to a newer space. Returns whether it says that this very life is lost.
    pub fn adopt(&mut self, space: Space, tables: &BTreeMap<SpaceNumber, Table>) -> bool {
        if self.space.as_ref().is_some_and(|before| before.number >= space.number) {
            return false;
        }
        let index = space.index_of(self.id());
        self.progress = Progress { job: space.whs_since, ..Progress::default() };
        if let Some(index) = index {
            self.member_life = Some(self.incarnation);
            self.lives.clear();
            let arcs = tables[&space.number].arcs().iter().filter(|arc| arc.primary() == Some(index));
            let copies: usize = arcs.map(|arc| arc.comers.len()).sum();
            self.progress.copies = copies as u64;
        }
        let lost = index.is_some_and(|index| matches!(space.member(index).state, MemberState::Fault { .. }));
        self.space = Some(space);
        lost
    }
}

impl Clock {
    pub fn new(offset: u64, rate: u64) -> Clock {
        Clock { offset, rate }
    }

    pub fn at(self, true_time: u64) -> u64 {
        self.offset + (u128::from(true_time) * u128::from(self.rate) / 1_000_000) as u64
    }

    /// When it will show that.
    pub fn truly(self, shown: u64) -> u64 {
        let counted = u128::from(shown.saturating_sub(self.offset));
        (counted * 1_000_000).div_ceil(u128::from(self.rate)) as u64
    }
}
