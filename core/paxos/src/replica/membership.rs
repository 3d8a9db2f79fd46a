//! Who belongs to the cell: forming it, taking replicas back in, operators' changes, leaving, recovery.

use super::{Replica, TOLD_MAX};
use crate::configuration::{Configuration, Genesis, MEMBERS_MAX, Member, Role, Schedule};
use crate::identity::{CellId, Incarnation, Instance, Time};
use crate::message::Message;
use crate::panics::Panics;
use crate::step::{Change, ChangeRefusal, Effect, ExitReason, GENERATION_MAX, Note, VOTERS_MAX};
use crate::value::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

impl Replica {
    // ---- forming ----

    /// The asker asks everyone who has not answered; alone, it forms its cell at once.
    pub(super) fn ask_new(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.settings.extension || !self.is_new() || now < self.forms_from || self.hears_of_cell(now) {
            return;
        }
        let Some(forming) = &self.forming else { return };
        let Some(nonce) = forming.asks() else { return };
        let missing: Vec<SocketAddr> = forming.missing().collect();
        for member in &missing {
            self.send(*member, Message::Ask { nonce }, effects);
        }
        if missing.is_empty() {
            self.form(nonce, effects);
        }
    }

    /// Knows of no cell: has no state, and none is on its way.
    fn is_new(&self) -> bool {
        self.agreement.schedule().is_none()
            && self.agreement.executable().is_none()
            && self.catching.snapshot.is_none()
    }

    /// Anyone with state stops the forming, not only the members that this replica was started with: others may have
    /// been taken into the cell that it forgot.
    fn hears_of_cell(&self, now: Time) -> bool {
        self.most_advanced(now, None).is_some()
    }

    pub(super) fn asked(
        &mut self,
        from: SocketAddr,
        sender: Incarnation,
        nonce: u64,
        effects: &mut Vec<Effect>,
    ) {
        // A question of an earlier life, late on its way, is not one.
        let lives = self.links.get(from).is_some_and(|link| link.incarnation == sender);
        if self.settings.extension || !lives || !self.is_new() {
            return;
        }
        if self.forming.as_mut().is_some_and(|forming| forming.asked(from, sender)) {
            self.send(from, Message::New { nonce }, effects);
        }
    }

    pub(super) fn answered_new(
        &mut self,
        now: Time,
        from: SocketAddr,
        sender: Incarnation,
        nonce: u64,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(forming) = &mut self.forming {
            forming.answered(from, sender, nonce);
            self.ask_new(now, effects);
        }
    }

    fn form(&mut self, nonce: u64, effects: &mut Vec<Effect>) {
        let cell = CellId(u128::from(self.draw()) << 64 | u128::from(self.draw()));
        let Some(genesis) = self.forming.as_ref().and_then(|forming| forming.formed(cell)) else { return };
        effects.push(Effect::Note(Note::Formed(cell)));
        for member in &genesis.configuration.members {
            self.send(member.address, Message::Formed { nonce, genesis: genesis.clone() }, effects);
        }
        self.agreement.fix(genesis, &mut self.records);
    }

    /// From no cell into one.
    pub(super) fn joined(&mut self, now: Time, cell: CellId, generation: u32, effects: &mut Vec<Effect>) {
        if self.forming.take().is_some() {
            effects.push(Effect::Note(Note::Joined { cell, generation }));
            self.next_tick = now;
        }
    }

    // ---- configurations ----

    /// A configuration entry was executed.
    pub(super) fn configured(&mut self, now: Time, configuration: &Configuration, effects: &mut Vec<Effect>) {
        self.joined(now, self.agreement.cell, self.agreement.generation, effects);
        self.lineage = self.lineage.max(self.agreement.generation);
        let (version, members) = (configuration.version, configuration.members.clone());
        effects.push(Effect::Note(Note::Configuration { version, members }));
        self.named |= configuration.member(self.settings.incarnation).is_some();
        self.dial_members(effects);
        if let Some(proposed) = self.proposed.take_if(|proposed| proposed.version <= version)
            && std::mem::take(&mut self.change_waits)
        {
            // Another change was quicker: ours is void, and its operator has to look again.
            let done = proposed == *configuration;
            effects.push(Effect::Changed(if done { Ok(()) } else { Err(ChangeRefusal::Busy) }));
        }
        self.send_collects(effects);
        self.eager = true;
    }

