//! Catching up: the receiving side of a copy. The range is made equal to the primary's, whatever the stamps,
//! except what the primary replicated meanwhile. (Rules 14 and 15)

use super::Server;
use super::world::State;
use crate::{
    Fault, Head, KeyHash, Kind, Message, Mutation, Range, Record, ServerEffect, ServerId, SpaceNumber, Store,
    StoreKey,
};
use std::collections::{BTreeMap, BTreeSet};

/// What is to be said of a copy once it is safe. The sender asks again meanwhile: one for each that it has under way.
#[derive(Clone, Debug)]
pub(super) struct UnsafeCopy {
    /// How far the store was written.
    written: u64,
    from: ServerId,
    range: Range,
    message: Message,
}

impl<S: Store> Server<S> {
    pub(super) fn copy_digest(&mut self, from: ServerId, message: Message, effects: &mut Vec<ServerEffect>) {
        let Message::CopyDigest { job, space, range, count, digest: sum } = message else { return };
        if !self.same_space(from, space, effects) {
            return;
        }
        let Some(part) = self.part_in_copy(from, job, range) else {
            effects.push(ServerEffect::Server(from, Message::CopyLater { job, range }));
            return;
        };
        let Some(mut values) = self.held_or_not(from, job, range, effects) else { return };
        values.retain(|(_, head)| head.kind == Kind::Value);
        let message = if digest(&values) == (count, sum) {
            if part == Part::Catching {
                return self.copied(from, Message::CopySame { job, range }, range, effects);
            }
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
        let Message::CopyRecords { job, space, range, records, pending } = message else { return };
        if !self.same_space(from, space, effects) {
            return;
        }
        if self.part_in_copy(from, job, range) != Some(Part::Catching) {
            effects.push(ServerEffect::Server(from, Message::CopyLater { job, range }));
            return;
        }
        let Some(here) = self.held_or_not(from, job, range, effects) else { return };
        let message = match self.make_equal(range, here, records, &pending) {
            Ok(()) => {
                return self.copied(from, Message::CopyStored { job, range }, range, effects);
            }
            Err(fault) => {
                self.store_fault(&fault, effects);
                Message::CopyLater { job, range }
            }
        };
        effects.push(ServerEffect::Server(from, message));
    }

    /// The range is equal. With the last one of an arc this server may become its owner, and the only one that is left
    /// of them: what it got has to be as safe from a loss of power as it was with those who gave it.
    fn copied(&mut self, from: ServerId, message: Message, range: Range, effects: &mut Vec<ServerEffect>) {
        let ends = self.world.as_ref().is_some_and(|world| world.table.arc(range.last).last == range.last);
        let written = self.store.written();
        let held = || self.unsafe_copies.iter().any(|copy| copy.from == from && copy.range == range);
        if !ends || self.store.safe_upto() >= written || self.settings.broken.is(Mutation::CopyUnsafe) {
            effects.push(ServerEffect::Server(from, message));
        } else if !held() {
            self.unsafe_copies.push(UnsafeCopy { written, from, range, message });
        }
    }

    /// Says of copies that they are done, once they are safe.
    pub(super) fn say_copied(&mut self, effects: &mut Vec<ServerEffect>) {
        if self.unsafe_copies.is_empty() {
            return;
        }
        let safe = self.store.safe_upto();
        let say = |copy: UnsafeCopy| ServerEffect::Server(copy.from, copy.message);
        effects.extend(self.unsafe_copies.extract_if(.., |copy| copy.written <= safe).map(say));
    }

    pub(super) fn copy_ids(&mut self, from: ServerId, message: Message, effects: &mut Vec<ServerEffect>) {
        let Message::CopyIds { job, space, range, after, remembered, lowest_open } = message else { return };
        if !self.same_space(from, space, effects) {
            return;
        }
        if self.part_in_copy(from, job, range) == Some(Part::Catching) {
            self.learn_ids(remembered, lowest_open);
            effects.push(ServerEffect::Server(from, Message::CopyIdsStored { job, range, after }));
        }
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
        here: Vec<(StoreKey, Head)>,
        records: Vec<(StoreKey, Record)>,
        pending: &[StoreKey],
    ) -> Result<(), Fault> {
        let mut records: BTreeMap<StoreKey, Record> = records.into_iter().collect();
        let pending: BTreeSet<&StoreKey> = pending.iter().collect();
        for (key, head) in &here {
            // What came by Replicate, and the primary of this space never heard of, is not in the way of what it has.
            let noted = self.replicated.contains(key) && !self.is_marked_before(key);
            if noted || pending.contains(key) {
                records.remove(key);
                continue;
            }
            match records.get(key) {
                Some(record) if record.stamp == head.stamp && record.kind == head.kind => {
                    records.remove(key);
                }
                // Replaced below.
                Some(_) => self.forget_note(key),
                None => {
                    self.forget_note(key);
                    self.store.remove(key.hash, &key.key)?;
                }
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

    /// It holds what was copied there, or nothing, instead of what came by Replicate.
    fn forget_note(&mut self, key: &StoreKey) {
        self.replicated.remove(key);
        self.dirty.remove(key);
    }

    /// What this server holds in the range of a bucket. If it cannot say, or it is too much, the sender is told.
    fn held_or_not(
        &self,
        from: ServerId,
        job: SpaceNumber,
        range: Range,
        effects: &mut Vec<ServerEffect>,
    ) -> Option<Vec<(StoreKey, Head)>> {
        let message = match self.held(range) {
            Ok(Held::All(here)) => return Some(here),
            Ok(Held::TooMuch { last }) => Message::CopyNarrow { job, range, last },
            Err(fault) => {
                self.store_fault(&fault, effects);
                Message::CopyLater { job, range }
            }
        };
        effects.push(ServerEffect::Server(from, message));
        None
    }

    /// Keys and heads of all records in the range, if they are few enough for one step.
    pub(super) fn held(&self, range: Range) -> Result<Held, Fault> {
        let here =
            self.store.scan(range.first, range.last, None, self.settings.limits.bucket_held_max + 1)?;
        match here.get(self.settings.limits.bucket_held_max).map(|(key, _)| key.hash) {
            Some(cut) if cut > range.first => Ok(Held::TooMuch { last: KeyHash(cut.0 - 1) }),
            // So many keys have one hash: they go together.
            Some(_) => Ok(Held::All(self.store.scan(range.first, range.last, None, usize::MAX)?)),
            None => Ok(Held::All(here)),
        }
    }
}

/// What a server holds in a range.
pub(super) enum Held {
    All(Vec<(StoreKey, Head)>),
    /// More than one step looks at; up to here it is little enough.
    TooMuch {
        last: KeyHash,
    },
}

/// What a server is to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Catching,
    /// One that has the range already, in a full replace.
    Owner,
}

/// How many, and a hash over their keys and stamps.
pub(super) fn digest(values: &[(StoreKey, Head)]) -> (u64, u64) {
    (values.len() as u64, digest_on(0, values))
}

/// A hash goes on over their keys and stamps. The key's own hash stands for it.
pub(super) fn digest_on(mut sum: u64, values: &[(StoreKey, Head)]) -> u64 {
    for (key, head) in values {
        for word in [key.hash.0, key.key.len() as u64, head.stamp.space.0, head.stamp.clock.0] {
            // A multiplicative step and a rotation: order matters, and every bit of the word counts.
            sum = (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^= sum >> 29;
        }
    }
    sum
}
