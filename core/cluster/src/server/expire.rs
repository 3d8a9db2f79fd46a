//! [`Expiry`]: what has expired is replaced by a tombstone before anybody hears that it is missing. (Rule 18)

use super::Server;
use super::judge::{Content, Says};
use super::pendings::Pending;
use crate::{Answer, Fault, Kind, Refusal, ServerEffect, Store, StoreKey};
use bytes::Bytes;
use kumo_paxos::Time;

/// What a primary finds of a key that somebody asks for.
///
/// "Expired" is one server's idea of the time. Another owner may have none yet, or one that is a day behind, because
/// a new master's clock is: to it the value is alive. So "missing" is said of a tombstone that all of A(k) have, never of a
/// value whose time is over; and where no tombstone can be written now, nothing is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// Nothing that has expired stands here.
    Settled,
    /// The tombstone is on its way.
    UnderWay,
    /// It cannot be written now, and this is to be answered instead.
    Hindered(Answer),
}

impl<S: Store> Server<S> {
    /// At the primary, before it judges or shows a version.
    pub(super) fn expire_first(
        &mut self,
        now: Time,
        key: &StoreKey,
        effects: &mut Vec<ServerEffect>,
    ) -> Expiry {
        // What is under way may have found the value alive: it is for whoever looks at the pending write to judge.
        if self.pending.contains_key(key) {
            return Expiry::Settled;
        }
        let Ok(expired) = self.holds_expired(now, key) else {
            return Expiry::Hindered(Answer::Refused { reason: Refusal::Damaged });
        };
        if !expired {
            return Expiry::Settled;
        }
        if let Some(hindrance) = self.expire_value(now, key.clone(), effects) {
            return Expiry::Hindered(hindrance);
        }
        // Alone, it is committed at once, and there is nothing to wait for.
        if self.pending.contains_key(key) { Expiry::UnderWay } else { Expiry::Settled }
    }

    fn holds_expired(&self, now: Time, key: &StoreKey) -> Result<bool, Fault> {
        let head = self.store.head(key.hash, &key.key)?;
        Ok(head.is_some_and(|head| head.kind == Kind::Value && self.expired(now, head.expiry)))
    }

    /// The primary writes a tombstone, by the ordinary way of a write; or says what hinders it. `--min-copies` does not: it
    /// is about what clients want kept, and all who have the value get the tombstone, however few they are.
    pub(super) fn expire_value(
        &mut self,
        now: Time,
        key: StoreKey,
        effects: &mut Vec<ServerEffect>,
    ) -> Option<Answer> {
        let Some(world) = &self.world else { return Some(Answer::Wait) };
        if !world.is_primary(world.arc(world.piece(key.hash))) || self.pending.contains_key(&key) {
            return Some(Answer::Wait);
        }
        if self.is_without_room(&key) {
            return Some(Answer::Refused { reason: Refusal::Full });
        }
        if self.is_busy(&key) || self.pending.is_full() {
            return Some(Answer::Wait);
        }
        let Ok(head) = self.store.head(key.hash, &key.key) else {
            return Some(Answer::Refused { reason: Refusal::Damaged });
        };
        let content =
            Content { kind: Kind::Tombstone, flags: 0, expiry: 0, data: Bytes::new(), says: Says::Done };
        let record = self.stamped(head.as_ref(), &content);
        self.begin(now, key, Pending::new(record, None), effects);
        None
    }
}
