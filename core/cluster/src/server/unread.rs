//! [`Unread`]: versions that a settlement found marked at this server, and listed by nobody, and that the disk does not show.
//!
//! Nobody can say what they are, so they are neither done nor undone: they stay pending until they can be read and are
//! carried forward as any other, or until a set or a flush puts something in their place. (Rule 11)

use super::Server;
use super::judge;
use super::pendings::{Over, Pending};
use crate::{Fault, Head, Origin, Record, Refusal, Request, ServerEffect, Store, StoreKey};
use bytes::Bytes;
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Their keys. Each has a pending write without data, of which nothing was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread {
    keys: BTreeSet<StoreKey>,
    /// Looked at up to here.
    upto: Option<StoreKey>,
}

impl Unread {
    pub fn contains(&self, key: &StoreKey) -> bool {
        !self.keys.is_empty() && self.keys.contains(key)
    }

    pub fn remove(&mut self, key: &StoreKey) -> bool {
        !self.keys.is_empty() && self.keys.remove(key)
    }

    /// So many of them, all in turn.
    fn next(&mut self, count: usize) -> Vec<StoreKey> {
        let after = self.upto.take().map_or(Bound::Unbounded, Bound::Excluded);
        let next: Vec<StoreKey> = self.keys.range((after, Bound::Unbounded)).take(count).cloned().collect();
        self.upto = next.last().filter(|_| next.len() == count).cloned();
        next
    }
}

impl<S: Store> Server<S> {
    pub(super) fn leave_unread(&mut self, key: StoreKey, head: Head, origin: Option<Origin>) {
        let Some(world) = &self.world else { return };
        self.clock = self.clock.max(head.stamp.clock);
        let (stamp, kind, expiry) = (head.stamp, head.kind, head.expiry);
        let record = Record { stamp, kind, flags: 0, expiry, data: Bytes::new() };
        let mut pending = Pending::taken_over(record, origin);
        pending.waiting = world.others(world.arc(world.piece(key.hash))).collect();
        self.pending.insert(key.clone(), pending);
        self.unread.keys.insert(key);
    }

    /// Those that can be read now are carried forward.
    pub(super) fn read_unread(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        for key in self.unread.next(self.settings.limits.settled_max) {
            let Ok(Some(record)) = self.store.get(key.hash, &key.key) else { continue };
            let Some((mut pending, _)) = self.pending.remove(&key) else { continue };
            self.unread.keys.remove(&key);
            pending.record = record;
            self.begin(now, key, pending, effects);
        }
    }

    /// What is wanted of such a key: only what does not depend on its version can be done.
    pub(super) fn write_over_unread(
        &mut self,
        now: Time,
        from: ConnectionId,
        request: Request,
        key: StoreKey,
        effects: &mut Vec<ServerEffect>,
    ) {
        match judge::depends_on_version(&request.operation) {
            true => self.refuse(from, request.id, Refusal::Damaged, effects),
            false => self.execute(now, from, request, key, effects),
        }
    }

    /// Something takes its place. It may have been committed and shown, so it comes before that; and it may not have been,
    /// so nobody is told before that is committed.
    pub(super) fn put_over_unread(&mut self, key: &StoreKey, pending: &mut Pending) {
        let Some((unread, _)) = self.pending.remove(key) else { return };
        // What the store has may not be committed.
        pending.shows_old = false;
        pending.over = unread.origin.map(|origin| Box::new(Over { origin, waiter: unread.waiter }));
    }
}

pub(super) fn unread_fault() -> Fault {
    Fault::Damaged("a version that may not be committed cannot be read".to_owned())
}
