//! Who votes on which instance: [`Configuration`], and the [`Schedule`] of the ones in force and to come.

use crate::identity::{CellId, Incarnation, Instance, ReplicaId};
use kumo_wire::{wire_enum, wire_struct};
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
    /// 1 when formed, one more with every recovery from a lone survivor.
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
        if configuration.version != self.latest().version + 1 {
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

wire_enum!(Role { 1 = Core, 2 = Extension, 3 = Returning });
wire_struct!(Member { id, address, incarnation, role });
wire_struct!(Configuration { version, next_id, members });
wire_struct!(Genesis { cell, generation, window, configuration });

impl kumo_wire::Wire for Schedule {
    fn encode(&self, out: &mut bytes::BytesMut) {
        self.window.encode(out);
        self.entries.encode(out);
    }
    fn decode(input: &mut kumo_wire::Reader) -> Result<Self, kumo_wire::Malformed> {
        let schedule =
            Schedule { window: kumo_wire::Wire::decode(input)?, entries: kumo_wire::Wire::decode(input)? };
        if schedule.entries.is_empty() || schedule.window == 0 {
            return Err(kumo_wire::Malformed::Rule("a schedule names at least one configuration"));
        }
        Ok(schedule)
    }
}