    /// Incarnations that a change left out or replaced: still connected for a moment, and no newcomers.
    pub(super) fn note_removed(&mut self, before: Option<Configuration>, configuration: &Configuration) {
        for member in before.into_iter().flat_map(|before| before.members) {
            if configuration.member(member.incarnation).is_none() {
                self.removed.push_back(member.incarnation);
            }
        }
        while self.removed.len() > TOLD_MAX {
            self.removed.pop_front();
        }
    }

    /// Some scheduled configuration names this incarnation.
    pub(super) fn is_named(&self) -> bool {
        let me = self.settings.incarnation;
        let schedule = self.agreement.schedule();
        schedule.is_some_and(|schedule| schedule.entries.iter().any(|(_, entry)| entry.member(me).is_some()))
    }

    /// Gives up links to addresses that belong to nobody any more.
    pub(super) fn hang_up_strangers(&mut self, effects: &mut Vec<Effect>) {
        let Some(schedule) = self.agreement.schedule() else { return };
        let strangers: Vec<SocketAddr> = self
            .links
            .iter()
            .filter(|(peer, link)| {
                !link.up && schedule.entries.iter().all(|(_, entry)| entry.at(*peer).is_none())
            })
            .map(|(peer, _)| peer)
            .collect();
        for stranger in strangers {
            self.links.remove(stranger);
            effects.push(Effect::Hangup(stranger));
        }
    }

    pub(super) fn dial_members(&mut self, effects: &mut Vec<Effect>) {
        let Some(schedule) = self.agreement.schedule() else { return };
        let members: Vec<SocketAddr> = schedule
            .entries
            .iter()
            .flat_map(|(_, configuration)| &configuration.members)
            .map(|member| member.address)
            .collect();
        for member in members {
            self.dial(member, effects);
        }
    }

    /// The master takes back in who comes with a new incarnation, and takes in extensions: when they are heard.
    pub(super) fn admit(&mut self, now: Time, address: SocketAddr, effects: &mut Vec<Effect>) {
        let Some(configuration) = self.changeable() else { return };
        // Only for an incarnation that echoed our nonce on a live connection: not for a ghost.
        let silence = self.silence_micros();
        let link = self.links.get(address).filter(|link| link.alive(now, silence) && link.echoed);
        let Some((link, heartbeat)) = link.and_then(|link| Some((link, link.heartbeat.as_ref()?))) else {
            return;
        };
        let removed = self.removed.contains(&link.incarnation);
        let next = match configuration.at(address) {
            Some(member) if member.incarnation == link.incarnation && member.role != Role::Returning => {
                return;
            }
            // One that was replaced and is still reached does not take its successor's place. Where no
            // incarnation is named yet, whoever is there is meant.
            Some(member) if member.incarnation != Incarnation(0) && removed => return,
            Some(member) if !self.caught_up(link.executed) => {
                let follows = link.follows.is_some() && member.role != Role::Extension;
                return if follows {
                    self.wait_for(now, address)
                };
            }
            Some(_) => with_incarnation(configuration, address, link.incarnation),
            None if removed => return,
            // It must know the latest configuration: one that was removed while it was down leaves when it does.
            None if heartbeat.extension && !self.knows_latest(link.executed) => return,
            None if heartbeat.extension && configuration.members.len() < MEMBERS_MAX => {
                with_extension(configuration, address, link.incarnation)
            }
            // One that was just removed still votes until it leaves: no stranger.
            None if heartbeat.votes => return,
            None => return self.note_stranger(address, effects),
        };
        // A refusal here is only "not yet": the next heartbeat has us look again.
        let _ = self.propose_configuration(now, next);
    }

