//! flush_all at a server: tombstones for all values with that prefix that it is primary of and that were there when it
//! was asked.

use super::Server;
use super::judge::{Content, Says};
use super::pendings::Pending;
use super::world::State;
use crate::{KeyHash, Kind, Message, ServerEffect, SpaceNumber, Stamp, Store, StoreKey};
use bytes::Bytes;
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use std::collections::BTreeSet;

/// A flush under way.
#[derive(Clone, Debug)]
pub(crate) struct Flush {
    to: ConnectionId,
    ticket: u64,
    /// Of the keys: a gateway that puts one before every key deletes nobody else's.
    prefix: Bytes,
    /// What is stamped above was written later.
    upto: Stamp,
    after: Option<StoreKey>,
    ended: bool,
    /// Tombstones that are not committed yet.
    open: BTreeSet<StoreKey>,
}

impl<S: Store> Server<S> {
    pub(super) fn flush(
        &mut self,
        now: Time,
        to: ConnectionId,
        ticket: u64,
        prefix: Bytes,
        effects: &mut Vec<ServerEffect>,
    ) {
        if self.flushes.len() >= FLUSHES_MAX {
            return;
        }
        let space = self.world.as_ref().map_or(SpaceNumber(0), |world| world.number());
        let upto = Stamp { space, clock: self.clock };
        let flush = Flush { to, ticket, prefix, upto, after: None, ended: false, open: BTreeSet::new() };
        self.flushes.push(flush);
        self.flush_more(now, effects);
    }

    /// In a new space others may own what was to be flushed: whoever asked is told by its own hash space.
    pub(super) fn flushes_broken(&mut self) {
        self.flushes.clear();
    }

    pub(super) fn flush_committed(&mut self, key: &StoreKey) {
        for flush in &mut self.flushes {
            flush.open.remove(key);
        }
    }

    /// A stretch of the store for the first flush; then those that are done are answered.
    pub(super) fn flush_more(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        if self.flushes.first().is_some_and(|flush| !flush.ended) {
            let mut flush = self.flushes.remove(0);
            self.flush_stretch(now, &mut flush, effects);
            if !flush.ended {
                self.tick_at = now.plus_micros(PAUSE_MICROS);
            }
            self.flushes.insert(0, flush);
        }
        self.flushes.retain_mut(|flush| {
            flush.open.retain(|key| self.pending.contains_key(key));
            let done = flush.ended && flush.open.is_empty();
            if done {
                effects.push(ServerEffect::Gateway(flush.to, Message::Flushed { ticket: flush.ticket }));
            }
            !done
        });
    }

    fn flush_stretch(&mut self, now: Time, flush: &mut Flush, effects: &mut Vec<ServerEffect>) {
        let first = flush.after.as_ref().map_or(KeyHash(0), |key| key.hash);
        let Ok(found) = self.store.scan(first, KeyHash(u64::MAX), flush.after.as_ref(), STRETCH) else {
            return;
        };
        flush.ended = found.len() < STRETCH;
        for (key, head) in found {
            let Some(world) = &self.world else { return };
            let piece = world.piece(key.hash);
            let primary = world.is_primary(world.arc(piece));
            if primary && (piece.state == State::Settling || self.is_busy(&key)) {
                // What it holds is not known yet, or too much is under way: on from here in a later turn.
                flush.ended = false;
                return;
            }
            flush.after = Some(key.clone());
            let mine = piece.state == State::Normal && primary && key.key.starts_with(&flush.prefix);
            if !mine || head.kind != Kind::Value || head.stamp > flush.upto || self.pending.contains_key(&key)
            {
                continue;
            }
            let content =
                Content { kind: Kind::Tombstone, flags: 0, expiry: 0, data: Bytes::new(), says: Says::Done };
            let record = self.stamped(Some(&head), &content);
            flush.open.insert(key.clone());
            self.begin(now, key, Pending::new(record, None), effects);
        }
    }
}

/// Flushes at a time. Beyond it they are not answered.
const FLUSHES_MAX: usize = 16;

/// Between two stretches: requests have their turn.
const PAUSE_MICROS: u64 = 1_000;

/// Records looked at in one turn.
const STRETCH: usize = 1024;
