//! Adopting a newer space: links begin a new epoch, each piece of the ring gets its state, writes under way are
//! carried on or handed over.

use super::Server;
use super::few::Few;
use super::link::{Frames, Link};
use super::pendings::Pending;
use super::replica::Mark;
use super::world::{State, World};
use crate::{
    Answer, MemberState, Message, Mutation, Range, ServerEffect, ServerId, ServerNote, Space, SpaceNumber,
    Store, StoreKey,
};
use kumo_paxos::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

impl<S: Store> Server<S> {
    /// The space that another server is in.
    pub(super) fn adopt_from(
        &mut self,
        now: Time,
        from: ServerId,
        space: Space,
        effects: &mut Vec<ServerEffect>,
    ) {
        let known = self.world.as_ref().is_some_and(|world| world.number() == space.number);
        self.adopt(now, space, effects);
        if known {
            self.settle_soon(now, from);
        }
    }

    pub(super) fn adopt(&mut self, now: Time, space: Space, effects: &mut Vec<ServerEffect>) {
        if self.settings.cluster.is_some_and(|cluster| cluster != space.cluster) {
            // Its managers may have lost their memory: the operator has to know, once.
            if self.stranger.replace(space.cluster) != Some(space.cluster) {
                effects.push(ServerEffect::Note(ServerNote::Stranger { cluster: space.cluster }));
            }
            return;
        }
        if self.world.as_ref().is_some_and(|world| world.number() >= space.number) || !space.well_formed() {
            return;
        }
        let me = space.index_of(self.settings.id);
        // Belonging begins with being attached: until then the next space may be of another cluster, whose numbers say
        // nothing about this one's.
        if self.settings.cluster.is_none() && me.is_none() {
            return;
        }
        if now < self.postponed_until && self.is_postponed(space.number) {
            // Told again, as by everybody who is in it.
            return;
        }
        let world = World::new(space.clone(), me, self.world.as_ref(), self.settings.broken);
        match self.drop_leftovers(&world) {
            Ok(true) => {}
            Ok(false) => return self.postpone(now, DROP_PAUSE_MICROS, space),
            Err(fault) => {
                self.store_fault(&fault, effects);
                return self.postpone(now, FAULT_PAUSE_MICROS, space);
            }
        }
        self.postponed = self.postponed.take().filter(|later| later.number > space.number);
        // Given up: named as lost, or not named any more though nobody asked this server to confirm that it left.
        let given_up = match me {
            Some(me) => matches!(space.member(me).state, MemberState::Fault { .. }),
            None => self.world.as_ref().is_some_and(|world| world.must_confirm()),
        };
        if me.is_some() {
            self.settings.cluster = Some(space.cluster);
        }
        // Who is given up has no part in it, and it does not say what the next life has to drop.
        if me.is_some() && !(given_up && self.may_have_leftovers()) {
            effects.push(ServerEffect::KeepSpace(space.clone()));
        }
        if given_up {
            let reason = "the managers gave this server up; it begins a new life and waits to be attached";
            effects.push(ServerEffect::Reborn { reason: reason.to_owned() });
            return;
        }
        effects.push(ServerEffect::Note(ServerNote::Adopted { space: space.clone() }));
        self.last_watermarks(effects);
        self.clock = self.clock.max(space.clock);
        self.orphaned_no_more(&space);
        let before = self.world.take();
        self.owned |= world.pieces.iter().any(|piece| piece.state != State::Gone);
        self.relink(now, before.as_ref(), &world, effects);
        let fresh = self.forget_what_is_not_mine(before.as_ref(), &world);
        let kept = self.carry_pending(before.as_ref(), &world, &fresh, effects);
        self.world = Some(world);
        self.ids.expire({
            let space = &self.world.as_ref().expect("set above").space;
            |gateway| space.expired(gateway)
        });
        self.reads_restart(now, effects);
        self.flushes_broken(effects);
        self.announce(effects);
        self.send_kept(now, kept, effects);
        self.begin_settlement(now, effects);
        // Those who copy begin again what was not answered.
        self.unsafe_copies.clear();
        self.plan_copies(now, effects);
        self.alive(now, None, effects);
        self.tick_at = now;
    }

    /// What was committed in the epoch that ends is said before it ends.
    fn last_watermarks(&mut self, effects: &mut Vec<ServerEffect>) {
        self.send_watermarks(effects);
        self.watermark_at = None;
    }

