//! [`Lease`]: why a master may answer a linear read without asking anyone.
//!
//! An agent that answers a master's begin or heartbeat grants: for a while, on its own clock, it answers no other
//! round's collect. The master uses a grant for four fifths of that while, counted on its own clock from the
//! *sending* of what was answered. With grants from a majority of every configuration that could decide its next
//! instance, no other round can have collected a majority meanwhile. Clock rates within 10 % are assumed here
//! and nowhere else.

use crate::configuration::Schedule;
use crate::identity::{Incarnation, Round, Time};
use std::collections::BTreeMap;

/// Grants given and grants held by one replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    grant_micros: u64,
    /// Leases survive nothing: who starts, or becomes a voter, may have granted something it forgot.
    quiet_until: Time,
    granted_to: Round,
    granted_until: Time,
    /// Grants to the round this replica leads, usable until.
    held: BTreeMap<Incarnation, Time>,
}

impl Lease {
    pub fn new(grant_micros: u64) -> Lease {
        Lease {
            grant_micros,
            quiet_until: Time(0),
            granted_to: Round::default(),
            granted_until: Time(0),
            held: BTreeMap::new(),
        }
    }

    /// A restart, or a first vote: no collect is answered for one grant period, one's own included.
    pub fn quiet(&mut self, now: Time, micros: u64) {
        self.quiet_until = self.quiet_until.max(now.plus_micros(micros.max(self.grant_micros)));
    }

    /// Answering a master: the grant that goes with the answer.
    pub fn grant(&mut self, now: Time, round: Round) -> u64 {
        self.granted_to = round;
        self.granted_until = now.plus_micros(self.grant_micros);
        self.grant_micros
    }

    /// The leader of that round said that it leads no more.
    pub fn released(&mut self, round: Round) {
        if self.granted_to == round {
            self.granted_until = Time(0);
        }
    }

    /// Whether a collect of that round may be answered.
    pub fn answers_collect(&self, now: Time, round: Round) -> bool {
        now >= self.quiet_until && (now >= self.granted_until || round == self.granted_to)
    }

    /// When a collect may be answered again.
    pub fn free_at(&self) -> Time {
        self.quiet_until.max(self.granted_until)
    }

    /// A grant to this master's round, for what it sent at `sent`.
    pub fn held(&mut self, from: Incarnation, sent: Time, granted_micros: u64) {
        let until = sent.plus_micros(granted_micros / 5 * 4);
        let held = self.held.entry(from).or_default();
        *held = until.max(*held);
    }

    /// Another round, other grants.
    pub fn forget_held(&mut self) {
        self.held.clear();
    }

    /// Whether a majority of every configuration from the next instance's to the latest scheduled one grants at `now`.
    /// The configuration of the newest begun instance alone would not do: an idle master could keep a lease in
    /// the old configuration while the new one's majority elects another.
    pub fn valid(&self, now: Time, schedule: &Schedule) -> bool {
        schedule.entries.iter().all(|(_, configuration)| {
            configuration.majority(|voter| self.held.get(&voter).is_some_and(|until| now < *until))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Configuration, Genesis, Member, Role};
    use crate::identity::{CellId, Instance, ReplicaId};

    fn configuration(version: u64, incarnations: &[u128]) -> Configuration {
        let member = |(place, incarnation): (usize, &u128)| Member {
            id: ReplicaId(place as u32),
            address: ([127, 0, 0, 1], *incarnation as u16).into(),
            incarnation: Incarnation(*incarnation),
            role: Role::Core,
        };
        let members = incarnations.iter().enumerate().map(member).collect();
        Configuration { version, next_id: ReplicaId(9), members }
    }

    fn schedule() -> Schedule {
        let genesis = Genesis {
            cell: CellId(1),
            generation: 1,
            window: 2,
            configuration: configuration(1, &[1, 2, 3]),
        };
        Schedule::new(Instance(0), &genesis)
    }

    fn round(sequence: u64) -> Round {
        Round { sequence, id: ReplicaId(0), incarnation: Incarnation(1) }
    }

    #[test]
    fn a_grant_is_used_for_four_fifths_from_the_sending() {
        let mut master = Lease::new(500);
        master.held(Incarnation(1), Time(100), 500);
        assert!(!master.valid(Time(100), &schedule()), "one of three");
        master.held(Incarnation(2), Time(100), 500);
        assert!(master.valid(Time(499), &schedule()));
        assert!(!master.valid(Time(500), &schedule()));
    }

    #[test]
    fn an_agent_under_a_grant_answers_only_that_round() {
        let mut agent = Lease::new(500);
        agent.grant(Time(100), round(1));
        assert!(agent.answers_collect(Time(200), round(1)));
        assert!(!agent.answers_collect(Time(599), round(2)));
        assert!(agent.answers_collect(Time(600), round(2)));
    }

    #[test]
    fn a_released_round_holds_nobody() {
        let mut agent = Lease::new(500);
        agent.grant(Time(100), round(1));
        agent.released(round(2));
        assert!(!agent.answers_collect(Time(200), round(2)));
        agent.released(round(1));
        assert!(agent.answers_collect(Time(200), round(2)));
    }

    #[test]
    fn who_starts_is_quiet_for_a_grant_period() {
        let mut agent = Lease::new(500);
        agent.quiet(Time(50), 0);
        assert!(!agent.answers_collect(Time(549), round(1)));
        assert!(agent.answers_collect(Time(550), round(1)));
    }

    #[test]
    fn an_idle_master_needs_the_scheduled_configuration_too() {
        let mut schedule = schedule();
        assert!(schedule.schedule(Instance(5), &configuration(2, &[2, 3, 4])));
        let mut master = Lease::new(500);
        master.held(Incarnation(1), Time(0), 500);
        master.held(Incarnation(2), Time(0), 500);
        assert!(!master.valid(Time(1), &schedule), "3 and 4 could lead the new configuration");
        master.held(Incarnation(3), Time(0), 500);
        assert!(master.valid(Time(1), &schedule));
    }
}
