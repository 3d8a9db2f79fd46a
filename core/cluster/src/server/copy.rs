//! The sending side of a copy: the primary brings those that are to become owners up to date, bucket by bucket.
//! A full replace compares the owners there are, and repairs by writing again. (Rule 15)

use super::Server;
use super::catching::digest;
use super::judge::{Content, Says};
use super::world::State;
use super::write::Pending;
use crate::{
    Arc, Head, KeyHash, Kind, Message, Mutation, Progress, Range, Record, Remembered, ServerEffect, ServerId,
    ServerNote, SpaceNumber, Stamp, Store, StoreKey,
};
use bytes::Bytes;
use kumo_paxos::Time;
use std::collections::BTreeMap;

/// This server's part in the replace that is under way.
#[derive(Debug)]
pub(crate) struct Copies {
    job: SpaceNumber,
    list: Vec<Copy>,
    /// Index of the first that may not be done.
    next: usize,
    records_sent: u64,
    bytes_sent: u64,
    /// Bytes that may be sent now, of the job's rate. Below 0: sent ahead, and to be waited for.
    allowance: i64,
    allowed_at: Time,
    reported: bool,
}

/// One arc for one server.
#[derive(Debug)]
struct Copy {
    to: ServerId,
    range: Range,
    /// From here on nothing was copied; none: all was.
    cursor: Option<KeyHash>,
    /// Asked or sent, and not answered.
    bucket: Option<Bucket>,
    /// Writes that were under way when their bucket was read: the arc is done when they are committed.
    waits: Vec<(StoreKey, Stamp)>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    range: Range,
    sent_at: Time,
}

impl Copy {
    fn is_done(&self) -> bool {
        self.cursor.is_none() && self.bucket.is_none() && self.waits.is_empty()
    }
}

