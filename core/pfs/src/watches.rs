//! [`Watches`]: who is told what. A session subscribes to a resource by name, whether it exists or not.

use crate::limits::within;
use crate::map::{Map, Set};
use crate::path::{Path, check_name};
use crate::pfs::{Done, Pfs};
use crate::protocol::{EntryChange, Event, QueueChange, Refusal, Reply, Resource};
use kumo_session::{EVENTS_MAX, Entry, Outcome, SessionId};
use kumo_wire::Wire;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The sessions that watch, by what they watch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Watches {
    pub directories: Map<Arc<str>, Set<SessionId>>,
    pub locks: Map<Arc<str>, Set<SessionId>>,
    pub queues: Map<Arc<str>, Set<SessionId>>,
    /// Of all three together.
    pub count: u64,
}

/// Files of one directory that are gone, looked at from the last one on.
struct Deleted {
    count: u64,
    /// Who watches the directory and is still told, from the last one on too.
    takers: Vec<SessionId>,
}

impl Deleted {
    fn new(watchers: Option<&Set<SessionId>>) -> Deleted {
        let mut takers: Vec<SessionId> = watchers.into_iter().flat_map(Set::keys).copied().collect();
        takers.reverse();
        Deleted { count: 0, takers }
    }
}

impl Pfs {
    pub(crate) fn watch(&mut self, entry: Entry, resource: Resource) -> Done {
        check_resource(&resource)?;
        if !self.watches.watchers(&resource).is_some_and(|sessions| sessions.contains(&entry.session)) {
            let mine = self.sessions.watches(entry.session) + 1;
            within(mine, self.limits.session_watches, "resources watched by the session")?;
            within(self.watches.count + 1, self.limits.watches, "resources watched")?;
            self.watches.insert(&resource, entry.session);
            self.sessions.change(entry.session, |holdings| holdings.watches.insert(resource, ()));
        }
        Ok(Some(Reply::Done))
    }

    /// Cancelling what was never set is no error: the session is not told of it, as it wishes.
    pub(crate) fn unwatch(&mut self, entry: Entry, resource: Resource) -> Done {
        check_resource(&resource)?;
        self.watches.remove(&resource, entry.session);
        self.sessions.change(entry.session, |holdings| holdings.watches.remove(&resource));
        Ok(Some(Reply::Done))
    }
}

impl Watches {
    pub fn insert(&mut self, resource: &Resource, session: SessionId) {
        let (watched, name) = self.of(resource);
        if watched.get_or_default(&name).insert(session, ()).is_none() {
            self.count += 1;
        }
    }

    pub fn remove(&mut self, resource: &Resource, session: SessionId) {
        let (watched, name) = self.of(resource);
        let Some(sessions) = watched.get_mut(&name) else { return };
        let found = sessions.remove(&session).is_some();
        if sessions.is_empty() {
            watched.remove(&name);
        }
        self.count -= u64::from(found);
    }

    pub fn watchers(&self, resource: &Resource) -> Option<&Set<SessionId>> {
        match resource {
            Resource::Directory(path) => self.directories.get(path.as_str()),
            Resource::Lock(name) => self.locks.get(name.as_str()),
            Resource::Queue(name) => self.queues.get(name.as_str()),
        }
    }

    /// An entry of a directory changed.
    pub fn tell_directory(&self, path: Path, name: &str, change: EntryChange, outcome: &mut Outcome) {
        let event = || Event::Directory { path: path.text().to_owned(), name: name.to_owned(), change };
        tell(self.directories.get(path.text()), event, outcome);
    }

    /// Many files are gone at once. Each watcher is told of the last of them, as many as its session keeps, and how many
    /// there were before: all events would be as many as there are files and watchers, multiplied.
    pub fn tell_deleted(&self, paths: &Set<Arc<str>>, outcome: &mut Outcome) {
        let mut directories: BTreeMap<&str, Deleted> = BTreeMap::new();
        let mut told: BTreeMap<SessionId, u64> = BTreeMap::new();
        let mut events = Vec::new();
        let paths: Vec<&Arc<str>> = paths.keys().collect();
        for text in paths.into_iter().rev() {
            let path = Path::parse(text).expect("it was checked when the file was made");
            let Some((above, name)) = path.split() else { continue };
            let directory = directories
                .entry(above.text())
                .or_insert_with(|| Deleted::new(self.directories.get(above.text())));
            directory.count += 1;
            if directory.takers.is_empty() {
                continue;
            }
            let (path, name, change) = (above.text().to_owned(), name.to_owned(), EntryChange::Deleted);
            let event = Event::Directory { path, name, change }.to_bytes();
            directory.takers.retain(|&session| {
                let told = told.entry(session).or_default();
                let takes = *told < EVENTS_MAX as u64;
                if takes {
                    *told += 1;
                    events.push((session, event.clone()));
                }
                takes
            });
        }
        let mut all: BTreeMap<SessionId, u64> = BTreeMap::new();
        for (above, directory) in &directories {
            for &session in self.directories.get(*above).into_iter().flat_map(Set::keys) {
                *all.entry(session).or_default() += directory.count;
            }
        }
        let omitted = |(session, all): (SessionId, u64)| {
            let omitted = all - told.get(&session).copied().unwrap_or(0);
            (omitted > 0).then_some((session, omitted))
        };
        outcome.omitted.extend(all.into_iter().filter_map(omitted));
        outcome.events.extend(events.into_iter().rev());
    }

    /// Someone waits for a lock.
    pub fn tell_lock(&self, name: &str, exclusive: bool, outcome: &mut Outcome) {
        tell(self.locks.get(name), || Event::Lock { name: name.to_owned(), exclusive }, outcome);
    }

    pub fn tell_queue(&self, name: &str, change: QueueChange, outcome: &mut Outcome) {
        tell(self.queues.get(name), || Event::Queue { name: name.to_owned(), change }, outcome);
    }

    fn of(&mut self, resource: &Resource) -> (&mut Map<Arc<str>, Set<SessionId>>, Arc<str>) {
        match resource {
            Resource::Directory(path) => (&mut self.directories, path.as_str().into()),
            Resource::Lock(name) => (&mut self.locks, name.as_str().into()),
            Resource::Queue(name) => (&mut self.queues, name.as_str().into()),
        }
    }
}

/// The form of what is watched; it need not exist.
pub(crate) fn check_resource(resource: &Resource) -> Result<(), Refusal> {
    match resource {
        Resource::Directory(path) => Path::parse(path).map(|_| ()),
        Resource::Lock(name) | Resource::Queue(name) => check_name(name),
    }
}

/// The event is made once, and not at all when nobody watches.
fn tell(sessions: Option<&Set<SessionId>>, event: impl FnOnce() -> Event, outcome: &mut Outcome) {
    let Some(sessions) = sessions else { return };
    let event = event().to_bytes();
    outcome.events.extend(sessions.keys().map(|&session| (session, event.clone())));
}
