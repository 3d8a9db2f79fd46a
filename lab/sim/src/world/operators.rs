//! Operators: clients that ask the cell for one change and leave.

use super::clients::Program;
use super::{Event, World};
use crate::fault::Fault;
use crate::history::{Call, ClientNumber};
use kumo_paxos::{Change, Configuration, Schedule};
use std::collections::VecDeque;
use std::net::SocketAddr;

impl World {
    pub fn transfer(&mut self) -> bool {
        let call = match self.draw(Fault::Transfer, 0, 3) {
            0 if self.plan.durable => Call::Snapshot,
            _ => Call::Transfer,
        };
        self.operate(call);
        true
    }

    /// Any change that makes sense now, and some that are refused.
    pub fn membership(&mut self) -> bool {
        let Some(configuration) = self.newest_configuration() else { return false };
        let kind = self.draw(Fault::Membership, 0, 3);
        let nth = self.draw(Fault::Membership, 0, 999) as usize;
        let voters: Vec<SocketAddr> = configuration.voters().map(|member| member.address).collect();
        let followers: Vec<SocketAddr> = configuration
            .members
            .iter()
            .map(|member| member.address)
            .filter(|member| !voters.contains(member))
            .collect();
        let voter = voters[nth % voters.len()];
        let follower = followers.get(nth % followers.len().max(1)).copied();
        let change = match (kind, follower) {
            (0, Some(follower)) => Change::Promote(follower),
            (1, _) if voters.len() > 3 => Change::Remove(voter),
            (2, Some(follower)) => Change::Replace { old: voter, new: follower },
            (3, Some(follower)) => Change::Remove(follower),
            _ if self.slots.len() < SLOTS_MAX => Change::Add(self.newcomer()),
            _ => return false,
        };
        self.operate(Call::Change(change));
        true
    }

    /// Starts a process that no configuration knows yet.
    fn newcomer(&mut self) -> SocketAddr {
        let members: Vec<SocketAddr> = self.slots.iter().map(|slot| slot.address).collect();
        let slot = self.add_slot(self.slots.len(), true);
        self.slots[slot].peers = members;
        self.schedule.put(self.now, Event::Start { slot });
        self.slots[slot].address
    }

    fn operate(&mut self, call: Call) {
        let number = ClientNumber(self.fresh() as u32);
        // A newcomer needs a moment to be reachable; asking again later is what an operator does.
        let errands = VecDeque::from([call]);
        self.spawn(number, Program::Errands(errands), true, false);
    }

    /// The members by the newest word of any process.
    pub fn newest_configuration(&self) -> Option<Configuration> {
        Some(self.newest_schedule()?.latest().clone())
    }

    pub fn newest_schedule(&self) -> Option<Schedule> {
        let positions = self.processes.values().filter_map(|process| process.cell.position());
        let newest = positions.max_by_key(|position| (position.generation, position.executed))?;
        Some(newest.schedule)
    }
}

/// Nodes that ever are in one run.
const SLOTS_MAX: usize = 8;
