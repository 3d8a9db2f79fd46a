//! [`Agreement`]: acceptor, log, schedule and proposer of one incarnation together. It knows no time, no links and
//! no election, so the model checker runs it as it is.

use crate::acceptor::Acceptor;
use crate::configuration::{Configuration, Genesis, Schedule};
use crate::identity::{CellId, Incarnation, Instance, Round};
use crate::log::{Log, Noted};
use crate::message::{BATCH_BYTES_MAX, Message, Position, Proposal, Report};
use crate::mutation::Mutation;
use crate::proposer::Proposer;
use crate::step::Record;
use crate::value::Value;
use std::collections::{BTreeMap, BTreeSet};

mod propose;

/// Everything of a replica that agreement's safety rests on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agreement {
    me: Incarnation,
    pub cell: CellId,
    pub generation: u32,
    /// `None`: in no cell yet.
    schedule: Option<Schedule>,
    acceptor: Acceptor,
    log: Log,
    proposer: Option<Proposer>,
    /// An instance that was told as decided on another value than the one known: what must never be.
    conflict: Option<Instance>,
    mutation: Option<Mutation>,
}

impl Agreement {
    pub fn new(me: Incarnation, mutation: Option<Mutation>) -> Agreement {
        Agreement {
            me,
            cell: CellId(0),
            generation: 0,
            schedule: None,
            acceptor: Acceptor::default(),
            log: Log::default(),
            proposer: None,
            conflict: None,
            mutation,
        }
    }

    // ---- as an agent ----

    /// A collect: the promise with a report, a refusal, or nothing from a learner.
    pub fn collect(&mut self, round: Round, from: Instance, records: &mut Vec<Record>) -> Option<Message> {
        if !self.votes() {
            return None;
        }
        if !self.promise(round, records) {
            return Some(Message::Refuse { refused: round, promised: self.acceptor.promised() });
        }
        Some(self.last_message(round, from))
    }

    /// Begins: what was accepted of them, or the stronger round that is promised. `held` tells whether a large value's bytes are here.
    /// Learns from `success` too.
    pub fn begin(
        &mut self,
        round: Round,
        proposals: Vec<Proposal>,
        held: impl Fn(&Value) -> bool,
        records: &mut Vec<Record>,
    ) -> Result<Vec<Instance>, Round> {
        if !self.votes() {
            return Ok(Vec::new());
        }
        if round < self.acceptor.promised() {
            return Err(self.acceptor.promised());
        }
        if !self.mutated(Mutation::BeginKeepsPromise) {
            self.promise(round, records);
        }
        let mut accepted = Vec::with_capacity(proposals.len());
        for Proposal { instance, value } in proposals {
            if self.log.is_decided(instance) {
                // Already decided, so on this value: say yes, the master has not heard enough of us.
                accepted.push(instance);
            } else if held(&value) && self.may_accept(instance) {
                self.accept_value(instance, round, value, records);
                accepted.push(instance);
            }
        }
        Ok(accepted)
    }

    fn accept_value(&mut self, instance: Instance, round: Round, value: Value, records: &mut Vec<Record>) {
        records.push(Record::Accepted { instance, round, value: value.clone() });
        self.acceptor.accept(instance, round, value);
    }

    /// A replaced incarnation answers nothing at m + W or above once it has executed m. And an agent that is far
    /// behind takes no more: it must catch up first, its memory is bounded.
    fn may_accept(&self, instance: Instance) -> bool {
        let Some(schedule) = &self.schedule else { return false };
        let known = instance <= self.log.executed().plus(schedule.window);
        if known && !schedule.of(instance).is_voter(self.me) {
            return false;
        }
        instance <= self.log.executed().plus(schedule.window.saturating_mul(AHEAD_WINDOWS_MAX))
    }

    /// Everything up to `upto` is decided; what was accepted here in that same round is the decision.
    /// What was accepted in another round may not be: that has to be caught up.
    pub fn success(&mut self, round: Round, upto: Instance, records: &mut Vec<Record>) {
        let mut instance = self.log.next();
        while instance <= upto {
            match self.acceptor.accepted(instance) {
                Some((accepted, value)) if *accepted == round => {
                    let value = value.clone();
                    self.decide(instance, value, records);
                    instance = instance.next();
                }
                Some(_) | None if self.log.is_decided(instance) => instance = instance.next(),
                Some(_) | None => break,
            }
        }
    }

