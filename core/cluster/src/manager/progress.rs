//! Moves a replace on when the servers have done their part. (REPLICATION.md, rules 15 to 17)

use super::reign::{Topic, acts};
use super::state::Manager;
use crate::{Cluster, Command, ManagerEffect, Mutation, Progress, ServerId, Space};
use kumo_paxos::Time;

impl Manager {
    /// Servers that are connected here, attached or not.
    pub fn connected(&self) -> usize {
        self.peers.connected().count()
    }

    /// What all servers together have said of the replace under way.
    pub fn progress(&self, cluster: &Cluster) -> Progress {
        Progress::sum(cluster.space().whs_since, self.peers.servers().map(|heard| heard.alive.progress))
    }

    pub(super) fn move_replace(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let space = cluster.space();
        let switch = space.job.is_some() && self.all_copied(cluster);
        let cleared = !space.old.is_empty() && self.all_confirmed(space);
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        if switch {
            let command = Command::Switch { term: term.number, number: space.number };
            term.propose(now, Topic::Switch, &command, effects);
        }
        if cleared {
            let command = Command::Cleared { term: term.number, number: space.number };
            term.propose(now, Topic::Cleared, &command, effects);
        }
    }

    /// Every server that orders an arc, or is to own one, has reported, in this very space and about this very job, that
    /// it has copied all it had to and can do without those who leave.
    fn all_copied(&mut self, cluster: &Cluster) -> bool {
        let space = cluster.space();
        let Some(reign) = &mut self.reign else { return false };
        let rings = reign.rings(cluster);
        if !rings.may_switch || self.settings.broken.is(Mutation::SwitchUnreported) {
            return rings.may_switch;
        }
        let stale_counts = self.settings.broken.is(Mutation::OldReportsCount);
        let is_done = |server: ServerId| {
            self.peers.heard(&server).is_some_and(|heard| {
                let alive = &heard.alive;
                // Who becomes an owner knows that it has to catch up, also with arcs that nobody can copy.
                let current = alive.space == space.number && alive.progress.job == space.whs_since;
                (current || stale_counts) && alive.progress.copies_done >= alive.progress.copies
            })
        };
        let comers = space.whs.iter().map(|&index| space.server(index));
        let mut comers = comers.filter(|&server| acts(space, server) && !stale_counts);
        comers.all(is_done) && rings.primaries.iter().copied().all(is_done)
    }

    /// Every server that acts, old members among them, has adopted this very space.
    fn all_confirmed(&self, space: &Space) -> bool {
        if self.settings.broken.is(Mutation::ClearedUnconfirmed) {
            return true;
        }
        let adopted = |server: &ServerId| {
            self.peers.heard(server).is_some_and(|heard| heard.alive.space == space.number)
        };
        let acting = space.members.iter().map(|member| member.id()).filter(|&id| acts(space, id));
        acting.into_iter().all(|server| adopted(&server))
    }
}
