//! Queues by name.

use crate::caller::{body, unexpected};
use crate::error::Error;
use crate::lock::Patience;
use crate::session::Session;
use bytes::Bytes;
use kumo_pfs::{Command, MESSAGE_BYTES_MAX, Query, QueueInfo, Refusal, Reply};
use std::time::Duration;

/// A message and the id it is known by in its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: u64,
    pub data: Bytes,
}

impl Session {
    /// Puts a message at the end.
    pub async fn post(&self, queue: &str, data: impl Into<Bytes>) -> Result<(), Error> {
        let data = data.into();
        if data.len() as u64 > MESSAGE_BYTES_MAX {
            // It would not fit a frame: the cell would have to hang up instead of refusing.
            return Err(Error::Refused(Refusal::Limit("message".to_owned(), MESSAGE_BYTES_MAX)));
        }
        match self.command(&Command::Post { queue: queue.to_owned(), data }).await? {
            Reply::Done | Reply::Message { .. } => Ok(()),
            reply => Err(unexpected(reply)),
        }
    }

    /// Takes the head, or waits for one. A message taken when this future is dropped is gone: bound the wait by
    /// [`wait_within`](Session::wait_within), or use [`receive`](Session::receive), instead of dropping it.
    pub async fn wait(&self, queue: &str) -> Result<Message, Error> {
        self.take(queue, Patience::Forever).await
    }

    /// [`Error::TimedOut`] when none came in time. No message is lost between the two.
    pub async fn wait_within(&self, queue: &str, limit: Duration) -> Result<Message, Error> {
        self.take(queue, Patience::Within(limit)).await
    }

    /// Refused with [`Refusal::Empty`] when there is none.
    pub async fn try_wait(&self, queue: &str) -> Result<Message, Error> {
        self.take(queue, Patience::Try).await
    }

    async fn take(&self, queue: &str, patience: Patience) -> Result<Message, Error> {
        let command = Command::Wait { queue: queue.to_owned(), try_only: patience.try_only() };
        self.message(command, patience).await
    }

    /// The head, hidden for this session until [`acknowledge`](Session::acknowledge) or the session's end: then the
    /// next one gets it.
    pub async fn receive(&self, queue: &str, patience: Patience) -> Result<Message, Error> {
        let command = Command::Receive { queue: queue.to_owned(), try_only: patience.try_only() };
        self.message(command, patience).await
    }

    async fn message(&self, command: Command, patience: Patience) -> Result<Message, Error> {
        let pending = self.cell().caller.start_parked(&command, !patience.try_only());
        message(body(pending.finish_within(patience.limit()).await?)?)
    }

    /// A received message is dealt with.
    pub async fn acknowledge(&self, queue: &str, id: u64) -> Result<(), Error> {
        self.change(Command::Acknowledge { queue: queue.to_owned(), id }).await
    }

    /// The head, left there.
    pub async fn peek(&self, queue: &str) -> Result<Message, Error> {
        message(self.query(&Query::Peek { queue: queue.to_owned() }).await?)
    }

    /// Removes a message wherever it stands; one that is hidden, only if this session hides it.
    pub async fn delete_message(&self, queue: &str, id: u64) -> Result<(), Error> {
        self.change(Command::DeleteMessage { queue: queue.to_owned(), id }).await
    }

    /// All queues, in byte order of their names.
    pub async fn queues(&self) -> Result<Vec<QueueInfo>, Error> {
        let mut all: Vec<QueueInfo> = Vec::new();
        loop {
            let after = all.last().map(|queue| queue.name.clone()).unwrap_or_default();
            match self.query(&Query::Queues { after }).await? {
                Reply::Queues(page) if page.is_empty() => return Ok(all),
                Reply::Queues(page) => all.extend(page),
                reply => return Err(unexpected(reply)),
            }
        }
    }
}

fn message(reply: Reply) -> Result<Message, Error> {
    match reply {
        Reply::Message { id, data } => Ok(Message { id, data }),
        reply => Err(unexpected(reply)),
    }
}
