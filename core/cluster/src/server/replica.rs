//! The other side of a write: records that come from a key's primary, and the marks that keep them out of sight.

use super::Server;
use super::origin;
use super::world::State;
use crate::{
    Fault, Message, Mutation, Origin, Record, ServerEffect, ServerId, SpaceNumber, Stamp, Store, StoreKey,
};
use bytes::Bytes;

/// A record that may not be committed. Only a watermark of the same epoch that covers the frame clears it, or the
/// primary's word that this very version is committed. (Rule 6)
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub epoch: SpaceNumber,
    /// 0: of no frame.
    pub seq: u64,
    pub origin: Option<Origin>,
}

impl<S: Store> Server<S> {
    pub(super) fn replicate(&mut self, from: ServerId, message: Message, effects: &mut Vec<ServerEffect>) {
        let Message::Replicate { epoch, seq, watermark, origin, over, key, record } = message else { return };
        if !self.same_space(from, epoch, effects) {
            return;
        }
        let Some(world) = &self.world else { return };
        let Some(index) = world.space.index_of(from) else { return };
        let piece = world.piece(key.hash);
        let arc = world.arc(piece);
        // Rule 6: from the primary alone, and only if this server is to acknowledge.
        if arc.primary() != Some(index) || !world.me.is_some_and(|me| arc.acknowledges(me)) {
            return;
        }
        // Late, from a connection before: it was stored here, or it would not be committed. What came after it may be a
        // tombstone that is collected already, and then this would bring back what was deleted.
        let committed = seq <= self.links[usize::from(index)].heard;
        if committed && !self.settings.broken.is(Mutation::CommittedTakenAgain) {
            return self.acknowledge(from, epoch, seq, effects);
        }
        let origin = origin::whole(origin, &record);
        let catching = matches!(piece.state, State::Catching { .. });
        self.clock = self.clock.max(record.stamp.clock);
        match self.take(&key, &record, catching) {
            Ok(stored) => {
                if stored
                    && seq > self.links[usize::from(index)].heard
                    && !self.is_marked_later(&key, epoch, seq)
                {
                    self.links[usize::from(index)].mark(seq, key.clone());
                    self.dirty.insert(key.clone(), Mark { epoch, seq, origin: origin.clone() });
                }
                if let Some(over) = over.filter(|over| !self.gateway_expired(over.gateway)) {
                    self.ids.unknown(over, key.hash);
                }
                if let Some(origin) = origin {
                    self.ids.close(origin.id.gateway, origin.lowest_open);
                    self.ids.remember(origin.id, key.hash, origin.reply);
                }
                self.acknowledge(from, epoch, seq, effects);
            }
            Err(Fault::Full) => effects.push(ServerEffect::Server(from, Message::ReplicaFull { epoch, seq })),
            Err(fault @ (Fault::Damaged(_) | Fault::Io(_))) => self.store_fault(&fault, effects),
        }
        self.clear_marks(index, epoch, watermark);
    }

    /// The same write was sent again under a later number, and came before: that one says when it is committed.
    fn is_marked_later(&self, key: &StoreKey, epoch: SpaceNumber, seq: u64) -> bool {
        let later = self.dirty.get(key).is_some_and(|mark| mark.epoch == epoch && mark.seq > seq);
        later && !self.settings.broken.is(Mutation::MarkLowered)
    }

    /// It has a mark of an earlier space, which is nothing to compare with: what the primary of this space puts there takes its
    /// place, whatever the stamps.
    ///
    /// A primary that stayed sends all again that is not committed, and one that took over carries forward the greatest of all
    /// that was listed. So what is below was put by one that never heard of this version: it could not be read when a
    /// settlement asked for it. Then it was never committed, and kept here it would come back over what is. (Rule 11)
    pub(super) fn is_marked_before(&self, key: &StoreKey) -> bool {
        let here = self.world.as_ref().map(|world| world.number());
        let before = self.dirty.get(key).is_some_and(|mark| Some(mark.epoch) != here);
        before && !self.settings.broken.is(Mutation::UnlistedKept)
    }

