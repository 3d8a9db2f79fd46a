//! Faults, as they strike. Each returns whether it took effect: a fault that hit nothing is none.

use super::clients::{Program, client_host};
use super::processes::{Process, ProcessId};
use super::{Event, World};
use crate::disk::Damage;
use crate::fault::Fault;
use crate::history::ClientNumber;
use crate::workload::Role;
use kumo_paxos::{Configuration, Incarnation};
use kumo_session::Input;
use lot::Host;

impl World {
    pub fn strike(&mut self, fault: Fault) {
        if !self.chaos {
            return;
        }
        let effect = match fault {
            Fault::Crash => self.crash(fault, Damage::None),
            Fault::PowerLoss => self.power_loss(),
            Fault::DiskLost => self.crash(fault, Damage::Lost),
            Fault::DiskFull => self.fill_disk(),
            Fault::Pause => self.pause(),
            Fault::Twin => self.twin(),
            Fault::Partition => self.partition(),
            Fault::OneWay => self.one_way(),
            Fault::CutLink => self.cut_link(),
            Fault::Loss | Fault::Duplicate | Fault::Reorder => self.weather(fault),
            Fault::Replay => self.replay(),
            Fault::ClockRate => self.clock_rate(),
            Fault::ClockJump => self.clock_jump(),
            Fault::WallJump => self.wall_jump(),
            Fault::ClientKill => self.client_kill(),
            Fault::ClientBreak => {
                let nth = self.draw(fault, 0, 1000);
                self.break_connection(nth)
            }
            Fault::Transfer => self.transfer(),
            Fault::Membership => self.membership(),
            Fault::Rolling => self.rolling(),
            Fault::ClientPause => self.client_pause(),
            Fault::SessionKill => self.session_kill(),
            // Counted when the cell goes on.
            Fault::Recover => return self.lose_majority(),
        };
        let count = self.struck.entry(fault).or_default();
        *count += u64::from(effect);
        let name = fault.name();
        self.trace.note(self.now, &[30, fault as u64, u64::from(effect)], &[], || {
            format!("fault {name}{}", if effect { "" } else { " (no effect)" })
        });
    }

    /// A number from that fault's own stream.
    pub fn draw(&mut self, fault: Fault, low: u64, high: u64) -> u64 {
        self.randoms.faults.get_mut(&fault).expect("every fault has a stream").between(low, high)
    }

    /// A running process that listens, drawn from that fault's stream.
    fn victim(&mut self, fault: Fault) -> Option<ProcessId> {
        let nth = self.draw(fault, 0, 999);
        let running: Vec<ProcessId> = self.slots.iter().filter_map(|slot| slot.listener).collect();
        let victim = running.get(nth as usize % running.len().max(1)).copied()?;
        let process = &self.processes[&victim];
        (process.paused.is_none() && !process.leaving).then_some(victim)
    }

    fn crash(&mut self, fault: Fault, damage: Damage) -> bool {
        let Some(victim) = self.victim(fault) else { return false };
        let forgets = !self.plan.durable || damage == Damage::Lost;
        let delay = self.draw(fault, 20_000, 2_500_000);
        if forgets && !self.may_forget(victim) {
            return false;
        }
        let slot = self.processes[&victim].slot;
        self.kill(victim, damage);
        self.schedule.put(self.now + delay, Event::Start { slot });
        true
    }

    /// One machine, or the whole room.
    fn power_loss(&mut self) -> bool {
        if self.draw(Fault::PowerLoss, 0, 1) == 0 {
            return self.crash(Fault::PowerLoss, Damage::Unsynced);
        }
        let running: Vec<ProcessId> = self.processes.keys().copied().collect();
        for victim in &running {
            let slot = self.processes[victim].slot;
            self.kill(*victim, Damage::Unsynced);
            let delay = self.draw(Fault::PowerLoss, 20_000, 1_500_000);
            self.schedule.put(self.now + delay, Event::Start { slot });
        }
        !running.is_empty()
    }

