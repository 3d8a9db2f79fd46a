//! [`World`]: all hosts of one run, in one thread, in virtual time. What is tested is what runs: the shell's
//! sockets, files and timers are replaced, and nothing else.

mod clients;
mod connections;
mod finish;
mod operators;
mod peers;
mod processes;
mod strikes;

use crate::check::agreement::Agreement;
use crate::check::truth::Truth;
use crate::disk::Disk;
use crate::fault::{Fault, Plan};
use crate::history::{ClientNumber, History};
use crate::run::Report;
use crate::trace::Trace;
use bytes::{Bytes, BytesMut};
use clients::SimClient;
use connections::Connection;
use kumo_paxos::{CellId, Configuration, Genesis, Incarnation, Member, ReplicaId, Role};
use kumo_session::{ConnectionId, Effect};
use kumo_wire::Wire;
use lot::{Clock, Host, Network, Random, Schedule};
use operators::Recovery;
use processes::{Process, ProcessId};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Everything there is in a run.
pub struct World {
    plan: Plan,
    now: u64,
    schedule: Schedule<Event>,
    network: Network,
    trace: Trace,
    slots: Vec<Slot>,
    processes: BTreeMap<ProcessId, Process>,
    clients: BTreeMap<ClientNumber, SimClient>,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Numbers of processes, clients, connections and attempts to connect: none is used twice.
    next: u64,
    /// The first cell that was formed. Clients know it, and talk to no other.
    cell: CellId,
    history: History,
    agreement: Agreement,
    truth: Truth,
    randoms: Randoms,
    /// Faults that took effect.
    struck: BTreeMap<Fault, u64>,
    /// New calls are made, dead clients replaced.
    working: bool,
    /// Faults strike.
    chaos: bool,
    /// More replicas forgot than the cell can bear.
    exceeded: bool,
    /// It did so by chance, not by plan.
    excused: bool,
    /// How often the cell went on from a survivor, and the last time it did.
    eras: u64,
    recovery: Option<Recovery>,
    /// What the survivor held when an operator asked for that.
    survivor_had: Vec<(Vec<u8>, String)>,
    failure: Option<String>,
    packer: Packer,
    /// Kept between steps, so that no step makes its own.
    effects: Vec<Effect>,
}

/// Makes messages' bytes: many in one buffer, none of which is copied.
#[derive(Default)]
struct Packer(BytesMut);

impl Packer {
    fn pack(&mut self, message: &impl Wire) -> Bytes {
        if self.0.capacity() < PACK_BYTES_MIN {
            self.0 = BytesMut::with_capacity(PACK_BYTES);
        }
        message.append(&mut self.0);
        self.0.split().freeze()
    }
}

/// Streams of random numbers that the world itself draws from.
struct Randoms {
    disk: Random,
    /// Where records are torn.
    tears: Random,
    clients: Random,
    faults: BTreeMap<Fault, Random>,
}

/// A place for a node: its address, clock and disk stay when processes come and go.
struct Slot {
    address: SocketAddr,
    clock: Clock,
    disk: Disk,
    /// Who is reached at the address.
    listener: Option<ProcessId>,
    /// The memory last started here.
    incarnation: Incarnation,
    /// What it remembers when it starts for the first time: the cell was formed before the run.
    born: Option<Genesis>,
    /// Started as a follower.
    extension: bool,
    /// A process should be here: it is restarted when it dies.
    wanted: bool,
    peers: Vec<SocketAddr>,
}

