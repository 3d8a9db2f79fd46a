//! [`Flushes`]: flush_all at a server: tombstones for all values with that prefix that it is primary of.
//!
//! A key is flushed when the walk through the store reaches it, behind the write that is under way there: so every
//! write of the key is before the flush or after it, also one that builds on the value before.

use super::Server;
use super::ids::Known;
use super::judge::{Content, Says};
use super::pendings::Pending;
use super::world::State;
use crate::{
    Answer, GatewayId, KeyHash, Kind, Message, Mutation, Refusal, RequestId, ServerEffect, SpaceNumber,
    Store, StoreKey,
};
use bytes::Bytes;
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is flushed in this space, and was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flushes {
    /// In the order they came; the first is carried out.
    open: VecDeque<Flush>,
    /// Those that are over, and why they were refused, until their gateway has all answers: a try that comes late is not
    /// carried out again. One that was refused may have deleted something before.
    over: BTreeMap<RequestId, Option<Refusal>>,
}

/// A flush under way.
#[derive(Clone, Debug)]
struct Flush {
    to: ConnectionId,
    id: RequestId,
    /// Of the keys: a gateway that puts one before every key deletes nobody else's.
    prefix: Bytes,
    after: Option<StoreKey>,
    ended: bool,
    /// Keys with a write under way, to be flushed behind it.
    behind: BTreeSet<StoreKey>,
    /// Tombstones that are not committed yet.
    open: BTreeSet<StoreKey>,
    /// It cannot be done.
    refusal: Option<Refusal>,
}

impl Flushes {
    /// What was under way for that key is committed.
    pub fn committed(&mut self, key: &StoreKey) {
        for flush in &mut self.open {
            flush.open.remove(key);
        }
    }

    /// How many of that gateway's are over.
    fn of(&self, gateway: GatewayId) -> usize {
        let numbered = |seq| RequestId { gateway, seq };
        self.over.range(numbered(0)..=numbered(u64::MAX)).count()
    }
}

impl<S: Store> Server<S> {
    pub(super) fn flush(
        &mut self,
        now: Time,
        to: ConnectionId,
        message: Message,
        effects: &mut Vec<ServerEffect>,
    ) {
        let Message::Flush { space, id, lowest_open, prefix } = message else { return };
        let number = self.world.as_ref().map_or(SpaceNumber(0), |world| world.number());
        if space > number {
            effects.push(ServerEffect::Gateway(to, Message::WantSpace { above: number }));
            return self.answer(to, id.seq, Answer::Wait, effects);
        }
        if space < number {
            // Others may order the keys that were meant.
            return self.wrong_space(to, space, id.seq, effects);
        }
        if self.gateway_expired(id.gateway) {
            let reason = Refusal::GatewayExpired;
            return self.answer(to, id.seq, Answer::Refused { reason }, effects);
        }
        self.ids.close(id.gateway, lowest_open);
        if self.flush_closed(id) {
            let reason = Refusal::Answered;
            return self.answer(to, id.seq, Answer::Refused { reason }, effects);
        }
        let over = self.flushes.over.get(&id).filter(|_| !self.settings.broken.is(Mutation::FlushAgain));
        if let Some(&refusal) = over {
            return self.say_over(to, id, refusal, effects);
        }
        if let Some(flush) = self.flushes.open.iter_mut().find(|flush| flush.id == id) {
            let before = std::mem::replace(&mut flush.to, to);
            if before != to {
                self.answer(before, id.seq, Answer::Wait, effects);
            }
            return;
        }
        self.forget_flushes();
        self.drop_flushes();
        if self.flushes.open.len() >= FLUSHES_MAX || self.flushes.of(id.gateway) >= OVER_MAX {
            return self.answer(to, id.seq, Answer::Wait, effects);
        }
        let (behind, open) = (BTreeSet::new(), BTreeSet::new());
        let flush = Flush { to, id, prefix, after: None, ended: false, behind, open, refusal: None };
        self.flushes.open.push_back(flush);
        self.flush_more(now, effects);
    }

    /// Those that their gateway knows to be over cannot come again: their numbers are closed.
    fn forget_flushes(&mut self) {
        let ids = &self.ids;
        self.flushes.over.retain(|&id, _| !matches!(ids.look(id), Known::Closed));
    }

    /// Nobody wants the rest of those that their gateway gave up: it would delete what was set long after.
    fn drop_flushes(&mut self) {
        let mut flushes = std::mem::take(&mut self.flushes.open);
        flushes.retain(|flush| !self.flush_closed(flush.id));
        self.flushes.open = flushes;
    }

    /// Its gateway has said that it is over.
    fn flush_closed(&self, id: RequestId) -> bool {
        matches!(self.ids.look(id), Known::Closed) && !self.settings.broken.is(Mutation::FlushAgain)
    }

    /// In a new space others may own what was to be flushed: it begins anew there. What was done in the one before is
    /// done no more, and whatever is still on its way names that one.
    pub(super) fn flushes_broken(&mut self, effects: &mut Vec<ServerEffect>) {
        let newest = self.world.as_ref().map_or(SpaceNumber(0), |world| world.number());
        for flush in std::mem::take(&mut self.flushes).open {
            self.answer(flush.to, flush.id.seq, Answer::WrongSpace { newest }, effects);
        }
    }

