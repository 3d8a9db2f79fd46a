//! [`Pfs`]: the whole state, and the way of a command, a query and a session's end through it.

use crate::holdings::{ParkedAt, Sessions};
use crate::limits::{LIMITS, Limits};
use crate::locks::Locks;
use crate::protocol::{Command, Query, Refusal, Reply};
use crate::queues::Queues;
use crate::snapshot::Parts;
use crate::tree::{Stamp, Tree};
use crate::watches::Watches;
use bytes::Bytes;
use kumo_session::{Application, Entry, Outcome, SessionId, numbered};
use kumo_wire::{Malformed, Wire};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Files, directories, ephemerals, locks, queues and watches. A clone costs nothing and stays as it is.
#[derive(Clone, Debug)]
pub struct Pfs {
    pub(crate) numbers: Numbers,
    pub(crate) tree: Tree,
    pub(crate) locks: Locks,
    pub(crate) queues: Queues,
    pub(crate) watches: Watches,
    pub(crate) sessions: Sessions,
    pub(crate) limits: &'static Limits,
}

/// How many of each were ever counted. They only grow, so that no number is handed out twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// Changes of the tree: a file's version is the number of its last one.
    pub changes: u64,
    /// Grants of locks: the fencing numbers.
    pub grants: u64,
    /// Messages posted.
    pub messages: u64,
    /// Requests parked: places in a line.
    pub arrivals: u64,
}

/// What a command led to: a reply, nothing yet (it is parked), or a refusal that changed nothing.
pub(crate) type Done = Result<Option<Reply>, Refusal>;

impl Pfs {
    /// An empty root directory and nothing else.
    pub fn new() -> Pfs {
        Pfs::with_limits(&LIMITS)
    }

    pub(crate) fn with_limits(limits: &'static Limits) -> Pfs {
        Pfs {
            numbers: Numbers::default(),
            tree: Tree::default(),
            locks: Locks::default(),
            queues: Queues::default(),
            watches: Watches::default(),
            sessions: Sessions::default(),
            limits,
        }
    }

    fn execute(&mut self, entry: Entry, command: Command, outcome: &mut Outcome) -> Done {
        match command {
            Command::Write { path, place, data, ephemeral, condition } => {
                let kind = ephemeral.then_some(entry.session);
                self.write(entry, &path, place, data, kind, &condition, outcome)
            }
            Command::Truncate { path, length } => self.truncate(entry, &path, length, outcome),
            Command::Delete { path, condition } => self.delete(entry, &path, &condition, outcome),
            Command::Rename { from, to } => self.rename(entry, &from, &to, outcome),
            Command::Mkdir { path } => self.mkdir(entry, &path, outcome),
            Command::Rmdir { path } => self.rmdir(entry, &path, outcome),
            Command::Lock { name, exclusive, try_only } => {
                self.lock(entry, &name, exclusive, try_only, outcome)
            }
            Command::Unlock { name } => self.unlock(entry, &name, outcome),
            Command::Watch { resource } => self.watch(entry, resource),
            Command::Unwatch { resource } => self.unwatch(entry, resource),
            Command::Post { queue, data } => self.post(entry, &queue, data, outcome),
            Command::Wait { queue, try_only } => self.take(entry, &queue, false, try_only, outcome),
            Command::Receive { queue, try_only } => self.take(entry, &queue, true, try_only, outcome),
            Command::Acknowledge { queue, id } => self.acknowledge(entry, &queue, id),
            Command::DeleteMessage { queue, id } => self.delete_message(entry, &queue, id),
        }
    }

    fn answer(&self, query: Query) -> Result<Reply, Refusal> {
        match query {
            Query::Read { path, offset, length } => self.read_file(&path, offset, length),
            Query::Stat { path } => self.stat(&path),
            Query::ReadDir { path, index, count } => self.read_directory(&path, index, count),
            Query::Peek { queue } => self.peek(&queue),
            Query::Queues { after } => Ok(self.list_queues(&after)),
            Query::Locks { after } => Ok(self.list_locks(&after)),
            Query::Usage => Ok(self.usage()),
        }
    }

    /// The next change of the tree.
    pub(crate) fn stamp(&mut self, entry: Entry) -> Stamp {
        Stamp { version: next(&mut self.numbers.changes, entry.generation), time: entry.time }
    }
}

impl Application for Pfs {
    type Parts = Parts;

    fn apply(&mut self, entry: Entry, command: Bytes, outcome: &mut Outcome) {
        let done = match Command::from_bytes(command) {
            Ok(command) => self.execute(entry, command, outcome),
            Err(_) => Err(Refusal::Malformed),
        };
        outcome.reply = match done {
            Ok(reply) => reply.map(|reply| reply.to_bytes()),
            Err(refusal) => Some(Reply::Refused(refusal).to_bytes()),
        };
    }

