//! [`Table`]: for every place on the ring, who owns it; computed once from a [`Space`].

use crate::guide::Guide;
use crate::hash::{KeyHash, key_hash};
use crate::space::{MemberState, Space};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Copies of every key: the first so many distinct servers walking up from its hash. (Seed 000, 1)
pub const COPIES: usize = 3;

/// Points a server has on the ring. (Seed 000, 1.1)
pub const POINTS: usize = 128;

/// Every place on the ring belongs to exactly one arc. Indexes are those of the space's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Ascending by `last`; the final one ends at `u64::MAX`.
    arcs: Vec<Arc>,
    guide: Guide,
}

/// A stretch of the ring in which every key has the same owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arc {
    pub first: KeyHash,
    /// Included.
    pub last: KeyHash,
    /// Owners in `rhs` that act, in walking order; the first is the primary.
    pub readers: Vec<u16>,
    /// Owners in `whs` that are not readers, and act: they catch up.
    pub comers: Vec<u16>,
    /// Owners in the earlier ring that have not confirmed the switch, and are in neither of the others.
    pub old: Vec<u16>,
    /// All of `rhs`' owners, lost ones included: what `kumohash assign` and the dashboard show.
    pub owners: Vec<u16>,
}

impl Arc {
    pub fn primary(&self) -> Option<u16> {
        self.readers.first().copied()
    }

    /// A(k): those that must acknowledge a write.
    pub fn acknowledgers(&self) -> impl Iterator<Item = u16> + '_ {
        self.readers.iter().chain(&self.comers).chain(&self.old).copied()
    }

    pub fn acknowledges(&self, index: u16) -> bool {
        self.acknowledgers().any(|one| one == index)
    }
}

impl Table {
    pub fn new(space: &Space) -> Table {
        let mut known = BTreeMap::new();
        let mut ring = |members: &[u16]| Ring::new(space, members, &mut known);
        let rhs = ring(&space.rhs);
        // Nearly always they are one: then nothing is computed twice.
        let whs = (space.whs != space.rhs).then(|| ring(&space.whs));
        let earlier = (!space.old.is_empty()).then(|| ring(&space.earlier));
        let rings = Rings { rhs: &rhs, whs: whs.as_ref(), earlier: earlier.as_ref() };
        let all = [Some(&rhs), rings.whs, rings.earlier].into_iter().flatten();
        let mut ends: Vec<u64> = all.flat_map(|ring| ring.points.iter().map(|point| point.0)).collect();
        ends.push(u64::MAX);
        ends.sort_unstable();
        ends.dedup();
        let mut first = 0;
        let mut arcs: Vec<Arc> = Vec::with_capacity(ends.len());
        for last in ends {
            let arc = arc(space, &rings, first, last);
            arcs.push(arc);
            first = last.wrapping_add(1);
        }
        let guide = Guide::new(arcs.iter().map(|arc| arc.last));
        Table { arcs, guide }
    }

    /// The first acting owner in `whs` orders the keys: not a rule of the store, see
    /// [`Mutation::WriteRingPrimary`](crate::Mutation::WriteRingPrimary).
    pub(crate) fn led_by_whs(space: &Space) -> Table {
        let mut table = Table::new(space);
        let whs = Ring::new(space, &space.whs, &mut BTreeMap::new());
        for arc in &mut table.arcs {
            let owners = whs.owners(arc.last.0);
            let Some(first) = owners.into_iter().find(|&one| space.member(one).is_active()) else { continue };
            arc.comers.retain(|&one| one != first);
            arc.readers.retain(|&one| one != first);
            arc.readers.insert(0, first);
        }
        table
    }

    pub fn arcs(&self) -> &[Arc] {
        &self.arcs
    }

    /// Arcs whose owners are all lost.
    pub fn dark(&self) -> impl Iterator<Item = &Arc> {
        self.arcs.iter().filter(|arc| arc.primary().is_none() && !arc.owners.is_empty())
    }

