//! Commands on files and directories. Each checks everything, then changes the tree, then tells who watches.

use crate::limits::within;
use crate::map::Set;
use crate::path::Path;
use crate::pfs::{Done, Pfs};
use crate::protocol::{
    Condition, DEPTH_MAX, EntryChange, FILE_BYTES_MAX, PATH_BYTES_MAX, Place, Refusal, Reply, WRITE_BYTES_MAX,
};
use crate::tree::{Directory, File, Found, Node, Stamp};
use bytes::Bytes;
use kumo_session::{Entry, Outcome, SessionId};
use std::sync::Arc;

impl Pfs {
    /// `kind`: the session that owns the file if it is ephemeral. A file that exists keeps what it is.
    #[expect(clippy::too_many_arguments, reason = "the fields of one command")]
    pub(crate) fn write(
        &mut self,
        entry: Entry,
        path: &str,
        place: Place,
        data: Bytes,
        kind: Option<SessionId>,
        condition: &Condition,
        outcome: &mut Outcome,
    ) -> Done {
        let path = Path::parse(path)?;
        let count = data.len() as u64;
        within(count, WRITE_BYTES_MAX, "bytes of one write")?;
        let old = self.tree.file(path)?;
        self.check_condition(condition, old)?;
        let old_length = old.map(|file| file.content.len());
        let length = length_after(place, count, old_length.unwrap_or(0))?;
        let existing = old_length.map_or_else(|| self.tree.existing_steps(path), |_| path.depth());
        self.check_bytes(length, old_length.unwrap_or(0))?;
        self.check_nodes(path.depth() - existing)?;

        let stamp = self.stamp(entry);
        if old_length.is_none() {
            self.create_file(path, kind, stamp);
        }
        self.tree.change(path, stamp, |content| match place {
            Place::Offset(offset) => content.write(offset, data),
            Place::End => content.write(content.len(), data),
            Place::Replace => content.replace(data),
        });
        self.tell_written(path, existing, outcome);
        Ok(Some(Reply::Written { count, version: stamp.version, length }))
    }

    pub(crate) fn truncate(&mut self, entry: Entry, path: &str, length: u64, outcome: &mut Outcome) -> Done {
        let path = Path::parse(path)?;
        within(length, FILE_BYTES_MAX, "bytes of the file")?;
        let old_length = self.tree.existing_file(path)?.content.len();
        self.check_bytes(length, old_length)?;
        let stamp = self.stamp(entry);
        self.tree.change(path, stamp, |content| content.truncate(length));
        self.tell(path, EntryChange::Updated, outcome);
        Ok(Some(Reply::Done))
    }

    pub(crate) fn delete(
        &mut self,
        entry: Entry,
        path: &str,
        condition: &Condition,
        outcome: &mut Outcome,
    ) -> Done {
        let path = Path::parse(path)?;
        let file = self.tree.existing_file(path)?;
        self.check_condition(condition, Some(file))?;
        if let Some(session) = file.ephemeral {
            self.sessions.change(session, |holdings| holdings.ephemerals.remove(path.text()));
        }
        let stamp = self.stamp(entry);
        self.tree.remove(path, stamp);
        self.tell(path, EntryChange::Deleted, outcome);
        Ok(Some(Reply::Done))
    }

    pub(crate) fn mkdir(&mut self, entry: Entry, path: &str, outcome: &mut Outcome) -> Done {
        let path = Path::parse(path)?;
        if self.tree.find(path)?.is_some() {
            return Err(Refusal::Exists(path.text().to_owned()));
        }
        let existing = self.tree.existing_steps(path);
        self.check_nodes(path.depth() - existing)?;
        let stamp = self.stamp(entry);
        self.tree.insert(path, Node::Directory(Directory::new(stamp)), stamp);
        self.tell_written(path, existing, outcome);
        Ok(Some(Reply::Done))
    }

    pub(crate) fn rmdir(&mut self, entry: Entry, path: &str, outcome: &mut Outcome) -> Done {
        let path = Path::parse(path)?;
        if path.is_root() {
            return Err(Refusal::NotAllowed("the root directory stays".to_owned()));
        }
        if !self.tree.existing_directory(path)?.entries.is_empty() {
            return Err(Refusal::NotEmpty(path.text().to_owned()));
        }
        let stamp = self.stamp(entry);
        self.tree.remove(path, stamp);
        self.tell(path, EntryChange::Deleted, outcome);
        Ok(Some(Reply::Done))
    }

