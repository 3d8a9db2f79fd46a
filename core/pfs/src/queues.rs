//! [`Queues`]: messages in the order of posting, each handed out once, and lines of those who wait for them.

use crate::content::kept;
use crate::holdings::ParkedAt;
use crate::limits::within;
use crate::map::Map;
use crate::path::check_name;
use crate::pfs::{Done, Pfs, next};
use crate::protocol::{MESSAGE_BYTES_MAX, QueueChange, Refusal, Reply};
use bytes::Bytes;
use kumo_session::{Entry, Outcome, SessionId};
use kumo_wire::Wire;
use std::sync::Arc;

/// The queues with anything in them. An idle one leaves nothing behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Queues {
    pub named: Map<Arc<str>, Queue>,
    /// Of all: messages, hidden or not, their bytes, and requests that wait.
    pub messages: u64,
    pub bytes: u64,
    pub waits: u64,
}

/// A queue. When a message is ready, nobody waits but those whose sessions have no room for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Queue {
    /// There to be taken, by id: the order of posting.
    pub ready: Map<u64, Bytes>,
    /// Received by a session that has not acknowledged them yet.
    pub hidden: Map<u64, (SessionId, Bytes)>,
    /// In the order they came.
    pub waiters: Map<u64, QueueWaiter>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueueWaiter {
    pub session: SessionId,
    pub number: u64,
    /// Hide the message, do not take it.
    pub receive: bool,
}

impl Pfs {
    pub(crate) fn post(&mut self, entry: Entry, name: &str, data: Bytes, outcome: &mut Outcome) -> Done {
        check_name(name)?;
        let length = data.len() as u64;
        within(length, MESSAGE_BYTES_MAX, "bytes of one message")?;
        within(self.bytes() + length, self.limits.bytes, "bytes in files and queues")?;
        within(self.queues.messages + 1, self.limits.messages, "messages in all queues")?;
        let here = self.queues.named.get(name).map_or(0, Queue::messages);
        within(here + 1, self.limits.queue_messages, "messages in the queue")?;

        let id = next(&mut self.numbers.messages, entry.generation);
        self.queues.messages += 1;
        self.queues.bytes += length;
        self.queues.named.get_or_default(&name.into()).ready.insert(id, kept(data));
        self.watches.tell_queue(name, QueueChange::Posted, outcome);
        self.hand_on(name, outcome);
        Ok(Some(Reply::Done))
    }

    /// Wait and receive.
    pub(crate) fn take(
        &mut self,
        entry: Entry,
        name: &str,
        receive: bool,
        try_only: bool,
        outcome: &mut Outcome,
    ) -> Done {
        check_name(name)?;
        let waiter = QueueWaiter { session: entry.session, number: entry.number, receive };
        if self.queues.named.get(name).is_some_and(|queue| !queue.ready.is_empty()) {
            let reply = self.hand_over(name, &waiter);
            self.queues.tidy(name);
            return Ok(Some(reply));
        }
        if try_only {
            return Err(Refusal::Empty(name.to_owned()));
        }
        self.check_parked(entry)?;
        within(self.queues.waits + 1, self.limits.waits, "requests that wait for messages")?;
        self.queues.waits += 1;
        let arrival = self.park(entry, ParkedAt::Queue, name);
        self.queues.named.get_or_default(&name.into()).waiters.insert(arrival, waiter);
        self.watches.tell_queue(name, QueueChange::Waiting, outcome);
        Ok(None)
    }

    pub(crate) fn acknowledge(&mut self, entry: Entry, name: &str, id: u64) -> Done {
        check_name(name)?;
        let hidden = self.queues.named.get(name).and_then(|queue| queue.hidden.get(&id));
        if hidden.is_none_or(|(session, _)| *session != entry.session) {
            return Err(Refusal::NoMessage(id));
        }
        self.drop_hidden(entry.session, name, id);
        Ok(Some(Reply::Done))
    }