impl Copies {
    pub fn new(now: Time) -> Copies {
        Copies {
            job: SpaceNumber(0),
            list: Vec::new(),
            next: 0,
            records_sent: 0,
            bytes_sent: 0,
            allowance: 0,
            allowed_at: now,
            reported: true,
        }
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
        }
    }

    /// A write is committed: nobody waits for it any more.
    pub fn committed(&mut self, key: &StoreKey, stamp: Stamp) {
        for copy in self.list.iter_mut().skip(self.next).filter(|copy| !copy.waits.is_empty()) {
            copy.waits.retain(|(waited, at)| waited != key || *at > stamp);
        }
    }

    fn find(&mut self, to: ServerId, range: Range) -> Option<&mut Copy> {
        let in_flight =
            |copy: &&mut Copy| copy.to == to && copy.bucket.is_some_and(|bucket| bucket.range == range);
        self.list.iter_mut().find(in_flight)
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
            self.copies = Copies { job, ..Copies::new(now) };
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
            for &to in arc.comers.iter().chain(owners) {
                let to = world.space.server(to);
                // A primary that settles anew cannot vouch for what it copied before.
                let goes_on = world.all_normal(range);
                let copy = before.remove(&(to, range)).filter(|_| goes_on);
                list.push(copy.map_or_else(|| Copy::new(to, range), Copy::begun_again));
            }
        }
        self.copies.next = 0;
        self.copies.reported = list.is_empty();
        if !list.is_empty() {
            effects.push(ServerEffect::Note(ServerNote::CopyBegan { copies: list.len() as u64 }));
        }
        self.copies.list = list;
        self.copy_more(now, effects);
    }

    /// Starts as many buckets as the window and the rate allow.
    pub(super) fn copy_more(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        let Some(job) = world.space.job else { return };
        self.copies.allow(now, job.rate);
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
        let mut in_flight = 0;
        for at in self.copies.next..self.copies.list.len() {
            if in_flight >= BUCKETS_MAX {
                break;
            }
            let copy = &self.copies.list[at];
            match copy.bucket {
                Some(bucket) if now.since(bucket.sent_at) <= AGAIN_MICROS => {
                    in_flight += 1;
                    continue;
                }
                Some(bucket) => self.copies.list[at].cursor = Some(bucket.range.first),
                None => {}
            }
            if self.start_bucket(now, at, job.rate, effects) {
                in_flight += 1;
            }
        }
    }

    fn start_bucket(&mut self, now: Time, at: usize, rate: u64, effects: &mut Vec<ServerEffect>) -> bool {
        let Some(world) = &self.world else { return false };
        let copy = &self.copies.list[at];
        let Some(cursor) = copy.cursor else { return false };
        // A settling primary copies nothing.
        if world.piece(cursor).state != State::Normal || (rate != 0 && self.copies.allowance <= 0) {
            return false;
        }
        let Some(index) = world.space.index_of(copy.to) else { return false };
        if !self.links[usize::from(index)].up {
            return false;
        }
        // Not beyond the piece: the next one may still be settling.
        let last = copy.range.last.min(world.piece(cursor).range.last);
        let Ok((range, heads)) = self.bucket(Range { first: cursor, last }) else { return false };
        let (job, space, to) = (self.copies.job, world.number(), copy.to);
        let pending = self.pending_in(range).next().is_some();
        let is_comer = world.table.arc(cursor).comers.contains(&index);
        self.sent(now, at, range);
        if pending && is_comer {
            // Digests would differ: at once what is committed, and the names of what is not.
            return self.send_records(now, at, range, effects);
        }
        let values: Vec<(StoreKey, Head)> =
            heads.into_iter().filter(|(_, head)| head.kind == Kind::Value).collect();
        let (count, digest) = digest(&values);
        let (remembered, lowest_open) = (self.settled_ids(range), self.ids.lowest_open());
        let message = Message::CopyDigest { job, space, range, count, digest, remembered, lowest_open };
        effects.push(ServerEffect::Server(to, message));
        true
    }

    fn sent(&mut self, now: Time, at: usize, range: Range) {
        let copy = &mut self.copies.list[at];
        copy.bucket = Some(Bucket { range, sent_at: now });
        copy.cursor = (range.last < copy.range.last).then(|| KeyHash(range.last.0 + 1));
    }

    /// The next stretch with a bounded number of records and bytes, cut between two hashes.
    #[allow(clippy::type_complexity)]
    fn bucket(&self, range: Range) -> Result<(Range, Vec<(StoreKey, Head)>), crate::Fault> {
        let mut heads = self.store.scan(range.first, range.last, None, BUCKET_RECORDS_MAX)?;
        let whole = heads.len() < BUCKET_RECORDS_MAX;
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
        self.pending.range(first..).take_while(move |(key, _)| key.hash <= range.last)
    }

    /// Committed versions with their ids; what is under way is only named. True: sent.
    fn send_records(&mut self, now: Time, at: usize, range: Range, effects: &mut Vec<ServerEffect>) -> bool {
        let Ok((range, heads)) = self.bucket(range) else { return false };
        let mut records = Vec::with_capacity(heads.len());
        let (mut pending, mut waits) = (Vec::new(), Vec::new());
        let broken = self.settings.broken.is(Mutation::CopyPending);
        for (key, under_way) in self.pending_in(range) {
            if broken {
                records.push((key.clone(), under_way.record.clone()));
                continue;
            }
            pending.push(key.clone());
            waits.push((key.clone(), under_way.record.stamp));
        }
        let mut bytes = 0u64;
        for (key, _) in heads {
            if self.pending.contains_key(&key) {
                continue;
            }
            let Ok(found) = self.store.get(key.hash, &key.key) else { return false };
            if let Some(record) = found {
                bytes += (record.data.len() + key.key.len()) as u64;
                records.push((key, record));
            }
        }
        let Some(world) = &self.world else { return false };
        let (job, space) = (self.copies.job, world.number());
        let (remembered, lowest_open) = (self.settled_ids(range), self.ids.lowest_open());
        self.copies.records_sent += records.len() as u64;
        self.copies.bytes_sent += bytes;
        self.copies.allowance = self.copies.allowance.saturating_sub(bytes as i64);
        self.sent(now, at, range);
        let copy = &mut self.copies.list[at];
        copy.waits.extend(waits);
        let to = copy.to;
        let message = Message::CopyRecords { job, space, range, records, pending, remembered, lowest_open };
        effects.push(ServerEffect::Server(to, message));
        true
    }

    /// Ids of committed writes: that of one under way travels with it alone.
    fn settled_ids(&self, range: Range) -> Vec<Remembered> {
        let mut ids = self.ids.in_ranges(&[range]);
        let under_way: Vec<KeyHash> = self.pending_in(range).map(|(key, _)| key.hash).collect();
        ids.retain(|one| !under_way.contains(&one.hash));
        ids
    }

    pub(super) fn copy_same(
        &mut self,
        now: Time,
        from: ServerId,
        job: SpaceNumber,
        range: Range,
        effects: &mut Vec<ServerEffect>,
    ) {
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
        let same = |copy: &Copy| copy.to == from && copy.bucket.is_some_and(|bucket| bucket.range == range);
        let Some(at) = self.copies.list.iter().position(same) else { return };
        let normal = self.world.as_ref().is_some_and(|world| world.all_normal(range));
        if normal {
            self.send_records(now, at, range, effects);
        }
    }

    /// Not now: the bucket's time runs out, and it is tried again.
    pub(super) fn copy_later(&mut self, _from: ServerId, _job: SpaceNumber, _range: Range) {}

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
        let Ok(mine) = self.values(range) else { return };
        if !normal {
            return;
        }
        let mut theirs: BTreeMap<StoreKey, Stamp> = theirs.into_iter().collect();
        let mut differing = Vec::new();
        for (key, head) in mine {
            if theirs.remove(&key) != Some(head.stamp) {
                differing.push(key);
            }
        }
        differing.extend(theirs.into_keys().filter(|key| range.contains(key.hash)));
        for key in differing {
            self.write_again(now, key.clone(), effects);
            let pending = self.pending.get(&key).map(|pending| pending.record.stamp);
            if let (Some(stamp), Some(copy)) = (pending, self.copies.find(from, range)) {
                copy.waits.push((key, stamp));
            }
        }
        self.copy_stored(now, from, job, range, effects);
    }

    /// The key as it is, or its absence, under a new stamp to all owners.
    fn write_again(&mut self, now: Time, key: StoreKey, effects: &mut Vec<ServerEffect>) {
        if self.pending.contains_key(&key) {
            return;
        }
        let Ok(found) = self.store.get(key.hash, &key.key) else { return };
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
        let record = self.stamped(head.as_ref(), &content);
        self.copies.records_sent += 1;
        self.copies.bytes_sent += record.data.len() as u64;
        self.begin(now, key, Pending::new(record, None), effects);
    }
}

