//! A second PFS, as naive as can be: plain maps and vectors, every command on a copy that is dropped when it is
//! refused. Random commands must lead both to the same replies, answers, events and contents.

use crate::host::{Host, count, id};
use crate::model_lines::{Lock, Queue};
use crate::random::{Random, SESSIONS, Step};
use kumo_pfs::{
    Command, Condition, EntryChange, Event, Pfs, Place, Query, Refusal, Reply, Resource, Stat, Usage,
};
use kumo_session::{Application, Outcome, UnixMillis, numbered};
use kumo_wire::Wire;
use std::collections::{BTreeMap, BTreeSet};

/// What a command led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    pub reply: Option<Reply>,
    pub answers: Vec<(u64, u64, Reply)>,
    pub events: Vec<(u64, Event)>,
}

#[derive(Clone, Default)]
pub struct Model {
    pub time: u64,
    nodes: BTreeMap<String, Node>,
    pub locks: BTreeMap<String, Lock>,
    pub queues: BTreeMap<String, Queue>,
    watches: BTreeSet<(Resource, u64)>,
    changes: u64,
    pub grants: u64,
    pub messages: u64,
}

#[derive(Clone)]
struct Node {
    /// `None`: a directory.
    data: Option<Vec<u8>>,
    version: u64,
    created: u64,
    modified: u64,
    ephemeral: Option<u64>,
}

pub type Done = Result<Option<Reply>, Refusal>;

impl Model {
    fn new() -> Model {
        let root = Node { data: None, version: 0, created: 0, modified: 0, ephemeral: None };
        Model { nodes: BTreeMap::from([("/".to_owned(), root)]), ..Model::default() }
    }

    fn apply(&mut self, session: u64, number: u64, command: Command) -> Told {
        let mut changed = self.clone();
        let mut told = Told::default();
        match changed.execute(session, number, command, &mut told) {
            Ok(reply) => {
                *self = changed;
                Told { reply, ..told }
            }
            Err(refusal) => Told { reply: Some(Reply::Refused(refusal)), ..Told::default() },
        }
    }

    fn execute(&mut self, session: u64, number: u64, command: Command, told: &mut Told) -> Done {
        match command {
            Command::Write { path, place, data, ephemeral, condition } => {
                let kind = ephemeral.then_some(session);
                self.write(&path, place, &data, kind, &condition, told)
            }
            Command::Truncate { path, length } => {
                self.file(&path)?.ok_or(Refusal::NotFound(path.clone()))?;
                self.edit(&path, |data| data.resize(length as usize, 0), told);
                Ok(Some(Reply::Done))
            }
            Command::Delete { path, condition } => {
                let version = self.file(&path)?.ok_or(Refusal::NotFound(path.clone()))?.version;
                self.check(&condition, version)?;
                self.changes += 1;
                self.remove(&path, told);
                Ok(Some(Reply::Done))
            }
            Command::Rename { from, to } => self.rename(&from, &to, told),
            Command::Mkdir { path } => {
                if self.find(&path)?.is_some() {
                    return Err(Refusal::Exists(path));
                }
                self.changes += 1;
                self.make(&path, None, None, told);
                Ok(Some(Reply::Done))
            }
            Command::Rmdir { path } => self.rmdir(&path, told),
            Command::Lock { name, exclusive, try_only } => {
                self.lock(session, number, &name, exclusive, try_only, told)
            }
            Command::Unlock { name } => self.unlock(session, &name, told),
            Command::Watch { resource } => {
                check_resource(&resource)?;
                self.watches.insert((resource, session));
                Ok(Some(Reply::Done))
            }
            Command::Unwatch { resource } => {
                check_resource(&resource)?;
                self.watches.remove(&(resource, session));
                Ok(Some(Reply::Done))
            }
            Command::Post { queue, data } => self.post(&queue, data, told),
            Command::Wait { queue, try_only } => self.take(session, number, &queue, false, try_only, told),
            Command::Receive { queue, try_only } => self.take(session, number, &queue, true, try_only, told),
            Command::Acknowledge { queue, id } => self.acknowledge(session, &queue, id),
            Command::DeleteMessage { queue, id } => self.delete_message(session, &queue, id),
        }
    }

    fn end(&mut self, session: u64) -> Told {
        let mut told = Told::default();
        self.watches.retain(|watch| watch.1 != session);
        self.end_lines(session, &mut told);
        let of_session = |node: &Node| node.ephemeral == Some(session);
        let gone: Vec<String> =
            self.nodes.iter().filter(|(_, node)| of_session(node)).map(|(path, _)| path.clone()).collect();
        self.changes += u64::from(!gone.is_empty());
        for path in gone {
            self.remove(&path, &mut told);
        }
        told
    }