    /// Decisions told by another replica.
    /// What lies too far ahead of execution is not taken: memory is bounded, and it can be asked for again.
    pub fn decided(&mut self, entries: Vec<Proposal>, records: &mut Vec<Record>) {
        let limit = self.log.next().plus(AHEAD_MAX);
        for Proposal { instance, value } in entries {
            if instance < limit {
                self.decide(instance, value, records);
            }
        }
    }

    fn decide(&mut self, instance: Instance, value: Value, records: &mut Vec<Record>) {
        // Decided otherwise than this round began it: a stronger round did that. This one is over, or it would tell
        // who accepted its value that this value was decided.
        if self
            .proposer
            .as_ref()
            .and_then(|proposer| proposer.open().get(&instance))
            .is_some_and(|open| open.value != value)
        {
            self.proposer = None;
        }
        if self.note_decided(instance, value.clone()) {
            records.push(Record::Decided { instance, value });
        }
    }

    /// True: it was not known.
    fn note_decided(&mut self, instance: Instance, value: Value) -> bool {
        let noted = self.log.decide(instance, value);
        if noted == Noted::Conflict {
            self.conflict.get_or_insert(instance);
        }
        noted == Noted::New
    }

    // ---- execution and configuration ----

    /// The next decided entry.
    pub fn executable(&self) -> Option<(Instance, &Value)> {
        self.log.executable().map(|value| (self.log.next(), value))
    }

    /// The next decided entry is executed. Returns the configuration that it scheduled, if it did.
    pub fn executed(&mut self) -> Option<Configuration> {
        let instance = self.log.next();
        let value = self.log.execute()?;
        let scheduled = match value {
            Value::Genesis(genesis) => {
                self.found(instance, &genesis);
                Some(genesis.configuration)
            }
            Value::Config(configuration) => {
                let schedule = self.schedule.as_mut()?;
                schedule.schedule(instance, &configuration).then_some(configuration)
            }
            Value::Noop | Value::Command(_) | Value::Large { .. } => None,
        };
        let executed = self.log.executed();
        if let Some(schedule) = &mut self.schedule {
            schedule.prune(executed);
        }
        self.acceptor.forget(executed);
        if let Some(proposer) = &mut self.proposer {
            proposer.forget(executed);
        }
        self.note_recovered();
        scheduled
    }

    fn found(&mut self, instance: Instance, genesis: &Genesis) {
        self.cell = genesis.cell;
        self.generation = genesis.generation;
        self.schedule = Some(Schedule::new(instance, genesis));
    }

    /// The first time that it knows all, this round leads. A configuration that is scheduled later is collected anew.
    pub fn note_recovered(&mut self) {
        let recovered = self.proposer.as_ref().is_some_and(|proposer| proposer.recovered);
        let recovered = recovered || self.knows_all();
        if let Some(proposer) = &mut self.proposer {
            proposer.recovered = recovered;
        }
    }

    /// When every configuration from here on has a majority of lasts, and everything they report is executed, whatever
    /// other rounds decided is executed here, and weaker ones decide nothing more. That a round has led says
    /// less: in a configuration scheduled since, which has not promised it, a weaker one may decide.
    pub fn knows_all(&self) -> bool {
        let (Some(proposer), Some(schedule)) = (&self.proposer, &self.schedule) else { return false };
        let next = self.log.next();
        let collected = schedule
            .entries
            .iter()
            .all(|(from, configuration)| proposer.collected(configuration, next.max(*from)));
        collected && self.log.executed() >= proposer.inherited_upto()
    }

    /// Somebody executed what this round neither inherited nor decided, though it leads: another one was master
    /// meanwhile. It cannot begin that instance, and must learn it as one who follows.
    pub fn is_overtaken(&self) -> bool {
        self.proposer
            .as_ref()
            .is_some_and(|proposer| proposer.recovered && proposer.floor() > self.log.decided_upto())
    }

