//! [`State`]: the processes of a cell, what is on its way between them, and what was ever decided. The processes
//! are real [`Agreement`]s; everything here only carries their words to each other.

use super::shared::Shared;
use bytes::Bytes;
use kumo_paxos::{
    Agreement, CellId, Configuration, Genesis, Incarnation, Instance, Last, Member, Message, Proposal,
    Record, ReplicaId, Role, Round, Time, Value,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// One process: an incarnation of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub id: ReplicaId,
    pub standing: Standing,
    pub agreement: Agreement,
}

/// A pause needs no word of its own: a process that takes no step is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    Running,
    /// Its memory is gone.
    Crashed,
    /// Replaced or removed, it went by its own decision.
    Left,
}

/// A message on its way. A set of letters is a network that loses (never delivers), delays and reorders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Letter {
    pub from: usize,
    pub to: usize,
    pub message: Message,
}

/// Where a cell is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub processes: Vec<Shared<Process>>,
    /// In order, none twice.
    pub network: Vec<Shared<Letter>>,
    /// What was decided by anyone, also by processes gone since. A second value is what must never be.
    pub decided: Shared<BTreeMap<Instance, BTreeSet<Value>>>,
    /// Who raised rounds, in order of place.
    pub raised: Vec<usize>,
    pub crashes: u8,
    /// Proposers lack the bytes of what they propose, so they do not accept it themselves.
    pub withheld: bool,
}

impl State {
    /// A formed cell of `voters`, everyone having executed the genesis, and learners that know nothing yet.
    pub fn formed(
        voters: u32,
        newcomers: &[u32],
        window: u64,
        fresh: impl Fn(Incarnation) -> Agreement,
    ) -> State {
        let members = (0..voters).map(|id| member(ReplicaId(id), incarnation(id as usize))).collect();
        let configuration = Configuration { version: 1, next_id: ReplicaId(voters), members };
        let genesis = Genesis { cell: CellId(1), generation: 1, window, configuration };
        let ids = (0..voters).chain(newcomers.iter().copied());
        let processes = ids.enumerate().map(|(index, id)| {
            let mut agreement = fresh(incarnation(index));
            if index < voters as usize {
                agreement.fix(genesis.clone(), &mut Vec::new());
                agreement.executed();
            }
            Shared::new(Process { id: ReplicaId(id), standing: Standing::Running, agreement })
        });
        State {
            processes: processes.collect(),
            network: Vec::new(),
            decided: Shared::new(BTreeMap::new()),
            raised: Vec::new(),
            crashes: 0,
            withheld: false,
        }
    }

    pub fn agreement(&self, index: usize) -> &Agreement {
        &self.processes[index].agreement
    }

    pub fn running(&self) -> impl Iterator<Item = (usize, &Process)> {
        let all = self.processes.iter().enumerate().map(|(index, process)| (index, &**process));
        all.filter(|(_, process)| process.standing == Standing::Running)
    }

    /// At most one value per instance, by what was decided anywhere and by what any process was told.
    pub fn agrees(&self) -> bool {
        self.processes.iter().all(|process| process.agreement.conflict().is_none())
            && self.decided.values().all(|values| values.len() == 1)
    }

    // ---- what a process does by itself ----

    pub fn raise(&mut self, index: usize) {
        self.raised.push(index);
        self.raised.sort_unstable();
        self.step(index, None, |process, records| {
            process.agreement.raise(process.id, Round::default(), records);
        });
    }

    /// The master puts up a value.
    pub fn propose(&mut self, index: usize, value: Value) {
        self.step(index, Some(value), |_, _| {});
    }

    pub fn leave(&mut self, index: usize) {
        self.step(index, None, |process, _| process.standing = Standing::Left);
    }

    /// The memory is lost; the replica comes back as another incarnation that knows nothing.
    pub fn crash(&mut self, index: usize, fresh: impl Fn(Incarnation) -> Agreement) {
        self.crashes += 1;
        self.step(index, None, |process, _| process.standing = Standing::Crashed);
        let (id, agreement) = (self.processes[index].id, fresh(incarnation(self.processes.len())));
        self.processes.push(Shared::new(Process { id, standing: Standing::Running, agreement }));
    }

    /// The unsafe restarts: the same incarnation goes on with another memory.
    pub fn restart(&mut self, index: usize, agreement: Agreement) {
        self.crashes += 1;
        self.step(index, None, |process, _| process.agreement = agreement);
    }

    // ---- what passes between two ----

