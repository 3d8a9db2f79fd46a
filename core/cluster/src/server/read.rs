//! Reads: under the lease, or after all others of A(k) confirmed the space; never an unconfirmed version.

use super::Server;
use super::expire::Expiry;
use super::ids::Known;
use super::judge::{self, Verdict};
use super::pendings::bytes_of;
use super::unread::unread_fault;
use super::world::State;
use crate::{
    Answer, Committed, Fault, KeyHash, Kind, Message, Mutation, Operation, Record, Refusal, Request,
    RequestId, ServerEffect, ServerId, SpaceNumber, Stamp, Store, StoreKey,
};
use bytes::Bytes;
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Reads that wait for somebody else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads {
    /// Without a lease: answered when a round of confirmations that began after they came is complete.
    unleased: VecDeque<(ConnectionId, Request)>,
    round: Option<Round>,
    /// What both of them keep: gets, and negative answers, which wait with all that their writes would have stored.
    get_bytes: usize,
    no_bytes: usize,
    /// Asked of a primary.
    asked: BTreeMap<u64, Asked>,
    ticket: u64,
    /// The last mark asked about, if there were more.
    marks_upto: Option<StoreKey>,
}

/// One question to all others: are you in this space too?
#[derive(Clone, Debug)]
struct Round {
    ticket: u64,
    began: Time,
    confirmed: BTreeSet<u16>,
    reads: Vec<(ConnectionId, Request)>,
}

#[derive(Clone, Debug)]
struct Asked {
    began: Time,
    what: Wanted,
}

/// What is done with a primary's word.
#[derive(Clone, Debug)]
enum Wanted {
    /// Passed on to a gateway.
    Read(ConnectionId, u64, StoreKey),
    /// Clears a mark that no watermark will.
    Mark(StoreKey),
}

impl Reads {
    pub fn len(&self) -> usize {
        let in_round = self.round.as_ref().map_or(0, |round| round.reads.len());
        self.unleased.len() + in_round + self.asked.len()
    }

    /// Of requests like that one no more can wait.
    fn is_full_for(&mut self, request: &Request) -> bool {
        self.unleased.len() >= UNLEASED_MAX || *self.bytes_like(request) >= UNLEASED_BYTES_MAX
    }

    /// A few large values that are added do not keep gets out, which hold none.
    fn bytes_like(&mut self, request: &Request) -> &mut usize {
        if request.operation == Operation::Get { &mut self.get_bytes } else { &mut self.no_bytes }
    }

    /// They wait no more.
    fn released(&mut self, reads: &[(ConnectionId, Request)]) {
        for (_, request) in reads {
            *self.bytes_like(request) -= bytes_of(request);
        }
    }
}

impl<S: Store> Server<S> {
    /// Rule 8.
    pub(super) fn get(
        &mut self,
        now: Time,
        from: ConnectionId,
        request: Request,
        effects: &mut Vec<ServerEffect>,
    ) {
        let Some(world) = &self.world else {
            return self.answer(from, request.id.seq, Answer::Wait, effects);
        };
        let piece = world.piece(request.hash);
        if !world.me.is_some_and(|me| world.arc(piece).readers.contains(&me)) {
            return self.wrong_space(from, request.space, request.id.seq, effects);
        }
        if piece.state != State::Normal {
            return self.answer(from, request.id.seq, Answer::Wait, effects);
        }
        if !self.may_read(now, &request) && !self.settings.broken.is(Mutation::ReadWithoutLease) {
            return self.read_later(now, from, request, effects);
        }
        self.read(now, from, &request, effects);
    }

    /// A lease, or nobody else that could know better.
    fn may_read(&self, now: Time, request: &Request) -> bool {
        let Some(world) = &self.world else { return false };
        let arc = world.arc(world.piece(request.hash));
        self.has_lease(now) || world.others(arc).next().is_none()
    }

    /// The read itself, when it is certain that this server is still an owner.
    fn read(&mut self, now: Time, from: ConnectionId, request: &Request, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        let seq = request.id.seq;
        let key = StoreKey { hash: request.hash, key: request.key.clone() };
        let arc = world.arc(world.piece(request.hash));
        if !world.is_primary(arc) {
            let primary = arc.primary();
            return self.read_as_other(now, from, seq, key, primary, effects);
        }
        match self.expire_first(now, &key, effects) {
            Expiry::Settled => {}
            Expiry::UnderWay => return self.answer(from, seq, Answer::Wait, effects),
            Expiry::Hindered(answer) => return self.answer(from, seq, answer, effects),
        }
        let answer = match self.committed(now, &key) {
            Ok(None) => Answer::Wait,
            Ok(Some(Committed { record, .. })) => self.shown(now, record.as_ref()),
            Err(fault) => self.hidden_by(&fault, effects),
        };
        self.answer(from, seq, answer, effects);
    }

