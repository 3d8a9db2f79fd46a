//! [`Cell`]: an operator's view of a cell. Needs no session, and works while there is no master.

use crate::caller::{Caller, unexpected};
use crate::driver::Driver;
use crate::error::Error;
use crate::options::Options;
use crate::transport::Tcp;
use kumo_paxos::{Change, Status};
use kumo_session::{Answer, ClientInput, SessionInfo};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Asks and orders what concerns the cell itself.
#[derive(Clone)]
pub struct Cell {
    pub(crate) caller: Arc<Caller>,
}

/// A member's view of the cell, and how long sessions live in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellStatus {
    pub status: Status,
    pub session_timeout: Duration,
}

impl Cell {
    /// Connects without opening a session. Nothing is asked yet: errors show in the first call.
    pub fn connect(options: &Options) -> Result<Cell, Error> {
        let (caller, _) = Driver::start(options.settings(false)?, Arc::new(Tcp));
        Ok(Cell { caller: Arc::new(caller) })
    }

    /// The view of the master, or of any member while there is none.
    pub async fn status(&self) -> Result<CellStatus, Error> {
        match self.caller.call(|ticket| ClientInput::Status { ticket }).await? {
            Answer::Status { status, session_timeout_ms } => {
                Ok(CellStatus { status, session_timeout: Duration::from_millis(session_timeout_ms) })
            }
            answer => Err(unexpected(answer)),
        }
    }

    pub async fn sessions(&self) -> Result<Vec<SessionInfo>, Error> {
        match self.caller.call(|ticket| ClientInput::Sessions { ticket }).await? {
            Answer::Sessions(sessions) => Ok(sessions),
            answer => Err(unexpected(answer)),
        }
    }

    /// Changes who is a member. `at`: the member to ask; the master when `None`.
    pub async fn change(&self, change: Change, at: Option<SocketAddr>) -> Result<(), Error> {
        done(self.caller.call(|ticket| ClientInput::Change { ticket, change, at }).await?)
    }

    /// The master steps down.
    pub async fn transfer(&self) -> Result<(), Error> {
        done(self.caller.call(|ticket| ClientInput::Transfer { ticket }).await?)
    }

    /// A durable replica writes a snapshot now (the seed's PaxosSessionSnapshot).
    pub async fn snapshot(&self) -> Result<(), Error> {
        done(self.caller.call(|ticket| ClientInput::Snapshot { ticket }).await?)
    }
}

pub(crate) fn done(answer: Answer) -> Result<(), Error> {
    match answer {
        Answer::Done => Ok(()),
        answer => Err(unexpected(answer)),
    }
}