    /// A majority forgets at once; after a while an operator has the cell go on from who is left.
    fn lose_majority(&mut self) {
        let nth = self.draw(Fault::Recover, 0, 999) as usize;
        let patience = self.draw(Fault::Recover, 300_000, 3_000_000);
        let Some(configuration) = self.newest_configuration() else { return };
        let voters = configuration.voters().map(|member| member.incarnation);
        let voters: Vec<ProcessId> = voters.filter_map(|voter| self.running(voter)).collect();
        if self.bearable() && voters.len() > 1 {
            let survivor = voters[nth % voters.len()];
            for victim in voters.into_iter().filter(|voter| *voter != survivor) {
                let slot = self.processes[&victim].slot;
                self.kill(victim, Damage::Lost);
                let delay = self.draw(Fault::Recover, 20_000, 800_000);
                self.schedule.put(self.now + delay, Event::Start { slot });
            }
            self.exceeded |= !self.bearable();
        }
        self.schedule.put(self.now + patience, Event::Recover);
    }

    /// The process with that memory, if it runs where it is looked for.
    fn running(&self, incarnation: Incarnation) -> Option<ProcessId> {
        let of = |id: &ProcessId| self.processes.get(id).is_some_and(|p| p.incarnation == incarnation);
        self.slots.iter().filter_map(|slot| slot.listener).find(of)
    }

    fn fill_disk(&mut self) -> bool {
        let Some(victim) = self.victim(Fault::DiskFull) else { return false };
        let slot = self.processes[&victim].slot;
        self.slots[slot].disk.full = true;
        true
    }

    fn pause(&mut self) -> bool {
        let (long, short) =
            (self.draw(Fault::Pause, 20_000_000, 60_000_000), self.draw(Fault::Pause, 20_000, 5_000_000));
        let length = if self.draw(Fault::Pause, 0, 39) == 0 { long } else { short };
        let Some(victim) = self.victim(Fault::Pause) else { return false };
        // The trouble lasts as long as the longest pause.
        self.plan.chaos_micros = self.plan.chaos_micros.max(self.now + length);
        self.hold(victim, length);
        true
    }

    fn hold(&mut self, victim: ProcessId, length: u64) {
        self.processes.get_mut(&victim).expect("a victim runs").paused = Some(Vec::new());
        self.schedule.put(self.now + length, Event::Resume { process: victim });
        self.trace.note(self.now, &[31, victim.0, length], &[], || {
            format!("pause p{} for {:.3} s", victim.0, length as f64 / 1e6)
        });
    }

    fn twin(&mut self) -> bool {
        let Some(victim) = self.victim(Fault::Twin) else { return false };
        let length = self.draw(Fault::Twin, 300_000, 6_000_000);
        if !self.may_forget(victim) {
            return false;
        }
        let slot = self.processes[&victim].slot;
        self.hold(victim, length);
        self.slots[slot].listener = None;
        self.start(slot);
        // Who was connected to the address finds another process there; what the old one dialled stays.
        self.break_links_to(victim);
        self.break_connections_of(victim);
        true
    }

    fn partition(&mut self) -> bool {
        let (sides, length) =
            (self.draw(Fault::Partition, 1, 1 << 30), self.draw(Fault::Partition, 200_000, 4_000_000));
        let hosts = self.hosts();
        let side = |index: usize| sides >> (index % 30) & 1;
        let mut cuts = Vec::new();
        for (index, one) in hosts.iter().enumerate() {
            for (other_index, other) in hosts.iter().enumerate() {
                if side(index) != side(other_index) {
                    cuts.push((*one, *other));
                }
            }
        }
        self.cut(cuts, length)
    }

    fn one_way(&mut self) -> bool {
        let (nth, length) = (self.draw(Fault::OneWay, 0, 999), self.draw(Fault::OneWay, 200_000, 4_000_000));
        let outwards = self.draw(Fault::OneWay, 0, 1) == 0;
        let all = self.draw(Fault::OneWay, 0, 1) == 0;
        let nodes: Vec<Host> = (0..self.slots.len() as u32).map(Host).collect();
        let one = nodes[nth as usize % nodes.len()];
        let others = nodes.iter().filter(|other| **other != one).take(if all { usize::MAX } else { 1 });
        let cuts = others.map(|other| if outwards { (one, *other) } else { (*other, one) }).collect();
        self.cut(cuts, length)
    }

