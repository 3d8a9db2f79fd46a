//! [`Cluster`]: the whole state, and the way of a command, a query and a snapshot through it.

use super::change::Changed;
use super::command::{Command, Lead, Objection, Order, Query};
use super::doubt::Doubt;
use super::wishes::Errand;
use crate::{Broken, Clock, GatewayId, MEMBERS_MAX, MemberState, Mutation, ServerId, Space, SpaceNumber};
use bytes::Bytes;
use kumo_paxos::{CHUNK_BYTES, CellId, Instance};
use kumo_session::{Application, Entry, GENERATION_SHIFT, Outcome, SessionId, UnixMillis, numbered};
use kumo_wire::{Malformed, Reader, Wire, wire_struct};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Gateways and native clients alive at once. Those below the floor are listed in every space, which must stay
/// a small part of a frame.
pub const GATEWAYS_MAX: usize = 16_384;

/// The longest lease a master may grant: every new master waits that long before its first fault.
pub const LEASE_MICROS_MAX: u64 = 60_000_000;

/// Voters recruited at once: those that are wanted, those that take the places of lost ones, and those on their way out.
pub const RECRUITED_MAX: usize = 8;

/// What the managers agree on: the hash space, whose turn it is to manage it, and who talks to it.
/// Changed by executing the log and by nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub(super) space: Space,
    /// Counts masters; what one of them decided is void in the next one's.
    term: u64,
    /// The process that leads in this term.
    leader: u128,
    /// The cell's, as of the entry executed last.
    generation: u32,
    /// The longest lease that a master of any term may have granted.
    lease_micros: u64,
    pub(super) auto_replace: bool,
    /// Arcs without an acting owner do not hold up the replace under way.
    pub(super) accept_loss: bool,
    pub(super) attach_wanted: BTreeSet<SocketAddr>,
    pub(super) detach_wanted: BTreeSet<SocketAddr>,
    /// What the replace under way has of those.
    pub(super) errand: Errand,
    /// Lives that acted when operators ordered that they be taken out, the last one last, one an address: auto-replace
    /// does not bring them in again, nor later lives of their stores. Beyond as many as there can be members the first
    /// ones are forgotten.
    pub(super) taken_out: Vec<ServerId>,
    /// Faults logged so far: the next one's order.
    pub(super) faults: u64,
    /// Live gateways, and the wish that each id was issued for.
    pub(super) gateways: BTreeMap<GatewayId, u128>,
    /// The same by wish.
    pub(super) nonces: BTreeMap<u128, GatewayId>,
    /// The id issued last.
    pub(super) gateway_last: GatewayId,
    /// Since a recovery, until it is known that it lost no space that a server knows.
    pub(super) doubt: Option<Doubt>,
    /// The space whose number began a generation, by a rebuild or a recovery, until it is known that all who act keep it, or
    /// a later one.
    pub(super) risen: Option<SpaceNumber>,
    /// Replicas in servers' processes, with the servers: all other members of the cell are managers.
    recruited: BTreeMap<SocketAddr, SocketAddr>,
    /// Outcomes of this term's last orders by ticket, for the master that put them up.
    answers: BTreeMap<u64, Result<(), Objection>>,
    /// Tickets up to this one were answered.
    ticket_floor: u64,
    /// Of the entry executed last.
    time: UnixMillis,
    pub(super) broken: Broken,
}

impl Cluster {
    /// Nobody leads, nobody is attached.
    pub fn new() -> Cluster {
        Cluster::with_broken(Broken::default())
    }

    /// For the model checker and the simulator: with one rule left out.
    pub fn with_broken(broken: Broken) -> Cluster {
        Cluster {
            space: Space::empty(CellId::default(), SpaceNumber(0)),
            term: 0,
            leader: 0,
            generation: 0,
            lease_micros: 0,
            auto_replace: false,
            accept_loss: false,
            attach_wanted: BTreeSet::new(),
            detach_wanted: BTreeSet::new(),
            errand: Errand::default(),
            taken_out: Vec::new(),
            faults: 0,
            gateways: BTreeMap::new(),
            nonces: BTreeMap::new(),
            gateway_last: GatewayId(0),
            doubt: None,
            risen: None,
            recruited: BTreeMap::new(),
            answers: BTreeMap::new(),
            ticket_floor: 0,
            time: UnixMillis(0),
            broken,
        }
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    pub fn term(&self) -> u64 {
        self.term
    }

    /// The manager's process that leads in this term, as it named itself.
    pub fn leader(&self) -> u128 {
        self.leader
    }

    /// The longest lease that any master so far may have granted.
    pub fn lease_micros(&self) -> u64 {
        self.lease_micros
    }

    /// The replace under way gives up the keys whose servers were all lost when it was ordered.
    pub fn loss_accepted(&self) -> bool {
        self.accept_loss
    }

    pub fn auto_replace(&self) -> bool {
        self.auto_replace
    }

    pub fn attach_wanted(&self) -> &BTreeSet<SocketAddr> {
        &self.attach_wanted
    }

    pub fn detach_wanted(&self) -> &BTreeSet<SocketAddr> {
        &self.detach_wanted
    }

    /// Lives that acted when an operator ordered that they be taken out, and that were not attached since.
    pub fn taken_out(&self) -> &[ServerId] {
        &self.taken_out
    }

    /// Live gateways.
    pub fn gateways(&self) -> impl ExactSizeIterator<Item = GatewayId> + '_ {
        self.gateways.keys().copied()
    }

