//! The state from the bytes of a snapshot. They came over a network or from a disk: every rule that the state
//! obeys is checked, and what breaks one is refused whole.

use crate::content::{Content, kept};
use crate::holdings::{Parked, ParkedAt};
use crate::locks::{Lock, LockWaiter};
use crate::map::Map;
use crate::path::{check_component, check_name};
use crate::pfs::{Numbers, Pfs};
use crate::protocol::{DEPTH_MAX, FILE_BYTES_MAX, MESSAGE_BYTES_MAX, PATH_BYTES_MAX, Resource};
use crate::queues::{Queue, QueueWaiter};
use crate::snapshot::{MAGIC, Record, VERSION};
use crate::source::Source;
use crate::tree::{Directory, File, Node, Stamp};
use crate::watches::check_resource;
use bytes::Bytes;
use kumo_session::{GENERATION_SHIFT, SessionId};
use kumo_wire::Malformed;
use std::sync::Arc;

/// Reads a whole snapshot.
pub(crate) fn restore(parts: Vec<Bytes>) -> Result<Pfs, Malformed> {
    let mut source = Source::new(parts);
    require(source.take(MAGIC.len())?[..] == MAGIC, "not a snapshot of PFS")?;
    require(source.take(4)?[..] == VERSION.to_le_bytes(), "a snapshot of another version")?;
    source.advance()?;
    let mut restorer = Restorer { source, pfs: Pfs::new() };
    restorer.numbers()?;
    restorer.tree()?;
    restorer.locks()?;
    restorer.queues()?;
    restorer.watches()?;
    require(matches!(restorer.source.next, Record::End), OUT_OF_ORDER)?;
    match restorer.source.left() {
        0 => restorer.check_totals(),
        more => Err(Malformed::Long(more)),
    }
}

/// What is read, and what has come of it so far.
struct Restorer {
    source: Source,
    pfs: Pfs,
}

impl Restorer {
    fn numbers(&mut self) -> Result<(), Malformed> {
        let Record::Numbers { changes, grants, messages, arrivals } = self.source.advance()? else {
            return Err(Malformed::Rule(OUT_OF_ORDER));
        };
        let greatest = changes.max(grants).max(messages).max(arrivals);
        require(greatest < 1 << GENERATION_SHIFT, "a count beyond its bits")?;
        self.pfs.numbers = Numbers { changes, grants, messages, arrivals };
        Ok(())
    }

    fn tree(&mut self) -> Result<(), Malformed> {
        let (name, root) = self.directory()?;
        require(name.is_empty(), "the root has a name")?;
        self.pfs.tree.root = self.entries(root, &mut String::new(), 0)?;
        Ok(())
    }

    /// The head of a directory, its entries still to come.
    fn directory(&mut self) -> Result<(String, Directory), Malformed> {
        let Record::Directory { name, version, created, modified } = self.source.advance()? else {
            return Err(Malformed::Rule(OUT_OF_ORDER));
        };
        counted(version, self.pfs.numbers.changes)?;
        Ok((name, Directory { created, ..Directory::new(Stamp { version, time: modified }) }))
    }

    /// Fills a directory, up to its end. `path` is the directory's, and empty for the root.
    fn entries(
        &mut self,
        mut directory: Directory,
        path: &mut String,
        depth: usize,
    ) -> Result<Directory, Malformed> {
        let mut last: Option<Arc<str>> = None;
        while !matches!(self.source.next, Record::Up) {
            let (name, mut node) = self.node()?;
            require(check_component(&name).is_ok(), "a bad name")?;
            require(last.as_deref().is_none_or(|last| last < name.as_str()), "names out of order")?;
            let length = path.len();
            path.push('/');
            path.push_str(&name);
            require(depth < DEPTH_MAX && path.len() <= PATH_BYTES_MAX, "a path too long or too deep")?;
            node = match node {
                Node::Directory(below) => Node::Directory(self.entries(below, path, depth + 1)?),
                Node::File(file) => Node::File(self.chunks(file, path)?),
            };
            path.truncate(length);
            let name: Arc<str> = name.into();
            directory.entries.insert(name.clone(), node);
            last = Some(name);
        }
        self.source.advance()?;
        Ok(directory)
    }