    /// The directory that the target goes to must exist. What is moved gets a new version, since its path
    /// changed; what lies below a moved directory keeps its own. Costs as much as there is below.
    pub(crate) fn rename(&mut self, entry: Entry, from: &str, to: &str, outcome: &mut Outcome) -> Done {
        let (from, to) = (Path::parse(from)?, Path::parse(to)?);
        if from.is_root() {
            return Err(Refusal::NotAllowed("the root directory stays".to_owned()));
        }
        let found = self.tree.find(from)?.ok_or_else(|| Refusal::NotFound(from.text().to_owned()))?;
        if self.tree.find(to)?.is_some() {
            return Err(Refusal::Exists(to.text().to_owned()));
        }
        if to.is_below(from) {
            return Err(Refusal::NotAllowed("a directory cannot go below itself".to_owned()));
        }
        let (above, _) = to.split().expect("the root exists, and was refused");
        self.tree.existing_directory(above)?;
        let ephemerals = ephemerals_moved(found, to)?;

        for (session, below) in ephemerals {
            self.sessions.change(session, |holdings| {
                holdings.ephemerals.remove(format!("{}{below}", from.text()).as_str());
                holdings.ephemerals.insert(format!("{}{below}", to.text()).into(), ());
            });
        }
        let stamp = self.stamp(entry);
        self.tree.rename(from, to, stamp);
        self.tell(from, EntryChange::Deleted, outcome);
        self.tell(to, EntryChange::Created, outcome);
        Ok(Some(Reply::Done))
    }

    /// A session ended: its ephemeral files go, in one change. The directories they are in stay.
    pub(crate) fn remove_ephemerals(&mut self, entry: Entry, paths: &Set<Arc<str>>, outcome: &mut Outcome) {
        if paths.is_empty() {
            return;
        }
        let stamp = self.stamp(entry);
        for text in paths.keys() {
            let path = Path::parse(text).expect("it was checked when the file was made");
            self.tree.remove(path, stamp);
        }
        self.watches.tell_deleted(paths, outcome);
    }

    fn create_file(&mut self, path: Path, ephemeral: Option<SessionId>, stamp: Stamp) {
        let file = File { stamp, created: stamp.time, ephemeral, content: Default::default() };
        self.tree.insert(path, Node::File(file), stamp);
        if let Some(session) = ephemeral {
            self.sessions.change(session, |holdings| holdings.ephemerals.insert(path.text().into(), ()));
        }
    }

    /// Tells of everything that was made on the way, or else that the last was updated.
    fn tell_written(&self, path: Path, existing: usize, outcome: &mut Outcome) {
        if existing == path.depth() {
            return self.tell(path, EntryChange::Updated, outcome);
        }
        for (above, name) in path.steps().skip(existing) {
            self.watches.tell_directory(above, name, EntryChange::Created, outcome);
        }
    }

    fn tell(&self, path: Path, change: EntryChange, outcome: &mut Outcome) {
        if let Some((above, name)) = path.split() {
            self.watches.tell_directory(above, name, change, outcome);
        }
    }

    fn check_condition(&self, condition: &Condition, file: Option<&File>) -> Result<(), Refusal> {
        let version = file.map_or(0, |file| file.stamp.version);
        match condition {
            Condition::Always => Ok(()),
            Condition::Version(wanted) if *wanted == version => Ok(()),
            Condition::Version(_) => Err(Refusal::Version(version)),
            Condition::Fence { lock, number } if self.locks.is_granted(lock, *number) => Ok(()),
            Condition::Fence { .. } => Err(Refusal::Fenced),
        }
    }

    /// Room for a file that becomes `length` long.
    fn check_bytes(&self, length: u64, old_length: u64) -> Result<(), Refusal> {
        if length <= old_length {
            return Ok(());
        }
        within(self.bytes() - old_length + length, self.limits.bytes, "bytes in files and queues")
    }

    fn check_nodes(&self, more: usize) -> Result<(), Refusal> {
        let nodes = self.tree.files + self.tree.directories + more as u64;
        within(nodes, self.limits.nodes, "files and directories")
    }
}

/// How long a file will be.
fn length_after(place: Place, count: u64, length: u64) -> Result<u64, Refusal> {
    let after = match place {
        Place::Offset(_) if count == 0 => length,
        Place::Offset(offset) => length.max(offset.saturating_add(count)),
        Place::End => length.saturating_add(count),
        Place::Replace => count,
    };
    within(after, FILE_BYTES_MAX, "bytes of the file")?;
    Ok(after)
}

/// The ephemeral files among what would move to `to`, with their paths relative to it. Refused when a path
/// would become longer or deeper than paths may be.
fn ephemerals_moved(found: Found, to: Path) -> Result<Vec<(SessionId, String)>, Refusal> {
    let mut moved = Vec::new();
    let (mut depth, mut length) = (0, 0);
    let mut visit = |below: &str, found: Found| {
        depth = depth.max(below.bytes().filter(|&byte| byte == b'/').count());
        length = length.max(below.len());
        if let Found::File(File { ephemeral: Some(session), .. }) = found {
            moved.push((*session, below.to_owned()));
        }
    };
    visit("", found);
    if let Found::Directory(directory) = found {
        directory.visit(&mut String::new(), &mut visit);
    }
    within((to.depth() + depth) as u64, DEPTH_MAX as u64, "names of a path below")?;
    within((to.text().len() + length) as u64, PATH_BYTES_MAX as u64, "bytes of a path below")?;
    Ok(moved)
}
