//! Managers without memory: their disks are gone, and an operator lets the cell that they form anew take the ring that
//! the servers hold.

use super::forsaken::Forsaken;
use super::{Event, Kind, World};
use crate::disk::Disk;
use crate::store::fault::Fault;
use kumo_cluster::control::ControlRequest;

impl World {
    /// All managers stop and lose their disks. Only when a server knows a ring: without one there is nothing to take.
    pub fn forget(&mut self) -> bool {
        let fault = Fault::Forgotten;
        let silent = self.draw(fault, 0, 3) == 0;
        let look = self.draw(fault, 200_000, 4_000_000);
        let known = self.places(Kind::Server).any(|slot| self.knows_ring(slot));
        if self.is_forgotten() || self.is_half_forsaken() || !known {
            return false;
        }
        for slot in self.places(Kind::Manager) {
            if let Some(id) = self.slots[slot].listener {
                self.kill(id, silent);
            }
            self.slots[slot].disk = Disk::default();
            let delay = self.draw(fault, 10_000, 3_000_000);
            self.schedule.put(self.now + delay, Event::Start { slot });
        }
        self.form();
        // What was asked of the cell of before is over with it, and what that one executed says nothing of this one.
        self.errands.clear();
        // What managers alone have heard of never was.
        self.spaces.retain(|number, _| self.spread.contains(number));
        let spaces = &self.spaces;
        // Its own space, or one that followed it, was heard of by others.
        self.forsaken.retain(|one| spaces.keys().any(|(_, number)| *number >= one.number()));
        self.stuck_since = None;
        self.digests.clear();
        self.forgotten = true;
        let again = self.draw(fault, 0, 2) == 0;
        self.again = again.then(|| self.draw(fault, 0, 400_000));
        self.schedule.put(self.now + look, Event::Rebuild);
        true
    }

    /// No manager knows a ring, and servers do.
    pub fn is_forgotten(&self) -> bool {
        self.forgotten && self.newest_cluster().is_none_or(|cluster| cluster.space().members.is_empty())
    }

    /// No other server has the ring that a rebuild would begin from, and managers have forgotten it, or it comes from one that
    /// went on without missing servers. Another such rebuild from a ring before that one would know nothing of its numbers,
    /// and gateways do.
    pub fn is_last_to_know(&self, slot: usize) -> bool {
        let newest = self.forsaken.iter().map(Forsaken::number).max();
        let knows = |slot: usize| self.knows_ring(slot) && self.kept(slot) >= newest;
        let matters = self.is_forgotten() || (newest.is_some() && knows(slot));
        let mut others = self.places(Kind::Server).filter(|other| *other != slot);
        matters && !others.any(knows)
    }

    fn knows_ring(&self, slot: usize) -> bool {
        self.slots[slot].engine.space().is_some_and(|space| !space.members.is_empty())
    }

    /// A new cell has taken the ring. Now and then it is lost like the one before, and no server has heard of it.
    pub fn rebuilt(&mut self) {
        let Some(delay) = self.again.take() else { return };
        self.schedule.put(self.now + delay, Event::Strike(Fault::Forgotten));
        for slot in self.places(Kind::Server) {
            if let Some(id) = self.slots[slot].listener {
                self.kill(id, false);
                let delay = self.draw(Fault::Forgotten, 10_000, 3_000_000);
                self.schedule.put(self.now + delay, Event::Start { slot });
            }
        }
    }

    /// Whether there was something to ask for.
    pub fn ask_to_rebuild(&mut self) -> bool {
        let forgotten = self.is_forgotten();
        if forgotten {
            let accept_data_loss = self.is_to_forsake();
            self.ask(None, ControlRequest::Rebuild { accept_data_loss });
        }
        forgotten
    }

    /// As long as there is trouble; the healing has an operator of its own.
    pub fn look_again(&mut self) {
        if self.chaos && self.ask_to_rebuild() {
            self.schedule.put(self.now + LOOK_AGAIN_MICROS, Event::Rebuild);
        }
    }
}

/// Between two looks: a refusal names who is missing, and the operator starts them.
const LOOK_AGAIN_MICROS: u64 = 700_000;
