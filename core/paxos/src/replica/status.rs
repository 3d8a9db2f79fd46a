//! Looking into a replica: who leads, who is how far, whether a linear read may be answered, who may join.

use super::Replica;
use crate::configuration::{Configuration, Member};
use crate::identity::{CellId, Instance, Round, Time};
use crate::message::{Hello, MAGIC, Side, VERSION};
use crate::step::{ReplicaState, ReplicaStatus, Status};
use crate::value::Value;
use std::net::SocketAddr;

impl Replica {
    /// Leads, and has executed everything it inherited: may propose and, under the lease, answer linear reads.
    pub fn is_master(&self) -> Option<Round> {
        self.reign
    }

    /// Whether a linear read may be answered at `now` from what is executed. The grants keep stronger rounds from
    /// deciding anything more, the lasts show what weaker ones did: who gave a grant need not have given a last.
    pub fn has_lease(&self, now: Time) -> bool {
        let log = self.agreement.log();
        self.reign.is_some()
            && log.decided_upto() == log.executed()
            && self.agreement.knows_all()
            && self.agreement.schedule().is_some_and(|schedule| self.lease.valid(now, schedule))
    }

    /// May answer reads at all: belongs to a cell, and is not a learner on its way to a vote.
    pub fn serves_reads(&self) -> bool {
        if self.halted().is_some() || self.over {
            return false;
        }
        let named = self.configuration_now().and_then(|now| now.member(self.settings.incarnation));
        named.is_some() && (self.agreement.votes() || self.settings.extension)
    }

    /// The master as far as this replica knows.
    pub fn master(&self) -> Option<SocketAddr> {
        if self.reign.is_some() { Some(self.settings.address) } else { self.master }
    }

    /// This replica, or a connected one that leads a round no weaker than what is promised here.
    pub(super) fn live_master(&self, now: Time) -> Option<SocketAddr> {
        if self.reign.is_some() {
            return Some(self.settings.address);
        }
        let silence = self.silence_micros();
        let promised = self.agreement.acceptor().promised();
        let leaders =
            self.links.iter().filter(|(_, link)| link.alive(now, silence)).filter_map(|(peer, link)| {
                let leads = link.heartbeat.as_ref()?.leads?;
                (leads >= promised).then_some((leads, peer))
            });
        leaders.max().map(|(_, peer)| peer)
    }

    /// The connected replica that serves reads with the least load, itself included.
    pub fn least_loaded(&self) -> Option<SocketAddr> {
        let configuration = self.configuration_now()?;
        let others = configuration.members.iter().filter_map(|member| {
            let link = self.links.of(member.incarnation).filter(|link| link.up)?;
            let heartbeat = link.heartbeat.as_ref()?;
            let serves = (heartbeat.votes || heartbeat.extension) && !heartbeat.is_halted();
            serves.then_some((heartbeat.load, member.address))
        });
        let mine = self.serves_reads().then_some((self.load, self.settings.address));
        others.chain(mine).min().map(|(_, address)| address)
    }

    pub fn configuration(&self) -> Option<&Configuration> {
        self.agreement.schedule().map(|schedule| schedule.latest())
    }

    pub fn generation(&self) -> u32 {
        self.agreement.generation
    }

    /// The generation that the next entry to execute is of: that of a recovery begins with its own entry.
    pub fn executing_generation(&self) -> u32 {
        match self.agreement.executable() {
            Some((_, Value::Genesis(genesis))) => genesis.generation,
            _other => self.agreement.generation,
        }
    }

    pub fn executed_upto(&self) -> Instance {
        self.agreement.log().executed()
    }

    pub fn agreement(&self) -> &crate::agreement::Agreement {
        &self.agreement
    }

    /// This replica's own hello.
    pub fn hello(&self) -> Hello {
        Hello {
            magic: MAGIC,
            version: VERSION,
            cell: self.agreement.cell,
            generation: self.lineage,
            side: if self.settings.extension { Side::Extension } else { Side::Replica },
            address: self.settings.address,
            incarnation: self.settings.incarnation,
        }
    }

