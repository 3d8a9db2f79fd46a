//! Snapshot transfer: [`Donor`] hands out frozen copies part by part, [`Receiver`] collects one.

use crate::application::Application;
use crate::snapshot::Parts;
use bytes::Bytes;
use kumo_paxos::{Incarnation, Instance, Message, Position, Time};
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::net::SocketAddr;

/// The frozen copies a node is handing out, one per asker. A copy shares all that has not changed since with
/// the live state, and its parts are made when they are asked for: nothing stops meanwhile.
pub(crate) struct Donor<A: Application> {
    copies: BTreeMap<Incarnation, Copy<A>>,
}

struct Copy<A: Application> {
    position: Position,
    parts: Peekable<Parts<A>>,
    /// The part made last, kept in case it must be sent again.
    part: u64,
    last: bool,
    bytes: Bytes,
    used: Time,
}

impl<A: Application> Donor<A> {
    pub fn new() -> Donor<A> {
        Donor { copies: BTreeMap::new() }
    }

    /// Answers a [`Message::SnapshotAsk`]. `freeze` makes a new copy; an asker that names a copy that is gone
    /// is given the beginning of a new one.
    pub fn asked(
        &mut self,
        now: Time,
        asker: Incarnation,
        at: Option<Instance>,
        part: u64,
        freeze: impl FnOnce() -> Option<(Position, Parts<A>)>,
    ) -> Option<Message> {
        let known = self.copies.get(&asker).is_some_and(|copy| match at {
            // A repeated first question: its answer was lost.
            None => copy.part == 0,
            Some(at) => copy.position.executed == at && (part == copy.part || part == copy.part + 1),
        });
        if !known {
            self.copies.remove(&asker);
            if self.copies.len() >= COPIES_MAX {
                return None;
            }
            let (position, parts) = freeze()?;
            let mut parts = parts.peekable();
            let bytes = parts.next()?;
            let last = parts.peek().is_none();
            self.copies.insert(asker, Copy { position, parts, part: 0, last, bytes, used: now });
        }
        let copy = self.copies.get_mut(&asker)?;
        copy.used = now;
        if known && at.is_some() && part == copy.part + 1 {
            copy.bytes = copy.parts.next()?;
            copy.last = copy.parts.peek().is_none();
            copy.part = part;
        }
        Some(Message::SnapshotPart {
            position: copy.position.clone(),
            part: copy.part,
            last: copy.last,
            bytes: copy.bytes.clone(),
        })
    }

    /// The position of the oldest copy: who takes it over will ask for what follows.
    pub fn oldest(&self) -> Option<Instance> {
        self.copies.values().map(|copy| copy.position.executed).min()
    }

    /// Lets go of copies that nobody reads any more.
    pub fn tidy(&mut self, now: Time, unit_micros: u64) {
        self.copies.retain(|_, copy| now.since(copy.used) < COPY_IDLE_UNITS * unit_micros);
    }
}

/// A snapshot being collected from a peer, one part at a time.
pub(crate) struct Receiver {
    pub from: SocketAddr,
    position: Option<Position>,
    parts: Vec<Bytes>,
    bytes: u64,
    /// When the part now wanted is asked for again, and how often it was.
    pub ask_at: Time,
    tries: u32,
}

/// What a receiver wants done next.
pub(crate) enum Next {
    /// Nothing: not the part it wanted.
    Wait,
    Ask(Message),
    /// All parts are here.
    Restore(Position, Vec<Bytes>, u64),
    GiveUp,
}

impl Receiver {
    /// Asks at its first time-out, which is now.
    pub fn new(from: SocketAddr, now: Time) -> Receiver {
        Receiver { from, position: None, parts: Vec::new(), bytes: 0, ask_at: now, tries: 0 }
    }

    /// The part wanted has not come: asks for it (again), or gives up.
    pub fn timeout(&mut self, now: Time, unit_micros: u64) -> Next {
        if self.tries == TRIES_MAX {
            return Next::GiveUp;
        }
        self.tries += 1;
        self.ask(now, unit_micros)
    }

