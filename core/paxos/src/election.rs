//! Who should be master: the eldest replica that a majority can reach (seed 004, "not the young ones").
//! A hint only: safety rests on rounds.

use crate::configuration::Configuration;
use crate::identity::{Incarnation, ReplicaId, Round, Time};
use crate::links::Links;

/// What a replica sees when it names a master.
pub struct View<'a> {
    pub now: Time,
    pub me: Incarnation,
    pub age_ms: u64,
    /// This replica votes, so it may be named and name.
    pub votes: bool,
    /// Its execution panicked: it names, and is not named.
    pub halted: bool,
    /// The round this replica leads, if it does.
    pub leads: Option<Round>,
    pub promised: Round,
    pub configuration: &'a Configuration,
    pub links: &'a Links,
    pub silence_micros: u64,
    pub unit_micros: u64,
    /// No master for long: ages seem to differ too little to agree on, so the lowest id is named.
    pub by_id: bool,
}

impl View<'_> {
    /// The replica this one names: a master that leads now, else the eldest it can reach within a majority.
    pub fn names(&self) -> Option<Incarnation> {
        if !self.votes || !self.configuration.majority(|voter| self.hears(voter)) {
            return None;
        }
        if self.leads.is_some() {
            return Some(self.me);
        }
        self.leader().or_else(|| self.eldest())
    }

    /// A peer that leads a round no weaker than what this replica promised. A master is not given up for an older
    /// replica that comes back: mastership does not bounce.
    fn leader(&self) -> Option<Incarnation> {
        let leaders = self.configuration.voters().filter(|member| self.hears(member.incarnation)).filter_map(
            |member| {
                let leads = self.links.of(member.incarnation)?.heartbeat.as_ref()?.leads?;
                (leads >= self.promised).then_some((leads, member.incarnation))
            },
        );
        leaders.max().map(|(_, incarnation)| incarnation)
    }

    fn eldest(&self) -> Option<Incarnation> {
        let candidates: Vec<(ReplicaId, Incarnation, u64)> = self
            .configuration
            .voters()
            .filter(|member| self.electable(member.incarnation))
            .map(|member| (member.id, member.incarnation, self.age(member.incarnation)))
            .collect();
        let eldest = candidates.iter().map(|(_, _, age)| *age).max()?;
        // Ages travel, so views of them differ a little: those born within two units of the eldest count as equal,
        // and the lowest id decides.
        let equal = if self.by_id { u64::MAX } else { self.unit_micros / 500 };
        candidates
            .iter()
            .filter(|(_, _, age)| age.saturating_add(equal) >= eldest)
            .min_by_key(|(id, _, _)| *id)
            .map(|(_, incarnation, _)| *incarnation)
    }

    /// Votes, is reachable, and itself reaches a majority.
    fn electable(&self, voter: Incarnation) -> bool {
        if voter == self.me {
            return !self.halted;
        }
        if !self.hears(voter) {
            return false;
        }
        let Some(heartbeat) = self.links.of(voter).and_then(|link| link.heartbeat.as_ref()) else {
            return false;
        };
        heartbeat.votes
            && !heartbeat.is_halted()
            && self.configuration.majority(|other| other == voter || heartbeat.hears.contains(&other))
    }

    fn hears(&self, voter: Incarnation) -> bool {
        voter == self.me
            || self
                .links
                .of(voter)
                .is_some_and(|link| link.alive(self.now, self.silence_micros) && link.heartbeat.is_some())
    }

    fn age(&self, voter: Incarnation) -> u64 {
        if voter == self.me {
            self.age_ms
        } else {
            self.links.of(voter).map_or(0, |link| link.age_ms(self.now))
        }
    }

    /// Whether a majority, this replica among them, names it.
    pub fn named(&self, names: Option<Incarnation>) -> bool {
        names == Some(self.me)
            && self.configuration.majority(|voter| {
                voter == self.me
                    || self.hears(voter)
                        && self
                            .links
                            .of(voter)
                            .and_then(|link| link.heartbeat.as_ref())
                            .is_some_and(|heartbeat| heartbeat.names == Some(self.me))
            })
    }
}
