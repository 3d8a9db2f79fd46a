//! A few replicas on a network that a test can filter, with a clock of their own.

use bytes::Bytes;
use kumo_paxos::{
    CellId, Change, Effect, Envelope, Executable, ExitReason, Incarnation, Input, Instance, Message,
    Mutation, Note, Position, Record, Replica, Settings, Time,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::net::SocketAddr;

/// Whether a message passes: from, to, what.
pub type Filter = Box<dyn FnMut(u16, u16, &Message) -> bool>;

const UNIT_MICROS: u64 = 100_000;

/// A process: a replica, what it executed, and what it dials.
pub struct Process {
    pub replica: Replica,
    pub executed: Vec<(Instance, String)>,
    pub dials: BTreeSet<SocketAddr>,
    pub up: BTreeSet<SocketAddr>,
    /// Its disk, when it has one.
    pub records: Vec<Record>,
    /// The snapshot on it: what `records` are kept beside.
    snapshot: Option<Snapshot>,
    settings: Settings,
}

/// A position and the state there: the list of what was executed.
#[derive(Clone)]
struct Snapshot {
    position: Position,
    executed: Vec<(Instance, String)>,
}

#[derive(Default)]
pub struct World {
    pub now: u64,
    pub lives: u64,
    pub processes: BTreeMap<u16, Process>,
    pub wire: VecDeque<(SocketAddr, Envelope)>,
    pub cut: BTreeSet<(u16, u16)>,
    pub paused: BTreeSet<u16>,
    pub out: String,
    pub cell: Option<CellId>,
    /// Which messages pass; all when there is none.
    pub filter: Option<Filter>,
    /// Processes have disks.
    pub durable: bool,
    /// How long those without a cell listen before they form one.
    pub forms_after_micros: u64,
    /// No snapshot arrives.
    pub no_snapshot: bool,
    /// Executing that instance panics on that process.
    pub panic_at: BTreeSet<(u16, u64)>,
    /// What goes wrong on that process: it is part of the state, and of the digest, from then on.
    pub wrong: BTreeMap<u16, u64>,
    pub exits: Vec<(u16, ExitReason)>,
    /// That process is so many milliseconds away from all others.
    pub far: Option<(u16, u64)>,
    /// On the way to it and from it: when they arrive.
    pub late: VecDeque<(u64, SocketAddr, Envelope)>,
    /// The rule that all processes leave out.
    pub mutation: Option<Mutation>,
}

pub fn address(id: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], id))
}

impl World {
    pub fn start(&mut self, id: u16, peers: &[u16], extension: bool) {
        self.lives += 1;
        let settings = Settings {
            address: address(id),
            peers: peers.iter().filter(|peer| **peer != id).map(|peer| address(*peer)).collect(),
            extension,
            incarnation: Incarnation(u128::from(self.lives)),
            unit_micros: UNIT_MICROS,
            entropy: u128::from(self.lives) << 70 | 12345,
            durable: self.durable,
            forms_after_micros: self.forms_after_micros,
        };
        let replica = Replica::with_mutation(settings.clone(), Time(self.now), self.mutation);
        self.enter(id, replica, settings, Vec::new(), None);
    }

    /// Starts a process again with its disk, but for the last `lost` records on it.
    pub fn reopen(&mut self, id: u16, lost: usize) {
        let Process { mut records, snapshot, settings, .. } = self.processes.remove(&id).expect("it ran");
        self.relink();
        records.truncate(records.len() - lost);
        let (now, memory) = (Time(self.now), records.clone());
        let position = snapshot.as_ref().map(|snapshot| snapshot.position.clone());
        let replica = Replica::recover_with_mutation(settings.clone(), position, memory, now, self.mutation);
        self.enter(id, replica, settings, records, snapshot);
    }

