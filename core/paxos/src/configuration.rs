//! Who votes on which instance: [`Configuration`], and the [`Schedule`] of the ones in force and to come.

use crate::identity::{CellId, Incarnation, Instance, ReplicaId};
use crate::step::VOTERS_MAX;
use kumo_wire::{Malformed, Reader, Wire, Writer, wire_enum, wire_struct};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// What a member is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Votes.
    Core,
    /// Follows and serves reads; never votes.
    Extension,
    /// A voter of the generation before a recovery: becomes one again when it is back and has caught up.
    Returning,
}

/// One replica as a configuration names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    pub id: ReplicaId,
    pub address: SocketAddr,
    pub incarnation: Incarnation,
    pub role: Role,
}

/// The members of a cell, as one log entry says. An entry takes effect only if its version is one above the
/// latest scheduled one: compare and swap, so of two changes proposed side by side the second is void.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Configuration {
    pub version: u64,
    /// The id the next newcomer gets: ids are never used again.
    pub next_id: ReplicaId,
    /// Ordered by id.
    pub members: Vec<Member>,
}

impl Configuration {
    /// The incarnations that vote.
    pub fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.role == Role::Core)
    }

    pub fn is_voter(&self, incarnation: Incarnation) -> bool {
        self.voters().any(|member| member.incarnation == incarnation)
    }

    pub fn member(&self, incarnation: Incarnation) -> Option<&Member> {
        self.members.iter().find(|member| member.incarnation == incarnation)
    }

    pub fn at(&self, address: SocketAddr) -> Option<&Member> {
        self.members.iter().find(|member| member.address == address)
    }

    /// Whether the voters for which `counted` holds are more than half of all voters.
    pub fn majority(&self, counted: impl Fn(Incarnation) -> bool) -> bool {
        let all = self.voters().count();
        let yes = self.voters().filter(|member| counted(member.incarnation)).count();
        yes * 2 > all
    }
}

/// Entry 0 of a cell, or of a generation of it: decided by whoever formed it, in force at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Genesis {
    pub cell: CellId,
    /// 1 when formed, greater with every recovery from a lone survivor.
    pub generation: u32,
    /// W: a configuration entry at m is in force from m + W, and at most W instances are open at once.
    /// Agreed here so that it cannot differ between replicas.
    pub window: u64,
    pub configuration: Configuration,
}

/// Which configuration decides which instance. The configuration of instance i is what the configuration
/// entries at instances ≤ i − W say; a genesis is in force from the instance after it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Schedule {
    pub window: u64,
    /// (first instance in force, configuration), ascending, never empty.
    pub entries: Vec<(Instance, Configuration)>,
}

impl Schedule {
    pub fn new(at: Instance, genesis: &Genesis) -> Schedule {
        Schedule { window: genesis.window, entries: vec![(at.next(), genesis.configuration.clone())] }
    }

    /// The configuration that decides `instance`. Right only for instances ≤ executed + W: later ones may
    /// still be changed by entries not executed yet.
    pub fn of(&self, instance: Instance) -> &Configuration {
        let mut found = &self.entries[0].1;
        for (from, configuration) in &self.entries {
            if *from <= instance {
                found = configuration;
            }
        }
        found
    }

    /// The latest scheduled configuration, in force or not.
    pub fn latest(&self) -> &Configuration {
        &self.entries[self.entries.len() - 1].1
    }

    /// The first instance of the latest scheduled configuration.
    pub fn latest_from(&self) -> Instance {
        self.entries[self.entries.len() - 1].0
    }

    /// Executes a configuration entry at `at`. False: its version is not the next one, so it is void.
    pub fn schedule(&mut self, at: Instance, configuration: &Configuration) -> bool {
        if configuration.version != self.latest().version.saturating_add(1) {
            return false;
        }
        self.entries.push((at.plus(self.window), configuration.clone()));
        true
    }

