//! [`Tale`]: the model. What may happen from a [`State`], and what must hold in every one.

use super::chapter::{Chapter, Life, When, key, server};
use super::disk::Disk;
use super::node::Node;
use super::state::{Ask, From, Letter, State};
use crate::models::shared::Shared;
use crate::store::history::Call;
use kumo_cluster::{
    Arc, Broken, Clock, Kind, Mutation, Operation, Record, ServerInput, Space, SpaceNumber, Stamp, Store,
    Table,
};
use stateright::{Model, Property};
use std::collections::BTreeSet;

/// Some servers, the spaces that will be, and what is asked.
#[derive(Clone, Debug)]
pub struct Tale {
    pub plot: Plot,
    /// Done before it begins, one after the other.
    pub before: Vec<Operation>,
    /// What each caller asks, one after the other.
    pub callers: Vec<Vec<Operation>>,
    /// First tries of every write whose answers get lost.
    pub deaf: u8,
    /// Tries of every call.
    pub tries: u8,
    /// Who comes with an old record of the key, from a life before.
    pub stale: &'static [u8],
    /// Who reads are sent to; all readers, if nobody is named.
    pub read_at: &'static [u8],
    /// How often servers look at what is due.
    pub ticks: u8,
    /// How often they may be restarted.
    pub restarts: u8,
    /// Letters between servers that arrive twice.
    pub echoes: u8,
    pub mutation: Option<Mutation>,
}

/// How many servers there are, and the spaces they see.
#[derive(Clone, Debug)]
pub struct Plot {
    servers: u8,
    chapters: Vec<Chapter>,
    /// The space of each chapter, and the key's arc in it.
    scenes: Vec<(Space, Arc)>,
}

/// One step. Servers by their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Publish,
    Adopt {
        server: usize,
        space: u64,
    },
    Deliver(Shared<Letter>),
    /// It arrives, and will again.
    Echo(Shared<Letter>),
    Watermarks(usize),
    LeaseOver(usize),
    Send {
        ask: usize,
        to: usize,
        space: u64,
        deaf: bool,
    },
    Restart(usize),
    Tick(usize),
}

/// No read shows what another order of the calls would not.
pub const LINEAR: &str = "the answers fit one order of the calls";
/// Where nothing is under way.
pub const EQUAL: &str = "all owners hold the same";

impl Tale {
    pub fn new(servers: u8, chapters: Vec<Chapter>) -> Tale {
        let spaces = (1..).zip(&chapters).map(|(number, chapter)| chapter.space(number));
        let scenes: Vec<(Space, Arc)> =
            spaces.map(|space| (space.clone(), Table::new(&space).arc(key().hash).clone())).collect();
        Tale {
            plot: Plot { servers, chapters, scenes },
            before: Vec::new(),
            callers: Vec::new(),
            deaf: 0,
            tries: 2,
            stale: &[],
            read_at: &[],
            ticks: 0,
            restarts: 0,
            echoes: 0,
            mutation: None,
        }
    }

    fn scene(&self, number: u64) -> &(Space, Arc) {
        &self.plot.scenes[number as usize - 1]
    }

    fn broken(&self) -> Broken {
        Broken(self.mutation)
    }

    /// Everybody is in the first space, and what was asked before is done.
    fn begin(&self) -> State {
        let mut state = State {
            nodes: (0..self.plot.servers).map(|place| Shared::new(self.node((place, 1)))).collect(),
            letters: BTreeSet::new(),
            published: 1,
            asks: Vec::new(),
            events: 0,
            ticks: 0,
            restarts: 0,
            echoes: 0,
            wrong: None,
        };
        for place in 0..state.nodes.len() {
            self.introduce(&mut state, place);
            state.step(place, |node| node.adopt(self.scene(1).0.clone()));
        }
        self.quiet(&mut state);
        let primary = self.plot.chapters[0].rhs.iter().map(|life| usize::from(life.0)).min().unwrap_or(0);
        for operation in &self.before {
            state.asks.push(Ask::new(call(usize::MAX, operation)));
            state.request(state.asks.len() - 1, primary, 1, false);
            self.quiet(&mut state);
        }
        for (caller, operations) in self.callers.iter().enumerate() {
            state.asks.extend(operations.iter().map(|operation| Ask::new(call(caller, operation))));
        }
        state
    }