    /// A stretch of the store for the first flush; then it is answered, if it is done.
    pub(super) fn flush_more(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        self.drop_flushes();
        if self.flushes.open.front().is_some_and(|flush| !flush.ended && flush.refusal.is_none()) {
            self.flush_stretch(now, effects);
        }
        let early = self.settings.broken.is(Mutation::FlushEarly);
        let over = |flush: &Flush| {
            let committed = flush.open.is_empty() && flush.behind.is_empty();
            flush.ended && (committed || early) || flush.refusal.is_some()
        };
        if let Some(flush) = self.flushes.open.pop_front_if(|flush| over(flush)) {
            self.flush_over(&flush, effects);
        }
        if self.flushes.open.front().is_some_and(|flush| !flush.ended) {
            self.tick_at = self.tick_at.min(now.plus_micros(PAUSE_MICROS));
        }
    }

    fn flush_over(&mut self, flush: &Flush, effects: &mut Vec<ServerEffect>) {
        self.flushes.over.insert(flush.id, flush.refusal);
        self.say_over(flush.to, flush.id, flush.refusal, effects);
    }

    fn say_over(
        &mut self,
        to: ConnectionId,
        id: RequestId,
        refusal: Option<Refusal>,
        effects: &mut Vec<ServerEffect>,
    ) {
        if let Some(reason) = refusal {
            return self.answer(to, id.seq, Answer::Refused { reason }, effects);
        }
        let space = self.world.as_ref().map_or(SpaceNumber(0), |world| world.number());
        effects.push(ServerEffect::Gateway(to, Message::Flushed { space, seq: id.seq }));
    }

    fn flush_stretch(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        let Some(flush) = self.flushes.open.front() else { return };
        let (after, prefix) = (flush.after.clone(), flush.prefix.clone());
        let first = after.as_ref().map_or(KeyHash(0), |key| key.hash);
        let found =
            match self.store.scan(first, KeyHash(u64::MAX), after.as_ref(), self.settings.limits.flushed_max)
            {
                Ok(found) => found,
                Err(fault) => {
                    self.store_fault(&fault, effects);
                    return self.flush_refused(Refusal::Damaged);
                }
            };
        let ended = found.len() < self.settings.limits.flushed_max;
        for (key, _) in found {
            let Some(world) = &self.world else { return };
            let piece = world.piece(key.hash);
            let mine = world.is_primary(world.arc(piece)) && key.key.starts_with(&prefix);
            if mine && (piece.state != State::Normal || self.is_busy(&key)) {
                // What it holds is not known yet, or too much is under way: on from here in a later turn.
                return;
            }
            let waits = |pending: &Pending| self.waits_for_copies(&key, pending);
            if mine && self.pending.get(&key).is_some_and(waits) {
                // In another space the flush would begin anew anyway.
                return self.flush_refused(Refusal::FewCopies);
            }
            let Some(flush) = self.flushes.open.front_mut() else { return };
            flush.after = Some(key.clone());
            if mine && self.pending.contains_key(&key) && !self.unread.contains(&key) {
                if !self.settings.broken.is(Mutation::FlushPassesPending) {
                    flush.behind.insert(key);
                }
            } else if mine {
                flush.open.insert(key.clone());
                self.flush_key(now, key, effects);
                if self.flushes.open.front().is_some_and(|flush| flush.refusal.is_some()) {
                    return;
                }
            }
        }
        if let Some(flush) = self.flushes.open.front_mut() {
            flush.ended = ended;
        }
    }

    fn flush_refused(&mut self, reason: Refusal) {
        if let Some(flush) = self.flushes.open.front_mut() {
            flush.refusal = Some(reason);
        }
    }

    /// The write of that key that a flush stood behind is committed: the flush comes before all that wait.
    pub(super) fn flush_behind(&mut self, now: Time, key: &StoreKey, effects: &mut Vec<ServerEffect>) {
        let Some(flush) = self.flushes.open.iter_mut().find(|flush| flush.behind.contains(key)) else {
            return;
        };
        flush.behind.remove(key);
        flush.open.insert(key.clone());
        self.flush_key(now, key.clone(), effects);
    }

    /// A tombstone, if there is a value. Nothing is under way for the key.
    fn flush_key(&mut self, now: Time, key: StoreKey, effects: &mut Vec<ServerEffect>) {
        let head = match self.store.head(key.hash, &key.key) {
            // Of one that cannot be read the others may have a value.
            Ok(Some(head)) if head.kind == Kind::Value || self.unread.contains(&key) => head,
            Ok(_) => return self.flushes.committed(&key),
            Err(fault) => {
                self.store_fault(&fault, effects);
                self.flushes.committed(&key);
                return self.flush_refused(Refusal::Damaged);
            }
        };
        if let Some(reason) = self.refusal(&key) {
            self.flushes.committed(&key);
            return self.flush_refused(reason);
        }
        let content =
            Content { kind: Kind::Tombstone, flags: 0, expiry: 0, data: Bytes::new(), says: Says::Done };
        let record = self.stamped(Some(&head), &content);
        self.begin(now, key, Pending::new(record, None), effects);
    }
}

/// Flushes at a time. Beyond it they are told to ask again.
const FLUSHES_MAX: usize = 16;

/// Flushes of one gateway that are remembered as over: as many as it has at a time. It closes them with its next request
/// of any kind.
const OVER_MAX: usize = 64;

/// Between two stretches: requests have their turn.
const PAUSE_MICROS: u64 = 1_000;
