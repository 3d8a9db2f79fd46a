//! What a replica does by itself as time passes: heartbeats, naming a master, sending again what got lost.

use super::Replica;
use crate::configuration::Schedule;
use crate::data::Want;
use crate::election::View;
use crate::identity::{Incarnation, Instance, Time};
use crate::links::Link;
use crate::message::{Heartbeat, Message};
use crate::step::{Effect, ExitReason, Note};
use std::net::SocketAddr;

impl Replica {
    pub(super) fn timeout(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.eager = false;
        if now >= self.next_tick {
            self.next_tick = now.plus_micros(self.settings.unit_micros);
            self.tick(now, effects);
        }
        if self.wants_round && now >= self.lease.free_at() {
            self.raise(now, effects);
        }
        self.assemble(now, effects);
        self.pump(now, effects);
        if now >= self.next_resend {
            self.next_resend = now.plus_micros(self.resend_micros());
            self.resend(now, effects);
        }
        if self.success_due.is_some_and(|due| now >= due) {
            self.tell_success(effects);
        }
        self.push_followers(effects);
        self.fetch_missing(now, effects);
    }

    /// Once per unit.
    fn tick(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.ticks += 1;
        self.ask_new(now, effects);
        self.give_up_alone(now, effects);
        self.elect(now, effects);
        self.heartbeats(now, effects);
        self.grant_own(now);
        self.catch_up(now, effects);
        self.note_target(now);
        self.come_back(now, effects);
        self.leave_when_done(now, effects);
        self.note_forgotten(now, effects);
        if self.ticks.is_multiple_of(DATA_TRIM_TICKS) {
            self.trim_data(now);
            self.hang_up_strangers(effects);
        }
    }

    /// To every peer.
    pub(super) fn heartbeats(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let peers: Vec<SocketAddr> =
            self.links.iter().filter(|(_, link)| link.up).map(|(peer, _)| peer).collect();
        for peer in peers {
            self.send_heartbeat(now, peer, effects);
        }
    }

    pub(super) fn send_heartbeat(&mut self, now: Time, to: SocketAddr, effects: &mut Vec<Effect>) {
        let Some(link) = self.links.get(to) else { return };
        let (nonce, echo) = (link.nonce, link.peer_nonce);
        let log = self.agreement.log();
        let heartbeat = Heartbeat {
            age_ms: now.since(self.birth) / 1000,
            names: self.names,
            hears: self.hears(now),
            votes: self.votes_now(),
            leads: self.reign,
            promised: self.agreement.acceptor().promised(),
            sent: now,
            success: log.decided_upto(),
            executed: log.executed(),
            first: log.first(),
            load: self.load,
            digest: self
                .digests
                .last_key_value()
                .map_or((Instance(0), 0), |(instance, digest)| (*instance, *digest)),
            nonce,
            echo,
            panicked: self.panics.own(),
            extension: self.settings.extension,
            yours: link.kept,
        };
        self.send(to, Message::Heartbeat(heartbeat), effects);
    }

    /// Peers heard from lately, the voters first: whoever does not hear a majority is not elected, so of many followers
    /// those beyond the limit are left out.
    fn hears(&self, now: Time) -> Vec<Incarnation> {
        let silence = self.silence_micros();
        let voters = self.agreement.schedule().map(Schedule::voters).unwrap_or_default();
        let alive = || self.links.iter().map(|(_, link)| link).filter(|link| link.alive(now, silence));
        let votes = |link: &&Link| voters.contains(&link.incarnation);
        let first = alive().filter(votes);
        let others = alive().filter(|link| !votes(link));
        first.chain(others).map(|link| link.incarnation).take(HEARS_MAX).collect()
    }