    fn write(
        &mut self,
        path: &str,
        place: Place,
        new: &[u8],
        kind: Option<u64>,
        condition: &Condition,
        told: &mut Told,
    ) -> Done {
        let version = self.file(path)?.map_or(0, |file| file.version);
        self.check(condition, version)?;
        self.changes += 1;
        let edit = |data: &mut Vec<u8>| match place {
            Place::Offset(_) if new.is_empty() => {}
            Place::Offset(offset) => {
                let end = offset as usize + new.len();
                data.resize(data.len().max(end), 0);
                data[offset as usize..end].copy_from_slice(new);
            }
            Place::End => data.extend_from_slice(new),
            Place::Replace => *data = new.to_vec(),
        };
        if version == 0 {
            let mut data = Vec::new();
            edit(&mut data);
            self.make(path, Some(data), kind, told);
        } else {
            self.changes -= 1;
            self.edit(path, edit, told);
        }
        let length = self.nodes[path].data.as_ref().unwrap().len() as u64;
        Ok(Some(Reply::Written { count: new.len() as u64, version: numbered(1, self.changes), length }))
    }

    fn edit(&mut self, path: &str, edit: impl FnOnce(&mut Vec<u8>), told: &mut Told) {
        self.changes += 1;
        let (version, modified) = (numbered(1, self.changes), self.time);
        let node = self.nodes.get_mut(path).unwrap();
        edit(node.data.as_mut().unwrap());
        (node.version, node.modified) = (version, modified);
        self.entry_changed(path, EntryChange::Updated, told);
    }

    /// With parents.
    fn make(&mut self, path: &str, data: Option<Vec<u8>>, ephemeral: Option<u64>, told: &mut Told) {
        if !self.nodes.contains_key(&split(path).0) {
            self.make(&split(path).0, None, None, told);
        }
        let (version, time) = (numbered(1, self.changes), self.time);
        let node = Node { data, version, created: time, modified: time, ephemeral };
        self.nodes.insert(path.to_owned(), node);
        self.entry_changed(path, EntryChange::Created, told);
    }

    fn remove(&mut self, path: &str, told: &mut Told) {
        self.nodes.remove(path);
        self.entry_changed(path, EntryChange::Deleted, told);
    }

    fn rmdir(&mut self, path: &str, told: &mut Told) -> Done {
        check_path(path)?;
        if path == "/" {
            return Err(Refusal::NotAllowed(String::new()));
        }
        let found = self.find(path)?.ok_or(Refusal::NotFound(path.to_owned()))?;
        if found.data.is_some() {
            return Err(Refusal::NotDirectory(path.to_owned()));
        }
        if self.nodes.keys().any(|other| other.starts_with(&format!("{path}/"))) {
            return Err(Refusal::NotEmpty(path.to_owned()));
        }
        self.changes += 1;
        self.remove(path, told);
        Ok(Some(Reply::Done))
    }

    fn rename(&mut self, from: &str, to: &str, told: &mut Told) -> Done {
        check_path(from)?;
        check_path(to)?;
        if from == "/" {
            return Err(Refusal::NotAllowed(String::new()));
        }
        self.find(from)?.ok_or(Refusal::NotFound(from.to_owned()))?;
        if self.find(to)?.is_some() {
            return Err(Refusal::Exists(to.to_owned()));
        }
        if to.starts_with(&format!("{from}/")) {
            return Err(Refusal::NotAllowed(String::new()));
        }
        let above = split(to).0;
        match self.find(&above)? {
            None => return Err(Refusal::NotFound(above)),
            Some(node) if node.data.is_some() => return Err(Refusal::NotDirectory(above)),
            Some(_) => {}
        }
        self.changes += 1;
        let is_moved = |path: &str| path == from || path.starts_with(&format!("{from}/"));
        let moved: Vec<String> = self.nodes.keys().filter(|path| is_moved(path)).cloned().collect();
        for path in moved {
            let node = self.nodes.remove(&path).unwrap();
            self.nodes.insert(format!("{to}{}", &path[from.len()..]), node);
        }
        self.nodes.get_mut(to).unwrap().version = numbered(1, self.changes);
        self.entry_changed(from, EntryChange::Deleted, told);
        self.entry_changed(to, EntryChange::Created, told);
        Ok(Some(Reply::Done))
    }