    fn enter(
        &mut self,
        id: u16,
        replica: Replica,
        settings: Settings,
        records: Vec<Record>,
        snapshot: Option<Snapshot>,
    ) {
        let executed = snapshot.as_ref().map(|snapshot| snapshot.executed.clone()).unwrap_or_default();
        let (dials, up) = (BTreeSet::new(), BTreeSet::new());
        self.processes.insert(id, Process { replica, executed, dials, up, records, snapshot, settings });
        self.step(id, Input::Timeout);
    }

    /// Puts a snapshot on that process's disk: of the records before it stay those it names.
    pub fn compact(&mut self, id: u16) {
        let process = self.processes.get_mut(&id).expect("it runs");
        let position = process.replica.position().expect("it is in a cell");
        process.snapshot = Some(Snapshot { position, executed: process.executed.clone() });
        process.records = process.replica.memory_records();
    }

    pub fn step(&mut self, id: u16, input: Input) {
        let now = Time(self.now);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let mut effects = Vec::new();
        process.replica.step(now, input, &mut effects);
        while let Some((instance, executable)) = process.replica.executable() {
            if self.panic_at.contains(&(id, instance.0)) {
                process.replica.panicked(now, &mut effects);
                break;
            }
            if let Executable::Command(bytes) | Executable::Large(_, bytes) = executable {
                process.executed.push((instance, String::from_utf8_lossy(&bytes).into_owned()));
            }
            let wrong = self.wrong.get(&id).copied().unwrap_or(0);
            process.replica.executed(now, instance.0.wrapping_mul(31) + wrong, &mut effects);
        }
        for effect in effects {
            self.perform(id, effect);
        }
    }

    fn perform(&mut self, id: u16, effect: Effect) {
        match effect {
            Effect::Send(to, envelope) => self.wire.push_back((to, envelope)),
            Effect::Dial(to) => {
                self.processes.get_mut(&id).expect("it runs").dials.insert(to);
            }
            Effect::Hangup(to) => {
                let process = self.processes.get_mut(&id).expect("it runs");
                process.dials.remove(&to);
                if process.up.remove(&to) {
                    self.step(id, Input::PeerDown(to));
                }
            }
            Effect::TakeSnapshot(_) if self.no_snapshot => {}
            Effect::TakeSnapshot(from) => {
                // The host's part in one go.
                if let Some(position) = self.processes[&from.port()].replica.position() {
                    let part = Message::SnapshotPart { position, part: 0, last: true, bytes: Bytes::new() };
                    let part = self.envelope(from.port(), id, part);
                    self.step(id, Input::Message(part));
                }
            }
            Effect::Snapshot(from, _, Message::SnapshotPart { position, .. }) => {
                // This world's state is the list of what was executed.
                let executed = self.processes[&from.port()].executed.clone();
                let process = self.processes.get_mut(&id).expect("it runs");
                let mut effects = Vec::new();
                process.executed = executed;
                process.replica.install(Time(self.now), position, &mut effects);
                effects.into_iter().for_each(|effect| self.perform(id, effect));
            }
            Effect::Note(note) => self.note(id, &note),
            Effect::Changed(outcome) => {
                let text = outcome.map_or_else(|refusal| refusal.to_string(), |()| "done".to_owned());
                writeln!(self.out, "{id} changed: {text}").expect("a string");
            }
            Effect::Exit(reason) => {
                writeln!(self.out, "{id} exits: {reason}").expect("a string");
                assert!(!self.wrong.is_empty() || !matches!(reason, ExitReason::Differs(_)));
                self.exits.push((id, reason));
                self.processes.remove(&id);
            }
            Effect::Persist(record) => self.processes.get_mut(&id).expect("it runs").records.push(record),
            Effect::Snapshot(..) | Effect::Master(_) => {}
        }
    }

