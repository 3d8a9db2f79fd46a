//! What a server does by itself, a little at a time: signs of life, resending, expiry, collecting tombstones,
//! dropping what it does not own any more.

use super::Server;
use super::world::{State, World};
use crate::alive::ALIVE_MICROS_MAX;
use crate::{
    Fault, Garbage, Head, KeyHash, Kind, Mutation, ServerEffect, ServerNote, Stamp, Store, StoreKey,
};
use kumo_paxos::Time;

/// Where the sweep through the store is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweep {
    after: Option<StoreKey>,
    /// Records dropped since the last note.
    dropped: u64,
    ticks: u64,
    /// What the last whole pass found, and this one so far.
    garbage: Garbage,
    counting: Garbage,
    /// It goes on then: the last step found more to do than one does.
    pub again_at: Option<Time>,
}

impl Sweep {
    pub fn garbage(&self) -> Garbage {
        self.garbage
    }

    /// A tombstone that stays; `due`: were it not for something else it would go.
    fn keeps(&mut self, key: &StoreKey, age_seconds: u64, due: bool) {
        self.counting.bytes += key.key.len() as u64 + TOMBSTONE_BYTES;
        self.counting.age_seconds = self.counting.age_seconds.max(age_seconds);
        self.counting.held += u64::from(due);
    }

    /// The pass is over.
    fn ended(&mut self) {
        self.garbage = std::mem::take(&mut self.counting);
    }
}

impl<S: Store> Server<S> {
    pub(super) fn tick(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        if self.watermark_at.is_some_and(|at| now >= at) {
            self.watermark_at = None;
            self.send_watermarks(effects);
        }
        if self.copy_at.is_some_and(|at| now >= at) {
            self.copy_more(now, effects);
        }
        if self.sweep.again_at.is_some_and(|at| now >= at) {
            self.sweep_on(now, effects);
        }
        if now < self.tick_at {
            return;
        }
        self.tick_at = now.plus_micros(TICK_MICROS);
        self.adopt_postponed(now, effects);
        if now >= self.alive_at {
            self.alive_at = now.plus_micros(self.alive_micros());
            self.alive(now, None, effects);
        }
        self.resend_tick(now, effects);
        self.settle_tick(now, effects);
        self.read_unread(now, effects);
        self.store_unstored(effects);
        self.reads_tick(now, effects);
        self.say_copied(effects);
        self.copy_more(now, effects);
        self.flush_more(now, effects);
        self.sweep.ticks += 1;
        if self.sweep.ticks.is_multiple_of(SWEEP_TICKS) {
            self.ask_about_marks(now, effects);
            if self.sweep.again_at.is_none() {
                self.sweep_on(now, effects);
            }
        }
    }

    /// Between two signs of life: as often as the operator wants, and never rarer than leases and managers need.
    fn alive_micros(&self) -> u64 {
        let wanted = self.settings.keepalive_micros / ALIVE_SHARE;
        wanted.min(self.lease_micros / LEASE_SIGNS).min(ALIVE_MICROS_MAX)
    }

    fn sweep_on(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        self.sweep.again_at = None;
        if let Err(fault) = self.sweep_some(now, effects) {
            self.store_fault(&fault, effects);
        }
    }

    /// Frames that nobody acknowledged for a while, and commits that the store refused.
    fn resend_tick(&mut self, now: Time, effects: &mut Vec<ServerEffect>) {
        for index in 0..self.links.len() {
            if !self.links[index].up {
                continue;
            }
            // No more may be sent before some is answered: that may have been dropped, all of it.
            let stands = !self.resend_more(index as u16, effects);
            if stands && self.links[index].must_resend(now, RESEND_MICROS) {
                self.resend_waiting(now, index as u16, effects);
            }
            self.resend_refused(index as u16, effects);
            // Where so much is under way that nothing new is sent, nothing else would.
            self.send_first_again(index as u16, effects);
        }
        // Those that wait for copies, or for the disk, would keep the others from their turn.
        let ready = self
            .pending
            .iter()
            .filter(|(key, pending)| pending.waiting.is_empty() && !self.waits_for_copies(key, pending))
            .filter(|(key, _)| !self.unread.contains(key));
        let ready: Vec<StoreKey> =
            ready.map(|(key, _)| key.clone()).take(self.settings.limits.swept_max).collect();
        for key in ready {
            self.commit_if_all(now, &key, effects);
        }
    }