    /// The head of a file or a directory, what is in it still to come.
    fn node(&mut self) -> Result<(String, Node), Malformed> {
        if let Record::Directory { .. } = self.source.next {
            self.pfs.tree.directories += 1;
            return self.directory().map(|(name, directory)| (name, Node::Directory(directory)));
        }
        let Record::File { name, version, created, modified, ephemeral, length } = self.source.advance()?
        else {
            return Err(Malformed::Rule(OUT_OF_ORDER));
        };
        counted(version, self.pfs.numbers.changes)?;
        require(length <= FILE_BYTES_MAX, "a file too long")?;
        self.pfs.tree.files += 1;
        self.pfs.tree.bytes += length;
        let stamp = Stamp { version, time: modified };
        Ok((name, Node::File(File { stamp, created, ephemeral, content: Content::zeros(length) })))
    }

    fn chunks(&mut self, mut file: File, path: &str) -> Result<File, Malformed> {
        if let Some(session) = file.ephemeral {
            self.pfs.sessions.change(session, |holdings| holdings.ephemerals.insert(path.into(), ()));
        }
        let mut last = None;
        while let Record::Chunk { index, length } = self.source.next {
            require(last.is_none_or(|last| last < index), "chunks out of order")?;
            let raw = self.source.advance_raw(length)?;
            require(file.content.restore(index, raw), "a chunk beyond its bounds")?;
            last = Some(index);
        }
        Ok(file)
    }

    fn locks(&mut self) -> Result<(), Malformed> {
        while let Record::Lock { .. } = self.source.next {
            let Record::Lock { name, exclusive } = self.source.advance()? else { unreachable!("just seen") };
            let name = self.name(name, last_key(&self.pfs.locks.named))?;
            let holders = self.holders(&name)?;
            let waiters = self.lock_waiters(&name)?;
            require(!holders.is_empty(), "a lock without a holder")?;
            require(!exclusive || holders.len() == 1, "an exclusive lock with several holders")?;
            let head = waiters.first().map(|(_, waiter)| waiter.exclusive);
            require(exclusive || head != Some(false), "a reader that waits for a reader")?;
            self.pfs.locks.claims += (holders.len() + waiters.len()) as u64;
            self.pfs.locks.named.insert(name, Lock { exclusive, holders, waiters });
        }
        Ok(())
    }

    fn holders(&mut self, name: &Arc<str>) -> Result<Map<u64, SessionId>, Malformed> {
        let mut holders = Map::default();
        while let Record::Holder { number, session } = self.source.next {
            counted(number, self.pfs.numbers.grants)?;
            require(last_key(&holders).is_none_or(|last| last < number), "holders out of order")?;
            holders.insert(number, session);
            let held = self.pfs.sessions.change(session, |all| all.locks.insert(name.clone(), number));
            require(held.is_none(), "a lock held twice by one session")?;
            self.source.advance()?;
        }
        Ok(holders)
    }

    fn lock_waiters(&mut self, name: &Arc<str>) -> Result<Map<u64, LockWaiter>, Malformed> {
        let mut waiters = Map::default();
        while let Record::LockWaiter { arrival, session, number, exclusive } = self.source.next {
            require(last_key(&waiters).is_none_or(|last| last < arrival), "waiters out of order")?;
            require(self.pfs.sessions.grant(session, name).is_none(), "a holder that waits")?;
            waiters.insert(arrival, LockWaiter { session, number, exclusive });
            self.parked(session, number, ParkedAt::Lock, name, arrival)?;
            self.source.advance()?;
        }
        Ok(waiters)
    }

    fn queues(&mut self) -> Result<(), Malformed> {
        while let Record::Queue { .. } = self.source.next {
            let Record::Queue { name } = self.source.advance()? else { unreachable!("just seen") };
            let name = self.name(name, last_key(&self.pfs.queues.named))?;
            let mut queue = Queue::default();
            self.messages(&name, &mut queue)?;
            queue.waiters = self.queue_waiters(&name)?;
            require(queue.messages() > 0 || !queue.waiters.is_empty(), "a queue without anything")?;
            require(queue.messages() <= self.pfs.limits.queue_messages, "too many messages")?;
            self.pfs.queues.waits += queue.waiters.len() as u64;
            self.pfs.queues.messages += queue.messages();
            self.pfs.queues.named.insert(name, queue);
        }
        Ok(())
    }