    pub fn is_live(&self, gateway: GatewayId) -> bool {
        self.gateways.contains_key(&gateway)
    }

    /// The id that was issued for this wish.
    pub fn gateway_for(&self, nonce: u128) -> Option<GatewayId> {
        self.nonces.get(&nonce).copied()
    }

    /// Where servers run replicas of the cell, or are to, and which servers.
    pub fn recruited(&self) -> &BTreeMap<SocketAddr, SocketAddr> {
        &self.recruited
    }

    /// Whether servers may know of a space that a recovery of the cell has lost. Nobody is handed a space until then.
    pub fn doubt(&self) -> Option<&Doubt> {
        self.doubt.as_ref()
    }

    /// The space that began a generation of numbers, if servers that act may not keep it yet. Were all managers lost now,
    /// a rebuild might begin where this generation did, and hand out its numbers again: so only those who act are told of
    /// a space until then, and gateways get no ids.
    pub fn risen(&self) -> Option<SpaceNumber> {
        self.risen.filter(|_| !self.broken.is(Mutation::RisenTold))
    }

    /// What became of the order with that ticket in this term.
    pub fn answer(&self, ticket: u64) -> Option<Result<(), Objection>> {
        self.answers.get(&ticket).copied()
    }

    /// Of the last entry.
    pub fn time(&self) -> UnixMillis {
        self.time
    }

    fn execute(&mut self, entry: Entry, command: Command) -> Result<(), Objection> {
        if entry.generation > self.generation {
            let from = self.space.number;
            self.rise(entry);
            self.begin_doubt(from);
        }
        match command {
            Command::Lead(lead) => self.lead(entry, lead),
            Command::Fault { term, number, servers } => {
                self.in_term(term)?;
                self.at(number)?;
                self.certain()?;
                self.fault(entry, &servers)
            }
            Command::Return { term, number, servers } => {
                self.in_term(term)?;
                self.at(number)?;
                self.certain()?;
                self.bring_back(entry, &servers)
            }
            Command::Switch { term, number } => {
                self.in_term(term)?;
                self.at(number)?;
                self.certain()?;
                self.switch(entry)
            }
            Command::Cleared { term, number } => {
                self.in_term(term)?;
                self.at(number)?;
                self.certain()?;
                self.cleared(entry)
            }
            Command::Register { nonce } => self.register(nonce),
            Command::ExpireGateways { term, gateways } => {
                self.in_term(term)?;
                self.certain()?;
                self.expire_gateways(entry, &gateways)
            }
            Command::Order { term, ticket, order } => {
                self.in_term(term)?;
                if ticket <= self.ticket_floor || self.answers.contains_key(&ticket) {
                    return Err(Objection::Repeated);
                }
                let done = self.order(entry, order);
                self.remember(ticket, done);
                done
            }
            Command::Recruit { term, voter, server } => {
                self.in_term(term)?;
                self.recruit(voter, server)
            }
            Command::Dismiss { term, voter } => {
                self.in_term(term)?;
                self.recruited.remove(&voter).map(|_| ()).ok_or(Objection::Nothing)
            }
            Command::Remembered { term, number } => {
                self.in_term(term)?;
                self.at(number)?;
                self.remembered()
            }
            Command::Forgotten { term, number, server, knows } => {
                self.in_term(term)?;
                self.at(number)?;
                self.forgotten(server, knows)
            }
            Command::Witnessed { term, number } => {
                self.in_term(term)?;
                self.at(number)?;
                self.risen.take().map(|_| ()).ok_or(Objection::Nothing)
            }
        }
    }

