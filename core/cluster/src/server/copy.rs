//! The sending side of a copy: the primary brings those that are to become owners up to date, bucket by bucket.
//! A full replace compares the owners there are, and repairs by writing again. (Rule 15)

use super::Server;
use super::bucket::{Bucket, InFlight, Passed};
use super::catching::digest;
use super::pace::work_of;
use super::pendings::Pending;
use super::world::State;
use crate::{
    Arc, Head, KeyHash, Kind, Message, Mutation, Progress, Range, Remembered, RequestId, ServerEffect,
    ServerId, ServerNote, SpaceNumber, Stamp, Store, StoreKey,
};
use bytes::Bytes;
use kumo_paxos::Time;
use std::collections::{BTreeMap, BTreeSet};

/// This server's part in the replace that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Copies {
    pub(super) job: SpaceNumber,
    list: Vec<Copy>,
    /// Index of the first that may not be done.
    next: usize,
    pub(super) records_sent: u64,
    pub(super) bytes_sent: u64,
    /// Records that could not be read when their bucket was, and were noted.
    pub(super) unreadable: BTreeSet<StoreKey>,
    reported: bool,
    /// What some copy waited for came, and nothing else will have it go on.
    pub(super) wake: bool,
}

/// One arc for one server.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    to: ServerId,
    range: Range,
    /// How far the ids of the arc were copied. They come first: a write that is committed later brings its own.
    ids: Passed,
    /// The least that any part sent from there covers: an answer may be to an earlier one, which ended sooner.
    ids_covered: Option<Passed>,
    /// From here on nothing was copied; none: all was.
    cursor: Option<KeyHash>,
    /// The receiver has so much behind this place that the bucket must end there.
    narrow: Option<KeyHash>,
    /// Asked or sent, and not answered.
    bucket: Option<Bucket>,
    /// Writes that were under way when their bucket was read, and left out of it: the arc is done when the receiver has
    /// them. That they are committed is not waited for: an owner whose disk is full may be what they wait for, and who
    /// leads next carries them forward.
    pub(super) waits: BTreeMap<StoreKey, Stamp>,
    /// Some of those came, perhaps after what the answer to the last bucket says to be safe.
    late: bool,
}

impl Copy {
    fn is_done(&self) -> bool {
        self.is_all_sent() && self.bucket.is_none() && self.waits.is_empty() && !self.late
    }

    /// The receiver has it in that version, or a later one.
    /// Returns whether it was the last of all that is waited for.
    fn came(&mut self, key: &StoreKey, stamp: Stamp) -> bool {
        if self.waits.get(key).is_none_or(|at| *at > stamp) {
            return false;
        }
        self.waits.remove(key);
        // Whatever is still to be sent: the receiver may answer that from what it noted before.
        self.late = true;
        self.waits.is_empty() && self.is_all_sent() && self.bucket.is_none()
    }

    /// What came by itself may not be safe yet: the end of the arc is compared once more, for an answer of its own.
    fn ends_again(&mut self) -> bool {
        let again = self.late && self.waits.is_empty() && self.is_all_sent();
        if again {
            (self.late, self.cursor) = (false, Some(self.range.last));
        }
        again
    }

    /// There is nothing to start, though writes may have to be waited for.
    fn is_all_sent(&self) -> bool {
        self.ids == Passed::All && self.cursor.is_none()
    }

    /// The records of that range are under way.
    fn is_at(&self, to: ServerId, range: Range) -> bool {
        let same = |bucket: &Bucket| bucket.range == range && bucket.ids.is_none();
        self.to == to && self.bucket.as_ref().is_some_and(same)
    }

    /// The bucket waits until its time runs out.
    fn rest(&mut self) {
        if let Some(bucket) = &mut self.bucket {
            bucket.rest();
        }
    }

    /// The bucket comes again.
    fn step_back(&mut self) {
        if let Some(bucket) = self.bucket.take().filter(|bucket| bucket.ids.is_none()) {
            self.cursor = Some(bucket.range.first);
        }
    }
}

impl Copies {
    pub fn new() -> Copies {
        let (job, list) = (SpaceNumber(0), Vec::new());
        let unreadable = BTreeSet::new();
        Copies { job, list, next: 0, records_sent: 0, bytes_sent: 0, unreadable, reported: true, wake: false }
    }

    pub fn progress(&self) -> Progress {
        let done = self.list.iter().filter(|copy| copy.is_done()).count() as u64;
        let each = self.bytes_sent.checked_div(done).unwrap_or(0);
        let copies = self.list.len() as u64;
        Progress {
            job: self.job,
            copies,
            copies_done: done,
            records_sent: self.records_sent,
            bytes_sent: self.bytes_sent,
            bytes_left: each * (copies - done),
            unreadable: self.unreadable.len() as u64,
        }
    }