    fn find(&self, path: &str) -> Result<Option<&Node>, Refusal> {
        check_path(path)?;
        let ends = path.match_indices('/').map(|(slash, _)| slash.max(1));
        for end in ends.filter(|&end| end < path.len()) {
            match self.nodes.get(&path[..end]) {
                None => return Ok(None),
                Some(node) if node.data.is_some() => {
                    return Err(Refusal::NotDirectory(path[..end].to_owned()));
                }
                Some(_) => {}
            }
        }
        Ok(self.nodes.get(path))
    }

    fn file(&self, path: &str) -> Result<Option<&Node>, Refusal> {
        match self.find(path)? {
            Some(node) if node.data.is_none() => Err(Refusal::IsDirectory(path.to_owned())),
            found => Ok(found),
        }
    }

    fn check(&self, condition: &Condition, version: u64) -> Result<(), Refusal> {
        match condition {
            Condition::Always => Ok(()),
            Condition::Version(wanted) if *wanted == version => Ok(()),
            Condition::Version(_) => Err(Refusal::Version(version)),
            Condition::Fence { lock, number } => {
                let held = self
                    .locks
                    .get(lock)
                    .is_some_and(|lock| lock.holders.iter().any(|held| held.1 == *number));
                if held { Ok(()) } else { Err(Refusal::Fenced) }
            }
        }
    }

    fn entry_changed(&mut self, path: &str, change: EntryChange, told: &mut Told) {
        let (above, name) = split(path);
        let directory = self.nodes.get_mut(&above).unwrap();
        (directory.version, directory.modified) = (numbered(1, self.changes), self.time);
        let event = Event::Directory { path: above.clone(), name, change };
        self.tell(Resource::Directory(above), event, told);
    }

    pub fn tell(&self, resource: Resource, event: Event, told: &mut Told) {
        let watchers = self.watches.iter().filter(|watch| watch.0 == resource);
        told.events.extend(watchers.map(|watch| (watch.1, event.clone())));
    }

    fn stat(&self, path: &str) -> Option<Stat> {
        let node = self.nodes.get(path)?;
        let is_entry = |other: &str| other != "/" && split(other).0 == path;
        let entries = self.nodes.keys().filter(|other| is_entry(other)).count();
        Some(Stat {
            directory: node.data.is_none(),
            length: node.data.as_ref().map_or(entries, Vec::len) as u64,
            version: node.version,
            created: UnixMillis(node.created),
            modified: UnixMillis(node.modified),
            ephemeral: node.ephemeral.map(id),
        })
    }

    /// Everything that queries show is as it is here.
    fn compare(&self, host: &Host) {
        for (path, node) in &self.nodes {
            let found = host.query(&Query::Stat { path: path.clone() });
            assert_eq!(found, Reply::Stat(self.stat(path).unwrap()), "{path}");
            let Some(data) = &node.data else { continue };
            let read = Query::Read { path: path.clone(), offset: 0, length: u64::MAX };
            let Reply::Data { bytes, .. } = host.query(&read) else { panic!("{path} is a file") };
            assert_eq!(bytes, *data);
        }
        let files = self.nodes.values().filter(|node| node.data.is_some()).count() as u64;
        let bytes: usize = self.nodes.values().flat_map(|node| &node.data).map(Vec::len).sum();
        let directories = self.nodes.len() as u64 - files - 1;
        let (messages, message_bytes) = self.compare_lines(host);
        let bytes = bytes as u64 + message_bytes;
        assert_eq!(host.query(&Query::Usage), Reply::Usage(Usage { bytes, files, directories, messages }));
    }
}

fn split(path: &str) -> (String, String) {
    let slash = path.rfind('/').unwrap();
    (path[..slash.max(1)].to_owned(), path[slash + 1..].to_owned())
}

fn check_path(path: &str) -> Result<(), Refusal> {
    let names = path.strip_prefix('/').ok_or(Refusal::BadPath(String::new()))?;
    let bad = |name: &str| matches!(name, "" | "." | "..") || name.contains('\0');
    if path != "/" && names.split('/').any(bad) { Err(Refusal::BadPath(String::new())) } else { Ok(()) }
}

pub fn check_name(name: &str) -> Result<(), Refusal> {
    if name.is_empty() { Err(Refusal::BadName(String::new())) } else { Ok(()) }
}

fn check_resource(resource: &Resource) -> Result<(), Refusal> {
    match resource {
        Resource::Directory(path) => check_path(path),
        Resource::Lock(name) | Resource::Queue(name) => check_name(name),
    }
}