    /// Becomes the first member of a cell, or goes on alone in a new generation: the one entry that is not agreed.
    pub fn fix(&mut self, genesis: Genesis, records: &mut Vec<Record>) {
        let next = self.log.next();
        self.decide(next, Value::Genesis(genesis), records);
    }

    /// A survivor keeps what it accepted, up to the first hole, as if decided. Only an operator may say so. A large
    /// value whose bytes are not `held` is a hole too: nobody may be left who has them. What lies beyond is given up.
    /// Returns what is scheduled once all of it is executed.
    pub fn keep_accepted(
        &mut self,
        held: impl Fn(&Value) -> bool,
        records: &mut Vec<Record>,
    ) -> Option<Schedule> {
        let mut schedule = self.schedule.clone()?;
        let mut instance = self.log.next();
        while let Some(value) = self.known(instance).filter(|value| held(value)).cloned() {
            match &value {
                Value::Genesis(genesis) => schedule = Schedule::new(instance, genesis),
                Value::Config(configuration) => {
                    schedule.schedule(instance, configuration);
                }
                Value::Noop | Value::Command(_) | Value::Large { .. } => {}
            }
            self.decide(instance, value, records);
            instance = instance.next();
        }
        self.log.forget_ahead(instance);
        self.acceptor.forget_from(instance);
        Some(schedule)
    }

    /// What an instance is decided on, or else what was accepted for it.
    fn known(&self, instance: Instance) -> Option<&Value> {
        let accepted = || self.acceptor.accepted(instance).map(|(_, value)| value);
        self.log.get(instance).or_else(accepted)
    }

    /// Goes on alone in a new generation, from the first instance after what was kept.
    pub fn recover(&mut self, genesis: Genesis, records: &mut Vec<Record>) {
        let at = self.log.decided_upto().next();
        self.decide(at, Value::Genesis(genesis), records);
    }

    pub fn install(&mut self, position: Position) {
        self.cell = position.cell;
        self.generation = position.generation;
        self.schedule = Some(position.schedule);
        self.log.install(position.executed);
        self.acceptor.forget(position.executed);
        // What this round had begun below may have been decided otherwise: it must not say success any more.
        self.proposer = None;
    }

    /// Gives back what a durable replica had on disk.
    pub fn replay(&mut self, record: Record) {
        match record {
            Record::Promised(round) => {
                self.acceptor.promise(round);
            }
            Record::Accepted { instance, round, value } => {
                self.acceptor.promise(round);
                if !self.log.is_decided(instance) {
                    self.acceptor.accept(instance, round, value);
                }
            }
            Record::Decided { instance, value } => {
                if matches!(value, Value::Genesis(_)) {
                    self.log.forget_ahead(instance);
                    self.acceptor.forget_from(instance);
                }
                self.note_decided(instance, value);
            }
            Record::Life { .. } | Record::Data { .. } => {}
        }
    }

    /// The records that a durable replica must still have beside a snapshot of what is executed.
    pub fn memory(&self) -> Vec<Record> {
        let promised = Some(self.acceptor.promised()).filter(|promised| *promised > Round::default());
        let mut records: Vec<Record> = promised.map(Record::Promised).into_iter().collect();
        let next = self.log.next();
        for (instance, (round, value)) in self.acceptor.accepted_from(next) {
            records.push(Record::Accepted { instance, round: *round, value: value.clone() });
        }
        for (instance, value) in self.log.ahead_from(next) {
            records.push(Record::Decided { instance, value: value.clone() });
        }
        records
    }

    /// Whether this incarnation may answer as a voter: some scheduled configuration names it, and everything
    /// before that comes into force is executed.
    pub fn votes(&self) -> bool {
        let Some(schedule) = &self.schedule else { return false };
        let Some(from) = schedule.votes_from(self.me) else { return false };
        self.mutated(Mutation::LearnerVotesEarly) || self.log.next() >= from
    }

    /// A majority of the new voters must vote now, or be newcomers that have all but caught up, and be
    /// connected (`ready`): a change must not leave the next instance without a live majority.
    pub fn may_change(&self, configuration: &Configuration, ready: &BTreeSet<Incarnation>) -> bool {
        self.mutated(Mutation::ChangeUnchecked) || configuration.majority(|voter| ready.contains(&voter))
    }

