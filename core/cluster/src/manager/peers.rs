//! [`Peers`]: the connections, who speaks on them, and what each server said last.

use super::state::{Manager, STARVED_MICROS};
use crate::alive::{ALIVE_MICROS_MAX, LIVES_MAX};
use crate::{
    Alive, Cluster, MEMBERS_MAX, ManagerEffect, ManagerNote, ManagerSettings, Message, ServerId, Space,
    SpaceNumber, Usage,
};
use kumo_paxos::{CellId, Time};
use kumo_session::ConnectionId;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Who is connected. Told apart by the first message: a server says that it is alive, a gateway wants an id or says
/// that it is alive, a tool asks for something.
pub(super) struct Peers {
    connections: BTreeMap<ConnectionId, Connection>,
    /// Servers by the life that was heard of: all that are connected, and members that were.
    servers: BTreeMap<ServerId, Heard>,
    /// The life that is connected there.
    addresses: BTreeMap<SocketAddr, ServerId>,
    /// Lives that came while another life of their address is connected.
    newcomers: BTreeMap<ConnectionId, Newcomer>,
    /// Silence after which a connection is as good as closed.
    silence_micros: u64,
}

struct Connection {
    role: Role,
    /// The space last sent on it.
    space: SpaceNumber,
    space_at: Time,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Unknown,
    Server(ServerId),
    Newcomer,
    Gateway,
    /// Told that it is not wanted, and to be hung up.
    Refused,
}

/// What a server said last.
pub(super) struct Heard {
    pub alive: Alive,
    pub at: Time,
    /// Since when it has been connected.
    pub since: Time,
    pub connection: Option<ConnectionId>,
}

struct Newcomer {
    alive: Alive,
    /// When it was last heard.
    at: Time,
    /// Where the life that is connected with its address was asked whether it is there.
    probed: Option<ConnectionId>,
}

impl Peers {
    pub fn new(settings: &ManagerSettings) -> Peers {
        Peers {
            connections: BTreeMap::new(),
            servers: BTreeMap::new(),
            addresses: BTreeMap::new(),
            newcomers: BTreeMap::new(),
            silence_micros: silence_micros(settings),
        }
    }

    pub fn up(&mut self, connection: ConnectionId) {
        let fresh = Connection { role: Role::Unknown, space: SpaceNumber(0), space_at: Time(0) };
        self.connections.insert(connection, fresh);
    }

