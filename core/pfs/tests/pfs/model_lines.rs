//! The naive model's locks and queues: vectors, searched from the front.

use crate::host::{Host, id};
use crate::model::{Done, Model, Told, check_name};
use ::bytes::Bytes;
use kumo_pfs::{Event, LockInfo, Query, QueueChange, QueueInfo, Refusal, Reply, Resource};
use kumo_session::numbered;

#[derive(Clone, Default)]
pub struct Lock {
    exclusive: bool,
    /// Session and grant.
    pub holders: Vec<(u64, u64)>,
    /// Session, request and kind.
    waiters: Vec<(u64, u64, bool)>,
}

#[derive(Clone, Default)]
pub struct Queue {
    /// In order of posting, with the session that hides it.
    messages: Vec<(u64, Bytes, Option<u64>)>,
    /// Session, request and whether it receives.
    waiters: Vec<(u64, u64, bool)>,
}

impl Model {
    pub fn lock(
        &mut self,
        session: u64,
        number: u64,
        name: &str,
        exclusive: bool,
        try_only: bool,
        told: &mut Told,
    ) -> Done {
        check_name(name)?;
        let lock = self.locks.entry(name.to_owned()).or_default();
        if let Some(held) = lock.holders.iter().find(|held| held.0 == session) {
            return again(lock, held.1, exclusive).map(Some);
        }
        lock.waiters.push((session, number, exclusive));
        let event = Event::Lock { name: name.to_owned(), exclusive };
        self.grant_on(name, told);
        if let Some(answer) = told.answers.pop() {
            return Ok(Some(answer.2));
        }
        if try_only {
            return Err(Refusal::Locked(name.to_owned()));
        }
        self.tell(Resource::Lock(name.to_owned()), event, told);
        Ok(None)
    }

    pub fn unlock(&mut self, session: u64, name: &str, told: &mut Told) -> Done {
        check_name(name)?;
        let refusal = Refusal::NotLocked(name.to_owned());
        let lock = self.locks.get_mut(name).ok_or(refusal.clone())?;
        let place = lock.holders.iter().position(|held| held.0 == session).ok_or(refusal)?;
        lock.holders.remove(place);
        self.grant_on(name, told);
        Ok(Some(Reply::Done))
    }

    fn grant_on(&mut self, name: &str, told: &mut Told) {
        let Some(lock) = self.locks.get_mut(name) else { return };
        while let Some(&(session, number, exclusive)) = lock.waiters.first() {
            if !lock.holders.is_empty() && (exclusive || lock.exclusive) {
                break;
            }
            lock.waiters.remove(0);
            self.grants += 1;
            let grant = numbered(1, self.grants);
            lock.exclusive = exclusive;
            lock.holders.push((session, grant));
            told.answers.push((session, number, Reply::Granted { number: grant }));
            let twins: Vec<_> = lock.waiters.iter().filter(|waiter| waiter.0 == session).copied().collect();
            lock.waiters.retain(|waiter| waiter.0 != session);
            for (_, number, exclusive) in twins {
                let reply = again(lock, grant, exclusive).unwrap_or_else(Reply::Refused);
                told.answers.push((session, number, reply));
            }
        }
        if lock.holders.is_empty() {
            self.locks.remove(name);
        }
    }

    pub fn post(&mut self, name: &str, data: Bytes, told: &mut Told) -> Done {
        check_name(name)?;
        self.messages += 1;
        let queue = self.queues.entry(name.to_owned()).or_default();
        queue.messages.push((numbered(1, self.messages), data, None));
        let event = Event::Queue { name: name.to_owned(), change: QueueChange::Posted };
        self.tell(Resource::Queue(name.to_owned()), event, told);
        self.hand_on(name, told);
        Ok(Some(Reply::Done))
    }

    pub fn take(
        &mut self,
        session: u64,
        number: u64,
        name: &str,
        receive: bool,
        try_only: bool,
        told: &mut Told,
    ) -> Done {
        check_name(name)?;
        self.queues.entry(name.to_owned()).or_default().waiters.push((session, number, receive));
        self.hand_on(name, told);
        if let Some(answer) = told.answers.pop() {
            return Ok(Some(answer.2));
        }
        if try_only {
            return Err(Refusal::Empty(name.to_owned()));
        }
        let event = Event::Queue { name: name.to_owned(), change: QueueChange::Waiting };
        self.tell(Resource::Queue(name.to_owned()), event, told);
        Ok(None)
    }

