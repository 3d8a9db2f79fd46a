//! [`Engine`]: the store of a server, in files or in memory.

use crate::attend::Attendants;
use crate::backup::check_name;
use crate::damage::Damage;
use crate::disk::{Access, Disk, SystemDisk};
use crate::entry::{Body, Place};
use crate::error::OpenError;
use crate::folder::{Folder, Format};
use crate::index::{Displaced, From};
use crate::layout::{DATA_BYTES_MAX, KEY_BYTES_MAX, LogRecord, RECORD_BYTES};
use crate::log::Log;
use crate::notes::note_file;
use crate::options::{Options, Sync};
use crate::recovery::{Opened, Recovery};
use crate::shard::{Found, Shards};
use bytes::Bytes;
use kumo_cluster::{Fault, Head, KeyHash, Record, Store, StoreKey, Usage};
use kumo_wire::Pieces;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A handle on a store. Handles are cheap to clone, and all of them may be used from any thread. The store is
/// flushed and closed when the last one is dropped.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// What all handles hold.
struct Shared {
    core: Arc<Core>,
    attendants: Mutex<Attendants>,
    closed: AtomicBool,
}

/// The engine without its threads, which share it with the handles.
pub struct Core {
    pub shards: Shards,
    /// None: everything is in memory.
    pub files: Option<Files>,
    /// Where small records are read to.
    pieces: Mutex<Pieces>,
    /// Notes of memory mode.
    notes: Mutex<BTreeMap<String, Vec<u8>>>,
}

/// The part of an engine that is on the disk.
pub struct Files {
    pub folder: Folder,
    pub log: Log,
    /// Of the [`changes`](Log::changes) of the log so many are on the disk's list of its segments.
    pub listed: AtomicU64,
    /// Held while segments are removed, or must not be.
    pub removing: Mutex<()>,
    /// What failed behind the back of all requests, until it succeeds again.
    pub trouble: Mutex<Option<Fault>>,
    pub damage: Damage,
}

impl Engine {
    /// Opens the store at a path, which is made if nothing is there, and tells what was found.
    pub fn open(path: &Path, options: Options) -> Result<(Engine, Opened), OpenError> {
        let (core, opened) = Core::open(Arc::new(SystemDisk), path, Access::Write, options)?;
        let core = Arc::new(core);
        let attendants = Mutex::new(Attendants::start(&core));
        let closed = AtomicBool::new(false);
        Ok((Engine { shared: Arc::new(Shared { core, attendants, closed }) }, opened))
    }

    /// A store without files: it is gone with the last handle.
    pub fn memory() -> Engine {
        let core = Arc::new(Core::new(Shards::new(), None));
        Engine {
            shared: Arc::new(Shared { core, attendants: Mutex::default(), closed: AtomicBool::new(false) }),
        }
    }

    /// Hands all that was put to the operating system, so that it survives the process. Call it before answers
    /// to writes go out, once for all of a turn. A fault: it may yet fail, and none of it may be answered.
    pub fn flush(&self) -> Result<(), Fault> {
        self.shared.core.flush()
    }

    /// [`Engine::flush`], and with [`Sync::Always`] waits until all of it is on the disk. Concurrent calls share
    /// the waiting.
    pub fn commit(&self) -> Result<(), Fault> {
        self.shared.core.commit()
    }

    /// Waits until all that was put is on the disk, whatever the options say.
    pub fn sync(&self) -> Result<(), Fault> {
        self.shared.core.files().map_or(Ok(()), |files| files.log.sync())
    }