    /// All who are to have a write have it: nobody waits for it any more.
    pub fn arrived(&mut self, key: &StoreKey, stamp: Stamp) {
        self.unreadable.remove(key);
        for copy in self.list.iter_mut().skip(self.next) {
            self.wake |= copy.came(key, stamp);
        }
    }

    /// That server has it: nothing of its own waits for it any more.
    pub fn taken(&mut self, to: ServerId, key: &StoreKey, stamp: Stamp) {
        for copy in self.list.iter_mut().skip(self.next).filter(|copy| copy.to == to) {
            self.wake |= copy.came(key, stamp);
        }
    }

    pub(super) fn find(&mut self, to: ServerId, range: Range) -> Option<&mut Copy> {
        self.list.iter_mut().find(|copy| copy.is_at(to, range))
    }
}

#[cfg(feature = "mutants")]
impl Copies {
    pub fn portray(&self, hash: KeyHash, out: &mut impl std::fmt::Write) -> std::fmt::Result {
        let mut here = self.list.iter().filter(|copy| copy.range.contains(hash));
        here.try_for_each(|copy| write!(out, "{copy:?} "))
    }

    pub fn are_done_at(&self, hash: KeyHash) -> bool {
        self.list.iter().filter(|copy| copy.range.contains(hash)).all(Copy::is_done)
    }
}

impl<S: Store> Server<S> {
    /// What this server has to copy in the space it just adopted. What is done for the same job stays done: who
    /// catches up got every write since.
    pub(super) fn plan_copies(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        let job = world.space.whs_since;
        let mut before: BTreeMap<(ServerId, Range), Copy> = BTreeMap::new();
        if self.copies.job == job {
            before.extend(self.copies.list.drain(..).map(|copy| ((copy.to, copy.range), copy)));
        } else {
            self.copies = Copies { job, ..Copies::new() };
            self.pace.begin(now);
        }
        let full = world.space.job.is_some_and(|job| job.full);
        let mut list = Vec::new();
        let lax = self.settings.broken.is(Mutation::CopyFromAnyOwner);
        let mine = |arc: &&Arc| {
            world.is_primary(arc) || (lax && world.me.is_some_and(|me| arc.readers.contains(&me)))
        };
        for arc in world.table.arcs().iter().filter(mine) {
            let range = Range { first: arc.first, last: arc.last };
            // In a full replace the other owners are compared too.
            let owners = if full { &arc.readers[1..] } else { &[][..] };
            let comers = arc.comers.iter().map(|&to| (to, Passed::Upto(None)));
            for (to, ids) in comers.chain(owners.iter().map(|&to| (to, Passed::All))) {
                let to = world.space.server(to);
                // A primary that settles anew cannot vouch for what it copied before.
                let goes_on = world.all_normal(range);
                let copy = before.remove(&(to, range)).filter(|_| goes_on);
                list.push(copy.map_or_else(|| Copy::new(to, range, ids), Copy::begun_again));
            }
        }
        self.copies.next = 0;
        self.copies.reported = list.is_empty();
        if !list.is_empty() {
            effects.push(ServerEffect::Note(ServerNote::CopyBegan { copies: list.len() as u64 }));
        }
        let senders: BTreeSet<u16> = world.table.arcs().iter().filter_map(Arc::primary).collect();
        let receivers: BTreeSet<ServerId> = list.iter().map(|copy| copy.to).collect();
        self.pace.divide(senders.len(), receivers.len());
        self.copies.list = list;
        self.copy_more(now, effects);
    }

    /// Starts as many buckets as the window, the rate and the clients allow.
    pub(super) fn copy_more(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        (self.copy_at, self.copies.wake) = (None, false);
        let Some(world) = &self.world else { return };
        let Some(job) = world.space.job else { return };
        self.pace.allow(now, job.rate);
        while self.copies.list.get(self.copies.next).is_some_and(Copy::is_done) {
            self.copies.next += 1;
        }
        if self.copies.next == self.copies.list.len() && !self.copies.reported {
            self.copies.reported = true;
            let (records, bytes) = (self.copies.records_sent, self.copies.bytes_sent);
            effects.push(ServerEffect::Note(ServerNote::CopyDone { records, bytes }));
            // The master waits for this.
            self.alive_at = now;
            self.tick_at = now;
        }
        if job.paused {
            return;
        }
        let mut in_flight = InFlight::default();
        for at in self.copies.next..self.copies.list.len() {
            if in_flight.is_enough() {
                break;
            }
            let copy = &self.copies.list[at];
            match copy.bucket {
                Some(bucket) if in_flight.may_have(now, &bucket) => {
                    in_flight.add(&bucket);
                    continue;
                }
                Some(bucket) if bucket.rests && !in_flight.may_wake() => continue,
                Some(_) => self.copies.list[at].step_back(),
                None => {}
            }
            let copy = &mut self.copies.list[at];
            if copy.is_all_sent() && !copy.ends_again() {
                continue;
            }
            self.copy_at = self.pace.waits_until(now);
            if self.copy_at.is_some() {
                break;
            }
            if self.start_bucket(now, at, job.rate, effects)
                && let Some(bucket) = &self.copies.list[at].bucket
            {
                in_flight.add(bucket);
            }
        }
    }

