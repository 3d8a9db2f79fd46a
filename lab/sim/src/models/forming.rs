//! [`Founding`]: three replicas that know nothing become a cell. The model of [`Forming`]: who asks, who answers, what
//! arrives late from processes that are gone.

use super::shared::Shared;
use kumo_paxos::{CellId, Forming, Genesis, Incarnation};
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Replicas before there is a cell.
#[derive(Clone, Debug)]
pub struct Founding {
    /// Memories lost.
    pub crashes: usize,
    /// Everybody who hears "new" from all others forms a cell.
    pub symmetric: bool,
}

/// One process at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Member {
    New(Forming),
    /// Belongs to a cell.
    Of(Genesis),
}

/// What is on its way, for ever: it may arrive at any time, and again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    Ask {
        nonce: u64,
    },
    New {
        nonce: u64,
    },
    /// An entry 0, from who formed the cell or from anyone who has it.
    Formed(Genesis),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Envelope {
    pub from: (usize, Incarnation),
    /// A message names its addressee's incarnation.
    pub to: (usize, Incarnation),
    pub word: Word,
}

/// Where the founding is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub members: Vec<(Incarnation, Shared<Member>)>,
    pub network: BTreeSet<Shared<Envelope>>,
    /// Who ever belonged to which cell, also if gone since.
    pub belonged: BTreeMap<CellId, (Genesis, BTreeSet<Incarnation>)>,
    pub crashes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Ask {
        asker: usize,
        asked: usize,
    },
    /// With all answers it forms the cell.
    Form(usize),
    /// Tells of its cell.
    Tell {
        from: usize,
        to: usize,
    },
    Deliver(Shared<Envelope>),
    Crash(usize),
}

impl Founding {
    fn start(&self, place: usize, life: usize) -> (Incarnation, Shared<Member>) {
        // Every life draws another incarnation and another nonce.
        let number = life * REPLICAS + place + 1;
        let incarnation = Incarnation(number as u128);
        let peers: Vec<SocketAddr> = (0..REPLICAS).map(address).collect();
        let forming = Forming::new(address(place), incarnation, &peers, number as u64, self.symmetric);
        (incarnation, Shared::new(Member::New(forming)))
    }
}

impl Place {
    fn send(&mut self, from: usize, to: usize, word: Word) {
        let ends = |place: usize| (place, self.members[place].0);
        let envelope = Envelope { from: ends(from), to: ends(to), word };
        self.network.insert(Shared::new(envelope));
    }

    fn join(&mut self, place: usize, genesis: Genesis) {
        let incarnation = self.members[place].0;
        let cell = self.belonged.entry(genesis.cell).or_insert_with(|| (genesis.clone(), BTreeSet::new()));
        cell.1.insert(incarnation);
        self.members[place].1 = Shared::new(Member::Of(genesis));
    }

    /// A member's own doing: only who is new has a [`Forming`].
    fn form<T>(&mut self, place: usize, work: impl FnOnce(&mut Forming) -> T) -> Option<T> {
        let Member::New(forming) = &*self.members[place].1 else { return None };
        let mut forming = forming.clone();
        let result = work(&mut forming);
        self.members[place].1 = Shared::new(Member::New(forming));
        Some(result)
    }

    fn deliver(&mut self, envelope: &Envelope) {
        let ((from, sender), (to, addressee)) = (envelope.from, envelope.to);
        if self.members[to].0 != addressee {
            return;
        }
        match &envelope.word {
            Word::Ask { nonce } => {
                if self.form(to, |forming| forming.asked(address(from), sender)) == Some(true) {
                    let word = Word::New { nonce: *nonce };
                    let answer = Envelope { from: envelope.to, to: envelope.from, word };
                    self.network.insert(Shared::new(answer));
                }
            }
            Word::New { nonce } => {
                self.form(to, |forming| forming.answered(address(from), sender, *nonce));
            }
            Word::Formed(genesis) => {
                if self.form(to, |forming| forming.believes(address(from), sender)) == Some(true) {
                    self.join(to, genesis.clone());
                }
            }
        }
    }

    /// Of the cells that ever had a majority of the members they were formed with, at most one is remembered. (When all
    /// who knew a cell have forgotten it, another may be formed.)
    pub fn one_cell(&self) -> bool {
        let lives = |incarnation| self.members.iter().any(|(living, _)| *living == incarnation);
        let majorities = self.belonged.values().filter(|(genesis, belonged)| {
            genesis.configuration.majority(|incarnation| belonged.contains(&incarnation))
                && belonged.iter().any(|incarnation| lives(*incarnation))
        });
        majorities.count() <= 1
    }
}

impl Model for Founding {
    type State = Place;
    type Action = Step;

    fn init_states(&self) -> Vec<Place> {
        let members = (0..REPLICAS).map(|place| self.start(place, 0)).collect();
        vec![Place { members, network: BTreeSet::new(), belonged: BTreeMap::new(), crashes: 0 }]
    }

    fn actions(&self, state: &Place, steps: &mut Vec<Step>) {
        for (place, (_, member)) in state.members.iter().enumerate() {
            let others = (0..REPLICAS).filter(|other| *other != place);
            match &**member {
                Member::New(forming) => {
                    if forming.asks().is_some() {
                        steps.extend(others.map(|asked| Step::Ask { asker: place, asked }));
                    }
                    if forming.formed(CellId(1)).is_some() {
                        steps.push(Step::Form(place));
                    }
                }
                Member::Of(_) => steps.extend(others.map(|to| Step::Tell { from: place, to })),
            }
            if state.crashes < self.crashes {
                steps.push(Step::Crash(place));
            }
        }
        steps.extend(state.network.iter().cloned().map(Step::Deliver));
    }

    fn next_state(&self, state: &Place, step: Step) -> Option<Place> {
        let mut next = state.clone();
        match step {
            Step::Ask { asker, asked } => {
                let nonce = next.form(asker, |forming| forming.asks())??;
                next.send(asker, asked, Word::Ask { nonce });
            }
            Step::Form(place) => {
                let cell = CellId(state.members[place].0.0);
                let genesis = next.form(place, |forming| forming.formed(cell))??;
                for to in (0..REPLICAS).filter(|to| *to != place) {
                    next.send(place, to, Word::Formed(genesis.clone()));
                }
                next.join(place, genesis);
            }
            Step::Tell { from, to } => {
                let Member::Of(genesis) = &*state.members[from].1 else { return None };
                next.send(from, to, Word::Formed(genesis.clone()));
            }
            Step::Deliver(envelope) => next.deliver(&envelope),
            Step::Crash(place) => {
                next.crashes += 1;
                next.members[place] = self.start(place, next.crashes);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Founding>> {
        vec![Property::always(ONE_CELL, |_, state: &Place| state.one_cell())]
    }
}

/// No two cells that had a majority are remembered.
pub const ONE_CELL: &str = "one cell";

const REPLICAS: usize = 3;

fn address(place: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 19700 + place as u16))
}
