//! Settlement: a new primary gathers what the others hold unconfirmed, and carries it forward. (Rule 11)

use super::Server;
use super::origin;
use super::pendings::Pending;
use super::replica::Mark;
use super::world::State;
use crate::{
    Fault, GatewayId, KeyHash, Message, Mutation, Range, Record, Remembered, RequestId, ServerEffect,
    ServerId, ServerNote, SpaceNumber, Store, StoreKey, Unsettled, Upto,
};
use kumo_paxos::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Under way in one space; a newer space begins another.
#[derive(Clone, Debug)]
pub(crate) struct Settlement {
    began: Time,
    pieces: usize,
    /// Per member that was asked: about what, and whether all of its answer is here.
    asked: BTreeMap<u16, Asked>,
    /// The greatest version of every key that somebody listed.
    gathered: BTreeMap<StoreKey, Unsettled>,
    /// Requests that somebody remembers. Some of them only the gathered records hold: they count when those are taken
    /// over, and are forgotten with them when a newer space begins another settlement.
    remembered: BTreeMap<RequestId, Remembered>,
}

#[derive(Clone, Debug)]
struct Asked {
    ranges: Vec<Range>,
    /// It is asked again then, whatever became of its answer.
    again_at: Time,
    /// The answer is here up to this place.
    upto: Option<Upto>,
    answered: bool,
}

impl Asked {
    fn new(now: Time) -> Asked {
        Asked { ranges: Vec::new(), again_at: now, upto: None, answered: false }
    }
}

/// A mark whose record cannot be read, or is not there.
struct Lost {
    hash: KeyHash,
    id: Option<RequestId>,
    fault: Option<Fault>,
}

impl Settlement {
    /// What is remembered of keys in those ranges, which ascend.
    fn take_remembered(&mut self, ranges: &[Range]) -> Vec<Remembered> {
        let all = std::mem::take(&mut self.remembered);
        let (taken, left) = all.into_iter().partition(|(_, one)| inside(ranges, one.hash));
        self.remembered = left;
        let taken: BTreeMap<RequestId, Remembered> = taken;
        taken.into_values().collect()
    }
}

#[cfg(feature = "mutants")]
impl Settlement {
    pub fn portray(&self, out: &mut impl std::fmt::Write) -> std::fmt::Result {
        for (other, asked) in &self.asked {
            write!(out, "{other} {:?} {} ", asked.upto, asked.answered)?;
        }
        write!(out, "{:?} {:?} ", self.gathered, self.remembered)
    }
}

impl<S: Store> Server<S> {
    pub(super) fn begin_settlement(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        let earlier = self.settlement.take();
        let Some(world) = &self.world else { return };
        let mut asked: BTreeMap<u16, Asked> = BTreeMap::new();
        let mut pieces = 0;
        for piece in world.pieces.iter().filter(|piece| piece.state == State::Settling) {
            pieces += 1;
            for other in world.others(world.arc(piece)) {
                let entry = asked.entry(other).or_insert_with(|| Asked::new(now));
                entry.ranges.push(piece.range);
            }
        }
        if pieces == 0 {
            return;
        }
        let (mut gathered, mut remembered) = (BTreeMap::new(), BTreeMap::new());
        if self.settings.broken.is(Mutation::SettlementNotRestarted)
            && let Some(earlier) = earlier
        {
            (gathered, remembered) = (earlier.gathered, earlier.remembered);
            for (other, was) in earlier.asked {
                asked.entry(other).and_modify(|entry| entry.answered = was.answered);
            }
        }
        effects.push(ServerEffect::Note(ServerNote::Settling { arcs: pieces }));
        let others: Vec<u16> = asked.keys().copied().collect();
        self.settlement = Some(Settlement { began: now, pieces, asked, gathered, remembered });
        for other in others {
            self.resend_settle(now, other, effects);
        }
        self.settle_pieces(now, effects);
    }

    /// Asks that member, or asks it again: a link that is new may have lost question or answer. On one that holds they are on
    /// their way, and a part may be large.
    pub(super) fn resend_settle(&mut self, now: Time, to: u16, effects: &mut Vec<ServerEffect>) {
        let (Some(world), Some(settlement)) = (&self.world, &mut self.settlement) else { return };
        let Some(asked) = settlement.asked.get_mut(&to) else { return };
        if !asked.answered {
            asked.again_at = now.plus_micros(ASK_AGAIN_MICROS);
            let (ranges, after) = (asked.ranges.clone(), asked.upto.clone());
            let message = Message::Settle { space: world.number(), ranges, after };
            self.send(to, message, effects);
        }
    }

