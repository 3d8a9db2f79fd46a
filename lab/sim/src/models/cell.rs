//! [`Cell`]: the model. Which steps a cell may take from a [`State`], within bounds, and what must hold in every one.

use super::shared::Shared;
use super::state::{Letter, State, command, incarnation, member};
use kumo_paxos::{Agreement, Configuration, Incarnation, Instance, Mutation, Record, Value};
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet};

/// A cell, how much of it is looked at, and which rule is left out.
#[derive(Clone, Debug)]
pub struct Cell {
    pub voters: u32,
    /// W.
    pub window: u64,
    /// Learners that are there from the start, by replica. Beside the running voter of the same replica one is the
    /// successor of a paused twin: whether and when the voter lost its memory makes no difference to agreement.
    pub newcomers: &'static [u32],
    /// Rounds raised by all together.
    pub raises: u8,
    /// Instances beyond the genesis.
    pub instances: u64,
    /// Memories lost.
    pub crashes: u8,
    pub restart: Restart,
    pub changes: Changes,
    /// Crashes only as long as no more than f replicas are down, and the next instance must always have a live
    /// majority.
    pub budgeted: bool,
    /// Letters stay after their delivery. Without it, a letter that had its effect is gone: for as long as no two
    /// processes share a round, its second arrival changes nothing.
    pub duplicates: bool,
    /// Of the first two replicas, the second raises rounds only after the first.
    pub alike: bool,
    /// Proposers lack the bytes of what they propose (large values, inherited), so they do not accept it themselves.
    pub withheld: bool,
    /// Those who do not vote raise rounds too.
    pub learners_raise: bool,
    pub mutation: Option<Mutation>,
}

/// What a replica comes back as when its memory is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Another incarnation, a learner: the rule.
    Learner,
    /// The same, and votes at once.
    Empty,
    /// The same, and votes once it has the decisions of a majority of the others: the seed's rule.
    Snapshot,
    /// The same, and votes once it has the promises and accepted values of a majority of the others, merged.
    Merge,
}

/// The changes a master makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Takes a replica back in that came with a new incarnation.
    pub readmit: bool,
    /// Puts a newcomer in the place of another replica.
    pub replace: bool,
    pub remove: bool,
}

/// One step. Numbers are places in [`State::processes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Raise(usize),
    Collect { proposer: usize, agent: usize },
    Deliver(Shared<Letter>),
    Success { proposer: usize, agent: usize },
    Learn { process: usize, from: usize, upto: Instance },
    Propose(usize),
    Change(usize, Configuration),
    Crash(usize),
    Restart { process: usize, asked: Vec<usize> },
    Leave(usize),
}

impl Cell {
    /// Three replicas, nothing allowed: start from here.
    pub fn of_three(window: u64) -> Cell {
        Cell {
            voters: 3,
            window,
            newcomers: &[],
            raises: 2,
            instances: 1,
            crashes: 0,
            restart: Restart::Learner,
            changes: Changes::default(),
            budgeted: false,
            duplicates: false,
            alike: true,
            withheld: false,
            learners_raise: false,
            mutation: None,
        }
    }

    fn fresh(&self, incarnation: Incarnation) -> Agreement {
        Agreement::new(incarnation, self.mutation)
    }

    // ---- which steps there are ----

    /// A voter raises a round when it likes. But the first two replicas are alike, so let the first be the one that
    /// raises first. (Two orders of strength are possible then: equal sequences, where the second is stronger, and
    /// a later sequence. That the second is weaker by its id alone only happens when it has promised nothing
    /// yet, and then it might as well have raised before.)
    fn may_raise(&self, state: &State, index: usize) -> bool {
        let agreement = state.agreement(index);
        let able = agreement.votes() || self.learners_raise && agreement.schedule().is_some();
        let turn = !self.alike || index != 1 || state.raised.contains(&0);
        able && turn && state.raised.len() < usize::from(self.raises)
    }

