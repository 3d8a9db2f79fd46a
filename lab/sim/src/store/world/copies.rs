//! How many copies an acknowledged write has, where servers refuse those that would have too few.

use super::{Kind, World};
use crate::store::check::clock_of;
use crate::store::history::Ending;
use kumo_cluster::{Answer, SpaceNumber};

impl World {
    /// A call begins. What is under way when owners are lost is carried on however few are left, for it may have been
    /// answered; so only what begins and ends in one space is looked at.
    pub fn note_space(&mut self, number: usize) {
        if self.plan.copies_min > 1
            && let Some(space) = self.space_of_all()
        {
            self.in_space.insert(number, space);
        }
    }

    /// A call ends: a write that was done is on so many disks.
    pub fn count_copies(&mut self, number: usize, ending: &Ending) {
        let Some(space) = self.in_space.remove(&number) else { return };
        let call = &self.history.calls[number];
        let Ending::Answer(Answer::Reply(reply)) = ending else { return };
        if call.is_read() || self.space_of_all() != Some(space) {
            return;
        }
        let (key, clock) = (&self.plan.keys[call.key], clock_of(reply));
        let holds = |slot: &usize| {
            let record = self.slots[*slot].engine.record(key.hash, &key.name);
            record.is_some_and(|record| record.stamp.clock.0 >= clock)
        };
        let copies = self.places(Kind::Server).filter(holds).count();
        if copies < self.plan.copies_min {
            let why = format!("#{number} is done with {copies} copies; {} are wanted", self.plan.copies_min);
            self.fail(why);
        }
    }

    /// The space that the managers have and every running server has adopted.
    fn space_of_all(&self) -> Option<SpaceNumber> {
        let newest = self.newest_cluster()?.space().number;
        let adopted = |slot: usize| self.slots[slot].engine.space().map(|space| space.number);
        let mut running = self.places(Kind::Server).filter(|&slot| self.slots[slot].listener.is_some());
        running.all(|slot| adopted(slot) == Some(newest)).then_some(newest)
    }
}
