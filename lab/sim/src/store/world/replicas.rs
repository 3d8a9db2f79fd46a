//! What the servers' disks hold, compared: after healing every owner of a key has the same, and nobody else has any.

use super::{Kind, World};
use crate::store::workload::Key;
use kumo_cluster::{Arc, MemberState, Record, Space, Table};
use kumo_wire::Wire;
use std::collections::BTreeSet;

impl World {
    /// What still differs from a whole cluster: everybody attached, nothing under way.
    pub fn unwell(&self) -> Option<String> {
        let Some(cluster) = self.newest_cluster() else { return Some("no manager runs".to_owned()) };
        let space = cluster.space();
        if !space.settled() || space.job.is_some() {
            return Some(format!(
                "space {} is not settled: rhs {:?} whs {:?} old {:?} job {:?}",
                space.number, space.rhs, space.whs, space.old, space.job
            ));
        }
        for slot in self.places(Kind::Server) {
            let Some(life) = self.server_life(slot) else { return Some(format!("n{slot} does not run")) };
            let attached = space
                .index_of(life)
                .is_some_and(|index| space.member(index).is_active() && space.rhs.contains(&index));
            if !attached {
                return Some(format!("{life:?} is not attached in space {}", space.number));
            }
            let adopted = self.slots[slot].engine.space().map(|space| space.number);
            if adopted != Some(space.number) {
                return Some(format!("{life:?} is in space {adopted:?}, not {}", space.number));
            }
        }
        None
    }

    /// In what the owners of a key differ, or who holds one that it does not own.
    pub fn unequal(&self) -> Option<String> {
        let space = self.newest_cluster()?.space();
        let table = Table::new(space);
        self.plan.keys.iter().find_map(|key| self.key_unequal(key, space, table.arc(key.hash)))
    }

    fn key_unequal(&self, key: &Key, space: &Space, arc: &Arc) -> Option<String> {
        let mut held: Option<(u16, Option<Record>)> = None;
        for slot in self.places(Kind::Server) {
            let Some(index) = self.server_life(slot).and_then(|life| space.index_of(life)) else { continue };
            let here = self.slots[slot].engine.live(key.hash, &key.name);
            if !arc.readers.contains(&index) {
                if here.is_some() {
                    return Some(format!(
                        "{:?} is at {}, which does not own it",
                        key.name, self.slots[slot].address
                    ));
                }
                continue;
            }
            match &held {
                None => held = Some((index, here)),
                Some((_, known)) if *known == here => {}
                Some((other, known)) => {
                    return Some(format!(
                        "{:?} differs: {} has {known:?}, {} has {here:?}",
                        key.name,
                        space.member(*other).address,
                        self.slots[slot].address,
                    ));
                }
            }
        }
        if held.is_none() {
            return Some(format!("nobody owns {:?}", key.name));
        }
        None
    }

    /// What the owners of a key hold, once they are equal.
    pub fn content(&self, key: &Key) -> Option<Record> {
        let space = self.newest_cluster()?.space();
        let table = Table::new(space);
        let primary = space.server(table.arc(key.hash).primary()?);
        let slot = self.slot_at(primary.address)?;
        self.slots[slot].engine.live(key.hash, &key.name)
    }

    /// In what managers differ that have executed the same.
    pub fn managers_differ(&self) -> Option<String> {
        use super::processes::Program;
        let mut states = BTreeSet::new();
        let mut executed = BTreeSet::new();
        for process in self.processes.values() {
            if let Program::Manager(node) = &process.program {
                executed.insert(node.cell.executed_upto());
                states.insert((node.cell.digest(), node.cell.application().space().to_bytes()));
            }
        }
        (executed.len() == 1 && states.len() > 1)
            .then(|| "managers executed the same and hold different spaces".to_owned())
    }

    /// Arcs whose last owner's disk is gone: only an operator who accepts the loss can bring them back.
    pub fn arcs_lost(&self) -> bool {
        let Some(cluster) = self.newest_cluster() else { return false };
        let space = cluster.space();
        let order = |index: &u16| match space.member(*index).state {
            MemberState::Active => None,
            MemberState::Fault { order } | MemberState::Returned { order } => Some(order),
        };
        let lost = |arc: &Arc| {
            arc.readers.is_empty()
                && arc
                    .owners
                    .iter()
                    .max_by_key(|index| order(index))
                    .is_some_and(|last| self.lost_lives.contains(&space.member(*last).incarnation))
        };
        Table::new(space).arcs().iter().any(lost)
    }
}
