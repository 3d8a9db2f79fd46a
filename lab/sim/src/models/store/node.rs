//! [`Node`]: one server of a tale, its disk and its clock.

use super::chapter::{Life, key, server};
use super::disk::Disk;
use kumo_cluster::{
    Broken, Early, Limits, Message, Record, Server, ServerEffect, ServerInput, ServerSettings, Space,
    SpaceNumber,
};
use kumo_paxos::Time;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

/// A life of a server.
#[derive(Clone)]
pub struct Node {
    pub life: Life,
    pub server: Server<Disk>,
    pub now: Time,
    pub leased: bool,
    /// It was given up, and knows it.
    pub ended: bool,
}

impl Node {
    pub fn new(life: Life, disk: Disk, space: Option<Space>, broken: Broken) -> Node {
        let settings = ServerSettings {
            id: server(life),
            previous: Vec::new(),
            cluster: None,
            space,
            copies_min: 1,
            early: Early::default(),
            value_bytes_max: 1 << 20,
            tombstone_micros_min: 0,
            keepalive_micros: 2_000_000,
            courteous: false,
            seat: None,
            limits: Limits::default(),
            broken,
        };
        let mut node =
            Node { life, server: Server::new(settings, disk, START), now: START, leased: true, ended: false };
        let lease = Message::Lease { sent: START, micros: LEASE_MICROS, unix_millis: 1_000 };
        node.step(ServerInput::Manager(manager(), lease));
        node.step(ServerInput::Timeout);
        node
    }

    pub fn step(&mut self, input: ServerInput) -> Vec<ServerEffect> {
        let mut effects = Vec::new();
        self.server.step(self.now, input, &mut effects);
        self.ended |= effects.iter().any(|effect| matches!(effect, ServerEffect::Reborn { .. }));
        effects
    }

    /// With what it looks at right after.
    pub fn adopt(&mut self, space: Space) -> Vec<ServerEffect> {
        let mut effects = self.step(ServerInput::Manager(manager(), Message::new_space(space)));
        effects.extend(self.step(ServerInput::Timeout));
        effects
    }

    pub fn number(&self) -> SpaceNumber {
        self.server.space().map_or(SpaceNumber(0), |space| space.number)
    }

    /// What it holds of the key.
    pub fn record(&self) -> Option<Record> {
        self.server.store().records().get(key()).cloned()
    }

    /// It owes the others a watermark.
    pub fn owes_watermark(&self) -> bool {
        let soon = self.now.plus_micros(WATERMARK_MICROS);
        self.server.deadline().is_some_and(|at| at <= soon)
    }

    pub fn send_watermarks(&mut self) -> Vec<ServerEffect> {
        let now = self.now;
        self.now = now.plus_micros(WATERMARK_MICROS);
        let effects = self.step(ServerInput::Timeout);
        self.now = now;
        effects
    }

    /// What it does by itself after a while: every second time it sweeps.
    pub fn tick(&mut self) -> Vec<ServerEffect> {
        let mut effects = Vec::new();
        for _ in 0..2 {
            self.now = self.now.plus_micros(TICK_MICROS);
            effects.extend(self.step(ServerInput::Timeout));
        }
        effects
    }

    /// Its lease is over. What it would send again meanwhile is lost.
    pub fn outlive_lease(&mut self) {
        self.leased = false;
        self.now = self.now.plus_micros(LEASE_MICROS);
        self.step(ServerInput::Timeout);
    }

    fn portrait(&self) -> String {
        let mut text = format!("{:?} {} {} {:?} ", self.life, self.leased, self.ended, self.now);
        self.server.portray(key().hash, &mut text).expect("a string takes everything");
        write!(text, "{:?}", self.record()).expect("a string takes everything");
        text
    }
}

impl Hash for Node {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write(self.portrait().as_bytes());
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.portrait() == other.portrait()
    }
}

impl Eq for Node {}

impl fmt::Debug for Node {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}", self.portrait())
    }
}

fn manager() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 19700))
}

/// When a tale begins, on every server's clock. It stands still, but for leases that run out.
const START: Time = Time(1_000_000);
/// Longer than anything that is waited for.
const LEASE_MICROS: u64 = 100_000_000;
/// A watermark on its own comes after this, and nothing else does.
const WATERMARK_MICROS: u64 = 2_000;
/// Beyond the longest interval at which a server looks at what is due.
const TICK_MICROS: u64 = 60_000;
