//! [`Process`]: a node's program while it runs: its core, its timer, and the effects that wait for its disk.

use super::peers::Link;
use super::{Event, World};
use crate::check::agreement::Sight;
use crate::disk::{Damage, Disk};
use crate::watched::Watched;
use kumo_paxos::{ExitReason, Incarnation, Instance, Note, Position, Record, ReplicaState, Settings, Value};
use kumo_session::{Cell, CellSettings, Effect, Input, NodeNote};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// A process, numbered in the order of starting; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

/// A running node.
pub struct Process {
    pub slot: usize,
    pub incarnation: Incarnation,
    pub cell: Cell<Watched>,
    /// While it stands still: what waits for it.
    pub paused: Option<Vec<Event>>,
    /// It was told to stop and goes soon.
    pub leaving: bool,
    pub links: BTreeMap<SocketAddr, Link>,
    /// Attempts to dial: none is numbered like another.
    pub attempts: u64,
    /// When the timer is set, and which setting counts.
    timer: (Option<u64>, u64),
    /// What waits, each with the number of disk records that must be synced before.
    held: VecDeque<(u64, Held)>,
    syncing: bool,
    /// A snapshot on its way to the disk: its parts, the memory beside it, and how much of the log they replace.
    writing: Option<(Position, Vec<bytes::Bytes>, Vec<Record>, u64)>,
    /// The position last compared with the others'.
    observed: Option<Instance>,
    wall_told: u64,
    /// Timeouts in a row after which the deadline had still passed.
    spins: u32,
}

/// What waits for the disk. A state that is not on disk may be lost in a crash and come out differently, as
/// long as nobody was told: so it is compared only when the others may know it.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are effects; a box for each costs more than the room"
)]
enum Held {
    Effect(Effect),
    Position(Sight),
}

impl Process {
    /// Where it is and what its state's digest is there, if it was elsewhere before.
    fn moved(&mut self) -> Option<Sight> {
        let executed = self.cell.executed_upto();
        let agreement = self.cell.replica().agreement();
        if self.observed == Some(executed) || agreement.schedule().is_none() {
            return None;
        }
        let before = self.observed.replace(executed).unwrap_or(Instance(0));
        let (cell, generation) = (agreement.cell, agreement.generation);
        Some(Sight { cell, generation, executed, before, digest: self.cell.digest() })
    }
}

impl World {
    /// Starts a process in a slot, with whatever memory its disk holds.
    pub fn start(&mut self, index: usize) {
        let slot = &self.slots[index];
        if slot.listener.is_some() || !slot.wanted {
            return;
        }
        self.inherit(index);
        if self.slots[index].incarnation != Incarnation(0) {
            self.slots[index].peers = self.others(index);
        }
        let life = self.slots[index].disk.life();
        let incarnation = life.unwrap_or_else(|| Incarnation(self.randoms.disk.wide() | 1));
        let entropy = self.randoms.disk.wide();
        let slot = &self.slots[index];
        let now = slot.clock.local(self.now);
        let settings = Settings {
            address: slot.address,
            peers: self.slots[index].peers.clone(),
            extension: slot.extension,
            incarnation,
            unit_micros: UNIT_MICROS,
            entropy,
            durable: self.plan.durable,
            forms_after_micros: 0,
        };
        let cell_settings = CellSettings {
            session_timeout_micros: self.plan.session_timeout_micros,
            sessions_max: SESSIONS_MAX,
        };
        let cell = match life {
            None => Cell::new(settings, cell_settings, Watched::default(), now),
            Some(_) => {
                let (snapshot, records) = (slot.disk.snapshot(), slot.disk.records());
                match Cell::recover(settings, cell_settings, Watched::default(), snapshot, records, now) {
                    Ok(cell) => cell,
                    Err(malformed) => {
                        return self.fail(format!("a node cannot read its own disk: {malformed}"));
                    }
                }
            }
        };
        if !self.plan.durable {
            self.slots[index].disk = Disk::default();
        }
        let id = ProcessId(self.fresh());
        self.trace.note(self.now, &[1, id.0, index as u64], &[], || {
            format!("start n{index} p{} incarnation {incarnation:?} recovered {}", id.0, life.is_some())
        });
        self.slots[index].listener = Some(id);
        self.slots[index].incarnation = incarnation;
        self.processes.insert(
            id,
            Process {
                slot: index,
                incarnation,
                cell,
                paused: None,
                leaving: false,
                links: BTreeMap::new(),
                attempts: 0,
                timer: (None, 0),
                held: VecDeque::new(),
                syncing: false,
                writing: None,
                observed: None,
                wall_told: 0,
                spins: 0,
            },
        );
        self.step(id, Input::Timeout);
    }