    /// A newcomer that gets all there is, and is as far behind as the log grows on the way to it and back: it gets within
    /// the window when the log stands still for a moment. Ever more rarely, should it be too slow for that too, or die
    /// of it and come back.
    fn wait_for(&mut self, now: Time, newcomer: SocketAddr) {
        let Some(link) = self.links.get_mut(newcomer) else { return };
        link.trails = link.trails.saturating_add(1);
        if link.trails >= TRAILS_MIN && link.trails.is_power_of_two() {
            let until = now.plus_micros(self.settings.unit_micros.saturating_mul(HOLD_UNITS));
            self.held = Some((newcomer, until));
        }
    }

    fn note_stranger(&mut self, address: SocketAddr, effects: &mut Vec<Effect>) {
        if !self.told.strangers.contains(&address) && self.told.strangers.len() < TOLD_MAX {
            self.told.strangers.push(address);
            effects.push(Effect::Note(Note::Stranger(address)));
        }
    }

    /// The configuration a change starts from: only a master with no change under way has one.
    fn changeable(&self) -> Option<&Configuration> {
        if self.reign.is_none() || self.proposed.is_some() || !self.agreement.settled() {
            return None;
        }
        self.agreement.schedule().map(Schedule::latest)
    }

    fn knows_latest(&self, executed: Instance) -> bool {
        self.agreement
            .schedule()
            .is_some_and(|schedule| executed.plus(schedule.window) >= schedule.latest_from())
    }

    fn caught_up(&self, executed: Instance) -> bool {
        let window = self.agreement.schedule().map_or(0, |schedule| schedule.window);
        executed.plus(window) >= self.agreement.log().executed()
    }

    /// Who could vote on the next instances: votes now, or is a newcomer within the window; and is connected.
    fn ready(&self, now: Time, configuration: &Configuration) -> BTreeSet<Incarnation> {
        let (me, silence) = (self.settings.incarnation, self.silence_micros());
        let alive = |voter: &Member| {
            voter.incarnation == me && self.agreement.votes()
                || self.links.of(voter.incarnation).is_some_and(|link| {
                    let votes = link.heartbeat.as_ref().is_some_and(|heartbeat| heartbeat.votes);
                    link.alive(now, silence) && (votes || link.echoed && self.caught_up(link.executed))
                })
        };
        configuration.voters().filter(|voter| alive(voter)).map(|voter| voter.incarnation).collect()
    }

    fn propose_configuration(&mut self, now: Time, mut next: Configuration) -> Result<(), ChangeRefusal> {
        next.version += 1;
        next.members.sort_by_key(|member| member.id);
        let ready = self.ready(now, &next);
        if !self.agreement.may_change(&next, &ready) {
            return Err(ChangeRefusal::Majority);
        }
        self.proposed = Some(next.clone());
        self.held = None;
        self.queue.push_front(Value::Config(next));
        self.eager = true;
        Ok(())
    }

    // ---- operators ----

    pub(super) fn change(&mut self, now: Time, change: &Change, effects: &mut Vec<Effect>) {
        if *change == Change::Recover {
            let recovered = self.recover_alone(now, effects);
            effects.push(Effect::Changed(recovered));
            return;
        }
        let next = self.changed_configuration(now, change);
        match next.and_then(|next| self.propose_configuration(now, next)) {
            // Answered when the entry is executed.
            Ok(()) => self.change_waits = true,
            Err(refusal) => effects.push(Effect::Changed(Err(refusal))),
        }
    }

    pub(super) fn fail_change(&mut self, effects: &mut Vec<Effect>) {
        if std::mem::take(&mut self.change_waits) {
            effects.push(Effect::Changed(Err(ChangeRefusal::NotMaster)));
        }
    }

    fn changed_configuration(&self, now: Time, change: &Change) -> Result<Configuration, ChangeRefusal> {
        if self.reign.is_none() {
            return Err(ChangeRefusal::NotMaster);
        }
        let mut next = self.changeable().cloned().ok_or(ChangeRefusal::Busy)?;
        match *change {
            Change::Add(address) => {
                if next.at(address).is_some() {
                    return Err(ChangeRefusal::Member(address));
                }
                // Which incarnation it is shows when it connects.
                next = with_extension(&next, address, Incarnation(0));
            }
            Change::Promote(address) => self.promote(now, &mut next, address)?,
            Change::Remove(address) => {
                next.at(address).ok_or(ChangeRefusal::Stranger(address))?;
                next.members.retain(|member| member.address != address);
            }
            Change::Replace { old, new } => {
                next.at(old).ok_or(ChangeRefusal::Stranger(old))?;
                next.members.retain(|member| member.address != old);
                self.promote(now, &mut next, new)?;
            }
            Change::Recover => return Err(ChangeRefusal::NotLost),
        }
        match next.voters().count() {
            0 => Err(ChangeRefusal::LastVoter),
            1..=VOTERS_MAX => Ok(next),
            _ => Err(ChangeRefusal::TooMany),
        }
    }