    fn note(&mut self, id: u16, note: &Note) {
        match note {
            Note::Formed(cell) => {
                self.cell = Some(*cell);
                writeln!(self.out, "{id} forms a cell")
            }
            Note::Joined { cell, generation } => {
                assert!(self.mutation.is_some() || Some(*cell) == self.cell, "one cell only");
                writeln!(self.out, "{id} joins generation {generation}")
            }
            Note::Voting => writeln!(self.out, "{id} votes"),
            Note::Leading(round) => writeln!(self.out, "{id} leads round {}", round.sequence),
            Note::SteppedDown(round) => writeln!(self.out, "{id} steps down from round {}", round.sequence),
            Note::Configuration { version, members } => {
                let members: Vec<String> =
                    members.iter().map(|m| format!("{}:{:?}", m.address.port(), m.role)).collect();
                writeln!(self.out, "{id} configuration {version}: {}", members.join(" "))
            }
            Note::MajorityForgot { remembering, voters } => {
                writeln!(self.out, "{id} says: {remembering} of {voters} remember")
            }
            Note::TakingSnapshot { from } => writeln!(self.out, "{id} takes a snapshot from {}", from.port()),
            Note::Stranger(peer) => writeln!(self.out, "{id} sees a stranger: {}", peer.port()),
            Note::Bug(instance) => writeln!(self.out, "{id} says: a bug at {}", instance.0),
            Note::MasterIs(_) | Note::NoMaster | Note::ForeignCell { .. } => Ok(()),
        }
        .expect("a string");
    }

    fn connected(&self, from: u16, to: u16) -> bool {
        self.processes.contains_key(&to) && !self.cut.contains(&(from, to))
    }

    fn relink(&mut self) {
        for id in self.processes.keys().copied().collect::<Vec<u16>>() {
            let process = &self.processes[&id];
            let (dials, up) = (process.dials.clone(), process.up.clone());
            for to in dials.union(&up).copied().collect::<Vec<SocketAddr>>() {
                let live = dials.contains(&to) && self.connected(id, to.port());
                if live && !up.contains(&to) && !self.paused.contains(&to.port()) {
                    let hello = self.processes[&to.port()].replica.hello();
                    let mine = self.processes[&id].replica.hello();
                    if self.processes[&to.port()].replica.greet(&mine).is_ok() {
                        self.processes.get_mut(&id).expect("it runs").up.insert(to);
                        self.step(id, Input::PeerUp(hello));
                    }
                } else if !live && up.contains(&to) {
                    self.processes.get_mut(&id).expect("it runs").up.remove(&to);
                    self.step(id, Input::PeerDown(to));
                }
            }
        }
    }

    pub fn run(&mut self, millis: u64) {
        let end = self.now + millis * 1000;
        while self.now < end {
            self.now += 1000;
            self.relink();
            for (to, envelope) in std::mem::take(&mut self.wire) {
                match self.far.filter(|(far, _)| [to.port(), envelope.from.port()].contains(far)) {
                    Some((_, millis)) => self.late.push_back((self.now + millis * 1000, to, envelope)),
                    None => self.deliver(to, envelope),
                }
            }
            while let Some((_, to, envelope)) = self.late.pop_front_if(|(due, ..)| *due <= self.now) {
                self.deliver(to, envelope);
            }
            for id in self.processes.keys().copied().collect::<Vec<u16>>() {
                while !self.paused.contains(&id)
                    && self
                        .processes
                        .get(&id)
                        .is_some_and(|p| p.replica.deadline().is_some_and(|deadline| deadline.0 <= self.now))
                {
                    self.step(id, Input::Timeout);
                }
            }
        }
    }

    fn deliver(&mut self, to: SocketAddr, envelope: Envelope) {
        let known = self.processes.get(&envelope.from.port()).is_some_and(|p| p.up.contains(&to));
        let arrives =
            known && self.connected(envelope.from.port(), to.port()) && !self.paused.contains(&to.port());
        let filter = &mut self.filter;
        let mut passes = |message: &Message| {
            filter.as_mut().is_none_or(|filter| filter(envelope.from.port(), to.port(), message))
        };
        if arrives && passes(&envelope.message) {
            self.step(to.port(), Input::Message(envelope));
        }
    }

