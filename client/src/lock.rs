//! Locks by name: [`LockGuard`].

use crate::caller::{body, unexpected};
use crate::clock;
use crate::error::Error;
use crate::session::Session;
use kumo_pfs::{Command, LockInfo, Query, Reply};
use kumo_session::SessionState;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A lock this session holds. Dropped, it is freed in the background.
pub struct LockGuard {
    session: Session,
    name: String,
    number: u64,
    freed: bool,
}

/// How long to wait for a lock or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    Forever,
    /// Not at all: refused when it is not there now.
    Try,
    Within(Duration),
}

impl Patience {
    pub(crate) fn try_only(self) -> bool {
        match self {
            Patience::Try => true,
            Patience::Forever | Patience::Within(_) => false,
        }
    }

    pub(crate) fn limit(self) -> Option<Duration> {
        match self {
            Patience::Within(limit) => Some(limit),
            Patience::Forever | Patience::Try => None,
        }
    }
}

impl LockGuard {
    /// The fencing number: it grows with every grant. Writes under it are refused once the lock is lost.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the session that held it is over, so that the lock may be another's.
    pub fn is_lost(&self) -> bool {
        // The state is as new as the driver's last turn; a paused process or a busy runtime must not be fooled by it.
        let until = self.session.cell().caller.shared.safe_until.load(Ordering::Acquire);
        clock::now().0 >= until || *self.session.state().borrow() == SessionState::Lost
    }

    /// Waits until [`is_lost`](LockGuard::is_lost).
    pub async fn lost(&self) {
        // An error means that the session's driver is gone: nobody renews it any more.
        let _ = self.session.state().wait_for(|state| *state == SessionState::Lost).await;
    }

    /// Frees the lock, and waits until the cell knows.
    pub async fn unlock(mut self) -> Result<(), Error> {
        self.freed = true;
        let caller = &self.session.cell().caller;
        let command = crate::caller::encode(&Command::Unlock { name: self.name.clone() });
        let pending = caller.start(|ticket| kumo_session::ClientInput::Command { ticket, command });
        // What this session asks from now on comes after the unlock.
        caller.shared.forget_lock(&self.name);
        match body(pending.finish().await?)? {
            Reply::Done => Ok(()),
            reply => Err(unexpected(reply)),
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.freed {
            return;
        }
        let caller = &self.session.cell().caller;
        caller.tell(&Command::Unlock { name: self.name.clone() });
        caller.shared.forget_lock(&self.name);
    }
}

impl Session {
    /// Waits for the lock; first come, first served.
    pub async fn lock_exclusive(&self, name: &str) -> Result<LockGuard, Error> {
        self.lock(name, true, Patience::Forever).await
    }

    /// Waits for a share of the lock. A waiting writer stops later readers.
    pub async fn lock_shared(&self, name: &str) -> Result<LockGuard, Error> {
        self.lock(name, false, Patience::Forever).await
    }

    /// Refused with [`Refusal::Locked`](kumo_pfs::Refusal::Locked) when another session holds it.
    pub async fn try_lock_exclusive(&self, name: &str) -> Result<LockGuard, Error> {
        self.lock(name, true, Patience::Try).await
    }

    pub async fn try_lock_shared(&self, name: &str) -> Result<LockGuard, Error> {
        self.lock(name, false, Patience::Try).await
    }

    /// [`Error::TimedOut`] when it was not granted in time.
    pub async fn lock_exclusive_within(&self, name: &str, limit: Duration) -> Result<LockGuard, Error> {
        self.lock(name, true, Patience::Within(limit)).await
    }

    pub async fn lock_shared_within(&self, name: &str, limit: Duration) -> Result<LockGuard, Error> {
        self.lock(name, false, Patience::Within(limit)).await
    }

    /// A lock is held by the session, once: a second request for it while a guard of it lives, or is awaited, is
    /// [`Error::LockInUse`]. Dropping the future gives the request up.
    pub async fn lock(&self, name: &str, exclusive: bool, patience: Patience) -> Result<LockGuard, Error> {
        let caller = &self.cell().caller;
        if !caller.shared.claim_lock(name) {
            return Err(Error::LockInUse(name.to_owned()));
        }
        let command = Command::Lock { name: name.to_owned(), exclusive, try_only: patience.try_only() };
        let pending = caller.start_lock(name, &command, !patience.try_only());
        let answer = pending.finish_within(patience.limit()).await;
        match answer.and_then(body) {
            Ok(Reply::Granted { number }) => {
                Ok(LockGuard { session: self.clone(), name: name.to_owned(), number, freed: false })
            }
            Ok(reply) => {
                caller.shared.forget_lock(name);
                Err(unexpected(reply))
            }
            Err(error) => {
                caller.shared.forget_lock(name);
                Err(error)
            }
        }
    }

    /// All locks held or awaited, in byte order of their names.
    pub async fn locks(&self) -> Result<Vec<LockInfo>, Error> {
        let mut all: Vec<LockInfo> = Vec::new();
        loop {
            let after = all.last().map(|lock| lock.name.clone()).unwrap_or_default();
            match self.query(&Query::Locks { after }).await? {
                Reply::Locks(page) if page.is_empty() => return Ok(all),
                Reply::Locks(page) => all.extend(page),
                reply => return Err(unexpected(reply)),
            }
        }
    }
}
