//! Disks that fail for a while, and servers that end because of them, as `edge/node` has them end.

use super::processes::ProcessId;
use super::{Event, Kind, World};
use crate::store::engine::Engine;
use crate::store::fault::Fault;
use crate::store::trouble::Trouble;
use lot::Random;

impl World {
    /// No room at all.
    pub fn fill_disk(&mut self) -> bool {
        let length = self.draw(Fault::DiskFull, 200_000, 6_000_000);
        let Some(victim) = self.victim(Fault::DiskFull, Kind::Server) else { return false };
        let slot = self.processes[&victim].slot;
        self.slots[slot].engine.set_full(true);
        self.schedule.put(self.now + length, Event::DiskFree(slot));
        true
    }

    /// One trouble at a time: whoever has one gets no other.
    pub fn trouble_disk(&mut self, fault: Fault, trouble: impl Fn(Random, &Engine) -> Trouble) -> bool {
        let length = self.draw(fault, 200_000, 6_000_000);
        let random = Random::new(self.draw(fault, 0, u64::MAX - 1), fault.name());
        let Some(victim) = self.victim(fault, Kind::Server) else { return false };
        let slot = self.processes[&victim].slot;
        let engine = &self.slots[slot].engine;
        if engine.has_trouble() {
            return false;
        }
        let trouble = trouble(random, engine);
        self.trace.note(self.now, &[36, slot as u64, length], &[], || {
            format!("the disk of n{slot} is in trouble for {:.3} s: {trouble}", length as f64 / 1e6)
        });
        engine.set_trouble(Some(trouble));
        self.schedule.put(self.now + length, Event::DiskWell(slot));
        true
    }

    pub fn disk_well(&mut self, slot: usize) {
        self.trace.note(self.now, &[37, slot as u64], &[], || format!("the disk of n{slot} is well"));
        self.slots[slot].engine.set_trouble(None);
    }

    /// The server could not store what it was about to tell of. Nobody hears of it, and whoever watches over the process
    /// starts another one.
    pub fn ended_by_disk(&mut self, id: ProcessId, what: &str) {
        let Some(slot) = self.processes.get(&id).map(|process| process.slot) else { return };
        self.trace.note(self.now, &[38, id.0], &[], || format!("p{} ends: {what}", id.0));
        self.ended += 1;
        self.kill(id, false);
        self.start_later(slot);
    }

    /// A server cannot begin a life that it cannot note. A replica that was in its process has no process.
    pub fn not_born(&mut self, slot: usize) {
        self.trace.note(self.now, &[39, slot as u64], &[], || format!("n{slot} cannot note its life"));
        self.ended += 1;
        if let Some(seat) = self.seat_of(slot).and_then(|seat| self.slots[seat].listener) {
            self.kill_one(seat, false);
        }
        self.start_later(slot);
    }

    fn start_later(&mut self, slot: usize) {
        let delay = self.draw(Fault::DiskFails, 50_000, 2_000_000);
        self.schedule.put(self.now + delay, Event::Start { slot });
    }
}