    pub fn command(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<u16>().expect("a number");
        match words.as_slice() {
            ["start", ids @ ..] => {
                let ids: Vec<u16> = ids.iter().map(|id| number(id)).collect();
                ids.iter().for_each(|id| self.start(*id, &ids, false));
            }
            ["restart", id, "knowing", ids @ ..] => {
                self.processes.remove(&number(id));
                self.relink();
                let ids: Vec<u16> = ids.iter().map(|id| number(id)).collect();
                self.start(number(id), &ids, false);
            }
            ["extension", id, "knowing", ids @ ..] => {
                let ids: Vec<u16> = ids.iter().map(|id| number(id)).collect();
                self.start(number(id), &ids, true);
            }
            ["reopen", id, "without", lost] => self.reopen(number(id), usize::from(number(lost))),
            ["crash", id] => {
                self.processes.remove(&number(id));
            }
            ["pause", id] => {
                self.paused.insert(number(id));
            }
            ["resume", id] => {
                self.paused.remove(&number(id));
            }
            ["cut", a, b] => {
                self.cut.extend([(number(a), number(b)), (number(b), number(a))]);
            }
            ["heal"] => self.cut.clear(),
            ["run", millis] => self.run(millis.parse().expect("milliseconds")),
            ["propose", id, text] => {
                self.step(number(id), Input::Propose(Bytes::copy_from_slice(text.as_bytes()).into()));
            }
            ["large", id, kilobytes] => {
                let bytes = vec![b'x'; usize::from(number(kilobytes)) * 1024];
                self.step(number(id), Input::Propose(Bytes::from(bytes).into()));
            }
            ["add", id, new] => self.step(number(id), Input::Change(Change::Add(address(number(new))))),
            ["promote", id, new] => {
                self.step(number(id), Input::Change(Change::Promote(address(number(new)))))
            }
            ["remove", id, old] => self.step(number(id), Input::Change(Change::Remove(address(number(old))))),
            ["replace", id, old, new] => {
                let change = Change::Replace { old: address(number(old)), new: address(number(new)) };
                self.step(number(id), Input::Change(change));
            }
            ["recover", id] => self.step(number(id), Input::Change(Change::Recover)),
            ["transfer", id] => self.step(number(id), Input::StepDown),
            ["show"] => self.show(),
            words => panic!("unknown command {words:?}"),
        }
    }

    /// Several commands in a row.
    pub fn commands(&mut self, lines: &str) {
        lines.split(';').map(str::trim).filter(|line| !line.is_empty()).for_each(|line| self.command(line));
    }

    /// A message as `from` would address it to `to`.
    pub fn envelope(&self, from: u16, to: u16, message: Message) -> Envelope {
        let hello = self.processes[&from].replica.hello();
        let addressee = self.processes[&to].replica.hello().incarnation;
        let (cell, generation, from, sender) =
            (hello.cell, hello.generation, hello.address, hello.incarnation);
        Envelope { cell, generation, from, sender, addressee, kept: 0, message }
    }

    pub fn master(&self) -> Option<u16> {
        self.processes.iter().find(|(_, process)| process.replica.is_master().is_some()).map(|(id, _)| *id)
    }

    fn show(&mut self) {
        for (id, process) in &self.processes {
            let texts: Vec<String> = process.executed.iter().map(|(_, text)| shorten(text)).collect();
            let master =
                process.replica.master().map_or("nobody".to_owned(), |master| master.port().to_string());
            let lease = if process.replica.has_lease(Time(self.now)) { ", holds the lease" } else { "" };
            writeln!(self.out, "{id}: [{}] master {master}{lease}", texts.join(" ")).expect("a string");
        }
    }
}

fn shorten(text: &str) -> String {
    if text.len() > 32 { format!("{}KB", text.len() / 1024) } else { text.to_owned() }
}