    pub fn knows(&self, connection: ConnectionId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// Servers and gateways: those who are told of every new space.
    pub fn followers(&self) -> Vec<ConnectionId> {
        let follows = |role| match role {
            Role::Server(_) | Role::Newcomer | Role::Gateway => true,
            Role::Unknown | Role::Refused => false,
        };
        self.connections.iter().filter(|(_, one)| follows(one.role)).map(|(&id, _)| id).collect()
    }

    pub fn server_at(&self, connection: ConnectionId) -> Option<ServerId> {
        match self.connections.get(&connection)?.role {
            Role::Server(server) => Some(server),
            Role::Unknown | Role::Newcomer | Role::Gateway | Role::Refused => None,
        }
    }

    pub fn heard(&self, server: &ServerId) -> Option<&Heard> {
        self.servers.get(server)
    }

    pub fn servers(&self) -> impl Iterator<Item = &Heard> {
        self.servers.values()
    }

    pub fn connected(&self) -> impl Iterator<Item = &Heard> {
        self.servers.values().filter(|heard| heard.connection.is_some())
    }

    /// What the life that is connected at that address said last.
    pub fn life_at(&self, address: SocketAddr) -> Option<&Heard> {
        self.servers.get(self.addresses.get(&address)?)
    }

    /// The greatest space of another cluster in what these lives hold.
    pub fn stamped_upto(&self, lives: &[ServerId]) -> SpaceNumber {
        let heard = lives.iter().filter_map(|life| self.servers.get(life));
        heard.map(|heard| heard.alive.stamped).max().unwrap_or_default()
    }

    /// Whether these lives do not hold the same.
    pub fn differ(&self, lives: &[ServerId]) -> bool {
        let heard = lives.iter().filter_map(|life| self.servers.get(life));
        let mut held = heard.map(|Heard { alive, .. }| {
            let Usage { items, tombstones, live_bytes, .. } = alive.usage;
            (items, tombstones, live_bytes, alive.stamped, alive.digest)
        });
        held.next().is_some_and(|first| held.any(|other| other != first))
    }

    pub fn has_newcomers(&self) -> bool {
        !self.newcomers.is_empty()
    }

    pub fn silence_micros(&self) -> u64 {
        self.silence_micros
    }

    /// Lives that are neither connected nor members are of no interest any more.
    pub fn forget_strangers(&mut self, space: &Space) {
        self.servers.retain(|&server, heard| heard.connection.is_some() || space.index_of(server).is_some());
    }

    pub fn push_space(
        &mut self,
        now: Time,
        connection: ConnectionId,
        space: &Space,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let Some(entry) = self.connections.get_mut(&connection) else { return };
        if space.number == SpaceNumber(0) {
            return;
        }
        entry.space = space.number;
        entry.space_at = now;
        effects.push(ManagerEffect::Send(connection, Message::new_space(space.clone())));
    }

    /// Sends the space to who says that it has an older one; again after a while, in case the first was lost on
    /// the other side.
    pub fn bring_up_to_date(
        &mut self,
        now: Time,
        connection: ConnectionId,
        has: SpaceNumber,
        space: &Space,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let Some(entry) = self.connections.get(&connection) else { return };
        let sent = entry.space == space.number && now.since(entry.space_at) < SPACE_AGAIN_MICROS;
        if has < space.number && !sent {
            self.push_space(now, connection, space, effects);
        }
    }

    /// A connection turns out to be a gateway's. Returns whether it is one now, and whether that is new.
    pub fn gateway(&mut self, connection: ConnectionId) -> Option<bool> {
        let entry = self.connections.get_mut(&connection)?;
        match entry.role {
            Role::Unknown => {
                entry.role = Role::Gateway;
                Some(true)
            }
            Role::Gateway => Some(false),
            Role::Server(_) | Role::Newcomer | Role::Refused => None,
        }
    }

    /// The life on this connection is over, or speaks elsewhere now.
    fn leave(&mut self, connection: ConnectionId, space: &Space, effects: &mut Vec<ManagerEffect>) {
        let Some(server) = self.server_at(connection) else { return };
        if let Some(heard) = self.servers.get_mut(&server) {
            heard.connection = None;
        }
        self.addresses.remove(&server.address);
        if space.index_of(server).is_none() {
            self.servers.remove(&server);
        }
        effects.push(ManagerEffect::Note(ManagerNote::Left { server }));
    }

    fn set_role(&mut self, connection: ConnectionId, role: Role) {
        if let Some(entry) = self.connections.get_mut(&connection) {
            entry.role = role;
        }
    }

    /// Asks whoever is connected there for the newcomer's sake. Connections are numbered once, so an answer with its
    /// number was sent after it came.
    fn probe(&mut self, newcomer: ConnectionId, there: ConnectionId, effects: &mut Vec<ManagerEffect>) {
        let Some(entry) = self.newcomers.get_mut(&newcomer) else { return };
        entry.probed = Some(there);
        effects.push(ManagerEffect::Send(there, Message::Probe { nonce: newcomer.0 }));
    }

    fn refuse(
        &mut self,
        connection: ConnectionId,
        address: SocketAddr,
        reason: String,
        effects: &mut Vec<ManagerEffect>,
    ) {
        self.newcomers.remove(&connection);
        self.set_role(connection, Role::Refused);
        effects.push(ManagerEffect::Send(connection, Message::Unwelcome { reason: reason.clone() }));
        effects.push(ManagerEffect::Hangup(connection));
        effects.push(ManagerEffect::Note(ManagerNote::Refused { address, reason }));
    }
}

impl Manager {
    /// Returns whether a server was lost by it.
    pub(super) fn down(
        &mut self,
        now: Time,
        connection: ConnectionId,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) -> bool {
        let server = self.peers.server_at(connection);
        self.peers.leave(connection, cluster.space(), effects);
        self.peers.connections.remove(&connection);
        self.peers.newcomers.remove(&connection);
        self.registrations.down(connection);
        self.desk.down(connection, server);
        if server.is_some() {
            self.settle_newcomers(now, cluster, effects);
        }
        server.is_some()
    }

