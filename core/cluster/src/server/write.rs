//! Writes at the primary: ordered by key, judged on the committed version, stamped, acknowledged by all of A(k).

use super::Server;
use super::expire::Expiry;
use super::few::Few;
use super::ids::Known;
use super::judge::{self, Content, Verdict};
use super::link::Link;
use super::origin;
use super::pendings::{Pending, Queue};
use super::world::State;
use crate::store::KEY_BYTES_MAX;
use crate::{
    Answer, Arc, Clock, Fault, Head, Message, Mutation, Operation, Origin, Record, Refusal, Request,
    RequestId, ServerEffect, ServerId, SpaceNumber, Stamp, Store, StoreKey,
};
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use std::ops::RangeInclusive;

impl<S: Store> Server<S> {
    pub(super) fn request(
        &mut self,
        now: Time,
        from: ConnectionId,
        request: Request,
        effects: &mut Vec<ServerEffect>,
    ) {
        let number = self.world.as_ref().map_or(SpaceNumber(0), |world| world.number());
        if request.space > number {
            // Rule 1: adopt first. The gateway asks again when it has sent us its space.
            if !self.is_postponed(request.space) {
                effects.push(ServerEffect::Gateway(from, Message::WantSpace { above: number }));
            }
            self.answer(from, request.id.seq, Answer::Wait, effects);
            return;
        }
        self.ids.close(request.id.gateway, request.lowest_open);
        match &request.operation {
            Operation::Get => {
                self.counts.gets += 1;
                return self.get(now, from, request, effects);
            }
            Operation::Delete { .. } => self.counts.deletes += 1,
            _set => self.counts.sets += 1,
        }
        self.write(now, from, request, effects);
    }

    fn write(&mut self, now: Time, from: ConnectionId, request: Request, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        let piece = world.piece(request.hash);
        if !world.is_primary(world.arc(piece)) {
            return self.wrong_space(from, request.space, request.id.seq, effects);
        }
        let seq = request.id.seq;
        if request.key.len() > KEY_BYTES_MAX {
            // No store would take it, and a stamped write is never undone.
            let reason = Refusal::KeyTooLong;
            return self.answer(from, seq, Answer::Refused { reason }, effects);
        }
        if piece.state != State::Normal {
            return self.answer(from, seq, Answer::Wait, effects);
        }
        if self.gateway_expired(request.id.gateway) {
            let reason = Refusal::GatewayExpired;
            return self.answer(from, seq, Answer::Refused { reason }, effects);
        }
        let (floor, led_since) = (world.space.id_floor, piece.led_since);
        let key = StoreKey { hash: request.hash, key: request.key.clone() };
        // Rule 2: pending, or being settled: join it. Looked at first, for an id may be remembered here from
        // before this server was primary, and its write not committed yet.
        if self.pending.get(&key).is_some_and(|pending| pending.is_of(request.id)) {
            return self.join(&key, from, request.id, effects);
        }
        match self.ids.look(request.id) {
            Known::Done(reply) => {
                let answer = Answer::Reply(reply.clone());
                return self.answer(from, seq, answer, effects);
            }
            Known::Unknown => return self.answer(from, seq, Answer::Unknown, effects),
            Known::Negative(answer) => {
                let answer = answer.clone();
                return self.answer(from, seq, answer, effects);
            }
            Known::Closed => {
                let reason = Refusal::Answered;
                return self.answer(from, seq, Answer::Refused { reason }, effects);
            }
            Known::No => {}
        }
        // Who led since then may have answered without writing, and nobody else remembers that. The gateway asks again if
        // it still wants to know.
        if request.space < led_since && !self.settings.broken.is(Mutation::LateTryExecuted) {
            return self.wrong_space(from, request.space, request.id.seq, effects);
        }
        if request.first_space < floor && !self.settings.broken.is(Mutation::NoIdFloor) {
            return self.answer(from, seq, Answer::Unknown, effects);
        }
        if self.ids.must_wait(request.id) {
            return self.answer(from, seq, Answer::Wait, effects);
        }
        if !self.pending.contains_key(&key) {
            return self.execute(now, from, request, key, effects);
        }
        if self.unread.contains(&key) {
            return self.write_over_unread(now, from, request, key, effects);
        }
        if self.pending.get(&key).is_some_and(|pending| self.waits_for_copies(&key, pending)) {
            // Nobody knows when there will be copies enough, and it is not alone in that.
            return self.refuse(from, request.id, Refusal::FewCopies, effects);
        }
        self.stand_behind(&key, from, request, effects);
    }

