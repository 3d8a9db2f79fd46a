//! Runs a model: [`exhaust`] shows that nothing is found, [`find`] that something is.

use stateright::{Checker, HasDiscoveries, Model, Path};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Looks at every reachable state, panics when a property fails in one, and returns how many there are.
pub fn exhaust<M>(name: &str, model: M) -> usize
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + Debug + Send + Sync + PartialEq + 'static,
    M::Action: Debug + Send + Sync + Clone + PartialEq + 'static,
{
    let started = Instant::now();
    let checker = model.checker().threads(THREADS).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {states} states, {depth} steps deep, {:.1} s", started.elapsed().as_secs_f64());
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        panic!("{name}: `{property}` fails after {:#?}", path.into_actions());
    }
    states
}

/// Looks for a state in which `property` fails, and returns the shortest way there.
pub fn find<M>(name: &str, model: M, property: &'static str) -> Vec<M::Action>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + Debug + Send + Sync + PartialEq + 'static,
    M::Action: Debug + Send + Sync + Clone + PartialEq + 'static,
{
    let started = Instant::now();
    let wanted = HasDiscoveries::AnyOf([property].into());
    let checker = model.checker().threads(THREADS).timeout(FIND_MAX).finish_when(wanted).spawn_bfs().join();
    let states = checker.unique_state_count();
    let found = checker.discovery(property).map(Path::into_actions);
    let Some(actions) = found else { panic!("{name}: `{property}` does not fail in {states} states") };
    println!(
        "{name}: found in {} steps among {states} states, {:.1} s",
        actions.len(),
        started.elapsed().as_secs_f64()
    );
    actions
}

/// The machine that checks has two cores.
const THREADS: usize = 2;

/// A mutant that hides longer than this is as good as not found.
const FIND_MAX: Duration = Duration::from_secs(60);