    /// Another owner: an unconfirmed version, or one about to expire, is the primary's to judge. (Rules 8, 18)
    fn read_as_other(
        &mut self,
        now: Time,
        from: ConnectionId,
        seq: u64,
        key: StoreKey,
        primary: Option<u16>,
        effects: &mut Vec<ServerEffect>,
    ) {
        let record = match self.record(&key) {
            Ok(record) => record,
            Err(fault) => {
                let answer = self.hidden_by(&fault, effects);
                return self.answer(from, seq, answer, effects);
            }
        };
        let soon = self.cell_seconds(now) + EXPIRY_DOUBT_SECONDS;
        let doubtful =
            record.as_ref().is_some_and(|record| record.expiry != 0 && u64::from(record.expiry) <= soon);
        let dirty = self.dirty.contains_key(&key) && !self.settings.broken.is(Mutation::ReplicaShowsDirty);
        if !dirty && !doubtful {
            let answer = self.shown(now, record.as_ref());
            return self.answer(from, seq, answer, effects);
        }
        match primary {
            Some(primary) if self.links[usize::from(primary)].up && self.reads.asked.len() < ASKED_MAX => {
                self.ask(now, primary, key.clone(), Wanted::Read(from, seq, key), effects);
            }
            _nobody => self.answer(from, seq, Answer::Wait, effects),
        }
    }

    fn ask(&mut self, now: Time, primary: u16, key: StoreKey, what: Wanted, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        let space = world.number();
        self.reads.ticket += 1;
        let ticket = self.reads.ticket;
        self.reads.asked.insert(ticket, Asked { began: now, what });
        self.send(primary, Message::AskPrimary { space, ticket, key }, effects);
    }

    /// At the primary: what is committed for the key; `None` while that is being settled.
    fn committed(&self, now: Time, key: &StoreKey) -> Result<Option<Committed>, Fault> {
        let pending = self.pending.get(key);
        if let Some(pending) = pending {
            if self.settings.broken.is(Mutation::PrimaryShowsPending) {
                let record = Some(pending.record.clone());
                return Ok(Some(Committed { record, settled: false }));
            }
            if self.unread.contains(key) {
                return Err(unread_fault());
            }
            if !pending.shows_old {
                return Ok(None);
            }
        }
        let expired = |record: &Record| record.kind == Kind::Value && self.expired(now, record.expiry);
        match self.record(key) {
            // The write under way may have found it alive: shown as missing meanwhile, it would come back.
            Ok(Some(record)) if pending.is_some() && expired(&record) => Ok(None),
            Ok(record) => Ok(Some(Committed { record, settled: pending.is_none() })),
            Err(fault) => Err(fault),
        }
    }

    /// Another owner may have it. The operator should know, though the client may never notice.
    fn hidden_by(&self, fault: &Fault, effects: &mut Vec<ServerEffect>) -> Answer {
        self.store_fault(fault, effects);
        Answer::Refused { reason: Refusal::Damaged }
    }

    /// Whether it has expired was the primary's to judge, and it would have put a tombstone in its place.
    fn shown(&self, now: Time, record: Option<&Record>) -> Answer {
        match record {
            Some(record) if record.kind == Kind::Value => judge::shown(record, self.cell_seconds(now)),
            _missing => Answer::Missing,
        }
    }

    pub(super) fn asked(
        &mut self,
        now: Time,
        from: ServerId,
        space: SpaceNumber,
        ticket: u64,
        key: StoreKey,
        effects: &mut Vec<ServerEffect>,
    ) {
        if !self.same_space(from, space, effects) {
            return;
        }
        let Some(world) = &self.world else { return };
        let piece = world.piece(key.hash);
        let mine = world.is_primary(world.arc(piece)) && piece.state == State::Normal;
        let mine = mine && self.expire_first(now, &key, effects) == Expiry::Settled;
        let (found, unreadable) = match mine.then(|| self.committed(now, &key)) {
            Some(Ok(found)) => (found, None),
            Some(Err(_)) => (None, self.unreadable_stamp(&key)),
            None => (None, None),
        };
        let message = Message::PrimarySays { space, ticket, found, unreadable };
        effects.push(ServerEffect::Server(from, message));
    }

