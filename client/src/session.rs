//! [`Session`]: a client's place in a cell. Everything it asks is executed in order and exactly once.

use crate::caller::{body, encode, unexpected};
use crate::cell::{Cell, done};
use crate::driver::Driver;
use crate::error::Error;
use crate::options::Options;
use crate::transport::{Tcp, Transport};
use bytes::Bytes;
use kumo_pfs::{Command, Query, Reply, Resource};
use kumo_session::{Answer, ClientInput, EndReason, SessionId, SessionState};
use std::sync::Arc;
use tokio::sync::watch;

/// An open session. Cheap to clone: all clones are one session, and several calls may be under way.
///
/// Reconnects and changes of master show as latency alone. While the cell cannot be reached, calls wait and
/// [`state`](Session::state) says how the session stands. When the last clone, guard and stream is gone, the session
/// is closed: its locks are freed and its ephemeral files go.
#[derive(Clone)]
pub struct Session {
    cell: Cell,
}

impl Session {
    /// Opens a session; the runtime it is called on carries it from then on.
    pub async fn open(options: &Options) -> Result<Session, Error> {
        Session::open_over(options, Arc::new(Tcp)).await
    }

    pub(crate) async fn open_over(
        options: &Options,
        transport: Arc<dyn Transport>,
    ) -> Result<Session, Error> {
        let (caller, opened) = Driver::start(options.settings(true)?, transport);
        opened.await.unwrap_or(Err(Error::Ended(EndReason::Closed)))?;
        Ok(Session { cell: Cell { caller: caller.into() } })
    }

    /// As the cell issued it.
    pub fn id(&self) -> Option<SessionId> {
        self.cell.caller.shared.session.get().copied()
    }

    /// How the session stands, now and whenever it changes.
    pub fn state(&self) -> watch::Receiver<SessionState> {
        self.cell.caller.state.clone()
    }

    /// The cell this session lives in: its status, its members.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// Ends this session, and waits until the cell knows.
    pub async fn close(&self) -> Result<(), Error> {
        done(self.cell.caller.call(|ticket| ClientInput::Close { ticket }).await?)
    }

    /// Ends another session.
    pub async fn kill(&self, session: SessionId) -> Result<(), Error> {
        done(self.cell.caller.call(|ticket| ClientInput::Kill { ticket, session }).await?)
    }

    /// From now on this session's [`events`](Session::events) tell about the resource.
    pub async fn watch(&self, resource: Resource) -> Result<(), Error> {
        self.change(Command::Watch { resource }).await
    }

    pub async fn unwatch(&self, resource: Resource) -> Result<(), Error> {
        self.change(Command::Unwatch { resource }).await
    }

    /// A change as PFS takes it, for what has no method of its own here. A refusal is an error.
    pub async fn command(&self, command: &Command) -> Result<Reply, Error> {
        self.execute(encode(command)).await
    }

    /// A change that is encoded already.
    pub(crate) async fn execute(&self, command: Bytes) -> Result<Reply, Error> {
        body(self.cell.caller.call(|ticket| ClientInput::Command { ticket, command }).await?)
    }

    /// A change in the bytes of whatever application the cell runs; so is the reply.
    pub async fn request(&self, command: Bytes) -> Result<Bytes, Error> {
        reply(self.cell.caller.call(|ticket| ClientInput::Command { ticket, command }).await?)
    }

    /// A question in the bytes of whatever application the cell runs; so is the reply.
    pub async fn inquire(&self, query: Bytes) -> Result<Bytes, Error> {
        reply(self.cell.caller.call(|ticket| ClientInput::Read { ticket, query }).await?)
    }

    /// A question as PFS takes it.
    pub async fn query(&self, query: &Query) -> Result<Reply, Error> {
        let query = encode(query);
        body(self.cell.caller.call(|ticket| ClientInput::Read { ticket, query }).await?)
    }

    /// A change that is answered with nothing but that it was made.
    pub(crate) async fn change(&self, command: Command) -> Result<(), Error> {
        match self.command(&command).await? {
            Reply::Done => Ok(()),
            reply => Err(unexpected(reply)),
        }
    }
}

fn reply(answer: Answer) -> Result<Bytes, Error> {
    match answer {
        Answer::Body(bytes) => Ok(bytes),
        answer => Err(unexpected(answer)),
    }
}
