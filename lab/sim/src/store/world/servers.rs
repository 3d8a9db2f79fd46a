//! A server's shell: its core is fed, and what it wants done is done.

use super::links::Target;
use super::processes::{ProcessId, Program};
use super::{Event, Slot, World};
use crate::store::engine::Engine;
use kumo_cluster::{
    Early, GatewayInput, Incarnation, Mutation, Seat, Server, ServerEffect, ServerId, ServerInput,
    ServerNote, ServerSettings,
};

/// A server's program.
pub struct ServerNode {
    pub id: ServerId,
    pub core: Server<Engine>,
    /// What arrived since its last turn.
    gathered: Vec<ServerInput>,
}

impl World {
    /// None: its disk does not let it begin.
    pub fn make_server(&mut self, index: usize) -> Option<ServerNode> {
        let mut life = Incarnation(self.randoms.names.wide() | 1);
        let slot = &self.slots[index];
        if self.broken == Some(Mutation::RestartGoesOn)
            && let Some(&old) = slot.engine.lives().last()
        {
            life = old;
        }
        let previous = slot.engine.lives();
        slot.engine.open();
        if slot.engine.born(life).is_err() {
            self.not_born(index);
            return None;
        }
        let space = slot.engine.space();
        let settings = ServerSettings {
            id: ServerId { address: slot.address, incarnation: life },
            previous,
            cluster: slot.engine.cluster(),
            space,
            copies_min: self.plan.copies_min,
            early: Early::default(),
            value_bytes_max: VALUE_BYTES_MAX,
            tombstone_micros_min: self.plan.tombstone_micros,
            keepalive_micros: KEEPALIVE_MICROS,
            courteous: true,
            seat: self.seat_of(index).map(|seat| Seat { address: self.slots[seat].address, durable: true }),
            limits: self.plan.limits,
            broken: self.rule(),
        };
        let now = slot.clock.local(self.now);
        let core = Server::new(settings, slot.engine.clone(), now);
        Some(ServerNode { id: core.id(), core, gathered: Vec::new() })
    }