    fn start_bucket(&mut self, now: Time, at: usize, rate: u64, effects: &mut Vec<ServerEffect>) -> bool {
        let Some(world) = &self.world else { return false };
        let copy = &self.copies.list[at];
        let link = world.space.index_of(copy.to).map(|index| &self.links[usize::from(index)]);
        if !link.is_some_and(|link| link.up) || !self.pace.within_rate(rate) {
            return false;
        }
        match copy.ids {
            Passed::Upto(after) => self.send_ids(now, at, after, effects),
            Passed::All => self.start_records(now, at, effects),
        }
    }

    /// The next part of the arc's ids of committed writes: that of one under way travels with it alone.
    fn send_ids(
        &mut self,
        now: Time,
        at: usize,
        after: Option<RequestId>,
        effects: &mut Vec<ServerEffect>,
    ) -> bool {
        let Some(world) = &self.world else { return false };
        let (to, range) = (self.copies.list[at].to, self.copies.list[at].range);
        // A settling primary copies nothing.
        if !world.all_normal(range) {
            return false;
        }
        let under_way: BTreeSet<RequestId> =
            self.pending_in(range).flat_map(|(_, pending)| pending.ids()).collect();
        let mut part = self.ids.part(after, self.settings.limits.ids_looked_max, |id, hash| {
            range.contains(hash) && !under_way.contains(&id)
        });
        if self.settings.broken.is(Mutation::CopyPendingIds) {
            part.remembered.extend(self.pending_ids(range));
        }
        let ids = part.next.map_or(Passed::All, |next| Passed::Upto(Some(next)));
        let work = work_of(part.remembered.len(), part.bytes);
        self.pace.spend(work);
        let message = Message::CopyIds {
            job: self.copies.job,
            space: world.number(),
            range,
            after,
            remembered: part.remembered,
            lowest_open: self.ids.lowest_open(),
        };
        let copy = &mut self.copies.list[at];
        copy.ids_covered = Some(copy.ids_covered.map_or(ids, |covered| covered.min(ids)));
        let bytes = part.bytes as u64;
        let ids = copy.ids_covered;
        copy.bucket = Some(Bucket { range, sent_at: now, ids, work, bytes, rests: false });
        effects.push(ServerEffect::Server(to, message));
        true
    }

    /// What is not to be copied: see [`Mutation::CopyPendingIds`].
    fn pending_ids(&self, range: Range) -> Vec<Remembered> {
        let remembered = |(key, pending): (&StoreKey, &Pending)| {
            let origin = pending.origin.as_ref()?;
            Some(Remembered { id: origin.id, hash: key.hash, reply: Some(origin.reply.clone()) })
        };
        self.pending_in(range).filter_map(remembered).collect()
    }

    fn start_records(&mut self, now: Time, at: usize, effects: &mut Vec<ServerEffect>) -> bool {
        let Some(world) = &self.world else { return false };
        let copy = &self.copies.list[at];
        let Some(cursor) = copy.cursor else { return false };
        if world.piece(cursor).state != State::Normal {
            return false;
        }
        // Not beyond the piece: the next one may still be settling.
        let last = copy.range.last.min(world.piece(cursor).range.last);
        let last = copy.narrow.filter(|narrow| *narrow >= cursor).map_or(last, |narrow| last.min(narrow));
        let (job, space, to) = (self.copies.job, world.number(), copy.to);
        let (range, heads) = match self.bucket(Range { first: cursor, last }) {
            Ok(bucket) => bucket,
            Err(fault) => {
                self.store_fault(&fault, effects);
                // Again after a while.
                self.sent(now, at, Range { first: cursor, last }, 0, 0);
                return false;
            }
        };
        let pending = self.pending_in(range).next().is_some();
        let is_comer =
            world.space.index_of(to).is_some_and(|to| world.table.arc(cursor).comers.contains(&to));
        let bytes = heads.iter().map(|(key, head)| key.key.len() + head.data_bytes as usize).sum();
        let work = work_of(heads.len(), bytes);
        self.pace.spend(work);
        self.sent(now, at, range, work, 0);
        if pending && is_comer {
            // Digests would differ: at once what is committed, and the names of what is not.
            return self.send_records(now, at, range, effects);
        }
        let values: Vec<(StoreKey, Head)> =
            heads.into_iter().filter(|(_, head)| head.kind == Kind::Value).collect();
        let (count, digest) = digest(&values);
        effects.push(ServerEffect::Server(to, Message::CopyDigest { job, space, range, count, digest }));
        true
    }

