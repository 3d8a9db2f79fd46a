//! [`Process`]: a node's program while it runs, its timer and its connections.

use super::gateways::GatewayNode;
use super::links::{Link, Target};
use super::managers::ManagerNode;
use super::servers::ServerNode;
use super::{Event, Kind, World};
use kumo_cluster::{GatewayInput, ServerId, ServerInput};
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use std::collections::BTreeMap;

/// A process, numbered in the order of starting; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

/// A running node.
pub struct Process {
    pub slot: usize,
    pub program: Program,
    /// While it stands still: what waits for it.
    pub paused: Option<Vec<Event>>,
    /// Connections that it wants.
    pub links: BTreeMap<Target, Link>,
    /// Servers that dialled it.
    pub peers: BTreeMap<ServerId, ConnectionId>,
    /// When the timer is set, and which setting counts.
    timer: (Option<u64>, u64),
    /// When it was last told the time of day.
    pub wall_told: u64,
    /// Timeouts in a row after which the deadline had still passed.
    spins: u32,
}

pub enum Program {
    Manager(Box<ManagerNode>),
    Server(Box<ServerNode>),
    Gateway(Box<GatewayNode>),
}

impl Process {
    fn new(slot: usize, program: Program) -> Process {
        Process {
            slot,
            program,
            paused: None,
            links: BTreeMap::new(),
            peers: BTreeMap::new(),
            timer: (None, 0),
            wall_told: 0,
            spins: 0,
        }
    }

    /// The server that dialled this connection.
    pub fn peer(&self, connection: ConnectionId) -> Option<ServerId> {
        self.peers.iter().find(|(_, held)| **held == connection).map(|(peer, _)| *peer)
    }

    fn deadline(&self) -> Option<Time> {
        match &self.program {
            Program::Manager(node) => node.deadline(),
            Program::Server(node) => node.core.deadline(),
            Program::Gateway(node) => node.core.deadline(),
        }
    }
}

impl World {
    /// Starts a process in a slot, with whatever its disk holds.
    pub fn start(&mut self, index: usize) {
        if self.slots[index].listener.is_some() {
            return;
        }
        let program = match self.slots[index].kind {
            Kind::Manager | Kind::Seat => {
                self.make_manager(index).map(|node| Program::Manager(Box::new(node)))
            }
            Kind::Server => self.make_server(index).map(|node| Program::Server(Box::new(node))),
            Kind::Gateway => Some(Program::Gateway(Box::new(self.make_gateway(index)))),
        };
        let Some(program) = program else { return };
        let id = ProcessId(self.fresh());
        let kind = self.slots[index].kind;
        self.trace.note(self.now, &[1, id.0, index as u64], &[], || {
            format!("start n{index} p{} {kind:?} {}", id.0, program.name())
        });
        self.slots[index].listener = Some(id);
        self.processes.insert(id, Process::new(index, program));
        match kind {
            Kind::Manager | Kind::Seat => self.cell_step(id, kumo_session::Input::Timeout),
            Kind::Server | Kind::Gateway => {
                for manager in self.managers() {
                    self.want_link(id, Target::Manager(manager));
                }
                self.timeout(id);
            }
        }
        // A replica that ran in the server's process runs again at once.
        if let Some(seat) = self.seat_of(index).filter(|&seat| self.slots[seat].recruit.is_some()) {
            self.start(seat);
        }
    }

    /// The process dies now, and a replica in it. What it had not sent, nobody gets.
    pub fn kill(&mut self, id: ProcessId, silent: bool) {
        if let Some(companion) = self.companion(id) {
            self.kill_one(companion, silent);
        }
        self.kill_one(id, silent);
    }

    /// What lives in the same process goes on.
    pub fn kill_one(&mut self, id: ProcessId, silent: bool) {
        let Some(process) = self.processes.remove(&id) else { return };
        let index = process.slot;
        self.trace.note(self.now, &[2, id.0], &[], || {
            format!("kill n{index} p{}{}", id.0, if silent { " silently" } else { "" })
        });
        if self.slots[index].listener == Some(id) {
            self.slots[index].listener = None;
        }
        if self.plan.buffered && self.slots[index].kind == Kind::Server {
            self.slots[index].engine.lose_unflushed();
        }
        self.abandon(id, silent);
        if let Program::Gateway(node) = process.program {
            self.calls_lost(&node);
        }
    }

    fn timeout(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get(&id) else { return };
        match &process.program {
            Program::Manager(_) => self.manager_timeout(id),
            Program::Server(_) => self.server_step(id, ServerInput::Timeout),
            Program::Gateway(_) => self.gateway_step(id, GatewayInput::Timeout),
        }
    }

    pub fn wake(&mut self, id: ProcessId, armed: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.timer.1 == armed {
            process.timer.0 = None;
            self.timeout(id);
            self.count_spins(id);
        }
    }

    /// A deadline that has passed and stays would have a real node burn its processor.
    fn count_spins(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let now = self.slots[self.slots[process.slot].host].clock.local(self.now);
        let passed = process.deadline().is_some_and(|deadline| deadline <= now);
        process.spins = if passed { process.spins + 1 } else { 0 };
        if process.spins > SPINS_MAX {
            let name = process.program.name();
            self.fail(format!("p{} ({name}) spins: its deadline has passed and stays", id.0));
        }
    }

    /// The process gets no steps for so long, nor a replica in it.
    pub fn pause(&mut self, id: ProcessId, length: u64) {
        if let Some(companion) = self.companion(id) {
            self.pause(companion, length);
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.paused = Some(Vec::new());
        self.schedule.put(self.now + length, Event::Resume { process: id });
        self.trace.note(self.now, &[31, id.0, length], &[], || {
            format!("pause p{} for {:.3} s", id.0, length as f64 / 1e6)
        });
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
        self.arm(id);
    }

    /// Sets the timer to the core's deadline.
    pub fn arm(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let clock = &self.slots[self.slots[process.slot].host].clock;
        let moment = process.deadline().map(|deadline| clock.moment(deadline, self.now));
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

    /// What time it is for that process, and what people's clock there says, if it is to be told.
    pub fn local(&mut self, id: ProcessId) -> Option<(Time, Option<kumo_session::UnixMillis>)> {
        let process = self.processes.get_mut(&id)?;
        let clock = &self.slots[self.slots[process.slot].host].clock;
        let tell = process.wall_told == 0 || self.now > process.wall_told + WALL_MICROS;
        if tell {
            process.wall_told = self.now.max(1);
        }
        Some((clock.local(self.now), tell.then(|| clock.wall(self.now))))
    }
}

impl Program {
    pub fn name(&self) -> String {
        match self {
            Program::Manager(node) => format!("manager {}", node.cell.hello().address),
            Program::Server(node) => format!("server {:?}", node.id),
            Program::Gateway(_) => "gateway".to_owned(),
        }
    }
}

/// Timeouts that may find their deadline unmoved.
const SPINS_MAX: u32 = 20;
/// How often a node is told the time of day.
const WALL_MICROS: u64 = 20_000;
