//! How one space follows another: the rules of fault, return, replace, switch and rebuild.

use super::authority::{all_led, authorities, leaderless};
use super::command::{Author, Objection};
use super::crossing::{is_hopeless, may_go_over};
use super::draft::Draft;
use super::state::{Cluster, GATEWAYS_MAX};
use super::wishes::Errand;
use crate::{
    GatewayId, Incarnation, Job, MEMBERS_MAX, MemberState, Mutation, ServerId, Space, SpaceNumber, Table,
};
use kumo_session::{Entry, GENERATION_SHIFT, numbered};
use std::collections::BTreeSet;
use std::net::SocketAddr;

impl Cluster {
    /// The lives that are lost keep their places, and are skipped. Who had come back to lead what it was the last
    /// owner of keeps its order: of anything else it has only what came since, and must not outrank who was lost
    /// there after it.
    pub(super) fn fault(&mut self, entry: Entry, servers: &[ServerId]) -> Result<(), Objection> {
        let accepted = self.accept_loss.then(|| leaderless(&Table::new(&self.space)));
        let mut draft = Draft::of(&self.space);
        let mut faults = self.faults;
        let orders = draft.members.values().map(|&state| order(state)).filter(|&order| order > 0);
        let mut least = orders.min().unwrap_or(FAULTS_BACKWARDS);
        for server in servers {
            let Some(state) = draft.members.get_mut(server) else { continue };
            *state = match *state {
                MemberState::Active if self.broken.is(Mutation::FirstLostLeads) => {
                    (faults, least) = (FAULTS_BACKWARDS, least - 1);
                    MemberState::Fault { order: least }
                }
                MemberState::Active => {
                    faults += 1;
                    MemberState::Fault { order: faults }
                }
                MemberState::Returned { order } | MemberState::Fault { order } => {
                    MemberState::Fault { order }
                }
            };
            draft.old.remove(server);
        }
        self.faults = faults;
        self.make_if_changed(entry, draft)?;
        // What was accepted is the loss that the operator saw. A fault moves no end of an arc.
        self.accept_loss = accepted.is_some_and(|arcs| arcs == leaderless(&Table::new(&self.space)));
        Ok(())
    }

    /// All or none: the list was made from one space. Who was to be taken out as lost is not lost any more: the return is
    /// the log's attach of that address, and takes back a wish from before it as any attach does.
    pub(super) fn bring_back(
        &mut self,
        entry: Entry,
        servers: &[(ServerId, Incarnation)],
    ) -> Result<(), Objection> {
        let table = Table::new(&self.space);
        let wanted: BTreeSet<ServerId> =
            authorities(&self.space, &table).into_iter().map(|index| self.space.server(index)).collect();
        let mut draft = Draft::of(&self.space);
        for &(before, incarnation) in servers {
            let after = ServerId { address: before.address, incarnation };
            let Some(&MemberState::Fault { order }) = draft.members.get(&before) else {
                return Err(Objection::NoSuchServer);
            };
            if !wanted.contains(&before) || !draft.may_return(before, after) {
                return Err(Objection::Nothing);
            }
            draft.whs_changed |= draft.whs.contains(&before);
            draft.rename(before, after, MemberState::Returned { order });
            draft.ids_lost = true;
        }
        self.make_if_changed(entry, draft)?;
        for (before, _) in servers {
            self.detach_wanted.remove(&before.address);
            self.errand.detach.remove(&before.address);
        }
        Ok(())
    }

    /// A new ring to write to; or, when there was none, the first one: nothing can be stored yet, and nothing has
    /// to be copied.
    pub(super) fn replace(
        &mut self,
        entry: Entry,
        above: SpaceNumber,
        attach: &[ServerId],
        detach: &[SocketAddr],
        accept_loss: bool,
        author: Author,
    ) -> Result<(), Objection> {
        self.may_begin()?;
        if !accept_loss {
            self.witnessed()?;
        }
        if above.0 >= FOREIGN_NUMBERS_MAX {
            return Err(Objection::BadSpace);
        }
        let first = self.space.rhs.is_empty();
        let draft = self.rearranged(attach, detach, author)?;
        let returned = draft.whs.iter().any(|id| matches!(draft.members[id], MemberState::Returned { .. }));
        if draft.whs == draft.rhs && !returned {
            return Err(Objection::Nothing);
        }
        let mut draft = Draft { whs_changed: true, job: Some(NEW_JOB), ..draft };
        if first {
            draft.rhs = draft.whs.clone();
            draft.job = None;
        } else {
            may_go_over(&draft, accept_loss)?;
        }
        let errand = self.errand(&draft, attach, detach, author);
        self.take_along(&errand, attach);
        self.errand = if first { Errand::default() } else { errand };
        self.accept_loss = accept_loss && !first;
        self.space.number = self.space.number.max(above);
        if accept_loss && self.risen().is_some() {
            // A rebuild might begin from what those who are given up know, and from the numbers that they do not.
            let unheard = unheard(self.leader());
            self.space.number.0 = self.space.number.0.saturating_add(unheard);
            self.gateway_last.0 = self.gateway_last.0.saturating_add(unheard);
        }
        self.make(entry, draft);
        Ok(())
    }

