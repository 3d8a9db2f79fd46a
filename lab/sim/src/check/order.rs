//! Linearizability after Wing and Gong: search an order of the steps that fits their times and their results,
//! remembering the dead ends.

use super::Verdict;
use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What the steps are made on: a register, or a whole tree.
pub trait Object {
    type State: Clone + Eq + Hash;
    type Action: Debug;

    /// The state after that action, if the action gives its result in this state.
    fn after(&self, state: &Self::State, action: &Self::Action) -> Option<Self::State>;
}

/// One operation on the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<A> {
    pub invoked: u64,
    /// `None`: it may take effect at any later time.
    pub settled: Option<u64>,
    /// Whether it took effect is not known.
    pub unclear: bool,
    pub action: A,
}

/// Whether some order of the steps explains all results.
pub fn check<O: Object>(object: &O, start: &O::State, mut steps: Vec<Step<O::Action>>) -> Verdict {
    steps.sort_by_key(|step| step.invoked);
    // What perhaps happened is of use late in one history and early in another: whoever guesses wrong searches long.
    for mixed in [false, true] {
        let done = vec![0; steps.len().div_ceil(64)];
        let mut search = Search { object, steps: &steps, mixed, done, dead: HashSet::new(), placed: 0 };
        match search.run(start) {
            Outcome::Found => return Ok(()),
            Outcome::None => return Err(explain(&steps, search.placed)),
            Outcome::TooMuch => {}
        }
    }
    Err(format!(
        "the search for an order of {} steps was given up after {STATES_MAX} states, twice",
        steps.len()
    ))
}

enum Outcome {
    Found,
    None,
    TooMuch,
}

struct Search<'a, O: Object> {
    object: &'a O,
    /// In the order they were called.
    steps: &'a [Step<O::Action>],
    /// What perhaps happened is tried in its turn, not last.
    mixed: bool,
    /// One bit for each step that is in the order.
    done: Vec<u64>,
    /// Fingerprints of the places seen: two that differ do not share 128 bits.
    dead: HashSet<u128>,
    /// The most steps that could be put into order, for the explanation.
    placed: usize,
}

/// A place in the search: an order of some steps, and what is tried next behind it.
struct Place<S> {
    state: S,
    /// The last step of the order.
    last: Option<usize>,
    /// All steps before this one are in the order.
    first: usize,
    /// When the last called of its steps was called.
    latest: u64,
    /// Nothing called after this may come next: it would come before a step that was over before it began.
    bound: u64,
    /// What perhaps never happened is tried only where nothing else goes on, unless the search is mixed.
    unclear: bool,
    next: usize,
    /// A step that may as well come next as later: nothing else has to be tried.
    only: Option<usize>,
    tried: bool,
}