    fn sent(&mut self, now: Time, at: usize, range: Range, work: u64, bytes: u64) {
        let copy = &mut self.copies.list[at];
        copy.bucket = Some(Bucket { range, sent_at: now, ids: None, work, bytes, rests: false });
        copy.cursor = (range.last < copy.range.last).then(|| KeyHash(range.last.0 + 1));
    }

    /// The next stretch with a bounded number of records, bytes and writes under way, cut between two hashes.
    #[allow(clippy::type_complexity)]
    fn bucket(&self, range: Range) -> Result<(Range, Vec<(StoreKey, Head)>), crate::Fault> {
        let (mut range, mut heads) = self.stored_bucket(range)?;
        let beyond =
            self.pending_in(range).nth(self.settings.limits.bucket_records_max).map(|(key, _)| key.hash);
        if let Some(cut) = beyond.filter(|cut| *cut > range.first) {
            range.last = KeyHash(cut.0 - 1);
            heads.retain(|(key, _)| key.hash < cut);
        }
        Ok((range, heads))
    }

    #[allow(clippy::type_complexity)]
    fn stored_bucket(&self, range: Range) -> Result<(Range, Vec<(StoreKey, Head)>), crate::Fault> {
        let mut heads =
            self.store.scan(range.first, range.last, None, self.settings.limits.bucket_records_max)?;
        let whole = heads.len() < self.settings.limits.bucket_records_max;
        let mut bytes = 0usize;
        let mut count = 0;
        for (key, head) in &heads {
            bytes += key.key.len() + head.data_bytes as usize;
            if count > 0 && bytes > BUCKET_BYTES_MAX {
                break;
            }
            count += 1;
        }
        if whole && count == heads.len() {
            return Ok((range, heads));
        }
        let Some((cut, _)) = heads.get(count.min(heads.len() - 1)) else { return Ok((range, heads)) };
        let cut = cut.hash;
        if cut > range.first {
            heads.retain(|(key, _)| key.hash < cut);
            return Ok((Range { first: range.first, last: KeyHash(cut.0 - 1) }, heads));
        }
        // All of one hash: they go together.
        let last = range.first;
        let heads = self.store.scan(last, last, None, usize::MAX)?;
        Ok((Range { first: last, last }, heads))
    }

    fn pending_in(&self, range: Range) -> impl Iterator<Item = (&StoreKey, &Pending)> {
        let first = StoreKey { hash: range.first, key: Bytes::new() };
        self.pending.from(&first).take_while(move |(key, _)| key.hash <= range.last)
    }

    /// Committed versions with their ids; what is under way is only named. True: sent.
    fn send_records(&mut self, now: Time, at: usize, range: Range, effects: &mut Vec<ServerEffect>) -> bool {
        let Ok((range, heads)) = self.bucket(range) else { return false };
        let mut records = Vec::with_capacity(heads.len());
        let (mut pending, mut waits) = (Vec::new(), Vec::new());
        let broken = self.settings.broken.is(Mutation::CopyPending);
        let forgets = self.settings.broken.is(Mutation::LeftOutForgotten);
        let to = self.index_of(self.copies.list[at].to);
        for (key, under_way) in self.pending_in(range) {
            if broken {
                records.push((key.clone(), under_way.record.clone()));
                continue;
            }
            pending.push(key.clone());
            let lacks = to.is_none_or(|to| under_way.waiting.contains(to));
            // What nobody can show yet may be found to be no copy.
            if (lacks || self.unread.contains(key)) && !forgets {
                waits.push((key.clone(), under_way.record.stamp));
            }
        }
        let mut bytes = 0u64;
        for (key, _) in heads {
            if self.pending.contains_key(&key) {
                continue;
            }
            match self.record(&key) {
                Ok(Some(record)) => {
                    bytes += (record.data.len() + key.key.len()) as u64;
                    records.push((key, record));
                }
                Ok(None) => {}
                // The bucket's time runs out, and it is tried again: with a part missing it is no copy.
                Err(fault) => {
                    self.copies.list[at].rest();
                    self.unreadable(key, &fault, effects);
                    return false;
                }
            }
        }
        self.copies.unreadable.retain(|key| !range.contains(key.hash));
        self.copies.unreadable.extend(pending.iter().filter(|key| self.unread.contains(key)).cloned());
        let Some(world) = &self.world else { return false };
        let (job, space) = (self.copies.job, world.number());
        self.copies.records_sent += records.len() as u64;
        self.copies.bytes_sent += bytes;
        self.pace.sent(bytes);
        // Counted when it was begun.
        let work = self.copies.list[at].bucket.map_or(0, |bucket| bucket.work);
        self.sent(now, at, range, work, bytes);
        let copy = &mut self.copies.list[at];
        copy.waits.extend(waits);
        let to = copy.to;
        let message = Message::CopyRecords { job, space, range, records, pending };
        effects.push(ServerEffect::Server(to, message));
        true
    }