    /// The agent gets the proposer's collect, and answers it. An answer that is asked for again takes the place of the
    /// first unless letters are kept: only one of them is taken in. `as_asked` leaves out that a last starts
    /// above what its sender has executed.
    pub fn collect(&mut self, proposer: usize, agent: usize, keep: bool, as_asked: bool) {
        let collects = self.agreement(proposer).collects();
        let me = self.agreement(agent).me();
        let Some((_, Message::Collect { round, from })) =
            collects.into_iter().find(|(voter, _)| *voter == me)
        else {
            return;
        };
        let answer =
            self.step(agent, None, |process, records| process.agreement.collect(round, from, records));
        let Some(Message::Last { round, executed, from: first, next, reports }) = answer else { return };
        if !keep {
            self.network.retain(|letter| {
                (letter.from, letter.to) != (agent, proposer)
                    || !matches!(letter.message, Message::Last { .. })
            });
        }
        let from = if as_asked { from } else { first };
        self.send(agent, proposer, Message::Last { round, executed, from, next, reports });
    }

    /// The proposer tells the agent how far decisions reach.
    pub fn success(&mut self, proposer: usize, agent: usize) {
        let Some(round) = self.agreement(proposer).proposer().map(|proposer| proposer.round) else { return };
        let upto = self.agreement(proposer).log().decided_upto();
        self.step(agent, None, |process, records| process.agreement.success(round, upto, records));
    }

    /// Catch-up: decided entries of one process told to another.
    pub fn learn(&mut self, index: usize, from: usize, upto: Instance) {
        let next = self.agreement(index).log().next();
        let log = self.agreement(from).log();
        let entries = (next.0..=upto.0).filter_map(|instance| {
            let instance = Instance(instance);
            log.get(instance).map(|value| Proposal { instance, value: value.clone() })
        });
        let entries = entries.collect();
        self.step(index, None, |process, records| process.agreement.decided(entries, records));
    }

