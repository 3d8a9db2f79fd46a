//! After a rebuild, or a recovery of the cell: whether all who act keep a space of the generation of numbers that it
//! began. Until then only they are told of it. What gateways alone had heard of could be lost with the managers, and a
//! rebuild would give its numbers, and those of its gateways, to something else.

use super::reign::{Topic, acts};
use super::state::Manager;
use crate::{Cluster, Command, ManagerEffect, Member, Objection, ServerId, Space, SpaceNumber};
use kumo_paxos::Time;
use kumo_session::ConnectionId;

impl Manager {
    /// Whether who is on that connection may be told of the space: owners that act, and others that act when those keep it,
    /// for the ring that a rebuild would begin from need not name them. Where no owner acts, those who were lost may: they
    /// begin new lives when they hear of it, and the last of them comes back in one.
    pub(super) fn may_know(&self, connection: ConnectionId, cluster: &Cluster) -> bool {
        let space = cluster.space();
        let Some(risen) = cluster.risen().filter(|_| cluster.doubt().is_none()) else {
            return cluster.doubt().is_none();
        };
        let Some(server) = self.peers.server_at(connection) else { return false };
        match owners(space).next() {
            None => space.index_of(server).is_some(),
            Some(_) if owners(space).any(|owner| owner == server) => true,
            Some(_) => acts(space, server) && owners(space).all(|owner| self.keeps(owner, risen)),
        }
    }

    /// Who acts and does not come is lost after a while, and is waited for no longer. An owner must be among them: a later
    /// rebuild waits for all who act in the newest ring that it finds, and so hears of this one.
    pub(super) fn witness(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let Some(risen) = cluster.risen() else { return };
        let space = cluster.space();
        let mut acting = acting(space);
        if owners(space).next().is_none() || !acting.all(|id| self.keeps(id, risen)) {
            return;
        }
        let number = space.number;
        if let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) {
            let command = Command::Witnessed { term: term.number, number };
            term.propose(now, Topic::Witness, &command, effects);
        }
    }

    /// Why a replace cannot begin yet.
    pub(super) fn unwitnessed(&mut self, cluster: &Cluster) -> String {
        if owners(cluster.space()).next().is_none() {
            // Nobody acts who could keep it.
            return self.owners_lost(cluster);
        }
        let risen = cluster.risen().unwrap_or_default();
        let slow = acting(cluster.space()).filter(|&id| !self.keeps(id, risen));
        let slow: Vec<String> = slow.map(|id| id.address.to_string()).collect();
        match slow.is_empty() {
            true => Objection::Unwitnessed.to_string(),
            false => format!("{}: it waits for {}", Objection::Unwitnessed, slow.join(" and ")),
        }
    }

    fn keeps(&self, server: ServerId, risen: SpaceNumber) -> bool {
        self.peers.heard(&server).is_some_and(|heard| heard.alive.space >= risen)
    }
}

fn acting(space: &Space) -> impl Iterator<Item = ServerId> {
    space.members.iter().map(Member::id).filter(|&id| acts(space, id))
}

/// Those who act and owned keys before any replace under way.
fn owners(space: &Space) -> impl Iterator<Item = ServerId> {
    space.rhs.iter().chain(&space.old).map(|&index| space.server(index)).filter(|&id| acts(space, id))
}