    /// Who starts a node again tells it of the members that there are by now: with the list of a cell of one it
    /// would form another one.
    fn others(&self, index: usize) -> Vec<SocketAddr> {
        let others = self.slots.iter().enumerate().filter(|(other, slot)| *other != index && slot.wanted);
        others.map(|(_, slot)| slot.address).collect()
    }

    /// The memory of having formed the cell is read as from a disk, also by a node that has none: once.
    fn inherit(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(genesis) = slot.born.take() else { return };
        let me = genesis.configuration.at(slot.address).expect("who is born into a cell is a member");
        let life = Record::Life { incarnation: me.incarnation, grant_micros: GRANT_MICROS, kept: 0 };
        let entry = Record::Decided { instance: Instance(0), value: Value::Genesis(genesis) };
        for record in [life, entry] {
            let bytes = self.packer.pack(&record);
            slot.disk.write(&record, bytes);
        }
        slot.disk.sync(slot.disk.written());
    }

    /// The process dies now. What it had not sent, nobody gets.
    pub fn kill(&mut self, id: ProcessId, damage: Damage) {
        let Some(process) = self.processes.remove(&id) else { return };
        let index = process.slot;
        self.trace
            .note(self.now, &[2, id.0, damage as u64], &[], || format!("kill n{index} p{} {damage:?}", id.0));
        if self.slots[index].listener == Some(id) {
            self.slots[index].listener = None;
        }
        if self.plan.durable {
            self.slots[index].disk.crash(damage, &mut self.randoms.disk, &mut self.randoms.tears);
        }
        self.break_links_to(id);
        self.break_connections_of(id);
    }

    /// A process that was stopped in good order is gone a moment later.
    pub fn stopped(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let slot = process.slot;
        process.leaving = false;
        // Members that changed since it was told may need it: who restarts nodes one by one looks before each.
        if !self.plan.durable && !self.may_forget(id) {
            self.trace.note(self.now, &[4, id.0], &[], || format!("p{} is needed and stays", id.0));
            return;
        }
        self.kill(id, Damage::None);
        self.schedule.put(self.now + 100_000, Event::Start { slot });
    }

    pub fn wake(&mut self, id: ProcessId, armed: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.timer.1 == armed {
            process.timer.0 = None;
            self.step(id, Input::Timeout);
            self.count_spins(id);
        }
    }

    /// A deadline that has passed and stays would have a real node burn its processor.
    fn count_spins(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let now = self.slots[process.slot].clock.local(self.now);
        let passed = process.cell.deadline().is_some_and(|deadline| deadline <= now);
        process.spins = if passed { process.spins + 1 } else { 0 };
        if process.spins > SPINS_MAX {
            self.fail(format!("p{} spins: its deadline has passed and stays", id.0));
        }
    }

    /// Goes on after a pause, with everything that has come in meanwhile.
    pub fn resume(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(waiting) = process.paused.take() else { return };
        let count = waiting.len();
        self.trace.note(self.now, &[3, id.0], &[], || format!("resume p{} with {count} waiting", id.0));
        for event in waiting {
            self.dispatch(event);
        }
        self.release(id);
        self.arm(id);
    }

