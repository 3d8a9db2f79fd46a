//! [`Alive`]: what a server says of itself to the managers.

use crate::{Incarnation, ServerId, SpaceNumber, Usage};
use kumo_paxos::{CellId, Time};
use kumo_wire::wire_struct;
use std::net::SocketAddr;

/// How far a server is with its part of a replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The `whs_since` (or, for a full replace, the number at which the job began) this is about.
    pub job: SpaceNumber,
    /// Arcs times new owners that this server has to copy, and those that are done.
    pub copies: u64,
    pub copies_done: u64,
    pub records_sent: u64,
    pub bytes_sent: u64,
    /// Of the arcs still to be copied, estimated from what is stored.
    pub bytes_left: u64,
    /// Records that the store cannot read: what they lie in is not copied, and the job waits for it.
    pub unreadable: u64,
}

impl Progress {
    /// Of 100. Ranges count, not bytes: those that are equal already need none.
    pub fn percent(&self) -> f64 {
        match self.copies {
            0 => 0.0,
            copies => 100.0 * self.copies_done.min(copies) as f64 / copies as f64,
        }
    }

    /// What all of them together have done for a job; those about another one do not count.
    pub fn sum(job: SpaceNumber, all: impl Iterator<Item = Progress>) -> Progress {
        let mut sum = Progress { job, ..Progress::default() };
        for one in all.filter(|one| one.job == job) {
            // A server may say anything.
            sum.copies = sum.copies.saturating_add(one.copies);
            sum.copies_done = sum.copies_done.saturating_add(one.copies_done);
            sum.records_sent = sum.records_sent.saturating_add(one.records_sent);
            sum.bytes_sent = sum.bytes_sent.saturating_add(one.bytes_sent);
            sum.bytes_left = sum.bytes_left.saturating_add(one.bytes_left);
            sum.unreadable = sum.unreadable.saturating_add(one.unreadable);
        }
        sum
    }
}

/// A server's sign of life, to every manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    pub server: ServerId,
    /// The lives before this one on the same store: the last that owned something, and those since that were ended
    /// before they knew whether they did. One of them may be the last owner of an arc. At most [`LIVES_MAX`].
    pub previous: Vec<Incarnation>,
    /// The cluster that its store belongs to; none: it is new.
    pub cluster: Option<CellId>,
    /// A store that belongs to no cluster may hold what another one stamped: the greatest space in those stamps.
    pub stamped: SpaceNumber,
    /// Over all that such a store holds: without a copy, only those with the same digest may be a ring.
    pub digest: u64,
    /// The space it has adopted: for the switch, this is its confirmation. 0: it was never attached.
    pub space: SpaceNumber,
    /// Its own clock at sending: comes back with the lease.
    pub sent: Time,
    pub usage: Usage,
    pub progress: Progress,
    pub gets: u64,
    pub sets: u64,
    pub deletes: u64,
    /// Where a replica of the cell could be started in its process.
    pub seat: Option<Seat>,
    /// A master leads it: it holds a lease now.
    pub leased: bool,
    /// There is no space left on its disk.
    pub full: bool,
}

/// A place for a replica of the cell in a server's process. (CELL.md, 3.8)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    pub address: SocketAddr,
    /// It would remember its votes after a restart.
    pub durable: bool,
}

wire_struct!(Progress { job, copies, copies_done, records_sent, bytes_sent, bytes_left, unreadable });
wire_struct!(Alive {
    server,
    previous,
    cluster,
    stamped,
    digest,
    space,
    sent,
    usage,
    progress,
    gets,
    sets,
    deletes,
    seat,
    leased,
    full
});
wire_struct!(Seat { address, durable });

/// Lives before its own that a server names. Who was the last owner of an arc, and restarts while its managers have no
/// master, can be a member again by naming that life alone: what is forgotten here can only be given up. A server that is
/// started anew every ten seconds gets through three hours without a master, and a sign of life has 16 KiB of it at most.
pub const LIVES_MAX: usize = 1024;

/// A server says that it is alive when so much has passed, at its next tick: a manager may count on it, whatever the
/// server is told.
pub(crate) const ALIVE_MICROS_MAX: u64 = 400_000;

/// A gateway that is silent for so long is given up: its own signs of life are the other half of this.
pub(crate) const GATEWAY_MICROS: u64 = 60_000_000;
