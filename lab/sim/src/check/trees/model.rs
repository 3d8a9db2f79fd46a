//! [`Tree`]: what files and directories should do, in the plainest way: a map from paths to what is there.

use super::versions::{ChangeNumber, Versions};
use crate::history::ClientNumber;
use kumo_pfs::{Command, Condition, DirectoryEntry, Place, Query, Refusal, Reply, Stat};
use std::collections::{BTreeMap, BTreeSet};

/// A tree as it may have been at some moment. The root directory of PFS is left out: it is there always.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
    versions: Versions,
    /// Clients whose sessions are over.
    ended: BTreeSet<ClientNumber>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    /// `None`: a directory.
    content: Option<Vec<u8>>,
    /// Ephemeral: whose.
    owner: Option<ClientNumber>,
    /// Has its version from this change.
    change: ChangeNumber,
}

/// Somebody's command and what it was told, if it was told anything.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub client: ClientNumber,
    pub change: ChangeNumber,
    pub command: &'a Command,
    pub told: Option<&'a Reply>,
}

/// `None`: what was told cannot be told here.
type Fits<T> = Option<T>;

impl Tree {
    /// Executes a command, if it gives what was told.
    pub fn command(mut self, request: &Request) -> Fits<Tree> {
        if self.ended.contains(&request.client) {
            return None;
        }
        let done = self.execute(request)?;
        if request.told.is_some_and(|told| *told != done.unwrap_or_else(Reply::Refused)) {
            return None;
        }
        self.tidied()
    }

    /// Looks, if what was told is there to be seen.
    pub fn query(mut self, query: &Query, told: &Reply) -> Fits<Tree> {
        match (self.answer(query), told) {
            (Err(refusal), told) => (*told == Reply::Refused(refusal)).then_some(self),
            (Ok(()), Reply::Data { bytes, version }) => {
                let Query::Read { path, offset, length } = query else { return None };
                let node = &self.nodes[path];
                let content = node.content.as_ref().expect("a read of a directory is refused");
                let from = content.len().min(*offset as usize);
                let upto = content.len().min(offset.saturating_add(*length) as usize);
                self.versions.seen(node.change, *version)?;
                (content[from..upto] == bytes[..]).then_some(self)
            }
            (Ok(()), Reply::Stat(stat)) => {
                let Query::Stat { path } = query else { return None };
                self.stat(path, stat)?;
                Some(self)
            }
            (Ok(()), Reply::Entries { entries, total }) => {
                self.entries(query, entries, *total)?;
                Some(self)
            }
            (Ok(()), _) => None,
        }
    }

    /// A session ends and takes its files along. `None`: it has none.
    pub fn session_ended(mut self, client: ClientNumber, change: ChangeNumber) -> Fits<Tree> {
        let gone = self.nodes.iter().filter(|(_, node)| node.owner == Some(client));
        let gone: Vec<String> = gone.map(|(path, _)| path.clone()).collect();
        if gone.is_empty() {
            return None;
        }
        self.versions.made(change, None)?;
        for path in gone {
            self.nodes.remove(&path);
            self.touch(above(&path), change);
        }
        self.ended.insert(client);
        self.tidied()
    }

    fn execute(&mut self, request: &Request) -> Fits<Result<Reply, Refusal>> {
        match request.command {
            Command::Write { path, condition, .. } | Command::Delete { path, condition } => {
                if let Err(refusal) = self.file(path) {
                    return Some(Err(refusal));
                }
                let here = self.nodes.get(path).map(|node| node.change);
                if here.is_none() && matches!(request.command, Command::Delete { .. }) {
                    return Some(Err(Refusal::NotFound(path.clone())));
                }
                if let Err(refusal) = self.condition(condition, here, request.told)? {
                    return Some(Err(refusal));
                }
                self.change(request)
            }
            Command::Truncate { path, .. } => match self.existing_file(path) {
                Ok(()) => self.change(request),
                Err(refusal) => Some(Err(refusal)),
            },
            Command::Rename { from, to } => match self.may_rename(from, to) {
                Ok(()) => self.change(request),
                Err(refusal) => Some(Err(refusal)),
            },
            Command::Mkdir { path } => match self.find(path) {
                Ok(None) => self.change(request),
                Ok(Some(_)) => Some(Err(Refusal::Exists(path.clone()))),
                Err(refusal) => Some(Err(refusal)),
            },
            Command::Rmdir { path } => match self.existing_directory(path) {
                Ok(()) if self.below(path).next().is_some() => Some(Err(Refusal::NotEmpty(path.clone()))),
                Ok(()) => self.change(request),
                Err(refusal) => Some(Err(refusal)),
            },
            Command::Lock { .. }
            | Command::Unlock { .. }
            | Command::Watch { .. }
            | Command::Unwatch { .. }
            | Command::Post { .. }
            | Command::Wait { .. }
            | Command::Receive { .. }
            | Command::Acknowledge { .. }
            | Command::DeleteMessage { .. } => None,
        }
    }

