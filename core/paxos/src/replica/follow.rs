//! Catch-up: asking the most advanced peer for what was decided, and serving those who ask.

use super::Replica;
use crate::identity::{Instance, Time};
use crate::message::{BATCH_BYTES_MAX, Message, Proposal};
use crate::step::{Effect, Note};
use crate::value::{DataName, Value};
use std::net::SocketAddr;

impl Replica {
    /// Asks the most advanced peer when this replica is behind. A voter trails by a message all the time: only a
    /// lag that a whole tick did not close counts for it.
    pub(super) fn catch_up(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.catching.snapshot.is_some() || self.reign.is_some() {
            return;
        }
        if self.catching.asked.is_some_and(|(_, asked)| now.since(asked) < self.settings.unit_micros * 2) {
            return;
        }
        let upto = self.agreement.log().decided_upto();
        let unknown = self.agreement.schedule().is_none();
        // A donor that did not answer in time is passed over once.
        let silent = self.catching.asked.take().map(|(donor, _)| donor);
        let Some((donor, ahead)) = self.most_advanced(now, silent).or_else(|| self.most_advanced(now, None))
        else {
            return;
        };
        let lags =
            if self.agreement.votes() { self.catching.target > upto && ahead > upto } else { ahead > upto };
        if lags || unknown {
            self.ask(now, donor, effects);
        }
    }

    pub(super) fn most_advanced(
        &self,
        now: Time,
        except: Option<SocketAddr>,
    ) -> Option<(SocketAddr, Instance)> {
        let silence = self.silence_micros();
        // Without a cell of its own a replica learns only from one that has one.
        let in_cell = |first: &crate::message::Heartbeat| {
            first.executed > Instance(0) || first.promised.sequence > 0 || first.votes
        };
        self.links
            .iter()
            .filter(|(_, link)| link.alive(now, silence) && link.heartbeat.as_ref().is_some_and(in_cell))
            .filter(|(peer, _)| Some(*peer) != except)
            .map(|(peer, link)| (peer, link.executed))
            .max_by_key(|(_, executed)| *executed)
    }

    pub(super) fn ask(&mut self, now: Time, donor: SocketAddr, effects: &mut Vec<Effect>) {
        let log = self.agreement.log();
        let from = if self.agreement.schedule().is_none() { log.next() } else { log.decided_upto().next() };
        let from = if log.next() == Instance(0) { Instance(0) } else { from };
        self.catching.asked = Some((donor, now));
        self.send(donor, Message::CatchUp { from }, effects);
    }

    /// How far the others are now; compared at the next tick.
    pub(super) fn note_target(&mut self, now: Time) {
        self.catching.target = self.most_advanced(now, None).map_or(Instance(0), |(_, executed)| executed);
    }

    pub(super) fn decided(
        &mut self,
        now: Time,
        from: SocketAddr,
        entries: Vec<Proposal>,
        executed: Instance,
        effects: &mut Vec<Effect>,
    ) {
        let before = self.agreement.log().decided_upto();
        self.agreement.decided(entries, &mut self.records);
        if let Some(link) = self.links.get_mut(from) {
            link.executed = link.executed.max(executed);
        }
        let upto = self.agreement.log().decided_upto();
        let asked = self.catching.asked.is_some_and(|(donor, _)| donor == from);
        if asked {
            self.catching.asked = None;
        }
        // Long lists come in batches: go on at once while they bring something.
        if asked && executed > upto && upto > before && self.agreement.log().ahead_count() < ASK_AHEAD_MAX {
            self.ask(now, from, effects);
        }
        self.eager = true;
    }

    /// Entries below `first`, or bytes that were asked for, are gone there. What answers a fetch is no answer to a
    /// catch-up under way: then the entries that are wanted here may well be there.
    pub(super) fn too_far(&mut self, from: SocketAddr, first: Instance, effects: &mut Vec<Effect>) {
        let asked = self.catching.asked.is_some_and(|(donor, _)| donor == from);
        let behind = asked && first > self.agreement.log().next();
        if self.catching.snapshot.is_none() && (behind || self.is_gone(from)) {
            self.take_snapshot(from, effects);
        }
    }

    /// Whether the bytes of the next entry were asked of a peer that has executed it: it had them, and never will
    /// again.
    fn is_gone(&self, peer: SocketAddr) -> bool {
        let Some((next, Value::Large { name, .. })) = self.agreement.executable() else { return false };
        let executed = self.links.get(peer).is_some_and(|link| link.executed >= next);
        executed && self.data.source(name) == Some(peer)
    }