    fn relink(&mut self, now: Time, before: Option<&World>, world: &World, effects: &mut Vec<ServerEffect>) {
        let acting = |world: &World| -> BTreeSet<ServerId> {
            // Who is not attached has nothing to say to the others.
            if world.me.is_none() {
                return BTreeSet::new();
            }
            let acts = |state: MemberState| !matches!(state, MemberState::Fault { .. });
            let members = world.space.members.iter().filter(|member| acts(member.state));
            members.map(|member| member.id()).filter(|&id| id != self.settings.id).collect()
        };
        let (was, is) = (before.map(acting).unwrap_or_default(), acting(world));
        effects.extend(was.difference(&is).map(|&id| ServerEffect::Undial(id)));
        effects.extend(is.difference(&was).map(|&id| ServerEffect::Dial(id)));
        self.links.clear();
        for member in &world.space.members {
            let mut link = Link::new(now);
            link.up = self.up.contains(&member.id()) && is.contains(&member.id());
            self.links.push(link);
        }
    }

    /// Marks, notes and ids of pieces that this server has no part in any more, or begins to catch up with.
    /// Returns the latter. (Rule 14)
    fn forget_what_is_not_mine(&mut self, before: Option<&World>, world: &World) -> Vec<Range> {
        let mut fresh = Vec::new();
        let mut gone = Vec::new();
        for piece in &world.pieces {
            match piece.state {
                State::Gone => gone.push(piece.range),
                State::Catching { .. } => {
                    let was = before.map(|world| world.piece(piece.range.first).state);
                    if was != Some(piece.state) {
                        gone.push(piece.range);
                        fresh.push(piece.range);
                    }
                }
                State::Normal | State::Settling => {}
            }
        }
        let inside = |hash| {
            let at = gone.partition_point(|range: &Range| range.last < hash);
            gone.get(at).is_some_and(|range| range.contains(hash))
        };
        self.dirty.retain(|key| !inside(key.hash));
        self.unstored.retain(|key| !inside(key.hash));
        self.ids.forget(inside);
        // The notes matter while their piece is Catching in the same job only.
        self.replicated
            .retain(|key| matches!(world.piece(key.hash).state, State::Catching { .. }) && !inside(key.hash));
        fresh
    }

    /// Comes back to the newest such space soon.
    fn postpone(&mut self, now: Time, micros: u64, space: Space) {
        if self.postponed.as_ref().is_none_or(|other| other.number < space.number) {
            self.postponed = Some(space);
        }
        self.postponed_until = now.plus_micros(micros);
        self.tick_at = self.tick_at.min(self.postponed_until);
    }

    /// That space is here, and waits until there is room for it.
    pub(super) fn is_postponed(&self, number: SpaceNumber) -> bool {
        self.postponed.as_ref().is_some_and(|space| space.number == number)
    }

    pub(super) fn adopt_postponed(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        if let Some(space) = self.postponed.take_if(|_| now >= self.postponed_until) {
            self.adopt(now, space, effects);
        }
    }

    /// Writes under way stay where this server goes on as primary; elsewhere they are marked records now, for
    /// the next primary to settle, and who waits is told to ask there.
    fn carry_pending(
        &mut self,
        before: Option<&World>,
        world: &World,
        fresh: &[Range],
        effects: &mut Vec<ServerEffect>,
    ) -> BTreeMap<StoreKey, Pending> {
        let Some(before) = before else { return BTreeMap::new() };
        let mut kept = BTreeMap::new();
        let (mut room, mut more) = (UNREPLICATED_MAX, 0);
        for (key, mut pending) in self.pending.take() {
            let piece = world.piece(key.hash);
            let arc = world.arc(piece);
            let leads = piece.state == State::Normal && world.is_primary(arc);
            let unread = self.unread.contains(&key);
            if leads && unread {
                self.recount(before, world, &key, &mut pending);
                kept.insert(key, pending);
                continue;
            }
            if leads {
                for to in given_up(before, world, &pending) {
                    if room == 0 {
                        more += 1;
                        continue;
                    }
                    room -= 1;
                    let (key, record) = (key.key.clone(), pending.record.clone());
                    effects.push(ServerEffect::Note(ServerNote::Unreplicated { to, key, record }));
                }
                self.recount(before, world, &key, &mut pending);
                kept.insert(key, pending);
                continue;
            }
            let carried = piece.state != State::Gone && !fresh.iter().any(|range| range.contains(key.hash));
            // One that cannot be read is marked still.
            self.unread.remove(&key);
            if let Some(over) = &pending.over {
                // Who settles learns of what is in its place, and must not answer it before that is committed. Nor may
                // anybody execute it.
                self.ids.disown(over.origin.id);
                self.ids.unknown(over.origin.id, key.hash);
            }
            if carried && !unread {
                self.keep_marked(&key, &pending, before.number(), effects);
            }
            let newest = world.number();
            for (connection, seq) in pending.everyone() {
                self.answer(connection, seq, Answer::WrongSpace { newest }, effects);
            }
        }
        if more > 0 {
            effects.push(ServerEffect::Note(ServerNote::UnreplicatedMore { writes: more }));
        }
        kept
    }

