//! [`Redis`]: a master and two replicas, in memory; a set waits for both.

use super::memcached::until_open;
use super::{Op, Server, Work};
use crate::failure::Result;
use crate::load::redis::{self, Reply, request};
use crate::load::{Load, Plan};
use crate::peers::Peers;
use crate::process::{Folder, Process, free_addresses, until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

pub struct Redis {
    /// The master is the first.
    processes: Vec<Process>,
    address: SocketAddr,
    /// Last: it is removed when the processes are gone.
    _folder: Folder,
}

impl Redis {
    pub fn start(peers: &Peers) -> Result<Redis> {
        let folder = Folder::new(Path::new("/dev/shm"), "redis")?;
        let addresses = free_addresses(3)?;
        let master = addresses[0];
        let mut processes = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let mut command = peers.command("redis-server")?;
            command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
            command.args(["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]);
            command.arg("--dir").arg(folder.path());
            if index > 0 {
                command.args(["--replicaof", &master.ip().to_string(), &master.port().to_string()]);
            }
            let mut process = Process::start(&format!("redis-{index}"), &mut command, folder.path())?;
            until_open(&mut process, *address)?;
            processes.push(process);
        }
        until("both replicas follow Redis", || (replicas(master)? >= REPLICAS.into()).then_some(()))?;
        Ok(Redis { processes, address: master, _folder: folder })
    }
}

impl Server for Redis {
    fn name(&self) -> &'static str {
        "Redis, WAIT 2"
    }

    fn load(&self, work: &Work) -> Load {
        let op = match work.op {
            Op::Set => redis::Op::Set { replicas: REPLICAS },
            Op::Get | Op::Mixed => redis::Op::Get,
        };
        let pids = self.processes.iter().map(Process::pid).collect();
        let addresses = vec![self.address];
        let plan = Plan { addresses, clients: work.conns, secs: work.secs, pids, patience: None };
        redis::load(op, work.pipeline, work.size, work.keys.into(), plan)
    }

    fn processes(&self) -> Vec<&Process> {
        self.processes.iter().collect()
    }

    fn copies(&self) -> u32 {
        1 + REPLICAS
    }
}

/// How many replicas have what was written last.
fn replicas(address: SocketAddr) -> Option<i64> {
    let mut stream = TcpStream::connect_timeout(&address, ASK_MAX).ok()?;
    stream.set_read_timeout(Some(ASK_MAX)).ok()?;
    let mut out = Vec::new();
    request(&mut out, &[b"SET", b"kumo-bench-ready", b"ok"]);
    request(&mut out, &[b"WAIT", b"2", b"200"]);
    stream.write_all(&out).ok()?;
    let (mut input, mut scratch) = (Vec::new(), [0; 256]);
    loop {
        match stream.read(&mut scratch).ok()? {
            0 => return None,
            count => input.extend_from_slice(&scratch[..count]),
        }
        let Some((_, stored)) = Reply::read(&input).ok()? else { continue };
        if let Some((Reply::Number(count), _)) = Reply::read(&input[stored..]).ok()? {
            return Some(count);
        }
    }
}

const REPLICAS: u32 = 2;

/// Longer than the `WAIT`.
const ASK_MAX: Duration = Duration::from_secs(1);
