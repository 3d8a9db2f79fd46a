//! [`Tree`]: files and directories. Looks first, changes after: a function that changes cannot fail.

use crate::content::Content;
use crate::map::Map;
use crate::path::Path;
use crate::protocol::{Refusal, Stat};
use kumo_session::{SessionId, UnixMillis};
use std::sync::Arc;

/// The root directory and what is counted below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tree {
    pub root: Directory,
    pub files: u64,
    /// Without the root, which is always there.
    pub directories: u64,
    /// Lengths of all files.
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    File(File),
    Directory(Directory),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct File {
    pub stamp: Stamp,
    pub created: UnixMillis,
    /// The session whose end removes it.
    pub ephemeral: Option<SessionId>,
    pub content: Content,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Directory {
    /// Of the last change of an entry: one that came, went, or is a file and was written. What happens
    /// inside a directory below is that directory's change.
    pub stamp: Stamp,
    pub created: UnixMillis,
    pub entries: Map<Arc<str>, Node>,
}

/// A change: its number, and when it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub version: u64,
    pub time: UnixMillis,
}

/// What is at a path.
#[derive(Clone, Copy)]
pub(crate) enum Found<'a> {
    File(&'a File),
    Directory(&'a Directory),
}

impl Tree {
    /// What is there; refused when the way leads through a file.
    pub fn find(&self, path: Path) -> Result<Option<Found<'_>>, Refusal> {
        let mut found = Found::Directory(&self.root);
        for (above, name) in path.steps() {
            let Found::Directory(directory) = found else {
                return Err(Refusal::NotDirectory(above.text().to_owned()));
            };
            match directory.entries.get(name) {
                None => return Ok(None),
                Some(node) => found = node.as_found(),
            }
        }
        Ok(Some(found))
    }

    /// The file there, if there is anything.
    pub fn file(&self, path: Path) -> Result<Option<&File>, Refusal> {
        match self.find(path)? {
            None => Ok(None),
            Some(Found::File(file)) => Ok(Some(file)),
            Some(Found::Directory(_)) => Err(Refusal::IsDirectory(path.text().to_owned())),
        }
    }

    pub fn existing_file(&self, path: Path) -> Result<&File, Refusal> {
        self.file(path)?.ok_or_else(|| Refusal::NotFound(path.text().to_owned()))
    }

    pub fn existing_directory(&self, path: Path) -> Result<&Directory, Refusal> {
        match self.find(path)? {
            None => Err(Refusal::NotFound(path.text().to_owned())),
            Some(Found::File(_)) => Err(Refusal::NotDirectory(path.text().to_owned())),
            Some(Found::Directory(directory)) => Ok(directory),
        }
    }

    /// How many names of the path lead to something that is there.
    pub fn existing_steps(&self, path: Path) -> usize {
        let mut directory = &self.root;
        for (count, (_, name)) in path.steps().enumerate() {
            match directory.entries.get(name) {
                None => return count,
                Some(Node::File(_)) => return count + 1,
                Some(Node::Directory(below)) => directory = below,
            }
        }
        path.depth()
    }

    /// Puts a node at a path where nothing is, with the directories that are missing above it.
    pub fn insert(&mut self, path: Path, node: Node, stamp: Stamp) {
        let (above, name) = path.split().expect("the root is there always");
        match &node {
            Node::File(file) => {
                self.files += 1;
                self.bytes += file.content.len();
            }
            Node::Directory(_) => self.directories += 1,
        }
        self.make_directory(above, stamp).entries.insert(name.into(), node);
    }

    /// Takes away a file or an empty directory that is there.
    pub fn remove(&mut self, path: Path, stamp: Stamp) {
        let (above, name) = path.split().expect("the root stays always");
        match self.make_directory(above, stamp).entries.remove(name) {
            None => unreachable!("looked up before"),
            Some(Node::File(file)) => {
                self.files -= 1;
                self.bytes -= file.content.len();
            }
            Some(Node::Directory(_)) => self.directories -= 1,
        }
    }

    /// Takes a node from one path and puts it at another in a directory that is there, with all below it.
    pub fn rename(&mut self, from: Path, to: Path, stamp: Stamp) {
        let (above, name) = from.split().expect("the root is not renamed");
        let mut node = self.make_directory(above, stamp).entries.remove(name).expect("looked up before");
        node.stamp_mut().version = stamp.version;
        let (above, name) = to.split().expect("the root is there always");
        self.make_directory(above, stamp).entries.insert(name.into(), node);
    }

    /// Changes the content of a file that is there.
    pub fn change(&mut self, path: Path, stamp: Stamp, change: impl FnOnce(&mut Content)) {
        let (above, name) = path.split().expect("the root is not a file");
        let Some(Node::File(file)) = self.make_directory(above, stamp).entries.get_mut(name) else {
            unreachable!("looked up before");
        };
        let before = file.content.len();
        change(&mut file.content);
        file.stamp = stamp;
        let after = file.content.len();
        self.bytes = self.bytes - before + after;
    }

    /// The directory at that path, stamped: an entry of it is about to change. It and those above it
    /// are made if missing.
    fn make_directory(&mut self, path: Path, stamp: Stamp) -> &mut Directory {
        let mut directory = &mut self.root;
        for (_, name) in path.steps() {
            if !directory.entries.contains(name) {
                directory.stamp = stamp;
                directory.entries.insert(name.into(), Node::Directory(Directory::new(stamp)));
                self.directories += 1;
            }
            directory = match directory.entries.get_mut(name) {
                Some(Node::Directory(below)) => below,
                Some(Node::File(_)) | None => unreachable!("looked up before"),
            };
        }
        directory.stamp = stamp;
        directory
    }
}

impl Node {
    pub fn as_found(&self) -> Found<'_> {
        match self {
            Node::File(file) => Found::File(file),
            Node::Directory(directory) => Found::Directory(directory),
        }
    }

    fn stamp_mut(&mut self) -> &mut Stamp {
        match self {
            Node::File(file) => &mut file.stamp,
            Node::Directory(directory) => &mut directory.stamp,
        }
    }
}

impl Directory {
    pub fn new(stamp: Stamp) -> Directory {
        Directory { stamp, created: stamp.time, entries: Map::default() }
    }

    /// Calls `visit` with the path of everything below, relative to this directory and starting with `/`.
    /// As deep as paths may be, so never deeper than [`DEPTH_MAX`](crate::DEPTH_MAX).
    pub fn visit(&self, below: &mut String, visit: &mut impl FnMut(&str, Found)) {
        for (name, node) in self.entries.iter() {
            let length = below.len();
            below.push('/');
            below.push_str(name);
            visit(below, node.as_found());
            if let Node::Directory(directory) = node {
                directory.visit(below, visit);
            }
            below.truncate(length);
        }
    }
}

impl Found<'_> {
    pub fn stat(self) -> Stat {
        match self {
            Found::File(file) => Stat {
                directory: false,
                length: file.content.len(),
                version: file.stamp.version,
                created: file.created,
                modified: file.stamp.time,
                ephemeral: file.ephemeral,
            },
            Found::Directory(directory) => Stat {
                directory: true,
                length: directory.entries.len() as u64,
                version: directory.stamp.version,
                created: directory.created,
                modified: directory.stamp.time,
                ephemeral: None,
            },
        }
    }
}