    fn leads(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let agreement = state.agreement(index);
        let Some(proposer) = agreement.proposer() else { return };
        for (agent, process) in state.running() {
            let other = &process.agreement;
            let wanted = other.votes() && other.acceptor().promised() <= proposer.round;
            let voter = agreement.schedule().is_some_and(|schedule| schedule.voters().contains(&other.me()));
            if agent != index && wanted && voter && !proposer.complete(other.me()) {
                actions.push(Action::Collect { proposer: index, agent });
            }
            let accepted = other.acceptor().accepted(other.log().next());
            if accepted.is_some_and(|(round, _)| *round == proposer.round)
                && agreement.log().decided_upto() >= other.log().next()
            {
                actions.push(Action::Success { proposer: index, agent });
            }
        }
        if proposer.recovered && proposer.next() <= Instance(self.instances) {
            actions.push(Action::Propose(index));
            self.changes(state, index, actions);
        }
    }

    /// Changes of members, under the rules a replica follows: it leads, no change is under way, and a majority
    /// of the new voters votes now or has all but caught up.
    fn changes(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let agreement = state.agreement(index);
        let (Some(proposer), Some(schedule)) = (agreement.proposer(), agreement.schedule()) else { return };
        let useful = proposer.next().plus(self.window) <= Instance(self.instances);
        if !useful || !agreement.settled() {
            return;
        }
        let executed = agreement.log().executed();
        let ready: BTreeSet<Incarnation> = state
            .running()
            .map(|(_, process)| &process.agreement)
            .filter(|other| {
                other.votes() || !self.budgeted || other.log().executed().plus(self.window) >= executed
            })
            .map(Agreement::me)
            .collect();
        let latest = schedule.latest();
        let mut wishes = Vec::new();
        for (other, process) in
            state.running().filter(|(other, _)| latest.member(incarnation(*other)).is_none())
        {
            for old in &latest.members {
                // A replaced incarnation does not come back.
                let later = old.id == process.id && old.incarnation < incarnation(other);
                if self.changes.readmit && later || self.changes.replace && old.id != process.id {
                    wishes.push((old.id, Some(member(process.id, incarnation(other)))));
                }
            }
        }
        if self.changes.remove {
            wishes.extend(latest.members.iter().map(|old| (old.id, None)));
        }
        for (old, new) in wishes {
            let mut next = latest.clone();
            next.version += 1;
            next.members.retain(|member| member.id != old);
            next.members.extend(new);
            next.members.sort();
            if !next.members.is_empty() && agreement.may_change(&next, &ready) {
                actions.push(Action::Change(index, next));
            }
        }
    }

    /// From whom a process can learn the next entry. A newcomer that no entry names yet has nothing to do but to
    /// learn, so it does not stop on the way to the entry that names it.
    fn learns(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let agreement = state.agreement(index);
        let next = agreement.log().next();
        let newcomer =
            agreement.schedule().is_none_or(|schedule| schedule.votes_from(agreement.me()).is_none());
        let mut seen = BTreeSet::new();
        for (from, process) in state.running() {
            let log = process.agreement.log();
            if from == index || log.next() <= next {
                continue;
            }
            let names = |instance: &u64| match log.get(Instance(*instance)) {
                Some(Value::Config(configuration)) => configuration.is_voter(agreement.me()),
                Some(_) | None => false,
            };
            let named = (next.0..log.next().0).find(names).map(Instance);
            let upto = match named {
                _ if !newcomer => next,
                Some(named) => named,
                None if self.budgeted || self.learners_raise => log.executed(),
                None => continue,
            };
            // While there is agreement it does not matter from whom.
            if seen.insert(upto) {
                actions.push(Action::Learn { process: index, from, upto });
            }
        }
    }

    fn failures(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let executed: BTreeMap<Incarnation, Instance> = state
            .running()
            .map(|(_, process)| (process.agreement.me(), process.agreement.log().executed()))
            .collect();
        if self.budgeted && self.was_named(state, index) && state.agreement(index).may_leave(&executed) {
            actions.push(Action::Leave(index));
        }
        if state.crashes >= self.crashes {
            return;
        }
        match self.restart {
            Restart::Learner => {
                let mut after = state.clone();
                after.crash(index, |incarnation| self.fresh(incarnation));
                if !self.budgeted || after.within_budget() {
                    actions.push(Action::Crash(index));
                }
            }
            Restart::Empty => actions.push(Action::Restart { process: index, asked: Vec::new() }),
            Restart::Snapshot | Restart::Merge => {
                let others: Vec<usize> = (0..state.processes.len()).filter(|other| *other != index).collect();
                for asked in majorities(&others) {
                    actions.push(Action::Restart { process: index, asked });
                }
            }
        }
    }