/// Without the explanations in words, which the model does not repeat.
fn plain(reply: Reply) -> Reply {
    match reply {
        Reply::Refused(Refusal::BadPath(_)) => Reply::Refused(Refusal::BadPath(String::new())),
        Reply::Refused(Refusal::BadName(_)) => Reply::Refused(Refusal::BadName(String::new())),
        Reply::Refused(Refusal::NotAllowed(_)) => Reply::Refused(Refusal::NotAllowed(String::new())),
        reply => reply,
    }
}

fn told(outcome: &Outcome) -> Told {
    let reply = |bytes: &::bytes::Bytes| plain(Reply::from_bytes(bytes.clone()).unwrap());
    Told {
        reply: outcome.reply.as_ref().map(reply),
        answers: outcome
            .answers
            .iter()
            .map(|(to, number, bytes)| (count(to.0), *number, reply(bytes)))
            .collect(),
        events: outcome
            .events
            .iter()
            .map(|(to, bytes)| (count(to.0), Event::from_bytes(bytes.clone()).unwrap()))
            .collect(),
    }
}

/// How many commands were done, parked and refused, and how many parked ones were answered.
#[derive(Debug, Default)]
struct Tally {
    done: u64,
    parked: u64,
    refused: u64,
    answered: u64,
}

fn run(seed: u64, steps: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let mut host = Host::with_sessions(SESSIONS);
    let mut model = Model::new();
    let mut frozen = None;
    for turn in 0..steps {
        host.time += 1;
        model.time = host.time;
        let before = host.snapshot();
        let step = random.step(&|session| host.last_request(session));
        let (seen, expected) = match step.clone() {
            Step::Command(session, command) => {
                let outcome = told(&host.apply(session, &command));
                (outcome, model.apply(session, host.last_request(session), command))
            }
            Step::Cancel(session, target) => {
                let (found, outcome) = host.cancel(session, target);
                let mut expected = Told::default();
                assert_eq!(found, model.cancel(session, target, &mut expected), "seed {seed}, turn {turn}");
                (told(&outcome), expected)
            }
            Step::End(session) => (told(&host.end(session)), model.end(session)),
        };
        assert_eq!(seen, expected, "seed {seed}, turn {turn}, {step:?}");
        tally.answered += seen.answers.len() as u64;
        match seen.reply {
            Some(Reply::Refused(_)) => {
                tally.refused += 1;
                assert_eq!(host.snapshot(), before, "a refusal changed something: {step:?}");
            }
            Some(_) => tally.done += 1,
            None => tally.parked += 1,
        }
        model.compare(&host);
        if turn % 20 == 0 {
            let again = Pfs::restore(host.pfs.snapshot().collect()).expect("every rule holds");
            assert!(again == host.pfs, "seed {seed}, turn {turn}");
            if random.chance(50) {
                host.pfs = again;
            }
            // The snapshot begun earlier has not noticed what happened since.
            if let Some((parts, whole)) = frozen.replace((host.pfs.snapshot(), host.snapshot())) {
                let late: Vec<u8> = Iterator::flat_map(parts, |part| part.to_vec()).collect();
                assert_eq!(late, whole);
            }
        }
    }
}

#[test]
fn random_commands_do_what_the_naive_model_does() {
    let mut tally = Tally::default();
    for seed in 0..80 {
        run(seed, 400, &mut tally);
    }
    assert!(tally.done > 10_000 && tally.refused > 5_000, "{tally:?}");
    assert!(tally.parked > 1_000 && tally.answered > 1_000, "{tally:?}");
}

#[test]
fn the_same_entries_give_the_same_outcomes_and_snapshots() {
    for seed in 0..30 {
        let mut random = Random::new(1000 + seed);
        let mut one = Host::with_sessions(SESSIONS);
        let mut other = one.clone();
        let mut held = Vec::new();
        for turn in 0..500 {
            let (a, b) = match random.step(&|session| one.last_request(session)) {
                Step::Command(session, command) => {
                    (one.apply(session, &command), other.apply(session, &command))
                }
                Step::Cancel(session, target) => {
                    (one.cancel(session, target).1, other.cancel(session, target).1)
                }
                Step::End(session) => (one.end(session), other.end(session)),
            };
            assert_eq!(a, b);
            // One is restarted from snapshots now and then, the other always has one under way.
            match turn % 50 {
                17 => one.pfs = Pfs::restore(one.pfs.snapshot().collect()).unwrap(),
                3 => held.push(other.pfs.snapshot()),
                _ => {}
            }
        }
        assert_eq!(one.snapshot(), other.snapshot());
    }
}
