//! [`Client`]: one session of ZooKeeper. A lock is ZooKeeper's own recipe: an ephemeral sequential znode, and a watch
//! on the one before it.

use super::frame::{self, Ask, NO_NODE, NODE_EXISTS, Reply, WATCH};
use crate::failure::{Failure, Result};
use crate::load::{Heard, Talk, Turn, Values};
use std::cell::Cell;
use std::rc::Rc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Write,
    /// `sync`, then read.
    LinearRead,
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
    /// The znode, or the folder of the lock.
    path: String,
    /// The znode of our place in the lock's queue.
    place: String,
    /// The newest grant of the contended lock, of whichever client: the next is later.
    newest: Rc<Cell<u64>>,
    /// Of the newest value.
    number: u64,
    xid: i32,
    turn: Turn,
    step: Step,
}

/// What is being waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Session,
    /// Of the folder of everything.
    Root,
    Node,
    Write,
    Sync,
    Read,
    Place,
    Queue,
    Before,
    /// The watch on the one before us.
    Watch,
    Unlock,
}

impl Client {
    pub fn new(op: Op, client: u64, serial: u64, values: Values, newest: Rc<Cell<u64>>) -> Client {
        let path = match op {
            Op::Write | Op::LinearRead | Op::LocalRead => format!("{ROOT}/{client}-{serial}"),
            Op::Lock { is_contended: true } => format!("{ROOT}/all"),
            Op::Lock { is_contended: false } => format!("{ROOT}/lock-{client}-{serial}"),
        };
        let path = format!("{path}-{}", std::process::id());
        let (turn, step) = (Turn::Prepare, Step::Session);
        Client { op, client, values, path, place: String::new(), newest, number: 0, xid: 0, turn, step }
    }

    fn ask(&mut self, step: Step, ask: Ask, out: &mut Vec<u8>) {
        self.step = step;
        self.xid = self.xid.wrapping_add(1) & i32::MAX;
        ask.write(self.xid, out);
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        self.number += 1;
        let (path, data) = (self.path.clone(), self.values.make(self.client, self.number));
        self.ask(Step::Write, Ask::Set { path: &path, data: &data }, out);
    }

    fn read(&mut self, out: &mut Vec<u8>) {
        let path = self.path.clone();
        self.ask(Step::Read, Ask::Get { path: &path }, out);
    }

    fn queue(&mut self, out: &mut Vec<u8>) {
        let path = self.path.clone();
        self.ask(Step::Queue, Ask::Children { path: &path }, out);
    }

    /// Goes on after a reply. `true`: the turn is over.
    fn step(&mut self, reply: &mut Reply, out: &mut Vec<u8>) -> Result<bool> {
        match self.step {
            Step::Session => return Err(Failure::new("ZooKeeper answers before there is a session")),
            Step::Root => {
                let data = self.values.make(self.client, 0);
                let path = self.path.clone();
                self.ask(Step::Node, Ask::Create { path: &path, data: &data, is_lock: false }, out);
            }
            Step::Node => match self.op {
                // What an earlier run left there is not what we will look for.
                Op::Write | Op::LinearRead | Op::LocalRead => self.write(out),
                Op::Lock { .. } => return Ok(true),
            },
            Step::Write => {
                self.check(frame::data_length(&mut reply.fields)? as usize == self.values.size())?;
                return Ok(true);
            }
            Step::Sync => self.read(out),
            Step::Read => {
                let value = frame::piece(&mut reply.fields)?;
                self.check(self.values.is(value, self.client, self.number))?;
                return Ok(true);
            }
            Step::Place => {
                self.place = frame::text(&mut reply.fields)?.to_owned();
                self.queue(out);
            }
            Step::Queue => self.queued(reply, out)?,
            Step::Before if reply.error == NO_NODE => self.queue(out),
            Step::Before => self.step = Step::Watch,
            Step::Watch => return Err(Failure::new("ZooKeeper answers unasked")),
            Step::Unlock => return Ok(true),
        }
        Ok(false)
    }