    /// Who executed no configuration that names it has nothing to leave.
    fn was_named(&self, state: &State, index: usize) -> bool {
        let log = state.agreement(index).log();
        let names =
            |value: &Value| matches!(value, Value::Config(named) if named.is_voter(incarnation(index)));
        let executed = (0..log.next().0).filter_map(|instance| log.get(Instance(instance)));
        index < self.voters as usize || executed.into_iter().any(names)
    }

    /// The memory that an unsafe restart goes on with.
    fn restarted(&self, state: &State, index: usize, asked: &[usize]) -> Agreement {
        let mut agreement = self.fresh(state.agreement(index).me());
        let genesis = state.agreement(index).log().get(Instance(0)).cloned();
        let Some(Value::Genesis(genesis)) = genesis else { return agreement };
        agreement.fix(genesis, &mut Vec::new());
        agreement.executed();
        let foremost = asked.iter().copied().max_by_key(|other| state.agreement(*other).log().next());
        if let (Restart::Snapshot | Restart::Merge, Some(foremost)) = (self.restart, foremost) {
            let log = state.agreement(foremost).log();
            for instance in (1..log.next().0).map(Instance) {
                let value = log.get(instance).cloned();
                value.into_iter().for_each(|value| agreement.replay(Record::Decided { instance, value }));
                agreement.executed();
            }
        }
        if self.restart == Restart::Merge {
            let mut records: Vec<Record> =
                asked.iter().flat_map(|other| state.agreement(*other).memory()).collect();
            // The strongest accepted value comes last, and stays.
            records.sort_by_key(|record| {
                if let Record::Accepted { round, .. } = record { Some(*round) } else { None }
            });
            records.into_iter().for_each(|record| agreement.replay(record));
        }
        agreement
    }

    fn take(&self, state: &mut State, action: Action) {
        match action {
            Action::Raise(index) => state.raise(index),
            Action::Collect { proposer, agent } => {
                // The mutant alone drops nothing: a last that starts above what was asked for shows the gap.
                let as_asked = self.mutation == Some(Mutation::AcceptedDropped);
                state.collect(proposer, agent, self.duplicates, as_asked);
            }
            Action::Deliver(letter) => state.deliver(&letter, self.duplicates),
            Action::Success { proposer, agent } => state.success(proposer, agent),
            Action::Learn { process, from, upto } => state.learn(process, from, upto),
            Action::Propose(index) => {
                let raised = state.raised.iter().filter(|raised| **raised == index).count();
                state.propose(index, command(index, raised));
            }
            Action::Change(index, configuration) => state.propose(index, Value::Config(configuration)),
            Action::Crash(index) => state.crash(index, |incarnation| self.fresh(incarnation)),
            Action::Restart { process, asked } => {
                let agreement = self.restarted(state, process, &asked);
                state.restart(process, agreement);
            }
            Action::Leave(index) => state.leave(index),
        }
        if !self.duplicates {
            state.prune();
        }
    }
}

impl Model for Cell {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let fresh = |incarnation| self.fresh(incarnation);
        let formed = State::formed(self.voters, self.newcomers, self.window, fresh);
        vec![State { withheld: self.withheld, ..formed }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.agrees() {
            return;
        }
        for (index, _) in state.running() {
            if self.may_raise(state, index) {
                actions.push(Action::Raise(index));
            }
            self.leads(state, index, actions);
            self.learns(state, index, actions);
            self.failures(state, index, actions);
        }
        actions.extend(state.network.iter().cloned().map(Action::Deliver));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Cell>> {
        if self.budgeted {
            vec![
                Property::always(AGREEMENT, |_, state: &State| state.agrees()),
                Property::always(LIVE_MAJORITY, |_, state: &State| state.next_has_live_majority()),
            ]
        } else {
            vec![Property::always(AGREEMENT, |_, state: &State| state.agrees())]
        }
    }
}

/// No instance is decided on two values.
pub const AGREEMENT: &str = "agreement";
/// The next instance's configuration always has a live majority.
pub const LIVE_MAJORITY: &str = "live majority";

/// All smallest majorities of them.
fn majorities(of: &[usize]) -> Vec<Vec<usize>> {
    let size = of.len() / 2 + 1;
    let sets = (0_u32..1 << of.len()).filter(|set| set.count_ones() as usize == size);
    sets.map(|set| {
        of.iter().enumerate().filter(|(place, _)| set >> place & 1 == 1).map(|(_, one)| *one).collect()
    })
    .collect()
}
