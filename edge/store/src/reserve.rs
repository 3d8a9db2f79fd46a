//! [`Reserve`]: room on the disk that only compaction may use up. It moves what is current before it removes the rest, so
//! a disk without a byte left would stay full, however much garbage there is.

use crate::disk::{Access, Disk, DiskFile, UNFINISHED, What, fault};
use kumo_cluster::Fault;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The file [`RESERVE`], in which nothing is and whose space is taken. Given to compaction, it has no space and stays:
/// also a process that starts then keeps what is left for compaction, until the file has its space again, or is given up.
///
/// A store that has none works all the same; of a full disk then only goes what leaves enough room for what is moved.
pub struct Reserve {
    path: PathBuf,
    bytes: u64,
    /// There since it has had its space, until it is given up.
    file: Mutex<Option<Box<dyn DiskFile>>>,
    /// Compaction has its space.
    given: AtomicBool,
    /// How often compaction has had no use of it since it got it, or used it at last.
    idle: AtomicU32,
    /// The active segment when it was last tried to make it, or given up.
    tried: AtomicU32,
}

impl Reserve {
    pub fn new(folder: &Path, segment_bytes: u64) -> Reserve {
        Reserve {
            path: folder.join(RESERVE),
            bytes: segment_bytes + segment_bytes / AROUND_PART,
            file: Mutex::default(),
            given: AtomicBool::new(false),
            idle: AtomicU32::new(0),
            tried: AtomicU32::new(0),
        }
    }

    /// Looks for the one of an earlier process. One that does not get its space is for compaction, if that has something
    /// to do; else nobody waits for it, as on a disk that never had room for one.
    pub fn find(&self, disk: &dyn Disk, compactable: bool) -> Result<(), Fault> {
        if disk.what(&self.path).map_err(|error| self.failed(&error))? != What::File {
            return Ok(());
        }
        let found = || {
            let file = disk.open(&self.path, Access::Write)?;
            // What failed is tried again by whoever compacts.
            let lacking = !matches!(self.take(disk, &*file), Ok(true));
            if lacking && !compactable {
                return disk.remove(&self.path);
            }
            self.given.store(lacking, Ordering::Release);
            *self.file() = Some(file);
            Ok(())
        };
        found().map_err(|error| self.failed(&error))
    }

    /// Makes it, if there is none, the store is large enough for it, and it was not tried before with this active segment.
    /// It gets its name when it has its space: whoever finds one knows that there was room for it.
    pub fn make(&self, disk: &dyn Disk, held_bytes: u64, active: u32) -> Result<(), Fault> {
        let small = held_bytes < self.bytes * STORE_PER_RESERVE;
        if self.is_made() || small || self.tried.swap(active, Ordering::Relaxed) == active {
            return Ok(());
        }
        if !self.is_room(disk, 0) {
            return Err(Fault::Full);
        }
        let folder = self.folder();
        let unfinished = folder.join(format!("{RESERVE}{UNFINISHED}"));
        let make = || {
            if disk.what(&unfinished)? == What::File {
                disk.remove(&unfinished)?;
            }
            let file = disk.create(&unfinished)?;
            file.allocate(self.bytes)?;
            file.sync()?;
            disk.rename(&unfinished, &self.path)?;
            disk.sync_folder(folder)?;
            Ok(file)
        };
        let made = make().map_err(|error| {
            // What is there of it is missed by others.
            let _ = disk.remove(&unfinished);
            self.failed(&error)
        })?;
        *self.file() = Some(made);
        Ok(())
    }

    /// Gives its space to compaction. False: there is none, or compaction has it. Nobody but the one who compacts calls
    /// this and [`Reserve::take_back`].
    pub fn give(&self) -> Result<bool, Fault> {
        let held = self.file();
        let Some(file) = held.as_ref().filter(|_| !self.is_given()) else { return Ok(false) };
        // Before there is room for others. It stays so if this fails: what the file has then, nobody knows before it is asked,
        // see [`Reserve::take_back`].
        self.given.store(true, Ordering::Release);
        file.truncate(0).map_err(|error| self.failed(&error))?;
        self.idle.store(0, Ordering::Relaxed);
        Ok(true)
    }

