//! [`Reign`]: what a manager keeps while it is the cell's master: its term, the leases it granted, whom it put up as
//! lost, and what it put up for agreement.

use super::state::Manager;
use crate::cluster::authorities;
use crate::{
    Cluster, Command, GatewayId, LEASE_MICROS_MAX, Lead, ManagerEffect, ManagerNote, ManagerSettings,
    MemberState, Message, Mutation, Objection, ServerId, Space, SpaceNumber, Table,
};
use bytes::Bytes;
use kumo_paxos::{CellId, Time};
use kumo_wire::Wire;
use std::collections::{BTreeMap, BTreeSet};

/// One mastership. It acts in a term of its own, which begins with an entry executed after the mastership did.
pub(super) struct Reign {
    /// The term that was current when we last looked, before our own.
    before: u64,
    own: Option<Term>,
    /// When we asked for a term of our own, after which.
    claimed: Option<(u64, Time)>,
    /// The space seen as arcs, for as long as it is this space.
    rings: Option<Rings>,
}

/// What follows from a space, and is worth computing once.
pub(super) struct Rings {
    number: SpaceNumber,
    pub table: Table,
    /// Who orders an arc.
    pub primaries: BTreeSet<ServerId>,
    /// A job runs, and only copies can stand between it and the switch.
    pub may_switch: bool,
    /// A job runs that cannot end.
    pub hopeless: bool,
    /// Who was lost as the last owner of one.
    pub authorities: BTreeSet<ServerId>,
}

/// Our term, and what was promised and put up in it. Nothing here outlives it: a later term is obeyed instead, and begins by
/// waiting.
pub(super) struct Term {
    pub number: u64,
    /// When we saw it executed.
    pub since: Time,
    /// All leases of earlier masters have run out by then.
    pub faults_from: Time,
    /// Until when each server may believe that it has a lease.
    leases: BTreeMap<ServerId, Time>,
    /// Put up as lost, in this order, and acting until that is executed. Nothing saves them: the command may be under
    /// way, so they get no lease. It is void in any later space, where such a life may be a member anew.
    pub doomed: Vec<ServerId>,
    /// Since when each lost server is one of those that leave an arc without anyone.
    pub stuck_since: BTreeMap<ServerId, Time>,
    proposed: BTreeMap<Topic, (Bytes, Time)>,
    tickets: u64,
    /// The ticket by which auto-replace gives up the job of that space: the same however often it is put up, so that it
    /// ends no other.
    pub cancelled: Option<(SpaceNumber, u64)>,
    /// What auto-replace would do, and since when.
    pub quiet: Option<(super::orders::Wish, Time)>,
    /// Since when auto-replace has had something to do.
    pub restless_since: Option<Time>,
    /// It was said that auto-replace makes no first ring of stores that differ.
    pub differ_noted: bool,
    /// Those of which it was said that auto-replace leaves them to an operator.
    pub left_out: BTreeMap<ServerId, ManagerNote>,
    /// What auto-replace put up last and has not had the answer to.
    pub auto: Option<u64>,
    /// Why that was void before. There are only so many reasons.
    pub objections: Vec<Objection>,
    /// Since when there has been a server, while the space is in doubt.
    pub somebody_since: Option<Time>,
    pub expired_at: Option<Time>,
    pub gateway_heard: BTreeMap<GatewayId, Time>,
    pub voters: super::recruit::Voters,
}

/// What was put up is about this; one command a topic is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    Fault,
    Return,
    Switch,
    Cleared,
    Expire,
    Auto,
    Cancel,
    Doubt,
    Witness,
    Recruit,
    Register(u128),
    Order(u64),
}

impl Reign {
    pub fn new(cluster: &Cluster) -> Reign {
        Reign { before: cluster.term(), own: None, claimed: None, rings: None }
    }

    pub fn term(&self) -> Option<u64> {
        self.own.as_ref().map(|term| term.number)
    }

    /// When our term began here.
    pub fn since(&self) -> Option<Time> {
        self.own.as_ref().map(|term| term.since)
    }

    pub fn own_ref(&self) -> Option<&Term> {
        self.own.as_ref()
    }

    pub fn own(&mut self) -> Option<&mut Term> {
        self.own.as_mut()
    }

    /// Another term was executed: ours begins, or is over. Returns whether anything changed.
    pub fn look(&mut self, now: Time, cluster: &Cluster, settings: &ManagerSettings) -> bool {
        if self.term().unwrap_or(self.before) == cluster.term() {
            return false;
        }
        let ours = self.own.is_none() && cluster.leader() == settings.life;
        self.before = cluster.term();
        self.own = ours.then(|| Term::new(now, cluster, settings));
        true
    }

    pub fn rings(&mut self, cluster: &Cluster) -> &Rings {
        let current = self.rings.take().filter(|rings| rings.number == cluster.space().number);
        self.rings.insert(current.unwrap_or_else(|| Rings::new(cluster)))
    }
}

impl Rings {
    fn new(cluster: &Cluster) -> Rings {
        let space = cluster.space();
        let table = Table::new(space);
        let primaries = table.arcs().iter().filter_map(|arc| arc.primary());
        Rings {
            number: space.number,
            may_switch: cluster.may_switch().is_ok(),
            hopeless: cluster.is_hopeless(),
            primaries: primaries.map(|index| space.server(index)).collect(),
            authorities: authorities(space, &table).into_iter().map(|index| space.server(index)).collect(),
            table,
        }
    }
}

