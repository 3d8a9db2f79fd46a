//! Repair: a full replace writes anew what owners hold differently; and records that cannot be read are told of. (Rule 15)

use super::Server;
use super::catching::Held;
use super::judge::{Content, Says};
use super::pendings::Pending;
use crate::{Fault, Kind, Range, Record, ServerEffect, ServerId, SpaceNumber, Stamp, Store, StoreKey};
use bytes::Bytes;
use kumo_paxos::Time;
use std::collections::BTreeMap;

impl<S: Store> Server<S> {
    /// A full replace found an owner that holds something else: every key that differs is written again, by the
    /// ordinary way of a write.
    pub(super) fn copy_heads(
        &mut self,
        now: Time,
        from: ServerId,
        job: SpaceNumber,
        range: Range,
        theirs: Vec<(StoreKey, Stamp)>,
        effects: &mut Vec<ServerEffect>,
    ) {
        if job != self.copies.job || self.copies.find(from, range).is_none() {
            return;
        }
        let normal = self.world.as_ref().is_some_and(|world| world.all_normal(range));
        // Too much is under way, or was written meanwhile: the bucket's time runs out, and it is tried again.
        let busy = self.pending.is_full() || self.links.iter().any(|link| link.is_busy());
        let Ok(Held::All(mine)) = self.held(range) else { return };
        if !normal || busy {
            return;
        }
        let mut theirs: BTreeMap<StoreKey, Stamp> = theirs.into_iter().collect();
        let mut differing = Vec::new();
        for (key, head) in mine.into_iter().filter(|(_, head)| head.kind == Kind::Value) {
            let other = theirs.remove(&key);
            if other != Some(head.stamp) {
                differing.push((key, other));
            }
        }
        let only_theirs = theirs.into_iter().filter(|(key, _)| range.contains(key.hash));
        differing.extend(only_theirs.map(|(key, other)| (key, Some(other))));
        let mut whole = true;
        for (key, other) in differing {
            whole &= self.write_again(now, key.clone(), other, effects);
            let pending = self.pending.get(&key).filter(|pending| !self.is_there(&key, pending));
            let stamp = pending.map(|pending| pending.record.stamp);
            if let (Some(stamp), Some(copy)) = (stamp, self.copies.find(from, range)) {
                copy.waits.insert(key, stamp);
            }
        }
        if whole {
            self.copies.unreadable.retain(|key| !range.contains(key.hash));
            self.copy_stored(now, from, job, range, effects);
        }
    }

    /// A record that is to be copied cannot be read: told once, and in the job's report until it can.
    pub(super) fn unreadable(&mut self, key: StoreKey, fault: &Fault, effects: &mut Vec<ServerEffect>) {
        if self.copies.unreadable.len() < UNREADABLE_MAX && self.copies.unreadable.insert(key) {
            self.store_fault(fault, effects);
        }
    }

    /// The key as it is, or its absence, under a stamp above its own and the other's to all owners. False: it cannot be
    /// read.
    fn write_again(
        &mut self,
        now: Time,
        key: StoreKey,
        other: Option<Stamp>,
        effects: &mut Vec<ServerEffect>,
    ) -> bool {
        if self.pending.contains_key(&key) {
            return true;
        }
        let found = match self.record(&key) {
            Ok(found) => found,
            Err(fault) => {
                self.unreadable(key, &fault, effects);
                return false;
            }
        };
        let content = match &found {
            Some(Record { kind: Kind::Value, flags, expiry, data, .. }) => Content {
                kind: Kind::Value,
                flags: *flags,
                expiry: *expiry,
                data: data.clone(),
                says: Says::Done,
            },
            _none => {
                Content { kind: Kind::Tombstone, flags: 0, expiry: 0, data: Bytes::new(), says: Says::Done }
            }
        };
        let head = self.store.head(key.hash, &key.key).ok().flatten();
        let mut record = self.stamped(head.as_ref(), &content);
        // A value that nobody wrote keeps its clock, which is its unique, where the space alone puts it above both.
        let above = |stamp: Stamp| stamp.space < record.stamp.space;
        if let (Some(head), Kind::Value) = (&head, content.kind)
            && above(head.stamp)
            && other.is_none_or(above)
        {
            record.stamp.clock = head.stamp.clock;
        }
        self.copies.records_sent += 1;
        self.copies.bytes_sent += record.data.len() as u64;
        self.begin(now, key, Pending::new(record, None), effects);
        true
    }
}

/// Records that a job's report counts as unreadable. Of more, an operator looks at the disk anyway.
const UNREADABLE_MAX: usize = 1024;