    /// At once, or in the server's next turn. A timeout has its own, with what was gathered before it.
    pub fn server_step(&mut self, id: ProcessId, input: ServerInput) {
        if self.plan.turn_micros == 0 || matches!(input, ServerInput::Timeout) {
            return self.server_turn(id, Some(input));
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Program::Server(node) = &mut process.program else { return };
        if node.gathered.is_empty() {
            let wait = self.randoms.turns.below(self.plan.turn_micros);
            self.schedule.put(self.now + wait, Event::Turn { process: id });
        }
        node.gathered.push(input);
    }

    pub fn server_turn(&mut self, id: ProcessId, last: Option<ServerInput>) {
        let Some((now, wall)) = self.local(id) else { return };
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Program::Server(node) = &mut process.program else { return };
        let slot = process.slot;
        self.slots[slot].sync_if_due(self.now);
        let mut effects = Vec::new();
        if let Some(wall) = wall {
            node.core.step(now, ServerInput::Wall(wall), &mut effects);
        }
        for input in std::mem::take(&mut node.gathered).into_iter().chain(last) {
            node.core.step(now, input, &mut effects);
        }
        // Nobody hears of anything before it is stored.
        if !effects.is_empty()
            && let Err(fault) = self.slots[slot].engine.flush(self.plan.sync_always)
            && !self.plan.heedless
        {
            return self.ended_by_disk(id, &fault.to_string());
        }
        for effect in effects {
            self.server_effect(id, effect);
        }
        self.arm(id);
    }

    fn server_effect(&mut self, id: ProcessId, effect: ServerEffect) {
        let Some(process) = self.processes.get(&id) else { return };
        let slot = process.slot;
        let address = self.slots[slot].address;
        match effect {
            ServerEffect::Server(to, message) => {
                let dialled = process.links.get(&Target::Server(to)).and_then(|link| link.connection);
                match (dialled, process.peers.get(&to).copied()) {
                    (Some(connection), _) => self.send(connection, 0, &message),
                    (None, Some(connection)) => self.send(connection, 1, &message),
                    (None, None) => {}
                }
            }
            ServerEffect::Gateway(connection, message) => self.send(connection, 1, &message),
            ServerEffect::Manager(to, message) => {
                let link = process.links.get(&Target::Manager(to));
                if let Some(connection) = link.and_then(|link| link.connection) {
                    self.send(connection, 0, &message);
                }
            }
            // One connection a pair: the lower address dials.
            ServerEffect::Dial(to) if address < to.address => self.want_link(id, Target::Server(to)),
            ServerEffect::Dial(_) => {}
            ServerEffect::Undial(to) => self.undial(id, to),
            ServerEffect::KeepSpace(space) => {
                self.spread(&space);
                if let Some(server) = self.server_life(slot)
                    && let Err(fault) = self.slots[slot].engine.keep_space(space, server)
                {
                    // What follows may say that it is in that space.
                    self.ended_by_disk(id, &fault.to_string());
                }
            }
            ServerEffect::Managers(managers) => {
                for manager in self.only_managers(id, managers) {
                    self.server_step(id, ServerInput::ManagerDown(manager));
                }
            }
            ServerEffect::Recruit(recruit) => self.recruited(id, recruit),
            ServerEffect::Backup { .. } => {}
            ServerEffect::Note(note) => self.server_note(id, &note),
            ServerEffect::Reborn { reason } => {
                self.trace.note(self.now, &[8, id.0], &[], || format!("p{} is reborn: {reason}", id.0));
                self.kill_one(id, false);
                self.start(slot);
            }
            ServerEffect::Exit(reason) => {
                self.fail(format!("p{} exits: {reason}", id.0));
            }
        }
    }

    /// The core is told that the link is over, as of any other end, once its step is done.
    fn undial(&mut self, id: ProcessId, to: ServerId) {
        let mut was_up = self.drop_link(id, Target::Server(to));
        let Some(process) = self.processes.get_mut(&id) else { return };
        if let Some(connection) = process.peers.remove(&to) {
            self.hang_up(connection, 1);
            was_up = true;
        }
        if was_up {
            self.schedule.put(self.now, Event::Undialled { process: id, server: to });
        }
    }

    pub fn undialled(&mut self, id: ProcessId, server: ServerId) {
        let Some(process) = self.processes.get(&id) else { return };
        match &process.program {
            Program::Server(_) => {
                // One that was made meanwhile is another link: it comes up after this one is down.
                let dialled = process.links.get(&Target::Server(server)).and_then(|link| link.connection);
                let again = dialled.is_some() || process.peers.contains_key(&server);
                self.server_step(id, ServerInput::ServerDown(server));
                if again {
                    self.server_step(id, ServerInput::ServerUp(server));
                }
            }
            Program::Gateway(_) => self.gateway_step(id, GatewayInput::ServerDown(server)),
            Program::Manager(_) => {}
        }
    }

    fn server_note(&mut self, id: ProcessId, note: &ServerNote) {
        self.trace.note(self.now, &[6, id.0], &[], || format!("p{} notes {}", id.0, super::clip(note)));
        match note {
            ServerNote::Adopted { space } => self.spread(space),
            ServerNote::Settling { .. }
            | ServerNote::SettlementDone { .. }
            | ServerNote::CopyBegan { .. }
            | ServerNote::CopyDone { .. }
            | ServerNote::Dropped { .. }
            | ServerNote::StoreFault { .. }
            | ServerNote::Full(_)
            | ServerNote::Unreplicated { .. }
            | ServerNote::UnreplicatedMore { .. }
            | ServerNote::Stranger { .. } => {}
        }
    }

    /// The life that runs in that slot.
    pub fn server_life(&self, slot: usize) -> Option<ServerId> {
        let process = self.processes.get(&self.slots[slot].listener?)?;
        match &process.program {
            Program::Server(node) => Some(node.id),
            Program::Manager(_) | Program::Gateway(_) => None,
        }
    }
}

impl Slot {
    /// Its disk is made to keep what was written, if it is time.
    pub fn sync_if_due(&mut self, now: u64) {
        if now >= self.synced_at + SYNC_MICROS {
            self.synced_at = now;
            self.engine.attend();
        }
    }
}

/// Longest value that append may make: more than any run makes.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// A disk is made to keep what was written so often: the default of `--sync interval`.
pub const SYNC_MICROS: u64 = 100_000;
/// The default.
pub const KEEPALIVE_MICROS: u64 = 2_000_000;
