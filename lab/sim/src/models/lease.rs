//! [`Reign`]: who may answer linear reads. The model of [`Lease`] in discrete time: three durable replicas, whose
//! restarts keep what they promised and lose what they granted.

use super::shared::Shared;
use super::state::{State, incarnation};
use kumo_paxos::{Agreement, Incarnation, Instance, Last, Lease, Message, ReplicaId, Round, Time};
use stateright::{Model, Property};
use std::collections::BTreeSet;

/// Three replicas and their leases.
#[derive(Clone, Debug)]
pub struct Reign {
    pub raises: usize,
    pub restarts: usize,
    /// Heartbeats sent to all, and steps down.
    pub beats: usize,
    pub steps_down: usize,
    /// Ticks until which the model looks.
    pub until: u64,
    /// A restarted voter answers collects at once.
    pub restart_answers_collect: bool,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Voter {
    pub agreement: Agreement,
    pub lease: Lease,
}

/// A heartbeat of a master on its way, its answer, or the word that it leads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    Heartbeat { round: Round, sent: Time },
    Grant { round: Round, sent: Time, granted_micros: u64 },
    Release { round: Round },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    pub now: Time,
    pub voters: Vec<Shared<Voter>>,
    /// (from, to, word).
    pub network: BTreeSet<(usize, usize, Word)>,
    pub raises: usize,
    pub restarts: usize,
    pub beats: usize,
    pub steps_down: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Tick,
    Raise(usize),
    /// The agent answers the proposer's collect, and the answer arrives.
    Collect {
        proposer: usize,
        agent: usize,
    },
    /// A master sends heartbeats to all.
    Beat(usize),
    Deliver(usize, usize, Word),
    StepDown(usize),
    Restart(usize),
}

impl Moment {
    fn change<T>(&mut self, index: usize, work: impl FnOnce(&mut Voter) -> T) -> T {
        let mut voter = Voter::clone(&self.voters[index]);
        let result = work(&mut voter);
        voter.agreement.note_recovered();
        self.voters[index] = Shared::new(voter);
        result
    }

    /// The round that replica leads as master.
    fn leads(&self, index: usize) -> Option<Round> {
        let proposer = self.voters[index].agreement.proposer()?;
        proposer.recovered.then_some(proposer.round)
    }

    fn has_lease(&self, index: usize) -> bool {
        let voter = &self.voters[index];
        let valid = voter.agreement.schedule().is_some_and(|schedule| voter.lease.valid(self.now, schedule));
        self.leads(index).is_some() && valid
    }

    /// While a lease is used nobody leads a stronger round: so nothing is decided that its holder does not know.
    pub fn one_reign(&self) -> bool {
        (0..self.voters.len())
            .filter(|index| self.has_lease(*index))
            .all(|holder| (0..self.voters.len()).all(|other| self.leads(other) <= self.leads(holder)))
    }

    fn collect(&mut self, proposer: usize, agent: usize) {
        let collects = self.voters[proposer].agreement.collects();
        let wanted = collects.into_iter().find(|(voter, _)| *voter == incarnation(agent));
        let Some((_, Message::Collect { round, from })) = wanted else { return };
        let now = self.now;
        let answer = self.change(agent, |voter| {
            let answers = voter.lease.answers_collect(now, round);
            answers.then(|| voter.agreement.collect(round, from, &mut Vec::new())).flatten()
        });
        if let Some(Message::Last { round, executed, from, next, reports }) = answer {
            let last = Last { round, executed, from, next, reports };
            self.change(proposer, |voter| voter.agreement.last(incarnation(agent), last, &mut Vec::new()));
        }
    }

    fn beat(&mut self, index: usize) {
        let Some(round) = self.leads(index) else { return };
        self.beats += 1;
        let now = self.now;
        for to in (0..self.voters.len()).filter(|to| *to != index) {
            self.network.insert((index, to, Word::Heartbeat { round, sent: now }));
        }
        // A master is an agent of itself.
        self.change(index, |voter| {
            let granted = voter.lease.grant(now, round);
            voter.lease.held(incarnation(index), now, granted);
        });
    }

    /// Words that can have no effect any more are forgotten: of rounds that are over for the addressee, and grants
    /// that have run out.
    fn prune(&mut self) {
        let (now, voters) = (self.now, &self.voters);
        self.network.retain(|(_, to, word)| {
            let agreement = &voters[*to].agreement;
            match word {
                Word::Heartbeat { round, .. } => agreement.acceptor().promised() <= *round,
                Word::Grant { round, sent, .. } => {
                    agreement.proposer().is_some_and(|proposer| proposer.round == *round)
                        && now.since(*sent) < GRANT
                }
                Word::Release { .. } => true,
            }
        });
    }

