//! Rebuilds that go on without servers that are missing: what only those know is lost, as the operator said.

use super::{Event, Kind, World};
use crate::store::fault::Fault;
use crate::store::history::Loss;
use crate::store::workload::Key;
use kumo_cluster::{ServerId, Space, SpaceNumber, Table};
use kumo_session::GENERATION_SHIFT;
use std::collections::BTreeSet;

/// A ring was taken over, and there were servers missing that may have known of later ones.
pub struct Forsaken {
    at: u64,
    /// The ring that was taken, and what the new cell made of it.
    taken: SpaceNumber,
    number: SpaceNumber,
    /// Lives that had taken no later one: nothing was acknowledged in those that one of these had to acknowledge.
    witnesses: BTreeSet<ServerId>,
    /// Those later ones, and when each began.
    later: Vec<(u64, Table, Space)>,
}

impl Forsaken {
    /// Of the space that the new cell made.
    pub fn number(&self) -> SpaceNumber {
        self.number
    }

    /// What was acknowledged of that key without any of those that are left. They have all that was acknowledged before.
    pub fn loss(&self, key: &Key) -> Option<Loss> {
        let unseen = |(_, table, space): &&(u64, Table, Space)| {
            let arc = table.arc(key.hash);
            !arc.acknowledgers().any(|index| self.witnesses.contains(&space.server(index)))
        };
        let from = self.later.iter().find(unseen)?.0;
        Some(Loss::Back { from, upto: self.at })
    }
}

impl World {
    /// Whether the operator goes on without those who are missing: a plain rebuild has led to nothing for long. Once as long
    /// as there is trouble: of two such rebuilds in ignorance of each other the first may have the greater numbers, and a
    /// server that hears of it late leads the others where the managers are not.
    pub fn is_to_forsake(&mut self) -> bool {
        if !self.processes.keys().any(|id| self.is_master(*id)) {
            self.stuck_since = None;
            return false;
        }
        let since = *self.stuck_since.get_or_insert(self.now);
        let stuck = self.plan.forsakes_after.is_some_and(|patience| self.now > since + patience);
        let forsakes = stuck && !(self.chaos && self.forsook);
        self.forsook |= forsakes;
        forsakes
    }

    /// Some manager has a new space. A rebuild without those who are missing leaves many generations of numbers to them.
    pub fn note_forsaken(&mut self, space: &Space) {
        let generation = |number: SpaceNumber| number.0 >> GENERATION_SHIFT;
        let known = self.spaces.range(..(space.cluster, space.number)).rev();
        let mut known = known.take_while(|((cluster, _), _)| *cluster == space.cluster).map(|(_, one)| one);
        let Some((_, taken)) = known.find(|(_, one)| is_same_ring(one, space)) else { return };
        let (taken, number) = (taken.number, space.number);
        if generation(number) <= generation(taken) + 1 {
            return;
        }
        let between = (space.cluster, SpaceNumber(taken.0 + 1))..(space.cluster, number);
        let later = self.spaces.range(between);
        let later = later.map(|(_, (began, one))| (*began, Table::new(one), one.clone())).collect();
        let has_more = |slot: &usize| self.kept(*slot).is_some_and(|kept| kept > taken);
        let (ahead, behind): (Vec<usize>, Vec<usize>) = self.places(Kind::Server).partition(has_more);
        let lives = |slot: usize| {
            let address = self.slots[slot].address;
            let lives = self.slots[slot].engine.lives().into_iter();
            lives.map(move |incarnation| ServerId { address, incarnation })
        };
        let kept: BTreeSet<ServerId> = self.places(Kind::Server).flat_map(lives).collect();
        let witnesses = behind.into_iter().flat_map(lives).collect();
        // Who took part in a later ring remembers the life that did, and does not come back as one from before.
        let outlived = space.members.iter().filter(|member| !kept.contains(&member.id()));
        self.lost_lives.extend(outlived.map(|member| member.incarnation));
        self.trace.note(self.now, &[53, taken.0], &[], || {
            format!("space {number} takes {taken} over, without those who know more: {ahead:?}")
        });
        self.forsaken.push(Forsaken { at: self.now, taken, number, witnesses, later });
        for slot in ahead {
            self.schedule.put(self.now, Event::PullPlug { slot });
        }
    }

    /// Who is given up does not run: the operator has seen to that. What it has comes back later, and is of no use.
    pub fn pull_plug(&mut self, slot: usize) {
        if let Some(id) = self.slots[slot].listener {
            self.kill(id, false);
            let delay = self.draw(Fault::Forgotten, 10_000, 5_000_000);
            self.schedule.put(self.now + delay, Event::Start { slot });
        }
    }

    /// Something that was acknowledged of a key of this run may be lost.
    pub fn is_loss(&self, forsaken: &Forsaken) -> bool {
        self.plan.keys.iter().any(|key| forsaken.loss(key).is_some())
    }

    /// Some server has not heard yet that what it knows was given up. If the managers forgot that too, a rebuild would find
    /// it, and could not know either.
    pub fn is_half_forsaken(&self) -> bool {
        let given_up =
            |kept: SpaceNumber| self.forsaken.iter().any(|one| one.taken < kept && kept < one.number);
        self.places(Kind::Server).any(|slot| self.kept(slot).is_some_and(given_up))
    }

    pub fn kept(&self, slot: usize) -> Option<SpaceNumber> {
        self.slots[slot].engine.space().map(|space| space.number)
    }
}

/// All that a rebuild takes as it is.
fn is_same_ring(one: &Space, other: &Space) -> bool {
    let ring = |space: &Space| {
        let Space { members, rhs, whs, earlier, old, whs_since, job, id_floor, .. } = space.clone();
        (members, rhs, whs, earlier, old, whs_since, job, id_floor)
    };
    ring(one) == ring(other)
}
