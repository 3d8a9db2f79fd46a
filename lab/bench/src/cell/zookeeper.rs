//! [`ZooKeeper`]: three servers of ZooKeeper, with their data in memory.

use super::{Op, PEER_BYTES_MAX, Replicas, Work};
use crate::failure::{Context, Result};
use crate::load::Load;
use crate::load::zookeeper;
use crate::peers::Peers;
use crate::process::{Folder, Process, free_addresses, held, try_until, until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

pub struct ZooKeeper {
    servers: Vec<Process>,
    clients: Vec<SocketAddr>,
    class_path: String,
    configurations: Vec<PathBuf>,
    /// Last: it is removed when the processes are gone.
    folder: Folder,
}

impl ZooKeeper {
    pub fn start(peers: &Peers) -> Result<ZooKeeper> {
        let mut zookeeper = ZooKeeper {
            servers: Vec::new(),
            clients: free_addresses(3)?,
            class_path: peers.class_path()?,
            configurations: Vec::new(),
            folder: Folder::new(super::memory_folder(), "zookeeper")?,
        };
        let (quorum, election) = (free_addresses(3)?, free_addresses(3)?);
        for index in 0..3 {
            let configuration = zookeeper.configure(index, &quorum, &election)?;
            zookeeper.configurations.push(configuration);
        }
        for index in 0..3 {
            let server = zookeeper.run(index)?;
            zookeeper.servers.push(server);
        }
        try_until("ZooKeeper has a leader", || {
            zookeeper.servers.iter_mut().try_for_each(Process::check)?;
            Ok(zookeeper.is_whole().then_some(()))
        })?;
        Ok(zookeeper)
    }

    /// The configuration that its package has, on addresses of our own.
    fn configure(&self, index: usize, quorum: &[SocketAddr], election: &[SocketAddr]) -> Result<PathBuf> {
        let data = self.folder.path().join(format!("data-{index}"));
        std::fs::create_dir_all(&data).context(data.display())?;
        std::fs::write(data.join("myid"), (index + 1).to_string()).context(data.display())?;
        let client = self.clients[index];
        let mut lines = vec![
            "tickTime=2000".to_owned(),
            "initLimit=10".to_owned(),
            "syncLimit=5".to_owned(),
            "admin.enableServer=false".to_owned(),
            "maxClientCnxns=0".to_owned(),
            "4lw.commands.whitelist=srvr".to_owned(),
            format!("dataDir={}", data.display()),
            format!("clientPort={}", client.port()),
            format!("clientPortAddress={}", client.ip()),
        ];
        for (number, (quorum, election)) in quorum.iter().zip(election).enumerate() {
            lines.push(format!(
                "server.{}={}:{}:{}",
                number + 1,
                quorum.ip(),
                quorum.port(),
                election.port()
            ));
        }
        let path = self.folder.path().join(format!("server-{index}.cfg"));
        std::fs::write(&path, lines.join("\n")).context(path.display())?;
        Ok(path)
    }

    fn run(&self, index: usize) -> Result<Process> {
        let mut command = held("java");
        command.args([HEAP, "-cp", &self.class_path, "org.apache.zookeeper.server.quorum.QuorumPeerMain"]);
        command.arg(&self.configurations[index]);
        Process::start(&format!("zookeeper-{index}"), &mut command, self.folder.path())
    }

    /// All serve, and one of them leads.
    fn is_whole(&self) -> bool {
        let modes: Vec<Option<String>> = self.clients.iter().map(|&client| mode(client)).collect();
        let count = |wanted: &str| modes.iter().filter(|mode| mode.as_deref() == Some(wanted)).count();
        count("leader") == 1 && count("follower") == 2
    }
}

impl Replicas for ZooKeeper {
    fn name(&self) -> &'static str {
        "ZooKeeper"
    }

    fn load(&self, work: &Work) -> Result<Option<Load>> {
        let op = match work.op {
            Op::Write => zookeeper::Op::Write,
            Op::LinearRead => zookeeper::Op::LinearRead,
            Op::LocalRead => zookeeper::Op::LocalRead,
            Op::Lock => zookeeper::Op::Lock { is_contended: false },
            Op::ContendedLock => zookeeper::Op::Lock { is_contended: true },
            Op::Queue => return Ok(None),
        };
        if work.size > PEER_BYTES_MAX {
            return Ok(None);
        }
        // The first client at the leader: the shortest way a single one has.
        let mut addresses = self.clients.clone();
        addresses.rotate_left(self.leader()?);
        let plan = work.plan(addresses, &self.servers);
        Ok(Some(zookeeper::load(op, work.size, plan)))
    }

    fn processes(&self) -> &[Process] {
        &self.servers
    }

    fn leader(&self) -> Result<usize> {
        until("ZooKeeper has a leader", || {
            self.clients.iter().position(|&client| mode(client).as_deref() == Some("leader"))
        })
    }

    fn kill(&mut self, index: usize) -> Result<()> {
        self.servers[index].kill()
    }

    fn restart(&mut self, index: usize) -> Result<()> {
        self.servers[index] = self.run(index)?;
        until("ZooKeeper is whole again", || self.is_whole().then_some(()))
    }
}

/// What a server says that it is; `None`: it does not answer, or does not serve.
fn mode(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, ASK_MAX).ok()?;
    stream.set_read_timeout(Some(ASK_MAX)).ok()?;
    stream.write_all(b"srvr").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}

/// A server that does not answer by then is not there.
const ASK_MAX: Duration = Duration::from_secs(1);

/// Enough never to collect garbage in a hurry.
const HEAP: &str = "-Xmx1g";
