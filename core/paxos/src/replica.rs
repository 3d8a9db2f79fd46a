//! [`Replica`]: one member of a cell, complete but for IO and execution. This file routes what comes in; what it
//! leads to stands in the files of `replica/`.

use crate::agreement::{Agreement, Last};
use crate::configuration::Configuration;
use crate::data::Data;
use crate::forming::Forming;
use crate::identity::{Incarnation, Instance, Round, Time};
use crate::lease::Lease;
use crate::links::Links;
use crate::message::{Envelope, Message, Position};
use crate::mutation::Mutation;
use crate::panics::Panics;
use crate::step::{Effect, ExitReason, Input, Record, Settings};
use crate::unheld::Unheld;
use crate::value::{DataName, IN_BAND_MAX, Value};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

mod agent;
mod follow;
mod lead;
mod membership;
mod memory;
mod panics;
mod peers;
mod status;
mod tick;

/// One member of a cell.
pub struct Replica {
    settings: Settings,
    agreement: Agreement,
    /// `Some` until this replica belongs to a cell.
    forming: Option<Forming>,
    /// Not before this does it form one.
    forms_from: Time,
    /// The generation of the history that this replica's state comes from: of who taught it, or later.
    /// While it still executes entries of earlier generations, its messages name this one.
    lineage: u32,
    links: Links,
    lease: Lease,
    data: Data,
    unheld: Unheld,
    /// Commands and configurations that wait for an instance.
    queue: VecDeque<Value>,
    /// Draws nonces: the entropy of the settings, stirred by a count.
    drawn: u64,
    /// When this replica started or last stepped down.
    birth: Time,
    /// The strongest round heard of.
    heard: Round,
    names: Option<Incarnation>,
    /// The round whose mastership was announced.
    reign: Option<Round>,
    /// Raise a round as soon as no grant forbids it.
    wants_round: bool,
    raised_at: Time,
    master_since: Option<Time>,
    /// No master was there for longer than a moment since then.
    masterless_since: Option<Time>,
    /// What a new voter was told: it has its vote.
    voted: bool,
    /// Some configuration executed here named this incarnation: it leaves when none does any more.
    named: bool,
    /// Incarnations that the last changes removed or replaced: still connected for a moment, and no newcomers.
    removed: VecDeque<Incarnation>,
    next_tick: Time,
    next_resend: Time,
    /// Open instances below this were open at the last resend already.
    resend_below: Instance,
    /// Something can be begun or sent: step again before sleeping.
    eager: bool,
    success_due: Option<Time>,
    /// Decisions up to here were told to the agents.
    success_told: Instance,
    catching: Catching,
    /// The oldest position of which this replica hands out a snapshot.
    pinned: Option<Instance>,
    /// The configuration entry this master proposed and has not seen executed.
    proposed: Option<Configuration>,
    /// The newcomer for whose sake no commands are begun, so that it gets within the window, and until when.
    held: Option<(SocketAddr, Time)>,
    /// The master that was last heard of alive.
    master: Option<SocketAddr>,
    /// An operator waits for that change.
    change_waits: bool,
    panics: Panics,
    digest: u64,
    digests: BTreeMap<Instance, u64>,
    load: u32,
    ticks: u64,
    told: Told,
    /// Promises and accepts of this life, but for those still in `records`.
    kept: u64,
    confirmed: Confirmed,
    records: Vec<Record>,
    started: bool,
    over: bool,
}

/// How far catching up is.
#[derive(Default)]
struct Catching {
    /// Whom this replica asked, and when.
    asked: Option<(SocketAddr, Time)>,
    /// The peer whose snapshot is on its way.
    snapshot: Option<SocketAddr>,
    /// How far others were at the last tick: only a lag that lasts is one.
    target: Instance,
}

/// Whether the voters know of nothing that this replica should have in its memory and has not.
enum Confirmed {
    /// Started with a memory: these voters have said how much of it they were told of. It takes a majority of them, or
    /// this replica would vote with less than it promised.
    By(BTreeSet<Incarnation>),
    Yes,
}

/// What the log was told already: each change of state is one line.
#[derive(Default)]
struct Told {
    master: Option<SocketAddr>,
    forgot: bool,
    strangers: Vec<SocketAddr>,
    foreign: Vec<SocketAddr>,
}

impl Replica {
    /// A replica without memory: it forms a cell or learns from one.
    pub fn new(settings: Settings, now: Time) -> Replica {
        Replica::with_mutation(settings, now, None)
    }