    /// At the primary, of a key that it cannot read: which version is committed. Others have it, and need no more to show
    /// theirs. With a write under way they do not have that one alone any more: what that comes to will be said.
    fn unreadable_stamp(&self, key: &StoreKey) -> Option<Stamp> {
        if self.pending.contains_key(key) {
            return None;
        }
        self.store.head(key.hash, &key.key).ok().flatten().map(|head| head.stamp)
    }

    pub(super) fn primary_says(
        &mut self,
        now: Time,
        space: SpaceNumber,
        ticket: u64,
        found: Option<Committed>,
        unreadable: Option<Stamp>,
        effects: &mut Vec<ServerEffect>,
    ) {
        // In another space the answer may be of a primary that is none any more.
        if self.world.as_ref().is_none_or(|world| world.number() != space) {
            return;
        }
        let Some(asked) = self.reads.asked.remove(&ticket) else { return };
        match asked.what {
            Wanted::Read(from, seq, key) => {
                let answer = match (found, unreadable) {
                    (Some(Committed { record, .. }), _) => self.shown(now, record.as_ref()),
                    (None, Some(stamp)) => self.shown_if_same(now, &key, stamp, effects),
                    (None, None) => Answer::Wait,
                };
                self.answer(from, seq, answer, effects);
            }
            Wanted::Mark(key) => self.mark_answered(&key, found, unreadable, effects),
        }
    }

    /// What is committed has that stamp, and its primary cannot read it.
    fn shown_if_same(
        &self,
        now: Time,
        key: &StoreKey,
        stamp: Stamp,
        effects: &mut Vec<ServerEffect>,
    ) -> Answer {
        match self.record(key) {
            Ok(Some(record)) if record.stamp == stamp => self.shown(now, Some(&record)),
            // This one cannot show it either: yet another owner may.
            Ok(_other) => Answer::Refused { reason: Refusal::Damaged },
            Err(fault) => self.hidden_by(&fault, effects),
        }
    }

    /// The very version that is marked is committed: it is marked no more, and put anew if it cannot be read. Or it is not,
    /// and nothing else is under way: then what the primary has takes its place. If that cannot be read, nothing does.
    fn mark_answered(
        &mut self,
        key: &StoreKey,
        found: Option<Committed>,
        unreadable: Option<Stamp>,
        effects: &mut Vec<ServerEffect>,
    ) {
        // A mark of this space came after the question: its watermark clears it.
        let here = self.world.as_ref().map(|world| world.number());
        let Some(mark) = self.dirty.get(key).filter(|mark| Some(mark.epoch) != here) else { return };
        let held = self.store.head(key.hash, &key.key).ok().flatten();
        let committed = match (held, &found) {
            (Some(head), Some(Committed { record: Some(record), .. })) => head.stamp == record.stamp,
            // A tombstone that the primary has collected already.
            (Some(head), Some(Committed { record: None, .. })) => head.kind == Kind::Tombstone,
            (Some(head), None) => Some(head.stamp) == unreadable,
            (None, found) => found.is_some(),
        };
        if !committed {
            // Its own write under way may be the one that is marked here, and counts on it.
            if let Some(Committed { record, settled: true }) = found
                && self.is_marked_before(key)
            {
                self.put_over_mark(key, record, effects);
            }
            return;
        }
        // A settlement may have disowned its id, when the disk did not show the record.
        let origin = mark.origin.clone().filter(|_| held.is_some());
        if let Some(Committed { record: record @ Some(_), .. }) = found
            && held.is_some()
            && !self.shows(key)
        {
            // Without a mark it counts as a copy.
            self.put_over_mark(key, record, effects);
        } else {
            self.dirty.remove(key);
        }
        if self.dirty.contains_key(key) {
            return;
        }
        if let Some(origin) = origin.filter(|origin| !self.gateway_expired(origin.id.gateway)) {
            self.ids.remember(origin.id, key.hash, origin.reply);
        }
    }