    fn is_marked_here(&self, key: &StoreKey) -> bool {
        let here = self.world.as_ref().map(|world| world.number());
        self.dirty.get(key).is_some_and(|mark| Some(mark.epoch) == here)
    }

    /// The disk has the key, and it can be read.
    pub(super) fn shows(&self, key: &StoreKey) -> bool {
        matches!(self.store.get(key.hash, &key.key), Ok(Some(_)))
    }

    /// Stores a replicated record unless a newer one is here. True: it is what is stored now.
    fn take(&mut self, key: &StoreKey, record: &Record, catching: bool) -> Result<bool, Fault> {
        let head = self.store.head(key.hash, &key.key)?;
        // While Catching, what is from before never wins, whatever the stamps. (Rule 6)
        let compared =
            !catching || self.replicated.contains(key) || self.settings.broken.is(Mutation::CatchingOldWins);
        let stored =
            head.map_or(Stamp::default(), |head| if compared { head.stamp } else { Stamp::default() });
        if stored > record.stamp && !self.is_marked_before(key) {
            return Ok(false);
        }
        // A full disk need not take again what it has, if it has: whoever carries a version forward counts on this copy, and
        // one that cannot be shown is none. What has a mark of this space was put in it, and is not looked at. (Rule 11)
        if stored != record.stamp || !(self.is_marked_here(key) || self.shows(key)) {
            self.store.put(key.hash, &key.key, record)?;
        }
        if catching && !self.replicated.contains(key) {
            // Kept for long: not with all that arrived with it.
            self.replicated.insert(StoreKey { hash: key.hash, key: Bytes::copy_from_slice(&key.key) });
        }
        Ok(true)
    }

    /// The sender and this server are in one space; if not, the one that is behind is helped.
    pub(super) fn same_space(
        &mut self,
        from: ServerId,
        theirs: SpaceNumber,
        effects: &mut Vec<ServerEffect>,
    ) -> bool {
        let mine = self.world.as_ref().map_or(SpaceNumber(0), |world| world.number());
        if theirs > mine && !self.is_postponed(theirs) {
            effects.push(ServerEffect::Server(from, Message::WantSpace { above: mine }));
        }
        // Of frames that were on their way the first is answered.
        let link = self.index_of(from).map(|index| &mut self.links[usize::from(index)]);
        if theirs < mine && !link.is_some_and(|link| std::mem::replace(&mut link.given, true)) {
            self.give_space(from, theirs, effects);
        }
        theirs == mine
    }

    /// Clears the marks of frames that are committed.
    pub(super) fn watermark(&mut self, from: ServerId, epoch: SpaceNumber, upto: u64) {
        let Some(world) = &self.world else { return };
        if world.number() != epoch {
            return;
        }
        let Some(index) = world.space.index_of(from) else { return };
        self.clear_marks(index, epoch, upto);
    }

    fn clear_marks(&mut self, from: u16, epoch: SpaceNumber, upto: u64) {
        let link = &mut self.links[usize::from(from)];
        link.heard = link.heard.max(upto);
        while let Some((seq, key)) = link.marks.pop_front_if(|(seq, _)| *seq <= upto) {
            self.dirty.remove_if(&key, |mark| mark.epoch == epoch && mark.seq == seq);
        }
    }

    /// Frames that came one after another and were stored in one turn are acknowledged together.
    fn acknowledge(&self, to: ServerId, epoch: SpaceNumber, seq: u64, effects: &mut Vec<ServerEffect>) {
        if let Some(ServerEffect::Server(before, Message::Replicated { epoch: same, last, .. })) =
            effects.last_mut()
            && *before == to
            && *same == epoch
            && last.checked_add(1) == Some(seq)
        {
            *last = seq + u64::from(self.settings.broken.is(Mutation::AcknowledgedAhead));
            return;
        }
        effects.push(ServerEffect::Server(to, Message::Replicated { epoch, first: seq, last: seq }));
    }
}