    /// As `new`, with a rule left out for the model checker and the simulator.
    pub fn with_mutation(settings: Settings, now: Time, mutation: Option<Mutation>) -> Replica {
        let agreement = Agreement::new(settings.incarnation, mutation);
        let mut lease = Lease::new(settings.unit_micros.saturating_mul(GRANT_UNITS));
        if !agreement.mutated(Mutation::RestartAnswersCollect) {
            lease.quiet(now, 0);
        }
        let mut replica = Replica {
            agreement,
            forming: None,
            forms_from: now.plus_micros(settings.forms_after_micros),
            lineage: 0,
            links: Links::default(),
            lease,
            data: Data::default(),
            unheld: Unheld::default(),
            queue: VecDeque::new(),
            drawn: 0,
            birth: now,
            heard: Round::default(),
            names: None,
            reign: None,
            wants_round: false,
            raised_at: now,
            master_since: None,
            masterless_since: Some(now),
            voted: false,
            named: false,
            removed: VecDeque::new(),
            next_tick: now,
            next_resend: now,
            resend_below: Instance(0),
            eager: false,
            success_due: None,
            success_told: Instance(0),
            catching: Catching::default(),
            pinned: None,
            proposed: None,
            held: None,
            master: None,
            change_waits: false,
            panics: Panics::default(),
            digest: 0,
            digests: BTreeMap::new(),
            load: 0,
            ticks: 0,
            told: Told::default(),
            kept: 0,
            confirmed: Confirmed::Yes,
            records: Vec::new(),
            started: false,
            over: false,
            settings,
        };
        let nonce = replica.draw();
        let symmetric = replica.agreement.mutated(Mutation::SymmetricForming);
        let settings = &replica.settings;
        let forming = Forming::new(settings.address, settings.incarnation, &settings.peers, nonce, symmetric);
        replica.forming = Some(forming);
        replica
    }

    /// A durable replica with the memory of its earlier life: the newest snapshot's position, if any, and the
    /// records after it in order. What the records decide is executed again by the host.
    pub fn recover(
        settings: Settings,
        position: Option<Position>,
        records: Vec<Record>,
        now: Time,
    ) -> Replica {
        Replica::recover_with_mutation(settings, position, records, now, None)
    }