    /// A version that no settlement heard of is not kept beside what is committed: whoever has it would lack that.
    fn put_over_mark(&mut self, key: &StoreKey, record: Option<Record>, effects: &mut Vec<ServerEffect>) {
        let put = match &record {
            Some(record) => self.store.put(key.hash, &key.key, record),
            None => self.store.remove(key.hash, &key.key),
        };
        match put {
            Ok(()) => {
                self.clock = record.map_or(self.clock, |record| self.clock.max(record.stamp.clock));
                self.dirty.remove(key);
            }
            // It is asked about again.
            Err(fault) => self.store_fault(&fault, effects),
        }
    }

    /// Marks of earlier epochs, whose watermark came too late or got lost: asked of the primary, a few at a time, and all in
    /// turn. Some stay for long: their primary waits for copies, or has another version that it cannot read.
    pub(super) fn ask_about_marks(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        let (after, count) = (self.reads.marks_upto.take(), self.settings.limits.marks_asked_max);
        let is_later = |key: &StoreKey| after.as_ref().is_none_or(|after| key > after);
        let first = after.clone().unwrap_or(StoreKey { hash: KeyHash(0), key: Bytes::new() });
        let later = self.dirty.from(&first).filter(|(key, _)| is_later(key));
        let stale: Vec<(StoreKey, u16)> = later
            .chain(self.dirty.iter().take_while(|(key, _)| !is_later(key)))
            .filter(|(_, mark)| mark.epoch != world.number())
            .filter_map(|(key, _)| {
                let piece = world.piece(key.hash);
                let primary = world.arc(piece).primary()?;
                let settled = piece.state == State::Normal && Some(primary) != world.me;
                (settled && self.links[usize::from(primary)].up).then(|| (key.clone(), primary))
            })
            .take(count)
            .collect();
        if stale.len() == count {
            self.reads.marks_upto = stale.last().map(|(key, _)| key.clone());
        }
        for (key, primary) in stale {
            self.ask(now, primary, key.clone(), Wanted::Mark(key), effects);
        }
    }

    /// An answer that writes nothing.
    pub(super) fn answer_as_read(
        &mut self,
        now: Time,
        from: ConnectionId,
        request: Request,
        answer: Answer,
        effects: &mut Vec<ServerEffect>,
    ) {
        let lax = self.settings.broken.is(Mutation::NegativeWithoutLease)
            || self.settings.broken.is(Mutation::ReadWithoutLease);
        if self.may_read(now, &request) || lax {
            return self.say_no(from, request.id, answer, effects);
        }
        self.read_later(now, from, request, effects);
    }

    /// Nothing was written, and that is the last word: an earlier try of the same request that is still on its way,
    /// in a connection that the gateway gave up, must not be executed after it.
    fn say_no(&mut self, from: ConnectionId, id: RequestId, answer: Answer, effects: &mut Vec<ServerEffect>) {
        self.ids.negative(id, answer.clone());
        self.answer(from, id.seq, answer, effects);
    }

    /// Rule 9: without a lease, after all others of A(k) said that they are in the same space.
    fn read_later(
        &mut self,
        now: Time,
        from: ConnectionId,
        request: Request,
        effects: &mut Vec<ServerEffect>,
    ) {
        if self.reads.is_full_for(&request) {
            return self.answer(from, request.id.seq, Answer::Wait, effects);
        }
        *self.reads.bytes_like(&request) += bytes_of(&request);
        self.reads.unleased.push_back((from, request));
        self.begin_round(now, effects);
    }

    fn begin_round(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        if self.reads.round.is_some() || self.reads.unleased.is_empty() {
            return;
        }
        let Some(world) = &self.world else { return };
        let space = world.number();
        self.reads.ticket += 1;
        let ticket = self.reads.ticket;
        let reads: Vec<(ConnectionId, Request)> = self.reads.unleased.drain(..).collect();
        let mut others = BTreeSet::new();
        for (_, request) in &reads {
            others.extend(world.others(world.arc(world.piece(request.hash))));
        }
        self.reads.round = Some(Round { ticket, began: now, confirmed: BTreeSet::new(), reads });
        for other in others {
            self.send(other, Message::Confirm { space, ticket }, effects);
        }
    }

    pub(super) fn confirm(
        &mut self,
        from: ServerId,
        space: SpaceNumber,
        ticket: u64,
        effects: &mut Vec<ServerEffect>,
    ) {
        if self.same_space(from, space, effects) {
            effects.push(ServerEffect::Server(from, Message::Confirmed { space, ticket }));
        }
    }