    /// Does what nothing stands against.
    fn change(&mut self, request: &Request) -> Fits<Result<Reply, Refusal>> {
        let (change, told) = (request.change, request.told);
        let version = match told {
            Some(Reply::Written { version, .. }) => Some(*version),
            Some(_) | None => None,
        };
        self.versions.made(change, version)?;
        match request.command {
            Command::Write { path, place, data, ephemeral, .. } => {
                self.make_above(path, change);
                let owner = ephemeral.then_some(request.client);
                let fresh = Node { content: Some(Vec::new()), owner, change };
                let node = self.nodes.entry(path.clone()).or_insert(fresh);
                node.change = change;
                let content = node.content.as_mut().expect("a write on a directory is refused");
                write(content, *place, data);
                let (count, length) = (data.len() as u64, content.len() as u64);
                return Some(Ok(Reply::Written { count, version: version.unwrap_or(0), length }));
            }
            Command::Truncate { path, length } => {
                self.touch(above(path), change);
                let node = self.nodes.get_mut(path).expect("looked up before");
                node.change = change;
                node.content.as_mut().expect("it is a file").resize(*length as usize, 0);
            }
            Command::Delete { path, .. } | Command::Rmdir { path } => {
                self.nodes.remove(path);
                self.touch(above(path), change);
            }
            Command::Rename { from, to } => self.rename(from, to, change),
            Command::Mkdir { path } => {
                self.make_above(path, change);
                self.nodes.insert(path.clone(), Node { content: None, owner: None, change });
            }
            Command::Lock { .. }
            | Command::Unlock { .. }
            | Command::Watch { .. }
            | Command::Unwatch { .. }
            | Command::Post { .. }
            | Command::Wait { .. }
            | Command::Receive { .. }
            | Command::Acknowledge { .. }
            | Command::DeleteMessage { .. } => return None,
        }
        Some(Ok(Reply::Done))
    }

    /// Whether a version is the one that is wanted. What was told says so where nobody else has.
    fn condition(
        &mut self,
        condition: &Condition,
        here: Option<ChangeNumber>,
        told: Option<&Reply>,
    ) -> Fits<Result<(), Refusal>> {
        let Condition::Version(wanted) = condition else { return Some(Ok(())) };
        let (version, verdict) = match told {
            Some(Reply::Refused(Refusal::Version(actual))) if actual == wanted => return None,
            Some(Reply::Refused(Refusal::Version(actual))) => (*actual, Err(Refusal::Version(*actual))),
            Some(_) | None => (*wanted, Ok(())),
        };
        match here {
            None => (version == 0).then_some(verdict),
            Some(change) => self.versions.seen(change, version).map(|()| verdict),
        }
    }

    fn may_rename(&self, from: &str, to: &str) -> Result<(), Refusal> {
        self.find(from)?.ok_or_else(|| Refusal::NotFound(from.to_owned()))?;
        if self.find(to)?.is_some() {
            return Err(Refusal::Exists(to.to_owned()));
        }
        if is_below(to, from) {
            return Err(Refusal::NotAllowed("a directory cannot go below itself".to_owned()));
        }
        self.existing_directory(above(to))
    }

    fn rename(&mut self, from: &str, to: &str, change: ChangeNumber) {
        let moved = self.nodes.keys().filter(|path| *path == from || is_below(path, from));
        let moved: Vec<String> = moved.cloned().collect();
        for path in moved {
            let node = self.nodes.remove(&path).expect("it was just listed");
            self.nodes.insert(format!("{to}{}", &path[from.len()..]), node);
        }
        self.touch(to, change);
        self.touch(above(from), change);
        self.touch(above(to), change);
    }