impl Term {
    fn new(now: Time, cluster: &Cluster, settings: &ManagerSettings) -> Term {
        let wait = match settings.broken.is(Mutation::NewMasterDoesNotWait) {
            true => 0,
            false => outlasting(cluster.lease_micros()),
        };
        Term {
            number: cluster.term(),
            since: now,
            faults_from: now.plus_micros(wait),
            leases: BTreeMap::new(),
            doomed: Vec::new(),
            stuck_since: BTreeMap::new(),
            proposed: BTreeMap::new(),
            tickets: 0,
            cancelled: None,
            quiet: None,
            restless_since: None,
            differ_noted: false,
            left_out: BTreeMap::new(),
            auto: None,
            objections: Vec::new(),
            somebody_since: None,
            expired_at: None,
            gateway_heard: BTreeMap::new(),
            voters: super::recruit::Voters::default(),
        }
    }

    /// No lease of this server, by whomever it was granted, is good any more.
    pub fn lease_is_out(&self, now: Time, server: &ServerId) -> bool {
        now >= self.faults_from && self.leases.get(server).is_none_or(|&until| now >= until)
    }

    /// From now on these are as good as lost, after those that were condemned before.
    pub fn condemn(&mut self, servers: impl IntoIterator<Item = ServerId>) {
        for server in servers {
            if !self.doomed.contains(&server) {
                self.doomed.push(server);
            }
        }
    }

    pub fn is_condemned(&self, server: &ServerId) -> bool {
        self.doomed.contains(server)
    }

    /// Drops what time and executed entries have settled.
    pub fn tidy(&mut self, now: Time, cluster: &Cluster) {
        self.doomed.retain(|&server| acts(cluster.space(), server));
        self.stuck_since.retain(|&server, _| acts(cluster.space(), server));
        // Who is out of the space may come back into it within its lease.
        self.leases.retain(|_, until| *until > now);
        self.gateway_heard.retain(|&gateway, _| cluster.is_live(gateway));
        // What was put up longer ago may be put up again anyway, and its asker may be gone.
        self.proposed.retain(|_, (_, at)| now.since(*at) < AGAIN_MICROS);
    }

    /// Puts a command up, again only after a while: it may be under way.
    pub fn propose(&mut self, now: Time, topic: Topic, command: &Command, effects: &mut Vec<ManagerEffect>) {
        let bytes = command.to_bytes();
        if let Some((same, at)) = self.proposed.get(&topic)
            && *same == bytes
            && now.since(*at) < AGAIN_MICROS
        {
            return;
        }
        self.proposed.insert(topic, (bytes.clone(), now));
        effects.push(ManagerEffect::Propose(bytes));
    }

    /// It was executed, or is not wanted any more.
    pub fn forget(&mut self, topic: Topic) {
        self.proposed.remove(&topic);
    }

    /// Auto-replace has wanted the same for so long.
    pub fn is_quiet(&mut self, now: Time, delay_micros: u64, wish: Option<&super::orders::Wish>) -> bool {
        let before = self.quiet.take().filter(|(before, _)| Some(before) == wish);
        self.quiet = before.or_else(|| Some((wish?.clone(), now)));
        self.quiet.as_ref().is_some_and(|(_, since)| now.since(*since) >= delay_micros)
    }

    pub fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}

impl Manager {
    /// Asks for a term until there is one.
    pub(super) fn claim(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let Some(reign) = &mut self.reign else { return };
        if let Some(term) = &mut reign.own {
            term.tidy(now, cluster);
        }
        if reign.own.is_some() || self.cell.cluster == CellId::default() {
            return;
        }
        let lead = Lead {
            after: cluster.term(),
            life: self.settings.life,
            cluster: self.cell.cluster,
            lease_micros: lease_micros(&self.settings),
            auto_replace: self.settings.auto_replace,
        };
        if reign.claimed.is_some_and(|(after, at)| after == lead.after && now.since(at) < AGAIN_MICROS) {
            return;
        }
        reign.claimed = Some((lead.after, now));
        effects.push(ManagerEffect::Propose(Command::Lead(lead).to_bytes()));
    }

    /// A lease for a server that acts in the current space, if we surely lead. It counts from the server's own
    /// sending; we hold back its fault until it has surely run out.
    pub(super) fn lease(
        &mut self,
        now: Time,
        server: ServerId,
        sent: Time,
        cluster: &Cluster,
    ) -> Option<Message> {
        let micros = lease_micros(&self.settings);
        let broken = self.settings.broken;
        let leads = self.cell.lease_end.is_some_and(|end| now < end);
        if !leads || cluster.doubt().is_some() || !acts(cluster.space(), server) {
            return None;
        }
        let term = self.reign.as_mut()?.own()?;
        if term.is_condemned(&server) && !broken.is(Mutation::LeaseWhileCondemned) {
            return None;
        }
        let held_back = if broken.is(Mutation::FaultBeforeLeaseEnd) { 0 } else { outlasting(micros) };
        let until = term.leases.entry(server).or_insert(now);
        *until = (*until).max(now.plus_micros(held_back));
        let unix_millis = self.cell_time(now, cluster).0;
        Some(Message::Lease { sent, micros, unix_millis })
    }
}

/// The member is this very life, and not lost.
pub(super) fn acts(space: &Space, server: ServerId) -> bool {
    space
        .index_of(server)
        .is_some_and(|index| !matches!(space.member(index).state, MemberState::Fault { .. }))
}

fn lease_micros(settings: &ManagerSettings) -> u64 {
    settings.lease_micros.min(LEASE_MICROS_MAX)
}

/// A time here in which any other clock has surely counted `micros`. Both may be wrong by a tenth, ours fast and the
/// other slow: that makes 11 ninths of it, and a quarter more is above that.
fn outlasting(micros: u64) -> u64 {
    micros + micros / 4 + 1
}

/// A command that was not executed for so long is put up again.
const AGAIN_MICROS: u64 = 1_000_000;
