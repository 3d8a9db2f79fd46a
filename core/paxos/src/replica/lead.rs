//! A replica as proposer and master: raising a round, beginning, counting, stepping down.

use super::{GRANT_UNITS, Replica};
use crate::agreement::Last;
use crate::data::Want;
use crate::identity::{Incarnation, Instance, Round, Time};
use crate::message::Message;
use crate::step::{Effect, Note, Record};
use crate::value::{IN_BAND_MAX, OUT_OF_BAND_MAX, Value};
use kumo_wire::Writer;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

impl Replica {
    /// A majority names this replica: it raises a round and collects.
    pub(super) fn raise(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.wants_round = false;
        let Some(id) =
            self.configuration_now().and_then(|now| now.member(self.settings.incarnation)).map(|me| me.id)
        else {
            return;
        };
        self.raised_at = now;
        self.lease.forget_held();
        self.agreement.raise(id, self.heard, &mut self.records);
        self.heard = self.heard.max(self.agreement.acceptor().promised());
        self.send_collects(effects);
        self.eager = true;
    }

    pub(super) fn send_collects(&mut self, effects: &mut Vec<Effect>) {
        for (voter, collect) in self.agreement.collects() {
            if let Some(address) = self.links.address_of(voter) {
                self.send(address, collect, effects);
            }
        }
    }

    pub(super) fn last(
        &mut self,
        now: Time,
        from: SocketAddr,
        sender: Incarnation,
        last: Last,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(link) = self.links.get_mut(from)
            && link.incarnation == sender
        {
            link.executed = link.executed.max(last.executed);
        }
        if let Some(more) = self.agreement.last(sender, last, &mut self.records) {
            self.send(from, more, effects);
        }
        if self.agreement.is_overtaken() {
            self.step_down(now, effects);
        }
        self.eager = true;
    }

    pub(super) fn accept(
        &mut self,
        sender: Incarnation,
        round: Round,
        sent: Time,
        granted_micros: u64,
        executed: Instance,
        instances: &[Instance],
    ) {
        if self.agreement.proposer().is_none_or(|proposer| proposer.round != round) {
            return;
        }
        self.lease.held(sender, sent, granted_micros);
        if let Some(address) = self.links.address_of(sender)
            && let Some(link) = self.links.get_mut(address)
        {
            link.executed = link.executed.max(executed);
        }
        if !instances.is_empty() {
            self.agreement.accept(sender, round, instances, &mut self.records);
            self.eager = true;
        }
    }

    pub(super) fn refused(&mut self, now: Time, refused: Round, promised: Round, effects: &mut Vec<Effect>) {
        self.heard = self.heard.max(promised);
        if self.agreement.proposer().is_some_and(|proposer| proposer.round == refused && promised > refused) {
            self.step_down(now, effects);
        }
    }

    /// A command of the host. A large one is offered first and gets its instance when enough hold it.
    pub(super) fn propose(&mut self, now: Time, command: Writer, effects: &mut Vec<Effect>) {
        if self.reign.is_none() || command.len() > OUT_OF_BAND_MAX {
            return;
        }
        if command.len() <= IN_BAND_MAX {
            self.queue.push_back(Value::Command(command.into_bytes()));
            self.eager = true;
        } else {
            self.data.take_in(command);
            self.assemble(now, effects);
        }
    }

    /// Goes on preparing large commands; the next one that is ready is offered.
    pub(super) fn assemble(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if let Some((name, bytes)) = self.data.assemble(now, self.settings.incarnation) {
            let length = bytes.len() as u32;
            self.records.push(Record::Data { name, bytes });
            for voter in self.voter_addresses() {
                self.send(voter, Message::Offer { name, length }, effects);
            }
            self.eager = true;
        }
        self.eager |= self.data.is_assembling();
    }

    pub(super) fn resend_offers(&mut self, effects: &mut Vec<Effect>) {
        let offers: Vec<_> =
            self.data.offers().map(|(name, length, holders)| (name, length, holders.clone())).collect();
        let Some(schedule) = self.agreement.schedule() else { return };
        let voters = schedule.voters();
        for (name, length, holders) in offers {
            for voter in voters.iter().filter(|voter| !holders.contains(voter)) {
                if let Some(address) = self.links.address_of(*voter) {
                    self.send(address, Message::Offer { name, length }, effects);
                }
            }
        }
    }

    /// Begins what may be begun, one message an agent.
    pub(super) fn pump(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.agreement.proposer().is_none() {
            return;
        }
        self.queue_held();
        self.held.take_if(|(_, until)| now >= *until);
        let (data, mut none) = (&self.data, VecDeque::new());
        let queue = if self.held.is_some() { &mut none } else { &mut self.queue };
        let begun = self.agreement.pump(queue, |value| data.holds(value), &mut self.records);
        self.fetch_open(now, effects);
        if !begun.is_empty() {
            self.send_begins(now, &begun, effects);
            self.success_told = self.agreement.log().decided_upto();
            self.success_due = None;
            self.grant_own(now);
        }
        if self.success_due.is_none() && self.agreement.log().decided_upto() > self.success_told {
            self.success_due = Some(now.plus_micros(SUCCESS_MICROS));
        }
    }