    pub(super) fn take_snapshot(&mut self, from: SocketAddr, effects: &mut Vec<Effect>) {
        self.catching.snapshot = Some(from);
        self.catching.asked = None;
        effects.push(Effect::Note(Note::TakingSnapshot { from }));
        effects.push(Effect::TakeSnapshot(from));
    }

    /// A peer wants decided entries from `first` on.
    pub(super) fn catch_up_asked(&mut self, from: SocketAddr, first: Instance, effects: &mut Vec<Effect>) {
        if self.agreement.schedule().is_none() {
            return;
        }
        let log = self.agreement.log();
        if first < log.first() {
            self.send(from, Message::TooFar { first: log.first() }, effects);
            return;
        }
        let entries = self.entries(first);
        let next = first.plus(entries.len() as u64);
        let executed = log.executed();
        self.send(from, Message::Decided { entries, executed }, effects);
        if let Some(link) = self.links.get_mut(from) {
            link.follows = (next > executed).then_some(next);
        }
    }

    /// Executed entries from `first` on, as many as one message takes.
    fn entries(&self, first: Instance) -> Vec<Proposal> {
        let log = self.agreement.log();
        let mut entries = Vec::new();
        let mut bytes = 0;
        let mut instance = first;
        while instance < log.next()
            && let Some(value) = log.get(instance)
        {
            bytes += match value {
                Value::Command(command) => command.len(),
                Value::Noop | Value::Large { .. } | Value::Config(_) | Value::Genesis(_) => 0,
            };
            if bytes > BATCH_BYTES_MAX || entries.len() >= ENTRIES_MAX {
                break;
            }
            entries.push(Proposal { instance, value: value.clone() });
            instance = instance.next();
        }
        entries
    }

    /// Learners that follow get every batch of executed entries as it comes. Voters have it by begin and success.
    pub(super) fn push_followers(&mut self, effects: &mut Vec<Effect>) {
        let Some(schedule) = self.agreement.schedule() else { return };
        let next = self.agreement.log().next();
        let behind: Vec<(SocketAddr, Instance)> = self
            .links
            .iter()
            .filter(|(_, link)| link.up && !schedule.of(next).is_voter(link.incarnation))
            .filter_map(|(peer, link)| {
                link.follows.filter(|follows| *follows < next).map(|follows| (peer, follows))
            })
            .collect();
        for (peer, follows) in behind {
            let first = self.agreement.log().first();
            let entries = if follows < first { Vec::new() } else { self.entries(follows) };
            let sent = follows.plus(entries.len() as u64);
            let executed = self.agreement.log().executed();
            if !entries.is_empty() {
                self.send(peer, Message::Decided { entries, executed }, effects);
            }
            if let Some(link) = self.links.get_mut(peer) {
                link.follows = (sent > follows).then_some(sent);
            }
            self.eager |= sent > follows && sent < next;
        }
    }

    /// A snapshot of that position is being handed out, the oldest of them: whoever takes it over needs what follows.
    pub fn pin(&mut self, position: Option<Instance>) {
        self.pinned = position;
    }

    /// Drops entries that every connected member has, within the log's limits.
    pub(super) fn trim_log(&mut self, now: Time) {
        let silence = self.silence_micros();
        let executed = self.agreement.log().executed();
        let slowest = self
            .links
            .iter()
            .filter(|(_, link)| link.alive(now, silence))
            .map(|(_, link)| link.executed)
            .min()
            .unwrap_or(executed);
        for name in self.agreement.log_mut().trim(slowest.next(), self.pinned) {
            if self.data.dropped(&name) && !self.is_pending(&name) {
                self.data.remove(&name);
            }
        }
    }

    /// Whether an entry that is not executed yet names that value.
    fn is_pending(&self, name: &DataName) -> bool {
        let names = |value: &Value| matches!(value, Value::Large { name: it, .. } if it == name);
        let next = self.agreement.log().next();
        self.agreement.log().ahead_from(next).any(|(_, value)| names(value))
            || self.agreement.acceptor().accepted_from(next).any(|(_, (_, value))| names(value))
            || self.queue.iter().any(names)
    }
}

/// Entries in one answer.
const ENTRIES_MAX: usize = 8192;
/// Decided entries that wait for execution before more are asked for.
const ASK_AHEAD_MAX: usize = 32_768;

const _: () = assert!((ASK_AHEAD_MAX + ENTRIES_MAX) as u64 <= crate::agreement::AHEAD_MAX);