    fn hand_on(&mut self, name: &str, told: &mut Told) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        while let Some(&(session, number, receive)) = queue.waiters.first() {
            let Some(place) = queue.messages.iter().position(|message| message.2.is_none()) else { break };
            queue.waiters.remove(0);
            let (id, data, _) = queue.messages[place].clone();
            if receive {
                queue.messages[place].2 = Some(session);
            } else {
                queue.messages.remove(place);
            }
            told.answers.push((session, number, Reply::Message { id, data }));
        }
        if queue.messages.is_empty() && queue.waiters.is_empty() {
            self.queues.remove(name);
        }
    }

    pub fn acknowledge(&mut self, session: u64, name: &str, id: u64) -> Done {
        check_name(name)?;
        let queue = self.queues.get_mut(name).ok_or(Refusal::NoMessage(id))?;
        let mine = |message: &(u64, Bytes, Option<u64>)| message.0 == id && message.2 == Some(session);
        let place = queue.messages.iter().position(mine).ok_or(Refusal::NoMessage(id))?;
        queue.messages.remove(place);
        self.hand_on(name, &mut Told::default());
        Ok(Some(Reply::Done))
    }

    pub fn delete_message(&mut self, session: u64, name: &str, id: u64) -> Done {
        check_name(name)?;
        let queue = self.queues.get_mut(name).ok_or(Refusal::NoMessage(id))?;
        let place =
            queue.messages.iter().position(|message| message.0 == id).ok_or(Refusal::NoMessage(id))?;
        if queue.messages[place].2.is_some_and(|hider| hider != session) {
            return Err(Refusal::NotAllowed(String::new()));
        }
        queue.messages.remove(place);
        self.hand_on(name, &mut Told::default());
        Ok(Some(Reply::Done))
    }

    pub fn cancel(&mut self, session: u64, target: u64, told: &mut Told) -> bool {
        let other = |waiter: &(u64, u64, bool)| (waiter.0, waiter.1) != (session, target);
        let mut found = false;
        for name in self.locks.keys().cloned().collect::<Vec<_>>() {
            let lock = self.locks.get_mut(&name).unwrap();
            found |= !lock.waiters.iter().all(other);
            lock.waiters.retain(other);
            self.grant_on(&name, told);
        }
        for name in self.queues.keys().cloned().collect::<Vec<_>>() {
            let queue = self.queues.get_mut(&name).unwrap();
            found |= !queue.waiters.iter().all(other);
            queue.waiters.retain(other);
            self.hand_on(&name, told);
        }
        found
    }

    pub fn end_lines(&mut self, session: u64, told: &mut Told) {
        for name in self.locks.keys().cloned().collect::<Vec<_>>() {
            let lock = self.locks.get_mut(&name).unwrap();
            lock.holders.retain(|held| held.0 != session);
            lock.waiters.retain(|waiter| waiter.0 != session);
            self.grant_on(&name, told);
        }
        for name in self.queues.keys().cloned().collect::<Vec<_>>() {
            let queue = self.queues.get_mut(&name).unwrap();
            let hidden = queue.messages.iter_mut().filter(|message| message.2 == Some(session));
            hidden.for_each(|message| message.2 = None);
            queue.waiters.retain(|waiter| waiter.0 != session);
            self.hand_on(&name, told);
        }
    }

    /// Compares what queries show, and returns the number of messages and their bytes.
    pub fn compare_lines(&self, host: &Host) -> (u64, u64) {
        let locks = self.locks.iter().map(|(name, lock)| LockInfo {
            name: name.clone(),
            exclusive: lock.exclusive,
            number: lock.holders.last().unwrap().1,
            holders: lock.holders.iter().map(|held| id(held.0)).collect(),
            waiters: lock.waiters.iter().map(|waiter| id(waiter.0)).collect(),
        });
        assert_eq!(host.query(&Query::Locks { after: String::new() }), Reply::Locks(locks.collect()));
        let ready = |queue: &Queue| queue.messages.iter().filter(|message| message.2.is_none()).count();
        let queues = self.queues.iter().map(|(name, queue)| QueueInfo {
            name: name.clone(),
            ready: ready(queue) as u64,
            hidden: (queue.messages.len() - ready(queue)) as u64,
            waiting: queue.waiters.len() as u64,
        });
        assert_eq!(host.query(&Query::Queues { after: String::new() }), Reply::Queues(queues.collect()));
        for (name, queue) in &self.queues {
            let head = queue.messages.iter().find(|message| message.2.is_none());
            let expected = head.map_or(Reply::Refused(Refusal::Empty(name.clone())), |(id, data, _)| {
                Reply::Message { id: *id, data: data.clone() }
            });
            assert_eq!(host.query(&Query::Peek { queue: name.clone() }), expected);
        }
        let messages = || self.queues.values().flat_map(|queue| &queue.messages);
        (messages().count() as u64, messages().map(|message| message.1.len() as u64).sum())
    }
}

/// The answer to a holder that asks again.
fn again(lock: &Lock, grant: u64, exclusive: bool) -> Result<Reply, Refusal> {
    if exclusive && !lock.exclusive {
        return Err(Refusal::NotAllowed(String::new()));
    }
    Ok(Reply::Granted { number: grant })
}