    pub(super) fn heartbeat(
        &mut self,
        now: Time,
        from: SocketAddr,
        sender: Incarnation,
        heartbeat: Heartbeat,
        effects: &mut Vec<Effect>,
    ) {
        self.heard = self.heard.max(heartbeat.promised);
        if !self.confirm(from, sender, &heartbeat, effects) {
            return;
        }
        if let Some(round) = heartbeat.leads {
            self.agreement.success(round, heartbeat.success, &mut self.records);
            self.answer_master(now, from, &heartbeat, effects);
        }
        let Some(link) = self.links.get_mut(from) else { return };
        if link.incarnation != sender {
            return;
        }
        link.peer_nonce = heartbeat.nonce;
        link.echoed |= heartbeat.echo == link.nonce;
        link.executed = heartbeat.executed;
        if heartbeat.votes {
            link.trails = 0;
        }
        link.heartbeat_at = now;
        let panicked = heartbeat.panicked;
        link.heartbeat = Some(heartbeat);
        if self.differs() {
            self.exit(ExitReason::Differs(self.agreement.log().executed()), effects);
            return;
        }
        if let Some(instance) = panicked {
            self.panic_heard(now, from, instance, effects);
        }
        self.elect(now, effects);
        self.catch_up(now, effects);
        // Now, not at a tick of our own: under load the position that it tells is soon out of date.
        self.admit(now, from, effects);
    }

    fn answer_master(
        &mut self,
        now: Time,
        from: SocketAddr,
        heartbeat: &Heartbeat,
        effects: &mut Vec<Effect>,
    ) {
        let Some(round) = heartbeat.leads else { return };
        if !self.agreement.votes() {
            return;
        }
        let promised = self.agreement.acceptor().promised();
        if promised == round && self.is_confirmed() {
            let granted_micros = self.lease.grant(now, round);
            let executed = self.agreement.log().executed();
            self.send(
                from,
                Message::Grant { round, sent: heartbeat.sent, granted_micros, executed },
                effects,
            );
        } else if promised > round {
            self.send(from, Message::Refuse { refused: round, promised }, effects);
        }
    }

    /// Whether more than half of the voters report another state than ours was after the same instance. Each may name
    /// an instance of its own: under load no two heartbeats name the same, and a digest that differs differs ever after.
    fn differs(&self) -> bool {
        let reports_another = |voter: Incarnation| {
            let heartbeat = self.links.of(voter).and_then(|link| link.heartbeat.as_ref());
            heartbeat.is_some_and(|heartbeat| {
                let (instance, digest) = heartbeat.digest;
                self.digests.get(&instance).is_some_and(|mine| *mine != digest)
            })
        };
        self.configuration_now().is_some_and(|configuration| configuration.majority(reports_another))
    }

    /// Names a master, tells the others when the name changed, and wants a round when a majority names this replica.
    pub(super) fn elect(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(configuration) = self.configuration_now() else { return };
        let view = View {
            now,
            me: self.settings.incarnation,
            age_ms: now.since(self.birth) / 1000,
            // Where execution has stopped, a master could do nothing.
            votes: self.agreement.votes() && self.panics.bug().is_none(),
            halted: self.halted().is_some(),
            leads: self.reign,
            promised: self.agreement.acceptor().promised(),
            configuration,
            links: &self.links,
            silence_micros: self.silence_micros(),
            unit_micros: self.settings.unit_micros,
            by_id: self
                .masterless_since
                .is_some_and(|since| now.since(since) > self.settings.unit_micros * BY_ID_UNITS),
        };
        let names = view.names();
        let named = view.named(names);
        let leads = self.agreement.proposer().is_some();
        let stuck = now.since(self.raised_at) > self.settings.unit_micros * RAISE_UNITS;
        let confirmed = self.is_confirmed();
        self.wants_round = named && confirmed && self.reign.is_none() && (!leads || stuck);
        let changed = names != self.names;
        self.names = names;
        self.note_master(now, effects);
        // A round that recovers nothing and that nobody wants any more ends: its begins would be granted for ever,
        // and keep the one that is named from raising its own.
        if leads && stuck && !named && self.reign.is_none() {
            self.step_down(now, effects);
        }
        if changed {
            let voters: Vec<SocketAddr> = self.voter_addresses();
            for voter in voters {
                self.send_heartbeat(now, voter, effects);
            }
        }
    }

    fn note_master(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let master = self.live_master(now);
        self.master = master;
        match master {
            // A reign of a moment, which not all hear of, counts for nothing: they would go by ids, and we by ages.
            Some(_) => {
                let since = *self.master_since.get_or_insert(now);
                self.masterless_since.take_if(|_| now.since(since) >= self.settings.unit_micros);
            }
            None => {
                self.master_since = None;
                self.masterless_since.get_or_insert(now);
            }
        }
        if master != self.told.master {
            self.told.master = master;
            effects.push(Effect::Note(master.map_or(Note::NoMaster, Note::MasterIs)));
        }
    }