    /// What would become of an order if it were executed next.
    pub fn rehearse(&self, order: Order) -> Result<(), Objection> {
        let (generation, time) = (self.generation, self.time);
        let entry = Entry { instance: Instance(0), generation, time, session: SessionId::HOUSE, number: 0 };
        self.clone().order(entry, order)
    }

    fn recruit(&mut self, voter: SocketAddr, server: SocketAddr) -> Result<(), Objection> {
        if self.recruited.contains_key(&voter) {
            return Err(Objection::Nothing);
        }
        if self.recruited.len() >= RECRUITED_MAX {
            return Err(Objection::TooManyRecruits);
        }
        self.recruited.insert(voter, server);
        Ok(())
    }

    fn order(&mut self, entry: Entry, order: Order) -> Result<(), Objection> {
        if !matches!(order, Order::AutoReplace { .. }) {
            self.certain()?;
        }
        match order {
            Order::Want { attach, detach } => self.want(attach, detach),
            Order::Replace { number, above, attach, detach, accept_loss, author } => {
                self.at(number)?;
                self.replace(entry, above, &attach, &detach, accept_loss, author)
            }
            Order::FullReplace { number } => {
                self.at(number)?;
                self.full_replace(entry)
            }
            Order::Cancel { author } => self.cancel_job(entry, author),
            Order::Pause => self.change_job(entry, |job| job.paused = true),
            Order::Resume => self.change_job(entry, |job| job.paused = false),
            Order::Rate { bytes } => self.change_job(entry, |job| job.rate = bytes),
            Order::AutoReplace { on } => {
                self.auto_replace = on;
                Ok(())
            }
            Order::Rebuild { space } => self.rebuild(entry, space),
        }
    }

    /// A term begins, the first one with a space of its own.
    fn lead(&mut self, entry: Entry, lead: Lead) -> Result<(), Objection> {
        if lead.after != self.term && !self.broken.is(Mutation::StaleTermAccepted) {
            return Err(Objection::StaleTerm);
        }
        if lead.lease_micros > LEASE_MICROS_MAX {
            return Err(Objection::Malformed);
        }
        if self.term == 0 {
            self.space.cluster = lead.cluster;
            self.auto_replace = lead.auto_replace;
        }
        self.term += 1;
        self.leader = lead.life;
        self.lease_micros = self.lease_micros.max(lead.lease_micros);
        self.answers.clear();
        self.ticket_floor = 0;
        if self.term == 1 {
            self.rise(entry);
        }
        Ok(())
    }

    /// A new space, as it is: in a new generation of the cell servers may have heard of spaces that the recovery lost,
    /// and this one leads them all. Its number and those of gateways rise by as many generations as the cell did, for
    /// since a rebuild they may be ahead of it.
    fn rise(&mut self, entry: Entry) {
        let risen = u64::from(entry.generation.saturating_sub(self.generation)) << GENERATION_SHIFT;
        let (number, clock) = self.next(entry);
        self.space.number = SpaceNumber(number.0.max((self.space.number.0 + 1).saturating_add(risen)));
        self.space.clock = clock;
        self.gateway_last.0 = self.gateway_last.0.saturating_add(risen);
        self.generation = entry.generation;
    }

    /// The next space's number and clock. The number grows by one, or into the cell's generation.
    pub(super) fn next(&self, entry: Entry) -> (SpaceNumber, Clock) {
        let count = self.space.number.0 & ((1 << GENERATION_SHIFT) - 1);
        let number = (self.space.number.0 + 1).max(numbered(entry.generation, count + 1));
        let seconds = u32::try_from(entry.time.0 / 1000).unwrap_or(u32::MAX);
        (SpaceNumber(number), Clock::after(self.space.clock, seconds))
    }

    fn in_term(&self, term: u64) -> Result<(), Objection> {
        if term != self.term && !self.broken.is(Mutation::StaleTermAccepted) {
            return Err(Objection::StaleTerm);
        }
        Ok(())
    }

    fn at(&self, number: SpaceNumber) -> Result<(), Objection> {
        if number != self.space.number {
            return Err(Objection::StaleSpace);
        }
        Ok(())
    }

    fn remember(&mut self, ticket: u64, done: Result<(), Objection>) {
        self.answers.insert(ticket, done);
        if self.answers.len() > ANSWERS_MAX {
            let (oldest, _) = self.answers.pop_first().expect("there are more than none");
            self.ticket_floor = oldest;
        }
    }

