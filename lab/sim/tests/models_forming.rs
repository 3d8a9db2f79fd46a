//! Forming a cell: whatever is lost, late or repeated, and whoever restarts, there is one.

use sim::models::{Founding, Place, Step, Word, exhaust};
use stateright::Model;

#[test]
fn one_cell_is_formed_though_a_replica_restarts() {
    let states = exhaust("forming, one restart", Founding { crashes: 1, symmetric: false });
    assert!(states > 1_000);
}

/// By hand: every replica asks, and there are too many words for a search.
#[test]
fn symmetric_forming_forms_two_cells() {
    let model = Founding { crashes: 1, symmetric: true };
    let mut place = model.init_states().remove(0);
    let take = |place: &mut Place, step: Step| {
        let mut allowed = Vec::new();
        model.actions(place, &mut allowed);
        assert!(allowed.contains(&step), "not a step of the model: {step:?}");
        *place = model.next_state(place, step).expect("every step leads somewhere");
    };
    let deliver = |place: &mut Place, from: usize, to: usize, wanted: fn(&Word) -> bool| {
        let ends = ((from, place.members[from].0), (to, place.members[to].0));
        let found = place.network.iter().find(|sent| (sent.from, sent.to) == ends && wanted(&sent.word));
        let envelope = found.expect("it was said").clone();
        take(place, Step::Deliver(envelope));
    };
    let ask = |word: &Word| matches!(word, Word::Ask { .. });
    let new = |word: &Word| matches!(word, Word::New { .. });
    let formed = |word: &Word| matches!(word, Word::Formed(_));
    let hear = |place: &mut Place, asker: usize, asked: usize| {
        take(place, Step::Ask { asker, asked });
        deliver(place, asker, asked, ask);
        deliver(place, asked, asker, new);
    };
    // Both of the first two hear "new" from the other. The first forms a cell with the third.
    hear(&mut place, 1, 0);
    hear(&mut place, 0, 1);
    hear(&mut place, 0, 2);
    take(&mut place, Step::Form(0));
    deliver(&mut place, 0, 2, formed);
    // The third forgets, and the second forms another with it.
    take(&mut place, Step::Crash(2));
    hear(&mut place, 1, 2);
    take(&mut place, Step::Form(1));
    deliver(&mut place, 1, 2, formed);
    assert!(!place.one_cell());
}
