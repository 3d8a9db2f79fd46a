//! Catching up: the receiving side of a copy. The range is made equal to the primary's, whatever the stamps,
//! except what the primary replicated meanwhile. (Rules 14 and 15)

use super::Server;
use super::world::State;
use crate::{
    Fault, Kind, Message, Mutation, Range, Record, ServerEffect, ServerId, SpaceNumber, Store, StoreKey,
};
use std::collections::BTreeMap;

impl<S: Store> Server<S> {
    pub(super) fn copy_digest(&mut self, from: ServerId, message: Message, effects: &mut Vec<ServerEffect>) {
        let Message::CopyDigest { job, space, range, count, digest: sum, remembered, lowest_open } = message
        else {
            return;
        };
        if !self.same_space(from, space, effects) {
            return;
        }
        let Some(part) = self.part_in_copy(from, job, range) else {
            effects.push(ServerEffect::Server(from, Message::CopyLater { job, range }));
            return;
        };
        let values = match self.values(range) {
            Ok(values) => values,
            Err(fault) => {
                self.store_fault(&fault, effects);
                effects.push(ServerEffect::Server(from, Message::CopyLater { job, range }));
                return;
            }
        };
        if part == Part::Catching {
            // Equal records may have unequal ids behind them.
            self.learn_ids(remembered, lowest_open);
        }
        let message = if digest(&values) == (count, sum) {
            Message::CopySame { job, range }
        } else {
            match part {
                Part::Catching => Message::CopyDiffers { job, range },
                Part::Owner => {
                    let heads = values.into_iter().map(|(key, head)| (key, head.stamp)).collect();
                    Message::CopyHeads { job, range, heads }
                }
            }
        };
        effects.push(ServerEffect::Server(from, message));
    }

    pub(super) fn copy_records(&mut self, from: ServerId, message: Message, effects: &mut Vec<ServerEffect>) {
        let Message::CopyRecords { job, space, range, records, pending, remembered, lowest_open } = message
        else {
            return;
        };
        if !self.same_space(from, space, effects) {
            return;
        }
        let catching = matches!(self.part_in_copy(from, job, range), Some(Part::Catching));
        let stored = catching && {
            match self.make_equal(range, records, &pending) {
                Ok(()) => true,
                Err(fault) => {
                    self.store_fault(&fault, effects);
                    false
                }
            }
        };
        if !stored {
            effects.push(ServerEffect::Server(from, Message::CopyLater { job, range }));
            return;
        }
        self.learn_ids(remembered, lowest_open);
        effects.push(ServerEffect::Server(from, Message::CopyStored { job, range }));
    }

    /// What this server is in that copy, if all of the range is in one such state and the sender its primary.
    fn part_in_copy(&self, from: ServerId, job: SpaceNumber, range: Range) -> Option<Part> {
        let world = self.world.as_ref()?;
        if world.space.whs_since != job {
            return None;
        }
        let index = world.space.index_of(from)?;
        let (first, last) = (world.position(range.first), world.position(range.last));
        let mut parts = world.pieces[first..=last].iter().map(|piece| {
            let arc = world.arc(piece);
            let from_primary =
                arc.primary() == Some(index) || self.settings.broken.is(Mutation::CopyFromAnyOwner);
            match piece.state {
                _ if !from_primary => None,
                State::Catching { since } if since == job => Some(Part::Catching),
                State::Normal if world.me.is_some_and(|me| arc.readers.contains(&me)) => Some(Part::Owner),
                State::Normal | State::Catching { .. } | State::Settling | State::Gone => None,
            }
        });
        let part = parts.next()??;
        parts.all(|other| other == Some(part)).then_some(part)
    }

    fn make_equal(
        &mut self,
        range: Range,
        records: Vec<(StoreKey, Record)>,
        pending: &[StoreKey],
    ) -> Result<(), Fault> {
        let mut records: BTreeMap<StoreKey, Record> = records.into_iter().collect();
        let mut after = None;
        loop {
            let here = self.store.scan(range.first, range.last, after.as_ref(), SCAN_COUNT)?;
            for (key, head) in &here {
                if self.replicated.contains(key) || pending.contains(key) {
                    records.remove(key);
                    continue;
                }
                match records.get(key) {
                    Some(record) if record.stamp == head.stamp && record.kind == head.kind => {
                        records.remove(key);
                    }
                    // Replaced below.
                    Some(_) => {}
                    None => self.store.remove(key.hash, &key.key)?,
                }
            }
            let full = here.len() == SCAN_COUNT;
            after = here.into_iter().next_back().map(|(key, _)| key);
            if !full {
                break;
            }
        }
        for (key, record) in records {
            if range.contains(key.hash) && !self.replicated.contains(&key) {
                self.clock = self.clock.max(record.stamp.clock);
                self.store.put(key.hash, &key.key, &record)?;
            }
        }
        Ok(())
    }

    /// Keys and heads of all values in the range.
    pub(super) fn values(&self, range: Range) -> Result<Vec<(StoreKey, crate::Head)>, Fault> {
        let mut values = Vec::new();
        let mut after = None;
        loop {
            let here = self.store.scan(range.first, range.last, after.as_ref(), SCAN_COUNT)?;
            let full = here.len() == SCAN_COUNT;
            after = here.last().map(|(key, _)| key.clone());
            values.extend(here.into_iter().filter(|(_, head)| head.kind == Kind::Value));
            if !full {
                return Ok(values);
            }
        }
    }
}

/// What a server is to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Catching,
    /// One that has the range already, in a full replace.
    Owner,
}

/// How many, and a hash over their keys and stamps. The key's own hash stands for it.
pub(super) fn digest(values: &[(StoreKey, crate::Head)]) -> (u64, u64) {
    let mut sum = 0u64;
    for (key, head) in values {
        for word in [key.hash.0, key.key.len() as u64, head.stamp.space.0, head.stamp.clock.0] {
            // A multiplicative step and a rotation: order matters, and every bit of the word counts.
            sum = (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^= sum >> 29;
        }
    }
    (values.len() as u64, sum)
}

/// Keys looked at in one call of the store.
const SCAN_COUNT: usize = 1024;