    pub(super) fn alive(
        &mut self,
        now: Time,
        connection: ConnectionId,
        alive: Alive,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let Some(role) = self.peers.connections.get(&connection).map(|entry| entry.role) else { return };
        if let Some(reason) = objection(&alive, cluster.space()) {
            if role != Role::Refused {
                self.peers.leave(connection, cluster.space(), effects);
                self.peers.refuse(connection, alive.server.address, reason, effects);
            }
            return;
        }
        match role {
            Role::Server(server) if server == alive.server => {
                self.heard(now, connection, alive, cluster, effects);
            }
            Role::Server(server) if server.address == alive.server.address => {
                // The process goes on in another life.
                self.peers.leave(connection, cluster.space(), effects);
                self.peers.set_role(connection, Role::Unknown);
                self.join(now, connection, alive, cluster, effects);
            }
            Role::Unknown => self.join(now, connection, alive, cluster, effects),
            Role::Newcomer => {
                if let Some(newcomer) = self.peers.newcomers.get_mut(&connection) {
                    (newcomer.alive, newcomer.at) = (alive, now);
                }
                self.settle_newcomers(now, cluster, effects);
            }
            Role::Server(_) | Role::Gateway => {
                let reason = "a connection speaks for one node".to_owned();
                self.peers.leave(connection, cluster.space(), effects);
                self.peers.refuse(connection, alive.server.address, reason, effects);
            }
            Role::Refused => {}
        }
    }

    fn join(
        &mut self,
        now: Time,
        connection: ConnectionId,
        alive: Alive,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let (server, space_cluster) = (alive.server, cluster.space().cluster);
        effects.push(ManagerEffect::Send(connection, self.managers(cluster)));
        let there = self.peers.addresses.get(&server.address).copied();
        if there.is_some_and(|there| there != server) {
            self.peers.set_role(connection, Role::Newcomer);
            self.peers.newcomers.insert(connection, Newcomer { alive, at: now, probed: None });
            self.settle_newcomers(now, cluster, effects);
            return;
        }
        if self.peers.addresses.len() >= SERVERS_MAX && there.is_none() {
            let reason = format!("more than {SERVERS_MAX} servers are connected");
            self.peers.refuse(connection, server.address, reason, effects);
            return;
        }
        // The same life on another connection: the one before is broken, and we have not noticed yet.
        let before = self.peers.heard(&server).and_then(|heard| heard.connection);
        if let Some(before) = before {
            self.peers.set_role(before, Role::Refused);
            effects.push(ManagerEffect::Hangup(before));
        } else {
            effects.push(ManagerEffect::Note(ManagerNote::Joined { server }));
            if alive.cluster.is_some_and(|cluster| cluster != space_cluster) {
                effects.push(ManagerEffect::Note(ManagerNote::Foreign { server }));
            }
        }
        self.peers.set_role(connection, Role::Server(server));
        self.peers.addresses.insert(server.address, server);
        self.heard(now, connection, alive, cluster, effects);
    }

    fn heard(
        &mut self,
        now: Time,
        connection: ConnectionId,
        alive: Alive,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let (server, sent, has, belongs) = (alive.server, alive.sent, alive.space, alive.cluster.is_some());
        let before = self.peers.heard(&server).filter(|heard| heard.connection.is_some());
        let since = before.map_or(now, |heard| heard.since);
        self.peers.servers.insert(server, Heard { alive, at: now, since, connection: Some(connection) });
        // Who was never attached keeps no space but one that names it.
        let keeps = belongs || cluster.space().index_of(server).is_some();
        if keeps && self.may_know(connection, cluster) {
            self.peers.bring_up_to_date(now, connection, has, cluster.space(), effects);
        }
        // One that knows of a later space may be led by others, whose cell was rebuilt from what the servers had: what that
        // cell has declared lost must not be kept alive from here.
        if has <= cluster.space().number
            && let Some(lease) = self.lease(now, server, sent, cluster)
        {
            effects.push(ManagerEffect::Send(connection, lease));
        }
        if self.peers.has_newcomers() {
            self.settle_newcomers(now, cluster, effects);
        }
    }

