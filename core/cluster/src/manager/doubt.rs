//! After a recovery of the cell: whether servers know of a hash space that the survivor had forgotten. Until that is
//! known nobody is handed the space, and nobody gets a lease: the servers go on by themselves meanwhile.

use super::peers::Heard;
use super::reign::{Topic, acts};
use super::state::Manager;
use crate::{Cluster, Command, ManagerEffect, ManagerNote, Member, Space};
use kumo_paxos::Time;

impl Manager {
    /// One server that knows more is enough, whenever it comes. That none does is taken to be so when every acting member
    /// has said which space it has, or when as much time has passed since the first server came as makes a silent one
    /// lost: whoever is away for longer is worked around.
    pub(super) fn settle_doubt(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let Some(doubt) = cluster.doubt().filter(|doubt| doubt.known_by.is_none()) else { return };
        let space = cluster.space();
        let known_by = self.ours(space).find(|heard| doubt.forgot(heard.alive.space));
        let known_by = known_by.map(|heard| (heard.alive.server.address, heard.alive.space));
        let is_over = self.has_heard_all(space) || self.has_waited(now, space);
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        let (number, term_number) = (space.number, term.number);
        let command = match known_by {
            Some((server, knows)) => Command::Forgotten { term: term_number, number, server, knows },
            None if is_over => Command::Remembered { term: term_number, number },
            None => return,
        };
        term.propose(now, Topic::Doubt, &command, effects);
    }

    /// Once, by every manager.
    pub(super) fn note_forgotten(&mut self, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let known_by = cluster.doubt().and_then(|doubt| Some((doubt.from, doubt.known_by?)));
        let before = std::mem::replace(&mut self.forgotten, known_by.is_some());
        if let Some((number, (server, knows))) = known_by.filter(|_| !before) {
            effects.push(ManagerEffect::Note(ManagerNote::Forgotten { server, knows, number }));
        }
    }

    /// Connected servers whose stores belong to this cluster.
    fn ours<'a>(&'a self, space: &'a Space) -> impl Iterator<Item = &'a Heard> {
        self.peers.connected().filter(|heard| heard.alive.cluster == Some(space.cluster))
    }

    /// In the life that we know, or in a later one on the same store, which keeps the space.
    fn has_heard_all(&self, space: &Space) -> bool {
        let mut acting = space.members.iter().map(Member::id).filter(|&id| acts(space, id));
        acting.all(|id| self.ours(space).any(|heard| heard.alive.server.address == id.address))
    }

    fn has_waited(&self, now: Time, space: &Space) -> bool {
        let Some(term) = self.reign.as_ref().and_then(|reign| reign.own_ref()) else { return false };
        let Some(first) = self.ours(space).map(|heard| heard.since).min() else { return false };
        now.since(first.max(term.since).max(self.awake_since)) > self.peers.silence_micros()
    }
}