    /// That member says that it is in this space. If it was not when it was asked, it did not answer; if it was, its answer
    /// comes right behind.
    pub(super) fn settle_soon(&mut self, now: Time, from: ServerId) {
        let Some(index) = self.index_of(from) else { return };
        let Some(settlement) = &mut self.settlement else { return };
        if let Some(asked) = settlement.asked.get_mut(&index) {
            asked.again_at = asked.again_at.min(now.plus_micros(ASK_SOON_MICROS));
        }
    }

    pub(super) fn settle_tick(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        let Some(settlement) = &self.settlement else { return };
        let due = settlement.asked.iter().filter(|(_, asked)| !asked.answered && now >= asked.again_at);
        let others: Vec<u16> = due.map(|(&other, _)| other).collect();
        for other in others {
            self.resend_settle(now, other, effects);
        }
    }

    /// At one that was asked: everything unconfirmed in those ranges, and the ids that may be asked for again, in
    /// parts. Being in the space, it takes nothing any more from who was primary before, so nothing is added to what
    /// it has said already but by the one who asks.
    pub(super) fn settle(
        &mut self,
        from: ServerId,
        space: SpaceNumber,
        ranges: Vec<Range>,
        after: Option<Upto>,
        effects: &mut Vec<ServerEffect>,
    ) {
        if !self.same_space(from, space, effects) || !ranges.is_sorted_by(|a, b| a.last < b.first) {
            return;
        }
        let (unsettled, next) = match &after {
            Some(Upto::Ids { .. }) => (Vec::new(), None),
            Some(Upto::Marked { upto }) => self.marked(&ranges, Some(upto), effects),
            None => self.marked(&ranges, None, effects),
        };
        if let Some(upto) = next {
            let next = Some(Upto::Marked { upto });
            let (remembered, lowest_open) = (Vec::new(), Vec::new());
            let message = Message::Settled { space, unsettled, remembered, lowest_open, next };
            effects.push(ServerEffect::Server(from, message));
            return;
        }
        let ids_after = match after {
            Some(Upto::Ids { upto }) => upto,
            Some(Upto::Marked { .. }) | None => None,
        };
        let looked_max = self.settings.limits.ids_looked_max;
        let mut part = self.ids.part(ids_after, looked_max, |_, hash| inside(&ranges, hash));
        // What was done all owners know of, the one that asks too: of what it does not know, it was not.
        part.remembered.retain(|one| one.reply.is_some());
        let message = Message::Settled {
            space,
            unsettled,
            remembered: part.remembered,
            // With the last part too: what was closed between two of them is in none.
            lowest_open: self.ids.lowest_open(),
            next: part.next.map(|upto| Upto::Ids { upto: Some(upto) }),
        };
        effects.push(ServerEffect::Server(from, message));
    }

    /// What is marked in the ranges after that key, as much as one message takes, and up to where that is all; none:
    /// there is no more.
    fn marked(
        &mut self,
        ranges: &[Range],
        after: Option<&StoreKey>,
        effects: &mut Vec<ServerEffect>,
    ) -> (Vec<Unsettled>, Option<StoreKey>) {
        let mut lost = Vec::new();
        let found = self.marked_and_lost(ranges, after, &mut lost);
        self.disown(lost, effects);
        found
    }

    /// The same, and marks whose record is not to be had.
    fn marked_and_lost(
        &self,
        ranges: &[Range],
        after: Option<&StoreKey>,
        lost: &mut Vec<Lost>,
    ) -> (Vec<Unsettled>, Option<StoreKey>) {
        let (mut unsettled, mut bytes) = (Vec::new(), 0);
        for range in ranges {
            let (first, last) = bounds(range);
            let first = after.map_or(&first, |after| after.max(&first));
            for (key, mark) in self.dirty.from(first).take_while(|(key, _)| key.hash <= last) {
                if Some(key) == after {
                    continue;
                }
                let Some(record) = self.record_of(key, mark, lost) else { continue };
                bytes += record.data.len() + key.key.len();
                let origin = origin::lean(mark.origin.as_ref());
                unsettled.push(Unsettled { key: key.clone(), record, origin });
                if bytes > PART_BYTES_MAX || unsettled.len() >= self.settings.limits.settled_max {
                    return (unsettled, Some(key.clone()));
                }
            }
        }
        (unsettled, None)
    }