    /// Closes the store now, though other handles may be left, such as that of a backup which a process that ends does not
    /// wait for. Nothing is put or removed from here on. A failure was told to whoever waited for what it is about.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Keeps a small blob beside the records, in place of an older one. It is durable when this returns.
    /// Names are of letters, digits, `-` and `_`.
    pub fn put_note(&self, name: &str, content: &[u8]) -> Result<(), Fault> {
        self.shared.core.put_note(name, content)
    }

    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.shared.core.note(name)
    }

    /// Writes a store to `destination`, where nothing may be: all records as they are at one moment of this call,
    /// while writing goes on, and all notes but those named in `leave_out`. Closed segments are linked, not
    /// copied, if both are on one file system. The destination appears when it is complete and on the disk.
    pub fn backup(&self, destination: &Path, leave_out: &[&str]) -> Result<crate::Backup, OpenError> {
        self.shared.core.backup(destination, leave_out)
    }

    /// What failed in the background at last, until it succeeds again: closing segments, compaction, syncs at
    /// intervals, keeping room for the next note.
    pub fn trouble(&self) -> Option<Fault> {
        self.shared.core.trouble()
    }

    /// Why a record would be refused now, if one was and it is not for want of room: nothing can be written until it is
    /// over.
    pub fn failing(&self) -> Option<Fault> {
        self.shared.core.failing()
    }
}