    fn messages(&mut self, name: &Arc<str>, queue: &mut Queue) -> Result<(), Malformed> {
        while let Record::Message { id, hidden, length } = self.source.next {
            counted(id, self.pfs.numbers.messages)?;
            require(u64::from(length) <= MESSAGE_BYTES_MAX, "a message too long")?;
            let data = kept(self.source.advance_raw(length)?);
            self.pfs.queues.bytes += u64::from(length);
            let Some(session) = hidden else {
                let in_order = last_key(&queue.ready).is_none_or(|last| last < id);
                require(in_order && queue.hidden.is_empty(), "messages out of order")?;
                queue.ready.insert(id, data);
                continue;
            };
            let in_order = last_key(&queue.hidden).is_none_or(|last| last < id);
            require(in_order && !queue.ready.contains(&id), "messages out of order")?;
            queue.hidden.insert(id, (session, data));
            let old = self.pfs.sessions.change(session, |all| all.hidden.insert(id, name.clone()));
            require(old.is_none(), "a message in two queues")?;
        }
        Ok(())
    }

    fn queue_waiters(&mut self, name: &Arc<str>) -> Result<Map<u64, QueueWaiter>, Malformed> {
        let mut waiters = Map::default();
        while let Record::QueueWaiter { arrival, session, number, receive } = self.source.next {
            require(last_key(&waiters).is_none_or(|last| last < arrival), "waiters out of order")?;
            waiters.insert(arrival, QueueWaiter { session, number, receive });
            self.parked(session, number, ParkedAt::Queue, name, arrival)?;
            self.source.advance()?;
        }
        Ok(waiters)
    }

    fn watches(&mut self) -> Result<(), Malformed> {
        let mut last: Option<(Resource, SessionId)> = None;
        while let Record::Watch { .. } = self.source.next {
            let Record::Watch { resource, session } = self.source.advance()? else {
                unreachable!("just seen")
            };
            require(check_resource(&resource).is_ok(), "a bad name")?;
            let next = Some((resource.clone(), session));
            require(last < next, "watches out of order")?;
            self.pfs.watches.insert(&resource, session);
            self.pfs.sessions.change(session, |holdings| holdings.watches.insert(resource, ()));
            let mine = self.pfs.sessions.watches(session);
            require(mine <= self.pfs.limits.session_watches, "too many watches of a session")?;
            last = next;
        }
        Ok(())
    }

    /// A request that waits, once.
    fn parked(
        &mut self,
        session: SessionId,
        number: u64,
        at: ParkedAt,
        name: &Arc<str>,
        arrival: u64,
    ) -> Result<(), Malformed> {
        require(arrival <= self.pfs.numbers.arrivals, "an arrival not counted")?;
        let parked = Parked { at, name: name.clone(), arrival };
        let old = self.pfs.sessions.change(session, |holdings| holdings.parked.insert(number, parked));
        require(old.is_none(), "a request that waits twice")?;
        let mine = self.pfs.sessions.parked(session);
        require(mine <= self.pfs.limits.session_parked, "too many waiting requests of a session")
    }

    /// The name of a lock or a queue, which comes after the last one.
    fn name(&self, name: String, last: Option<Arc<str>>) -> Result<Arc<str>, Malformed> {
        require(check_name(&name).is_ok(), "a bad name")?;
        require(last.is_none_or(|last| *last < *name), "names out of order")?;
        Ok(name.into())
    }

    fn check_totals(self) -> Result<Pfs, Malformed> {
        let Pfs { tree, queues, locks, watches, limits, .. } = &self.pfs;
        require(self.pfs.bytes() <= limits.bytes, "too many bytes")?;
        require(tree.files + tree.directories <= limits.nodes, "too many files and directories")?;
        require(queues.messages <= limits.messages, "too many messages")?;
        require(queues.waits <= limits.waits, "too many waits")?;
        require(locks.claims <= limits.claims, "too many locks")?;
        require(watches.count <= limits.watches, "too many watches")?;
        Ok(self.pfs)
    }
}

fn last_key<K: Ord + Clone, V: Clone>(map: &Map<K, V>) -> Option<K> {
    map.nth(map.len().checked_sub(1)?).map(|(key, _)| key.clone())
}

/// A number handed out before the snapshot was made, so that it is not handed out again after.
fn counted(number: u64, count: u64) -> Result<(), Malformed> {
    require(number & ((1 << GENERATION_SHIFT) - 1) <= count, "a number not counted")
}

fn require(holds: bool, rule: &'static str) -> Result<(), Malformed> {
    if holds { Ok(()) } else { Err(Malformed::Rule(rule)) }
}

const OUT_OF_ORDER: &str = "pieces out of order";
