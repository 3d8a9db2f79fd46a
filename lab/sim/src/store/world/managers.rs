//! A manager's shell: the replica of the cell, the manager beside it, and their disk. What is decided of agreement's
//! own disk is simulated elsewhere: here a record is on disk at once.

use super::links::Target;
use super::processes::{ProcessId, Program};
use super::servers::KEEPALIVE_MICROS;
use super::{Kind, World};
use kumo_cluster::{
    CellView, Cluster, Manager, ManagerEffect, ManagerInput, ManagerNote, ManagerSettings, ReplicaView,
};
use kumo_paxos::{ExitReason, Incarnation, Instance, Note, Record, ReplicaStatus, Settings, Time, Value};
use kumo_session::{Cell, CellSettings, Effect, Input, NodeNote, UnixMillis};
use kumo_wire::Wire;

/// A manager's program.
pub struct ManagerNode {
    pub cell: Cell<Cluster>,
    pub manager: Manager,
    /// How far the manager has seen the replica execute.
    executed: Instance,
    /// The time of day that the replica was told and the manager was not.
    wall: Option<UnixMillis>,
}

impl ManagerNode {
    pub fn deadline(&self) -> Option<Time> {
        [self.cell.deadline(), self.manager.deadline()].into_iter().flatten().min()
    }

    fn view(&self, now: Time) -> CellView {
        let hello = self.cell.hello();
        let status = self.cell.status(now);
        CellView {
            cluster: hello.cell,
            master: status.master,
            leads: self.cell.is_master(),
            lease_end: self.cell.has_lease(now).then(|| now.plus_micros(1)),
            members: status.replicas.iter().map(|replica| replica.member.address).collect(),
            replicas: status.replicas.iter().map(seen).collect(),
        }
    }
}

fn seen(replica: &ReplicaStatus) -> ReplicaView {
    ReplicaView { address: replica.member.address, role: replica.member.role, state: replica.state }
}

impl World {
    pub fn make_manager(&mut self, index: usize) -> Option<ManagerNode> {
        self.inherit(index);
        let (entropy, life) = (self.randoms.names.wide(), self.randoms.names.wide());
        let broken = self.rule();
        let now = self.clock(index).local(self.now);
        let slot = &self.slots[index];
        let recruit = slot.recruit.as_ref();
        let peers = recruit.map_or_else(|| self.managers(), |recruit| recruit.peers.clone());
        let life_before = slot.disk.life();
        let incarnation = match slot.kind {
            Kind::Seat => life_before.unwrap_or(Incarnation(self.randoms.names.wide() | 1)),
            Kind::Manager | Kind::Server | Kind::Gateway => life_before?,
        };
        let slot = &self.slots[index];
        let settings = Settings {
            address: slot.address,
            peers: peers.into_iter().filter(|address| *address != slot.address).collect(),
            extension: slot.kind == Kind::Seat,
            incarnation,
            unit_micros: UNIT_MICROS,
            entropy,
            durable: true,
            forms_after_micros: 0,
        };
        let cell_settings = CellSettings { session_timeout_micros: 10_000_000, sessions_max: 16 };
        let (snapshot, records) = (slot.disk.snapshot(), slot.disk.records());
        let empty = Cluster::with_broken(broken);
        let recovered = match life_before {
            None => Ok(Cell::new(settings, cell_settings, empty, now)),
            Some(_) => Cell::recover(settings, cell_settings, empty, snapshot, records, now),
        };
        let cell = match recovered {
            Ok(cell) => cell,
            Err(malformed) => {
                self.fail(format!("a manager cannot read its own disk: {malformed}"));
                return None;
            }
        };
        let settings = ManagerSettings {
            life,
            lease_micros: LEASE_MICROS,
            keepalive_micros: KEEPALIVE_MICROS,
            connect_retry_limit: 4,
            connect_timeout_steps: 3,
            clock_interval_micros: 500_000,
            replace_delay_micros: REPLACE_DELAY_MICROS,
            auto_replace: false,
            unit_micros: UNIT_MICROS,
            session_timeout_micros: 10_000_000,
            durable: true,
            voter_patience_micros: VOTER_PATIENCE_MICROS,
            broken,
        };
        Some(ManagerNode { cell, manager: Manager::new(settings, now), executed: Instance(0), wall: None })
    }