    /// What the code relies on, and every entry keeps.
    pub(super) fn broken_rule(&self) -> Option<&'static str> {
        let space = &self.space;
        let acts = |&index: &u16| !matches!(space.member(index).state, MemberState::Fault { .. });
        let in_a_ring = |index: u16| {
            [&space.rhs, &space.whs, &space.earlier].iter().any(|ring| ring.binary_search(&index).is_ok())
        };
        let order = |state: MemberState| match state {
            MemberState::Active => None,
            MemberState::Fault { order } | MemberState::Returned { order } => Some(order),
        };
        let orders: Vec<u64> = space.members.iter().filter_map(|member| order(member.state)).collect();
        let listed = self.gateways.range(..space.gateway_floor).map(|(&id, _)| id);
        let rules = [
            (space.well_formed(), "the space is well formed"),
            ((0..space.members.len() as u16).all(in_a_ring), "every member is in a ring"),
            (space.old.iter().all(|old| space.earlier.binary_search(old).is_ok()), "the old are of earlier"),
            (space.old.iter().all(acts), "the old act"),
            (
                space.old.is_empty() == space.earlier.is_empty(),
                "there is an earlier ring while it has old members",
            ),
            (space.job.is_none() || space.old.is_empty(), "a job begins when nobody is old"),
            (space.job.is_some() || space.rhs == space.whs, "the rings differ only while a job runs"),
            (space.job.is_none_or(|job| !job.full) || space.rhs == space.whs, "a full replace moves nothing"),
            (
                space.whs_since <= space.number && space.id_floor <= space.number,
                "marks are not in the future",
            ),
            (orders.iter().all(|&order| order <= self.faults), "orders were handed out"),
            (orders.iter().collect::<BTreeSet<_>>().len() == orders.len(), "no two faults share an order"),
            (space.gateways.iter().copied().eq(listed), "live gateways below the floor are listed"),
            (self.gateways.keys().all(|&id| id <= self.gateway_last), "gateway ids were issued"),
            (space.gateway_floor.0 <= self.gateway_last.0 + 1, "only issued ids expire"),
            (self.gateways.len() <= GATEWAYS_MAX, "gateways are limited"),
            (self.nonces.len() == self.gateways.len(), "each live gateway has its wish"),
            (self.attach_wanted.is_disjoint(&self.detach_wanted), "nobody is wanted in and out"),
            (space.job.is_some() || self.errand == Errand::default(), "an errand is a job's"),
            (self.attach_wanted.union(&self.errand.attach).count() <= MEMBERS_MAX, "wishes are limited"),
            (self.taken_out.len() <= MEMBERS_MAX, "those taken out are limited"),
            (self.doubt.is_none_or(|doubt| doubt.upto == space.number), "no space follows one in doubt"),
            (self.risen.is_none_or(|risen| risen <= space.number), "what rose is not in the future"),
            (self.recruited.len() <= RECRUITED_MAX, "recruited voters are limited"),
        ];
        rules.into_iter().find(|(kept, _)| !kept).map(|(_, rule)| rule)
    }
}

impl Application for Cluster {
    type Parts = std::vec::IntoIter<Bytes>;

    fn apply(&mut self, entry: Entry, command: Bytes, outcome: &mut Outcome) {
        let before = Changed::before(&self.space);
        self.time = self.time.max(entry.time);
        let command = Command::from_bytes(command).map_err(|_| Objection::Malformed);
        let done = command.and_then(|command| self.execute(entry, command));
        outcome.reply = Some(done.err().to_bytes());
        before.check(&self.space);
        assert_eq!(self.broken_rule(), None);
    }

    /// Nothing is ever parked.
    fn cancel(&mut self, _entry: Entry, _target: u64, _outcome: &mut Outcome) -> bool {
        false
    }

    /// Sessions own nothing here.
    fn session_ended(&mut self, _entry: Entry, _outcome: &mut Outcome) {}

    /// An `Option` of the answer; none: the query is not understood.
    fn read(&self, _session: SessionId, query: Bytes) -> Bytes {
        match Query::from_bytes(query) {
            Ok(Query::Space) => Some(self.space.clone()).to_bytes(),
            Err(_) => None::<Space>.to_bytes(),
        }
    }

    /// The state is small, and written at once.
    fn snapshot(&self) -> Self::Parts {
        let whole = Kept::of(self).to_bytes();
        let parts: Vec<Bytes> = (0..whole.len())
            .step_by(CHUNK_BYTES)
            .map(|start| whole.slice(start..whole.len().min(start + CHUNK_BYTES)))
            .collect();
        parts.into_iter()
    }

