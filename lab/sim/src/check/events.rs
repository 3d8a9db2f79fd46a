//! Events: numbered without gaps (what was omitted is counted), in the order of the log, none invented, none missing.

use super::Verdict;
use crate::history::{Call, ClientNumber, Ending, History, Operation};
use kumo_pfs::{Command, Condition, EntryChange, Event, Place, Reply, Resource};
use kumo_session::GENERATION_SHIFT;
use std::collections::{BTreeMap, BTreeSet};

/// Checks what every watcher of `folder` was told. Each name in it is created, updated and deleted at most
/// once, so a name and a change are one event.
pub fn check(history: &History, folder: &str) -> Verdict {
    let changes = changes(history, folder);
    let mut watchers: BTreeMap<ClientNumber, Watcher> = BTreeMap::new();
    for operation in &history.operations {
        match (&operation.call, &operation.finished) {
            (Call::Command(Command::Watch { resource }), Some((time, Ending::Reply(Reply::Done))))
                if *resource == Resource::Directory(folder.to_owned()) =>
            {
                watchers.entry(operation.client).or_default().since.get_or_insert(*time);
            }
            (Call::Events, Some((_, Ending::Events { omitted, first, events }))) => {
                watchers.entry(operation.client).or_default().told(*omitted, *first, events)?;
            }
            _ => {}
        }
    }
    for (client, watcher) in &watchers {
        watcher.check(&changes).map_err(|wrong| format!("events of {client:?}: {wrong}"))?;
    }
    same_order(&watchers)
}

/// One event: which name, and what became of it.
type Change = (String, u8);

fn changes<'a>(history: &'a History, folder: &str) -> BTreeMap<Change, &'a Operation> {
    let mut changes = BTreeMap::new();
    for (operation, command) in history.commands() {
        let (path, change) = match command {
            // The workload creates by Replace under version 0 and updates by End.
            Command::Write { path, condition: Condition::Version(0), .. } => (path, EntryChange::Created),
            Command::Write { path, place: Place::End, .. } => (path, EntryChange::Updated),
            Command::Delete { path, .. } => (path, EntryChange::Deleted),
            _ => continue,
        };
        let refused = matches!(operation.reply(), Some(Reply::Refused(_)));
        if let Some(name) = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'))
            && !refused
        {
            changes.insert((name.to_owned(), change as u8), operation);
        }
    }
    changes
}

#[derive(Default)]
struct Watcher {
    /// When the watch was acknowledged.
    since: Option<u64>,
    next: u64,
    omitted: u64,
    told: Vec<Change>,
}

impl Watcher {
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
        for event in events {
            match event {
                Event::Directory { name, change, .. } => self.told.push((name.clone(), *change as u8)),
                Event::Lock { .. } | Event::Queue { .. } => {}
            }
        }
        Ok(())
    }

    fn check(&self, changes: &BTreeMap<Change, &Operation>) -> Verdict {
        let mut seen = BTreeSet::new();
        // The latest call among the events before: none after them may have been over by then.
        let mut called = 0;
        for change in &self.told {
            let Some(operation) = changes.get(change) else { return Err(format!("nobody made {change:?}")) };
            if !seen.insert(change) {
                return Err(format!("told {change:?} twice"));
            }
            if operation.settled().is_some_and(|settled| settled < called) {
                return Err(format!("{change:?} is told after a change that was made later"));
            }
            called = called.max(operation.invoked);
        }
        let (Some(since), 0) = (self.since, self.omitted) else { return Ok(()) };
        for (change, operation) in changes {
            let made = !operation.unclear() && operation.invoked > since;
            if made && !seen.contains(change) && operation.settled().is_some_and(|settled| settled < called) {
                return Err(format!("{change:?} is missing, a later change is told"));
            }
        }
        Ok(())
    }
}

/// Any two watchers were told what both were told in one order.
fn same_order(watchers: &BTreeMap<ClientNumber, Watcher>) -> Verdict {
    for (one, first) in watchers {
        let places: BTreeMap<&Change, usize> = first.told.iter().zip(0..).collect();
        for (other, second) in watchers.range(one..).skip(1) {
            let common: Vec<_> = second.told.iter().filter_map(|change| places.get(change)).collect();
            if !common.is_sorted() {
                return Err(format!(
                    "{one:?} and {other:?} were told of the same changes in different orders"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_pfs::EntryChange;

    /// Creates "a", "b", "c" one after another; then each watcher is told some of it.
    fn told(watchers: &[&[(u64, u64, &str)]]) -> Verdict {
        let mut history = History::default();
        for watcher in 0..watchers.len() as u32 {
            let watch = Command::Watch { resource: Resource::Directory("/e".to_owned()) };
            let number = history.invoke(ClientNumber(watcher), Call::Command(watch), 0);
            history.finish(number, Ending::Reply(Reply::Done), 1);
        }
        for (time, name) in [(10, "a"), (20, "b"), (30, "c")] {
            let create = Command::Write {
                path: format!("/e/{name}"),
                place: Place::Replace,
                data: Default::default(),
                ephemeral: false,
                condition: Condition::Version(0),
            };
            let number = history.invoke(ClientNumber(9), Call::Command(create), time);
            let reply = Reply::Written { count: 0, version: 1, length: 0 };
            history.finish(number, Ending::Reply(reply), time + 1);
        }
        for (watcher, answers) in watchers.iter().enumerate() {
            for &(omitted, first, names) in *answers {
                let number = history.invoke(ClientNumber(watcher as u32), Call::Events, 40);
                let event = |name: char| Event::Directory {
                    path: "/e".to_owned(),
                    name: name.to_string(),
                    change: EntryChange::Created,
                };
                let events = names.chars().map(event).collect();
                history.finish(number, Ending::Events { omitted, first, events }, 41);
            }
        }
        check(&history, "/e")
    }

    #[test]
    fn consecutive_events_in_order_are_fine() {
        told(&[&[(0, 1, "ab"), (0, 3, "c")], &[(0, 1, "a")]]).unwrap();
        told(&[&[(1, 2, "bc")]]).unwrap();
    }

    #[test]
    fn gaps_repeats_inventions_omissions_and_disorder_are_found() {
        told(&[&[(0, 1, "a"), (0, 3, "c")]]).unwrap_err();
        told(&[&[(0, 1, "a"), (0, 2, "a")]]).unwrap_err();
        told(&[&[(0, 1, "ax")]]).unwrap_err();
        told(&[&[(0, 1, "ac")]]).unwrap_err();
        told(&[&[(0, 1, "ba")]]).unwrap_err();
        told(&[&[(0, 1, "c"), (1, 2, "a")]]).unwrap_err();
    }

    #[test]
    fn two_watchers_in_different_orders_are_found() {
        let mut watchers = BTreeMap::new();
        for (client, order) in [(1, ["a", "b"]), (2, ["b", "a"])] {
            let told = order.map(|name| (name.to_owned(), 0)).to_vec();
            watchers.insert(ClientNumber(client), Watcher { told, ..Watcher::default() });
        }
        same_order(&watchers).unwrap_err();
    }
}
