//! A run from its first event to its verdict: trouble, then healing, then the demand that everything ends well.

use super::World;
use super::clients::Program;
use super::operators::Recovery;
use super::processes::{Process, ProcessId};
use crate::check::{Verdict, appends, events, locks, own, queues, registers, trees};
use crate::fault::Fault;
use crate::history::{Call, ClientNumber, Ending};
use crate::workload::{
    APPEND_FILES, APPENDS, FENCED, LOCKS, OWN, RECEIVE_QUEUES, REGISTERS, WAIT_QUEUES, WATCHED, flood_folder,
    tree_paths, tree_root,
};
use kumo_paxos::Role;
use kumo_pfs::{Command, Query, Reply};
use kumo_session::{Application, SessionId};
use kumo_wire::Wire;

impl World {
    /// The whole run. What is wrong, if anything, is in `failure`.
    pub fn run(&mut self) {
        while self.failure.is_none() && self.now < self.plan.chaos_micros {
            self.run_until(self.plan.chaos_micros);
        }
        self.heal();
        if self.failure.is_none()
            && let Err(wrong) = self.settle().and_then(|()| self.verdict())
        {
            self.fail(wrong);
        }
    }

    /// No more trouble: everything is whole and runs.
    fn heal(&mut self) {
        self.trace.note(self.now, &[40], &[], || "heal".to_owned());
        self.chaos = false;
        self.network.heal();
        for slot in 0..self.slots.len() {
            self.slots[slot].clock.set_rate(self.now, 1000);
            self.slots[slot].disk.full = false;
            self.rearm(slot);
        }
        let paused: Vec<ProcessId> = self
            .processes
            .iter()
            .filter(|(_, process)| process.paused.is_some())
            .map(|(id, _)| *id)
            .collect();
        for id in paused {
            self.resume(id);
        }
        let clients: Vec<ClientNumber> = self.clients.keys().copied().collect();
        for client in clients {
            self.resume_client(client);
        }
        for slot in 0..self.slots.len() {
            self.start(slot);
        }
        self.recover_at_last();
    }

    /// Where operators recover, they do so until the cell goes on.
    fn recover_at_last(&mut self) {
        for _ in 0..RECOVERIES_MAX {
            if !self.exceeded || !self.plan.strikes.contains_key(&Fault::Recover) || self.failure.is_some() {
                return;
            }
            self.recover();
            self.run_until(self.now + 1_500_000);
        }
    }

    /// Whether the cell must go on: it does unless more of it forgot than it can bear. A change of members may
    /// cross a crash, and then those who are left are fewer than they seemed.
    fn must_live(&mut self) -> bool {
        if !self.exceeded && !self.bearable() {
            self.trace
                .note(self.now, &[41], &[], || "more forgot than the members of now can bear".to_owned());
            self.excused = true;
            self.exceeded = true;
        }
        !self.exceeded
    }

    fn settle(&mut self) -> Verdict {
        let before = self.answered();
        let until = self.now + WORK_MICROS;
        while self.failure.is_none() && self.now < until && self.answered() < before + WORK_CALLS {
            self.run_until(self.now + 100_000);
        }
        if self.answered() == before && self.must_live() {
            return Err("no call was answered after everything was healed".to_owned());
        }
        self.working = false;
        for (client, ticket) in self.open_tickets() {
            self.give_up(client, ticket);
        }
        let quiet = |world: &World| {
            world
                .open_tickets()
                .iter()
                .all(|(_, ticket)| matches!(world.history.operations[*ticket as usize].call, Call::Events))
        };
        self.wait_for("calls to be answered", quiet)?;
        self.close_all()?;
        // Whoever died left a session behind, which expires; a change of masters gives it one more period.
        self.wait_for("dead clients' sessions to expire", |world| {
            world.newest().is_none_or(|process| process.cell.sessions().count() == 0)
        })?;
        self.drain()?;
        self.wait_for("replicas to be equal", |world| world.unequal().is_none())
    }