    pub(super) fn voter_addresses(&self) -> Vec<SocketAddr> {
        let Some(schedule) = self.agreement.schedule() else { return Vec::new() };
        schedule.voters().into_iter().filter_map(|voter| self.links.address_of(voter)).collect()
    }

    /// A master that a majority has not answered for long is none.
    fn give_up_alone(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.reign.is_none() {
            return;
        }
        let (me, silence) = (self.settings.incarnation, self.silence_micros() * 3 / 2);
        let answered = self.configuration_now().is_some_and(|configuration| {
            configuration.majority(|voter| {
                voter == me || self.links.of(voter).is_some_and(|link| link.alive(now, silence))
            })
        });
        if !answered {
            self.step_down(now, effects);
        }
    }

    pub(super) fn resend_micros(&self) -> u64 {
        (self.settings.unit_micros / 4).max(1)
    }

    /// Whether something waits for an answer, so that a lost message would be missed.
    pub(super) fn is_waiting(&self) -> bool {
        let proposing = self.agreement.proposer().is_some_and(|proposer| !proposer.open().is_empty());
        let collecting = self.agreement.proposer().is_some() && self.reign.is_none();
        proposing || collecting || self.data.is_fetching() || self.data.offers().next().is_some()
    }

    /// Sends again what was sent before the last resend and is still not answered.
    fn resend(&mut self, now: Time, effects: &mut Vec<Effect>) {
        for (voter, collect) in self.agreement.collects() {
            if let Some(address) = self.links.address_of(voter) {
                self.send(address, collect, effects);
            }
        }
        if let Some(proposer) = self.agreement.proposer() {
            let old: Vec<Instance> =
                proposer.open().range(..self.resend_below).map(|(instance, _)| *instance).collect();
            self.resend_below = proposer.next();
            if !old.is_empty() {
                self.send_begins(now, &old, effects);
            }
        }
        self.resend_offers(effects);
        self.resend_fetches(now, effects);
    }

    fn resend_fetches(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let patience = self.settings.unit_micros * 2;
        let holders: Vec<SocketAddr> = self
            .links
            .iter()
            .filter(|(_, link)| link.alive(now, self.silence_micros()))
            .map(|(peer, _)| peer)
            .collect();
        let next = |from: SocketAddr| {
            let place = holders.iter().position(|holder| *holder == from);
            let after = place.map_or(0, |place| place + 1);
            holders.get(after).or(holders.first()).copied()
        };
        for (to, name, offset) in self.data.stalled(now, patience, next) {
            self.send(to, Message::Fetch { name, offset }, effects);
        }
    }

    /// The next entry to execute is decided, but its bytes are not here: any holder will do.
    fn fetch_missing(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some((_, crate::value::Value::Large { name, length })) = self.agreement.executable() else {
            return;
        };
        let (name, length) = (*name, *length);
        if self.data.get(&name).is_some() {
            return;
        }
        let silence = self.silence_micros();
        let ahead = self
            .links
            .iter()
            .filter(|(_, link)| link.alive(now, silence))
            .max_by_key(|(_, link)| link.executed);
        if let Some(holder) = ahead.map(|(peer, _)| peer) {
            self.fetch(now, name, length, holder, Want::Needed, effects);
        }
    }

    fn trim_data(&mut self, now: Time) {
        let log = self.agreement.log();
        let mut named = std::collections::BTreeSet::new();
        let mut note = |value: &crate::value::Value| {
            if let crate::value::Value::Large { name, .. } = value {
                named.insert(*name);
            }
        };
        let mut instance = log.first();
        while let Some(value) = log.get(instance) {
            note(value);
            instance = instance.next();
        }
        log.ahead_from(instance).for_each(|(_, value)| note(value));
        self.agreement.acceptor().accepted_from(Instance(0)).for_each(|(_, (_, value))| note(value));
        self.queue.iter().for_each(&mut note);
        self.data.trim(now, |name| named.contains(name));
    }
}

/// Units without a master after which the lowest id is named instead of the eldest.
const BY_ID_UNITS: u64 = 20;
/// Units after which a round that won no majority is raised again.
const RAISE_UNITS: u64 = 8;
/// Ticks between two looks at which large values are still wanted.
const DATA_TRIM_TICKS: u64 = 32;
/// Peers named in a heartbeat. There is room for the voters of all configurations scheduled at once.
const HEARS_MAX: usize = 64;
