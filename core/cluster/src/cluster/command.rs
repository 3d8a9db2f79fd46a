//! [`Command`]: every change of the cluster that can be put up for agreement, and [`Objection`]: why one is void.

use crate::{GatewayId, Incarnation, ServerId, Space, SpaceNumber};
use kumo_paxos::CellId;
use kumo_wire::{wire_enum, wire_struct};
use std::net::SocketAddr;

/// A change of the cluster. What a master decides from what it has heard carries its term, and the number of the
/// space that it looked at where that matters: executed late, under another master or on another space, it is void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A master begins its term. Void unless `after` is the current one, so that a repeated one begins nothing.
    Lead(Lead),
    /// These lives are lost, in this order; their leases have run out. In a later space they may have leases again.
    Fault { term: u64, number: SpaceNumber, servers: Vec<ServerId> },
    /// Lost lives that were the last owners of some arc, and the lives in which they are back with their disks.
    Return { term: u64, number: SpaceNumber, servers: Vec<(ServerId, Incarnation)> },
    /// Everything is copied.
    Switch { term: u64, number: SpaceNumber },
    /// Everybody knows of the switch.
    Cleared { term: u64, number: SpaceNumber },
    /// A gateway wants an id.
    Register { nonce: u128 },
    /// These gateways have been silent for too long.
    ExpireGateways { term: u64, gateways: Vec<GatewayId> },
    /// What an operator, or auto-replace on behalf of one, wants. `ticket`: the master's number for it, by which it
    /// finds the outcome; a ticket counts once.
    Order { term: u64, ticket: u64, order: Order },
    /// A server is to run a replica of the cell at that address: on record before it does, so that it is never taken
    /// for a manager.
    Recruit { term: u64, voter: SocketAddr, server: SocketAddr },
    /// It is out of the cell, or never came into it.
    Dismiss { term: u64, voter: SocketAddr },
    /// No server knows of a space that the recovery of the cell has lost: the one that it made is the next.
    Remembered { term: u64, number: SpaceNumber },
    /// That server does.
    Forgotten { term: u64, number: SpaceNumber, server: SocketAddr, knows: SpaceNumber },
    /// All who act in that space keep the one that began its generation of numbers, or a later one.
    Witnessed { term: u64, number: SpaceNumber },
}

/// A master's first command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    pub after: u64,
    /// Names the manager's process: by this it knows its own term when it sees it.
    pub life: u128,
    pub cluster: CellId,
    /// The longest lease that it will grant.
    pub lease_micros: u64,
    /// Counts in the first term of all.
    pub auto_replace: bool,
}

/// An operator's wish, with what the master knew when it was expressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Let the next replace bring these in and take those out.
    Want {
        attach: Vec<SocketAddr>,
        detach: Vec<SocketAddr>,
    },
    /// Move the data to a ring with these lives, and without those addresses; an operator's takes out also what was
    /// wanted out before. `accept_loss`: arcs without an acting owner go to their new owners without their data. `above`: what those
    /// lives hold was stamped up to there by another cluster; the new space leads it.
    Replace {
        number: SpaceNumber,
        above: SpaceNumber,
        attach: Vec<ServerId>,
        detach: Vec<SocketAddr>,
        accept_loss: bool,
        author: Author,
    },
    FullReplace {
        number: SpaceNumber,
    },
    Cancel {
        author: Author,
    },
    Pause,
    Resume,
    Rate {
        bytes: u64,
    },
    AutoReplace {
        on: bool,
    },
    /// A cell without members takes the space that servers of an earlier cell hold.
    Rebuild {
        space: Space,
    },
}

/// Whose order it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    Operator,
    /// The master itself, while auto-replace is on. It does not act on wishes that an operator may mean to add to.
    AutoReplace,
}

/// What can be asked of any replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// The current [`Space`].
    Space,
}

/// Why a command was void. Equal on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Objection {
    #[error("the command is malformed")]
    Malformed,
    #[error("another master leads now")]
    StaleTerm,
    #[error("the hash space has changed meanwhile")]
    StaleSpace,
    #[error("this was answered before")]
    Repeated,
    #[error("nothing to do")]
    Nothing,
    #[error("no such server in the ring")]
    NoSuchServer,
    #[error("a replace is under way")]
    JobRuns,
    #[error("the last replace is not confirmed by all servers yet")]
    Unsettled,
    #[error("no replace is under way")]
    NoJob,
    #[error("the replace is paused")]
    Paused,
    #[error("an earlier life of that server is not declared fault yet")]
    StillActing,
    #[error("one address is named twice")]
    AddressTwice,
    #[error("a cluster has at most {} servers", crate::MEMBERS_MAX)]
    TooManyServers,
    #[error("a cluster has at most {} gateways", super::GATEWAYS_MAX)]
    TooManyGateways,
    #[error("part of the ring would have no acting server")]
    NoTaker,
    #[error("all servers of part of the ring are lost")]
    OwnersLost,
    #[error("the cluster has members: nothing to rebuild")]
    NotEmpty,
    #[error("the hash space to rebuild from breaks the rules")]
    BadSpace,
    #[error("a cell has at most {} recruited voters", super::RECRUITED_MAX)]
    TooManyRecruits,
    #[error(
        "part of the ring would have one copy, and has more: detach the servers that are fault too, or start them"
    )]
    FewCopies,
    #[error("the cell was recovered, and servers may know of a hash space that it has forgotten")]
    InDoubt,
    #[error("the hash space was rebuilt or recovered, and not all servers have the new one yet")]
    Unwitnessed,
}

wire_enum!(Command {
    1 = Lead(lead),
    2 = Fault { term, number, servers },
    3 = Return { term, number, servers },
    4 = Switch { term, number },
    5 = Cleared { term, number },
    6 = Register { nonce },
    7 = ExpireGateways { term, gateways },
    8 = Order { term, ticket, order },
    9 = Recruit { term, voter, server },
    10 = Dismiss { term, voter },
    11 = Remembered { term, number },
    12 = Forgotten { term, number, server, knows },
    13 = Witnessed { term, number },
});
wire_struct!(Lead { after, life, cluster, lease_micros, auto_replace });
wire_enum!(Order {
    1 = Want { attach, detach },
    2 = Replace { number, above, attach, detach, accept_loss, author },
    3 = FullReplace { number },
    4 = Cancel { author },
    5 = Pause,
    6 = Resume,
    7 = Rate { bytes },
    8 = AutoReplace { on },
    9 = Rebuild { space },
});
wire_enum!(Author {
    1 = Operator,
    2 = AutoReplace,
});
wire_enum!(Query { 1 = Space });
wire_enum!(Objection {
    1 = Malformed,
    2 = StaleTerm,
    3 = StaleSpace,
    4 = Repeated,
    5 = Nothing,
    6 = NoSuchServer,
    7 = JobRuns,
    8 = Unsettled,
    9 = NoJob,
    10 = Paused,
    11 = StillActing,
    12 = AddressTwice,
    13 = TooManyServers,
    14 = TooManyGateways,
    15 = NoTaker,
    16 = OwnersLost,
    17 = NotEmpty,
    18 = BadSpace,
    19 = TooManyRecruits,
    20 = FewCopies,
    21 = InDoubt,
    22 = Unwitnessed,
});