/// What can happen next.
enum Event {
    /// A process's own timer.
    Wake {
        process: ProcessId,
        armed: u64,
    },
    Dial {
        process: ProcessId,
        address: SocketAddr,
        attempt: u64,
    },
    /// A dialler's hello arrives.
    Greeting {
        dialler: ProcessId,
        address: SocketAddr,
        attempt: u64,
        hello: Bytes,
    },
    /// The listener's hello comes back.
    Greeted {
        dialler: ProcessId,
        address: SocketAddr,
        attempt: u64,
        listener: ProcessId,
        hello: Bytes,
    },
    DialTimeout {
        process: ProcessId,
        address: SocketAddr,
        attempt: u64,
    },
    LinkDown {
        process: ProcessId,
        address: SocketAddr,
        attempt: u64,
    },
    Peer {
        process: ProcessId,
        bytes: Bytes,
    },
    Synced {
        process: ProcessId,
        upto: u64,
    },
    SnapshotWritten {
        process: ProcessId,
    },
    ClientWake {
        client: ClientNumber,
        armed: u64,
    },
    Act {
        client: ClientNumber,
    },
    GiveUp {
        client: ClientNumber,
        ticket: u64,
    },
    Knock {
        client: ClientNumber,
        address: SocketAddr,
        knock: u64,
        hello: Bytes,
    },
    Connected {
        connection: ConnectionId,
        knock: u64,
    },
    KnockFailed {
        client: ClientNumber,
        address: SocketAddr,
        knock: u64,
    },
    ToNode {
        connection: ConnectionId,
        bytes: Bytes,
    },
    ToClient {
        connection: ConnectionId,
        bytes: Bytes,
    },
    NodeHungUp {
        connection: ConnectionId,
    },
    ClientHungUp {
        connection: ConnectionId,
    },
    Start {
        slot: usize,
    },
    Stop {
        process: ProcessId,
    },
    Resume {
        process: ProcessId,
    },
    ResumeClient {
        client: ClientNumber,
    },
    SpawnClient {
        role: crate::workload::Role,
    },
    Strike(Fault),
    Recover,
    Mend(Vec<(Host, Host)>),
    Calm(Fault),
}

impl World {
    pub fn new(plan: Plan, text: bool) -> World {
        let seed = plan.seed;
        let faults = Fault::ALL.map(|fault| (fault, Random::new(seed, &format!("{} strikes", fault.name()))));
        let mut world = World {
            now: 0,
            schedule: Schedule::default(),
            network: Network::new(seed),
            trace: Trace::new(text),
            slots: Vec::new(),
            processes: BTreeMap::new(),
            clients: BTreeMap::new(),
            connections: BTreeMap::new(),
            next: 1,
            cell: CellId(0),
            history: History::default(),
            agreement: Agreement::default(),
            truth: Truth::default(),
            randoms: Randoms {
                disk: Random::new(seed, "disk"),
                tears: Random::new(seed, "tears"),
                clients: Random::new(seed, "clients"),
                faults: BTreeMap::from(faults),
            },
            struck: BTreeMap::new(),
            working: true,
            chaos: true,
            exceeded: false,
            excused: false,
            eras: 0,
            recovery: None,
            survivor_had: Vec::new(),
            failure: None,
            packer: Packer::default(),
            effects: Vec::new(),
            plan,
        };
        world.populate();
        world
    }

    /// The first nodes, the clients, and all that will strike them.
    fn populate(&mut self) {
        let plan = self.plan.clone();
        for index in 0..plan.nodes {
            self.add_slot(index, false);
        }
        let members: Vec<SocketAddr> = self.slots.iter().map(|slot| slot.address).collect();
        for slot in &mut self.slots {
            slot.peers = members.iter().copied().filter(|address| *address != slot.address).collect();
        }
        if let Some(window) = plan.window {
            self.form(&members, window);
        }
        if plan.extension {
            let slot = self.add_slot(plan.nodes, true);
            self.slots[slot].peers = members;
        }
        for slot in 0..self.slots.len() {
            let delay = self.randoms.clients.below(200_000);
            self.schedule.put(delay, Event::Start { slot });
        }
        for role in plan.clients {
            let delay = self.randoms.clients.between(300_000, 1_500_000);
            self.schedule.put(delay, Event::SpawnClient { role });
        }
        for (fault, times) in plan.strikes {
            for time in times {
                self.schedule.put(time, Event::Strike(fault));
            }
        }
    }

