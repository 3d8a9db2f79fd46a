//! [`Cell`]: three replicas of kumo, in memory.

use super::{Op, Replicas, Work};
use crate::failure::{Failure, Result};
use crate::kumo::{Kumo, joined, words};
use crate::load::Load;
use crate::process::{Folder, Process, free_addresses, try_until, until};
use serde_json::Value;
use std::net::SocketAddr;

pub struct Cell {
    kumo: Kumo,
    addresses: Vec<SocketAddr>,
    replicas: Vec<Process>,
    /// Last: it is removed when the processes are gone.
    folder: Folder,
}

impl Cell {
    pub fn start(kumo: &Kumo) -> Result<Cell> {
        let folder = Folder::new(super::memory_folder(), "cell")?;
        let addresses = free_addresses(3)?;
        let mut cell = Cell { kumo: kumo.clone(), addresses, replicas: Vec::new(), folder };
        for index in 0..3 {
            let replica = cell.run(index)?;
            cell.replicas.push(replica);
        }
        try_until("every replica of kumo votes", || {
            cell.replicas.iter_mut().try_for_each(Process::check)?;
            let status = cell.status().ok();
            Ok(status.filter(|status| (0..3).all(|index| cell.votes(status, index).is_some())))
        })?;
        Ok(cell)
    }

    fn run(&self, index: usize) -> Result<Process> {
        let mut command = self.kumo.command();
        command.args(["kumo-cell", "--log-level", "warn", "-l", &self.addresses[index].to_string()]);
        for peer in self.addresses.iter().filter(|&&peer| peer != self.addresses[index]) {
            command.args(["-p", &peer.to_string()]);
        }
        Process::start(&format!("cell-{index}"), &mut command, self.folder.path())
    }

    pub fn members(&self) -> String {
        joined(&self.addresses)
    }

    pub fn kumo(&self) -> &Kumo {
        &self.kumo
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    fn status(&self) -> Result<Value> {
        self.kumo.json(&["cell", "status", "--cell", &self.members()])
    }

    /// The incarnation of a replica that votes, where there is a master.
    fn votes(&self, status: &Value, index: usize) -> Option<String> {
        let address = self.addresses[index].to_string();
        let replica = status["replicas"].as_array()?.iter().find(|one| one["address"] == address.as_str())?;
        let is_voting = replica["state"] == "voting" && status["master"].is_string();
        is_voting.then(|| replica["incarnation"].as_str().map(str::to_owned)).flatten()
    }

    /// As a process that is to be killed is known: it comes back as another.
    pub fn incarnation(&self, index: usize) -> Result<String> {
        until("the replica votes", || self.votes(&self.status().ok()?, index))
    }

    /// Starts a replica where none runs.
    pub fn start_again(&mut self, index: usize) -> Result<()> {
        self.replicas[index] = self.run(index)?;
        Ok(())
    }

    /// Whether a replica votes that is not `before`.
    pub fn is_back(&self, index: usize, before: &str) -> bool {
        let status = self.status().ok();
        status.and_then(|status| self.votes(&status, index)).is_some_and(|now| now != before)
    }
}

impl Replicas for Cell {
    fn name(&self) -> &'static str {
        "kumo"
    }

    fn load(&self, work: &Work) -> Result<Option<Load>> {
        let mut arguments =
            words(&["cell", "--cell", &self.members(), "--clients", &work.clients.to_string()]);
        arguments.extend(words(&[
            "--size",
            &work.size.to_string(),
            "--secs",
            &work.secs.to_string(),
            "--op",
        ]));
        arguments.extend(match work.op {
            Op::Write => words(&["write"]),
            Op::LinearRead => words(&["read", "--sync"]),
            Op::LocalRead => words(&["read"]),
            Op::Lock => words(&["lock"]),
            Op::ContendedLock => words(&["lock", "--contended"]),
            Op::Queue => words(&["queue"]),
        });
        if !work.has_kill {
            let pids: Vec<u32> = self.replicas.iter().map(Process::pid).collect();
            arguments.extend(["--pids".to_owned(), joined(&pids)]);
        }
        Ok(Some(self.kumo.load(arguments)))
    }

    fn processes(&self) -> &[Process] {
        &self.replicas
    }

    fn leader(&self) -> Result<usize> {
        until("the cell has a master", || {
            let master: SocketAddr = self.status().ok()?["master"].as_str()?.parse().ok()?;
            self.addresses.iter().position(|&address| address == master)
        })
    }

    fn kill(&mut self, index: usize) -> Result<()> {
        self.replicas[index].kill()
    }

    fn restart(&mut self, index: usize) -> Result<()> {
        // Only the log knows whether the dead one was replaced: any other incarnation than its own is the new one.
        let address = self.addresses[index].to_string();
        let status =
            until("the cell has a master", || self.status().ok().filter(|one| one["master"].is_string()))?;
        let listed = status["replicas"].as_array().into_iter().flatten();
        let before = listed
            .filter(|one| one["address"] == address.as_str())
            .find_map(|one| one["incarnation"].as_str());
        let before = before.ok_or_else(|| Failure::new(format!("{address} is not in the cell")))?.to_owned();
        self.start_again(index)?;
        until("the replica votes again", || self.is_back(index, &before).then_some(()))
    }
}
