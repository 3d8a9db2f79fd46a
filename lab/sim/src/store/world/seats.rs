//! Replicas of the cell in servers' processes: each has an address and a disk of its own, and the server's host, clock
//! and fate.

use super::links::Target;
use super::processes::{ProcessId, Program};
use super::{Kind, Slot, World};
use crate::disk::Disk;
use kumo_cluster::Recruit;
use kumo_paxos::{Configuration, ReplicaState};
use std::net::SocketAddr;

impl World {
    /// The place for a replica beside that server; in runs with two managers.
    pub fn seat_of(&self, server: usize) -> Option<usize> {
        let nth = server.checked_sub(self.places(Kind::Server).start)?;
        self.places(Kind::Seat).nth(nth).filter(|_| self.places(Kind::Server).contains(&server))
    }

    /// The process of the replica beside that process's server.
    pub fn companion(&self, id: ProcessId) -> Option<ProcessId> {
        let slot = self.processes.get(&id)?.slot;
        self.slots[self.seat_of(slot)?].listener
    }

    /// A place for a replica in that server's process.
    pub fn add_seat(&mut self, server: usize) {
        let SocketAddr::V4(address) = self.slots[server].address else { return };
        let (clock, engine) = (self.slots[server].clock.clone(), self.slots[server].engine.clone());
        self.slots.push(Slot {
            kind: Kind::Seat,
            host: server,
            address: SocketAddr::from((*address.ip(), SEAT_PORT)),
            clock,
            listener: None,
            disk: Disk::default(),
            born: None,
            recruit: None,
            engine,
            synced_at: 0,
        });
    }

    /// The cell wants a replica beside that server. It is on the server's disk before it runs.
    pub fn recruited(&mut self, id: ProcessId, recruit: Recruit) {
        let Some(seat) = self.processes.get(&id).and_then(|process| self.seat_of(process.slot)) else {
            return;
        };
        self.slots[seat].recruit = Some(recruit);
        self.start(seat);
    }

    /// The cell has let a replica go: what it remembers is of no use any more.
    pub fn dismissed(&mut self, id: ProcessId) {
        let Some(slot) = self.processes.get(&id).map(|process| process.slot) else { return };
        self.kill(id, false);
        (self.slots[slot].disk, self.slots[slot].recruit) = (Disk::default(), None);
    }

    /// The disk of that server's host is lost, and all that a replica there remembers.
    pub fn lose_seat(&mut self, server: usize) {
        if let Some(seat) = self.seat_of(server) {
            (self.slots[seat].disk, self.slots[seat].recruit) = (Disk::default(), None);
        }
    }

    /// Whether the cell bears that the replica beside that server forgets: most voters, and one more, remember.
    pub fn cell_bears_loss(&self, server: usize) -> bool {
        let Some(seat) = self.seat_of(server).filter(|&seat| self.slots[seat].disk.life().is_some()) else {
            return true;
        };
        let remembers = |address: SocketAddr, incarnation| {
            let slot = self.slot_at(address).filter(|&slot| slot != seat);
            slot.is_some_and(|slot| self.slots[slot].disk.life() == Some(incarnation))
        };
        let bears = |configuration: &Configuration| {
            let all = configuration.voters().count();
            let kept =
                configuration.voters().filter(|voter| remembers(voter.address, voter.incarnation)).count();
            2 * kept.saturating_sub(1) > all
        };
        let Some(node) = self.newest_manager() else { return false };
        let schedule = node.cell.replica().agreement().schedule();
        schedule.is_some_and(|schedule| schedule.entries.iter().all(|(_, one)| bears(one)))
    }

    /// Managers to keep a connection with are these, and those that everybody was started with.
    pub fn only_managers(&mut self, id: ProcessId, managers: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let wanted: Vec<SocketAddr> = managers.into_iter().chain(self.managers()).collect();
        wanted.iter().for_each(|&manager| self.want_link(id, Target::Manager(manager)));
        let Some(process) = self.processes.get(&id) else { return Vec::new() };
        let known = process.links.keys().filter_map(|target| match target {
            Target::Manager(manager) => Some(*manager),
            Target::Peer(_) | Target::Server(_) => None,
        });
        let dropped: Vec<SocketAddr> = known.filter(|manager| !wanted.contains(manager)).collect();
        dropped.into_iter().filter(|&manager| self.drop_link(id, Target::Manager(manager))).collect()
    }

    /// What is wrong with the voters of two managers' cell once everything is healed.
    pub fn voters_missing(&self) -> Option<String> {
        if self.places(Kind::Seat).is_empty() {
            return None;
        }
        let master = self.processes.iter().find(|(id, _)| self.is_master(**id));
        let Some((id, process)) = master else { return Some("nobody leads the cell".to_owned()) };
        let Program::Manager(node) = &process.program else { return None };
        let now = self.clock(self.processes[id].slot).local(self.now);
        let status = node.cell.status(now);
        let voting = status.replicas.iter().filter(|one| one.state == ReplicaState::Voting).count();
        let wanted = if self.plan.servers < 3 { 3 } else { 5 };
        let whole = voting == wanted && status.replicas.len() == wanted;
        (!whole).then(|| format!("{wanted} voters are wanted, and there are {:?}", status.replicas))
    }

    /// Every replica that has executed as much has the same; and one at a time holds the cell's lease.
    pub fn watch_cell(&mut self, id: ProcessId) {
        let Some(Program::Manager(node)) = self.processes.get(&id).map(|process| &process.program) else {
            return;
        };
        let (executed, digest) = (node.cell.executed_upto(), node.cell.digest());
        let known = *self.digests.entry(executed).or_insert(digest);
        if known != digest {
            return self.fail(format!("p{} has executed something else up to {}", id.0, executed.0));
        }
        let leads = |(id, process): (&ProcessId, &super::processes::Process)| match &process.program {
            Program::Manager(node) if node.cell.is_master() => {
                node.cell.has_lease(self.clock(process.slot).local(self.now)).then_some(*id)
            }
            Program::Manager(_) | Program::Server(_) | Program::Gateway(_) => None,
        };
        let leaders: Vec<ProcessId> = self.processes.iter().filter_map(leads).collect();
        if leaders.len() > 1 {
            self.fail(format!("two masters hold the lease: {leaders:?}"));
        }
    }
}

/// A server's second port.
pub const SEAT_PORT: u16 = 19900;