    fn cut(&mut self, cuts: Vec<(Host, Host)>, length: u64) -> bool {
        if cuts.is_empty() {
            return false;
        }
        self.trace.note(self.now, &[32, length], &[], || format!("cut {cuts:?}"));
        for (from, to) in &cuts {
            self.network.cut(*from, *to);
        }
        self.schedule.put(self.now + length, Event::Mend(cuts));
        true
    }

    pub fn mend(&mut self, cuts: Vec<(Host, Host)>) {
        self.trace.note(self.now, &[33], &[], || format!("mend {cuts:?}"));
        for (from, to) in cuts {
            self.network.mend(from, to);
        }
    }

    fn hosts(&self) -> Vec<Host> {
        let nodes = (0..self.slots.len() as u32).map(Host);
        nodes.chain(self.clients.keys().map(|number| client_host(*number))).collect()
    }

    fn cut_link(&mut self) -> bool {
        let nth = self.draw(Fault::CutLink, 0, 999);
        let up = self.links_up();
        let Some((process, address, attempt)) = up.get(nth as usize % up.len().max(1)).copied() else {
            return false;
        };
        self.schedule.put(self.now, Event::LinkDown { process, address, attempt });
        true
    }

    fn weather(&mut self, fault: Fault) -> bool {
        let (permille, length) = (self.draw(fault, 10, 300), self.draw(fault, 300_000, 4_000_000));
        match fault {
            Fault::Loss => self.network.loss_permille = permille,
            Fault::Duplicate => self.network.duplicate_permille = permille,
            _ => self.network.reorder_permille = permille,
        }
        self.schedule.put(self.now + length, Event::Calm(fault));
        true
    }

    pub fn calm(&mut self, fault: Fault) {
        match fault {
            Fault::Loss => self.network.loss_permille = 0,
            Fault::Duplicate => self.network.duplicate_permille = 0,
            _ => self.network.reorder_permille = 0,
        }
    }

    fn replay(&mut self) -> bool {
        let mut replayed = false;
        for _ in 0..self.draw(Fault::Replay, 1, 30) {
            let Some((address, bytes)) = self.network.replay() else { break };
            let Some(process) = self.listener(address) else { continue };
            let delay = self.network.delay();
            self.schedule.put(self.now + delay, Event::Peer { process, bytes });
            replayed = true;
        }
        replayed
    }

    fn clock_rate(&mut self) -> bool {
        let slot = self.draw(Fault::ClockRate, 0, 999) as usize % self.slots.len();
        let rate = match self.plan.wild_clocks {
            true => self.draw(Fault::ClockRate, 500, 2000),
            false => self.draw(Fault::ClockRate, 950, 1050),
        };
        self.slots[slot].clock.set_rate(self.now, rate);
        self.rearm(slot);
        true
    }

    fn clock_jump(&mut self) -> bool {
        let slot = self.draw(Fault::ClockJump, 0, 999) as usize % self.slots.len();
        let micros = self.draw(Fault::ClockJump, 10_000, 30_000_000);
        self.slots[slot].clock.jump(self.now, micros);
        self.rearm(slot);
        true
    }

    fn wall_jump(&mut self) -> bool {
        let slot = self.draw(Fault::WallJump, 0, 999) as usize % self.slots.len();
        let day_millis = 86_400_000;
        let millis = self.draw(Fault::WallJump, 0, 2 * day_millis) as i64 - day_millis as i64;
        self.slots[slot].clock.jump_wall(millis);
        true
    }

    /// A client at work, drawn from that fault's stream.
    pub fn worker(&mut self, fault: Fault) -> Option<(ClientNumber, Role)> {
        let nth = self.draw(fault, 0, 999);
        let workers = self.clients.iter().filter_map(|(number, client)| match client.program {
            Program::Worker(_, role) => Some((*number, role)),
            Program::Errands(_) => None,
        });
        let workers: Vec<_> = workers.collect();
        workers.get(nth as usize % workers.len().max(1)).copied()
    }