    pub(crate) fn delete_message(&mut self, entry: Entry, name: &str, id: u64) -> Done {
        check_name(name)?;
        let queue = self.queues.named.get_mut(name).ok_or(Refusal::NoMessage(id))?;
        match queue.hidden.get(&id).map(|(session, _)| *session) {
            Some(session) if session == entry.session => self.drop_hidden(session, name, id),
            Some(_) => return Err(Refusal::NotAllowed("another session has received it".to_owned())),
            None => {
                let data = queue.ready.remove(&id).ok_or(Refusal::NoMessage(id))?;
                self.queues.gone(&data);
                self.queues.tidy(name);
            }
        }
        Ok(Some(Reply::Done))
    }

    /// Gives what is ready to those who wait, first to first, and forgets the queue when it is idle. Whose session has no
    /// room for more replies keeps its place, and the next one is served.
    pub(crate) fn hand_on(&mut self, name: &str, outcome: &mut Outcome) {
        while let Some(queue) = self.queues.named.get(name).filter(|queue| !queue.ready.is_empty()) {
            let served = queue.waiters.iter().find(|(_, waiter)| outcome.room.is_left(waiter.session));
            let Some((&arrival, waiter)) = served else { break };
            let waiter = waiter.clone();
            self.queues.leave(name, arrival);
            self.sessions.change(waiter.session, |holdings| holdings.parked.remove(&waiter.number));
            let reply = self.hand_over(name, &waiter).to_bytes();
            outcome.room.take(waiter.session, reply.len());
            outcome.answers.push((waiter.session, waiter.number, reply));
        }
        self.queues.tidy(name);
    }

    /// The head, which is there, to one session.
    fn hand_over(&mut self, name: &str, to: &QueueWaiter) -> Reply {
        let queue = self.queues.named.get_mut(name).expect("a message is ready in it");
        let id = *queue.ready.first().expect("looked up before").0;
        let data = queue.ready.remove(&id).expect("it is the first");
        if to.receive {
            queue.hidden.insert(id, (to.session, data.clone()));
            self.sessions.change(to.session, |holdings| holdings.hidden.insert(id, name.into()));
        } else {
            self.queues.gone(&data);
        }
        Reply::Message { id, data }
    }

    fn drop_hidden(&mut self, session: SessionId, name: &str, id: u64) {
        self.sessions.change(session, |holdings| holdings.hidden.remove(&id));
        let queue = self.queues.named.get_mut(name).expect("it hides a message");
        let (_, data) = queue.hidden.remove(&id).expect("looked up before");
        self.queues.gone(&data);
        self.queues.tidy(name);
    }

    /// Bytes of all files and messages.
    pub(crate) fn bytes(&self) -> u64 {
        self.tree.bytes + self.queues.bytes
    }
}

impl Queues {
    /// A message goes back to where it was. Who gets it is another step.
    pub fn unhide(&mut self, name: &str, id: u64) {
        let Some(queue) = self.named.get_mut(name) else { return };
        if let Some((_, data)) = queue.hidden.remove(&id) {
            queue.ready.insert(id, data);
        }
    }

    /// A waiter leaves the line.
    pub fn leave(&mut self, name: &str, arrival: u64) {
        let Some(queue) = self.named.get_mut(name) else { return };
        if queue.waiters.remove(&arrival).is_some() {
            self.waits -= 1;
        }
    }

    fn gone(&mut self, data: &Bytes) {
        self.messages -= 1;
        self.bytes -= data.len() as u64;
    }

    fn tidy(&mut self, name: &str) {
        if self.named.get(name).is_some_and(|queue| queue.messages() == 0 && queue.waiters.is_empty()) {
            self.named.remove(name);
        }
    }
}

impl Queue {
    /// Ready and hidden.
    pub fn messages(&self) -> u64 {
        (self.ready.len() + self.hidden.len()) as u64
    }
}
