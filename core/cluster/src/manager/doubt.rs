//! After a recovery of the cell: whether servers know of a hash space that the survivor had forgotten. Until that is
//! known nobody is handed the space, and nobody gets a lease: the servers go on by themselves meanwhile.

use super::orders::is_foreign;
use super::peers::Heard;
use super::reign::Topic;
use super::state::Manager;
use crate::{Cluster, Command, ManagerEffect, ManagerNote, Space};
use kumo_paxos::Time;

impl Manager {
    /// One server that knows more is enough, whenever it comes. That none does is taken to be so when as much time has
    /// passed since the first server came as makes a silent one lost. Not sooner, whoever has said what: who acts by what
    /// the survivor knew may be long out, and who knows it may be a server that the survivor never heard of.
    pub(super) fn settle_doubt(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let Some(doubt) = cluster.doubt().filter(|doubt| doubt.known_by.is_none()) else { return };
        let space = cluster.space();
        let known_by = self.ours(space).find(|heard| doubt.forgot(heard.alive.space));
        let known_by = known_by.map(|heard| (heard.alive.server.address, heard.alive.space));
        let is_over = self.has_waited(now, space);
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

    /// Servers that have forgotten the space count for the clock: they may be all that there are, and would wait for ever.
    /// It begins anew when nobody is there, and not when the first one goes: servers may come and go all the time.
    fn has_waited(&mut self, now: Time, space: &Space) -> bool {
        let somebody = self.peers.connected().any(|heard| !is_foreign(heard, space));
        let (silence, awake_since) = (self.peers.silence_micros(), self.awake_since);
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return false };
        term.somebody_since = somebody.then(|| term.somebody_since.unwrap_or(now));
        term.somebody_since.is_some_and(|since| now.since(since.max(awake_since)) > silence)
    }

    /// Why what an order is about cannot be told yet.
    pub(super) fn in_doubt(&self, cluster: &Cluster) -> Option<&'static str> {
        cluster.doubt().filter(|doubt| doubt.known_by.is_none())?;
        let nobody = self.peers.connected().all(|heard| is_foreign(heard, cluster.space()));
        Some(if nobody { NOBODY_SAYS } else { SOMEBODY_MAY_KNOW })
    }
}

const NOBODY_SAYS: &str = "the cell was recovered, and no server is connected that could say which hash space it has: start the \
                           servers";

const SOMEBODY_MAY_KNOW: &str =
    "the cell was recovered, and waits a while for servers that may have a newer hash space";