    fn client_pause(&mut self) -> bool {
        let length = self.draw(Fault::ClientPause, 20_000, 6_000_000);
        let Some((client, _)) = self.worker(Fault::ClientPause) else { return false };
        let paused = &mut self.clients.get_mut(&client).expect("it was just listed").paused;
        if paused.is_some() {
            return false;
        }
        *paused = Some(Vec::new());
        self.schedule.put(self.now + length, Event::ResumeClient { client });
        true
    }

    fn client_kill(&mut self) -> bool {
        let Some((number, role)) = self.worker(Fault::ClientKill) else { return false };
        self.kill_client(number);
        self.schedule.put(self.now + 100_000, Event::SpawnClient { role });
        true
    }

    /// A node is told to stop, hands over what it leads, and goes.
    fn rolling(&mut self) -> bool {
        let Some(victim) = self.victim(Fault::Rolling) else { return false };
        if !self.plan.durable && !self.may_forget(victim) {
            return false;
        }
        let delay = self.draw(Fault::Rolling, 20_000, 400_000);
        self.processes.get_mut(&victim).expect("a victim runs").leaving = true;
        self.step(victim, Input::Stop);
        self.schedule.put(self.now + delay, Event::Stop { process: victim });
        true
    }

    /// Whether the cell promises to bear it that this process forgets everything (promise 8).
    /// In a run that goes beyond that, always, and it is noted.
    pub fn may_forget(&mut self, victim: ProcessId) -> bool {
        if self.is_last_recovered(victim) {
            return false;
        }
        let within = self.within_promise(victim);
        self.exceeded |= self.plan.beyond && !within;
        self.plan.beyond || within
    }

    /// Whether it alone knows of a recovery. If it forgets, a second recovery is not after the first but beside it, in a
    /// generation that may be less: then nothing can be said about numbers that grow.
    fn is_last_recovered(&self, victim: ProcessId) -> bool {
        let generation = |process: &Process| process.cell.replica().generation();
        let newest = generation(&self.processes[&victim]);
        let others = self.processes.iter().filter(|(id, _)| **id != victim);
        newest > 1 && others.map(|(_, process)| generation(process)).all(|other| other < newest)
    }

    fn within_promise(&self, victim: ProcessId) -> bool {
        let lost = self.processes[&victim].incarnation;
        match self.newest_schedule() {
            Some(schedule) => schedule.entries.iter().all(|(_, configuration)| {
                self.bears(configuration, |incarnation| incarnation != lost && self.remembers(incarnation))
            }),
            // The cell is not formed yet: whoever forms it needs them all.
            None => false,
        }
    }

    /// Whether a majority of every scheduled configuration still has its memory, voting or not yet.
    pub fn bearable(&self) -> bool {
        let alive =
            |incarnation| self.slots.iter().any(|slot| slot.incarnation == incarnation && slot.wanted);
        self.newest_schedule().is_none_or(|schedule| {
            schedule.entries.iter().all(|(_, configuration)| self.bears(configuration, alive))
        })
    }

    /// Whether those that do not remember are no more than the configuration can bear.
    fn bears(&self, configuration: &Configuration, remembers: impl Fn(Incarnation) -> bool) -> bool {
        let voters = configuration.voters().count();
        let remembering = configuration.voters().filter(|member| remembers(member.incarnation)).count();
        voters - remembering <= (voters - 1) / 2
    }

    /// Whether that incarnation is a voter with all its memory: in a process that votes, or on a disk.
    fn remembers(&self, incarnation: Incarnation) -> bool {
        let running = self.processes.iter().find(|(_, process)| process.incarnation == incarnation);
        match running {
            // Whose address another process has taken is out of the others' reach.
            Some((id, process)) => {
                self.slots[process.slot].listener == Some(*id) && !process.leaving && self.votes(*id)
            }
            None => self.plan.durable && self.slots.iter().any(|slot| slot.disk.life() == Some(incarnation)),
        }
    }
}
