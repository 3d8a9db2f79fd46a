//! Queries: they look, on one replica, and change nothing.

use crate::path::{Path, check_name};
use crate::pfs::Pfs;
use crate::protocol::{
    DirectoryEntry, ENTRIES_MAX, LockInfo, QueueInfo, READ_BYTES_MAX, Refusal, Reply, Usage,
};

impl Pfs {
    pub(crate) fn read_file(&self, path: &str, offset: u64, length: u64) -> Result<Reply, Refusal> {
        let file = self.tree.existing_file(Path::parse(path)?)?;
        let bytes = file.content.read(offset, length.min(READ_BYTES_MAX));
        Ok(Reply::Data { bytes, version: file.stamp.version })
    }

    pub(crate) fn stat(&self, path: &str) -> Result<Reply, Refusal> {
        let found = self.tree.find(Path::parse(path)?)?;
        found.map(|found| Reply::Stat(found.stat())).ok_or_else(|| Refusal::NotFound(path.to_owned()))
    }

    pub(crate) fn read_directory(&self, path: &str, index: u64, count: u64) -> Result<Reply, Refusal> {
        let directory = self.tree.existing_directory(Path::parse(path)?)?;
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let entries = directory.entries.iter_at(index).take(count.min(ENTRIES_MAX) as usize);
        let entries = entries
            .map(|(name, node)| DirectoryEntry { name: name.to_string(), stat: node.as_found().stat() })
            .collect();
        Ok(Reply::Entries { entries, total: directory.entries.len() as u64 })
    }

    pub(crate) fn peek(&self, queue: &str) -> Result<Reply, Refusal> {
        check_name(queue)?;
        let head = self.queues.named.get(queue).and_then(|queue| queue.ready.first());
        head.map(|(&id, data)| Reply::Message { id, data: data.clone() })
            .ok_or_else(|| Refusal::Empty(queue.to_owned()))
    }

    pub(crate) fn list_queues(&self, after: &str) -> Reply {
        let queues = self.queues.named.iter_from(after).filter(|(name, _)| ***name != *after);
        let queues = queues.take(ENTRIES_MAX as usize).map(|(name, queue)| QueueInfo {
            name: name.to_string(),
            ready: queue.ready.len() as u64,
            hidden: queue.hidden.len() as u64,
            waiting: queue.waiters.len() as u64,
        });
        Reply::Queues(queues.collect())
    }

    /// Of a lock with very many holders or waiters, the first [`ENTRIES_MAX`] of each.
    pub(crate) fn list_locks(&self, after: &str) -> Reply {
        let locks = self.locks.named.iter_from(after).filter(|(name, _)| ***name != *after);
        let locks = locks.take(ENTRIES_MAX as usize).map(|(name, lock)| {
            let newest = lock.holders.nth(lock.holders.len().saturating_sub(1));
            let waiters = lock.waiters.values().map(|waiter| waiter.session);
            LockInfo {
                name: name.to_string(),
                exclusive: lock.exclusive,
                number: newest.map_or(0, |(&number, _)| number),
                holders: lock.holders.values().copied().take(ENTRIES_MAX as usize).collect(),
                waiters: waiters.take(ENTRIES_MAX as usize).collect(),
            }
        });
        Reply::Locks(locks.collect())
    }

    pub(crate) fn usage(&self) -> Reply {
        Reply::Usage(Usage {
            bytes: self.bytes(),
            files: self.tree.files,
            directories: self.tree.directories,
            messages: self.queues.messages,
        })
    }
}