    /// Whether the lock is ours: nobody's znode is before our own.
    fn queued(&mut self, reply: &mut Reply, out: &mut Vec<u8>) -> Result<()> {
        let own = self.place.rsplit('/').next().unwrap_or_default().to_owned();
        let mut before: Option<String> = None;
        let mut is_there = false;
        for _ in 0..reply.fields.i32()? {
            let name = frame::text(&mut reply.fields)?;
            is_there |= name == own;
            if name < own.as_str() && before.as_deref().is_none_or(|before| name > before) {
                before = Some(name.to_owned());
            }
        }
        self.check(is_there)?;
        match before {
            Some(before) => {
                let path = format!("{}/{before}", self.path);
                self.ask(Step::Before, Ask::Exists { path: &path }, out);
            }
            None => {
                if self.op == (Op::Lock { is_contended: true }) {
                    let sequence = own.trim_start_matches(PLACE).parse().unwrap_or(0);
                    // The first has the number 0.
                    self.check(sequence + 1 > self.newest.replace(sequence + 1))?;
                }
                let path = std::mem::take(&mut self.place);
                self.ask(Step::Unlock, Ask::Delete { path: &path }, out);
            }
        }
        Ok(())
    }

    fn check(&self, is_right: bool) -> Result<()> {
        match is_right {
            true => Ok(()),
            false => Err(Failure::new(format!("ZooKeeper answers wrongly ({:?})", self.step))),
        }
    }
}

impl Talk for Client {
    fn begin(&mut self, turn: Turn, out: &mut Vec<u8>) {
        self.turn = turn;
        match (turn, self.op) {
            (Turn::Prepare, _) => frame::connect(out),
            (Turn::Operate, Op::Write) => self.write(out),
            (Turn::Operate, Op::LinearRead) => {
                let path = self.path.clone();
                self.ask(Step::Sync, Ask::Sync { path: &path }, out);
            }
            (Turn::Operate, Op::Lock { .. }) => {
                let path = format!("{}/{PLACE}", self.path);
                self.ask(Step::Place, Ask::Create { path: &path, data: b"", is_lock: true }, out);
            }
            (Turn::Operate, Op::LocalRead) | (Turn::Verify, Op::Write | Op::LinearRead | Op::LocalRead) => {
                self.read(out);
            }
            // Nobody is left in the queue: the sessions are at their ends.
            (Turn::Verify, Op::Lock { .. }) => {
                let path = self.path.clone();
                self.ask(Step::Unlock, Ask::Sync { path: &path }, out);
            }
        }
    }

    fn hear(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Heard> {
        let Some((body, taken)) = frame::body(input)? else { return Ok(Heard::Partial) };
        if self.step == Step::Session {
            self.check(frame::is_connected(body)?)?;
            self.ask(Step::Root, Ask::Create { path: ROOT, data: b"", is_lock: false }, out);
            return Ok(Heard::Taken(taken));
        }
        let mut reply = Reply::read(body)?;
        if reply.xid == WATCH {
            // Of a lock that we asked about: look again. A watch whose turn is over already says nothing new.
            if self.step == Step::Watch {
                self.queue(out);
            }
            return Ok(Heard::Taken(taken));
        }
        self.check(reply.xid == self.xid)?;
        let may_fail = match self.step {
            Step::Root | Step::Node => reply.error == NODE_EXISTS,
            Step::Before => reply.error == NO_NODE,
            _ => false,
        };
        if reply.error != 0 && !may_fail {
            return Err(Failure::new(format!("ZooKeeper refuses ({:?}): {}", self.step, reply.error)));
        }
        match self.step(&mut reply, out)? {
            true => Ok(Heard::Done { taken, operations: 1 }),
            false => Ok(Heard::Taken(taken)),
        }
    }
}

/// The folder of everything.
const ROOT: &str = "/bench";

/// What the places in a lock's queue are called; ten digits follow.
const PLACE: &str = "n-";
