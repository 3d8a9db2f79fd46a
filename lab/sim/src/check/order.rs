//! Linearizability after Wing and Gong: search an order of the steps that fits their times and their results,
//! remembering the dead ends.

use super::truth::Turn;
use super::{Verdict, fingerprint};
use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

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
    /// When it was executed, if that is known.
    pub turn: Option<Turn>,
    pub action: A,
}

/// Whether the order in which the steps were executed explains all results. If not, another one may: what was
/// executed is a place to begin, and proves nothing.
pub fn as_executed<O: Object>(object: &O, start: &O::State, steps: &mut [Step<O::Action>]) -> bool {
    steps.sort_by_key(|step| step.invoked);
    let known = steps.iter().any(|step| step.turn.is_some());
    known && matches!(Search::new(object, steps, Way::AsExecuted).run(start), Outcome::Found)
}

/// Whether some order of the steps explains all results.
pub fn check<O: Object>(object: &O, start: &O::State, mut steps: Vec<Step<O::Action>>) -> Verdict {
    steps.sort_by_key(|step| step.invoked);
    // What perhaps happened is of use late in one history and early in another: whoever guesses wrong searches long.
    for way in [Way::UnclearLast, Way::Mixed] {
        let mut search = Search::new(object, &steps, way);
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

/// In what order steps are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// What was executed when it is its turn, and all else that surely happened before that. No other order.
    AsExecuted,
    /// What perhaps never happened only where nothing else goes on.
    UnclearLast,
    /// As they were called.
    Mixed,
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
    way: Way,
    /// What was executed, in that order; nothing where the search goes another way.
    turns: Vec<usize>,
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
    /// What comes first has been tried: now what is tried only where that does not go on.
    second: bool,
    /// So many of the turns are over.
    turn: usize,
    next: usize,
    /// A step that may as well come next as later: nothing else has to be tried.
    only: Option<usize>,
    tried: bool,
}

impl<'a, O: Object> Search<'a, O> {
    fn new(object: &'a O, steps: &'a [Step<O::Action>], way: Way) -> Search<'a, O> {
        let mut turns = Vec::new();
        if way == Way::AsExecuted {
            turns.extend((0..steps.len()).filter(|&index| steps[index].turn.is_some()));
            turns.sort_by_key(|&index| steps[index].turn);
        }
        let done = vec![0; steps.len().div_ceil(64)];
        Search { object, steps, way, turns, done, dead: HashSet::new(), placed: 0 }
    }

    /// Puts all steps into order, if that can be done. Without recursion: a run may have thousands.
    fn run(&mut self, start: &O::State) -> Outcome {
        let begin = Place {
            state: start.clone(),
            last: None,
            first: 0,
            latest: 0,
            bound: 0,
            second: false,
            turn: 0,
            next: 0,
            only: None,
            tried: false,
        };
        let mut places = Vec::new();
        let mut entered = Some(begin);
        loop {
            if let Some(mut place) = entered.take() {
                let Some(bound) = self.bound(&mut place) else { return Outcome::Found };
                place.turn = self.turn(&place);
                place.bound = bound.min(self.turns_bound(&place));
                place.only = self.only(&place);
                self.placed = self.placed.max(places.len());
                if self.dead.len() > self.states_max() {
                    return Outcome::TooMuch;
                }
                match self.dead.insert(fingerprint(&(&self.done, &place.state))) {
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
                if place.second || self.way == Way::Mixed {
                    return None;
                }
                (place.second, place.next) = (true, place.first);
                continue;
            }
            place.next += 1;
            if !self.open(index) || !self.is_tried(place, index) {
                continue;
            }
            if let Some(state) = self.after(place, index) {
                return Some(self.enter(place, index, state));
            }
        }
    }

    /// Whether that step is one of those that are tried now.
    fn is_tried(&self, place: &Place<O::State>, index: usize) -> bool {
        let step = &self.steps[index];
        match self.way {
            Way::AsExecuted if place.second => self.turns.get(place.turn) == Some(&index),
            Way::AsExecuted => step.turn.is_none() && !step.unclear,
            Way::UnclearLast => step.unclear == place.second,
            Way::Mixed => true,
        }
    }

    /// The turn it is: over are those of steps that are in the order, and of those that perhaps happened and would
    /// do nothing here, like a command that was refused.
    fn turn(&self, place: &Place<O::State>) -> usize {
        let over = |&index: &usize| {
            !self.open(index) || self.steps[index].unclear && self.after(place, index).is_none()
        };
        let rest = self.turns.iter().skip(place.turn);
        place.turn + rest.take_while(|index| over(index)).count()
    }

    /// When the first is over of the steps that perhaps happened and did, and whose turn is still to come.
    fn turns_bound(&self, place: &Place<O::State>) -> u64 {
        let rest = self.turns.iter().skip(place.turn).filter(|&&index| self.open(index));
        let unclear = rest.map(|&index| &self.steps[index]).filter(|step| step.unclear);
        unclear.filter_map(|step| step.settled).min().unwrap_or(u64::MAX)
    }

    fn states_max(&self) -> usize {
        match self.way {
            Way::AsExecuted => STATES_AS_EXECUTED_MAX,
            Way::UnclearLast | Way::Mixed => STATES_MAX,
        }
    }

    fn enter(&mut self, place: &Place<O::State>, index: usize, state: O::State) -> Place<O::State> {
        self.done[index / 64] |= 1 << (index % 64);
        let latest = place.latest.max(self.steps[index].invoked);
        let (first, bound, turn) = (place.first, place.bound, place.turn);
        let (second, only, tried) = (false, None, false);
        Place { state, last: Some(index), first, latest, bound, second, turn, next: first, only, tried }
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
/// The same where only the order of execution is tried: it hardly ever has to be taken back, and another search
/// follows.
const STATES_AS_EXECUTED_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A list that steps put letters at the end of, or see as a whole.
    struct List;

    #[derive(Clone, Debug)]
    enum Action {
        Put(char),
        See(&'static str),
    }

    impl Object for List {
        type State = String;
        type Action = Action;

        fn after(&self, list: &String, action: &Action) -> Option<String> {
            match action {
                Action::Put(letter) => Some(format!("{list}{letter}")),
                Action::See(seen) => (list == seen).then(|| list.clone()),
            }
        }
    }

    fn perhaps(invoked: u64, settled: Option<u64>, turn: Option<u64>, letter: char) -> Step<Action> {
        let turn = turn.map(Turn::at);
        Step { invoked, settled, unclear: true, turn, action: Action::Put(letter) }
    }

    fn see(moment: u64, seen: &'static str) -> Step<Action> {
        let action = Action::See(seen);
        Step { invoked: moment, settled: Some(moment), unclear: false, turn: None, action }
    }

    fn explains(steps: &[Step<Action>]) -> bool {
        as_executed(&List, &String::new(), &mut steps.to_vec())
    }

    /// More letters of unknown outcome than all orders of them can be tried.
    fn many(seen: &'static str) -> Vec<Step<Action>> {
        let letters = ('a'..='z').rev().zip(0..);
        let mut steps: Vec<_> =
            letters.map(|(letter, count)| perhaps(count, None, Some(100 - count), letter)).collect();
        steps.push(see(1000, seen));
        steps
    }

    #[test]
    fn what_was_executed_late_and_in_another_order_is_found_at_once() {
        assert!(explains(&many("abcdefghijklmnopqrstuvwxyz")));
        assert!(explains(&many("abcd")));
        assert!(!explains(&many("abdc")));
    }

    #[test]
    fn the_order_of_execution_excuses_nothing() {
        let seen = |early, late| {
            let step = perhaps(1, None, Some(7), 'a');
            explains(&[step, see(5, early), see(9, late)])
        };
        assert!(seen("", "a"));
        assert!(seen("a", "a"));
        assert!(!seen("a", ""));
        assert!(!seen("", "aa"));
        // What was over cannot come late, and what was not yet called cannot come early.
        let over = |settled| explains(&[perhaps(1, Some(settled), Some(7), 'a'), see(5, ""), see(9, "a")]);
        assert!(over(6));
        assert!(!over(4));
        assert!(!explains(&[see(5, "a"), perhaps(6, None, Some(7), 'a')]));
        // Nothing is guessed of what was not executed: that is for the other search.
        let never = [perhaps(1, None, None, 'a'), perhaps(2, None, Some(7), 'b'), see(5, "a")];
        assert!(!explains(&never));
        check(&List, &String::new(), never.to_vec()).unwrap();
    }
}