    /// One step of the core, and what follows from it.
    pub fn step(&mut self, id: ProcessId, input: Input) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let clock = &self.slots[process.slot].clock;
        let now = clock.local(self.now);
        let mut effects = std::mem::take(&mut self.effects);
        if process.wall_told == 0 || self.now > process.wall_told + WALL_MICROS {
            process.wall_told = self.now.max(1);
            process.cell.step(now, Input::Wall(clock.wall(self.now)), &mut effects);
        }
        process.cell.step(now, input, &mut effects);
        process.cell.application().take_notes(|note| self.truth.note(note));
        self.compare_leases(id);
        self.perform(id, &mut effects);
        effects.clear();
        self.effects = effects;
        self.arm(id);
    }

    /// Sets the timer to the core's deadline.
    fn arm(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let clock = &self.slots[process.slot].clock;
        let moment = process.cell.deadline().map(|deadline| clock.moment(deadline, self.now));
        if moment == process.timer.0 {
            return;
        }
        process.timer = (moment, process.timer.1 + 1);
        if let Some(moment) = moment {
            let armed = process.timer.1;
            // A deadline that has passed and stays would stop the world: time must go on at least a little.
            let moment = moment.max(self.now + 1);
            self.schedule.put(moment, Event::Wake { process: id, armed });
        }
    }

    /// Clocks changed: every deadline is elsewhere now.
    pub fn rearm(&mut self, slot: usize) {
        let here: Vec<ProcessId> =
            self.processes.iter().filter(|(_, process)| process.slot == slot).map(|(id, _)| *id).collect();
        for id in here {
            self.arm(id);
        }
    }

    /// A record goes to disk at once, all else when the records before it are there.
    fn perform(&mut self, id: ProcessId, effects: &mut Vec<Effect>) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let disk = &mut self.slots[process.slot].disk;
        for effect in effects.iter() {
            let Effect::Persist(record) = effect else { continue };
            if !self.plan.durable {
                return self.fail(format!("p{} persists, but has no disk", id.0));
            }
            let bytes = self.packer.pack(record);
            self.trace.note(self.now, &[4, id.0], &bytes, || format!("p{} persists {record:?}", id.0));
            if disk.write(record, bytes).is_none() {
                return self.disk_full(id);
            }
        }
        if !self.plan.durable && process.paused.is_none() {
            return self.perform_now(id, effects);
        }
        let written = disk.written();
        let rest = effects.drain(..).filter(|effect| !matches!(effect, Effect::Persist(_)));
        process.held.extend(rest.map(|effect| (written, Held::Effect(effect))));
        if let Some(sight) = process.moved() {
            process.held.push_back((written, Held::Position(sight)));
        }
        self.sync(id);
        self.release(id);
    }

    /// Without a disk nothing waits for it.
    fn perform_now(&mut self, id: ProcessId, effects: &mut Vec<Effect>) {
        for effect in effects.drain(..) {
            self.effect(id, effect);
        }
        if let Some(sight) = self.processes.get_mut(&id).and_then(Process::moved) {
            self.observe(id, sight);
        }
    }

    fn observe(&mut self, id: ProcessId, sight: Sight) {
        match self.agreement.observe(id.0, sight) {
            Ok(true) => self.recovered(sight.generation),
            Ok(false) => {}
            Err(wrong) => self.fail(wrong),
        }
    }

    /// Starts a sync if there is something to sync and none under way: one covers all that waits.
    fn sync(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let disk = &self.slots[process.slot].disk;
        if self.plan.durable && !process.syncing && disk.synced() < disk.written() {
            process.syncing = true;
            let slow = self.randoms.disk.permille(20);
            let longest = if slow { 80_000 } else { self.plan.sync_micros_max };
            let delay = self.randoms.disk.between(50, longest);
            self.schedule.put(self.now + delay, Event::Synced { process: id, upto: disk.written() });
        }
    }

    pub fn synced(&mut self, id: ProcessId, upto: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.syncing = false;
        self.slots[process.slot].disk.sync(upto);
        self.sync(id);
        self.release(id);
    }

    /// Performs every effect whose records are on disk.
    fn release(&mut self, id: ProcessId) {
        while let Some(process) = self.processes.get_mut(&id)
            && process.paused.is_none()
            && let Some((needs, _)) = process.held.front()
            && (!self.plan.durable || *needs <= self.slots[process.slot].disk.synced())
        {
            let (_, held) = process.held.pop_front().expect("it was just seen there");
            match held {
                Held::Effect(effect) => self.effect(id, effect),
                Held::Position(sight) => self.observe(id, sight),
            }
        }
    }

    fn effect(&mut self, id: ProcessId, effect: Effect) {
        match effect {
            Effect::Peer(address, envelope) => self.send_peer(id, address, &envelope),
            Effect::Client(connection, message) => self.send_client(connection, &message),
            Effect::Hangup(connection) => self.node_hangs_up(connection),
            Effect::Dial(address) => self.want_link(id, address),
            Effect::Undial(address) => self.drop_link(id, address),
            Effect::Persist(_) => unreachable!("records are written before other effects are held"),
            Effect::WriteSnapshot => self.write_snapshot(id),
            Effect::Note(note) => self.node_note(id, note),
            Effect::Exit(reason) => self.exit(id, reason),
        }
    }

    fn write_snapshot(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if !self.plan.durable || process.writing.is_some() {
            return;
        }
        let Some((position, parts)) = process.cell.snapshot() else { return };
        let upto = self.slots[process.slot].disk.written();
        process.writing = Some((position, parts.collect(), process.cell.memory_records(), upto));
        let delay = self.randoms.disk.between(1_000, 300_000);
        self.schedule.put(self.now + delay, Event::SnapshotWritten { process: id });
    }

    pub fn snapshot_written(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some((position, parts, memory, upto)) = process.writing.take() else { return };
        self.trace.note(self.now, &[5, id.0, position.executed.0], &[], || {
            format!("p{} wrote a snapshot at {}", id.0, position.executed.0)
        });
        self.slots[process.slot].disk.install(position, &memory, parts, upto);
    }

    fn disk_full(&mut self, id: ProcessId) {
        let slot = self.processes[&id].slot;
        self.kill(id, Damage::Unsynced);
        self.slots[slot].disk.full = false;
        let delay = self.randoms.disk.between(200_000, 2_000_000);
        self.schedule.put(self.now + delay, Event::Start { slot });
    }

    fn node_note(&mut self, id: ProcessId, note: NodeNote) {
        self.trace.note(self.now, &[6, id.0], &[], || format!("p{} notes {note:?}", id.0));
        match note {
            NodeNote::Paxos(Note::Bug(instance)) => {
                self.fail(format!("two replicas panicked at instance {}", instance.0));
            }
            NodeNote::Panicked { instance } => self.fail(format!("executing instance {instance} panicked")),
            NodeNote::SnapshotMalformed { from } => {
                self.fail(format!("a snapshot from {from} cannot be read"))
            }
            // A client may have sent more before it hears that its session is over.
            NodeNote::ClientRefused { reason, .. } if reason.contains("neither opened nor attached") => {}
            NodeNote::ClientRefused { connection, reason } => {
                self.fail(format!("our own client broke a rule on {connection:?}: {reason}"));
            }
            NodeNote::Paxos(_)
            | NodeNote::SessionExpired(_)
            | NodeNote::Restored { .. }
            | NodeNote::RequestRefused { .. } => {}
        }
    }

    fn exit(&mut self, id: ProcessId, reason: ExitReason) {
        let slot = self.processes[&id].slot;
        self.trace.note(self.now, &[7, id.0], &[], || format!("p{} exits: {reason}", id.0));
        let listens = self.slots[slot].listener == Some(id);
        self.kill(id, Damage::Lost);
        match reason {
            ExitReason::Differs(instance) => {
                self.fail(format!("p{} differs at instance {}", id.0, instance.0))
            }
            ExitReason::Conflict(instance) => {
                self.fail(format!("p{} knows two values for instance {}", id.0, instance.0))
            }
            // No disk here forgets what it was told to keep.
            ExitReason::Forgot => self.fail(format!("p{} thinks that its disk forgot", id.0)),
            ExitReason::Removed => {
                self.slots[slot].wanted &= !listens;
                // It may not have heard that the change which removes it is lost.
                if self.recovery.is_some() {
                    self.call_back();
                }
            }
            ExitReason::Replaced => {}
            // Its memory is void, its place is not: it comes back as somebody new.
            ExitReason::Over(_) => self.schedule.put(self.now + 200_000, Event::Start { slot }),
        }
    }

    /// No two processes of a cell hold a lease at a time, be one of them paused.
    fn compare_leases(&mut self, id: ProcessId) {
        if self.plan.wild_clocks || !self.leased(id) {
            return;
        }
        let cell = self.processes[&id].cell.hello().cell;
        let rival = |other: &&ProcessId| {
            **other != id && self.leased(**other) && self.processes[other].cell.hello().cell == cell
        };
        if let Some(other) = self.processes.keys().find(rival).copied() {
            self.fail(format!("p{} and p{} both hold a lease", id.0, other.0));
        }
    }

    fn leased(&self, id: ProcessId) -> bool {
        let process = &self.processes[&id];
        process.cell.is_master() && process.cell.has_lease(self.slots[process.slot].clock.local(self.now))
    }

    /// Whether that process votes, by its own word.
    pub fn votes(&self, id: ProcessId) -> bool {
        let process = &self.processes[&id];
        let status = process.cell.status(self.slots[process.slot].clock.local(self.now));
        status.replicas.iter().any(|replica| {
            replica.member.incarnation == process.incarnation && replica.state == ReplicaState::Voting
        })
    }
}

/// Timeouts that may find their deadline unmoved.
pub const SPINS_MAX: u32 = 20;
/// The default heartbeat.
const UNIT_MICROS: u64 = 100_000;
/// For how long a replica grants a lease: five units.
const GRANT_MICROS: u64 = 5 * UNIT_MICROS;
/// More than any run opens.
const SESSIONS_MAX: usize = 1000;
/// How often a node is told the time of day.
const WALL_MICROS: u64 = 100_000;
