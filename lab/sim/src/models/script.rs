//! [`Script`]: a schedule written by hand, for cells too large to search. Every step must be one that the model
//! allows, so a script shows nothing that a search could not find.

use super::cell::{Action, Cell};
use super::shared::Shared;
use super::state::{Letter, State};
use kumo_paxos::{Instance, Message, Round, Value};
use stateright::Model;

/// A cell and where it is.
pub struct Script {
    pub cell: Cell,
    pub state: State,
}

impl Script {
    pub fn new(cell: Cell) -> Script {
        let state = cell.init_states().remove(0);
        Script { cell, state }
    }

    /// Takes a step.
    pub fn act(&mut self, action: Action) {
        let mut allowed = Vec::new();
        self.cell.actions(&self.state, &mut allowed);
        assert!(allowed.contains(&action), "not a step of the model: {action:?}\nallowed: {allowed:#?}");
        self.state = self.cell.next_state(&self.state, action).expect("every step leads somewhere");
    }

    pub fn allows(&self, wanted: impl Fn(&Action) -> bool) -> bool {
        let mut allowed = Vec::new();
        self.cell.actions(&self.state, &mut allowed);
        allowed.iter().any(wanted)
    }

    pub fn raise(&mut self, process: usize) {
        self.act(Action::Raise(process));
    }

    /// These agents answer the proposer's collect, and it hears them.
    pub fn collect(&mut self, proposer: usize, agents: &[usize]) {
        for agent in agents {
            self.promise(proposer, *agent);
            self.last(*agent, proposer);
        }
    }

    /// The agent answers the proposer's collect; the answer is on its way.
    pub fn promise(&mut self, proposer: usize, agent: usize) {
        self.act(Action::Collect { proposer, agent });
    }

    /// The newest answer arrives.
    pub fn last(&mut self, from: usize, to: usize) {
        self.deliver(from, to, |message| matches!(message, Message::Last { .. }));
    }

    pub fn propose(&mut self, master: usize) {
        self.act(Action::Propose(master));
    }

    /// The master swaps the replica's incarnation for that process.
    pub fn readmit(&mut self, master: usize, newcomer: usize) {
        let mut allowed = Vec::new();
        self.cell.actions(&self.state, &mut allowed);
        let me = self.state.agreement(newcomer).me();
        let change = allowed.into_iter().find(|action| {
            let Action::Change(who, configuration) = action else { return false };
            *who == master && configuration.is_voter(me)
        });
        self.act(change.expect("the master may make that change"));
    }

    /// The begin of an instance reaches these agents, and their accepts the master.
    pub fn decide(&mut self, master: usize, instance: u64, agents: &[usize]) {
        for agent in agents {
            self.accept(master, instance, *agent);
            self.accepted(*agent, instance, master);
        }
    }

    /// The begin of an instance reaches an agent; its accept is on its way.
    pub fn accept(&mut self, master: usize, instance: u64, agent: usize) {
        self.deliver(master, agent, |message| {
            let Message::Begin { proposals, .. } = message else { return false };
            proposals.iter().any(|proposal| proposal.instance == Instance(instance))
        });
    }

    pub fn accepted(&mut self, agent: usize, instance: u64, master: usize) {
        self.deliver(agent, master, |message| {
            let Message::Accept { instances, .. } = message else { return false };
            instances.contains(&Instance(instance))
        });
    }

    /// The process learns everything that another has decided, up to `upto`.
    pub fn learn(&mut self, process: usize, from: usize, upto: u64) {
        while self.state.agreement(process).log().next() <= Instance(upto) {
            let before = self.state.agreement(process).log().next();
            let mut allowed = Vec::new();
            self.cell.actions(&self.state, &mut allowed);
            let step = allowed.into_iter().find(|action| {
                let Action::Learn { process: who, from: whom, .. } = action else { return false };
                (*who, *whom) == (process, from)
            });
            self.act(step.expect("there is something to learn"));
            assert!(self.state.agreement(process).log().next() > before, "nothing was learnt");
        }
    }

    /// The values decided on an instance by anyone.
    pub fn decided(&self, instance: u64) -> Vec<Value> {
        self.state.decided.get(&Instance(instance)).into_iter().flatten().cloned().collect()
    }

    /// The letter of the strongest round among those wanted.
    fn deliver(&mut self, from: usize, to: usize, wanted: impl Fn(&Message) -> bool) {
        let between =
            |letter: &&Shared<Letter>| (letter.from, letter.to) == (from, to) && wanted(&letter.message);
        let letters = self.state.network.iter().filter(between);
        let letter = letters.max_by_key(|letter| round(&letter.message)).cloned();
        let letter = letter.unwrap_or_else(|| panic!("no such letter from {from} to {to}"));
        self.act(Action::Deliver(letter));
    }
}

fn round(message: &Message) -> Option<Round> {
    let (Message::Last { round, .. } | Message::Begin { round, .. } | Message::Accept { round, .. }) =
        message
    else {
        return None;
    };
    Some(*round)
}
