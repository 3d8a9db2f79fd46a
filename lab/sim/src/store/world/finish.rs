//! A run from its first event to its verdict: trouble, then healing, then the demand that everything ends well.

use super::callers::EXPIRY_FAR;
use super::processes::ProcessId;
use super::{Kind, World};
use crate::store::check::{Verdict, counts, linear};
use crate::store::history::Flush;
use crate::store::workload::Class;
use kumo_cluster::control::ControlRequest;
use kumo_cluster::{COPIES, Operation, SpaceNumber};
use std::net::SocketAddr;

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
        self.trace.note(self.now, &[50], &[], || "heal".to_owned());
        self.chaos = false;
        // Nobody waits for what was asked before and not done.
        self.errands.clear();
        // Now that all servers are started, a rebuild may wait for them once more.
        self.stuck_since = None;
        self.network.heal();
        self.slow.clear();
        for slot in 0..self.slots.len() {
            self.slots[slot].clock.set_rate(self.now, 1000);
            self.slots[slot].engine.set_full(false);
            self.slots[slot].engine.set_trouble(None);
        }
        let all: Vec<ProcessId> = self.processes.keys().copied().collect();
        for id in all {
            self.resume(id);
            self.arm(id);
        }
        for slot in self.nodes() {
            self.start(slot);
        }
    }

    fn settle(&mut self) -> Verdict {
        self.run_until(self.now + CALM_MICROS);
        self.attach_all()?;
        let before = self.history.succeeded();
        let patience = self.now + ANSWER_MICROS;
        self.run_until(self.now + WORK_MICROS);
        while self.failure.is_none() && self.history.succeeded() == before && self.now < patience {
            self.run_until(self.now + WORK_MICROS);
        }
        if self.failure.is_none() && self.history.succeeded() == before {
            return Err("no call was answered after everything was healed".to_owned());
        }
        self.take_out_full()?;
        self.working = false;
        self.wait_for("calls to be answered", |world| {
            let open = world.open_calls();
            (!open.is_empty()).then(|| format!("open: {open:?}"))
        })?;
        // A fault put up before the healing may have been executed only now.
        self.attach_all()?;
        self.read_all()?;
        self.wait_for("voters to be recruited", World::voters_missing)?;
        self.wait_for("replicas to be equal", |world| world.unwell().or_else(|| world.unequal()))?;
        self.managers_differ().map_or(Ok(()), Err)
    }

    /// Of some runs: a disk fills up while clients work, and the operator takes its server out. There is room again only
    /// when others have taken its place.
    fn take_out_full(&mut self) -> Verdict {
        let (servers, seed) = (self.places(Kind::Server), self.plan.seed);
        if servers.len() <= COPIES || !seed.is_multiple_of(4) {
            return Ok(());
        }
        let slot = servers.start + (seed / 4) as usize % servers.len();
        let address = self.slots[slot].address;
        self.trace
            .note(self.now, &[52, slot as u64], &[], || format!("the disk of n{slot} is full for good"));
        self.slots[slot].engine.set_full(true);
        self.run_until(self.now + WORK_MICROS);
        let until = self.now + PATIENCE_MICROS;
        let others = self.slots[servers].iter().map(|slot| slot.address).filter(|one| *one != address);
        let others: Vec<SocketAddr> = others.collect();
        while self.failure.is_none() && self.is_in(address) {
            // Takes back what an operator left for the next replace, perhaps that all others leave.
            let servers = others.clone();
            self.ask(None, ControlRequest::Attach { servers, replace: false, accept_data_loss: false });
            self.run_until(self.now + ASK_AGAIN_MICROS);
            if self.now >= until {
                return Err(format!("waited in vain for n{slot}, whose disk is full, to be taken out"));
            }
            self.ask(None, ControlRequest::Detach { servers: vec![address], replace: true });
            self.run_until(self.now + ASK_AGAIN_MICROS);
        }
        self.slots[slot].engine.set_full(false);
        Ok(())
    }

    /// It has a part in the ring, before or after the replace that is under way.
    fn is_in(&self, address: SocketAddr) -> bool {
        self.newest_cluster().is_none_or(|cluster| {
            let space = cluster.space();
            let named = |ring: &[u16]| ring.iter().any(|&index| space.member(index).address == address);
            space.job.is_some() || !space.settled() || named(&space.rhs) || named(&space.whs)
        })
    }

    /// The operator attaches everybody, and goes on asking until that is done. A replace to a ring whose servers
    /// were lost meanwhile cannot end: it is cancelled, and the next one names those that are there.
    fn attach_all(&mut self) -> Verdict {
        let until = self.now + PATIENCE_MICROS;
        let mut job = (SpaceNumber(0), self.now);
        while self.failure.is_none()
            && let Some(why) = self.unwell()
        {
            if self.now >= until {
                return Err(format!("waited in vain for all servers to be attached: {why}"));
            }
            if self.ask_to_rebuild() {
                self.run_until(self.now + ASK_AGAIN_MICROS);
                continue;
            }
            let accept_data_loss = self.arcs_lost();
            let whs_since = self.newest_cluster().map_or(SpaceNumber(0), |cluster| cluster.space().whs_since);
            if job.0 != whs_since {
                job = (whs_since, self.now);
            } else if self.now > job.1 + JOB_MICROS {
                job.1 = self.now;
                self.ask(None, ControlRequest::Cancel);
            }
            self.ask(None, ControlRequest::AutoReplace { on: false });
            self.ask(None, ControlRequest::Resume);
            self.ask(None, ControlRequest::Rate { bytes: 0 });
            match accept_data_loss {
                true => self.accept_loss(),
                false => self.ask(
                    None,
                    ControlRequest::Attach { servers: Vec::new(), replace: true, accept_data_loss: false },
                ),
            }
            self.run_until(self.now + ASK_AGAIN_MICROS);
        }
        Ok(())
    }

    /// Every key, read through every gateway.
    fn read_all(&mut self) -> Verdict {
        let gateways: Vec<ProcessId> =
            self.slots[self.places(Kind::Gateway)].iter().filter_map(|slot| slot.listener).collect();
        for process in gateways {
            for key in 0..self.plan.keys.len() {
                self.invoke(None, process, key, Operation::Get);
            }
        }
        self.wait_for("the last reads", |world| {
            let open = world.open_calls();
            (!open.is_empty()).then(|| format!("open: {open:?}"))
        })?;
        let unread =
            self.history.calls.iter().find(|call| call.caller == usize::MAX && call.answer().is_none());
        match unread {
            Some(call) => Err(format!("key-{} cannot be read after healing: {:?}", call.key, call.ending)),
            None => Ok(()),
        }
    }

    /// Lets time go on until nothing is left to wait for.
    fn wait_for(&mut self, what: &str, missing: impl Fn(&World) -> Option<String>) -> Verdict {
        let until = self.now + PATIENCE_MICROS;
        while self.failure.is_none()
            && let Some(why) = missing(self)
        {
            if self.now >= until {
                return Err(format!("waited in vain for {what}: {why}"));
            }
            self.run_until(self.now + 100_000);
        }
        Ok(())
    }

    /// What all callers saw, judged.
    fn verdict(&self) -> Verdict {
        if self.excused {
            return Ok(());
        }
        let given_up = self.given_up();
        for (index, key) in self.plan.keys.iter().enumerate() {
            let losses = self.losses(key, &given_up);
            let record = self.content(key);
            let data = record.as_ref().map(|record| &record.data[..]);
            let verdict = match key.class {
                // What is flushed now and then is only judged by the order of its calls.
                Class::Counter | Class::Log if self.history.flushes_of(&key.name).any(Flush::may_be_done) => {
                    Ok(())
                }
                Class::Counter => counts::counter(self.history.of_key(index), &losses, data),
                Class::Log => counts::log(self.history.of_key(index), &losses, data),
                Class::Register | Class::Fleeting => Ok(()),
            };
            verdict.map_err(|wrong| format!("key-{index} {wrong}"))?;
            let flushes = self.history.flushes_of(&key.name);
            linear::check(self.history.of_key(index), flushes, &losses, EXPIRY_FAR)
                .map_err(|wrong| format!("key-{index}: {wrong}"))?;
        }
        Ok(())
    }
}

/// Work after healing, in which calls must succeed.
const WORK_MICROS: u64 = 1_500_000;
/// The first may wait for an election of the managers, for leases to run out and for a gateway to ask again.
const ANSWER_MICROS: u64 = 9_000_000;
/// How long a healed cluster may take for anything.
const PATIENCE_MICROS: u64 = 120_000_000;
/// What was asked before the healing is done by then, or never.
const CALM_MICROS: u64 = 1_000_000;
/// The operator's patience with a replace: a whole one takes well below a second without faults.
const JOB_MICROS: u64 = 15_000_000;
/// The operator's patience with one answer.
const ASK_AGAIN_MICROS: u64 = 1_000_000;