    pub(super) fn copy_ids_stored(
        &mut self,
        now: Time,
        from: ServerId,
        job: SpaceNumber,
        range: Range,
        after: Option<RequestId>,
        effects: &mut Vec<ServerEffect>,
    ) {
        if job != self.copies.job {
            return;
        }
        let asked =
            |copy: &&mut Copy| copy.to == from && copy.range == range && copy.ids == Passed::Upto(after);
        let Some(copy) = self.copies.list.iter_mut().find(asked) else { return };
        let Some(passed) = copy.bucket.and_then(|bucket| bucket.ids) else { return };
        (copy.ids, copy.ids_covered, copy.bucket) = (passed, None, None);
        self.copy_more(now, effects);
    }

    /// The same bucket again, but shorter.
    pub(super) fn copy_narrow(
        &mut self,
        now: Time,
        from: ServerId,
        job: SpaceNumber,
        range: Range,
        last: KeyHash,
        effects: &mut Vec<ServerEffect>,
    ) {
        if job != self.copies.job || !range.contains(last) {
            return;
        }
        if let Some(copy) = self.copies.find(from, range) {
            copy.step_back();
            copy.narrow = Some(last);
            self.copy_more(now, effects);
        }
    }

    pub(super) fn copy_same(
        &mut self,
        now: Time,
        from: ServerId,
        job: SpaceNumber,
        range: Range,
        effects: &mut Vec<ServerEffect>,
    ) {
        if job != self.copies.job {
            return;
        }
        if let Some(bucket) = self.copies.find(from, range).and_then(|copy| copy.bucket) {
            self.pace.spare(bucket.work);
        }
        self.copy_stored(now, from, job, range, effects);
    }

    pub(super) fn copy_stored(
        &mut self,
        now: Time,
        from: ServerId,
        job: SpaceNumber,
        range: Range,
        effects: &mut Vec<ServerEffect>,
    ) {
        if job != self.copies.job {
            return;
        }
        if let Some(copy) = self.copies.find(from, range) {
            copy.bucket = None;
            self.copy_more(now, effects);
        }
    }

    pub(super) fn copy_differs(
        &mut self,
        now: Time,
        from: ServerId,
        job: SpaceNumber,
        range: Range,
        effects: &mut Vec<ServerEffect>,
    ) {
        if job != self.copies.job {
            return;
        }
        let Some(at) = self.copies.list.iter().position(|copy| copy.is_at(from, range)) else { return };
        let normal = self.world.as_ref().is_some_and(|world| world.all_normal(range));
        if normal {
            self.send_records(now, at, range, effects);
        }
    }

    /// Not now: the bucket's time runs out, and it is tried again.
    pub(super) fn copy_later(&mut self, from: ServerId, job: SpaceNumber, range: Range) {
        if job == self.copies.job
            && let Some(copy) = self.copies.find(from, range)
        {
            copy.rest();
        }
    }
}

impl Copy {
    fn new(to: ServerId, range: Range, ids: Passed) -> Copy {
        let (cursor, waits) = (Some(range.first), BTreeMap::new());
        Copy { to, range, ids, ids_covered: None, cursor, narrow: None, bucket: None, waits, late: false }
    }

    /// In a new space what was under way is not answered any more: that bucket comes again.
    fn begun_again(mut self) -> Copy {
        self.step_back();
        self
    }
}

/// Data of a bucket; one record is let in whatever its size.
const BUCKET_BYTES_MAX: usize = 64 * 1024;
