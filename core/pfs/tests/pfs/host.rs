//! [`Host`]: stands for the session layer. Numbers requests and entries, and takes snapshots.

use ::bytes::Bytes;
use kumo_paxos::Instance;
use kumo_pfs::{Command, Condition, Pfs, Place, Query, Reply};
use kumo_session::{Application, Entry, GENERATION_SHIFT, Outcome, SessionId, UnixMillis, numbered};
use kumo_wire::Wire;
use std::collections::BTreeMap;

/// A PFS and its place in a log.
#[derive(Clone)]
pub struct Host {
    pub pfs: Pfs,
    pub generation: u32,
    pub time: u64,
    instance: u64,
    requests: BTreeMap<u64, u64>,
}

impl Host {
    pub fn new() -> Host {
        Host { pfs: Pfs::new(), generation: 1, time: 1000, instance: 0, requests: BTreeMap::new() }
    }

    /// A host whose sessions have made a request each, so that every one has a last request.
    pub fn with_sessions(count: u64) -> Host {
        let mut host = Host::new();
        for session in 1..=count {
            host.entry(session);
        }
        host
    }

    /// The entry of the session's next request.
    pub fn entry(&mut self, session: u64) -> Entry {
        self.instance += 1;
        let number = self.requests.entry(session).or_default();
        *number += 1;
        Entry {
            instance: Instance(self.instance),
            generation: self.generation,
            time: UnixMillis(self.time),
            session: id(session),
            number: *number,
        }
    }

    pub fn apply(&mut self, session: u64, command: &Command) -> Outcome {
        self.apply_bytes(session, command.to_bytes())
    }

    pub fn apply_bytes(&mut self, session: u64, command: Bytes) -> Outcome {
        let entry = self.entry(session);
        let mut outcome = Outcome::default();
        self.pfs.apply(entry, command, &mut outcome);
        outcome
    }

    /// The reply to a command that must have one.
    pub fn call(&mut self, session: u64, command: &Command) -> Reply {
        let outcome = self.apply(session, command);
        Reply::from_bytes(outcome.reply.expect("it is not parked")).unwrap()
    }

    /// Applies a command that must be parked, and returns its number.
    pub fn park(&mut self, session: u64, command: &Command) -> u64 {
        assert_eq!(self.apply(session, command).reply, None);
        self.requests[&session]
    }

    pub fn cancel(&mut self, session: u64, target: u64) -> (bool, Outcome) {
        let entry = self.entry(session);
        let mut outcome = Outcome::default();
        (self.pfs.cancel(entry, target, &mut outcome), outcome)
    }

    pub fn end(&mut self, session: u64) -> Outcome {
        let entry = self.entry(session);
        let mut outcome = Outcome::default();
        self.pfs.session_ended(entry, &mut outcome);
        outcome
    }

    pub fn query(&self, query: &Query) -> Reply {
        Reply::from_bytes(self.pfs.read(id(1), query.to_bytes())).unwrap()
    }

    /// The snapshot as one byte string.
    pub fn snapshot(&self) -> Vec<u8> {
        self.pfs.snapshot().flat_map(|part| part.to_vec()).collect()
    }

    /// The number of the session's last request.
    pub fn last_request(&self, session: u64) -> u64 {
        self.requests[&session]
    }
}

/// The replies in an outcome to requests parked earlier.
pub fn answers(outcome: &Outcome) -> Vec<(u64, u64, Reply)> {
    let decoded = |bytes: &Bytes| Reply::from_bytes(bytes.clone()).unwrap();
    outcome
        .answers
        .iter()
        .map(|(session, number, reply)| (count(session.0), *number, decoded(reply)))
        .collect()
}

/// Session `n` of these tests, as the cell would number it.
pub fn id(session: u64) -> SessionId {
    SessionId(numbered(1, session))
}

/// The count in a number.
pub fn count(number: u64) -> u64 {
    number & ((1 << GENERATION_SHIFT) - 1)
}

pub fn write(path: &str, data: &str) -> Command {
    write_if(path, data, Condition::Always)
}

pub fn write_if(path: &str, data: &str, condition: Condition) -> Command {
    let data = Bytes::copy_from_slice(data.as_bytes());
    Command::Write { path: path.to_owned(), place: Place::Replace, data, ephemeral: false, condition }
}

pub fn write_ephemeral(path: &str) -> Command {
    Command::Write {
        path: path.to_owned(),
        place: Place::Replace,
        data: Bytes::new(),
        ephemeral: true,
        condition: Condition::Always,
    }
}

pub fn lock(name: &str, exclusive: bool) -> Command {
    Command::Lock { name: name.to_owned(), exclusive, try_only: false }
}

pub fn post(queue: &str, data: &str) -> Command {
    Command::Post { queue: queue.to_owned(), data: Bytes::copy_from_slice(data.as_bytes()) }
}
