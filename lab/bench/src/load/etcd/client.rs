//! [`Client`]: one connection of etcd. A lock is etcd's own lock service, with a lease per client.

use super::http2::{Http2, Received};
use super::protobuf::{Message, write_bytes, write_number};
use crate::failure::{Failure, Result};
use crate::load::{Heard, Talk, Turn, Values};
use std::cell::Cell;
use std::rc::Rc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Write,
    LinearRead,
    /// What etcd calls serializable.
    LocalRead,
    /// Lock and unlock.
    Lock {
        is_contended: bool,
    },
}

pub struct Client {
    op: Op,
    client: u64,
    values: Values,
    http: Http2,
    /// The key, or the lock's name.
    key: Vec<u8>,
    lease: u64,
    /// The newest grant of the contended lock, of whichever client: the next is later.
    newest: Rc<Cell<u64>>,
    /// Of the newest value.
    number: u64,
    call: Call,
    /// A request that could not be sent; told with the next that is heard.
    trouble: Option<Failure>,
}

/// The call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Put,
    Range,
    Grant,
    Lock,
    Unlock,
}

impl Client {
    pub fn new(op: Op, client: u64, serial: u64, values: Values, newest: Rc<Cell<u64>>) -> Client {
        let key = match op {
            Op::Write | Op::LinearRead | Op::LocalRead => format!("bench/{client}-{serial}"),
            Op::Lock { is_contended: true } => "lock/all".to_owned(),
            Op::Lock { is_contended: false } => format!("lock/{client}-{serial}"),
        };
        let (http, key) = (Http2::new(), key.into_bytes());
        Client { op, client, values, http, key, lease: 0, newest, number: 0, call: Call::Put, trouble: None }
    }

    fn call(&mut self, call: Call, message: &[u8], out: &mut Vec<u8>) {
        self.call = call;
        let path = match call {
            Call::Put => "/etcdserverpb.KV/Put",
            Call::Range => "/etcdserverpb.KV/Range",
            Call::Grant => "/etcdserverpb.Lease/LeaseGrant",
            Call::Lock => "/v3lockpb.Lock/Lock",
            Call::Unlock => "/v3lockpb.Lock/Unlock",
        };
        if let Err(failure) = self.http.call(path, message, out) {
            self.trouble = Some(failure);
        }
    }

    fn put(&mut self, out: &mut Vec<u8>) {
        self.number += 1;
        let mut message = Vec::new();
        write_bytes(&mut message, 1, &self.key);
        write_bytes(&mut message, 2, &self.values.make(self.client, self.number));
        self.call(Call::Put, &message, out);
    }

    fn range(&mut self, out: &mut Vec<u8>) {
        let mut message = Vec::new();
        write_bytes(&mut message, 1, &self.key);
        if self.op == Op::LocalRead {
            write_number(&mut message, 7, 1);
        }
        self.call(Call::Range, &message, out);
    }

    fn lock(&mut self, out: &mut Vec<u8>) {
        let mut message = Vec::new();
        write_bytes(&mut message, 1, &self.key);
        write_number(&mut message, 2, self.lease);
        self.call(Call::Lock, &message, out);
    }

    fn unlock(&mut self, place: &[u8], out: &mut Vec<u8>) {
        let mut message = Vec::new();
        write_bytes(&mut message, 1, place);
        self.call(Call::Unlock, &message, out);
    }

    /// Goes on after an answer. `true`: the turn is over.
    fn step(&mut self, answer: Message, out: &mut Vec<u8>) -> Result<bool> {
        let revision = answer.bytes(1)?.map(|header| Message(header).number(3)).transpose()?.flatten();
        match self.call {
            Call::Put | Call::Unlock => self.check(revision.is_some_and(|revision| revision > 0))?,
            Call::Range => {
                let record =
                    answer.bytes(2)?.map(Message).ok_or_else(|| Failure::new("etcd has no value"))?;
                let (key, value) = (record.bytes(1)?, record.bytes(5)?);
                let is_right = value.is_some_and(|value| self.values.is(value, self.client, self.number));
                self.check(is_right && key == Some(&self.key))?;
            }
            Call::Grant => {
                self.lease = answer.number(2)?.unwrap_or(0);
                self.check(self.lease != 0)?;
            }
            Call::Lock => {
                let place = answer.bytes(2)?.unwrap_or_default();
                self.check(place.starts_with(&self.key))?;
                if self.op == (Op::Lock { is_contended: true }) {
                    let revision = revision.unwrap_or(0);
                    self.check(revision > self.newest.replace(revision))?;
                }
                self.unlock(place, out);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn check(&self, is_right: bool) -> Result<()> {
        match is_right {
            true => Ok(()),
            false => Err(Failure::new(format!("etcd answers wrongly ({:?})", self.call))),
        }
    }
}

impl Talk for Client {
    fn begin(&mut self, turn: Turn, out: &mut Vec<u8>) {
        if turn == Turn::Prepare {
            self.http.open(out);
        }
        match (turn, self.op) {
            (Turn::Prepare, Op::Write | Op::LinearRead | Op::LocalRead) => self.put(out),
            // The second is a lease of a lock that nobody takes any more: a call like any other.
            (Turn::Prepare | Turn::Verify, Op::Lock { .. }) => {
                let mut message = Vec::new();
                write_number(&mut message, 1, LEASE_SECONDS);
                self.call(Call::Grant, &message, out);
            }
            (Turn::Operate, Op::Write) => self.put(out),
            (Turn::Operate, Op::LinearRead | Op::LocalRead) => self.range(out),
            (Turn::Operate, Op::Lock { .. }) => self.lock(out),
            (Turn::Verify, Op::Write | Op::LinearRead | Op::LocalRead) => self.range(out),
        }
    }

    fn hear(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Heard> {
        if let Some(failure) = self.trouble.take() {
            return Err(failure);
        }
        match self.http.hear(input, out)? {
            None => Ok(Heard::Partial),
            Some((Received::Nothing, taken)) => Ok(Heard::Taken(taken)),
            Some((Received::Answer(answer), taken)) => match self.step(Message(&answer), out)? {
                true => Ok(Heard::Done { taken, operations: 1 }),
                false => Ok(Heard::Taken(taken)),
            },
        }
    }
}

/// Longer than a run: nobody keeps leases alive here.
const LEASE_SECONDS: u64 = 900;
