//! Agreement as a proposer: raising a round, collecting, beginning, counting accepts.

use super::{Agreement, Last};
use crate::identity::{Incarnation, Instance, ReplicaId, Round, Time};
use crate::message::{BATCH_BYTES_MAX, Message, Proposal};
use crate::mutation::Mutation;
use crate::proposer::Proposer;
use crate::step::Record;
use crate::value::Value;
use std::collections::VecDeque;

impl Agreement {
    /// Starts a round stronger than every round heard of, with this incarnation's own promise.
    pub fn raise(&mut self, id: ReplicaId, heard: Round, records: &mut Vec<Record>) -> Round {
        let sequence = self.acceptor.promised().sequence.max(heard.sequence) + 1;
        let incarnation =
            if self.mutated(Mutation::RoundsWithoutIncarnation) { Incarnation(0) } else { self.me };
        let round = Round { sequence, id, incarnation };
        self.proposer = Some(Proposer::new(round, self.log.next()));
        // Promised by a learner too, or it could raise the same round twice; but a learner gives no last.
        let promises = self.votes() || !self.mutated(Mutation::ForeignProposer);
        if promises && self.promise(round, records) && self.votes() {
            let next = self.log.next();
            let (reports, _) = self.reports(next, usize::MAX, usize::MAX);
            let executed = self.log.executed();
            let me = self.me;
            if let Some(proposer) = &mut self.proposer {
                proposer.last(next, me, executed, next, None, reports);
            }
        }
        round
    }

    /// The collects that are still wanted: from every voter of the configurations in force and scheduled.
    pub fn collects(&self) -> Vec<(Incarnation, Message)> {
        let (Some(proposer), Some(schedule)) = (&self.proposer, &self.schedule) else { return Vec::new() };
        let others =
            schedule.voters().into_iter().filter(|&voter| voter != self.me && !proposer.complete(voter));
        let round = proposer.round;
        others
            .map(|voter| {
                (voter, Message::Collect { round, from: proposer.collect_from(voter, self.log.executed()) })
            })
            .collect()
    }

    /// A last. Gives the collect for the rest of a long one.
    pub fn last(&mut self, sender: Incarnation, last: Last, records: &mut Vec<Record>) -> Option<Message> {
        let Last { round, executed, from, next, reports } = last;
        if self.proposer.as_ref().is_none_or(|proposer| proposer.round != round) {
            return None;
        }
        for report in &reports {
            if report.round.is_none() {
                self.decide(report.instance, report.value.clone(), records);
            }
        }
        let (here, behind) = (self.log.next(), self.log.executed());
        let proposer = self.proposer.as_mut()?;
        let more = proposer.last(here, sender, executed, from, next, reports);
        // A late one tells of what is executed here by now. Kept until the next execution, a change of members among
        // it would look as if it were still under way.
        proposer.forget(behind);
        let more = more?;
        Some(Message::Collect { round, from: more })
    }

    /// Begins whatever may be begun: what earlier rounds left, then `queue`, and no-ops up to where a scheduled
    /// configuration comes into force. Returns the instances begun.
    pub fn pump(
        &mut self,
        queue: &mut VecDeque<Value>,
        held: impl Fn(&Value) -> bool,
        records: &mut Vec<Record>,
    ) -> Vec<Instance> {
        let mut begun = Vec::new();
        while let Some(value) = self.next_value(queue) {
            let Some(proposer) = &mut self.proposer else { break };
            begun.push(proposer.begin(value));
        }
        self.accept_own(held, records);
        begun
    }

    /// A proposer is an agent too, under the same rule: a large value only when its bytes are here.
    fn accept_own(&mut self, held: impl Fn(&Value) -> bool, records: &mut Vec<Record>) {
        let Some(proposer) = &self.proposer else { return };
        let round = proposer.round;
        if !self.votes() || self.acceptor.promised() != round {
            return;
        }
        let own: Vec<(Instance, Value)> = proposer
            .open()
            .iter()
            .filter(|(instance, open)| {
                !open.accepted.contains(&self.me) && held(&open.value) && self.may_accept(**instance)
            })
            .map(|(instance, open)| (*instance, open.value.clone()))
            .collect();
        for (instance, value) in own {
            self.accept_value(instance, round, value, records);
            self.count(self.me, instance, records);
        }
    }