impl Copy {
    fn new(to: ServerId, range: Range) -> Copy {
        Copy { to, range, cursor: Some(range.first), bucket: None, waits: Vec::new() }
    }

    /// In a new space what was under way is not answered any more: that bucket comes again.
    fn begun_again(self) -> Copy {
        let cursor = self.bucket.map(|bucket| bucket.range.first).or(self.cursor);
        Copy { cursor, bucket: None, ..self }
    }
}

impl Copies {
    /// The rate's share of the time since it was last counted, at most a second's.
    fn allow(&mut self, now: Time, rate: u64) {
        let micros = now.since(self.allowed_at);
        self.allowed_at = now;
        let more = u128::from(rate) * u128::from(micros) / 1_000_000;
        let (more, most) = (i64::try_from(more).unwrap_or(i64::MAX), i64::try_from(rate).unwrap_or(i64::MAX));
        self.allowance = self.allowance.saturating_add(more).min(most);
    }
}

/// Buckets under way at once: enough to keep the link busy, few enough to leave it to the clients.
const BUCKETS_MAX: usize = 8;
const BUCKET_RECORDS_MAX: usize = 512;
const BUCKET_BYTES_MAX: usize = 256 * 1024;

/// A bucket without an answer is tried again after this long.
const AGAIN_MICROS: u64 = 1_000_000;