    /// As `recover`, with a rule left out.
    pub fn recover_with_mutation(
        settings: Settings,
        position: Option<Position>,
        records: Vec<Record>,
        now: Time,
        mutation: Option<Mutation>,
    ) -> Replica {
        let mut replica = Replica::with_mutation(settings, now, mutation);
        let quiet = !replica.agreement.mutated(Mutation::RestartAnswersCollect);
        if let Some(position) = position {
            replica.digest = position.digest;
            replica.lineage = position.generation;
            replica.agreement.install(position);
            replica.forming = None;
        }
        for record in records {
            replica.kept += u64::from(record.is_vote());
            match record {
                Record::Life { grant_micros, kept, .. } => {
                    if quiet {
                        replica.lease.quiet(now, grant_micros);
                    }
                    replica.kept = kept;
                }
                Record::Data { name, bytes } => replica.data.insert(now, name, bytes),
                record @ (Record::Promised(_) | Record::Accepted { .. } | Record::Decided { .. }) => {
                    replica.agreement.replay(record);
                }
            }
        }
        replica.voted = replica.agreement.votes();
        replica.named = replica.is_named();
        replica.confirmed = Confirmed::By(BTreeSet::new());
        replica
    }

    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        if self.over {
            return;
        }
        self.start(effects);
        match input {
            Input::Timeout => self.timeout(now, effects),
            Input::PeerUp(hello) => self.peer_up(now, &hello, effects),
            Input::PeerDown(address) => self.peer_down(now, address, effects),
            Input::Message(envelope) => self.message(now, envelope, effects),
            Input::Propose(command) => self.propose(now, command, effects),
            Input::Load(load) => self.load = load,
            Input::Change(change) => self.change(now, &change, effects),
            Input::StepDown => self.step_down(now, effects),
        }
        self.settle(now, effects);
    }

    pub fn deadline(&self) -> Option<Time> {
        if self.over {
            return None;
        }
        if self.eager {
            return Some(Time(0));
        }
        let mut deadline = self.next_tick;
        if self.is_waiting() {
            deadline = deadline.min(self.next_resend);
        }
        if self.wants_round {
            deadline = deadline.min(self.lease.free_at());
        }
        let dues = [self.success_due, self.held.map(|(_, until)| until)];
        Some(dues.into_iter().flatten().fold(deadline, Time::min))
    }

    /// The next decided entry to execute, if it is here (a large value with its bytes).
    /// After every step the host executes all of them: `while let Some(..) = executable() { ..; executed(..) }`.
    pub fn executable(&self) -> Option<(Instance, Executable)> {
        if self.over || self.halted().is_some() || self.panics.bug().is_some() {
            return None;
        }
        let (instance, value) = self.agreement.executable()?;
        let executable = match value {
            Value::Command(bytes) => Executable::Command(bytes.clone()),
            Value::Large { name, .. } => Executable::Large(*name, self.data.get(name)?),
            Value::Noop | Value::Config(_) | Value::Genesis(_) => Executable::Nothing,
        };
        Some((instance, executable))
    }

    /// The host has executed the entry that `executable` gave; `digest` is its state digest after it.
    pub fn executed(&mut self, now: Time, digest: u64, effects: &mut Vec<Effect>) {
        let Some((instance, value)) = self.agreement.executable() else { return };
        let changes = matches!(value, Value::Config(_));
        if let Value::Large { name, .. } = value {
            self.data.executed(name);
        }
        self.digest = digest;
        if instance.0.is_multiple_of(DIGEST_INTERVAL) {
            self.digests.insert(instance, digest);
            while self.digests.len() > DIGESTS_KEPT {
                self.digests.pop_first();
            }
        }
        let before = if changes { self.configuration().cloned() } else { None };
        if let Some(configuration) = self.agreement.executed() {
            self.note_removed(before, &configuration);
            self.configured(now, &configuration, effects);
        }
        self.note_vote(now, effects);
        if instance.0.is_multiple_of(TRIM_INTERVAL) || self.agreement.log().is_over() {
            self.trim_log(now);
        }
        self.eager = true;
    }

    /// The host has taken over a snapshot.
    pub fn install(&mut self, now: Time, position: Position, effects: &mut Vec<Effect>) {
        let donor = self.catching.snapshot.take();
        if position.executed < self.agreement.log().next() && self.agreement.schedule().is_some() {
            return;
        }
        let (cell, generation) = (position.cell, position.generation);
        self.digest = position.digest;
        self.agreement.install(position);
        self.data.unname(now);
        self.named |= self.is_named();
        self.joined(now, cell, generation, effects);
        self.dial_members(effects);
        self.catching.asked = None;
        // The donor has kept what follows; another may not have it any more.
        if let Some(donor) = donor {
            self.ask(now, donor, effects);
        }
        self.settle(now, effects);
    }

    /// The host gives up on a snapshot from that peer (it broke off, or is malformed).
    pub fn snapshot_failed(&mut self, _now: Time, from: SocketAddr, _effects: &mut Vec<Effect>) {
        if self.catching.snapshot == Some(from) {
            self.catching.snapshot = None;
            self.catching.asked = None;
        }
    }

    // ---- inputs ----

    fn start(&mut self, effects: &mut Vec<Effect>) {
        if self.started {
            return;
        }
        self.started = true;
        if self.settings.durable {
            effects.push(Effect::Persist(self.life(self.kept)));
        }
        for peer in self.settings.peers.clone() {
            self.dial(peer, effects);
        }
        self.dial_members(effects);
    }

    fn message(&mut self, now: Time, envelope: Envelope, effects: &mut Vec<Effect>) {
        let Envelope { cell, generation, from, sender, addressee, kept, message } = envelope;
        if addressee != self.settings.incarnation || from == self.settings.address {
            return;
        }
        if !self.same_cell(from, cell, generation, effects) {
            return;
        }
        self.dial(from, effects);
        let link = self.links.entry(from);
        if link.incarnation == sender {
            link.heard = Some(now);
            link.kept = link.kept.max(kept);
        } else {
            self.seek(from, sender, effects);
        }
        // Learning from another life of the asker that this replica obeys could join a cell that was given up.
        let believed = self.forming.as_ref().is_none_or(|forming| forming.believes(from, sender));
        let teaches = matches!(
            message,
            Message::Decided { .. } | Message::SnapshotPart { .. } | Message::Formed { .. }
        );
        if teaches && believed && self.agreement.schedule().is_none() && self.agreement.executable().is_none()
        {
            self.lineage = generation;
        }
        match message {
            Message::Collect { round, from: first } => self.collect(now, from, round, first, effects),
            Message::Last { round, executed, from: first, next, reports } => {
                let last = Last { round, executed, from: first, next, reports };
                self.last(now, from, sender, last, effects);
            }
            Message::Begin { round, sent, success, proposals } => {
                self.begin(now, from, round, sent, success, proposals, effects);
            }
            Message::Accept { round, sent, granted_micros, executed, instances } => {
                self.accept(sender, round, sent, granted_micros, executed, &instances);
            }
            Message::Success { round, upto } => self.agreement.success(round, upto, &mut self.records),
            Message::Refuse { refused, promised } => self.refused(now, refused, promised, effects),
            Message::Heartbeat(heartbeat) => self.heartbeat(now, from, sender, heartbeat, effects),
            Message::Grant { round, sent, granted_micros, executed } => {
                self.accept(sender, round, sent, granted_micros, executed, &[]);
            }
            Message::CatchUp { from: first } => self.catch_up_asked(from, first, effects),
            Message::Decided { entries, executed } if believed => {
                self.decided(now, from, entries, executed, effects)
            }
            Message::TooFar { first } if believed => self.too_far(from, first, effects),
            Message::SnapshotPart { .. } | Message::Decided { .. } | Message::TooFar { .. } if !believed => {}
            Message::Decided { .. } | Message::TooFar { .. } => {}
            Message::SnapshotAsk { .. } | Message::SnapshotPart { .. } => {
                effects.push(Effect::Snapshot(from, sender, message));
            }
            Message::Offer { name, length } => self.offered(now, from, name, length, effects),
            Message::Held { name } => {
                self.data.held_by(name, sender);
                self.eager = true;
            }
            Message::Fetch { name, offset } => self.fetch_asked(from, name, offset, effects),
            Message::Chunk { name, length, offset, bytes } => {
                self.chunk(now, from, name, length, offset, bytes, effects);
            }
            Message::Ask { nonce } => self.asked(from, sender, nonce, effects),
            Message::New { nonce } => self.answered_new(now, from, sender, nonce, effects),
            Message::Formed { genesis, .. } => {
                if believed
                    && self.agreement.schedule().is_none()
                    && self.agreement.log().next() == Instance(0)
                {
                    self.agreement.fix(genesis, &mut self.records);
                }
            }
            Message::Over { generation } => {
                if self.lineage != 0 && generation > self.lineage {
                    self.exit(ExitReason::Over(generation), effects);
                }
            }
            Message::Release { round } => self.lease.released(round),
        }
    }

    // ---- sending and settling ----

    fn send(&self, to: SocketAddr, message: Message, effects: &mut Vec<Effect>) {
        let Some(link) = self.links.get(to) else { return };
        if !link.up {
            return;
        }
        let envelope = Envelope {
            cell: self.agreement.cell,
            generation: self.lineage,
            from: self.settings.address,
            sender: self.settings.incarnation,
            addressee: link.incarnation,
            kept: self.kept_so_far(),
            message,
        };
        effects.push(Effect::Send(to, envelope));
    }

    /// Promises and accepts of this life, those of this step included: they are on disk before anything is sent.
    fn kept_so_far(&self) -> u64 {
        self.kept + self.records.iter().filter(|record| record.is_vote()).count() as u64
    }

    fn dial(&mut self, address: SocketAddr, effects: &mut Vec<Effect>) {
        if address != self.settings.address && self.links.get(address).is_none() {
            self.links.entry(address);
            effects.push(Effect::Dial(address));
        }
    }

    /// After every step: what was written is to be kept, what changed is told, and what must hold holds.
    fn settle(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.agreement.note_recovered();
        self.note_vote(now, effects);
        self.note_reign(now, effects);
        if let Some(instance) = self.agreement.conflict().filter(|_| !self.over) {
            self.exit(ExitReason::Conflict(instance), effects);
        }
        self.kept = self.kept_so_far();
        self.persist(effects);
        self.check();
    }

    fn check(&self) {
        assert!(
            self.agreement
                .proposer()
                .is_none_or(|proposer| proposer.round >= self.agreement.acceptor().promised())
        );
        assert!(self.reign.is_none() || self.agreement.proposer().is_some());
        assert!(self.forming.is_none() || self.agreement.schedule().is_none());
    }

    fn exit(&mut self, reason: ExitReason, effects: &mut Vec<Effect>) {
        self.over = true;
        self.agreement.step_down();
        if self.reign.take().is_some() {
            effects.push(Effect::Master(None));
        }
        effects.push(Effect::Exit(reason));
    }

    /// Random bits: the settings' entropy stirred by a count.
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        let mut bits = (self.settings.entropy as u64)
            ^ ((self.settings.entropy >> 64) as u64).rotate_left(17)
            ^ self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn silence_micros(&self) -> u64 {
        self.settings.unit_micros.saturating_mul(SILENCE_UNITS)
    }

    fn configuration_now(&self) -> Option<&Configuration> {
        self.agreement.current()
    }
}

/// What the host executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executable {
    /// Nothing for the application: a no-op or a change of members.
    Nothing,
    Command(Bytes),
    /// A large command and its name, which is checked and stands for it.
    Large(DataName, Bytes),
}

/// Units for which an agent that answered a master answers no other round's collect.
const GRANT_UNITS: u64 = 5;
/// Units of silence after which a peer counts as unreachable.
const SILENCE_UNITS: u64 = 4;
/// Instances between two state digests.
pub const DIGEST_INTERVAL: u64 = 64;
/// Digests kept to compare with those of slower peers.
const DIGESTS_KEPT: usize = 64;
/// Instances between two looks at what the log may drop.
const TRIM_INTERVAL: u64 = 256;
/// Addresses remembered as told to the log.
const TOLD_MAX: usize = 64;

const _: () = assert!(IN_BAND_MAX < crate::message::BATCH_BYTES_MAX);