    /// Lets time go on until something holds. A cell that may have stopped is not waited for in vain.
    /// Patience begins anew with every call that is answered: no new ones are made but by who drains the queues.
    fn wait_for(&mut self, what: &str, holds: impl Fn(&World) -> bool) -> Verdict {
        let patience = if self.exceeded { PATIENCE_STOPPED_MICROS } else { PATIENCE_MICROS };
        let mut until = self.now + patience;
        let mut answered = self.answered();
        while self.failure.is_none() && !holds(self) {
            if answered != self.answered() {
                answered = self.answered();
                until = self.now + patience;
            }
            if self.now >= until {
                if !self.must_live() {
                    return Ok(());
                }
                let open: Vec<_> = self.open_tickets();
                let unequal = self.unequal().unwrap_or_default();
                return Err(format!("waited in vain for {what}; open calls: {open:?}; {unequal}"));
            }
            self.run_until(self.now + 50_000);
        }
        Ok(())
    }

    fn open_tickets(&self) -> Vec<(ClientNumber, u64)> {
        let of = |(number, client): (&ClientNumber, &super::clients::SimClient)| {
            let number = *number;
            client.tickets.keys().map(move |ticket| (number, *ticket)).collect::<Vec<_>>()
        };
        self.clients.iter().flat_map(of).collect()
    }

    fn close_all(&mut self) -> Verdict {
        let clients: Vec<ClientNumber> = self.clients.keys().copied().collect();
        for number in clients {
            let Some(client) = self.clients.get_mut(&number) else { continue };
            match client.program {
                Program::Worker(..) => {
                    client.closing = true;
                    self.call(number, Call::Close);
                }
                Program::Errands(_) => self.kill_client(number),
            }
        }
        self.wait_for("sessions to close", |world| world.open_tickets().is_empty())?;
        let clients: Vec<ClientNumber> = self.clients.keys().copied().collect();
        for number in clients {
            self.kill_client(number);
        }
        Ok(())
    }

    /// Takes whatever is left in the queues, so that what is missing then is lost.
    fn drain(&mut self) -> Verdict {
        let queues = WAIT_QUEUES.iter().chain(&RECEIVE_QUEUES);
        let wait = |queue: &&str| Call::Command(Command::Wait { queue: (*queue).to_owned(), try_only: true });
        let number = ClientNumber(self.fresh() as u32);
        self.spawn(number, Program::Errands(queues.map(wait).collect()), true, true);
        self.wait_for("queues to be drained", |world| match world.clients.get(&number) {
            Some(client) => match &client.program {
                Program::Errands(errands) => errands.is_empty() && client.tickets.is_empty(),
                Program::Worker(..) => true,
            },
            None => true,
        })?;
        if !self.clients.contains_key(&number) && self.must_live() {
            return Err(format!(
                "c{} could not open a session, or lost it, with everything healed",
                number.0
            ));
        }
        self.kill_client(number);
        Ok(())
    }

    /// The process that has executed most.
    fn newest(&self) -> Option<&Process> {
        let place = |process: &&Process| {
            let cell = &process.cell;
            (cell.replica().generation(), cell.executed_upto())
        };
        self.processes.values().max_by_key(place)
    }

    /// In what members of the cell differ, if they do.
    fn unequal(&self) -> Option<String> {
        let configuration = self.newest_configuration()?;
        let newest = self.newest()?;
        let (executed, digest) = (newest.cell.executed_upto(), newest.cell.digest());
        let mut members = Vec::new();
        for member in &configuration.members {
            // A follower that was removed and asked to follow again as it went is a member that nobody starts.
            let stays = self.slots.iter().any(|slot| slot.address == member.address && slot.wanted);
            if member.role == Role::Extension && !stays {
                continue;
            }
            let Some((id, process)) =
                self.processes.iter().find(|(_, process)| process.incarnation == member.incarnation)
            else {
                return Some(format!("{member:?} does not run"));
            };
            let theirs = (process.cell.executed_upto(), process.cell.digest());
            if theirs != (executed, digest) {
                return Some(format!("p{} is at {theirs:?}, the newest at {:?}", id.0, (executed, digest)));
            }
            members.push((id, process));
        }
        let parts: Vec<_> = newest.cell.snapshot()?.1.collect();
        let differs = |process: &Process| {
            process.cell.snapshot().is_none_or(|(_, other)| !other.eq(parts.iter().cloned()))
        };
        let other = members.into_iter().find(|(_, process)| differs(process));
        other.map(|(id, _)| format!("p{} has another snapshot at the same digest", id.0))
    }