    fn record_of(&self, key: &StoreKey, mark: &Mark, lost: &mut Vec<Lost>) -> Option<Record> {
        let found = self.store.get(key.hash, &key.key);
        if !matches!(found, Ok(Some(_))) {
            let id = mark.origin.as_ref().map(|origin| origin.id);
            lost.push(Lost { hash: key.hash, id, fault: found.as_ref().err().cloned() });
        }
        found.ok().flatten()
    }

    /// An id says that its write was done. Without the record nobody could show that write: whoever holds it says so,
    /// and if nobody does, it was never done.
    fn disown(&mut self, lost: Vec<Lost>, effects: &mut Vec<ServerEffect>) {
        for Lost { hash, id, fault } in lost {
            if let Some(id) = id {
                self.ids.disown(id);
                if fault.is_some() && !self.settings.broken.is(Mutation::UnreadableDisowned) {
                    // It is there, and may have been shown: a retry of it must not be executed here.
                    self.ids.unknown(id, hash);
                }
            }
            if let Some(fault) = fault {
                self.store_fault(&fault, effects);
            }
        }
    }

    pub(super) fn settled(
        &mut self,
        now: Time,
        from: ServerId,
        message: Message,
        effects: &mut Vec<ServerEffect>,
    ) {
        let Message::Settled { space, unsettled, remembered, lowest_open, next } = message else { return };
        let Some(index) = self.index_of(from) else { return };
        let (Some(world), Some(settlement)) = (&self.world, &mut self.settlement) else { return };
        let Some(asked) = settlement.asked.get_mut(&index) else { return };
        if world.number() != space || asked.answered {
            return;
        }
        // A part that came again says nothing new, and the next one is asked for already.
        let further = next.is_none() || next > asked.upto;
        asked.answered = next.is_none();
        if further {
            asked.upto = next;
        }
        for one in unsettled {
            let origin = origin::whole(one.origin, &one.record);
            gather(&mut settlement.gathered, Unsettled { origin, ..one });
        }
        settlement.remembered.extend(remembered.into_iter().map(|one| (one.id, one)));
        self.learn_ids(Vec::new(), lowest_open);
        if further {
            self.resend_settle(now, index, effects);
        }
        self.settle_pieces(now, effects);
    }

    /// What another knows of requests, so that a retry is answered and not executed again. (Rule 22)
    pub(super) fn learn_ids(&mut self, remembered: Vec<Remembered>, lowest_open: Vec<(GatewayId, u64)>) {
        if self.settings.broken.is(Mutation::IdsNotCarried) {
            return;
        }
        for (gateway, lowest) in lowest_open {
            if !self.gateway_expired(gateway) {
                self.ids.close(gateway, lowest);
            }
        }
        for Remembered { id, hash, reply } in remembered {
            if self.gateway_expired(id.gateway) {
                continue;
            }
            match reply {
                Some(reply) => self.ids.remember(id, hash, reply),
                None => self.ids.unknown(id, hash),
            }
        }
    }

    /// Pieces of which everybody has answered are Normal from here on, but for the keys that were listed.
    fn settle_pieces(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        let (Some(world), Some(settlement)) = (&mut self.world, &mut self.settlement) else { return };
        let mut done = Vec::new();
        for at in 0..world.pieces.len() {
            let piece = world.pieces[at];
            if piece.state != State::Settling {
                continue;
            }
            let others = world.others(world.arc(&piece));
            let answered = |other: u16| settlement.asked.get(&other).is_some_and(|asked| asked.answered);
            if others.into_iter().all(answered) {
                world.pieces[at].state = State::Normal;
                done.push(piece.range);
            }
        }
        let left = world.pieces.iter().any(|piece| piece.state == State::Settling);
        let mut listed = Vec::new();
        for range in &done {
            let (first, last) = bounds(range);
            while let Some((key, _)) = settlement.gathered.range(first.clone()..).next() {
                if key.hash > last {
                    break;
                }
                let key = key.clone();
                listed.extend(settlement.gathered.remove(&key));
            }
        }
        let known = if done.is_empty() { Vec::new() } else { settlement.take_remembered(&done) };
        if !left {
            let micros = now.since(settlement.began);
            effects.push(ServerEffect::Note(ServerNote::SettlementDone { arcs: settlement.pieces, micros }));
            self.settlement = None;
        }
        self.carry_forward(now, &done, listed, known, effects);
    }

