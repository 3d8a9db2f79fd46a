//! [`Etcd`]: three members of etcd, with their data in memory.

use super::{Op, PEER_BYTES_MAX, Replicas, Work};
use crate::failure::Result;
use crate::load::Load;
use crate::load::etcd::{self, is_leader};
use crate::peers::Peers;
use crate::process::{Folder, Process, free_addresses, try_until, until};
use std::net::SocketAddr;

pub struct Etcd {
    members: Vec<Process>,
    clients: Vec<SocketAddr>,
    peers: Vec<SocketAddr>,
    programs: Peers,
    /// Last: it is removed when the processes are gone.
    folder: Folder,
}

impl Etcd {
    pub fn start(peers: &Peers) -> Result<Etcd> {
        let mut etcd = Etcd {
            members: Vec::new(),
            clients: free_addresses(3)?,
            peers: free_addresses(3)?,
            programs: peers.clone(),
            folder: Folder::new(super::memory_folder(), "etcd")?,
        };
        for index in 0..3 {
            let member = etcd.run(index)?;
            etcd.members.push(member);
        }
        try_until("etcd has a leader", || {
            etcd.members.iter_mut().try_for_each(Process::check)?;
            Ok(etcd.leaders().filter(|leaders| leaders.len() == 1).map(drop))
        })?;
        Ok(etcd)
    }

    fn run(&self, index: usize) -> Result<Process> {
        let url = |address: &SocketAddr| format!("http://{address}");
        let named = self.peers.iter().enumerate();
        let cluster: Vec<String> = named.map(|(index, peer)| format!("m{index}={}", url(peer))).collect();
        let (client, peer) = (url(&self.clients[index]), url(&self.peers[index]));
        let mut command = self.programs.etcd()?;
        command.args(["--name", &format!("m{index}"), "--initial-cluster", &cluster.join(",")]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg("--data-dir").arg(self.folder.path().join(format!("data-{index}")));
        command.args(["--quota-backend-bytes", QUOTA_BYTES, "--log-level", "error"]);
        Process::start(&format!("etcd-{index}"), &mut command, self.folder.path())
    }

    /// Those who lead, when all answer.
    fn leaders(&self) -> Option<Vec<usize>> {
        let answers: Option<Vec<bool>> = self.clients.iter().map(|&client| is_leader(client)).collect();
        Some(answers?.iter().enumerate().filter(|&(_, &leads)| leads).map(|(index, _)| index).collect())
    }
}

impl Replicas for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn load(&self, work: &Work) -> Result<Option<Load>> {
        let op = match work.op {
            Op::Write => etcd::Op::Write,
            Op::LinearRead => etcd::Op::LinearRead,
            Op::LocalRead => etcd::Op::LocalRead,
            Op::Lock => etcd::Op::Lock { is_contended: false },
            Op::ContendedLock => etcd::Op::Lock { is_contended: true },
            Op::Queue => return Ok(None),
        };
        if work.size > PEER_BYTES_MAX {
            return Ok(None);
        }
        // The first client at the leader: the shortest way a single one has.
        let mut addresses = self.clients.clone();
        addresses.rotate_left(self.leader()?);
        let plan = work.plan(addresses, &self.members);
        Ok(Some(etcd::load(op, work.size, plan)))
    }

    fn processes(&self) -> &[Process] {
        &self.members
    }

    fn leader(&self) -> Result<usize> {
        until("etcd has a leader", || self.clients.iter().position(|&client| is_leader(client) == Some(true)))
    }

    fn kill(&mut self, index: usize) -> Result<()> {
        self.members[index].kill()
    }

    fn restart(&mut self, index: usize) -> Result<()> {
        self.members[index] = self.run(index)?;
        until("etcd is whole again", || self.leaders().filter(|leaders| leaders.len() == 1).map(drop))
    }
}

/// Its default is 2 GiB, after which it refuses writes.
const QUOTA_BYTES: &str = "8589934592";