    /// Takes its space back, if there is as much again, or it still has it.
    pub fn take_back(&self, disk: &dyn Disk) -> Result<(), Fault> {
        let held = self.file();
        let Some(file) = held.as_ref().filter(|_| self.is_given()) else { return Ok(()) };
        if self.take(disk, &**file).map_err(|error| self.failed(&error))? {
            self.given.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Compaction has freed something with it.
    pub fn used(&self) {
        self.idle.store(0, Ordering::Relaxed);
    }

    /// Compaction has it, nothing is left to be done with it, or what is left fails, and still it cannot be taken back:
    /// others on this disk took of it. What is left is for requests, which are refused until then, and is tried to be
    /// reserved again with a later segment than this active one. False: what was removed may yet be freed, as long as
    /// somebody reads it, and what failed may not fail again.
    pub fn give_up(&self, disk: &dyn Disk, active: u32) -> Result<bool, Fault> {
        if self.idle.fetch_add(1, Ordering::Relaxed) + 1 < IDLE_ROUNDS {
            return Ok(false);
        }
        // Nobody makes another one before this one is gone.
        let mut held = self.file();
        *held = None;
        self.tried.store(active, Ordering::Relaxed);
        self.given.store(false, Ordering::Release);
        let gone = match disk.what(&self.path) {
            Ok(What::File) => disk.remove(&self.path),
            other => other.map(|_| ()),
        };
        gone.map(|()| true).map_err(|error| self.failed(&error))
    }

    pub fn is_made(&self) -> bool {
        self.file().is_some()
    }

    /// Compaction has it: all that there is room for is for compaction.
    pub fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// So much can be moved: with it, or because as much is free.
    pub fn is_room_to_move(&self, disk: &dyn Disk, bytes: u64) -> bool {
        let reserved = self.is_made() && !self.is_given() && bytes <= self.bytes;
        reserved || disk.free(self.folder()).map_or(true, |free| free >= bytes + bytes / AROUND_PART)
    }

    /// What can be moved with it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the file its space, if there is as much. False: there is not, and the file has none.
    fn take(&self, disk: &dyn Disk, file: &dyn DiskFile) -> io::Result<bool> {
        let has = file.space()?;
        if has >= self.bytes {
            return Ok(true);
        }
        if self.is_room(disk, has) {
            match file.allocate(self.bytes) {
                Ok(()) => return Ok(true),
                Err(error) if fault("", &self.path, &error) == Fault::Full => {}
                Err(error) => return Err(error),
            }
        }
        // A part is of no use here, and compaction needs it: what a process before left, what file systems do of what they
        // cannot do, or what could not be given back at the last try.
        if file.space()? > 0 {
            file.truncate(0)?;
        }
        Ok(false)
    }

    /// There is as much free as a file takes that has so much. File systems do a part of what they cannot do: until that is
    /// given back nothing would be left for others on this disk, such as a cell's replica, which ends then. So it is not
    /// tried in vain.
    fn is_room(&self, disk: &dyn Disk, has: u64) -> bool {
        let needed = self.bytes + self.bytes / SPARED_PART - has;
        // One that does not say how much it has is asked for it.
        disk.free(self.folder()).map_or(true, |free| free >= needed)
    }

    fn folder(&self) -> &Path {
        self.path.parent().expect("it is in the store's folder")
    }

    fn file(&self) -> MutexGuard<'_, Option<Box<dyn DiskFile>>> {
        self.file.lock().expect("no panic under this lock")
    }

    fn failed(&self, error: &io::Error) -> Fault {
        fault("reserve space for", &self.path, error)
    }
}

/// The name of the file.
pub const RESERVE: &str = "RESERVE";

/// The largest rewrite moves a whole segment. This part of one comes on top: for the headers, marks and seals of the
/// segments that it is moved to, what is reserved ahead there, and notes that are written meanwhile.
const AROUND_PART: u64 = 8;

/// This part of it more must be free before it is taken: what is said to be free is never quite what can be had.
const SPARED_PART: u64 = 256;

/// So often compaction has no use of it before the reserve is given up. It found nothing to do: a second or so, in which
/// whoever reads a segment that was removed has read it. What it did failed: some seconds, in which that may be over.
const IDLE_ROUNDS: u32 = 3;

/// A store has so many times as much before it gets one: a small store stays small, and a small disk is not mostly
/// reserve.
const STORE_PER_RESERVE: u64 = 4;
