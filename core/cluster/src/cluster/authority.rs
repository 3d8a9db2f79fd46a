//! Who has everything that was acknowledged in an arc whose owners are all lost. (REPLICATION.md, rule 13)

use crate::{Arc, MemberState, Space, Table};
use std::collections::BTreeSet;

/// Lost members that must come back, or be given up by an operator, before anyone else may own what they had last.
/// Arcs that an old member still answers for are not settled yet, and have none.
pub fn authorities(space: &Space, table: &Table) -> BTreeSet<u16> {
    let lost = table.arcs().iter().filter(|arc| arc.readers.is_empty() && arc.old.is_empty());
    lost.filter_map(|arc| last_lost(space, arc)).collect()
}

/// Every arc has a server that reads and orders it.
pub fn all_led(table: &Table) -> bool {
    table.arcs().iter().all(|arc| arc.primary().is_some())
}

fn last_lost(space: &Space, arc: &Arc) -> Option<u16> {
    arc.owners.iter().copied().max_by_key(|&owner| match space.member(owner).state {
        MemberState::Active => None,
        MemberState::Fault { order } | MemberState::Returned { order } => Some(order),
    })
}
