//! [`World`]: all hosts of one store cluster, in one thread, in virtual time. What is tested is what runs: the
//! shell's sockets, files and timers are replaced, and nothing else.

mod accepted;
mod blackouts;
mod callers;
mod copies;
mod disks;
mod finish;
mod flushes;
mod forgotten;
mod forsaken;
mod gateways;
mod links;
mod managers;
mod operators;
mod processes;
mod replicas;
mod seats;
mod servers;
mod strikes;

use super::engine::Engine;
use super::fault::{Fault, GATEWAYS, Plan};
use super::history::History;
use super::run::Report;
use crate::disk::Disk;
use crate::trace::Trace;
use bytes::Bytes;
use callers::Seat;
use forsaken::Forsaken;
use kumo_cluster::{Broken, MemberState, Mutation, Recruit, ServerId, Space, SpaceNumber};
use kumo_paxos::{CellId, Configuration, Genesis, Incarnation, Instance, Member, ReplicaId, Role};
use kumo_session::ConnectionId;
use links::{Connection, Parcel, Target};
use lot::{Clock, Host, Network, Random, Schedule};
use operators::Errand;
use processes::{Process, ProcessId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Everything there is in a run.
pub struct World {
    plan: Plan,
    broken: Option<Mutation>,
    now: u64,
    schedule: Schedule<Event>,
    network: Network,
    trace: Trace,
    slots: Vec<Slot>,
    processes: BTreeMap<ProcessId, Process>,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Numbers of processes, connections and attempts to connect: none is used twice.
    next: u64,
    seats: Vec<Seat>,
    errands: BTreeMap<ConnectionId, Errand>,
    history: History,
    randoms: Randoms,
    /// Faults that took effect.
    struck: BTreeMap<Fault, u64>,
    /// Every space anybody took, by its cluster and number, and when the first did.
    spaces: BTreeMap<(CellId, SpaceNumber), (u64, Space)>,
    /// Those that others than managers took.
    spread: BTreeSet<(CellId, SpaceNumber)>,
    /// Lives whose disk is gone.
    lost_lives: BTreeSet<kumo_cluster::Incarnation>,
    /// Servers that lost something with their power, and the life that did.
    forgetful: BTreeMap<SocketAddr, (kumo_cluster::Incarnation, SpaceNumber)>,
    /// Calls that were made in a space that all had adopted.
    in_space: BTreeMap<usize, SpaceNumber>,
    /// When all servers lost something with their power.
    blackouts: Vec<u64>,
    /// When an operator said that the loss of data is accepted.
    consents: Vec<u64>,
    /// Servers that their disks ended, or kept from starting.
    ended: u64,
    /// What the replicas of the cell had executed, by how far they were.
    digests: BTreeMap<Instance, u64>,
    /// Managers have lost all they knew, once at least; and how soon after the next rebuild they lose it again.
    forgotten: bool,
    again: Option<u64>,
    /// Since when a cell has a master and no ring; and rebuilds that went on without servers that were missing.
    stuck_since: Option<u64>,
    forsook: bool,
    forsaken: Vec<Forsaken>,
    /// Hosts whose messages take longer, by how much.
    slow: BTreeMap<Host, u64>,
    /// New calls are made.
    working: bool,
    /// Faults strike.
    chaos: bool,
    excused: bool,
    failure: Option<String>,
}

/// Streams of random numbers that the world itself draws from.
struct Randoms {
    /// Lives, nonces and the like.
    names: Random,
    /// Delays beyond the network's own.
    weather: Random,
    /// How long servers gather.
    turns: Random,
    faults: BTreeMap<Fault, Random>,
}

/// What a host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Manager,
    Server,
    Gateway,
    /// A replica of the cell in a server's process.
    Seat,
}

/// A place for a node: its address, clock and disk stay when processes come and go.
struct Slot {
    kind: Kind,
    /// The place whose host and clock it has: its own, or the server's.
    host: usize,
    address: SocketAddr,
    clock: Clock,
    /// Who is reached at the address.
    listener: Option<ProcessId>,
    /// A manager's.
    disk: Disk,
    /// What it remembers when it starts for the first time: the cell was formed before the run.
    born: Option<Genesis>,
    /// A seat's: what the server was told when the cell wanted a replica there; on the server's disk.
    recruit: Option<Recruit>,
    /// A server's, and when it was last made safe.
    engine: Engine,
    synced_at: u64,
}