    /// All must acknowledge it in this space, who is new and who has done so before: that one may have left in a space
    /// between, which this server never saw, dropped the write, and be back. (Rule 7)
    fn recount(&self, before: &World, world: &World, key: &StoreKey, pending: &mut Pending) {
        let was = before.arc(before.piece(key.hash));
        let asked: BTreeSet<ServerId> = before.others(was).map(|one| before.space.server(one)).collect();
        let arc = world.arc(world.piece(key.hash));
        let lax = self.settings.broken.is(Mutation::PendingNotSentToNew);
        pending.waiting = world
            .others(arc)
            .filter(|&one| !lax || asked.contains(&world.space.server(one)))
            .collect::<Few>();
        pending.frames = Frames::default();
    }

    fn keep_marked(
        &mut self,
        key: &StoreKey,
        pending: &Pending,
        epoch: SpaceNumber,
        effects: &mut Vec<ServerEffect>,
    ) {
        let stored = self.store.head(key.hash, &key.key).ok().flatten();
        if stored.is_none_or(|head| head.stamp < pending.record.stamp)
            && let Err(fault) = self.store.put(key.hash, &key.key, &pending.record)
        {
            // It was never answered, and the others may have it: it is lost here, which is allowed.
            self.store_fault(&fault, effects);
            return;
        }
        // No frame of any link has the number 0: only a settlement clears this mark.
        self.dirty.insert(key.clone(), Mark { epoch, seq: 0, origin: pending.origin.clone() });
    }

    /// The others must have the space before anything that names it; links keep the order.
    fn announce(&self, effects: &mut Vec<ServerEffect>) {
        let Some(world) = &self.world else { return };
        for (member, link) in world.space.members.iter().zip(&self.links) {
            if link.up {
                let message = Message::new_space(world.space.clone());
                effects.push(ServerEffect::Server(member.id(), message));
            }
        }
    }

    /// Sends what is carried on to all who must have it, in the new epoch; also to those that acknowledged
    /// before, whose marks only this epoch's watermark can clear.
    fn send_kept(&mut self, now: Time, kept: BTreeMap<StoreKey, Pending>, effects: &mut Vec<ServerEffect>) {
        let keys: Vec<StoreKey> = kept.keys().cloned().collect();
        self.pending = kept.into();
        for key in &keys {
            self.send_pending(key, effects);
        }
        for key in &keys {
            self.commit_if_all(now, key, effects);
        }
    }
}

/// Who has not acknowledged the write, and is lost in the new space.
fn given_up(before: &World, world: &World, pending: &Pending) -> impl Iterator<Item = SocketAddr> {
    let waiting = pending.waiting.as_slice().iter().map(|&one| before.space.server(one));
    let is_lost = |id: &ServerId| match world.space.index_of(*id) {
        Some(index) => matches!(world.space.member(index).state, MemberState::Fault { .. }),
        None => false,
    };
    waiting.filter(is_lost).map(|id| id.address)
}

/// Writes that are noted by one change of the space, the others only counted. A server that is lost under load may
/// leave very many.
const UNREPLICATED_MAX: usize = 256;

/// Between two such steps: requests have their turn.
const DROP_PAUSE_MICROS: u64 = 1_000;

/// After one that the store refused.
const FAULT_PAUSE_MICROS: u64 = 1_000_000;