    fn deliver(&mut self, from: usize, to: usize, word: Word) {
        let now = self.now;
        self.network.remove(&(from, to, word));
        match word {
            Word::Heartbeat { round, sent } => {
                let granted = self.change(to, |voter| {
                    let promised = voter.agreement.acceptor().promised() == round;
                    promised.then(|| voter.lease.grant(now, round))
                });
                if let Some(granted_micros) = granted {
                    self.network.insert((to, from, Word::Grant { round, sent, granted_micros }));
                }
            }
            Word::Grant { round, sent, granted_micros } => {
                if self.voters[to].agreement.proposer().is_some_and(|proposer| proposer.round == round) {
                    self.change(to, |voter| voter.lease.held(incarnation(from), sent, granted_micros));
                }
            }
            Word::Release { round } => self.change(to, |voter| voter.lease.released(round)),
        }
    }

    fn step_down(&mut self, index: usize) {
        let Some(round) = self.voters[index].agreement.proposer().map(|proposer| proposer.round) else {
            return;
        };
        self.steps_down += 1;
        self.change(index, |voter| {
            voter.agreement.step_down();
            voter.lease.released(round);
        });
        for to in (0..self.voters.len()).filter(|to| *to != index) {
            self.network.insert((index, to, Word::Release { round }));
        }
    }

    /// Disk and incarnation stay, the lease does not.
    fn restart(&mut self, index: usize, quiet: bool) {
        let now = self.now;
        self.change(index, |voter| {
            let mut agreement = Agreement::new(voter.agreement.me(), None);
            if let Some(kumo_paxos::Value::Genesis(genesis)) = voter.agreement.log().get(Instance(0)) {
                agreement.fix(genesis.clone(), &mut Vec::new());
                agreement.executed();
            }
            voter.agreement.memory().into_iter().for_each(|record| agreement.replay(record));
            voter.agreement = agreement;
            voter.lease = Lease::new(GRANT);
            if quiet {
                voter.lease.quiet(now, GRANT);
            }
        });
    }
}

impl Model for Reign {
    type State = Moment;
    type Action = Event;

    fn init_states(&self) -> Vec<Moment> {
        let fresh = |incarnation: Incarnation| Agreement::new(incarnation, None);
        let voters = State::formed(3, &[], 1, fresh).processes;
        let voters = voters.iter().map(|process| {
            Shared::new(Voter { agreement: process.agreement.clone(), lease: Lease::new(GRANT) })
        });
        let voters = voters.collect();
        vec![Moment {
            now: Time(1),
            voters,
            network: BTreeSet::new(),
            raises: 0,
            restarts: 0,
            beats: 0,
            steps_down: 0,
        }]
    }

    fn actions(&self, state: &Moment, events: &mut Vec<Event>) {
        if state.now.0 < self.until {
            events.push(Event::Tick);
        }
        for (index, voter) in state.voters.iter().enumerate() {
            // Its own grant binds a replica too. Two replicas raise; the third, whichever it is, only answers.
            if index < 2 && state.raises < self.raises && state.now >= voter.lease.free_at() {
                events.push(Event::Raise(index));
            }
            if voter.agreement.proposer().is_some() {
                let wanted = voter.agreement.collects();
                let agents = (0..state.voters.len()).filter(|agent| {
                    wanted.iter().any(|(incarnation_wanted, _)| *incarnation_wanted == incarnation(*agent))
                });
                events.extend(agents.map(|agent| Event::Collect { proposer: index, agent }));
                if state.steps_down < self.steps_down {
                    events.push(Event::StepDown(index));
                }
            }
            if state.leads(index).is_some() && state.beats < self.beats {
                events.push(Event::Beat(index));
            }
            if state.restarts < self.restarts {
                events.push(Event::Restart(index));
            }
        }
        events.extend(state.network.iter().map(|(from, to, word)| Event::Deliver(*from, *to, *word)));
    }

    fn next_state(&self, state: &Moment, event: Event) -> Option<Moment> {
        let mut next = state.clone();
        match event {
            Event::Tick => next.now = next.now.plus_micros(1),
            Event::Raise(index) => {
                next.raises += 1;
                next.change(index, |voter| {
                    voter.lease.forget_held();
                    voter.agreement.raise(ReplicaId(index as u32), Round::default(), &mut Vec::new());
                });
            }
            Event::Collect { proposer, agent } => next.collect(proposer, agent),
            Event::Beat(index) => next.beat(index),
            Event::Deliver(from, to, word) => next.deliver(from, to, word),
            Event::StepDown(index) => next.step_down(index),
            Event::Restart(index) => {
                next.restarts += 1;
                next.restart(index, !self.restart_answers_collect);
            }
        }
        next.prune();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Reign>> {
        vec![Property::always(ONE_REIGN, |_, state: &Moment| state.one_reign())]
    }
}

/// While a lease is used nobody leads a stronger round.
pub const ONE_REIGN: &str = "one reign";

/// A grant, in ticks: used for four of the five.
const GRANT: u64 = 5;