    /// Whether a hello that arrived is welcome; if not, why, for its sender and the log.
    pub fn greet(&self, hello: &Hello) -> Result<(), String> {
        if hello.magic != MAGIC {
            return Err("this is a kumo cell: wrong magic".to_owned());
        }
        if hello.version != VERSION {
            return Err(format!("protocol version {} is not {VERSION}", hello.version));
        }
        // Which store they belong to is for the manager to judge: one that is rebuilt has another cell than its servers.
        if matches!(hello.side, Side::Server | Side::Gateway | Side::Tool) {
            return Ok(());
        }
        let (mine, none) = (self.agreement.cell, CellId(0));
        if hello.cell != none && mine != none && hello.cell != mine {
            return Err(format!("cell {} is not this cell, {mine}", hello.cell));
        }
        if hello.side == Side::Client {
            return Ok(());
        }
        if hello.address == self.settings.address {
            return Err(format!("{} is this replica's own address", hello.address));
        }
        let Some(schedule) = self.agreement.schedule() else { return Ok(()) };
        let named =
            schedule.entries.iter().any(|(_, configuration)| configuration.at(hello.address).is_some());
        if named || hello.side == Side::Extension {
            return Ok(());
        }
        Err(format!(
            "{} is not in the configuration of this cell: add it with `kumo cell add {0}`",
            hello.address
        ))
    }

    pub fn status(&self, now: Time) -> Status {
        let members = self.configuration().map_or(&[][..], |configuration| &configuration.members);
        Status {
            cell: self.agreement.cell,
            generation: self.agreement.generation,
            master: self.master(),
            round: self.agreement.acceptor().promised(),
            replicas: members.iter().map(|member| self.replica_status(now, member)).collect(),
            trouble: self.trouble(),
        }
    }

    fn replica_status(&self, now: Time, member: &Member) -> ReplicaStatus {
        let mut member = member.clone();
        if member.address == self.settings.address {
            let log = self.agreement.log();
            let votes = self.votes_now() && member.incarnation == self.settings.incarnation;
            return ReplicaStatus {
                state: if votes { ReplicaState::Voting } else { ReplicaState::Learning },
                member,
                decided: log.decided_upto(),
                executed: log.executed(),
                age_ms: now.since(self.birth) / 1000,
                load: self.load,
            };
        }
        let link = self.links.get(member.address);
        let alive = link.is_some_and(|link| link.alive(now, self.silence_micros()));
        let heartbeat = link.filter(|_| alive).and_then(|link| link.heartbeat.as_ref());
        let state = match heartbeat {
            None => ReplicaState::Down,
            Some(heartbeat) if heartbeat.votes => ReplicaState::Voting,
            Some(_) => ReplicaState::Learning,
        };
        if let Some(link) = link.filter(|_| alive) {
            member.incarnation = link.incarnation;
        }
        ReplicaStatus {
            member,
            state,
            decided: heartbeat.map_or(Instance(0), |heartbeat| heartbeat.success),
            executed: heartbeat.map_or(Instance(0), |heartbeat| heartbeat.executed),
            age_ms: link.filter(|_| alive).map_or(0, |link| link.age_ms(now)),
            load: heartbeat.map_or(0, |heartbeat| heartbeat.load),
        }
    }

    /// A voter that remembers and can be reached: this replica first.
    fn survivor(&self) -> Option<std::net::SocketAddr> {
        let configuration = self.configuration()?;
        let reached = |voter: &&Member| {
            let link = self.links.get(voter.address);
            link.is_some_and(|link| link.up && link.incarnation == voter.incarnation)
        };
        let own = configuration.member(self.settings.incarnation);
        own.or_else(|| configuration.voters().find(reached)).map(|member| member.address)
    }

    fn trouble(&self) -> Option<String> {
        if let Some(instance) = self.panics.bug() {
            return Some(format!(
                "two replicas panicked executing instance {}: a bug; execution stops there",
                instance.0
            ));
        }
        if let Some(instance) = self.halted() {
            return Some(format!("executing instance {} panicked on this replica", instance.0));
        }
        if let Some((remembering, voters)) = self.forgotten().filter(|_| self.master().is_none()) {
            let only = format!(
                "only {remembering} of {voters} voters remember the cell's state: it cannot go on by itself"
            );
            let Some(survivor) = self.survivor() else { return Some(only) };
            return Some(format!(
                "{only}; `kumo cell recover --from {survivor} --accept-data-loss` would go on from one that does"
            ));
        }
        let forming = self.forming.as_ref()?;
        let missing: Vec<String> = forming.missing().map(|member| member.to_string()).collect();
        Some(format!("no cell yet: waiting for {}", missing.join(", ")))
    }
}