    fn next_value(&mut self, queue: &mut VecDeque<Value>) -> Option<Value> {
        loop {
            let schedule = self.schedule.as_ref()?;
            let dropped = self.mutated(Mutation::AcceptedDropped);
            let proposer = self.proposer.as_mut()?;
            let next = proposer.next();
            // At or below the floor it is decided and executed elsewhere: it is caught up, never begun.
            if next <= proposer.floor() && !dropped {
                proposer.skip_to(proposer.floor().next());
                if next == proposer.next() {
                    return None;
                }
                continue;
            }
            if self.log.is_decided(next) {
                proposer.skip_to(next.next());
                continue;
            }
            if !self.may_begin(next) {
                return None;
            }
            let proposer = self.proposer.as_ref()?;
            if let Some(value) = proposer.inherited(schedule.of(next), next) {
                return Some(value);
            }
            let fill = proposer.inherited_upto().max(Instance(schedule.latest_from().0.saturating_sub(1)));
            let queued = if next > proposer.inherited_upto() { queue.pop_front() } else { None };
            return queued.or_else(|| (next <= fill).then_some(Value::Noop));
        }
    }

    /// Begins instance i only when everything ≤ i − W is executed here, this incarnation votes on i, and a
    /// majority of i's voters promised this round. (Rule 2 of restart and membership.)
    fn may_begin(&self, instance: Instance) -> bool {
        let (Some(schedule), Some(proposer)) = (&self.schedule, &self.proposer) else { return false };
        let within = instance <= self.log.executed().plus(schedule.window);
        if !within && !self.mutated(Mutation::BeginBeyondWindow) {
            return false;
        }
        let configuration = schedule.of(instance);
        if !configuration.is_voter(self.me) && !self.mutated(Mutation::ForeignProposer) {
            return false;
        }
        if self.mutated(Mutation::LastsNotPerConfiguration) {
            return schedule.entries.iter().any(|(_, any)| proposer.collected(any, instance));
        }
        proposer.collected(configuration, instance)
    }

    /// Begins of these instances for one agent, as few messages as their size allows.
    pub fn begin_messages(&self, agent: Incarnation, instances: &[Instance], now: Time) -> Vec<Message> {
        let (Some(proposer), Some(schedule)) = (&self.proposer, &self.schedule) else { return Vec::new() };
        let mut messages = Vec::new();
        let mut proposals: Vec<Proposal> = Vec::new();
        let mut bytes = 0;
        let success = self.log.decided_upto();
        let message = |proposals| Message::Begin { round: proposer.round, sent: now, success, proposals };
        for instance in instances {
            let Some(open) = proposer.open().get(instance) else { continue };
            if open.accepted.contains(&agent) || !schedule.of(*instance).is_voter(agent) {
                continue;
            }
            let weight = match &open.value {
                Value::Command(bytes) => bytes.len(),
                Value::Noop | Value::Large { .. } | Value::Config(_) | Value::Genesis(_) => 0,
            };
            if bytes + weight > BATCH_BYTES_MAX {
                messages.push(message(std::mem::take(&mut proposals)));
                bytes = 0;
            }
            bytes += weight;
            proposals.push(Proposal { instance: *instance, value: open.value.clone() });
        }
        if !proposals.is_empty() {
            messages.push(message(proposals));
        }
        messages
    }

    /// Accepts. Count only in the round they were given for.
    pub fn accept(
        &mut self,
        sender: Incarnation,
        round: Round,
        instances: &[Instance],
        records: &mut Vec<Record>,
    ) {
        let same = self.proposer.as_ref().is_some_and(|proposer| proposer.round == round);
        if !same && !self.mutated(Mutation::AcceptsSurviveRound) {
            return;
        }
        for instance in instances {
            self.count(sender, *instance, records);
        }
    }

    fn count(&mut self, sender: Incarnation, instance: Instance, records: &mut Vec<Record>) {
        let (Some(proposer), Some(schedule)) = (&mut self.proposer, &self.schedule) else { return };
        if let Some(value) = proposer.accepted(sender, instance, schedule.of(instance)) {
            self.decide(instance, value, records);
        }
    }

    /// The round is over: a stronger one is promised somewhere, or leading makes no sense any more.
    pub fn step_down(&mut self) {
        self.proposer = None;
    }
}
