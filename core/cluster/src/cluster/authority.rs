//! Who has everything that was acknowledged in an arc whose owners are all lost. (REPLICATION.md, rule 13)

use super::draft::Draft;
use crate::{Arc, GivenUp, Incarnation, MemberState, ServerId, Space, Table};
use std::collections::BTreeSet;

/// Lost members that must come back, or be given up by an operator, before anyone else may own what they had last.
/// Arcs that an old member still answers for are not settled yet, and have none.
pub fn authorities(space: &Space, table: &Table) -> BTreeSet<u16> {
    let lost = table.arcs().iter().filter(|arc| arc.readers.is_empty() && arc.old.is_empty());
    lost.filter_map(|arc| last_lost(space, arc)).collect()
}

/// Those of them that can go on in the lives in which they are back.
pub fn returning(
    space: &Space,
    authorities: &BTreeSet<ServerId>,
    back: impl Fn(ServerId) -> Option<Incarnation>,
) -> Vec<(ServerId, Incarnation)> {
    let draft = Draft::of(space);
    let lost = authorities.iter().copied().filter(|server| !draft.acts(server));
    let back = lost.filter_map(|before| Some((before, back(before)?)));
    let after = |before: ServerId, incarnation| ServerId { address: before.address, incarnation };
    back.filter(|&(before, incarnation)| draft.may_return(before, after(before, incarnation))).collect()
}

/// What is lost for good if nobody waits for it; none: every key has a server.
pub fn given_up(space: &Space) -> Option<GivenUp> {
    let table = Table::new(space);
    let named =
        |indexes: BTreeSet<u16>| indexes.into_iter().map(|index| space.member(index).address).collect();
    table.dark().next().is_some().then(|| GivenUp {
        number: space.number,
        parts: table.dark_parts(),
        servers: named(table.dark().flat_map(|arc| arc.owners.iter().copied()).collect()),
        lost_last: named(authorities(space, &table)),
    })
}

/// Every arc has a server that reads and orders it.
pub fn all_led(table: &Table) -> bool {
    leaderless(table) == 0
}

/// Arcs without such a server.
pub fn leaderless(table: &Table) -> usize {
    table.arcs().iter().filter(|arc| arc.primary().is_none()).count()
}

fn last_lost(space: &Space, arc: &Arc) -> Option<u16> {
    arc.owners.iter().copied().max_by_key(|&owner| match space.member(owner).state {
        MemberState::Active => None,
        MemberState::Fault { order } | MemberState::Returned { order } => Some(order),
    })
}
