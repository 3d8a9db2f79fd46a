//! Blackouts: all servers lose their power at once, or are killed, and come back with their disks.

use super::processes::ProcessId;
use super::servers::SYNC_MICROS;
use super::{Event, Kind, World};
use crate::store::fault::Fault;
use crate::store::history::Loss;

impl World {
    /// All servers, or all there is. What managers know is safe before they say it.
    pub fn blackout(&mut self) -> bool {
        let fault = Fault::Blackout;
        let all = self.draw(fault, 0, 1) == 0;
        let power = self.draw(fault, 0, 3) > 0;
        let slots = if all { self.nodes() } else { self.places(Kind::Server) };
        let running: Vec<(usize, ProcessId)> =
            slots.filter_map(|slot| Some((slot, self.slots[slot].listener?))).collect();
        let mut lost = 0;
        for &(slot, victim) in &running {
            self.kill(victim, power);
            if power && self.slots[slot].kind == Kind::Server {
                // A server that had nothing to do since has made its disk keep all the same.
                self.slots[slot].sync_if_due(self.now);
                lost += self.slots[slot].engine.lose_power();
            }
            let delay = self.draw(fault, 20_000, 4_000_000);
            self.schedule.put(self.now + delay, Event::Start { slot });
        }
        self.trace.note(self.now, &[35, lost as u64], &[], || format!("{lost} changes are gone"));
        if lost > 0 {
            self.blackouts.push(self.now);
        }
        running.iter().any(|(slot, _)| self.slots[*slot].kind == Kind::Server)
    }

    /// When something that was acknowledged may have been lost: the time between two syncs, before each blackout.
    pub fn blacked_out(&self) -> Vec<Loss> {
        let befores = [0].iter().chain(&self.blackouts);
        let loss = |(&before, &upto): (&u64, &u64)| Loss::Back { from: before.max(upto - SYNC_MICROS), upto };
        befores.zip(&self.blackouts).map(loss).collect()
    }
}
