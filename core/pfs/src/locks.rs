//! [`Locks`]: by name, advisory, for reading or for writing, in the order of asking.

use crate::holdings::{Parked, ParkedAt};
use crate::limits::within;
use crate::map::Map;
use crate::path::check_name;
use crate::pfs::{Done, Pfs, next};
use crate::protocol::{Refusal, Reply};
use kumo_session::{Entry, Outcome, SessionId};
use kumo_wire::Wire;
use std::sync::Arc;

/// The locks that are held. An idle one leaves nothing behind; numbers are counted for all of them together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Locks {
    pub named: Map<Arc<str>, Lock>,
    /// Holders and waiters of all.
    pub claims: u64,
}

/// A lock with at least one holder. Who holds it does not also wait for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lock {
    /// There is one holder, and no other beside it.
    pub exclusive: bool,
    /// By the number of their grant.
    pub holders: Map<u64, SessionId>,
    /// In the order they came.
    pub waiters: Map<u64, LockWaiter>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LockWaiter {
    pub session: SessionId,
    pub number: u64,
    pub exclusive: bool,
}

impl Pfs {
    pub(crate) fn lock(
        &mut self,
        entry: Entry,
        name: &str,
        exclusive: bool,
        try_only: bool,
        outcome: &mut Outcome,
    ) -> Done {
        check_name(name)?;
        if let Some(number) = self.sessions.grant(entry.session, name) {
            return self.locks.again(name, number, exclusive).map(Some);
        }
        // Who comes while others wait, waits too, even a reader beside readers: a stream of readers would
        // keep a writer out for ever.
        let free =
            self.locks.named.get(name).is_none_or(|lock| lock.waiters.is_empty() && lock.admits(exclusive));
        if !free && try_only {
            return Err(Refusal::Locked(name.to_owned()));
        }
        within(self.locks.claims + 1, self.limits.claims, "locks held and waited for")?;
        if free {
            self.locks.claims += 1;
            let number = self.grant(entry, &name.into(), entry.session, exclusive);
            return Ok(Some(Reply::Granted { number }));
        }
        self.check_parked(entry)?;
        self.locks.claims += 1;
        let arrival = self.park(entry, ParkedAt::Lock, name);
        let waiter = LockWaiter { session: entry.session, number: entry.number, exclusive };
        let lock = self.locks.named.get_mut(name).expect("it is not free");
        lock.waiters.insert(arrival, waiter);
        self.watches.tell_lock(name, exclusive, outcome);
        Ok(None)
    }

    pub(crate) fn unlock(&mut self, entry: Entry, name: &str, outcome: &mut Outcome) -> Done {
        check_name(name)?;
        let Some(number) = self.sessions.grant(entry.session, name) else {
            return Err(Refusal::NotLocked(name.to_owned()));
        };
        self.sessions.change(entry.session, |holdings| holdings.locks.remove(name));
        self.locks.free(name, number);
        self.grant_on(entry, name, outcome);
        Ok(Some(Reply::Done))
    }

    /// Gives a lock to those in front of the line who fit, and forgets it when it is idle.
    pub(crate) fn grant_on(&mut self, entry: Entry, name: &str, outcome: &mut Outcome) {
        while let Some(lock) = self.locks.named.get_mut(name) {
            let Some((&arrival, waiter)) = lock.waiters.first() else {
                if lock.holders.is_empty() {
                    self.locks.named.remove(name);
                }
                return;
            };
            let waiter = waiter.clone();
            if !lock.admits(waiter.exclusive) {
                return;
            }
            lock.waiters.remove(&arrival);
            self.sessions.change(waiter.session, |holdings| holdings.parked.remove(&waiter.number));
            let number = self.grant(entry, &name.into(), waiter.session, waiter.exclusive);
            let reply = Reply::Granted { number };
            outcome.answers.push((waiter.session, waiter.number, reply.to_bytes()));
            self.answer_twins(name, waiter.session, number, outcome);
        }
    }

    /// A session that got the lock may have asked for it several times: the other requests are answered as
    /// those of a holder. Behind a waiting writer they would keep the session from its own lock.
    fn answer_twins(&mut self, name: &str, session: SessionId, number: u64, outcome: &mut Outcome) {
        let Some(holdings) = self.sessions.get(session) else { return };
        let is_twin = |parked: &Parked| parked.at == ParkedAt::Lock && &*parked.name == name;
        let twins: Vec<(u64, u64)> = holdings
            .parked
            .iter()
            .filter(|(_, parked)| is_twin(parked))
            .map(|(&request, parked)| (request, parked.arrival))
            .collect();
        for (request, arrival) in twins {
            self.sessions.change(session, |holdings| holdings.parked.remove(&request));
            let waiter = self.locks.leave(name, arrival).expect("a parked request waits in its line");
            let reply = self.locks.again(name, number, waiter.exclusive).unwrap_or_else(Reply::Refused);
            outcome.answers.push((session, request, reply.to_bytes()));
        }
    }

    fn grant(&mut self, entry: Entry, name: &Arc<str>, session: SessionId, exclusive: bool) -> u64 {
        let number = next(&mut self.numbers.grants, entry.generation);
        let lock = self.locks.named.get_or_default(name);
        lock.exclusive = exclusive;
        lock.holders.insert(number, session);
        self.sessions.change(session, |holdings| holdings.locks.insert(name.clone(), number));
        number
    }

    pub(crate) fn check_parked(&self, entry: Entry) -> Result<(), Refusal> {
        let parked = self.sessions.parked(entry.session) + 1;
        within(parked, self.limits.session_parked, "waiting requests of the session")
    }

    /// Remembers where a request waits, and returns its place in the line.
    pub(crate) fn park(&mut self, entry: Entry, at: ParkedAt, name: &str) -> u64 {
        self.numbers.arrivals += 1;
        let arrival = self.numbers.arrivals;
        let parked = Parked { at, name: name.into(), arrival };
        self.sessions.change(entry.session, |holdings| holdings.parked.insert(entry.number, parked));
        arrival
    }
}

impl Locks {
    /// Whether that grant of that lock is still held: the check behind a fenced write.
    pub fn is_granted(&self, name: &str, number: u64) -> bool {
        self.named.get(name).is_some_and(|lock| lock.holders.contains(&number))
    }

    /// The answer to a holder that asks again. A reader cannot become a writer in place: two that tried
    /// would wait for each other for ever. It unlocks first.
    fn again(&self, name: &str, number: u64, exclusive: bool) -> Result<Reply, Refusal> {
        let held_exclusive = self.named.get(name).is_some_and(|lock| lock.exclusive);
        if exclusive && !held_exclusive {
            let why = "the session holds the lock for reading and has to unlock it first";
            return Err(Refusal::NotAllowed(why.to_owned()));
        }
        Ok(Reply::Granted { number })
    }

    /// A holder lets go. Who comes next is another step.
    pub fn free(&mut self, name: &str, number: u64) {
        let Some(lock) = self.named.get_mut(name) else { return };
        if lock.holders.remove(&number).is_some() {
            self.claims -= 1;
        }
    }

    /// A waiter leaves the line.
    pub fn leave(&mut self, name: &str, arrival: u64) -> Option<LockWaiter> {
        let waiter = self.named.get_mut(name)?.waiters.remove(&arrival)?;
        self.claims -= 1;
        Some(waiter)
    }
}

impl Lock {
    /// Whether one more could hold it now, the line left aside.
    fn admits(&self, exclusive: bool) -> bool {
        self.holders.is_empty() || !exclusive && !self.exclusive
    }
}
