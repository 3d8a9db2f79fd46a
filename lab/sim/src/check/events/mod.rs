//! Events: numbered without gaps (what was omitted is counted), in the order of the log, none invented, none missing.
//! Changes of directories can be told apart, so each is found again; waiting and posting cannot, so they are
//! counted between the changes told beside them.

mod causes;

use super::Verdict;
use crate::history::{Call, ClientNumber, Ending, History};
use causes::{Causes, Change, Kind};
use kumo_pfs::{Command, Event, Reply, Resource};
use kumo_session::GENERATION_SHIFT;
use std::collections::{BTreeMap, BTreeSet};

/// Checks what every watcher was told. Each name in `folders` is created, updated and deleted at most once, so a
/// name and a change are one event. Of other directories nothing is known.
pub fn check(history: &History, folders: &[&str]) -> Verdict {
    let causes = Causes::of(history, folders);
    let mut watchers: BTreeMap<ClientNumber, Watcher> = BTreeMap::new();
    for operation in &history.operations {
        match (&operation.call, &operation.finished) {
            (Call::Command(Command::Watch { resource }), finished) => {
                let done = match finished {
                    Some((time, Ending::Reply(Reply::Done))) => Some(*time),
                    Some(_) | None => None,
                };
                watchers.entry(operation.client).or_default().watches(resource, operation.invoked, done);
            }
            (Call::Events, Some((_, Ending::Events { omitted, first, events }))) => {
                watchers.entry(operation.client).or_default().told(*omitted, *first, events)?;
            }
            _ => {}
        }
    }
    for (client, watcher) in &watchers {
        watcher.check(&causes).map_err(|wrong| format!("events of {client:?}: {wrong}"))?;
    }
    same_order(&watchers)?;
    same_distance(&watchers, &causes)
}

/// One session's events.
#[derive(Default)]
struct Watcher {
    /// What it watches. Whatever was watched once is watched to the end.
    resources: BTreeSet<Resource>,
    /// When the first watch was asked for, and when all were acknowledged.
    asked: Option<u64>,
    since: Option<u64>,
    unsure: bool,
    next: u64,
    /// Events that were dropped before each of those told, together.
    omitted: u64,
    told: Vec<Told>,
}

/// One event as it was told.
struct Told {
    number: u64,
    /// How many were dropped up to here.
    omitted: u64,
    what: What,
}

enum What {
    Change(Change),
    Count(Kind),
}

impl Watcher {
    fn watches(&mut self, resource: &Resource, asked: u64, done: Option<u64>) {
        self.resources.insert(resource.clone());
        self.asked.get_or_insert(asked);
        match done {
            Some(time) => self.since = self.since.max(Some(time)),
            None => self.unsure = true,
        }
    }

    fn told(&mut self, omitted: u64, first: u64, events: &[Event]) -> Verdict {
        // The generation leads every number; the count starts at 1.
        self.next = self.next.max(first >> GENERATION_SHIFT << GENERATION_SHIFT);
        if first != self.next + 1 + omitted {
            return Err(format!(
                "event {first} follows event {} with {omitted} said to be omitted",
                self.next
            ));
        }
        self.next = first + events.len() as u64 - 1;
        self.omitted += omitted;
        for (event, number) in events.iter().zip(first..) {
            let what = match event {
                Event::Directory { path, name, change } => What::Change(Change::new(path, name, *change)),
                Event::Lock { name, exclusive } => {
                    What::Count(Kind::Lock { name: name.clone(), exclusive: *exclusive })
                }
                Event::Queue { name, change } => {
                    What::Count(Kind::Queue { name: name.clone(), change: *change as u8 })
                }
            };
            self.told.push(Told { number, omitted: self.omitted, what });
        }
        Ok(())
    }

    /// The changes among what it was told, with their numbers.
    fn changes(&self) -> impl Iterator<Item = (&Change, u64)> {
        self.told.iter().filter_map(|told| match &told.what {
            What::Change(change) => Some((change, told.number)),
            What::Count(_) => None,
        })
    }

    fn check(&self, causes: &Causes) -> Verdict {
        self.in_order(causes)?;
        self.none_missing(causes)?;
        self.counts(causes)
    }