    /// Whether there is something to be seen, or else the refusal.
    fn answer(&self, query: &Query) -> Result<(), Refusal> {
        match query {
            Query::Read { path, .. } => self.existing_file(path),
            Query::Stat { path } => {
                self.find(path)?.map(|_| ()).ok_or_else(|| Refusal::NotFound(path.clone()))
            }
            Query::ReadDir { path, .. } => self.existing_directory(path),
            Query::Peek { .. } | Query::Queues { .. } | Query::Locks { .. } | Query::Usage => {
                unreachable!("nobody asks that of a tree")
            }
        }
    }

    fn stat(&mut self, path: &str, stat: &Stat) -> Fits<()> {
        let node = &self.nodes[path];
        let length = node.content.as_ref().map_or(self.below(path).count(), Vec::len) as u64;
        let alike = stat.directory == node.content.is_none()
            && stat.length == length
            && stat.ephemeral.is_some() == node.owner.is_some();
        self.versions.seen(node.change, stat.version).filter(|()| alike)
    }

    fn entries(&mut self, query: &Query, entries: &[DirectoryEntry], total: u64) -> Fits<()> {
        let Query::ReadDir { path, index, count } = query else { return None };
        let all: Vec<String> = self.below(path).cloned().collect();
        let shown: Vec<&String> = all.iter().skip(*index as usize).take(*count as usize).collect();
        if total != all.len() as u64 || shown.len() != entries.len() {
            return None;
        }
        for (below, entry) in shown.into_iter().zip(entries) {
            if below[path.len() + 1..] != entry.name {
                return None;
            }
            self.stat(below, &entry.stat)?;
        }
        Some(())
    }

    fn find(&self, path: &str) -> Result<Option<&Node>, Refusal> {
        for (slash, _) in path.match_indices('/').skip(1) {
            match self.nodes.get(&path[..slash]) {
                None => return Ok(None),
                Some(Node { content: None, .. }) => {}
                Some(_) => return Err(Refusal::NotDirectory(path[..slash].to_owned())),
            }
        }
        Ok(self.nodes.get(path))
    }

    /// A file, or nothing.
    fn file(&self, path: &str) -> Result<Option<&Node>, Refusal> {
        match self.find(path)? {
            Some(Node { content: None, .. }) => Err(Refusal::IsDirectory(path.to_owned())),
            found => Ok(found),
        }
    }

    fn existing_file(&self, path: &str) -> Result<(), Refusal> {
        self.file(path)?.map(|_| ()).ok_or_else(|| Refusal::NotFound(path.to_owned()))
    }

    fn existing_directory(&self, path: &str) -> Result<(), Refusal> {
        match self.find(path)? {
            None => Err(Refusal::NotFound(path.to_owned())),
            Some(Node { content: None, .. }) => Ok(()),
            Some(_) => Err(Refusal::NotDirectory(path.to_owned())),
        }
    }

    /// What is directly in a directory, in the order of names.
    fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a String> {
        self.nodes.keys().filter(move |other| above(other) == path)
    }

    /// The directories above a path, made where they are missing; the last has a change of its entries.
    fn make_above(&mut self, path: &str, change: ChangeNumber) {
        for (slash, _) in path.match_indices('/').skip(1) {
            let directory = &path[..slash];
            if !self.nodes.contains_key(directory) {
                self.nodes.insert(directory.to_owned(), Node { content: None, owner: None, change });
                self.touch(above(directory), change);
            }
        }
        self.touch(above(path), change);
    }

    fn touch(&mut self, path: &str, change: ChangeNumber) {
        if let Some(node) = self.nodes.get_mut(path) {
            node.change = change;
        }
    }

    fn tidied(mut self) -> Fits<Tree> {
        let Tree { nodes, versions, .. } = &mut self;
        versions.keep(|change| nodes.values().any(|node| node.change == change));
        Some(self)
    }
}

fn write(content: &mut Vec<u8>, place: Place, data: &[u8]) {
    let offset = match place {
        Place::Offset(offset) => offset as usize,
        Place::End => content.len(),
        Place::Replace => {
            content.clear();
            0
        }
    };
    content.resize(content.len().max(offset + data.len()), 0);
    content[offset..offset + data.len()].copy_from_slice(data);
}

/// The directory that holds it.
fn above(path: &str) -> &str {
    path.rfind('/').map_or("", |slash| &path[..slash])
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}
