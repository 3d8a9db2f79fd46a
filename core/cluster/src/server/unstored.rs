//! [`Unstored`]: committed versions that the disk does not show, and had no room for when they were to be put anew.
//!
//! The other owners have them. This server keeps them in memory until there is room: it is a copy for those who lose the
//! others, or come to be owners meanwhile.

use super::Server;
use super::pendings::ENTRY_BYTES;
use crate::{Fault, Record, ServerEffect, Stamp, Store, StoreKey};
use bytes::Bytes;
use std::collections::BTreeMap;

/// By key. Each counts as long as its version is the one that the disk has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unstored {
    records: BTreeMap<StoreKey, Record>,
    bytes: usize,
}

impl Unstored {
    /// False: it would be too much.
    fn keep(&mut self, key: &StoreKey, record: &Record) -> bool {
        self.forget(key);
        let bytes = self.bytes + bytes_of(key, record);
        if bytes > UNSTORED_BYTES_MAX {
            return false;
        }
        self.bytes = bytes;
        // Not with all that arrived with it.
        let name = StoreKey { hash: key.hash, key: Bytes::copy_from_slice(&key.key) };
        let data = Bytes::copy_from_slice(&record.data);
        self.records.insert(name, Record { data, ..record.clone() });
        true
    }

    fn forget(&mut self, key: &StoreKey) {
        if let Some(record) = self.records.remove(key) {
            self.bytes -= bytes_of(key, &record);
        }
    }

    pub fn retain(&mut self, stays: impl Fn(&StoreKey) -> bool) {
        self.records.retain(|key, _| stays(key));
        self.bytes = self.records.iter().map(|(key, record)| bytes_of(key, record)).sum();
    }
}

impl<S: Store> Server<S> {
    /// What is committed there, or pending, and was stored: from the disk, or from memory where that does not show it.
    pub(super) fn record(&self, key: &StoreKey) -> Result<Option<Record>, Fault> {
        let found = self.store.get(key.hash, &key.key);
        if found.is_ok() {
            return found;
        }
        match self.unstored.records.get(key).filter(|kept| self.has(key, kept.stamp)) {
            Some(kept) => Ok(Some(kept.clone())),
            None => found,
        }
    }

    /// The disk has that version, whether it shows it or not.
    pub(super) fn has(&self, key: &StoreKey, stamp: Stamp) -> bool {
        matches!(self.store.head(key.hash, &key.key), Ok(Some(head)) if head.stamp == stamp)
    }

    /// A write that a settlement took over, and that the disk was to take anew, is committed without that: there may be no
    /// room for long, and what is on the disk is no worse than it was.
    pub(super) fn keep_unstored(&mut self, key: &StoreKey, fault: &Fault) -> bool {
        let Some(pending) = self.pending.get(key) else { return false };
        let held = !pending.shows_old && self.has(key, pending.record.stamp);
        let kept = *fault == Fault::Full && held && self.have_others_for_good(key);
        kept && self.unstored.keep(key, &pending.record)
    }

    /// Another owner has it too, and stays one. Who leaves drops what it has, and who comes does so when the replace is
    /// cancelled: neither is a copy to count on.
    fn have_others_for_good(&self, key: &StoreKey) -> bool {
        let Some(world) = &self.world else { return false };
        let arc = world.arc(world.piece(key.hash));
        world.space.settled() && arc.readers.iter().any(|&one| Some(one) != world.me)
    }

    /// How many of them nobody else would have for good after the replace: all others do who leave. Who comes to an arc
    /// gets them.
    pub(super) fn alone_in_memory(&self) -> u64 {
        let Some(world) = self.world.as_ref().filter(|world| world.space.job.is_some()) else { return 0 };
        let stays = |index: u16| world.space.whs.contains(&index);
        if !world.me.is_some_and(stays) {
            return 0;
        }
        let is_alone = |key: &StoreKey| {
            let arc = world.arc(world.piece(key.hash));
            let mut others = arc.readers.iter().filter(|&&one| Some(one) != world.me).peekable();
            arc.comers.is_empty() && others.peek().is_some() && !others.any(|&one| stays(one))
        };
        let records = self.unstored.records.iter();
        records.filter(|(key, record)| is_alone(key) && self.has(key, record.stamp)).count() as u64
    }

    /// When there is room again.
    pub(super) fn store_unstored(&mut self, effects: &mut Vec<ServerEffect>) {
        if self.store.is_full() {
            return;
        }
        for _ in 0..self.settings.limits.changed_max {
            let Some((key, record)) = self.unstored.records.first_key_value() else { return };
            // Something may have taken its place.
            if self.has(key, record.stamp)
                && !self.shows(key)
                && let Err(fault) = self.store.put(key.hash, &key.key, record)
            {
                return self.store_fault(&fault, effects);
            }
            let key = key.clone();
            self.unstored.forget(&key);
        }
    }
}

fn bytes_of(key: &StoreKey, record: &Record) -> usize {
    ENTRY_BYTES + key.key.len() + record.data.len()
}

/// Of all of them. What would be more stays pending, and its key is not read, until there is room.
const UNSTORED_BYTES_MAX: usize = 16 << 20;