/// What can happen next.
enum Event {
    /// A server takes what it has gathered.
    Turn {
        process: ProcessId,
    },
    /// A process's own timer.
    Wake {
        process: ProcessId,
        armed: u64,
    },
    Dial {
        process: ProcessId,
        target: Target,
        attempt: u64,
    },
    DialTimeout {
        process: ProcessId,
        target: Target,
        attempt: u64,
    },
    /// A dialler knocks at an address.
    Knock {
        dialler: ProcessId,
        target: Target,
        attempt: u64,
        hello: Bytes,
    },
    /// The listener has opened.
    Connected {
        connection: ConnectionId,
        attempt: u64,
        hello: Bytes,
    },
    Arrive {
        connection: ConnectionId,
        /// 0: at the dialler, 1: at the listener.
        side: usize,
        parcel: Parcel,
    },
    /// A link that the process gave up is over.
    Undialled {
        process: ProcessId,
        server: ServerId,
    },
    /// What a cut held back is tried again.
    Flush {
        connection: ConnectionId,
    },
    Start {
        slot: usize,
    },
    Resume {
        process: ProcessId,
    },
    /// A caller makes its next call.
    Act {
        seat: usize,
    },
    Call {
        process: ProcessId,
        number: usize,
    },
    GiveUp {
        number: usize,
    },
    /// An operator's wish arrives.
    Control {
        slot: usize,
        connection: ConnectionId,
    },
    Wish(Fault),
    /// The operator who paused a job wants it to go on.
    Resumed,
    /// The operator looks whether the managers know the cluster again.
    Rebuild,
    /// The operator looks whether all copies of some keys are lost.
    Accept,
    /// A server is given up, and is not to go on.
    PullPlug {
        slot: usize,
    },
    Strike(Fault),
    Mend(Vec<(Host, Host)>),
    /// A connection is given up whose bytes are late.
    GiveUpLate(ConnectionId),
    Quicken(Host),
    DiskFree(usize),
    /// A disk's trouble is over.
    DiskWell(usize),
}

impl World {
    pub fn new(plan: Plan, text: bool, broken: Option<Mutation>) -> World {
        let seed = plan.seed;
        let faults = Fault::ALL.map(|fault| (fault, Random::new(seed, &format!("{} strikes", fault.name()))));
        let mut world = World {
            broken,
            now: 0,
            schedule: Schedule::default(),
            network: Network::new(seed),
            trace: Trace::new(text),
            slots: Vec::new(),
            processes: BTreeMap::new(),
            connections: BTreeMap::new(),
            next: 1,
            seats: Vec::new(),
            errands: BTreeMap::new(),
            history: History::default(),
            randoms: Randoms {
                names: Random::new(seed, "names"),
                weather: Random::new(seed, "weather"),
                turns: Random::new(seed, "turns"),
                faults: BTreeMap::from(faults),
            },
            struck: BTreeMap::new(),
            spaces: BTreeMap::new(),
            spread: BTreeSet::new(),
            lost_lives: BTreeSet::new(),
            forgetful: BTreeMap::new(),
            in_space: BTreeMap::new(),
            blackouts: Vec::new(),
            consents: Vec::new(),
            ended: 0,
            digests: BTreeMap::new(),
            forgotten: false,
            again: None,
            stuck_since: None,
            forsook: false,
            forsaken: Vec::new(),
            slow: BTreeMap::new(),
            working: true,
            chaos: true,
            excused: false,
            failure: None,
            plan,
        };
        world.populate();
        world
    }

    /// The nodes, the callers, and all that will strike them.
    fn populate(&mut self) {
        let plan = self.plan.clone();
        let mut random = Random::new(plan.seed, "hosts");
        for (kind, count) in
            [(Kind::Manager, plan.managers), (Kind::Server, plan.servers), (Kind::Gateway, GATEWAYS)]
        {
            for index in 0..count {
                self.add_slot(kind, index, &mut random);
            }
        }
        self.form();
        if plan.managers == 2 {
            self.places(Kind::Server).for_each(|server| self.add_seat(server));
        }
        for slot in self.nodes() {
            let late = self.slots[slot].kind == Kind::Server && slot >= plan.managers + plan.servers_first;
            let delay = random.below(if late { plan.chaos_micros } else { 300_000 });
            self.schedule.put(delay, Event::Start { slot });
        }
        self.schedule.put(FIRST_ATTACH_MICROS, Event::Wish(Fault::Attach));
        for seat in 0..plan.callers {
            self.add_caller(seat);
            self.schedule.put(random.between(500_000, 2_000_000), Event::Act { seat });
        }
        for (fault, times) in plan.strikes {
            for time in times {
                let event = if fault.is_wish() { Event::Wish(fault) } else { Event::Strike(fault) };
                self.schedule.put(time, event);
            }
        }
    }