    fn promote(&self, now: Time, next: &mut Configuration, address: SocketAddr) -> Result<(), ChangeRefusal> {
        let silence = self.silence_micros();
        let member = next.members.iter_mut().find(|member| member.address == address);
        let member = member.ok_or(ChangeRefusal::Stranger(address))?;
        if member.role == Role::Core {
            return Err(ChangeRefusal::Member(address));
        }
        let link = self.links.get(address).filter(|link| link.alive(now, silence) && link.echoed);
        let link = link.ok_or(ChangeRefusal::Unreachable(address))?;
        if link.incarnation != member.incarnation || !self.caught_up(link.executed) {
            return Err(ChangeRefusal::Behind(address));
        }
        member.role = Role::Core;
        Ok(())
    }

    /// The seed's "if even one lives": this replica goes on alone, as a generation of its own of the same cell, with what
    /// it knows decided and what it accepted up to the first hole. Whatever only the others knew is lost.
    fn recover_alone(&mut self, now: Time, effects: &mut Vec<Effect>) -> Result<(), ChangeRefusal> {
        let Some(configuration) = self.configuration_now().cloned() else {
            return Err(ChangeRefusal::Stranger(self.settings.address));
        };
        // It would lead a cell that executes nothing.
        if let Some(instance) = self.halted() {
            return Err(ChangeRefusal::Halted(instance));
        }
        let (me, silence) = (self.settings.incarnation, self.silence_micros());
        let remembers = |voter: Incarnation| {
            voter == me && self.agreement.votes()
                || self.links.of(voter).is_some_and(|link| link.alive(now, silence))
        };
        if configuration.majority(remembers) {
            return Err(ChangeRefusal::NotLost);
        }
        let named = configuration.member(me).is_some();
        let latest = self.agreement.schedule().map_or(&configuration, Schedule::latest);
        // One that forgot is no survivor, however much it has learned since.
        let survives = named || latest.member(me).is_some();
        if !survives || latest.at(self.settings.address).is_none() {
            return Err(ChangeRefusal::Stranger(self.settings.address));
        }
        let generation = next_generation(self.agreement.generation, latest, self.settings.address)?;
        self.step_down(now, effects);
        let held = |value: &Value| self.data.holds(value);
        let schedule = self.agreement.keep_accepted(held, &mut self.records);
        let schedule = schedule.expect("who has a configuration has a schedule");
        let cell = self.agreement.cell;
        let configuration = survivors(&schedule, self.settings.address, me);
        let genesis = Genesis { cell, generation, window: schedule.window, configuration };
        self.agreement.recover(genesis, &mut self.records);
        // The incarnations of the last generation end when they hear of this one: they must not be taken in.
        self.links.forget_words();
        // Who goes on after a bug has decided to.
        self.panics = Panics::default();
        Ok(())
    }

    // ---- leaving ----

    /// A member the latest configuration does not name goes when it is not needed any more.
    pub(super) fn leave_when_done(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let executed: BTreeMap<Incarnation, Instance> =
            self.links.iter().map(|(_, link)| (link.incarnation, link.executed)).collect();
        if !self.named || !self.agreement.may_leave(&executed) {
            return;
        }
        let latest = self.agreement.schedule().map(|schedule| schedule.latest());
        let place =
            latest.and_then(|latest| latest.at(self.settings.address)).map(|member| member.incarnation);
        let reason = match place {
            None => ExitReason::Removed,
            // Removed, and its address added again: it is the one that is waited for.
            Some(Incarnation(0)) => return,
            Some(_) => ExitReason::Replaced,
        };
        self.step_down(now, effects);
        self.exit(reason, effects);
    }