    pub(super) fn confirmed(
        &mut self,
        now: Time,
        from: ServerId,
        space: SpaceNumber,
        ticket: u64,
        effects: &mut Vec<ServerEffect>,
    ) {
        let (Some(world), Some(round)) = (&self.world, &mut self.reads.round) else { return };
        let Some(index) = world.space.index_of(from) else { return };
        if world.number() != space || round.ticket != ticket {
            return;
        }
        round.confirmed.insert(index);
        let all = |request: &Request| {
            let arc = world.arc(world.piece(request.hash));
            world.others(arc).all(|other| round.confirmed.contains(&other))
        };
        let (ready, rest): (Vec<_>, Vec<_>) = round.reads.drain(..).partition(|(_, request)| all(request));
        round.reads = rest;
        if round.reads.is_empty() {
            self.reads.round = None;
        }
        self.reads.released(&ready);
        for (from, request) in ready {
            self.read_confirmed(now, from, request, effects);
        }
        self.begin_round(now, effects);
    }

    fn read_confirmed(
        &mut self,
        now: Time,
        from: ConnectionId,
        request: Request,
        effects: &mut Vec<ServerEffect>,
    ) {
        if request.operation == Operation::Get {
            return self.read(now, from, &request, effects);
        }
        // A write that was answered "no": judged again, for the key may have changed meanwhile. And another try of the
        // same request may have been executed meanwhile: then that is its answer.
        let key = StoreKey { hash: request.hash, key: request.key.clone() };
        if self.pending.contains_key(&key) || !matches!(self.ids.look(request.id), Known::No) {
            return self.request(now, from, request, effects);
        }
        match self.judge(now, &key, &request.operation) {
            // What it found alive when it came may have expired since.
            Ok((_, Verdict::Answer(_))) if self.expire_first(now, &key, effects) != Expiry::Settled => {
                self.request(now, from, request, effects);
            }
            Ok((_, Verdict::Answer(answer))) => self.say_no(from, request.id, answer, effects),
            Ok((_, Verdict::Write(_))) => self.request(now, from, request, effects),
            Err(fault) => {
                self.store_fault(&fault, effects);
                self.refuse(from, request.id, Refusal::Damaged, effects);
            }
        }
    }

    /// In a new space every read that waits begins anew: whoever sent it asks again.
    pub(super) fn reads_restart(&mut self, _now: Time, effects: &mut Vec<ServerEffect>) {
        let reads = std::mem::take(&mut self.reads);
        self.reads.ticket = reads.ticket;
        let in_round = reads.round.into_iter().flat_map(|round| round.reads);
        for (from, request) in reads.unleased.into_iter().chain(in_round) {
            self.answer(from, request.id.seq, Answer::Wait, effects);
        }
        for asked in reads.asked.into_values() {
            if let Wanted::Read(from, seq, _) = asked.what {
                self.answer(from, seq, Answer::Wait, effects);
            }
        }
    }

    /// Who waited too long is told to ask again.
    pub(super) fn reads_tick(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        if self.reads.round.as_ref().is_some_and(|round| now.since(round.began) > ROUND_MICROS) {
            let reads = self.reads.round.take().map(|round| round.reads).unwrap_or_default();
            self.reads.released(&reads);
            for (from, request) in reads {
                self.answer(from, request.id.seq, Answer::Wait, effects);
            }
        }
        self.begin_round(now, effects);
        // Tickets grow with time: the oldest are first.
        while let Some(oldest) = self.reads.asked.first_entry() {
            if now.since(oldest.get().began) <= ROUND_MICROS {
                break;
            }
            if let Wanted::Read(from, seq, _) = oldest.remove().what {
                self.answer(from, seq, Answer::Wait, effects);
            }
        }
    }
}

/// Reads that wait for confirmations. Beyond it they are told to ask again.
const UNLEASED_MAX: usize = 65_536;

/// Bytes of the gets among them, with those of a round, and as much of the negative answers. Gets fit in if their keys are of
/// a usual length; the last one to come may be of any size, or the largest would never be answered.
const UNLEASED_BYTES_MAX: usize = 64 << 20;

/// Questions to primaries under way.
const ASKED_MAX: usize = 16_384;

/// A question that nobody answered for so long is given up.
const ROUND_MICROS: u64 = 200_000;

/// A value this near its expiry is the primary's to judge: the servers' ideas of the cell's time may differ so
/// much. (Rule 18)
const EXPIRY_DOUBT_SECONDS: u64 = 2;