    /// Entry 0, as the lowest address would have fixed it a moment ago.
    fn form(&mut self, members: &[SocketAddr], window: u64) {
        let random = &mut self.randoms.disk;
        let members: Vec<Member> = (0..)
            .zip(members)
            .map(|(place, address)| Member {
                id: ReplicaId(place),
                address: *address,
                incarnation: Incarnation(random.wide() | 1),
                role: Role::Core,
            })
            .collect();
        let configuration = Configuration { version: 1, next_id: ReplicaId(members.len() as u32), members };
        let genesis = Genesis { cell: CellId(random.wide() | 1), generation: 1, window, configuration };
        for slot in &mut self.slots {
            slot.born = Some(genesis.clone());
        }
    }

    fn add_slot(&mut self, index: usize, extension: bool) -> usize {
        let random = &mut self.randoms.clients;
        let day = 86_400_000_000;
        let (offset, wall) = (random.below(day), random.below(day / 1000));
        let rate = match self.plan.wild_clocks {
            true => random.between(600, 1600),
            false => random.between(960, 1040),
        };
        self.slots.push(Slot {
            address: SocketAddr::from(([10, 0, 0, index as u8 + 1], 19700)),
            clock: Clock::new(offset, wall, rate),
            disk: Disk::default(),
            listener: None,
            incarnation: Incarnation(0),
            born: None,
            extension,
            wanted: true,
            peers: Vec::new(),
        });
        self.slots.len() - 1
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Lets time go on until `until`, or until something is wrong.
    fn run_until(&mut self, until: u64) {
        while self.failure.is_none() {
            let Some((time, event)) = self.schedule.take(until) else { break };
            self.now = time;
            self.dispatch(event);
        }
        self.now = self.now.max(until);
    }

    fn dispatch(&mut self, event: Event) {
        // Who is paused gets nothing; it finds everything in its queues when it goes on.
        if let Some(target) = self.target(&event)
            && let Some(process) = self.processes.get_mut(&target)
            && let Some(waiting) = &mut process.paused
        {
            waiting.push(event);
            return;
        }
        if let Some(target) = self.client_target(&event)
            && let Some(client) = self.clients.get_mut(&target)
            && let Some(waiting) = &mut client.paused
        {
            waiting.push(event);
            return;
        }
        match event {
            Event::Wake { process, armed } => self.wake(process, armed),
            Event::Dial { process, address, attempt } => self.dial(process, address, attempt),
            Event::Greeting { dialler, address, attempt, hello } => {
                self.greeting(dialler, address, attempt, hello)
            }
            Event::Greeted { dialler, address, attempt, listener, hello } => {
                self.greeted(dialler, address, attempt, listener, hello);
            }
            Event::DialTimeout { process, address, attempt } => self.redial(process, address, attempt),
            Event::LinkDown { process, address, attempt } => self.link_down(process, address, attempt),
            Event::Peer { process, bytes } => self.peer(process, bytes),
            Event::Synced { process, upto } => self.synced(process, upto),
            Event::SnapshotWritten { process } => self.snapshot_written(process),
            Event::ClientWake { client, armed } => self.client_wake(client, armed),
            Event::Act { client } => self.act(client),
            Event::GiveUp { client, ticket } => self.give_up(client, ticket),
            Event::Knock { client, address, knock, hello } => self.knock(client, address, knock, hello),
            Event::Connected { connection, knock } => self.connected(connection, knock),
            Event::KnockFailed { client, address, knock } => self.knock_failed(client, address, knock),
            Event::ToNode { connection, bytes } => self.to_node(connection, bytes),
            Event::ToClient { connection, bytes } => self.to_client(connection, bytes),
            Event::NodeHungUp { connection } => self.node_hung_up(connection),
            Event::ClientHungUp { connection } => self.client_hung_up(connection),
            Event::Start { slot } => self.start(slot),
            Event::Stop { process } => self.stopped(process),
            Event::Resume { process } => self.resume(process),
            Event::ResumeClient { client } => self.resume_client(client),
            Event::SpawnClient { role } => self.spawn_worker(role),
            Event::Strike(fault) => self.strike(fault),
            Event::Recover => self.recover(),
            Event::Mend(cuts) => self.mend(cuts),
            Event::Calm(fault) => self.calm(fault),
        }
    }

    /// The process that must run for this to happen.
    fn target(&self, event: &Event) -> Option<ProcessId> {
        match event {
            Event::Wake { process, .. }
            | Event::Dial { process, .. }
            | Event::LinkDown { process, .. }
            | Event::Peer { process, .. }
            | Event::DialTimeout { process, .. }
            | Event::SnapshotWritten { process } => Some(*process),
            Event::Greeted { dialler, .. } => Some(*dialler),
            Event::Greeting { address, .. } | Event::Knock { address, .. } => self.listener(*address),
            Event::ToNode { connection, .. } | Event::ClientHungUp { connection } => {
                self.connections.get(connection).map(|connection| connection.process)
            }
            // A disk goes on with what it was told while its process stands still.
            Event::Synced { .. }
            | Event::ClientWake { .. }
            | Event::Act { .. }
            | Event::GiveUp { .. }
            | Event::Connected { .. }
            | Event::KnockFailed { .. }
            | Event::ToClient { .. }
            | Event::NodeHungUp { .. }
            | Event::Start { .. }
            | Event::Stop { .. }
            | Event::Resume { .. }
            | Event::ResumeClient { .. }
            | Event::SpawnClient { .. }
            | Event::Strike(_)
            | Event::Recover
            | Event::Mend(_)
            | Event::Calm(_) => None,
        }
    }

    /// The client that must run for this to happen.
    fn client_target(&self, event: &Event) -> Option<ClientNumber> {
        match event {
            Event::ClientWake { client, .. }
            | Event::Act { client }
            | Event::GiveUp { client, .. }
            | Event::KnockFailed { client, .. } => Some(*client),
            Event::Connected { connection, .. }
            | Event::ToClient { connection, .. }
            | Event::NodeHungUp { connection } => {
                self.connections.get(connection).map(|connection| connection.client)
            }
            Event::Wake { .. }
            | Event::Dial { .. }
            | Event::LinkDown { .. }
            | Event::Peer { .. }
            | Event::DialTimeout { .. }
            | Event::SnapshotWritten { .. }
            | Event::Greeted { .. }
            | Event::Greeting { .. }
            | Event::Knock { .. }
            | Event::ToNode { .. }
            | Event::ClientHungUp { .. }
            | Event::Synced { .. }
            | Event::Start { .. }
            | Event::Stop { .. }
            | Event::Resume { .. }
            | Event::ResumeClient { .. }
            | Event::SpawnClient { .. }
            | Event::Strike(_)
            | Event::Recover
            | Event::Mend(_)
            | Event::Calm(_) => None,
        }
    }

    fn listener(&self, address: SocketAddr) -> Option<ProcessId> {
        self.slots.iter().find(|slot| slot.address == address)?.listener
    }

    fn host_at(&self, address: SocketAddr) -> Option<Host> {
        self.slots.iter().position(|slot| slot.address == address).map(|slot| Host(slot as u32))
    }

    /// What came of it.
    pub fn report(self) -> Report {
        Report {
            seed: self.plan.seed,
            hash: self.trace.hash(),
            micros: self.now,
            faults: self.struck,
            calls: self.history.operations.len() as u64,
            succeeded: self.history.succeeded(),
            compared: self.agreement.compared(),
            overflows: self.history.overflows(),
            excused: self.excused,
            failure: self.failure,
            lines: self.trace.into_lines(),
        }
    }

    /// Something is wrong: the run ends here. The first finding counts, the rest follows from it.
    fn fail(&mut self, why: String) {
        self.trace.note(self.now, &[99], &[], || format!("FAILURE {why}"));
        self.failure.get_or_insert(why);
    }
}

/// Bytes of a buffer for messages, and when it is too full for another.
const PACK_BYTES: usize = 32 * 1024;
const PACK_BYTES_MIN: usize = 256;
/// Client hosts are numbered from here, nodes from 0.
const CLIENT_HOST_FIRST: u32 = 1000;
