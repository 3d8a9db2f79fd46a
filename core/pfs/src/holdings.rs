//! [`Sessions`]: what each session has, so that its end finds it. All of it follows from the rest of the
//! state; a snapshot leaves it out.

use crate::map::{Map, Set};
use crate::protocol::Resource;
use kumo_session::SessionId;
use std::sync::Arc;

/// Sessions that have anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sessions(Map<SessionId, Holdings>);

/// What one session has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Holdings {
    /// Paths of its ephemeral files.
    pub ephemerals: Set<Arc<str>>,
    /// Locks it holds and the number of each grant.
    pub locks: Map<Arc<str>, u64>,
    /// Messages it hides and the queue of each.
    pub hidden: Map<u64, Arc<str>>,
    /// Its requests that wait, by their number.
    pub parked: Map<u64, Parked>,
    pub watches: Set<Resource>,
}

/// Where a request waits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parked {
    pub at: ParkedAt,
    pub name: Arc<str>,
    /// Its place in that line.
    pub arrival: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkedAt {
    Lock,
    Queue,
}

impl Sessions {
    pub fn get(&self, session: SessionId) -> Option<&Holdings> {
        self.0.get(&session)
    }

    /// Changes what a session has. One that has nothing more is forgotten.
    pub fn change<R>(&mut self, session: SessionId, change: impl FnOnce(&mut Holdings) -> R) -> R {
        let holdings = self.0.get_or_default(&session);
        let result = change(holdings);
        if holdings.is_empty() {
            self.0.remove(&session);
        }
        result
    }

    /// The session is over: what it had, for the last time.
    pub fn take(&mut self, session: SessionId) -> Holdings {
        self.0.remove(&session).unwrap_or_default()
    }

    /// The number under which a session holds a lock.
    pub fn grant(&self, session: SessionId, lock: &str) -> Option<u64> {
        self.get(session)?.locks.get(lock).copied()
    }

    pub fn parked(&self, session: SessionId) -> u64 {
        self.get(session).map_or(0, |holdings| holdings.parked.len() as u64)
    }

    pub fn watches(&self, session: SessionId) -> u64 {
        self.get(session).map_or(0, |holdings| holdings.watches.len() as u64)
    }
}

impl Holdings {
    fn is_empty(&self) -> bool {
        self.ephemerals.is_empty()
            && self.locks.is_empty()
            && self.hidden.is_empty()
            && self.parked.is_empty()
            && self.watches.is_empty()
    }
}