impl Shared {
    fn close(&self) {
        // Once: nothing is written any more to what the disk's list says the end of.
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.attendants.lock().expect("no panic under this lock").stop();
        let _ = self.core.close();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

impl Store for Engine {
    fn head(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Head>, Fault> {
        self.shared.core.head(hash, key)
    }

    fn get(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Record>, Fault> {
        self.shared.core.get(hash, key)
    }

    fn put(&self, hash: KeyHash, key: &[u8], record: &Record) -> Result<(), Fault> {
        self.shared.core.put(hash, key, record)
    }

    fn remove(&self, hash: KeyHash, key: &[u8]) -> Result<(), Fault> {
        self.shared.core.remove(hash, key)
    }

    fn scan(
        &self,
        first: KeyHash,
        last: KeyHash,
        after: Option<&StoreKey>,
        count: usize,
    ) -> Result<Vec<(StoreKey, Head)>, Fault> {
        Ok(self.shared.core.scan(first, last, after, count))
    }

    fn written(&self) -> u64 {
        self.shared.core.files().map_or(0, |files| files.log.mark())
    }

    fn safe_upto(&self) -> u64 {
        match self.shared.core.files() {
            Some(files) if files.log.syncs_at_intervals().is_some() => files.log.safe_upto(),
            Some(_) | None => u64::MAX,
        }
    }

    fn is_full(&self) -> bool {
        self.shared.core.files().is_some_and(|files| files.log.is_full())
    }

    fn usage(&self) -> Usage {
        self.shared.core.usage()
    }
}

impl Core {
    fn new(shards: Shards, files: Option<Files>) -> Core {
        Core { shards, files, pieces: Mutex::default(), notes: Mutex::default() }
    }

    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        access: Access,
        options: Options,
    ) -> Result<(Core, Opened), OpenError> {
        if access == Access::Write {
            check_name(path)?;
        }
        Core::open_as(disk, path, access, Format::UnlistedStore, options)
    }

    /// A new one that is a copy once its manifest is written.
    pub fn make_copy(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: Options,
    ) -> Result<(Core, Opened), OpenError> {
        Core::open_as(disk, path, Access::Write, Format::Copy, options)
    }

    fn open_as(
        disk: Arc<dyn Disk>,
        path: &Path,
        access: Access,
        made: Format,
        mut options: Options,
    ) -> Result<(Core, Opened), OpenError> {
        let bounds = (Options::SEGMENT_BYTES_MIN, Options::SEGMENT_BYTES_MAX);
        options.segment_bytes = options.segment_bytes.clamp(bounds.0, bounds.1);
        let (folder, created) = Folder::open(disk.clone(), path, access, made)?;
        let shards = Shards::new();
        let (segments, opened) = Recovery::run(&folder, access, &options, &shards)?;
        let opened = Opened { created, ..opened };
        // Only a reader finds no segment at all: there is nothing to read.
        let files = (!segments.is_empty()).then(|| {
            let log = Log::new(disk, folder.path.clone(), options, segments);
            let (removing, trouble, damage) = (Mutex::default(), Mutex::default(), Damage::default());
            let files = Files { folder, log, listed: AtomicU64::new(0), removing, trouble, damage };
            if access == Access::Write {
                files.find_reserve();
            }
            files
        });
        Ok((Core::new(shards, files), opened))
    }

    pub fn files(&self) -> Option<&Files> {
        self.files.as_ref()
    }

    pub fn flush(&self) -> Result<(), Fault> {
        self.files().map_or(Ok(()), |files| files.log.flush())
    }

    pub fn commit(&self) -> Result<(), Fault> {
        let Some(files) = self.files() else { return Ok(()) };
        match files.log.options.sync {
            Sync::None | Sync::Interval(_) => files.log.flush(),
            Sync::Always => files.log.sync(),
        }
    }

    pub fn close(&self) -> Result<(), Fault> {
        let Some(files) = self.files() else { return Ok(()) };
        // For a fast start next time.
        self.write_hints()?;
        // The next start does it, if this does not.
        let _ = files.list();
        match files.log.options.sync {
            Sync::None => return files.log.flush(),
            Sync::Interval(_) | Sync::Always => files.log.sync()?,
        }
        // Without them nothing is lost: a disk that is full has no room for them.
        let _ = files.list_end();
        let _ = files.log.write_mark();
        Ok(())
    }

    pub fn put_note(&self, name: &str, content: &[u8]) -> Result<(), Fault> {
        let Some(files) = self.files() else {
            note_file(name)?;
            let mut notes = self.notes.lock().expect("no panic under this lock");
            notes.insert(name.to_owned(), content.to_vec());
            return Ok(());
        };
        files.folder.put_note(name, content)
    }

    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>, Fault> {
        let Some(files) = self.files() else {
            return Ok(self.notes.lock().expect("no panic under this lock").get(name).cloned());
        };
        files.folder.note(name)
    }

    pub fn failing(&self) -> Option<Fault> {
        let files = self.files()?;
        // It may be over, and the thread that looks may be held up by the same disk: a server ends for what is told here.
        files.log.failing()?;
        let _ = files.log.look_for_room();
        files.log.failing()
    }

    pub fn trouble(&self) -> Option<Fault> {
        let files = self.files()?;
        let trouble = files.trouble.lock().expect("no panic under this lock").clone();
        trouble.or_else(|| files.folder.roomless())
    }

    pub fn head(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Head>, Fault> {
        Ok(self.shards.lock(hash).index.find(hash, key).map(|entry| entry.head))
    }

    pub fn get(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Record>, Fault> {
        loop {
            let found = self.shards.lock(hash).find(hash, key);
            let (place, data_bytes) = match found {
                None => return Ok(None),
                Some(Found::Here(record)) => return Ok(Some(record)),
                Some(Found::At { place, data_bytes }) => (place, data_bytes),
            };
            let files = self.files().expect("only an engine with files has records in files");
            match self.read(files, place, hash, key, data_bytes) {
                // Compacted since the index was asked: it has been told the new place before.
                Ok(None) => {}
                Ok(Some(record)) => {
                    files.damage.gone(place);
                    return Ok(Some(record));
                }
                Err(fault) => {
                    self.found_unreadable(files, place, hash, key);
                    return Err(fault);
                }
            }
        }
    }

    /// The record of a key at that place. None: it is not there any more.
    fn read(
        &self,
        files: &Files,
        place: Place,
        hash: KeyHash,
        key: &[u8],
        data_bytes: usize,
    ) -> Result<Option<Record>, Fault> {
        let length = RECORD_BYTES + key.len() + data_bytes;
        let (bytes, segment) = self.bytes_of(length, |into| files.log.read(place, into))?;
        let Some(segment) = segment else { return Ok(None) };
        let offset = u64::from(place.offset);
        let read = segment.decode(offset, &bytes)?;
        let head = read.head().filter(|_| read.key == key && read.hash == hash);
        let Some(Head { stamp, kind, expiry, .. }) = head else {
            return Err(segment.damage(offset, "another key's record"));
        };
        let flags = read.flags;
        let data = bytes.slice_ref(read.data);
        Ok(Some(Record { stamp, kind, flags, expiry, data }))
    }

    /// Unless something else has taken its place meanwhile.
    fn found_unreadable(&self, files: &Files, place: Place, hash: KeyHash, key: &[u8]) {
        let shard = self.shards.lock(hash);
        let entry = shard.index.find(hash, key);
        if entry.is_some_and(|entry| matches!(entry.body, Body::At(current) if current == place)) {
            files.damage.found(place);
        }
    }

    /// So many bytes as `read` makes them. Nobody waits for another's disk.
    fn bytes_of<T>(
        &self,
        length: usize,
        read: impl FnOnce(&mut [u8]) -> Result<T, Fault>,
    ) -> Result<(Bytes, T), Fault> {
        let pieces = || self.pieces.lock().expect("no panic under this lock");
        let mut taken = std::mem::take(&mut *pieces());
        let filled = taken.fill(length, read);
        *pieces() = taken;
        filled
    }

    pub fn put(&self, hash: KeyHash, key: &[u8], record: &Record) -> Result<(), Fault> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Fault::Io(format!("key of {} bytes, at most {KEY_BYTES_MAX}", key.len())));
        }
        if record.data.len() > DATA_BYTES_MAX {
            return Err(Fault::Io(format!("data of {} bytes, at most {DATA_BYTES_MAX}", record.data.len())));
        }
        let mut shard = self.shards.lock(hash);
        let Some(files) = self.files() else {
            shard.keep(hash, key, record);
            return Ok(());
        };
        let place = files.log.append(&LogRecord::version(hash, key, record))?;
        let old = shard.point(hash, key, record, place);
        files.displaced(old);
        Ok(())
    }

    pub fn remove(&self, hash: KeyHash, key: &[u8]) -> Result<(), Fault> {
        let mut shard = self.shards.lock(hash);
        let Some(files) = self.files() else {
            shard.drop_key(hash, key);
            return Ok(());
        };
        if shard.index.find(hash, key).is_none() {
            return Ok(());
        }
        files.log.append(&LogRecord::removed(hash, key))?;
        let old = shard.index.remove(hash, key);
        files.displaced(old);
        Ok(())
    }

    pub fn scan(
        &self,
        first: KeyHash,
        last: KeyHash,
        after: Option<&StoreKey>,
        count: usize,
    ) -> Vec<(StoreKey, Head)> {
        let mut found = Vec::new();
        let after = after.filter(|after| after.hash >= first);
        let start = Shards::number(after.map_or(first, |after| after.hash));
        for number in start..=Shards::number(last) {
            let shard = self.shards.at(number);
            // Beyond the first shard, from its beginning.
            let (first, after) =
                if number == start { (first, after) } else { (Shards::lowest(number), None) };
            let range = shard.index.range(first, last, after).take(count - found.len());
            found.extend(range.map(|entry| {
                (StoreKey { hash: entry.hash, key: Bytes::copy_from_slice(entry.key) }, entry.head)
            }));
            if found.len() == count {
                break;
            }
        }
        found
    }

    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for shard in self.shards.all() {
            usage.items += shard.index.items;
            usage.tombstones += shard.index.tombstones;
            usage.live_bytes += shard.index.live_bytes;
        }
        usage.file_bytes = self.files().map_or(0, |files| files.log.file_bytes());
        usage.unreadable = self.files().map_or(0, Files::unreadable);
        usage
    }
}

impl Files {
    pub fn displaced(&self, old: Option<Displaced>) {
        if let Some(Displaced { from: From::File(place), live_bytes, .. }) = old {
            self.log.displaced(place, live_bytes);
            self.damage.gone(place);
        }
    }

    /// Records, and one for each segment that is known to be damaged and no more.
    fn unreadable(&self) -> u64 {
        let closed = self.log.closed_segments();
        let damaged = closed.iter().filter(|one| one.damaged.load(Ordering::Relaxed));
        let further = damaged.filter(|one| !self.damage.is_in(one.number)).count();
        (self.damage.count() + further) as u64
    }
}