    fn ask(&mut self, now: Time, unit_micros: u64) -> Next {
        self.ask_at = now.plus_micros(RESEND_UNITS * unit_micros);
        let at = self.position.as_ref().map(|position| position.executed);
        Next::Ask(Message::SnapshotAsk { at, part: self.parts.len() as u64 })
    }

    pub fn part(
        &mut self,
        now: Time,
        unit_micros: u64,
        position: Position,
        part: u64,
        last: bool,
        bytes: Bytes,
    ) -> Next {
        if part == 0 {
            // The first part, or the donor had to start again, be it at the same position: what it would answer to
            // the next question belongs to this beginning.
            self.parts.clear();
            self.bytes = 0;
            self.position = Some(position.clone());
        }
        if self.position.as_ref() != Some(&position) || part != self.parts.len() as u64 {
            return Next::Wait;
        }
        self.bytes += bytes.len() as u64;
        if self.bytes > SNAPSHOT_BYTES_MAX {
            return Next::GiveUp;
        }
        self.parts.push(bytes);
        self.tries = 0;
        if last {
            return Next::Restore(position, std::mem::take(&mut self.parts), self.bytes);
        }
        self.ask(now, unit_micros)
    }
}

/// Frozen copies at once. Each may come to cost as much as the state itself while that changes.
const COPIES_MAX: usize = 8;

/// A copy nobody asked for in so many heartbeats is dropped.
const COPY_IDLE_UNITS: u64 = 100;

/// A part that has not come in so many heartbeats is asked for again.
const RESEND_UNITS: u64 = 5;

/// So often the same part is asked for.
const TRIES_MAX: u32 = 10;

/// The largest snapshot taken over. All state is in memory: beyond this the donor is lying.
const SNAPSHOT_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_paxos::{CellId, Configuration, Genesis, Member, ReplicaId, Role, Schedule};

    const UNIT_MICROS: u64 = 100_000;

    fn donor() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 1))
    }

    fn position(executed: u64) -> Position {
        let member =
            Member { id: ReplicaId(0), address: donor(), incarnation: Incarnation(1), role: Role::Core };
        let configuration = Configuration { version: 1, next_id: ReplicaId(1), members: vec![member] };
        let genesis = Genesis { cell: CellId(1), generation: 1, window: 2, configuration };
        let schedule = Schedule::new(Instance(0), &genesis);
        Position { cell: CellId(1), generation: 1, executed: Instance(executed), schedule, digest: 7 }
    }

    /// What the receiver does with a part: the part it asks for next, or all that it has.
    fn takes(
        receiver: &mut Receiver,
        part: u64,
        last: bool,
        bytes: &'static [u8],
    ) -> Result<u64, Vec<Bytes>> {
        match receiver.part(Time(1), UNIT_MICROS, position(9), part, last, Bytes::from_static(bytes)) {
            Next::Ask(Message::SnapshotAsk { at: Some(Instance(9)), part }) => Ok(part),
            Next::Restore(_, parts, _) => Err(parts),
            Next::Ask(_) | Next::Wait | Next::GiveUp => panic!("it goes on"),
        }
    }

    #[test]
    fn a_donor_that_begins_anew_at_the_same_position_is_followed() {
        let mut receiver = Receiver::new(donor(), Time(0));
        assert_eq!(takes(&mut receiver, 0, false, b"a"), Ok(1));
        assert_eq!(takes(&mut receiver, 1, false, b"b"), Ok(2));
        assert_eq!(takes(&mut receiver, 0, false, b"c"), Ok(1), "from the beginning");
        assert_eq!(takes(&mut receiver, 1, true, b"d"), Err(vec![Bytes::from("c"), Bytes::from("d")]));
    }

    #[test]
    fn a_part_that_comes_twice_is_taken_once() {
        let mut receiver = Receiver::new(donor(), Time(0));
        takes(&mut receiver, 0, false, b"a").unwrap();
        takes(&mut receiver, 1, false, b"b").unwrap();
        let again = receiver.part(Time(1), UNIT_MICROS, position(9), 1, false, Bytes::from_static(b"b"));
        assert!(matches!(again, Next::Wait));
        assert_eq!(takes(&mut receiver, 2, true, b"c").map_err(|parts| parts.len()), Err(3));
    }
}