    /// The space with another ring to write to: without who leaves, and with new lives in the place of lost ones.
    fn rearranged(
        &self,
        attach: &[ServerId],
        detach: &[SocketAddr],
        author: Author,
    ) -> Result<Draft, Objection> {
        let mut draft = Draft::of(&self.space);
        for &address in detach {
            draft.writer_at(address).ok_or(Objection::NoSuchServer)?;
        }
        let wanted_out =
            |address: &SocketAddr| author == Author::Operator && self.detach_wanted.contains(address);
        draft.whs.retain(|server| !detach.contains(&server.address) && !wanted_out(&server.address));
        for &server in attach {
            match draft.writer_at(server.address) {
                // Also someone named twice, and a member that is there in this very life.
                Some(there) if draft.acts(&there) && there != server => return Err(Objection::StillActing),
                Some(there) if there == server => return Err(Objection::AddressTwice),
                Some(lost) => {
                    draft.whs.remove(&lost);
                }
                None => {}
            }
            if draft.members.contains_key(&server) {
                return Err(Objection::AddressTwice);
            }
            draft.members.insert(server, MemberState::Active);
            draft.whs.insert(server);
        }
        if draft.members.len() > MEMBERS_MAX {
            return Err(Objection::TooManyServers);
        }
        if draft.whs.is_empty() {
            return Err(Objection::NoTaker);
        }
        Ok(draft)
    }

    pub(super) fn full_replace(&mut self, entry: Entry) -> Result<(), Objection> {
        self.may_begin()?;
        self.witnessed()?;
        if self.space.rhs.is_empty() {
            return Err(Objection::Nothing);
        }
        let job = Some(Job { full: true, ..NEW_JOB });
        let draft = Draft { whs_changed: true, job, ..Draft::of(&self.space) };
        self.accept_loss = false;
        self.make(entry, draft);
        Ok(())
    }

    /// Whether nothing but the copies stands between now and the switch.
    pub fn may_switch(&self) -> Result<(), Objection> {
        let job = self.space.job.ok_or(Objection::NoJob)?;
        if job.paused {
            return Err(Objection::Paused);
        }
        if job.full {
            return Ok(());
        }
        may_go_over(&Draft::of(&self.space), self.accept_loss)
    }

    /// A replace is under way that cannot end any more, whatever is copied: only `cancel` ends it.
    pub fn is_hopeless(&self) -> bool {
        is_hopeless(&self.space)
    }

    pub(super) fn switch(&mut self, entry: Entry) -> Result<(), Objection> {
        self.may_switch()?;
        let mut draft = Draft::of(&self.space);
        if self.space.job.is_some_and(|job| job.full) {
            draft.job = None;
        } else {
            // Nobody remembers what the lost owners had executed.
            draft.ids_lost = self.accept_loss && !all_led(&Table::new(&self.space));
            self.carried_out(&draft);
            draft.switch();
        }
        self.accept_loss = false;
        self.make(entry, draft);
        Ok(())
    }

    pub(super) fn cleared(&mut self, entry: Entry) -> Result<(), Objection> {
        if self.space.old.is_empty() {
            return Err(Objection::Nothing);
        }
        let draft = Draft { old: BTreeSet::new(), ..Draft::of(&self.space) };
        self.make(entry, draft);
        Ok(())
    }

    pub(super) fn cancel_job(&mut self, entry: Entry, author: Author) -> Result<(), Objection> {
        if self.space.job.is_none() {
            return Err(Objection::NoJob);
        }
        let mut draft = Draft { job: None, whs_changed: true, ..Draft::of(&self.space) };
        draft.whs = draft.rhs.clone();
        self.give_back(author);
        self.accept_loss = false;
        self.make(entry, draft);
        Ok(())
    }

    pub(super) fn change_job(&mut self, entry: Entry, change: impl Fn(&mut Job)) -> Result<(), Objection> {
        let mut draft = Draft::of(&self.space);
        change(draft.job.as_mut().ok_or(Objection::NoJob)?);
        self.make_if_changed(entry, draft)
    }

    pub(super) fn register(&mut self, nonce: u128) -> Result<(), Objection> {
        if self.nonces.contains_key(&nonce) {
            return Ok(());
        }
        if self.gateways.len() >= GATEWAYS_MAX {
            return Err(Objection::TooManyGateways);
        }
        let gateway = GatewayId(self.gateway_last.0 + 1);
        self.gateway_last = gateway;
        self.gateways.insert(gateway, nonce);
        self.nonces.insert(nonce, gateway);
        Ok(())
    }