    fn sweep_some(&mut self, now: Time, effects: &mut Vec<ServerEffect>) -> Result<(), Fault> {
        if self.world.is_none() {
            return Ok(());
        }
        let first = self.sweep.after.as_ref().map_or(KeyHash(0), |key| key.hash);
        let found = self.store.scan(
            first,
            KeyHash(u64::MAX),
            self.sweep.after.as_ref(),
            self.settings.limits.swept_max,
        )?;
        let ended = found.len() < self.settings.limits.swept_max;
        let mut room = self.settings.limits.changed_max;
        for (number, (key, head)) in found.iter().enumerate() {
            let swept = self.sweep_one(now, key, *head, effects);
            room -= usize::from(matches!(swept, Ok(true)));
            let more = number + 1 < found.len();
            if swept.is_err() || (room == 0 && more) {
                self.sweep.after = Some(key.clone());
                self.sweep.again_at = swept.is_ok().then(|| now.plus_micros(AGAIN_MICROS));
                return swept.map(drop);
            }
        }
        self.sweep.after = found.into_iter().next_back().filter(|_| !ended).map(|(key, _)| key);
        if ended {
            self.sweep.ended();
        }
        if ended && self.sweep.dropped > 0 {
            let records = std::mem::take(&mut self.sweep.dropped);
            effects.push(ServerEffect::Note(ServerNote::Dropped { records }));
        }
        Ok(())
    }

    /// How long ago, in the cell's time, a version was stamped.
    fn age_seconds(&self, now: Time, stamp: Stamp) -> u64 {
        self.cell_seconds(now).saturating_sub(u64::from(stamp.clock.unix_seconds()))
    }

    fn is_due(&self, age_seconds: u64) -> bool {
        age_seconds.saturating_mul(1_000_000) >= self.settings.tombstone_micros_min
    }

    /// True: there was something to do.
    fn sweep_one(
        &mut self,
        now: Time,
        key: &StoreKey,
        head: Head,
        effects: &mut Vec<ServerEffect>,
    ) -> Result<bool, Fault> {
        let Some(world) = &self.world else { return Ok(false) };
        let piece = world.piece(key.hash);
        match (piece.state, head.kind) {
            // Rule 17: everybody knows where it is now, and this server was an owner before.
            (State::Gone, _) if self.owned && world.may_drop(piece) => {
                self.store.remove(key.hash, &key.key)?;
                self.sweep.dropped += 1;
                Ok(true)
            }
            (State::Normal, Kind::Tombstone) if self.collectable(now, world, key, head.stamp) => {
                self.store.remove(key.hash, &key.key)?;
                Ok(true)
            }
            (_, Kind::Tombstone) => {
                let age = self.age_seconds(now, head.stamp);
                let due = self.is_due(age);
                self.sweep.keeps(key, age, due);
                Ok(false)
            }
            (State::Normal, Kind::Value) if self.expired(now, head.expiry) => {
                // If it cannot be now, a later pass tries again.
                Ok(self.expire_value(now, key.clone(), effects).is_none())
            }
            (State::Normal | State::Settling | State::Catching { .. } | State::Gone, Kind::Value) => {
                Ok(false)
            }
        }
    }

    /// Rule 19.
    fn collectable(&self, now: Time, world: &World, key: &StoreKey, stamp: Stamp) -> bool {
        let quiet = world.space.settled() && world.space.job.is_none();
        (quiet || self.settings.broken.is(Mutation::CollectDuringCopy))
            && self.is_due(self.age_seconds(now, stamp))
            && !self.dirty.contains_key(key)
            && !self.pending.contains_key(key)
    }
}

/// Between two looks at what is due.
const TICK_MICROS: u64 = 50_000;

/// Signs of life in a keepalive interval: with the default of 2 s, every 0.4 s, for leases of 1.5 s.
const ALIVE_SHARE: u64 = 5;

/// Signs of life in a lease's time: one may be late, or lost with its connection.
const LEASE_SIGNS: u64 = 3;

/// Ticks between two steps of the sweep.
const SWEEP_TICKS: u64 = 2;

/// What a tombstone takes in a store's memory beside its key: its stamp, its kind, and its place in the order.
const TOMBSTONE_BYTES: u64 = 40;

/// After a step that found more, which goes on sooner.
const AGAIN_MICROS: u64 = 10_000;

/// Frames without acknowledgement are sent again after this long.
const RESEND_MICROS: u64 = 300_000;
