//! Operators: clients that ask the cell for one change and leave.

use super::clients::Program;
use super::processes::Process;
use super::{Event, World};
use crate::fault::Fault;
use crate::history::{Call, ClientNumber};
use crate::workload::{APPEND_FILES, APPENDS};
use kumo_paxos::{Change, Configuration, Schedule};
use kumo_pfs::{Query, Reply};
use kumo_session::{Application, SessionId};
use kumo_wire::Wire;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// The cell went on from a survivor.
pub struct Recovery {
    pub at: u64,
    pub generation: u32,
    /// What some files held there when an operator asked for it, with their paths.
    pub kept: Vec<(Vec<u8>, String)>,
}

/// What a file holds in one process's state.
pub fn content(process: &Process, path: &str) -> Vec<u8> {
    let query = Query::Read { path: path.to_owned(), offset: 0, length: kumo_pfs::READ_BYTES_MAX };
    let body = process.cell.application().read(SessionId(0), query.to_bytes());
    match Reply::from_bytes(body) {
        Ok(Reply::Data { bytes, .. }) => bytes.to_vec(),
        Ok(_) | Err(_) => Vec::new(),
    }
}

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

    /// A client's session is ended by somebody else.
    pub fn session_kill(&mut self) -> bool {
        let Some((victim, _)) = self.worker(Fault::SessionKill) else { return false };
        let Some(session) = self.clients[&victim].client.session() else { return false };
        // From now on others may have its locks, and only their numbers keep it from writing.
        self.doubt(victim);
        self.clients.get_mut(&victim).expect("it was just listed").doomed = true;
        let number = ClientNumber(self.fresh() as u32);
        let errands = VecDeque::from([Call::Kill(session), Call::Close]);
        self.spawn(number, Program::Errands(errands), true, true);
        true
    }

    /// When a majority forgot, the cell goes on from whoever remembers most.
    pub fn recover(&mut self) {
        let Some(survivor) = self.survivor().filter(|_| !self.bearable()) else { return };
        let kept = (0..APPEND_FILES).map(|file| format!("{APPENDS}{file}"));
        let had = kept.map(|path| (content(survivor, &path), path)).collect();
        let address = self.slots[survivor.slot].address;
        self.survivor_had = had;
        self.operate(Call::Recover(address));
    }

    /// The voter with its memory that has executed most.
    fn survivor(&self) -> Option<&Process> {
        let schedule = self.newest_schedule()?;
        let votes = |process: &&Process| {
            let listens = self.slots[process.slot].incarnation == process.incarnation;
            let stays = !process.leaving && process.paused.is_none();
            listens && stays && schedule.entries.iter().any(|(_, entry)| entry.is_voter(process.incarnation))
        };
        self.processes.values().filter(votes).max_by_key(|process| process.cell.executed_upto())
    }

    /// The first process of a new generation: whatever only others had is lost, and nothing else.
    pub fn recovered(&mut self, generation: u32) {
        self.trace.note(self.now, &[34, u64::from(generation)], &[], || {
            format!("the cell goes on as generation {generation}")
        });
        let kept = std::mem::take(&mut self.survivor_had);
        self.recovery = Some(Recovery { at: self.now, generation, kept });
        self.eras += 1;
        self.exceeded = false;
        *self.struck.entry(Fault::Recover).or_default() += 1;
        self.call_back();
    }

    /// Who was sent away by a change that is lost with the rest is a member again: its operator sees that it is down,
    /// and starts it.
    pub fn call_back(&mut self) {
        let Some(configuration) = self.newest_configuration() else { return };
        for slot in 0..self.slots.len() {
            if !self.slots[slot].wanted && configuration.at(self.slots[slot].address).is_some() {
                self.trace.note(self.now, &[35, slot as u64], &[], || format!("n{slot} is called back"));
                self.slots[slot].wanted = true;
                self.schedule.put(self.now + CALL_BACK_MICROS, Event::Start { slot });
            }
        }
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

/// Until an operator has looked at the members of a recovered cell.
const CALL_BACK_MICROS: u64 = 200_000;
/// Nodes that ever are in one run.
const SLOTS_MAX: usize = 8;