    /// The greatest version of each listed key, this server's own marks included, is replicated to all: same
    /// stamp, same request id.
    fn carry_forward(
        &mut self,
        now: Time,
        ranges: &[Range],
        listed: Vec<Unsettled>,
        mut known: Vec<Remembered>,
        effects: &mut Vec<ServerEffect>,
    ) {
        let mut gathered: BTreeMap<StoreKey, Unsettled> = BTreeMap::new();
        for one in listed {
            gather(&mut gathered, one);
        }
        let (mut lost, mut unread) = (Vec::new(), Vec::new());
        for range in ranges {
            let (first, last) = bounds(range);
            for (key, mark) in self.dirty.from(&first) {
                if key.hash > last {
                    break;
                }
                let before = lost.len();
                let origin = mark.origin.clone();
                match self.record_of(key, mark, &mut lost) {
                    Some(record) => gather(&mut gathered, Unsettled { key: key.clone(), record, origin }),
                    None if lost[before].fault.is_some() => unread.push((key.clone(), origin)),
                    None => {}
                }
            }
        }
        if !self.settings.broken.is(Mutation::UnreadableDisowned) {
            lost.iter_mut().filter(|lost| lost.fault.is_some()).for_each(|lost| lost.id = None);
        } else {
            unread.clear();
        }
        self.disown(lost, effects);
        // The id of what is carried forward is known when that is committed, as any write's; of what is not, it never is.
        let mut carried: BTreeSet<RequestId> = BTreeSet::new();
        for (key, origin) in unread {
            let Ok(Some(head)) = self.store.head(key.hash, &key.key) else { continue };
            // Somebody could read it: it is put again where it is, or what is above it.
            if gathered.get(&key).is_some_and(|other| other.record.stamp >= head.stamp) {
                continue;
            }
            let older = gathered.remove(&key).and_then(|other| other.origin);
            carried.extend([&origin, &older].into_iter().flatten().map(|origin| origin.id));
            self.leave_unread(key, head, origin);
        }
        let gathered: Vec<Unsettled> =
            gathered.into_values().filter_map(|one| self.or_mine(one, &mut carried)).collect();
        carried.extend(gathered.iter().filter_map(|one| one.origin.as_ref()).map(|origin| origin.id));
        known.retain(|one| !carried.contains(&one.id));
        self.learn_ids(known, Vec::new());
        for one in gathered {
            self.clock = self.clock.max(one.record.stamp.clock);
            let origin = one.origin.filter(|_| !self.settings.broken.is(Mutation::IdsNotCarried));
            self.begin(now, one.key, Pending::taken_over(one.record, origin), effects);
        }
        if !ranges.is_empty() {
            self.copy_more(now, effects);
        }
    }

    /// A version that this server holds above the listed one is committed, or was listed too. If it cannot be read, nothing
    /// is to be put in its place.
    fn or_mine(&self, one: Unsettled, not_carried: &mut BTreeSet<RequestId>) -> Option<Unsettled> {
        let head = self.store.head(one.key.hash, &one.key.key).ok().flatten();
        if head.is_none_or(|head| head.stamp <= one.record.stamp) {
            return Some(one);
        }
        match self.record(&one.key) {
            Ok(Some(record)) => Some(Unsettled { record, origin: None, ..one }),
            _unreadable => {
                not_carried.extend(one.origin.map(|origin| origin.id));
                None
            }
        }
    }
}

fn gather(gathered: &mut BTreeMap<StoreKey, Unsettled>, one: Unsettled) {
    match gathered.get(&one.key) {
        Some(known) if stamp_of(&known.record) >= stamp_of(&one.record) => {}
        _older => {
            gathered.insert(one.key.clone(), one);
        }
    }
}

fn stamp_of(record: &Record) -> crate::Stamp {
    record.stamp
}

/// From which key a range starts, and the last hash in it.
pub(super) fn bounds(range: &Range) -> (StoreKey, crate::KeyHash) {
    (StoreKey { hash: range.first, key: bytes::Bytes::new() }, range.last)
}

/// Whether one of the ranges, which ascend, has it.
fn inside(ranges: &[Range], hash: crate::KeyHash) -> bool {
    let at = ranges.partition_point(|range| range.last < hash);
    ranges.get(at).is_some_and(|range| range.contains(hash))
}

/// Who has not answered a settlement is asked again after this long, on a link that holds. Nothing is known that loses an
/// answer there.
const ASK_AGAIN_MICROS: u64 = 10_000_000;

/// And after this long when it has just said that it is in the space.
const ASK_SOON_MICROS: u64 = 200_000;

/// Data in one part of an answer.
const PART_BYTES_MAX: usize = 1 << 20;