    /// What all clients saw, judged.
    fn verdict(&self) -> Verdict {
        // Numbers are pairs of a generation and a count: they grow whatever else was lost.
        locks::numbers(&self.history)?;
        let since;
        let history = match &self.recovery {
            Some(recovery) => {
                self.survivor_kept(recovery)?;
                since = self.history.after(recovery.at, recovery.generation);
                &since
            }
            None => &self.history,
        };
        if !self.plan.wild_clocks {
            registers::check(history, REGISTERS)?;
            locks::exclusion(&history.holdings)?;
        }
        own::check(history, OWN)?;
        events::check(history, &[WATCHED, &flood_folder(self.plan.deep)])?;
        let root = tree_root(self.eras);
        trees::check(history, &root, !self.plan.wild_clocks, &self.tree_at_last(&root)?, &self.truth)?;
        if self.exceeded {
            // Whatever was on the lost majority alone is gone, and may be.
            return Ok(());
        }
        queues::check(history, !self.plan.wild_clocks)?;
        for file in 0..APPEND_FILES {
            let path = format!("{APPENDS}{file}");
            appends::check(history, &path, &self.content(&path)?, !self.plan.wild_clocks)?;
        }
        for lock in 0..LOCKS {
            let path = format!("{FENCED}lock-{lock}");
            locks::fenced(history, &path, &self.content(&path)?)?;
        }
        self.ephemerals_gone()
    }

    /// What the survivor had when it went on is there still.
    fn survivor_kept(&self, recovery: &Recovery) -> Verdict {
        for (kept, path) in recovery.kept.iter().filter(|_| !self.exceeded) {
            if !self.content(path)?.starts_with(kept) {
                return Err(format!("{path}: what the survivor had is lost"));
            }
        }
        Ok(())
    }

    fn read(&self, query: &Query) -> Result<Reply, String> {
        let newest = self.newest().ok_or("no process is left")?;
        let body = newest.cell.application().read(SessionId(0), query.to_bytes());
        Reply::from_bytes(body).map_err(|malformed| malformed.to_string())
    }

    /// All that is in a tree, as far as it is known.
    fn tree_at_last(&self, root: &str) -> Result<Vec<(Query, Reply)>, String> {
        let mut found = Vec::new();
        if self.exceeded || !self.plan.clients.contains(&crate::workload::Role::Tree) {
            return Ok(found);
        }
        for path in tree_paths(root) {
            let read = Query::Read { path: path.clone(), offset: 0, length: kumo_pfs::READ_BYTES_MAX };
            for query in [Query::Stat { path }, read] {
                let reply = self.read(&query)?;
                found.push((query, reply));
            }
        }
        Ok(found)
    }

    fn content(&self, path: &str) -> Result<Vec<u8>, String> {
        let query = Query::Read { path: path.to_owned(), offset: 0, length: kumo_pfs::READ_BYTES_MAX };
        match self.read(&query)? {
            Reply::Data { bytes, .. } => Ok(bytes.to_vec()),
            Reply::Refused(_) => Ok(Vec::new()),
            reply => Err(format!("{path} cannot be read: {reply:?}")),
        }
    }

    /// All sessions are over, so no ephemeral file is left.
    fn ephemerals_gone(&self) -> Verdict {
        for (_, command) in self.history.commands() {
            // Those in a tree are renamed: its own check finds them.
            let Command::Write { path, ephemeral: true, .. } = command else { continue };
            if !path.starts_with(OWN) {
                continue;
            }
            let gone = matches!(self.read(&Query::Stat { path: path.clone() })?, Reply::Refused(_));
            if !gone {
                return Err(format!("{path} is ephemeral, and outlived its session"));
            }
        }
        Ok(())
    }

    /// Calls that ended well, for floors.
    pub fn answered(&self) -> u64 {
        let fine =
            |ending: &Ending| matches!(ending, Ending::Reply(_) | Ending::Events { .. } | Ending::Done);
        self.history.operations.iter().filter(|o| o.finished.as_ref().is_some_and(|(_, e)| fine(e))).count()
            as u64
    }
}

/// Work after healing, in which calls must succeed; and so many are enough.
const WORK_MICROS: u64 = 3_000_000;
const WORK_CALLS: u64 = 100;
/// Attempts to recover a cell in one run: another replica may be the better survivor.
const RECOVERIES_MAX: u32 = 5;
/// How long nothing may happen once everything is healed: several times what the slowest timeout needs.
const PATIENCE_MICROS: u64 = 40_000_000;
/// The same where the cell has most likely stopped, as it should: enough to see it do something wrong.
const PATIENCE_STOPPED_MICROS: u64 = 4_000_000;
