//! [`Space`]: the hash space as the cell agreed on it, and handed to every node.

use crate::{Clock, GatewayId, Incarnation, ServerId, SpaceNumber};
use kumo_paxos::CellId;
use kumo_wire::{wire_enum, wire_struct};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Servers a space can name. Member indexes are `u16`, and a space must fit a frame many times over.
pub const MEMBERS_MAX: usize = 1024;

/// Who owns what, at one number. Every change of it is one entry of the cell's log and gets the next number;
/// nodes only ever go to a higher one.
///
/// There are up to three rings: `rhs`, by which keys are read and whose first acting owner is a key's primary;
/// `whs`, the ring that a replace is going to, equal to `rhs` otherwise; and `earlier`, the `rhs` before the last
/// switch, as long as some of its members have not confirmed that they know they are out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    pub cluster: CellId,
    pub number: SpaceNumber,
    /// When it was made, for people: `kumoctl stat` shows it as the seed does.
    pub clock: Clock,
    /// Ordered by address, then incarnation. One address can stand here twice: as the lost life that keeps its
    /// place in `rhs`, and as the new life that a replace brings into `whs`.
    pub members: Vec<Member>,
    /// Indexes into `members`, ascending; so are the next three.
    pub rhs: Vec<u16>,
    pub whs: Vec<u16>,
    pub earlier: Vec<u16>,
    /// Members of `earlier` that must still acknowledge writes: they have not
    /// confirmed a space in which they own nothing. Never one that is fault.
    pub old: Vec<u16>,
    /// The number at which `whs` became what it is. Who catches up begins anew when it changes: a ring that was
    /// given up and set again is another one.
    pub whs_since: SpaceNumber,
    /// A replace is under way, and how.
    pub job: Option<Job>,
    /// A request first sent below it, whose id nobody remembers, may have been executed by a server that came
    /// back from its disk without ids: its outcome is unknown. (REPLICATION.md, rule 22)
    pub id_floor: SpaceNumber,
    /// Gateways below are expired, except those listed in `gateways`.
    pub gateway_floor: GatewayId,
    /// Live gateways below the floor, ascending.
    pub gateways: Vec<GatewayId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub address: SocketAddr,
    pub incarnation: Incarnation,
    pub state: MemberState,
}

/// Where a server stands between the ring that is read and the one that a replace goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Attached,
    /// A replace brings it in.
    Joining,
    /// A replace takes it out.
    Leaving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    Active,
    /// Lost. `order` grows with every fault that was logged: the owner of an arc that was lost last has all
    /// that was ever acknowledged there.
    Fault {
        order: u64,
    },
    /// Lost as the last owner of some arc, and back with its disk: it acts for those arcs of `rhs` alone of
    /// which it was the last owner, and in `whs` like any other. (REPLICATION.md, rule 13)
    Returned {
        order: u64,
    },
}

/// What a replace is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Compare and repair all arcs among the owners there are, instead of moving to a new ring.
    pub full: bool,
    pub paused: bool,
    /// Bytes a second that each server may send for it; 0: no limit.
    pub rate: u64,
}

impl Space {
    /// The space of a cluster that nobody was attached to yet.
    pub fn empty(cluster: CellId, number: SpaceNumber) -> Space {
        Space {
            cluster,
            number,
            clock: Clock(0),
            members: Vec::new(),
            rhs: Vec::new(),
            whs: Vec::new(),
            earlier: Vec::new(),
            old: Vec::new(),
            whs_since: number,
            job: None,
            id_floor: SpaceNumber(0),
            gateway_floor: GatewayId(0),
            gateways: Vec::new(),
        }
    }

    pub fn member(&self, index: u16) -> &Member {
        &self.members[usize::from(index)]
    }

    pub fn server(&self, index: u16) -> ServerId {
        self.member(index).id()
    }

    /// The member that is this very life of this server.
    pub fn index_of(&self, server: ServerId) -> Option<u16> {
        // A life's number is its own: to look at all of them is less than to halve by address, for a hundred servers too.
        let is_it = |one: &Member| one.incarnation == server.incarnation && one.address == server.address;
        Some(self.members.iter().position(is_it)? as u16)
    }

    /// The servers of both rings, for people: one place an address. While a replace runs, the ring that it goes to says
    /// how a server stands: one that was attached again is not fault any more.
    pub fn places(&self) -> BTreeMap<SocketAddr, (MemberState, Standing)> {
        let mut places = BTreeMap::new();
        for index in &self.rhs {
            let place = if self.whs.contains(index) { Standing::Attached } else { Standing::Leaving };
            let member = self.member(*index);
            places.insert(member.address, (member.state, place));
        }
        for index in self.whs.iter().filter(|index| !self.rhs.contains(index)) {
            let member = self.member(*index);
            places.insert(member.address, (member.state, Standing::Joining));
        }
        places
    }

    /// Refused for good: expired by a space that this node has adopted.
    pub fn expired(&self, gateway: GatewayId) -> bool {
        gateway < self.gateway_floor && self.gateways.binary_search(&gateway).is_err()
    }

    /// Keys are only read where they are written, nobody catches up, and nobody has to be told that it is out.
    pub fn settled(&self) -> bool {
        self.rhs == self.whs && self.old.is_empty()
    }

    /// What came from a socket or a disk keeps the rules that the code relies on.
    pub fn well_formed(&self) -> bool {
        let count = self.members.len();
        let ascending = |list: &[u16]| {
            list.is_sorted_by(|a, b| a < b) && list.iter().all(|&index| usize::from(index) < count)
        };
        count <= MEMBERS_MAX
            && self.members.is_sorted_by(|a, b| a.id() < b.id())
            && [&self.rhs, &self.whs, &self.earlier, &self.old].into_iter().all(|list| ascending(list))
            && [&self.rhs, &self.whs, &self.earlier].into_iter().all(|ring| self.addresses_differ(ring))
            && self.old.iter().all(|old| self.earlier.binary_search(old).is_ok())
            && self.gateways.is_sorted_by(|a, b| a < b)
    }

    fn addresses_differ(&self, ring: &[u16]) -> bool {
        ring.windows(2).all(|pair| self.member(pair[0]).address != self.member(pair[1]).address)
    }
}

impl Member {
    pub fn id(&self) -> ServerId {
        ServerId { address: self.address, incarnation: self.incarnation }
    }

    pub fn is_active(&self) -> bool {
        self.state == MemberState::Active
    }
}

wire_struct!(Job { full, paused, rate });
wire_enum!(MemberState { 1 = Active, 2 = Fault { order }, 3 = Returned { order } });
wire_struct!(Member { address, incarnation, state });
wire_struct!(Space {
    cluster,
    number,
    clock,
    members,
    rhs,
    whs,
    earlier,
    old,
    whs_since,
    job,
    id_floor,
    gateway_floor,
    gateways,
});