    fn in_order(&self, causes: &Causes) -> Verdict {
        let mut seen = BTreeSet::new();
        // The latest call among the events before: none after them may have been over by then.
        let mut called = 0;
        for (change, _) in self.changes() {
            let Some(operation) = causes.changes.get(change) else {
                return Err(format!("nobody made {change:?}"));
            };
            if !seen.insert(change) {
                return Err(format!("told {change:?} twice"));
            }
            if operation.settled().is_some_and(|settled| settled < called) {
                return Err(format!("{change:?} is told after a change that was made later"));
            }
            called = called.max(operation.invoked);
        }
        Ok(())
    }

    fn none_missing(&self, causes: &Causes) -> Verdict {
        let (Some(since), 0) = (self.since.filter(|_| !self.unsure), self.omitted) else { return Ok(()) };
        let seen: BTreeSet<&Change> = self.changes().map(|(change, _)| change).collect();
        let called = seen.iter().map(|change| causes.changes[*change].invoked).max().unwrap_or(0);
        for (change, operation) in &causes.changes {
            let watched = self.resources.contains(&Resource::Directory(change.path.clone()));
            let made = operation.reply().is_some() && operation.invoked > since;
            if watched
                && made
                && !seen.contains(change)
                && operation.settled().is_some_and(|settled| settled < called)
            {
                return Err(format!("{change:?} is missing, a later change is told"));
            }
        }
        Ok(())
    }

    /// Before every change that it was told of, as many events were told or omitted as there were causes: at least
    /// those that were over when the change was asked for, at most those asked for before it was over.
    fn counts(&self, causes: &Causes) -> Verdict {
        let Some(asked) = self.asked else { return Ok(()) };
        // Before all watches were acknowledged nothing is sure.
        let since = self.since.filter(|_| !self.unsure).unwrap_or(u64::MAX);
        let kinds = causes.counted(&self.resources, asked, since);
        let mut counts: BTreeMap<&Kind, u64> = BTreeMap::new();
        for told in &self.told {
            let change = match &told.what {
                What::Change(change) => change,
                What::Count(kind) => {
                    *counts.entry(kind).or_default() += 1;
                    continue;
                }
            };
            let operation = causes.changes[change];
            let bounds = |kind: Option<&Kind>| kinds.bounds(kind, operation);
            let before = (told.number & COUNT_MASK) - 1;
            if !bounds(None).contains(&before) {
                return Err(format!(
                    "{before} events came before {change:?}, {} omitted: there were causes for {:?}",
                    told.omitted,
                    bounds(None)
                ));
            }
            for kind in kinds.kinds().filter(|_| told.omitted == 0) {
                let count = counts.get(kind).copied().unwrap_or(0);
                if !bounds(Some(kind)).contains(&count) {
                    return Err(format!(
                        "{kind:?} was told {count} times before {change:?}: there were causes for {:?}",
                        bounds(Some(kind))
                    ));
                }
            }
            *counts.entry(&Kind::Change).or_default() += 1;
        }
        Ok(())
    }
}

/// Any two watchers were told what both were told in one order.
fn same_order(watchers: &BTreeMap<ClientNumber, Watcher>) -> Verdict {
    for (one, first) in watchers {
        let places: BTreeMap<&Change, u64> = first.changes().collect();
        for (other, second) in watchers.range(one..).skip(1) {
            let common: Vec<_> = second.changes().filter_map(|(change, _)| places.get(change)).collect();
            if !common.is_sorted() {
                return Err(format!(
                    "{one:?} and {other:?} were told of the same changes in different orders"
                ));
            }
        }
    }
    Ok(())
}

/// Any two watchers of the same things number the same events with the same distance, whatever was omitted.
fn same_distance(watchers: &BTreeMap<ClientNumber, Watcher>, causes: &Causes) -> Verdict {
    for (one, first) in watchers {
        let numbers: BTreeMap<&Change, u64> = first.changes().collect();
        for (other, second) in watchers.range(one..).skip(1) {
            let (Some(here), Some(there)) = (first.since, second.since) else { continue };
            if first.resources != second.resources || first.unsure || second.unsure {
                continue;
            }
            let mut distance = None;
            for (change, number) in second.changes() {
                let Some(theirs) = numbers.get(change) else { continue };
                if causes.changes[change].invoked <= here.max(there) {
                    continue;
                }
                let apart = number.wrapping_sub(*theirs);
                if *distance.get_or_insert(apart) != apart {
                    return Err(format!(
                        "{one:?} has {change:?} as {theirs}, {other:?} as {number}: further apart than before"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The count in an event's number.
const COUNT_MASK: u64 = (1 << GENERATION_SHIFT) - 1;

#[cfg(test)]
mod tests;