    fn node(&self, life: Life) -> Node {
        let disk = Disk::default();
        if self.stale.contains(&life.0) {
            let stamp = Stamp { space: SpaceNumber(0), clock: Clock(99) };
            let data = bytes::Bytes::from_static(b"99");
            let record = Record { stamp, kind: Kind::Value, flags: 0, expiry: 0, data };
            disk.put(key().hash, &key().key, &record).expect("it takes everything");
        }
        Node::new(life, disk, None, self.broken())
    }

    /// It and all others have links.
    fn introduce(&self, state: &mut State, place: usize) {
        let new = server(state.nodes[place].life);
        for other in (0..state.nodes.len()).filter(|&other| other != place) {
            let id = server(state.nodes[other].life);
            state.step(place, |node| node.step(ServerInput::ServerUp(id)));
            state.step(other, |node| node.step(ServerInput::ServerUp(new)));
        }
    }

    /// Everything on its way arrives.
    fn quiet(&self, state: &mut State) {
        loop {
            let owing = (0..state.nodes.len()).find(|&place| state.nodes[place].owes_watermark());
            match (state.letters.first().cloned(), owing) {
                (Some(letter), _) => {
                    state.deliver(&letter);
                }
                (None, Some(place)) => {
                    state.step(place, Node::send_watermarks);
                }
                (None, None) => return,
            }
        }
    }

    fn may_publish(&self, state: &State) -> bool {
        let Some(next) = self.plot.chapters.get(state.published) else { return false };
        match next.when {
            When::Anytime => true,
            When::Over(life) => {
                let node = &state.nodes[usize::from(life.0)];
                node.life != life || !node.leased || node.ended
            }
            When::Copied => {
                let number = SpaceNumber(state.published as u64);
                let (space, arc) = self.scene(number.0);
                let primary = arc.primary().and_then(|index| state.place_of(space.server(index)));
                primary.is_some_and(|place| {
                    let node = &state.nodes[place];
                    node.number() == number && node.server.has_copied(key().hash)
                })
            }
            When::Born(life) => state.nodes[usize::from(life.0)].life == life,
        }
    }

    /// Where a call may be sent: to a primary, or a reader, of a space that a gateway may have.
    fn sends(&self, state: &State, ask: usize, actions: &mut Vec<Action>) {
        let one = &state.asks[ask];
        let read = one.call.is_read();
        let waits = one.hands.is_some_and(|place| !state.nodes[place].ended && !self.is_lost(state, place));
        let earlier =
            state.asks[..ask].iter().any(|other| other.call.caller == one.call.caller && !other.is_over());
        if one.is_over() || waits || earlier || one.tries >= self.tries {
            return;
        }
        let deaf = !read && one.tries < self.deaf;
        let mut seen = BTreeSet::new();
        for number in (1..=state.published as u64).rev() {
            let (space, arc) = self.scene(number);
            let whom = if read { &arc.readers[..] } else { &arc.readers[..arc.readers.len().min(1)] };
            for &index in whom {
                let Some(to) = state.place_of(space.server(index)) else { continue };
                let named = !read || self.read_at.is_empty() || self.read_at.contains(&(to as u8));
                if named && seen.insert(to) {
                    actions.push(Action::Send { ask, to, space: number, deaf });
                }
            }
        }
        if self.mutation == Some(Mutation::WriteRingPrimary) && !read {
            // The gateways would have the same idea of who orders the keys.
            for to in (0..state.nodes.len()).filter(|to| !seen.contains(to)) {
                actions.push(Action::Send { ask, to, space: state.published as u64, deaf });
            }
        }
    }

    /// Named as lost in a space that was published.
    fn is_lost(&self, state: &State, place: usize) -> bool {
        self.plot.chapters[..state.published]
            .iter()
            .any(|chapter| chapter.lost.contains(&state.nodes[place].life))
    }

    /// Leases run out where a chapter waits for that.
    fn is_awaited(&self, state: &State, place: usize) -> bool {
        let over = When::Over(state.nodes[place].life);
        self.plot.chapters[state.published..].iter().any(|chapter| chapter.when == over)
    }

    fn restart(&self, state: &mut State, place: usize) {
        let node = &state.nodes[place];
        let life = (node.life.0, node.life.1 + 1);
        let (disk, space) = (node.server.store().clone(), node.server.space().cloned());
        let id = server(node.life);
        state.nodes[place] = Shared::new(Node::new(life, disk, space, self.broken()));
        for other in (0..state.nodes.len()).filter(|&other| other != place) {
            state.step(other, |node| node.step(ServerInput::ServerDown(id)));
        }
        self.introduce(state, place);
    }

