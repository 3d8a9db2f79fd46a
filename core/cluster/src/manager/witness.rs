//! After a rebuild, or a recovery of the cell: whether all who act keep a space of the generation of numbers that it
//! began. Until then only they are told of it. What gateways alone had heard of could be lost with the managers, and a
//! rebuild would give its numbers, and those of its gateways, to something else.

use super::reign::{Topic, acts};
use super::state::Manager;
use crate::{Cluster, Command, ManagerEffect, Member, ServerId, Space};
use kumo_paxos::Time;
use kumo_session::ConnectionId;

impl Manager {
    /// Whether who is on that connection may be told of the space. Where no owner acts, those who were lost may: they begin
    /// new lives when they hear of it, and the last of them comes back in one.
    pub(super) fn may_know(&self, connection: ConnectionId, cluster: &Cluster) -> bool {
        if cluster.doubt().is_some() {
            return false;
        }
        let space = cluster.space();
        let keeps_it =
            |server: ServerId| acts(space, server) || (is_named(space, server) && !has_owner(space));
        cluster.risen().is_none() || self.peers.server_at(connection).is_some_and(keeps_it)
    }

    /// Who acts and does not come is lost after a while, and is waited for no longer. An owner must be among them, for
    /// servers that only come are in no ring that a rebuild may begin from: it waits for all who act in the newest that it
    /// finds, and so hears of this one.
    pub(super) fn witness(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let Some(risen) = cluster.risen() else { return };
        let space = cluster.space();
        let mut acting = space.members.iter().map(Member::id).filter(|&id| acts(space, id));
        let has = |id| self.peers.heard(&id).is_some_and(|heard| heard.alive.space >= risen);
        if !has_owner(space) || !acting.all(has) {
            return;
        }
        let number = space.number;
        if let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) {
            let command = Command::Witnessed { term: term.number, number };
            term.propose(now, Topic::Witness, &command, effects);
        }
    }
}

/// Somebody who owned keys before any replace under way acts.
fn has_owner(space: &Space) -> bool {
    space.rhs.iter().any(|&index| acts(space, space.server(index)))
}

fn is_named(space: &Space, server: ServerId) -> bool {
    space.index_of(server).is_some()
}