    /// How much of the ring that is, in 2^-32 parts of it.
    pub fn dark_parts(&self) -> u64 {
        let places: u128 = self.dark().map(|arc| u128::from(arc.last.0 - arc.first.0) + 1).sum();
        (places >> 32) as u64
    }

    pub fn position(&self, hash: KeyHash) -> usize {
        self.guide.find(hash, |number| self.arcs[number].last)
    }

    pub fn arc(&self, hash: KeyHash) -> &Arc {
        &self.arcs[self.position(hash)]
    }
}

/// A server's points: the hash of its address, then of each point's own bytes. (Seed 000, 1.1)
pub fn points(address: SocketAddr) -> [KeyHash; POINTS] {
    let mut name = Vec::with_capacity(18);
    name.extend_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => name.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => name.extend_from_slice(&ip.octets()),
    }
    let mut point = key_hash(&name);
    std::array::from_fn(|_| {
        let this = point;
        point = key_hash(&this.0.to_le_bytes());
        this
    })
}

struct Ring {
    /// Ascending.
    points: Vec<(u64, u16)>,
    servers: usize,
}

/// Those of one space.
struct Rings<'a> {
    rhs: &'a Ring,
    /// None: the same as `rhs`.
    whs: Option<&'a Ring>,
    /// None: nobody is old.
    earlier: Option<&'a Ring>,
}

impl Ring {
    /// `known`: the points of members that were in a ring before.
    fn new(space: &Space, members: &[u16], known: &mut BTreeMap<u16, [KeyHash; POINTS]>) -> Ring {
        let mut all: Vec<(u64, u16)> = Vec::with_capacity(members.len() * POINTS);
        for &index in members {
            let points = known.entry(index).or_insert_with(|| points(space.member(index).address));
            all.extend(points.iter().map(|point| (point.0, index)));
        }
        all.sort_unstable();
        Ring { points: all, servers: members.len() }
    }

    /// The first distinct servers walking up from `hash`, around the end if need be.
    fn owners(&self, hash: u64) -> Vec<u16> {
        let wanted = COPIES.min(self.servers);
        let start = self.points.partition_point(|&(point, _)| point < hash);
        let mut owners = Vec::with_capacity(wanted);
        for &(_, index) in self.points[start..].iter().chain(&self.points[..start]) {
            if owners.len() == wanted {
                break;
            }
            if !owners.contains(&index) {
                owners.push(index);
            }
        }
        owners
    }
}

fn arc(space: &Space, rings: &Rings, first: u64, last: u64) -> Arc {
    let owners = rings.rhs.owners(last);
    let mut readers: Vec<u16> = owners.iter().copied().filter(|&one| space.member(one).is_active()).collect();
    if readers.is_empty() {
        readers.extend(last_lost(space, &owners));
    }
    let acts = |one: u16| !matches!(space.member(one).state, MemberState::Fault { .. });
    let mut comers = rings.whs.map_or_else(|| owners.clone(), |whs| whs.owners(last));
    comers.retain(|&one| acts(one) && !readers.contains(&one));
    // Of few owners the few that are old: the other way around it would be all members for every arc.
    let mut old = rings.earlier.map_or_else(Vec::new, |earlier| earlier.owners(last));
    old.retain(|one| space.old.binary_search(one).is_ok() && !readers.contains(one) && !comers.contains(one));
    old.sort_unstable();
    Arc { first: KeyHash(first), last: KeyHash(last), readers, comers, old, owners }
}

/// When all owners were lost, the one that was lost last has all that was acknowledged; it acts again if it came
/// back with its disk, and nobody else does. (REPLICATION.md, rule 13)
fn last_lost(space: &Space, owners: &[u16]) -> Option<u16> {
    let order = |one: &u16| match space.member(*one).state {
        MemberState::Active => None,
        MemberState::Fault { order } | MemberState::Returned { order } => Some(order),
    };
    let last = owners.iter().copied().max_by_key(order)?;
    matches!(space.member(last).state, MemberState::Returned { .. }).then_some(last)
}
