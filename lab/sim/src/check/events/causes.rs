//! [`Causes`]: what clients did that others are told of, surely or perhaps.

use crate::history::{Ending, History, Operation};
use kumo_pfs::{Command, Condition, EntryChange, Place, QueueChange, Reply, Resource};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// What became of one name, which happens to it once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    pub path: String,
    pub name: String,
    change: u8,
}

/// Events that cannot be told apart, and all changes of directories together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Change,
    Lock { name: String, exclusive: bool },
    Queue { name: String, change: u8 },
}

/// What caused events.
pub struct Causes<'a> {
    pub changes: BTreeMap<Change, &'a Operation>,
    others: Vec<(Kind, &'a Operation)>,
}

/// The causes of what one session watches, for counting.
pub struct Counted {
    by_kind: BTreeMap<Kind, Times>,
    all: Times,
}

/// When each cause was surely over, and when each that there may have been was called. Ascending.
#[derive(Default)]
struct Times {
    over: Vec<u64>,
    called: Vec<u64>,
}

impl Change {
    pub fn new(path: &str, name: &str, change: EntryChange) -> Change {
        Change { path: path.to_owned(), name: name.to_owned(), change: change as u8 }
    }

    /// Of a file by its path.
    fn of(path: &str, change: EntryChange) -> Option<Change> {
        path.rsplit_once('/').map(|(above, name)| Change::new(above, name, change))
    }
}

impl<'a> Causes<'a> {
    pub fn of(history: &'a History, folders: &[&str]) -> Causes<'a> {
        let mut causes = Causes { changes: BTreeMap::new(), others: Vec::new() };
        for (operation, command) in history.commands() {
            let refused = matches!(
                operation.finished,
                Some((_, Ending::Reply(Reply::Refused(_)) | Ending::Refused(_)))
            );
            if !refused {
                causes.add(operation, command, folders);
            }
        }
        causes
    }

    fn add(&mut self, operation: &'a Operation, command: &Command, folders: &[&str]) {
        let mut change = |path: &str, change| {
            let change = Change::of(path, change).filter(|change| folders.contains(&change.path.as_str()));
            self.changes.extend(change.map(|change| (change, operation)));
        };
        let kind = match command {
            // The workload creates under version 0 and updates by appending.
            Command::Write { path, condition: Condition::Version(0), .. } => {
                return change(path, EntryChange::Created);
            }
            Command::Write { path, place: Place::End, .. } => return change(path, EntryChange::Updated),
            Command::Delete { path, .. } => return change(path, EntryChange::Deleted),
            Command::Rename { from, to } => {
                change(from, EntryChange::Deleted);
                return change(to, EntryChange::Created);
            }
            Command::Lock { name, exclusive, try_only: false } => {
                Kind::Lock { name: name.clone(), exclusive: *exclusive }
            }
            Command::Post { queue, .. } => {
                Kind::Queue { name: queue.clone(), change: QueueChange::Posted as u8 }
            }
            Command::Wait { queue, try_only: false } | Command::Receive { queue, try_only: false } => {
                Kind::Queue { name: queue.clone(), change: QueueChange::Waiting as u8 }
            }
            Command::Write { .. }
            | Command::Truncate { .. }
            | Command::Mkdir { .. }
            | Command::Rmdir { .. }
            | Command::Lock { .. }
            | Command::Unlock { .. }
            | Command::Watch { .. }
            | Command::Unwatch { .. }
            | Command::Wait { .. }
            | Command::Receive { .. }
            | Command::Acknowledge { .. }
            | Command::DeleteMessage { .. } => return,
        };
        self.others.push((kind, operation));
    }

    /// The causes of events on these resources. What was over before the first watch was asked for is none;
    /// what was called before all were acknowledged may be one.
    pub fn counted(&self, resources: &BTreeSet<Resource>, asked: u64, since: u64) -> Counted {
        let mut counted = Counted { by_kind: BTreeMap::new(), all: Times::default() };
        let mut add = |kind: &Kind, operation: &Operation| {
            if operation.settled().is_some_and(|settled| settled < asked) {
                return;
            }
            let over = operation.settled().filter(|_| operation.invoked > since && is_sure(kind, operation));
            let times = counted.by_kind.entry(kind.clone()).or_default();
            for times in [times, &mut counted.all] {
                times.over.extend(over);
                times.called.push(operation.invoked);
            }
        };
        for (change, operation) in &self.changes {
            if resources.contains(&Resource::Directory(change.path.clone())) {
                add(&Kind::Change, operation);
            }
        }
        for (kind, operation) in &self.others {
            let resource = match kind {
                Kind::Change => continue,
                Kind::Lock { name, .. } => Resource::Lock(name.clone()),
                Kind::Queue { name, .. } => Resource::Queue(name.clone()),
            };
            if resources.contains(&resource) {
                add(kind, operation);
            }
        }
        for times in counted.by_kind.values_mut().chain([&mut counted.all]) {
            times.over.sort_unstable();
            times.called.sort_unstable();
        }
        counted
    }
}

/// Whether an event surely came of it: who had to be given up did wait; who got what it wanted perhaps did not.
fn is_sure(kind: &Kind, operation: &Operation) -> bool {
    match kind {
        Kind::Change => operation.reply().is_some(),
        Kind::Queue { change, .. } if *change == QueueChange::Posted as u8 => operation.reply().is_some(),
        Kind::Lock { .. } | Kind::Queue { .. } => {
            matches!(operation.finished, Some((_, Ending::Cancelled)))
        }
    }
}

impl Counted {
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.by_kind.keys()
    }

    /// How many events of a kind, or of all, can have come before the one that this operation caused.
    pub fn bounds(&self, kind: Option<&Kind>, operation: &Operation) -> RangeInclusive<u64> {
        let Some(times) = kind.map_or(Some(&self.all), |kind| self.by_kind.get(kind)) else { return 0..=0 };
        let over = times.over.partition_point(|time| *time < operation.invoked);
        let called = match operation.settled() {
            Some(settled) => times.called.partition_point(|time| *time <= settled),
            None => times.called.len(),
        };
        // It does not come before itself.
        let own = usize::from(kind.is_none_or(|kind| *kind == Kind::Change));
        over as u64..=called.saturating_sub(own) as u64
    }
}

impl std::fmt::Debug for Change {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        // Some paths are as long as paths may be.
        let path: String = self.path.chars().take(20).collect();
        let change = ["created", "updated", "deleted"][self.change as usize % 3];
        write!(formatter, "{path}/{} {change}", self.name)
    }
}