    /// The memory of having formed the cell is read as from a disk: once.
    fn inherit(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(genesis) = slot.born.take() else { return };
        let me = genesis.configuration.at(slot.address).expect("who is born into a cell is a member");
        let life = Record::Life { incarnation: me.incarnation, grant_micros: 5 * UNIT_MICROS, kept: 0 };
        let entry = Record::Decided { instance: Instance(0), value: Value::Genesis(genesis) };
        for record in [life, entry] {
            let bytes = record.to_bytes();
            slot.disk.write(&record, bytes);
        }
        slot.disk.sync(slot.disk.written());
    }

    pub fn manager_timeout(&mut self, id: ProcessId) {
        self.cell_step(id, Input::Timeout);
        let Some((now, _)) = self.local(id) else { return };
        let Some(process) = self.processes.get(&id) else { return };
        let Program::Manager(node) = &process.program else { return };
        if node.manager.deadline().is_some_and(|deadline| deadline <= now) {
            self.manager_step(id, ManagerInput::Timeout);
        }
    }

    /// One step of the replica; the manager hears what came of it.
    pub fn cell_step(&mut self, id: ProcessId, input: Input) {
        let Some((now, wall)) = self.local(id) else { return };
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Program::Manager(node) = &mut process.program else { return };
        let led = node.cell.is_master();
        let mut effects = Vec::new();
        if let Some(wall) = wall {
            node.wall = Some(wall);
            node.cell.step(now, Input::Wall(wall), &mut effects);
        }
        node.cell.step(now, input, &mut effects);
        let executed = node.cell.executed_upto();
        let changed = node.cell.is_master() != led || executed != node.executed;
        node.executed = executed;
        for effect in effects {
            self.cell_effect(id, effect);
        }
        if changed {
            self.tell_manager(id, None);
            self.watch_cell(id);
        }
        self.arm(id);
    }

    pub fn manager_step(&mut self, id: ProcessId, input: ManagerInput) {
        self.tell_manager(id, Some(input));
        self.arm(id);
    }

    /// The manager gets how its replica stands, then what happened.
    fn tell_manager(&mut self, id: ProcessId, input: Option<ManagerInput>) {
        let Some((now, wall)) = self.local(id) else { return };
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Program::Manager(node) = &mut process.program else { return };
        let view = node.view(now);
        let mut effects = Vec::new();
        let wall = wall.or(node.wall.take()).map(ManagerInput::Wall);
        for input in [Some(ManagerInput::Cell(view)), wall, input].into_iter().flatten() {
            node.manager.step(now, input, node.cell.application(), &mut effects);
        }
        self.manager_effects(id, effects);
    }