    /// One change at a time: the latest scheduled configuration is in force, and no other is on its way.
    pub fn settled(&self) -> bool {
        let changing = self.proposer.as_ref().is_some_and(Proposer::changes);
        !changing && self.schedule.as_ref().is_some_and(|schedule| schedule.latest_from() <= self.log.next())
    }

    /// A member that the latest configuration does not name may go when a majority of those it names has executed
    /// everything before it came into force: until then it may be the only one who knows.
    pub fn may_leave(&self, executed: &BTreeMap<Incarnation, Instance>) -> bool {
        let Some(schedule) = &self.schedule else { return false };
        let latest = schedule.latest();
        if latest.member(self.me).is_some() {
            return false;
        }
        let last = Instance(schedule.latest_from().0.saturating_sub(1));
        self.mutated(Mutation::LeavesEarly)
            || latest.majority(|voter| executed.get(&voter).is_some_and(|executed| *executed >= last))
    }

    // ---- looking in ----

    pub fn me(&self) -> Incarnation {
        self.me
    }

    pub fn schedule(&self) -> Option<&Schedule> {
        self.schedule.as_ref()
    }

    /// The configuration of the next instance to execute.
    pub fn current(&self) -> Option<&Configuration> {
        self.schedule.as_ref().map(|schedule| schedule.of(self.log.next()))
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    pub fn acceptor(&self) -> &Acceptor {
        &self.acceptor
    }

    /// The first instance that two values were told for, if one was.
    pub fn conflict(&self) -> Option<Instance> {
        self.conflict
    }

    pub fn proposer(&self) -> Option<&Proposer> {
        self.proposer.as_ref()
    }

    pub fn mutated(&self, mutation: Mutation) -> bool {
        cfg!(feature = "mutants") && self.mutation == Some(mutation)
    }

    fn promise(&mut self, round: Round, records: &mut Vec<Record>) -> bool {
        if round == self.acceptor.promised() {
            return true;
        }
        let promised = self.acceptor.promise(round);
        if promised {
            records.push(Record::Promised(round));
            // An own weaker round is over with this promise.
            if self.proposer.as_ref().is_some_and(|proposer| proposer.round < round) {
                self.proposer = None;
            }
        }
        promised
    }

    fn last_message(&self, round: Round, from: Instance) -> Message {
        let dropped = self.mutated(Mutation::AcceptedDropped);
        let from = if dropped { from } else { from.max(self.log.next()) };
        let (reports, next) = self.reports(from, BATCH_BYTES_MAX, REPORTS_MAX);
        let executed = if dropped { Instance(0) } else { self.log.executed() };
        Message::Last { round, executed, from, next, reports }
    }

    /// What is known of instances `from` on: decided ones as such, others as accepted. At most `bytes` and `count`,
    /// and where to go on.
    fn reports(&self, from: Instance, bytes: usize, count: usize) -> (Vec<Report>, Option<Instance>) {
        let mut known: BTreeMap<Instance, Report> = BTreeMap::new();
        for (instance, (round, value)) in self.acceptor.accepted_from(from) {
            known.insert(instance, Report { instance, round: Some(*round), value: value.clone() });
        }
        for (instance, value) in self.log.ahead_from(from) {
            known.insert(instance, Report { instance, round: None, value: value.clone() });
        }
        let mut total = 0;
        let mut reports = Vec::new();
        for (instance, report) in known {
            total += match &report.value {
                Value::Command(bytes) => bytes.len(),
                Value::Noop | Value::Large { .. } | Value::Config(_) | Value::Genesis(_) => 0,
            };
            if total > bytes && !reports.is_empty() || reports.len() >= count {
                return (reports, Some(instance));
            }
            reports.push(report);
        }
        (reports, None)
    }
}

/// The fields of a [`Message::Last`].
pub struct Last {
    pub round: Round,
    pub executed: Instance,
    pub from: Instance,
    pub next: Option<Instance>,
    pub reports: Vec<Report>,
}

/// Windows that an agent accepts beyond what it has executed.
const AHEAD_WINDOWS_MAX: u64 = 4;

/// Decided entries that may wait for execution.
pub const AHEAD_MAX: u64 = 65_536;

/// Reports in one last.
const REPORTS_MAX: usize = 8192;