    pub(super) fn expire_gateways(&mut self, entry: Entry, gone: &[GatewayId]) -> Result<(), Objection> {
        let mut floor = self.space.gateway_floor;
        let mut found = false;
        for gateway in gone {
            let Some(nonce) = self.gateways.remove(gateway) else { continue };
            self.nonces.remove(&nonce);
            floor = floor.max(GatewayId(gateway.0 + 1));
            found = true;
        }
        if !found {
            return Err(Objection::Nothing);
        }
        self.space.gateway_floor = floor;
        self.space.gateways = self.gateways.range(..floor).map(|(&id, _)| id).collect();
        self.make(entry, Draft::of(&self.space));
        Ok(())
    }

    /// The number begins a generation above the one that the servers here know, and so above those of servers that are
    /// not here. All gateways of either cell are expired, by a floor that begins a generation above any id the earlier
    /// cell can have issued: it issued none before servers that must be here kept its space. (See [`Cluster::risen`].)
    pub(super) fn rebuild(&mut self, entry: Entry, space: Space) -> Result<(), Objection> {
        if !self.space.members.is_empty() || space.members.is_empty() {
            return Err(Objection::NotEmpty);
        }
        let faults = space.members.iter().map(|member| order(member.state)).max().unwrap_or(0);
        let numbers = space.number.0.max(faults);
        if !space.well_formed() || numbers >= FOREIGN_NUMBERS_MAX {
            return Err(Objection::BadSpace);
        }
        let generation = (space.number.0.max(self.gateway_last.0) >> GENERATION_SHIFT) as u32 + 1;
        let again = self.broken.is(Mutation::GatewaysNumberedAgain);
        let floor = GatewayId(numbered(generation - u32::from(again), 1));
        let before = self.clone();
        let number = SpaceNumber(numbered(generation, 0)).max(self.space.number);
        self.space = Space { number, gateway_floor: floor, gateways: Vec::new(), ..space };
        self.faults = faults;
        self.gateways.clear();
        self.nonces.clear();
        self.gateway_last = GatewayId(floor.0 - 1);
        self.make(entry, Draft::of(&self.space));
        if self.broken_rule().is_some() {
            *self = before;
            return Err(Objection::BadSpace);
        }
        self.risen = Some(self.space.number);
        Ok(())
    }

    /// Who came now would keep a space that those who are there may lose.
    fn witnessed(&self) -> Result<(), Objection> {
        self.risen().map_or(Ok(()), |_| Err(Objection::Unwitnessed))
    }

    fn may_begin(&self) -> Result<(), Objection> {
        if self.space.job.is_some() {
            return Err(Objection::JobRuns);
        }
        if !self.space.settled() {
            return Err(Objection::Unsettled);
        }
        Ok(())
    }

    fn make(&mut self, entry: Entry, mut draft: Draft) {
        // Only a switch names old members, and it needs a space without any.
        if self.broken.is(Mutation::OldMembersNotCarried) && !self.space.old.is_empty() {
            draft.old.clear();
        }
        let (number, clock) = self.next(entry);
        self.space = draft.seal(number, clock);
    }

    fn make_if_changed(&mut self, entry: Entry, draft: Draft) -> Result<(), Objection> {
        let same = draft.clone().seal(self.space.number, self.space.clock) == self.space;
        if same {
            return Err(Objection::Nothing);
        }
        self.make(entry, draft);
        Ok(())
    }
}

/// A space and its number, to compare with what follows.
pub(super) struct Changed {
    before: Space,
}

impl Changed {
    pub fn before(space: &Space) -> Changed {
        Changed { before: space.clone() }
    }

    /// Another space has a greater number, and the same number is the same space.
    pub fn check(&self, after: &Space) {
        if *after != self.before {
            assert!(after.number > self.before.number, "{} follows {}", after.number, self.before.number);
        }
    }
}

fn order(state: MemberState) -> u64 {
    match state {
        MemberState::Active => 0,
        MemberState::Fault { order } | MemberState::Returned { order } => order,
    }
}

/// Where the broken rule that counts faults down begins.
const FAULTS_BACKWARDS: u64 = 1 << 32;

/// So many numbers are left to what those know who are given up: generations that nobody here has heard of. Not the same
/// for every manager: one cell may have given up those whom another one begins from.
pub(crate) fn unheard(life: u128) -> u64 {
    (16 + (life as u64 & 63)) << GENERATION_SHIFT
}

/// Numbers in a space to rebuild from are below, so that those that follow do not run out.
const FOREIGN_NUMBERS_MAX: u64 = 1 << 63;

const NEW_JOB: Job = Job { full: false, paused: false, rate: 0 };