    fn add_slot(&mut self, kind: Kind, index: usize, random: &mut Random) {
        let day = 86_400_000_000;
        let (net, port) = match kind {
            Kind::Manager => (0, 19700),
            Kind::Server => (1, 19800),
            Kind::Gateway => (2, 11211),
            Kind::Seat => unreachable!("a seat is a server's"),
        };
        self.slots.push(Slot {
            kind,
            host: self.slots.len(),
            address: SocketAddr::from(([10, 0, net, index as u8 + 1], port)),
            clock: Clock::new(
                random.below(day),
                random.below(day / 1000),
                random.between(self.plan.rate_permille.0, self.plan.rate_permille.1),
            ),
            listener: None,
            disk: Disk::default(),
            born: None,
            recruit: None,
            engine: Engine::default(),
            synced_at: 0,
        });
    }

    /// Entry 0 of the managers' cell, as the lowest address would have fixed it a moment ago.
    fn form(&mut self) {
        let random = &mut self.randoms.names;
        let members: Vec<Member> = (0..)
            .zip(&self.slots[..self.plan.managers])
            .map(|(place, slot)| Member {
                id: ReplicaId(place),
                address: slot.address,
                incarnation: Incarnation(random.wide() | 1),
                role: Role::Core,
            })
            .collect();
        let configuration =
            Configuration { version: 1, next_id: ReplicaId(self.plan.managers as u32), members };
        let genesis = Genesis {
            cell: CellId(random.wide() | 1),
            generation: 1,
            window: kumo_paxos::WINDOW,
            configuration,
        };
        for slot in &mut self.slots[..self.plan.managers] {
            slot.born = Some(genesis.clone());
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn rule(&self) -> Broken {
        Broken(self.broken)
    }

    fn managers(&self) -> Vec<SocketAddr> {
        self.slots[..self.plan.managers].iter().map(|slot| slot.address).collect()
    }

    /// Places of that kind.
    fn places(&self, kind: Kind) -> std::ops::Range<usize> {
        let managers = self.plan.managers;
        let servers = managers + self.plan.servers;
        match kind {
            Kind::Manager => 0..managers,
            Kind::Server => managers..servers,
            Kind::Gateway => servers..servers + GATEWAYS,
            Kind::Seat => servers + GATEWAYS..self.slots.len(),
        }
    }

    /// Places of processes: those that have hosts of their own.
    fn nodes(&self) -> std::ops::Range<usize> {
        0..self.places(Kind::Gateway).end
    }

    fn clock(&self, slot: usize) -> &Clock {
        &self.slots[self.slots[slot].host].clock
    }

    fn slot_at(&self, address: SocketAddr) -> Option<usize> {
        self.slots.iter().position(|slot| slot.address == address)
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
        // A paused process gets nothing; it finds everything in its queues when it goes on.
        if let Some(target) = self.target(&event)
            && let Some(process) = self.processes.get_mut(&target)
            && let Some(waiting) = &mut process.paused
        {
            waiting.push(event);
            return;
        }
        match event {
            Event::Turn { process } => self.server_turn(process, None),
            Event::Wake { process, armed } => self.wake(process, armed),
            Event::Dial { process, target, attempt } => self.dial(process, target, attempt),
            Event::DialTimeout { process, target, attempt } => self.redial(process, target, attempt),
            Event::Knock { dialler, target, attempt, hello } => self.knock(dialler, target, attempt, hello),
            Event::Connected { connection, attempt, hello } => self.connected(connection, attempt, hello),
            Event::Arrive { connection, side, parcel } => self.arrive(connection, side, parcel),
            Event::Undialled { process, server } => self.undialled(process, server),
            Event::Flush { connection } => self.flush(connection),
            Event::Start { slot } => self.start(slot),
            Event::Resume { process } => self.resume(process),
            Event::Act { seat } => self.act(seat),
            Event::Call { process, number } => self.call(process, number),
            Event::GiveUp { number } => self.give_up(number),
            Event::Control { slot, connection } => self.control(slot, connection),
            Event::Wish(fault) => self.wish(fault),
            Event::Resumed => self.resumed(),
            Event::Rebuild => self.look_again(),
            Event::Accept => self.look_for_losses(),
            Event::PullPlug { slot } => self.pull_plug(slot),
            Event::Strike(fault) => self.strike(fault),
            Event::Mend(cuts) => self.mend(cuts),
            Event::GiveUpLate(connection) => self.give_up_late(connection),
            Event::Quicken(host) => {
                self.slow.remove(&host);
            }
            Event::DiskFree(slot) => self.slots[slot].engine.set_full(false),
            Event::DiskWell(slot) => self.disk_well(slot),
        }
    }

    /// The process that must run for this to happen.
    fn target(&self, event: &Event) -> Option<ProcessId> {
        match event {
            Event::Turn { process }
            | Event::Wake { process, .. }
            | Event::Dial { process, .. }
            | Event::DialTimeout { process, .. }
            | Event::Undialled { process, .. }
            | Event::Call { process, .. } => Some(*process),
            Event::Knock { target, .. } => self.listener(target),
            Event::Connected { connection, .. } => self.end(*connection, 0),
            Event::Arrive { connection, side, .. } => self.end(*connection, *side),
            Event::Control { slot, .. } => self.slots[*slot].listener,
            Event::Flush { .. }
            | Event::Start { .. }
            | Event::Resume { .. }
            | Event::Act { .. }
            | Event::GiveUp { .. }
            | Event::Wish(_)
            | Event::Resumed
            | Event::Rebuild
            | Event::Accept
            | Event::PullPlug { .. }
            | Event::Strike(_)
            | Event::Mend(_)
            | Event::GiveUpLate(_)
            | Event::Quicken(_)
            | Event::DiskFree(_)
            | Event::DiskWell(_) => None,
        }
    }

    /// A space that a server or a gateway took.
    fn spread(&mut self, space: &Space) {
        self.spread.insert((space.cluster, space.number));
        self.heard(space);
    }

    /// A space that some node took. No two of a cluster have one number.
    fn heard(&mut self, space: &Space) {
        // All other owners were lost after it, and it goes on with what it had made safe: more than is promised to be borne.
        let mut members = space.members.iter().filter(|one| self.forgetful.contains_key(&one.address));
        self.excused |= members.any(|one| matches!(one.state, MemberState::Returned { .. }));
        // A later life that is an owner has copied everything. A manager that starts again takes earlier spaces once more.
        if space.settled() && space.job.is_none() {
            for owner in space.rhs.iter().map(|&index| space.member(index)).filter(|one| one.is_active()) {
                let is_later = |(life, known): &(_, _)| *life != owner.incarnation && space.number > *known;
                if self.forgetful.get(&owner.address).is_some_and(is_later) {
                    self.forgetful.remove(&owner.address);
                }
            }
        }
        match self.spaces.get(&(space.cluster, space.number)) {
            None => {
                if self.forgotten {
                    self.note_forsaken(space);
                }
                self.spaces.insert((space.cluster, space.number), (self.now, space.clone()));
            }
            Some((_, known)) if known == space => {}
            Some((_, known)) => {
                let why = format!("two spaces have one number: {known:?} and {space:?}");
                self.fail(why);
            }
        }
    }

    /// What came of it.
    pub fn report(self) -> Report {
        let denied = self.slots[self.places(Kind::Server)].iter().map(|slot| slot.engine.denied()).sum();
        let given_up = self.given_up();
        let rebuilt: Vec<&Forsaken> = self.forsaken.iter().filter(|one| self.is_loss(one)).collect();
        let struck = |key| {
            let rebuilt = rebuilt.iter().filter(|one| one.loss(key).is_some()).count();
            (given_up.iter().filter(|one| one.is_struck(key)).count() + rebuilt) as u64
        };
        Report {
            seed: self.plan.seed,
            hash: self.trace.hash(),
            micros: self.now,
            faults: self.struck,
            calls: self.history.calls.len() as u64,
            succeeded: self.history.succeeded(),
            refused: self.history.refused(),
            denied,
            ended: self.ended,
            spaces: self.spaces.len() as u64,
            excused: self.excused,
            accepted: (given_up.len() + rebuilt.len()) as u64,
            forsaken: self.forsaken.len() as u64,
            forsaken_with_loss: rebuilt.len() as u64,
            keys_lost: self.plan.keys.iter().map(struck).sum(),
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

/// What is shown of a message, a note or an answer: a space by what changes in it.
fn clip(thing: &impl std::fmt::Debug) -> String {
    let mut text = format!("{thing:?}");
    if let Some(start) = text.find("Space { cluster: ") {
        let space = text.split_off(start);
        let short = space
            .replace("Member { address: ", "(")
            .replace(":19800, incarnation: ", "/")
            .replace(", state: ", " ")
            .replace(" }, (", "), (");
        text.push_str("Space { ");
        text.push_str(&short[short.find("number: ").unwrap_or(0)..]);
    }
    if let Some((end, _)) = text.char_indices().nth(TEXT_MAX) {
        text.truncate(end);
    }
    text
}

/// Letters of one thing in the trace.
const TEXT_MAX: usize = 700;
/// When the first servers are attached: they are all there.
const FIRST_ATTACH_MICROS: u64 = 1_300_000;