    /// One letter arrives. Unless letters are kept (to arrive again), it is taken from the network when it had its
    /// effect.
    pub fn deliver(&mut self, letter: &Shared<Letter>, keep: bool) {
        let (from, to) = (letter.from, letter.to);
        let sender = self.agreement(from).me();
        let done = match letter.message.clone() {
            Message::Last { round, executed, from, next, reports } => {
                let last = Last { round, executed, from, next, reports };
                self.step(to, None, |process, records| process.agreement.last(sender, last, records));
                true
            }
            Message::Begin { round, proposals, .. } => {
                let answer = self.step(to, None, |process, records| {
                    process.agreement.begin(round, proposals, |_| true, records)
                });
                let instances = answer.unwrap_or_default();
                let answered = !instances.is_empty();
                if answered {
                    self.send(to, from, accept(round, instances));
                }
                answered
            }
            Message::Accept { round, instances, .. } => {
                self.step(to, None, |process, records| {
                    process.agreement.accept(sender, round, &instances, records)
                });
                true
            }
            other => unreachable!("only answers and begins are letters: {other:?}"),
        };
        if done && !keep {
            self.network.retain(|other| other != letter);
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let letter = Shared::new(Letter { from, to, message });
        if let Err(place) = self.network.binary_search(&letter) {
            self.network.insert(place, letter);
        }
    }

    /// One process does `work`, and then what a replica does by itself after every step: it executes what is decided,
    /// and begins what it may, `value` included.
    fn step<T>(
        &mut self,
        index: usize,
        value: Option<Value>,
        work: impl FnOnce(&mut Process, &mut Vec<Record>) -> T,
    ) -> T {
        let mut process = Process::clone(&self.processes[index]);
        let mut records = Vec::new();
        let result = work(&mut process, &mut records);
        let mut queue = VecDeque::from_iter(value);
        loop {
            let agreement = &mut process.agreement;
            while agreement.executable().is_some() {
                agreement.executed();
            }
            agreement.note_recovered();
            let begun = agreement.pump(&mut queue, |_| !self.withheld, &mut records);
            if begun.is_empty() {
                break;
            }
            self.send_begins(index, agreement, &begun);
        }
        self.processes[index] = Shared::new(process);
        for record in records {
            if let Record::Decided { instance, value } = record
                && instance > Instance(0)
                && self.decided.get(&instance).is_none_or(|known| !known.contains(&value))
            {
                self.decided = self.decided.with(|decided| {
                    decided.entry(instance).or_default().insert(value);
                });
            }
        }
        result
    }

    fn send_begins(&mut self, from: usize, agreement: &Agreement, begun: &[Instance]) {
        for to in (0..self.processes.len()).filter(|to| *to != from) {
            for instance in begun {
                for message in agreement.begin_messages(incarnation(to), &[*instance], Time(0)) {
                    let Message::Begin { round, proposals, .. } = message else { continue };
                    // Success is told by itself here.
                    self.send(
                        from,
                        to,
                        Message::Begin { round, sent: Time(0), success: Instance(0), proposals },
                    );
                }
            }
        }
    }

    /// Forgets letters that cannot have an effect any more: to the dead, of rounds that are over for the addressee,
    /// counted already; and begins of executed instances that nobody waits for, whose only effect would be a
    /// promise, which is as if a collect had come.
    pub fn prune(&mut self) {
        let mut network = std::mem::take(&mut self.network);
        network.retain(|letter| self.matters(letter));
        self.network = network;
    }

    fn matters(&self, letter: &Letter) -> bool {
        let to = &self.processes[letter.to];
        if to.standing != Standing::Running {
            return false;
        }
        let leads = |index: usize, round: Round| {
            self.agreement(index).proposer().filter(|proposer| proposer.round == round)
        };
        let sender = self.agreement(letter.from).me();
        match &letter.message {
            Message::Last { round, .. } => {
                leads(letter.to, *round).is_some_and(|proposer| !proposer.complete(sender))
            }
            Message::Accept { round, instances, .. } => leads(letter.to, *round).is_some_and(|proposer| {
                instances.iter().any(|instance| {
                    proposer.open().get(instance).is_some_and(|open| !open.accepted.contains(&sender))
                })
            }),
            Message::Begin { round, proposals, .. } => {
                let log = to.agreement.log();
                let open = |instance| {
                    leads(letter.from, *round).is_some_and(|proposer| proposer.open().contains_key(instance))
                };
                to.agreement.acceptor().promised() <= *round
                    && proposals.iter().any(|begun| !log.is_decided(begun.instance) || open(&begun.instance))
            }
            other => unreachable!("only answers and begins are letters: {other:?}"),
        }
    }

    // ---- the cell as a whole ----

    /// The running process that has executed most. Everyone else can learn from it.
    pub fn foremost(&self) -> Option<&Process> {
        let known = self
            .running()
            .map(|(_, process)| process)
            .filter(|process| process.agreement.schedule().is_some());
        known.max_by_key(|process| process.agreement.log().next())
    }

    /// Whether the next instance can still be decided: a majority of its voters runs. Of those, a newcomer that does
    /// not vote yet will: whatever it lacks, the foremost has.
    pub fn next_has_live_majority(&self) -> bool {
        let Some(foremost) = self.foremost() else { return true };
        let runs = |voter| self.running().any(|(_, process)| process.agreement.me() == voter);
        foremost.agreement.current().is_some_and(|configuration| configuration.majority(runs))
    }

    /// Every configuration that decides something from the next instance on, and those that may yet be scheduled.
    pub fn configurations(&self) -> Vec<Configuration> {
        let Some(schedule) = self.foremost().and_then(|foremost| foremost.agreement.schedule()) else {
            return Vec::new();
        };
        let mut all: Vec<Configuration> =
            schedule.entries.iter().map(|(_, scheduled)| scheduled.clone()).collect();
        let version = schedule.latest().version;
        let begun = self.network.iter().filter_map(|letter| {
            let Message::Begin { proposals, .. } = &letter.message else { return None };
            Some(proposals.iter().map(|begun| &begun.value))
        });
        let accepted = self.running().flat_map(|(_, process)| {
            process.agreement.acceptor().accepted_from(Instance(0)).map(|(_, (_, value))| value)
        });
        for value in begun.flatten().chain(accepted) {
            if let Value::Config(configuration) = value
                && configuration.version > version
                && !all.contains(configuration)
            {
                all.push(configuration.clone());
            }
        }
        all
    }

    /// Whether at most f of the 2f + 1 replicas of every configuration are down or not voting yet.
    pub fn within_budget(&self) -> bool {
        self.configurations().iter().all(|configuration| {
            let down = configuration.voters().filter(|member| self.is_down(member)).count();
            down <= (configuration.voters().count() - 1) / 2
        })
    }

    /// A replica is down until some incarnation of it votes. One that left did so because it is not needed.
    fn is_down(&self, member: &Member) -> bool {
        let mut lives = self.processes.iter().filter(|process| process.id == member.id);
        !lives.any(|process| match process.standing {
            Standing::Running => process.agreement.votes(),
            Standing::Crashed => false,
            Standing::Left => true,
        })
    }
}

/// The process at that place in [`State::processes`].
pub fn incarnation(index: usize) -> Incarnation {
    Incarnation(index as u128 + 1)
}

pub fn member(id: ReplicaId, incarnation: Incarnation) -> Member {
    let address = SocketAddr::from(([127, 0, 0, 1], 19700 + id.0 as u16));
    Member { id, address, incarnation, role: Role::Core }
}

/// What a master proposes: another value every time it became one.
pub fn command(index: usize, raised: usize) -> Value {
    Value::Command(Bytes::from(format!("{index}-{raised}")))
}

fn accept(round: Round, instances: Vec<Instance>) -> Message {
    Message::Accept { round, sent: Time(0), granted_micros: 0, executed: Instance(0), instances }
}
