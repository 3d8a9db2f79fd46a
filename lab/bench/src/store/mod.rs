//! `bench store`: kumo, memcached, twemproxy and Redis, and what only kumo does.

mod faults;
mod kumo;
mod memcached;
mod records;
mod redis;

use crate::Options;
use crate::failure::Result;
use crate::kumo::{Kumo, joined, words};
use crate::load::Load;
use crate::peers::{Peer, Peers};
use crate::process::Process;
use crate::report::Report;
use crate::rounds::{Contender, contest};
use std::net::SocketAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Set,
    Get,
    /// Of ten requests nine gets and a set.
    Mixed,
}

/// One run of a load.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub op: Op,
    pub conns: usize,
    /// Requests under way on each connection.
    pub pipeline: u32,
    /// Bytes of a value.
    pub size: usize,
    pub keys: u32,
    pub secs: f64,
    /// Requests a second, sent when they are due; otherwise as fast as they are answered.
    pub rate: Option<u32>,
}

/// A system of the contest.
pub trait Server {
    fn name(&self) -> &'static str;

    fn load(&self, work: &Work) -> Load;

    fn processes(&self) -> Vec<&Process>;

    /// How many of its processes keep each record.
    fn copies(&self) -> u32;
}

pub fn measure(options: &Options, kumo: &Kumo, peers: &Peers, report: &mut Report) -> Result<()> {
    let wanted = [Peer::Memcached, Peer::Twemproxy, Peer::Redis];
    let present = peers.present(&wanted, options.install, report);
    let disk = options.data.clone().unwrap_or_else(|| peers.disk());
    if OPERATIONS.iter().any(|(title, ..)| options.wants(title)) {
        let store = kumo::Store::start(kumo, &disk, true)?;
        let servers = start_all(&present, kumo, peers, report);
        operations(&store, &servers, options, report);
    }
    if options.wants(records::MEMORY) {
        let servers = start_all(&present, kumo, peers, report);
        records::memory(kumo, &disk, &servers, options, report);
    }
    if options.wants(records::START_UP) || options.wants(records::ATTACH) {
        records::start_up_and_attach(kumo, &disk, options, report)?;
    }
    if options.wants(faults::TITLE) {
        faults::measure(kumo, &disk, options, report)?;
    }
    Ok(())
}

fn start_all(present: &[Peer], kumo: &Kumo, peers: &Peers, report: &mut Report) -> Vec<Box<dyn Server>> {
    let mut servers = Vec::new();
    for &peer in present {
        match start(peer, kumo, peers) {
            Ok(server) => servers.extend(server),
            Err(failure) => report.failed(&format!("start {}", peer.name()), &failure),
        }
    }
    servers
}

fn start(peer: Peer, kumo: &Kumo, peers: &Peers) -> Result<Option<Box<dyn Server>>> {
    Ok(match peer {
        Peer::Memcached => Some(Box::new(memcached::Memcached::start(kumo, peers)?)),
        Peer::Twemproxy => Some(Box::new(memcached::Twemproxy::start(kumo, peers)?)),
        Peer::Redis => Some(Box::new(redis::Redis::start(peers)?)),
        Peer::Etcd | Peer::ZooKeeper => None,
    })
}

fn operations(store: &kumo::Store, servers: &[Box<dyn Server>], options: &Options, report: &mut Report) {
    let native = kumo::Native(store);
    let everyone: Vec<(&dyn Server, bool)> = [(store as &dyn Server, true), (&native as &dyn Server, true)]
        .into_iter()
        .chain(servers.iter().map(|server| (server.as_ref(), false)))
        .collect();
    for (title, op, conns, pipeline, size) in OPERATIONS {
        if !options.wants(title) {
            continue;
        }
        let work = Work { op, conns, pipeline, size, keys: KEYS, secs: options.secs, rate: None };
        let contenders: Vec<Contender> = everyone
            .iter()
            .map(|&(server, is_ours)| Contender {
                system: server.name(),
                is_ours,
                load: Box::new(move || Ok(server.load(&work))),
            })
            .collect();
        contest(title, &contenders, options.repeats, report);
    }
}

/// Options of `kumo bench store`, for any server that speaks memcached.
fn arguments(work: &Work, target: [&str; 2], pids: &[u32]) -> Vec<String> {
    let op = match work.op {
        Op::Set => "set",
        Op::Get => "get",
        Op::Mixed => "mixed",
    };
    let mut arguments = words(&["store", target[0], target[1], "--op", op]);
    for (name, value) in [
        ("--conns", work.conns.to_string()),
        ("--pipeline", work.pipeline.to_string()),
        ("--size", work.size.to_string()),
        ("--keys", work.keys.to_string()),
        ("--secs", work.secs.to_string()),
    ] {
        arguments.extend([name.to_owned(), value]);
    }
    arguments.extend(work.rate.iter().flat_map(|rate| ["--rate".to_owned(), rate.to_string()]));
    if !pids.is_empty() {
        arguments.extend(["--pids".to_owned(), joined(pids)]);
    }
    arguments
}

/// A load at one address, by `kumo bench store`.
fn memcached_load(kumo: &Kumo, work: &Work, address: SocketAddr, pids: &[u32]) -> Load {
    kumo.load(arguments(work, ["--addr", &address.to_string()], pids))
}

const OPERATIONS: [(&str, Op, usize, u32, usize); 16] = [
    ("set 100 B, 1 connection", Op::Set, 1, 1, 100),
    ("set 100 B, 16 connections", Op::Set, 16, 1, 100),
    ("set 100 B, 64 connections", Op::Set, 64, 1, 100),
    ("set 100 B, 16 x 16 pipelined", Op::Set, 16, 16, 100),
    ("get 100 B, 1 connection", Op::Get, 1, 1, 100),
    ("get 100 B, 16 connections", Op::Get, 16, 1, 100),
    ("get 100 B, 64 connections", Op::Get, 64, 1, 100),
    ("get 100 B, 16 x 16 pipelined", Op::Get, 16, 16, 100),
    ("set 1 KB, 1 connection", Op::Set, 1, 1, 1000),
    ("set 1 KB, 16 connections", Op::Set, 16, 1, 1000),
    ("set 1 KB, 64 connections", Op::Set, 64, 1, 1000),
    ("set 1 KB, 16 x 16 pipelined", Op::Set, 16, 16, 1000),
    ("get 1 KB, 1 connection", Op::Get, 1, 1, 1000),
    ("get 1 KB, 16 connections", Op::Get, 16, 1, 1000),
    ("get 1 KB, 64 connections", Op::Get, 64, 1, 1000),
    ("get 1 KB, 16 x 16 pipelined", Op::Get, 16, 16, 1000),
];

/// As many as `kumo bench store` uses unless told otherwise.
const KEYS: u32 = 10_000;