    /// Two processes with one address: the one that was there first stays if it answers a question that was asked
    /// since: whatever else arrives of it may be late, sent before it ended. A new life whose predecessor is gone, or
    /// silent for too long, takes its place; so does one that names the other among its lives before, since a store
    /// has one process at a time.
    pub(super) fn settle_newcomers(
        &mut self,
        now: Time,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let mut waiting: Vec<(Time, ConnectionId)> =
            self.peers.newcomers.iter().map(|(&connection, newcomer)| (newcomer.at, connection)).collect();
        // Who was heard last first: of several lives that came one after another, it is the one that lives.
        waiting.sort_unstable_by_key(|&(at, connection)| (std::cmp::Reverse(at), connection));
        for (_, connection) in waiting {
            let Some(newcomer) = self.peers.newcomers.get(&connection) else { continue };
            let address = newcomer.alive.server.address;
            if now.since(newcomer.at.max(self.awake_since)) > self.peers.silence_micros {
                // It ended without a word, too: another may be waiting behind it.
                self.peers.newcomers.remove(&connection);
                self.peers.set_role(connection, Role::Refused);
                effects.push(ManagerEffect::Hangup(connection));
                continue;
            }
            let Some(first) = self.peers.life_at(address) else {
                self.take_place(now, connection, cluster, effects);
                continue;
            };
            let succeeds = newcomer.alive.previous.contains(&first.alive.server.incarnation);
            let there = first.connection.expect("who is found by address is connected");
            if succeeds || now.since(first.at.max(self.awake_since)) > self.peers.silence_micros {
                self.peers.leave(there, cluster.space(), effects);
                self.peers.set_role(there, Role::Refused);
                effects.push(ManagerEffect::Hangup(there));
                self.take_place(now, connection, cluster, effects);
            } else if newcomer.probed != Some(there) {
                self.peers.probe(connection, there, effects);
            }
        }
    }

    /// Who was there first is there still.
    pub(super) fn probed(&mut self, from: ConnectionId, nonce: u64, effects: &mut Vec<ManagerEffect>) {
        let connection = ConnectionId(nonce);
        let Some(newcomer) = self.peers.newcomers.get(&connection) else { return };
        let address = newcomer.alive.server.address;
        let first = self.peers.life_at(address).and_then(|first| first.connection);
        if newcomer.probed == Some(from) && first == Some(from) {
            let reason = format!("another server process is alive with the address {address}");
            self.peers.refuse(connection, address, reason, effects);
        }
    }

    fn take_place(
        &mut self,
        now: Time,
        connection: ConnectionId,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        let newcomer = self.peers.newcomers.remove(&connection).expect("the caller found it");
        self.peers.set_role(connection, Role::Unknown);
        self.join(now, connection, newcomer.alive, cluster, effects);
    }
}

/// Why we do not work with this server at all. A cluster without members says nothing: it may be rebuilt from what the
/// server has.
fn objection(alive: &Alive, space: &Space) -> Option<String> {
    let address = alive.server.address;
    if address.port() == 0 || address.ip().is_unspecified() {
        return Some(format!("{address} is no address that others can reach"));
    }
    if alive.previous.len() > LIVES_MAX {
        return Some(format!("{address} names more than {LIVES_MAX} lives before its own"));
    }
    let known = !space.members.is_empty() && space.cluster != CellId::default();
    let cluster = alive.cluster.filter(|&cluster| known && cluster != space.cluster)?;
    Some(format!(
        "the store of {address} belongs to cluster {:032x}, and this is cluster {:032x}",
        cluster.0, space.cluster.0
    ))
}

/// As long as all tries to connect; shorter in the measure in which keepalives are wanted oftener than by default.
fn silence_micros(settings: &ManagerSettings) -> u64 {
    let steps = u64::from(settings.connect_retry_limit) * u64::from(settings.connect_timeout_steps);
    let tries = steps.max(1).saturating_mul(settings.clock_interval_micros);
    let keepalive = settings.keepalive_micros.min(KEEPALIVE_MICROS);
    let shorter = tries.saturating_mul(keepalive) / KEEPALIVE_MICROS;
    shorter.max(SILENCE_MICROS_MIN)
}

/// Servers connected at once. More than can be attached, since some wait for it.
const SERVERS_MAX: usize = 2 * MEMBERS_MAX;

/// The default of `-k`: with it the seed's 6 s are those of the tries. (KUMOFS.md, 6)
const KEEPALIVE_MICROS: u64 = 2_000_000;

/// However short the interval: a manager may not run for so long without noticing, and signs of life have their own
/// interval.
const SILENCE_MICROS_MIN: u64 = STARVED_MICROS + ALIVE_MICROS_MAX + 100_000;

/// A space that seems not to have arrived is sent again after this.
const SPACE_AGAIN_MICROS: u64 = 1_000_000;