impl<O: Object> Search<'_, O> {
    /// Puts all steps into order, if that can be done. Without recursion: a run may have thousands.
    fn run(&mut self, start: &O::State) -> Outcome {
        let begin = Place {
            state: start.clone(),
            last: None,
            first: 0,
            latest: 0,
            bound: 0,
            unclear: false,
            next: 0,
            only: None,
            tried: false,
        };
        let mut places = Vec::new();
        let mut entered = Some(begin);
        loop {
            if let Some(mut place) = entered.take() {
                let Some(bound) = self.bound(&mut place) else { return Outcome::Found };
                place.bound = bound;
                place.only = self.only(&place);
                self.placed = self.placed.max(places.len());
                if self.dead.len() > STATES_MAX {
                    return Outcome::TooMuch;
                }
                match self.dead.insert(self.fingerprint(&place.state)) {
                    true => places.push(place),
                    false => self.take_back(&place),
                }
            }
            let Some(place) = places.last_mut() else { return Outcome::None };
            entered = self.further(place);
            if entered.is_none() {
                let place = places.pop().expect("it was just looked at");
                self.take_back(&place);
            }
        }
    }

    fn fingerprint(&self, state: &O::State) -> u128 {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &self.done, state).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }

    /// When the first is over of the steps that must still come; `None`: all are in the order.
    fn bound(&self, place: &mut Place<O::State>) -> Option<u64> {
        while place.first < self.steps.len() && !self.open(place.first) {
            place.first += 1;
        }
        place.next = place.first;
        let rest = place.first..self.steps.len();
        let must = rest.filter(|&index| self.open(index) && !self.steps[index].unclear);
        must.map(|index| self.steps[index].settled.unwrap_or(u64::MAX)).min()
    }

    /// The next order that is one step longer.
    fn further(&mut self, place: &mut Place<O::State>) -> Option<Place<O::State>> {
        if let Some(index) = place.only {
            let first = !std::mem::replace(&mut place.tried, true);
            return first.then(|| self.enter(place, index, place.state.clone()));
        }
        loop {
            let index = place.next;
            if self.steps.get(index).is_none_or(|step| step.invoked > place.bound) {
                if place.unclear || self.mixed {
                    return None;
                }
                (place.unclear, place.next) = (true, place.first);
                continue;
            }
            place.next += 1;
            let in_turn = self.mixed || self.steps[index].unclear == place.unclear;
            if !self.open(index) || !in_turn {
                continue;
            }
            if let Some(state) = self.after(place, index) {
                return Some(self.enter(place, index, state));
            }
        }
    }

    fn enter(&mut self, place: &Place<O::State>, index: usize, state: O::State) -> Place<O::State> {
        self.done[index / 64] |= 1 << (index % 64);
        let latest = place.latest.max(self.steps[index].invoked);
        let (first, bound) = (place.first, place.bound);
        let (unclear, only, tried) = (false, None, false);
        Place { state, last: Some(index), first, latest, bound, unclear, next: first, only, tried }
    }

    /// A step that changes nothing here and gives its result may come next in any order that can be found from here,
    /// unless something that perhaps happened would then come too late.
    fn only(&self, place: &Place<O::State>) -> Option<usize> {
        let mut over = u64::MAX;
        for index in (place.first..self.steps.len()).filter(|&index| self.open(index)) {
            let step = &self.steps[index];
            if step.unclear {
                over = over.min(step.settled.filter(|&settled| settled >= place.latest).unwrap_or(u64::MAX));
            }
        }
        let reach = |index: &usize| self.steps[*index].invoked <= place.bound.min(over);
        let fits = |index: &usize| {
            let step = &self.steps[*index];
            self.open(*index)
                && !step.unclear
                && self.object.after(&place.state, &step.action).as_ref() == Some(&place.state)
        };
        (place.first..self.steps.len()).take_while(reach).find(fits)
    }

    /// The state after that step. One that perhaps never happened is of use only when it changes something, and
    /// one that the cell has said is over cannot follow a step that was called after that.
    fn after(&self, place: &Place<O::State>, index: usize) -> Option<O::State> {
        let step = &self.steps[index];
        if step.unclear && step.settled.is_some_and(|settled| settled < place.latest) {
            return None;
        }
        self.object.after(&place.state, &step.action).filter(|next| !step.unclear || *next != place.state)
    }

    fn take_back(&mut self, place: &Place<O::State>) {
        if let Some(index) = place.last {
            self.done[index / 64] &= !(1 << (index % 64));
        }
    }

    fn open(&self, index: usize) -> bool {
        self.done[index / 64] >> (index % 64) & 1 == 0
    }
}

fn explain<A: Debug>(steps: &[Step<A>], placed: usize) -> String {
    let mut text = format!("no order explains these {} steps (at most {placed} fit):", steps.len());
    for step in steps {
        text.push_str(&format!(
            "\n  {:>12} .. {:>12} {}{:?}",
            step.invoked,
            step.settled.map_or("?".to_owned(), |time| time.to_string()),
            if step.unclear { "perhaps " } else { "" },
            step.action
        ));
    }
    text
}

/// States visited before the search is given up: some ten megabytes.
const STATES_MAX: usize = 2_000_000;