    fn cancel(&mut self, entry: Entry, target: u64, outcome: &mut Outcome) -> bool {
        let parked = self.sessions.get(entry.session).and_then(|holdings| holdings.parked.get(&target));
        let Some(parked) = parked.cloned() else { return false };
        self.sessions.change(entry.session, |holdings| holdings.parked.remove(&target));
        match parked.at {
            ParkedAt::Lock => {
                self.locks.leave(&parked.name, parked.arrival);
                self.grant_on(entry, &parked.name, outcome);
            }
            ParkedAt::Queue => {
                self.queues.leave(&parked.name, parked.arrival);
                self.hand_on(&parked.name, outcome);
            }
        }
        true
    }

    /// Everything is freed before anything is handed on, so that nothing is handed to the ended session.
    fn session_ended(&mut self, entry: Entry, outcome: &mut Outcome) {
        let holdings = self.sessions.take(entry.session);
        for resource in holdings.watches.keys() {
            self.watches.remove(resource, entry.session);
        }
        let mut locks: BTreeSet<Arc<str>> = holdings.locks.keys().cloned().collect();
        let mut queues: BTreeSet<Arc<str>> = holdings.hidden.values().cloned().collect();
        for parked in holdings.parked.values() {
            match parked.at {
                ParkedAt::Lock => {
                    self.locks.leave(&parked.name, parked.arrival);
                    locks.insert(parked.name.clone());
                }
                ParkedAt::Queue => {
                    self.queues.leave(&parked.name, parked.arrival);
                    queues.insert(parked.name.clone());
                }
            }
        }
        for (name, &number) in holdings.locks.iter() {
            self.locks.free(name, number);
        }
        for (&id, queue) in holdings.hidden.iter() {
            self.queues.unhide(queue, id);
        }
        for name in locks {
            self.grant_on(entry, &name, outcome);
        }
        for name in queues {
            self.hand_on(&name, outcome);
        }
        self.remove_ephemerals(entry, &holdings.ephemerals, outcome);
    }

    fn session_has_room(&mut self, entry: Entry, outcome: &mut Outcome) {
        let parked =
            self.sessions.get(entry.session).into_iter().flat_map(|holdings| holdings.parked.values());
        let queues = parked.filter(|parked| parked.at == ParkedAt::Queue).map(|parked| parked.name.clone());
        for name in queues.collect::<BTreeSet<Arc<str>>>() {
            self.hand_on(&name, outcome);
        }
    }

    fn complaint(answer: &Bytes) -> Option<String> {
        // Every answer is looked at, and few are refusals.
        if !Reply::is_refused(answer) {
            return None;
        }
        let Ok(Reply::Refused(refusal)) = Reply::from_bytes(answer.clone()) else { return None };
        match refusal {
            Refusal::BadPath(_) | Refusal::BadName(_) | Refusal::Limit(..) | Refusal::Malformed => {
                Some(refusal.to_string())
            }
            Refusal::NotFound(_)
            | Refusal::Exists(_)
            | Refusal::NotDirectory(_)
            | Refusal::IsDirectory(_)
            | Refusal::NotEmpty(_)
            | Refusal::Version(_)
            | Refusal::Fenced
            | Refusal::Locked(_)
            | Refusal::NotLocked(_)
            | Refusal::Empty(_)
            | Refusal::NoMessage(_)
            | Refusal::NotAllowed(_) => None,
        }
    }

    fn read(&self, _session: SessionId, query: Bytes) -> Bytes {
        let answer = Query::from_bytes(query).map_err(|_| Refusal::Malformed);
        answer.and_then(|query| self.answer(query)).unwrap_or_else(Reply::Refused).to_bytes()
    }

    fn snapshot(&self) -> Parts {
        Parts::new(self)
    }

    fn restore(parts: Vec<Bytes>) -> Result<Pfs, Malformed> {
        crate::restore::restore(parts)
    }
}

impl Default for Pfs {
    fn default() -> Pfs {
        Pfs::new()
    }
}

/// Equal when no command, query or snapshot tells them apart.
impl PartialEq for Pfs {
    fn eq(&self, other: &Pfs) -> bool {
        self.numbers == other.numbers
            && self.tree == other.tree
            && self.locks == other.locks
            && self.queues == other.queues
            && self.watches == other.watches
            && self.sessions == other.sessions
    }
}

/// The next number of a kind.
pub(crate) fn next(count: &mut u64, generation: u32) -> u64 {
    *count += 1;
    numbered(generation, *count)
}