    /// Inherited large values whose bytes are not here yet.
    fn fetch_open(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(proposer) = self.agreement.proposer() else { return };
        let missing: Vec<_> = proposer
            .open()
            .values()
            .filter(|open| !self.data.holds(&open.value))
            .filter_map(|open| match &open.value {
                Value::Large { name, length } => Some((*name, *length)),
                Value::Noop | Value::Command(_) | Value::Config(_) | Value::Genesis(_) => None,
            })
            .collect();
        if missing.is_empty() {
            return;
        }
        let silence = self.silence_micros();
        let Some(any) = self.links.iter().find(|(_, link)| link.alive(now, silence)).map(|(peer, _)| peer)
        else {
            return;
        };
        for (name, length) in missing {
            self.fetch(now, name, length, any, Want::Begun, effects);
        }
    }

    /// Large values that a majority of every scheduled configuration holds join the queue.
    fn queue_held(&mut self) {
        let Some(schedule) = self.agreement.schedule() else { return };
        let enough = |holders: &BTreeSet<Incarnation>| {
            schedule
                .entries
                .iter()
                .all(|(_, configuration)| configuration.majority(|voter| holders.contains(&voter)))
        };
        self.queue.extend(self.data.ready(enough));
    }

    pub(super) fn send_begins(&mut self, now: Time, instances: &[Instance], effects: &mut Vec<Effect>) {
        let Some(schedule) = self.agreement.schedule() else { return };
        for voter in schedule.voters() {
            let Some(address) = self.links.address_of(voter) else { continue };
            for begin in self.agreement.begin_messages(voter, instances, now) {
                self.send(address, begin, effects);
            }
        }
    }

    pub(super) fn tell_success(&mut self, effects: &mut Vec<Effect>) {
        self.success_due = None;
        let Some(round) = self.agreement.proposer().map(|proposer| proposer.round) else { return };
        let upto = self.agreement.log().decided_upto();
        self.success_told = upto;
        for voter in self.voter_addresses() {
            self.send(voter, Message::Success { round, upto }, effects);
        }
    }

    /// A master is an agent of itself: it too answers no other round's collect while its lease runs.
    pub(super) fn grant_own(&mut self, now: Time) {
        let Some(round) = self.agreement.proposer().map(|proposer| proposer.round) else { return };
        if self.reign == Some(round)
            && self.agreement.votes()
            && self.agreement.acceptor().promised() == round
        {
            self.lease.grant(now, round);
            self.lease.held(
                self.settings.incarnation,
                now,
                self.settings.unit_micros.saturating_mul(GRANT_UNITS),
            );
        }
    }

    /// Leads no more. It is young again, so that mastership does not bounce.
    pub(super) fn step_down(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(round) = self.agreement.proposer().map(|proposer| proposer.round) else { return };
        self.agreement.step_down();
        self.note_reign(now, effects);
        // The lease is used no more, so nobody needs to wait for its end.
        self.lease.released(round);
        for voter in self.voter_addresses() {
            self.send(voter, Message::Release { round }, effects);
        }
        self.elect(now, effects);
    }

    /// Mastership won or lost since the last step is told to the host.
    pub(super) fn note_reign(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let leads =
            self.agreement.proposer().filter(|proposer| proposer.recovered).map(|proposer| proposer.round);
        if leads == self.reign {
            return;
        }
        if let Some(round) = self.reign {
            effects.push(Effect::Note(Note::SteppedDown(round)));
            self.birth = now;
            self.queue.clear();
            self.data.withdraw();
            self.success_due = None;
            self.proposed = None;
            self.held = None;
            self.fail_change(effects);
            effects.push(Effect::Master(None));
        }
        self.reign = leads;
        if let Some(round) = leads {
            effects.push(Effect::Note(Note::Leading(round)));
            effects.push(Effect::Master(Some(round)));
            self.success_told = Instance(0);
            self.eager = true;
            // The others should hear it from us now, not at the next heartbeat.
            self.next_tick = now;
        }
    }

    /// The first vote of this incarnation: leases it cannot know of must run out first.
    pub(super) fn note_vote(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let votes = self.agreement.votes();
        if votes && !self.voted {
            if !self.agreement.mutated(crate::mutation::Mutation::RestartAnswersCollect) {
                self.lease.quiet(now, 0);
            }
            effects.push(Effect::Note(Note::Voting));
        }
        self.voted = votes;
    }
}

/// A decision is told by the next begin; without one, after this long.
const SUCCESS_MICROS: u64 = 2_000;