    /// Says so when so many voters came back without memory that no majority remembers.
    pub(super) fn note_forgotten(&mut self, _now: Time, effects: &mut Vec<Effect>) {
        // One that forgot itself may still be looking at an old configuration: who remembers tells.
        let remembers = self.configuration_now().is_some_and(|now| now.is_voter(self.settings.incarnation));
        let Some((remembering, voters)) = self.forgotten().filter(|_| remembers) else {
            self.told.forgot = false;
            return;
        };
        if !std::mem::replace(&mut self.told.forgot, true) {
            effects.push(Effect::Note(Note::MajorityForgot { remembering, voters }));
        }
    }

    /// (remembering, voters) when the voters that came back with another incarnation leave no majority.
    pub(super) fn forgotten(&self) -> Option<(usize, usize)> {
        let configuration = self.configuration_now()?;
        let voters = configuration.voters().count();
        let forgot = configuration.voters().filter(|voter| {
            if voter.address == self.settings.address {
                return voter.incarnation != self.settings.incarnation;
            }
            self.links.get(voter.address).is_some_and(|link| link.up && link.incarnation != voter.incarnation)
        });
        let remembering = voters - forgot.count();
        (remembering * 2 <= voters).then_some((remembering, voters))
    }
}

/// Heartbeats after which the master waits for a newcomer, and how long: as long as it takes to get there and back, and
/// until the next heartbeat.
const TRAILS_MIN: u32 = 16;
const HOLD_UNITS: u64 = 4;

/// The generation in which the survivor at that address goes on: no other survivor of the same generation goes on in it.
/// Were it the next one for all, two recoveries that know nothing of each other would hand out the same numbers, and
/// be taken for one cell when they meet. So the one with the greater generation ends the other.
fn next_generation(
    generation: u32,
    configuration: &Configuration,
    survivor: SocketAddr,
) -> Result<u32, ChangeRefusal> {
    let member = configuration.at(survivor).ok_or(ChangeRefusal::Stranger(survivor))?;
    let next = generation.checked_add(1).and_then(|next| next.checked_add(member.id.0));
    next.filter(|next| *next <= GENERATION_MAX).ok_or(ChangeRefusal::Generations)
}

/// The process at that address has a new incarnation; one that a recovery left out votes again with it.
fn with_incarnation(
    configuration: &Configuration,
    address: SocketAddr,
    incarnation: Incarnation,
) -> Configuration {
    let mut next = configuration.clone();
    for member in next.members.iter_mut().filter(|member| member.address == address) {
        member.incarnation = incarnation;
        if member.role == Role::Returning {
            member.role = Role::Core;
        }
    }
    next
}

fn with_extension(
    configuration: &Configuration,
    address: SocketAddr,
    incarnation: Incarnation,
) -> Configuration {
    let mut next = configuration.clone();
    next.members.push(Member { id: next.next_id, address, incarnation, role: Role::Extension });
    next.next_id.0 += 1;
    next
}

/// The members of a recovered generation: those of the last change that was kept, be it executed or not. A change that
/// leaves out the survivor is void, for nobody else is there to go on.
fn survivors(schedule: &Schedule, address: SocketAddr, incarnation: Incarnation) -> Configuration {
    let Configuration { version, next_id, .. } = *schedule.latest();
    let kept = schedule.entries.iter().rev().find(|(_, entry)| entry.at(address).is_some());
    let members = kept.map_or(&schedule.latest().members, |(_, entry)| &entry.members);
    let members = members.iter().map(|member| survivor(member.clone(), address, incarnation)).collect();
    Configuration { version: version + 1, next_id, members }
}

/// A member as a recovered generation names it: the survivor votes, the others come back when they can.
fn survivor(member: Member, address: SocketAddr, incarnation: Incarnation) -> Member {
    if member.address == address {
        return Member { incarnation, role: Role::Core, ..member };
    }
    match member.role {
        Role::Core | Role::Returning => {
            Member { incarnation: Incarnation(0), role: Role::Returning, ..member }
        }
        Role::Extension => Member { incarnation: Incarnation(0), ..member },
    }
}