    fn restore(parts: Vec<Bytes>) -> Result<Cluster, Malformed> {
        let whole = Bytes::from(parts.concat());
        // Of another version nothing else can be read.
        if u32::decode(&mut Reader::new(whole.clone()))? != SNAPSHOT_VERSION {
            return Err(Malformed::Rule("the snapshot's version is known"));
        }
        Kept::from_bytes(whole)?.restored()
    }
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster::new()
    }
}

/// A snapshot: the state but for what follows from the rest.
struct Kept {
    version: u32,
    space: Space,
    term: u64,
    leader: u128,
    generation: u32,
    lease_micros: u64,
    auto_replace: bool,
    accept_loss: bool,
    attach_wanted: Vec<SocketAddr>,
    detach_wanted: Vec<SocketAddr>,
    errand_attach: Vec<SocketAddr>,
    errand_detach: Vec<SocketAddr>,
    errand_out: Vec<SocketAddr>,
    taken_out: Vec<ServerId>,
    faults: u64,
    gateways: Vec<(GatewayId, u128)>,
    gateway_last: GatewayId,
    doubt: Option<Doubt>,
    risen: Option<SpaceNumber>,
    recruited: Vec<(SocketAddr, SocketAddr)>,
    answers: Vec<(u64, Option<Objection>)>,
    ticket_floor: u64,
    time: UnixMillis,
}

wire_struct!(Kept {
    version,
    space,
    term,
    leader,
    generation,
    lease_micros,
    auto_replace,
    accept_loss,
    attach_wanted,
    detach_wanted,
    errand_attach,
    errand_detach,
    errand_out,
    taken_out,
    faults,
    gateways,
    gateway_last,
    doubt,
    risen,
    recruited,
    answers,
    ticket_floor,
    time,
});

impl Kept {
    fn of(cluster: &Cluster) -> Kept {
        Kept {
            version: SNAPSHOT_VERSION,
            space: cluster.space.clone(),
            term: cluster.term,
            leader: cluster.leader,
            generation: cluster.generation,
            lease_micros: cluster.lease_micros,
            auto_replace: cluster.auto_replace,
            accept_loss: cluster.accept_loss,
            attach_wanted: cluster.attach_wanted.iter().copied().collect(),
            detach_wanted: cluster.detach_wanted.iter().copied().collect(),
            errand_attach: cluster.errand.attach.iter().copied().collect(),
            errand_detach: cluster.errand.detach.iter().copied().collect(),
            errand_out: cluster.errand.out.iter().copied().collect(),
            taken_out: cluster.taken_out.clone(),
            faults: cluster.faults,
            gateways: cluster.gateways.iter().map(|(&id, &nonce)| (id, nonce)).collect(),
            gateway_last: cluster.gateway_last,
            doubt: cluster.doubt,
            risen: cluster.risen,
            recruited: cluster.recruited.iter().map(|(&voter, &server)| (voter, server)).collect(),
            answers: cluster.answers.iter().map(|(&ticket, done)| (ticket, done.err())).collect(),
            ticket_floor: cluster.ticket_floor,
            time: cluster.time,
        }
    }

    fn restored(self) -> Result<Cluster, Malformed> {
        if !self.space.well_formed() {
            return Err(Malformed::Rule("the space is well formed"));
        }
        let cluster = Cluster {
            space: self.space,
            term: self.term,
            leader: self.leader,
            generation: self.generation,
            lease_micros: self.lease_micros,
            auto_replace: self.auto_replace,
            accept_loss: self.accept_loss,
            attach_wanted: self.attach_wanted.into_iter().collect(),
            detach_wanted: self.detach_wanted.into_iter().collect(),
            errand: Errand {
                attach: self.errand_attach.into_iter().collect(),
                detach: self.errand_detach.into_iter().collect(),
                out: self.errand_out.into_iter().collect(),
            },
            taken_out: self.taken_out,
            faults: self.faults,
            nonces: self.gateways.iter().map(|&(id, nonce)| (nonce, id)).collect(),
            gateways: self.gateways.into_iter().collect(),
            gateway_last: self.gateway_last,
            doubt: self.doubt,
            risen: self.risen,
            recruited: self.recruited.into_iter().collect(),
            answers: self
                .answers
                .into_iter()
                .map(|(ticket, objection)| (ticket, objection.map_or(Ok(()), Err)))
                .collect(),
            ticket_floor: self.ticket_floor,
            time: self.time,
            broken: Broken::default(),
        };
        cluster.broken_rule().map_or(Ok(cluster), |rule| Err(Malformed::Rule(rule)))
    }
}

const SNAPSHOT_VERSION: u32 = 4;

/// Outcomes kept for the master. More than it has orders under way at once.
const ANSWERS_MAX: usize = 256;
