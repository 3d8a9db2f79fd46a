//! `bench cell`: three replicas of a cell, etcd and ZooKeeper, all in memory on this machine.

mod etcd;
mod failover;
mod kumo;
mod rejoin;
mod zookeeper;

use crate::Options;
use crate::failure::Result;
use crate::kumo::Kumo;
use crate::load::{Load, Plan};
use crate::peers::{Peer, Peers};
use crate::process::Process;
use crate::report::{Report, figure};
use crate::rounds::{Contender, contest};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// What is asked of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Write,
    /// Shows every write that ended before.
    LinearRead,
    /// Shows what one replica has executed.
    LocalRead,
    /// Lock and unlock, each client its own.
    Lock,
    /// Lock and unlock, all clients the same.
    ContendedLock,
    /// Post a message and take one.
    Queue,
}

/// One run of a load.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub op: Op,
    pub clients: usize,
    /// Bytes of a value.
    pub size: usize,
    pub secs: f64,
    /// A server will be killed: processor time cannot be counted, and clients do not wait for lost requests.
    pub has_kill: bool,
}

impl Work {
    /// For a load of our own.
    fn plan(&self, addresses: Vec<SocketAddr>, servers: &[Process]) -> Plan {
        let pids = if self.has_kill { Vec::new() } else { servers.iter().map(Process::pid).collect() };
        let patience = self.has_kill.then_some(PATIENCE);
        Plan { addresses, clients: self.clients, secs: self.secs, pids, patience }
    }
}

/// Three processes that agree.
pub trait Replicas {
    fn name(&self) -> &'static str;

    /// Closed-loop clients. `None`: it has nothing like that.
    fn load(&self, work: &Work) -> Result<Option<Load>>;

    fn processes(&self) -> &[Process];

    /// Which of them leads.
    fn leader(&self) -> Result<usize>;

    fn kill(&mut self, index: usize) -> Result<()>;

    /// Starts one again that was killed, and waits until it takes part.
    fn restart(&mut self, index: usize) -> Result<()>;
}

pub fn measure(options: &Options, kumo: &Kumo, peers: &Peers, report: &mut Report) -> Result<()> {
    let present = peers.present(&[Peer::Etcd, Peer::ZooKeeper], options.install, report);
    let mut cell = kumo::Cell::start(kumo)?;
    let mut systems: Vec<Box<dyn Replicas>> = Vec::new();
    for peer in present {
        let started: Result<Box<dyn Replicas>> = match peer {
            Peer::Etcd => etcd::Etcd::start(peers).map(|etcd| Box::new(etcd) as Box<dyn Replicas>),
            Peer::ZooKeeper => {
                zookeeper::ZooKeeper::start(peers).map(|zoo| Box::new(zoo) as Box<dyn Replicas>)
            }
            Peer::Memcached | Peer::Twemproxy | Peer::Redis => continue,
        };
        match started {
            Ok(system) => systems.push(system),
            Err(failure) => report.failed(&format!("start {}", peer.name()), &failure),
        }
    }
    warm_up(&cell, &systems, options);
    operations(&SMALL, &cell, &systems, options, report);
    memory(&cell, &systems, options, report)?;
    operations(&LARGE, &cell, &systems, options, report);
    if options.wants(failover::TITLE) {
        failover::measure(&mut cell, options, report);
        systems.iter_mut().for_each(|system| failover::measure(system.as_mut(), options, report));
    }
    // From here on all cores are for kumo.
    drop(systems);
    if options.wants(rejoin::TITLE) {
        rejoin::measure(&mut cell, options, report);
    }
    Ok(())
}

/// A virtual machine compiles what it has run often. Whoever fails here is told of when it counts.
fn warm_up(cell: &kumo::Cell, systems: &[Box<dyn Replicas>], options: &Options) {
    for system in everyone(cell, systems) {
        let work = Work { op: Op::Write, clients: 64, size: 100, secs: 3.0 * options.secs, has_kill: false };
        if let Ok(Some(load)) = system.load(&work) {
            let _ = load();
        }
    }
}

fn operations(
    operations: &[Operation],
    cell: &kumo::Cell,
    systems: &[Box<dyn Replicas>],
    options: &Options,
    report: &mut Report,
) {
    for &(title, op, clients, size) in operations {
        if !options.wants(title) {
            continue;
        }
        let work = Work { op, clients, size, secs: options.secs, has_kill: false };
        let has = |system: &dyn Replicas| !matches!(system.load(&work), Ok(None));
        let contenders: Vec<Contender> = everyone(cell, systems)
            .filter(|system| has(*system))
            .map(|system| Contender {
                system: system.name(),
                is_ours: system.name() == cell.name(),
                load: Box::new(move || {
                    let load = system.load(&work)?;
                    Ok(load.expect("it had one before"))
                }),
            })
            .collect();
        contest(title, &contenders, options.repeats, report);
    }
}

fn memory(
    cell: &kumo::Cell,
    systems: &[Box<dyn Replicas>],
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    if !options.wants(MEMORY) {
        return Ok(());
    }
    for system in everyone(cell, systems) {
        let mut figures = Vec::new();
        for (name, process) in ["first", "second", "third"].into_iter().zip(system.processes()) {
            figures.push(figure(name, process.memory_bytes()? as f64 / MEBIBYTE, "MiB"));
        }
        report.fact(MEMORY, system.name(), &figures);
    }
    Ok(())
}

fn everyone<'a>(
    cell: &'a kumo::Cell,
    systems: &'a [Box<dyn Replicas>],
) -> impl Iterator<Item = &'a dyn Replicas> {
    [cell as &dyn Replicas].into_iter().chain(systems.iter().map(Box::as_ref))
}

/// Where all of them keep what they write: not on a disk, since kumo does not either.
fn memory_folder() -> &'static Path {
    Path::new("/dev/shm")
}

/// Title, what is done, clients, bytes of a value.
type Operation = (&'static str, Op, usize, usize);

const SMALL: [Operation; 8] = [
    ("write 100 B, 1 client", Op::Write, 1, 100),
    ("write 100 B, 16 clients", Op::Write, 16, 100),
    ("write 100 B, 64 clients", Op::Write, 64, 100),
    ("linear read 100 B, 16 clients", Op::LinearRead, 16, 100),
    ("local read 100 B, 16 clients", Op::LocalRead, 16, 100),
    ("lock+unlock, 16 clients", Op::Lock, 16, 100),
    ("one contended lock, 16 clients", Op::ContendedLock, 16, 100),
    ("queue post+wait 100 B, 16 clients (kumo alone)", Op::Queue, 16, 100),
];

const LARGE: [Operation; 1] = [("write 1 MB, 1 client (kumo alone; ops/s = MB/s)", Op::Write, 1, MEGABYTE)];

const MEMORY: &str = "RSS per replica with small state, after these operations";

const MEGABYTE: usize = 1_000_000;
const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// Above it we leave the peers out: etcd refuses values above 1.5 MiB, ZooKeeper closes the connection at 1 MiB, and
/// neither is made for what comes near.
const PEER_BYTES_MAX: usize = 10_000;

/// etcd answers a request that its dead leader lost after seven seconds; a gap is to end with the election.
/// Ten times what a request takes when nothing is amiss.
const PATIENCE: Duration = Duration::from_millis(200);