    /// Behind the write of its key that is under way.
    fn stand_behind(
        &mut self,
        key: &StoreKey,
        from: ConnectionId,
        request: Request,
        effects: &mut Vec<ServerEffect>,
    ) {
        let seq = request.id.seq;
        if let Some(waits) = self.pending.queue(key, from, request, self.settings.limits.queued_max) {
            self.answer(waits, seq, Answer::Wait, effects);
        }
    }

    fn join(&mut self, key: &StoreKey, from: ConnectionId, id: RequestId, effects: &mut Vec<ServerEffect>) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        if let Some(before) = pending.join(id, from) {
            self.answer(before, id.seq, Answer::Wait, effects);
        }
    }

    /// Rules 4 and 5.
    pub(super) fn execute(
        &mut self,
        now: Time,
        from: ConnectionId,
        request: Request,
        key: StoreKey,
        effects: &mut Vec<ServerEffect>,
    ) {
        let (id, seq) = (request.id, request.id.seq);
        if self.cell_time.is_none() && judge::sets_expiry(&request.operation) {
            // What it means depends on the cell's time, which comes with the first lease.
            return self.answer(from, seq, Answer::Wait, effects);
        }
        let (head, verdict) = match self.judge(now, &key, &request.operation) {
            Ok(judged) => judged,
            Err(fault) => {
                self.store_fault(&fault, effects);
                return self.refuse(from, id, Refusal::Damaged, effects);
            }
        };
        let content = match verdict {
            Verdict::Answer(answer) => {
                match self.expire_first(now, &key, effects) {
                    // It writes nothing: a read, with a read's duties.
                    Expiry::Settled => self.answer_as_read(now, from, request, answer, effects),
                    Expiry::UnderWay => self.stand_behind(&key, from, request, effects),
                    Expiry::Hindered(Answer::Refused { reason }) => {
                        self.refuse(from, id, reason, effects);
                    }
                    Expiry::Hindered(answer) => self.answer(from, seq, answer, effects),
                }
                return;
            }
            Verdict::Write(content) => content,
        };
        if let Some(reason) = self.refusal(&key) {
            return self.refuse(from, id, reason, effects);
        }
        if self.is_busy(&key) || self.pending.is_full() {
            return self.answer(from, seq, Answer::Wait, effects);
        }
        let record = self.stamped(head.as_ref(), &content);
        let reply = content.reply(record.stamp.clock.0, self.cell_seconds(now));
        let mut pending = Pending::new(
            record,
            Some(Origin { id: request.id, lowest_open: request.lowest_open, reply: reply.clone() }),
        );
        if request.early || self.settings.early.includes(&request.operation) {
            self.answer(from, seq, Answer::Reply(reply), effects);
        } else {
            pending.waiter = Some((from, seq));
        }
        self.begin(now, key, pending, effects);
    }

    /// What its sender was told is refused stays refused: a copy of it that comes later must not be executed.
    pub(super) fn refuse(
        &mut self,
        from: ConnectionId,
        id: RequestId,
        reason: Refusal,
        effects: &mut Vec<ServerEffect>,
    ) {
        let answer = Answer::Refused { reason };
        self.ids.negative(id, answer.clone());
        self.answer(from, id.seq, answer, effects);
    }

    pub(super) fn judge(
        &self,
        now: Time,
        key: &StoreKey,
        operation: &Operation,
    ) -> Result<(Option<Head>, Verdict), Fault> {
        let head = self.store.head(key.hash, &key.key)?;
        let live = head.filter(|head| head.kind == crate::Kind::Value && !self.expired(now, head.expiry));
        if !judge::needs_data(operation) {
            return Ok((head, judge::by_head(operation, live.as_ref(), self.cell_seconds(now))));
        }
        let record = match live {
            Some(_) => self.record(key)?,
            None => None,
        };
        let verdict = judge::by_record(
            operation,
            record.as_ref(),
            self.cell_seconds(now),
            self.settings.value_bytes_max,
        );
        Ok((head, verdict))
    }

    /// Why nothing may be stamped for this key now.
    pub(super) fn refusal(&self, key: &StoreKey) -> Option<Refusal> {
        let world = self.world.as_ref()?;
        let arc = world.arc(world.piece(key.hash));
        if self.has_few_copies(arc) {
            return Some(Refusal::FewCopies);
        }
        self.is_without_room(key).then_some(Refusal::Full)
    }

    fn has_few_copies(&self, arc: &Arc) -> bool {
        let enough = arc.acknowledgers().count() >= self.settings.copies_min;
        !enough && !self.settings.broken.is(Mutation::FewCopiesTaken)
    }

    /// The disk of one that would have to store it is full, as far as is known.
    pub(super) fn is_without_room(&self, key: &StoreKey) -> bool {
        let Some(world) = &self.world else { return false };
        let arc = world.arc(world.piece(key.hash));
        self.store.is_full() || world.others(arc).any(|one| self.links[usize::from(one)].is_full())
    }

    /// One of those that would have to acknowledge has more under way than is bearable.
    pub(super) fn is_busy(&self, key: &StoreKey) -> bool {
        let Some(world) = &self.world else { return true };
        let arc = world.arc(world.piece(key.hash));
        world.others(arc).any(|one| self.links[usize::from(one)].is_busy())
    }

    /// A version above everything heard, and above the one it replaces, whoever stamped that.
    pub(super) fn stamped(&mut self, head: Option<&Head>, content: &Content) -> Record {
        let stored = head.map_or(Clock(0), |head| head.stamp.clock);
        let seconds = u32::try_from(self.wall.0 / 1000).unwrap_or(u32::MAX);
        self.clock = Clock::after(self.clock.max(stored), seconds);
        let here = self.world.as_ref().map_or(SpaceNumber(0), |world| world.number());
        let space = head.map_or(here, |head| here.max(head.stamp.space));
        Record {
            stamp: Stamp { space, clock: self.clock },
            kind: content.kind,
            flags: content.flags,
            expiry: content.expiry,
            data: content.data.clone(),
        }
    }

    /// A stamped write is never undone, only carried forward.
    pub(super) fn begin(
        &mut self,
        now: Time,
        key: StoreKey,
        mut pending: Pending,
        effects: &mut Vec<ServerEffect>,
    ) {
        if self.unread.remove(&key) {
            self.put_over_unread(&key, &mut pending);
        }
        let Some(world) = &self.world else { return };
        let arc = world.arc(world.piece(key.hash));
        pending.waiting = world.others(arc).collect();
        self.pending.insert(key.clone(), pending);
        self.send_pending(&key, effects);
        self.commit_if_all(now, &key, effects);
    }

    /// A frame to each of the others in A(k).
    pub(super) fn send_pending(&mut self, key: &StoreKey, effects: &mut Vec<ServerEffect>) {
        let (Some(world), Some(pending)) = (&self.world, self.pending.get_mut(key)) else { return };
        if self.unread.contains(key) {
            return;
        }
        let arc = world.arc(world.piece(key.hash));
        let mut held_up = Few::default();
        for to in world.others(arc) {
            let link = &mut self.links[usize::from(to)];
            let seq = link.push(key.clone(), key.key.len() + pending.record.data.len());
            pending.frames.push(to, seq);
            if link.up {
                link.watermark_sent = link.watermark;
                let message = frame(world.number(), seq, link.watermark, key, pending);
                effects.push(ServerEffect::Server(world.space.server(to), message));
            }
            if link.held_up_by(self.settings.limits.held_max).is_some() {
                held_up.push(to);
            }
        }
        // Said with these frames: while writes follow each other nothing goes out on its own.
        self.watermark_wanted &= self.links.iter().any(Link::is_unsaid);
        for &to in held_up.as_slice() {
            self.send_first_again(to, effects);
        }
    }

    /// The write that holds up that link's watermark, under a new number: what is committed behind it need not be
    /// marked any longer, there, and remembered here.
    pub(super) fn send_first_again(&mut self, to: u16, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        let link = &mut self.links[usize::from(to)];
        let held = link.held_up_by(self.settings.limits.held_max);
        let Some((before, key)) = held.map(|(before, key)| (before, key.clone())) else { return };
        let Some(pending) = self.pending.get_mut(&key) else { return };
        if !pending.frames.iter().any(|frame| frame == (to, before)) {
            return;
        }
        let Some(seq) = link.push_again() else { return };
        pending.frames.renumber(to, seq);
        if link.up {
            let message = frame(world.number(), seq, link.watermark, &key, pending);
            effects.push(ServerEffect::Server(world.space.server(to), message));
        }
    }

    /// On a link that is new: what was sent to that member, or would have been, and is not acknowledged. The rest
    /// follows when some of that is: at once it could be more than a link takes.
    pub(super) fn resend(&mut self, now: Time, to: u16, effects: &mut Vec<ServerEffect>) {
        let link = &mut self.links[usize::from(to)];
        link.begin_again();
        link.resent(now);
        self.resend_more(to, effects);
    }

    /// True: there was something that is let be sent.
    pub(super) fn resend_more(&mut self, to: u16, effects: &mut Vec<ServerEffect>) -> bool {
        let next = self.links[usize::from(to)].next_again(self.settings.limits.resent_bytes_max());
        self.resend_all(to, &next, effects);
        !next.is_empty()
    }

    /// What the other had no room for, when it has some again.
    pub(super) fn resend_refused(&mut self, to: u16, effects: &mut Vec<ServerEffect>) {
        let next = self.links[usize::from(to)].next_refused(self.settings.limits.resent_bytes_max());
        self.resend_all(to, &next, effects);
    }

    /// What the other has overlooked; otherwise one that is not acknowledged, which on a link that holds only shows that
    /// nothing was.
    pub(super) fn resend_waiting(&mut self, now: Time, to: u16, effects: &mut Vec<ServerEffect>) {
        let link = &mut self.links[usize::from(to)];
        link.resent(now);
        if link.has_overlooked() && self.resend_more(to, effects) {
            return;
        }
        // Also when what was overlooked may not be sent, since other frames that were dropped count as on their way: one
        // that is acknowledged shows that they were.
        if let Some((seq, key)) = self.links[usize::from(to)].next_probe() {
            self.resend_one(to, seq, &key, effects);
        }
    }

    fn resend_all(&self, to: u16, frames: &[(u64, StoreKey)], effects: &mut Vec<ServerEffect>) {
        for (seq, key) in frames {
            self.resend_one(to, *seq, key, effects);
        }
    }

    fn resend_one(&self, to: u16, seq: u64, key: &StoreKey, effects: &mut Vec<ServerEffect>) {
        let (Some(world), Some(pending)) = (&self.world, self.pending.get(key)) else { return };
        // The key may have another write under way: one that the other marks by this number would be taken for committed with it.
        let own = pending.frames.iter().any(|frame| frame == (to, seq));
        if !own && !self.settings.broken.is(Mutation::NumberUsedAgain) {
            return;
        }
        let message = frame(world.number(), seq, self.links[usize::from(to)].watermark, key, pending);
        effects.push(ServerEffect::Server(world.space.server(to), message));
    }

    pub(super) fn replicated(
        &mut self,
        now: Time,
        from: ServerId,
        epoch: SpaceNumber,
        seqs: RangeInclusive<u64>,
        effects: &mut Vec<ServerEffect>,
    ) {
        let Some(index) = self.index_of(from) else { return };
        if self.world.as_ref().is_none_or(|world| world.number() != epoch) {
            return;
        }
        let link = &self.links[usize::from(index)];
        for seq in (*seqs.start()).max(link.watermark + 1)..=(*seqs.end()).min(link.last()) {
            self.acknowledged(now, index, seq, effects);
        }
    }

    fn acknowledged(&mut self, now: Time, index: u16, seq: u64, effects: &mut Vec<ServerEffect>) {
        let link = &mut self.links[usize::from(index)];
        let Some(key) = link.acknowledge(seq) else { return };
        self.watermark_wanted |= link.watermark > link.watermark_sent;
        let Some(pending) = self.pending.get_mut(&key) else { return };
        if pending.frames.iter().any(|frame| frame == (index, seq)) && pending.waiting.remove(index) {
            if let Some(world) = &self.world {
                self.copies.taken(world.space.server(index), &key, pending.record.stamp);
            }
            self.commit_if_all(now, &key, effects);
            if self.copies.wake {
                self.copy_more(now, effects);
            }
        }
    }

    pub(super) fn replica_full(&mut self, from: ServerId, epoch: SpaceNumber, seq: u64) {
        let Some(index) = self.index_of(from) else { return };
        if self.world.as_ref().is_some_and(|world| world.number() == epoch) {
            self.links[usize::from(index)].refuse(seq);
        }
    }

    /// Rule 7, and then whatever waited behind it.
    pub(super) fn commit_if_all(&mut self, now: Time, key: &StoreKey, effects: &mut Vec<ServerEffect>) {
        let Some(mut queue) = self.commit(key, effects) else { return self.refuse_behind(key, effects) };
        self.flush_behind(now, key, effects);
        while let Some((from, request)) = queue.pop_front() {
            if self.pending.contains_key(key) {
                // The one before is under way now: the rest stands behind it.
                queue.push_front((from, request));
                return self.pending.requeue(key, queue);
            }
            self.write(now, from, request, effects);
        }
    }

    /// What stands behind a write that waits for copies is refused as it would be by itself.
    fn refuse_behind(&mut self, key: &StoreKey, effects: &mut Vec<ServerEffect>) {
        if self.pending.get(key).is_some_and(|pending| self.waits_for_copies(key, pending)) {
            for (from, request) in self.pending.take_queue(key) {
                self.refuse(from, request.id, Refusal::FewCopies, effects);
            }
        }
    }

    /// Too few are left for it. What a settlement took over may have been answered already: however few are left, they go on
    /// with it.
    pub(super) fn waits_for_copies(&self, key: &StoreKey, pending: &Pending) -> bool {
        let Some(world) = &self.world else { return true };
        let asked_here = pending.origin.is_some() && !pending.taken_over;
        asked_here && self.has_few_copies(world.arc(world.piece(key.hash)))
    }

    /// All who are to have it have it, and it waits for copies alone.
    pub(super) fn is_there(&self, key: &StoreKey, pending: &Pending) -> bool {
        pending.waiting.is_empty() && self.waits_for_copies(key, pending)
    }

    fn commit(&mut self, key: &StoreKey, effects: &mut Vec<ServerEffect>) -> Option<Queue> {
        let pending = self.pending.get(key)?;
        if !pending.waiting.is_empty() {
            return None;
        }
        if self.unread.contains(key) {
            return None;
        }
        if self.waits_for_copies(key, pending) {
            // A copy need not wait with it: whoever leads next carries it forward.
            self.copies.arrived(key, pending.record.stamp);
            return None;
        }
        if let Err(fault) = self.store_committed(key, pending)
            && !self.keep_unstored(key, &fault)
        {
            // All others have it. It stays pending, and the next tick tries again.
            self.store_fault(&fault, effects);
            return None;
        }
        let (pending, queue) = self.pending.remove(key).expect("looked up above");
        self.dirty.remove(key);
        for (to, seq) in pending.frames.iter() {
            let link = &mut self.links[usize::from(to)];
            link.commit(seq);
            self.watermark_wanted |= link.watermark > link.watermark_sent;
        }
        self.copies.arrived(key, pending.record.stamp);
        self.flushes.committed(key);
        let over = pending.over.map(|over| (over.origin, over.waiter));
        let done = over.into_iter().chain(pending.origin.map(|origin| (origin, pending.waiter)));
        for (origin, waiter) in done {
            if let Some((connection, seq)) = waiter {
                self.answer(connection, seq, Answer::Reply(origin.reply.clone()), effects);
            }
            self.ids.remember(origin.id, key.hash, origin.reply);
        }
        Some(queue)
    }

    /// Of what was asked here the store has the version before. What a settlement took over it may have already, and may be
    /// unable to show.
    fn store_committed(&self, key: &StoreKey, pending: &Pending) -> Result<(), Fault> {
        if !pending.shows_old && self.has(key, pending.record.stamp) && self.shows(key) {
            return Ok(());
        }
        self.store.put(key.hash, &key.key, &pending.record)
    }

    /// On a link that is new: what was said before may not have arrived.
    pub(super) fn send_watermark(&mut self, to: u16, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        let link = &mut self.links[usize::from(to)];
        link.watermark_sent = link.watermark;
        let message = Message::Watermark { epoch: world.number(), upto: link.watermark };
        effects.push(ServerEffect::Server(world.space.server(to), message));
    }

    /// Tells how far the links' frames are committed, where no frame did.
    pub(super) fn send_watermarks(&mut self, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        let epoch = world.number();
        for (member, link) in world.space.members.iter().zip(&mut self.links) {
            if link.is_unsaid() {
                link.watermark_sent = link.watermark;
                let message = Message::Watermark { epoch, upto: link.watermark };
                effects.push(ServerEffect::Server(member.id(), message));
            }
        }
        self.watermark_wanted = false;
    }
}

fn frame(epoch: SpaceNumber, seq: u64, watermark: u64, key: &StoreKey, pending: &Pending) -> Message {
    Message::Replicate {
        epoch,
        seq,
        watermark,
        origin: origin::lean(pending.origin.as_ref()),
        over: pending.over.as_ref().map(|over| over.origin.id),
        key: key.clone(),
        record: pending.record.clone(),
    }
}
