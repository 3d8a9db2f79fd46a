//! [`Replica`]: one member of a cell, complete but for IO and execution.

use crate::configuration::Configuration;
use crate::identity::{Instance, Round, Time};
use crate::message::{Hello, Position};
use crate::step::{Effect, Input, Record, Settings, Status};
use crate::value::Value;
use bytes::Bytes;
use std::net::SocketAddr;

/// One member of a cell.
pub struct Replica {}

#[allow(unused_variables)]
impl Replica {
    /// A replica without memory: it forms a cell or learns from one.
    pub fn new(settings: Settings, now: Time) -> Replica {
        todo!()
    }

    /// A durable replica with the memory of its earlier life: the newest snapshot's position, if any, and the
    /// records after it in order.
    pub fn recover(
        settings: Settings,
        position: Option<Position>,
        records: Vec<Record>,
        now: Time,
    ) -> Replica {
        todo!()
    }

    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        todo!()
    }

    pub fn deadline(&self) -> Option<Time> {
        todo!()
    }

    /// The next decided entry to execute, if it is here (a large value with its bytes).
    /// After every step the host executes all of them: `while let Some(..) = executable() { ..; executed(..) }`.
    pub fn executable(&self) -> Option<(Instance, Executable)> {
        todo!()
    }

    /// The host has executed the entry that `executable` gave; `digest` is its state digest after it.
    pub fn executed(&mut self, now: Time, digest: u64, effects: &mut Vec<Effect>) {
        todo!()
    }

    /// The host could not execute it: the application panicked. The replica waits for a snapshot from one that
    /// got past it (`TakeSnapshot`), and steps down if it led.
    pub fn panicked(&mut self, now: Time, effects: &mut Vec<Effect>) {
        todo!()
    }

    /// The host has taken over a snapshot.
    pub fn install(&mut self, now: Time, position: Position, effects: &mut Vec<Effect>) {
        todo!()
    }

    /// The host gives up on a snapshot from that peer (it broke off, or is malformed).
    pub fn snapshot_failed(&mut self, now: Time, from: SocketAddr, effects: &mut Vec<Effect>) {
        todo!()
    }

    /// What a snapshot taken now must carry. `None`: this replica belongs to no cell yet.
    pub fn position(&self) -> Option<Position> {
        todo!()
    }

    /// Leads, and has executed everything it inherited: may propose and, under the lease, answer linear reads.
    pub fn is_master(&self) -> Option<Round> {
        todo!()
    }

    /// Whether a linear read may be answered at `now` from what is executed.
    pub fn has_lease(&self, now: Time) -> bool {
        todo!()
    }

    /// May answer reads at all: belongs to a cell and is not a learner on its way to a vote.
    pub fn serves_reads(&self) -> bool {
        todo!()
    }

    /// The master as far as this replica knows.
    pub fn master(&self) -> Option<SocketAddr> {
        todo!()
    }

    /// The connected replica that serves reads with the least load, itself included.
    pub fn least_loaded(&self) -> Option<SocketAddr> {
        todo!()
    }

    pub fn configuration(&self) -> Option<&Configuration> {
        todo!()
    }

    pub fn generation(&self) -> u32 {
        todo!()
    }

    pub fn executed_upto(&self) -> Instance {
        todo!()
    }

    /// This replica's own hello.
    pub fn hello(&self) -> Hello {
        todo!()
    }

    /// Whether a hello that arrived is welcome; if not, why, for its sender and the log.
    pub fn greet(&self, hello: &Hello) -> Result<(), String> {
        todo!()
    }

    pub fn status(&self, now: Time) -> Status {
        todo!()
    }
}

/// What the host executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executable {
    /// Nothing for the application: a no-op or a change of members.
    Nothing,
    Command(Bytes),
}

#[allow(unused)]
fn unused(_: Value) {}
