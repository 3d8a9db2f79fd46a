//! [`Route`]: the adopted space, and whom to ask for a key.

use super::call::Call;
use crate::{MemberState, ServerId, Space, Table};
use std::collections::BTreeMap;

/// A space, its table, and which of its members can be spoken to.
pub(super) struct Route {
    pub space: Space,
    table: Table,
    /// By member.
    up: Vec<bool>,
}

/// Whom to ask.
pub(super) enum Choice {
    Member(u16),
    /// There are some, but no link with them.
    Down,
    /// All owners of the key are lost.
    Lost,
    /// No server is attached.
    Nobody,
}

impl Route {
    pub fn new(space: Space, links: &BTreeMap<ServerId, bool>) -> Route {
        let up = space.members.iter().map(|one| links.get(&one.id()) == Some(&true)).collect();
        Route { table: Table::new(&space), space, up }
    }

    /// The servers of a space that a gateway keeps a link with: those it asks, and those it will ask after the
    /// switch of a replace.
    pub fn servers(space: &Space) -> impl Iterator<Item = ServerId> + '_ {
        let acts = |&index: &u16| match space.member(index).state {
            MemberState::Active | MemberState::Returned { .. } => true,
            MemberState::Fault { .. } => false,
        };
        space.rhs.iter().chain(&space.whs).copied().filter(acts).map(|index| space.server(index))
    }

    /// Every key has somebody who orders it.
    pub fn is_whole(&self) -> bool {
        self.table.arcs().iter().all(|arc| arc.primary().is_some())
    }

    pub fn set_up(&mut self, server: ServerId, up: bool) -> Option<u16> {
        let index = self.space.index_of(server)?;
        self.up[usize::from(index)] = up;
        Some(index)
    }

    pub fn is_up(&self, index: u16) -> bool {
        self.up[usize::from(index)]
    }

    /// A write goes to the primary and nowhere else; a get to the first reader from its turn on that has a link.
    pub fn choose(&self, call: &mut Call) -> Choice {
        let arc = self.table.arc(call.hash);
        let Some(primary) = arc.primary() else {
            return if self.space.rhs.is_empty() { Choice::Nobody } else { Choice::Lost };
        };
        if !call.is_get() {
            return if self.is_up(primary) { Choice::Member(primary) } else { Choice::Down };
        }
        for _ in 0..arc.readers.len() {
            let turn = usize::from(call.turn) % arc.readers.len();
            if self.is_up(arc.readers[turn]) {
                return Choice::Member(arc.readers[turn]);
            }
            call.turn = (turn + 1) as u8;
        }
        Choice::Down
    }

    /// Whether that member can answer it.
    pub fn reads(&self, call: &Call, member: u16) -> bool {
        self.table.arc(call.hash).readers.contains(&member)
    }
}
