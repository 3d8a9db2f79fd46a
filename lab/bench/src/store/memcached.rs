//! memcached alone, and three of them behind twemproxy: one copy, in memory.

use super::{Server, Work, memcached_load};
use crate::failure::{Context, Result};
use crate::kumo::Kumo;
use crate::load::Load;
use crate::peers::Peers;
use crate::process::{Folder, Process, free_addresses, try_until};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

/// One process with two threads.
pub struct Memcached {
    kumo: Kumo,
    process: Process,
    address: SocketAddr,
    /// Last: it is removed when the process is gone.
    _folder: Folder,
}

impl Memcached {
    pub fn start(kumo: &Kumo, peers: &Peers) -> Result<Memcached> {
        let folder = Folder::new(Path::new("/dev/shm"), "memcached")?;
        let (process, address) = run(peers, &folder, 0, 2)?;
        Ok(Memcached { kumo: kumo.clone(), process, address, _folder: folder })
    }
}

impl Server for Memcached {
    fn name(&self) -> &'static str {
        "memcached -t2"
    }

    fn load(&self, work: &Work) -> Load {
        memcached_load(&self.kumo, work, self.address, &[self.process.pid()])
    }

    fn processes(&self) -> Vec<&Process> {
        vec![&self.process]
    }

    fn copies(&self) -> u32 {
        1
    }
}

/// A proxy, and three processes with a thread each.
pub struct Twemproxy {
    kumo: Kumo,
    /// The proxy is the first.
    processes: Vec<Process>,
    address: SocketAddr,
    /// Last: it is removed when the processes are gone.
    _folder: Folder,
}

impl Twemproxy {
    pub fn start(kumo: &Kumo, peers: &Peers) -> Result<Twemproxy> {
        let folder = Folder::new(Path::new("/dev/shm"), "twemproxy")?;
        let [address, statistics] = [free_addresses(1)?[0], free_addresses(1)?[0]];
        let mut lines = vec![
            "pool:".to_owned(),
            format!("  listen: {address}"),
            "  hash: fnv1a_64".to_owned(),
            "  distribution: ketama".to_owned(),
            "  servers:".to_owned(),
        ];
        let mut behind = Vec::new();
        for index in 0..3 {
            let (process, server) = run(peers, &folder, index, 1)?;
            lines.push(format!("   - {server}:1"));
            behind.push(process);
        }
        let configuration = folder.path().join("nutcracker.yml");
        std::fs::write(&configuration, lines.join("\n") + "\n").context(configuration.display())?;
        let mut command = peers.command("nutcracker")?;
        command.arg("-c").arg(&configuration).arg("-o").arg(folder.path().join("proxy.log"));
        command.args(["-a", &statistics.ip().to_string(), "-s", &statistics.port().to_string()]);
        let mut proxy = Process::start("nutcracker", &mut command, folder.path())?;
        until_open(&mut proxy, address)?;
        let processes = [proxy].into_iter().chain(behind).collect();
        Ok(Twemproxy { kumo: kumo.clone(), processes, address, _folder: folder })
    }
}

impl Server for Twemproxy {
    fn name(&self) -> &'static str {
        "twemproxy -> 3"
    }

    fn load(&self, work: &Work) -> Load {
        let pids: Vec<u32> = self.processes.iter().map(Process::pid).collect();
        memcached_load(&self.kumo, work, self.address, &pids)
    }

    fn processes(&self) -> Vec<&Process> {
        self.processes.iter().collect()
    }

    fn copies(&self) -> u32 {
        1
    }
}

fn run(peers: &Peers, folder: &Folder, index: u32, threads: u32) -> Result<(Process, SocketAddr)> {
    let address = free_addresses(1)?[0];
    let mut command = peers.command("memcached")?;
    command.args(["-l", &address.ip().to_string(), "-p", &address.port().to_string(), "-U", "0"]);
    command.args(["-t", &threads.to_string(), "-m", MEMORY_MB]);
    if rustix::process::getuid().is_root() {
        command.args(["-u", "root"]);
    }
    let mut process = Process::start(&format!("memcached-{index}"), &mut command, folder.path())?;
    until_open(&mut process, address)?;
    Ok((process, address))
}

/// It accepts connections.
pub fn until_open(process: &mut Process, address: SocketAddr) -> Result<()> {
    try_until(&format!("{address} is open"), || {
        process.check()?;
        Ok(TcpStream::connect(address).ok().map(drop))
    })
}

/// More than the records take: nothing is to be forgotten.
const MEMORY_MB: &str = "4096";