    /// Everybody is where the last space is, and nothing is on its way there.
    fn rests(&self, state: &State) -> bool {
        let number = SpaceNumber(state.published as u64);
        let (space, _) = self.scene(number.0);
        let here = |life: &Life| {
            let node = &state.nodes[usize::from(life.0)];
            node.life == *life && !node.ended && node.number() == number && !node.owes_watermark()
        };
        let acting =
            [self.plot.chapters[state.published - 1].rhs, self.plot.chapters[state.published - 1].whs]
                .concat();
        let acts = |life: &&Life| {
            let index = space.index_of(server(**life));
            index.is_some_and(|index| space.member(index).is_active())
        };
        acting.iter().filter(acts).all(here)
            && !state.letters.iter().any(|letter| {
                let on_its_way = letter.space().is_none_or(|space| space == number);
                on_its_way && state.place_of(letter.to).is_some()
            })
    }

    /// Where nothing is under way, the owners that act hold the same. Where servers look at what is due, each collects
    /// its tombstones when it likes: there one is as good as none.
    pub fn equal(&self, state: &State) -> bool {
        if !self.rests(state) {
            return true;
        }
        let (space, arc) = self.scene(state.published as u64);
        let places = arc.readers.iter().filter_map(|&index| state.place_of(space.server(index)));
        let counts = |record: &Record| self.ticks == 0 || record.kind == Kind::Value;
        let held: Vec<_> = places
            .map(|place| state.nodes[place].record().filter(counts).map(|record| record.stamp))
            .collect();
        held.windows(2).all(|pair| pair[0] == pair[1])
    }
}

impl Model for Tale {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        if self.may_publish(state) {
            actions.push(Action::Publish);
        }
        for letter in &state.letters {
            let Some(place) = state.place_of(letter.to) else { continue };
            // Who is not in that space yet would only ask for it.
            if letter.space().is_none_or(|space| space <= state.nodes[place].number()) {
                actions.push(Action::Deliver(letter.clone()));
                if state.echoes < self.echoes && matches!(letter.from, From::Server(_)) {
                    actions.push(Action::Echo(letter.clone()));
                }
            }
        }
        for (place, node) in state.nodes.iter().enumerate().filter(|(_, node)| !node.ended) {
            for space in node.number().0 + 1..=state.published as u64 {
                // Who learns that it was given up does nothing more, as one that hears of nothing may.
                if !self.plot.chapters[space as usize - 1].lost.contains(&node.life) {
                    actions.push(Action::Adopt { server: place, space });
                }
            }
            if node.owes_watermark() {
                actions.push(Action::Watermarks(place));
            }
            if node.leased && self.is_awaited(state, place) {
                actions.push(Action::LeaseOver(place));
            }
            if state.ticks < self.ticks {
                actions.push(Action::Tick(place));
            }
            if state.restarts < self.restarts {
                actions.push(Action::Restart(place));
            }
        }
        for ask in 0..state.asks.len() {
            self.sends(state, ask, actions);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        let changed = match action {
            Action::Publish => {
                state.published += 1;
                true
            }
            Action::Adopt { server, space } => {
                let space = self.scene(space).0.clone();
                state.step(server, |node| node.adopt(space))
            }
            Action::Deliver(letter) => state.deliver(&letter),
            Action::Echo(letter) => {
                state.echoes += 1;
                state.receive(&letter)
            }
            Action::Watermarks(place) => state.step(place, Node::send_watermarks),
            Action::LeaseOver(place) => {
                state.nodes[place] = state.nodes[place].with(Node::outlive_lease);
                true
            }
            Action::Send { ask, to, space, deaf } => {
                state.request(ask, to, space, deaf);
                true
            }
            Action::Restart(place) => {
                state.restarts += 1;
                self.restart(&mut state, place);
                true
            }
            Action::Tick(place) => {
                state.ticks += 1;
                state.step(place, Node::tick);
                true
            }
        };
        changed.then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LINEAR, |_, state: &State| state.wrong.is_none()),
            Property::always(EQUAL, |tale: &Tale, state: &State| tale.equal(state)),
        ]
    }
}

fn call(caller: usize, operation: &Operation) -> Call {
    Call { key: 0, caller, operation: operation.clone(), invoked: 0, ending: None }
}