    fn manager_effects(&mut self, id: ProcessId, effects: Vec<ManagerEffect>) {
        let (mut proposals, mut changes) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                ManagerEffect::Send(connection, message) => self.send(connection, 1, &message),
                ManagerEffect::Answer(connection, answer) => self.answered(id, connection, answer),
                ManagerEffect::Hangup(connection) => self.hang_up(connection, 1),
                ManagerEffect::Propose(command) => proposals.push(command),
                ManagerEffect::Change(change) => changes.push(change),
                ManagerEffect::Note(note) => self.manager_note(id, &note),
            }
        }
        for command in proposals {
            self.trace.note(self.now, &[16, id.0], &command, || {
                let read = kumo_cluster::Command::from_bytes(command.clone());
                format!("p{} proposes {}", id.0, super::clip(&read))
            });
            self.cell_step(id, Input::House(command));
        }
        for change in changes {
            self.cell_step(id, Input::HouseChange(change));
        }
    }

    fn manager_note(&mut self, id: ProcessId, note: &ManagerNote) {
        self.trace.note(self.now, &[7, id.0], &[], || format!("p{} notes {}", id.0, super::clip(note)));
        match note {
            ManagerNote::Space { space } => self.heard(space),
            // Of several lives those that ended unnoticed are refused; one that lives would exit, and that is wrong.
            ManagerNote::Refused { .. }
            | ManagerNote::Joined { .. }
            | ManagerNote::Left { .. }
            | ManagerNote::FaultProposed { .. }
            | ManagerNote::StoresDiffer
            | ManagerNote::Restored { .. }
            | ManagerNote::TakenOut { .. }
            | ManagerNote::AutoRefused { .. }
            | ManagerNote::Forgotten { .. }
            | ManagerNote::Hopeless { .. }
            | ManagerNote::Foreign { .. }
            | ManagerNote::LossAccepted(_)
            | ManagerNote::Recruiting { .. }
            | ManagerNote::Dismissing { .. }
            | ManagerNote::Changing { .. } => {}
        }
    }

    fn cell_effect(&mut self, id: ProcessId, effect: Effect) {
        let Some(process) = self.processes.get(&id) else { return };
        let slot = process.slot;
        match effect {
            Effect::Peer(address, envelope) => {
                let link = process.links.get(&Target::Peer(address));
                if let Some(connection) = link.and_then(|link| link.connection) {
                    self.send(connection, 0, &envelope);
                }
            }
            Effect::Dial(address) => self.want_link(id, Target::Peer(address)),
            Effect::Undial(address) => {
                self.drop_link(id, Target::Peer(address));
            }
            Effect::Persist(record) => {
                let bytes = record.to_bytes();
                let disk = &mut self.slots[slot].disk;
                disk.write(&record, bytes);
                disk.sync(disk.written());
            }
            Effect::Client(..) | Effect::Hangup(_) => {}
            Effect::WriteSnapshot => {
                let Program::Manager(node) = &process.program else { return };
                if let Some((position, parts)) = node.cell.snapshot() {
                    let disk = &mut self.slots[slot].disk;
                    disk.install(position, &node.cell.memory_records(), parts.collect(), disk.written());
                }
            }
            Effect::Note(NodeNote::Paxos(Note::Bug(instance))) => {
                self.fail(format!("two managers panicked at instance {}", instance.0));
            }
            Effect::Note(NodeNote::Panicked { instance }) => {
                self.fail(format!("executing instance {instance} panicked"));
            }
            Effect::Note(note) => {
                self.trace.note(self.now, &[6, id.0], &[], || format!("p{} notes {note:?}", id.0));
            }
            Effect::Exit(ExitReason::Removed) if self.slots[slot].kind == Kind::Seat => self.dismissed(id),
            Effect::Exit(reason) => self.fail(format!("p{} exits: {reason}", id.0)),
        }
    }

    /// The cluster's state at the manager that has executed most.
    pub fn newest_cluster(&self) -> Option<&Cluster> {
        self.newest_manager().map(|node| node.cell.application())
    }

    /// The manager that has executed most.
    pub fn newest_manager(&self) -> Option<&ManagerNode> {
        let nodes = self.processes.values().filter_map(|process| match &process.program {
            Program::Manager(node) => Some(&**node),
            Program::Server(_) | Program::Gateway(_) => None,
        });
        nodes.max_by_key(|node| node.cell.executed_upto())
    }
}

/// The default heartbeat.
const UNIT_MICROS: u64 = 100_000;
/// A recruited voter is replaced after this; shorter than the default, so that it happens within a run.
const VOTER_PATIENCE_MICROS: u64 = 4_000_000;
/// The default lease of a server.
const LEASE_MICROS: u64 = 1_500_000;
/// Auto-replace waits so long for quiet; shorter than the default, so that it acts within a run.
const REPLACE_DELAY_MICROS: u64 = 1_500_000;