    /// Forgets configurations that decide nothing above `executed`.
    pub fn prune(&mut self, executed: Instance) {
        while self.entries.len() > 1 && self.entries[1].0 <= executed.next() {
            self.entries.remove(0);
        }
    }

    /// From which instance on this incarnation votes, if any scheduled configuration names it a voter.
    pub fn votes_from(&self, incarnation: Incarnation) -> Option<Instance> {
        self.entries
            .iter()
            .find(|(_, configuration)| configuration.is_voter(incarnation))
            .map(|(from, _)| *from)
    }

    /// Every incarnation that votes in some configuration not yet pruned.
    pub fn voters(&self) -> BTreeSet<Incarnation> {
        self.entries
            .iter()
            .flat_map(|(_, configuration)| configuration.voters())
            .map(|m| m.incarnation)
            .collect()
    }
}

/// Members of one configuration, extensions included.
pub const MEMBERS_MAX: usize = 256;

/// The largest window that a genesis may agree on.
const WINDOW_MAX: u64 = 1 << 20;

/// No cell changes its members so often.
const VERSION_MAX: u64 = 1 << 62;

wire_enum!(Role { 1 = Core, 2 = Extension, 3 = Returning });
wire_struct!(Member { id, address, incarnation, role });

impl Wire for Configuration {
    fn encode(&self, out: &mut Writer) {
        self.version.encode(out);
        self.next_id.encode(out);
        self.members.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        let (version, next_id): (u64, ReplicaId) = Wire::decode(input)?;
        let configuration = Configuration { version, next_id, members: Wire::decode(input)? };
        configuration.check()?;
        Ok(configuration)
    }
}

impl Configuration {
    /// What every configuration of ours keeps: bytes that say otherwise are not one.
    fn check(&self) -> Result<(), Malformed> {
        let voters = self.voters().count();
        if voters == 0 || voters > VOTERS_MAX || self.members.len() > MEMBERS_MAX {
            return Err(Malformed::Rule("a configuration has voters, and not too many"));
        }
        let ordered = self.members.iter().zip(self.members.iter().skip(1)).all(|(a, b)| a.id < b.id);
        if !ordered
            || self.members.iter().any(|member| member.id >= self.next_id)
            || self.version > VERSION_MAX
        {
            return Err(Malformed::Rule("ids are handed out once, in order"));
        }
        let addresses: BTreeSet<SocketAddr> = self.members.iter().map(|member| member.address).collect();
        let voting: BTreeSet<Incarnation> = self.voters().map(|member| member.incarnation).collect();
        if addresses.len() != self.members.len() || voting.len() != voters {
            return Err(Malformed::Rule("members differ in address and incarnation"));
        }
        Ok(())
    }
}

impl Wire for Genesis {
    fn encode(&self, out: &mut Writer) {
        self.cell.encode(out);
        self.generation.encode(out);
        self.window.encode(out);
        self.configuration.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        let (cell, (generation, window)): (CellId, (u32, u64)) = Wire::decode(input)?;
        let genesis = Genesis { cell, generation, window, configuration: Wire::decode(input)? };
        if genesis.window == 0
            || genesis.window > WINDOW_MAX
            || genesis.cell == CellId(0)
            || genesis.generation == 0
        {
            return Err(Malformed::Rule("a genesis names a cell, a generation and a window"));
        }
        Ok(genesis)
    }
}

impl Wire for Schedule {
    fn encode(&self, out: &mut Writer) {
        self.window.encode(out);
        self.entries.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        let (window, entries): (u64, Vec<(Instance, Configuration)>) = Wire::decode(input)?;
        let ascending =
            entries.iter().zip(entries.iter().skip(1)).all(|(a, b)| a.0 < b.0 && a.1.version < b.1.version);
        if entries.is_empty() || !ascending || window == 0 || window > WINDOW_MAX {
            return Err(Malformed::Rule("a schedule names configurations, in order"));
        }
        Ok(Schedule { window, entries })
    }
}
