//! [`Reserve`]: room on the disk that only compaction may use up. It moves what is current before it removes the rest, so
//! a disk without a byte left would stay full, however much garbage there is.

use crate::disk::{Access, Disk, DiskFile, UNFINISHED, What, fault};
use kumo_cluster::Fault;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The file [`RESERVE`], in which nothing is and whose space is taken. Given to compaction, it has no space and stays:
/// also a process that starts then keeps what is left for compaction, until the file has its space again.
///
/// A store that has none works all the same; of a full disk then only goes what leaves enough room for what is moved.
pub struct Reserve {
    path: PathBuf,
    bytes: u64,
    /// Set when it has had its space.
    file: OnceLock<Box<dyn DiskFile>>,
    /// Compaction has its space.
    given: AtomicBool,
    /// The active segment when it was last tried to make it.
    tried: AtomicU32,
}

impl Reserve {
    pub fn new(folder: &Path, segment_bytes: u64) -> Reserve {
        Reserve {
            path: folder.join(RESERVE),
            bytes: segment_bytes + segment_bytes / AROUND_PART,
            file: OnceLock::new(),
            given: AtomicBool::new(false),
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
            let lacking = file.allocate(self.bytes).is_err();
            if lacking {
                // A part of it is no use.
                file.truncate(0)?;
            }
            if lacking && !compactable {
                return disk.remove(&self.path);
            }
            self.given.store(lacking, Ordering::Release);
            self.file.get_or_init(|| file);
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
        let folder = self.path.parent().expect("it is in the store's folder");
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
        self.file.get_or_init(|| made);
        Ok(())
    }

    /// Gives its space to compaction. False: there is none, or compaction has it. Nobody but the one who compacts calls
    /// this and [`Reserve::take_back`].
    pub fn give(&self) -> Result<bool, Fault> {
        let Some(file) = self.file.get().filter(|_| !self.is_given()) else { return Ok(false) };
        // Before there is room for others.
        self.given.store(true, Ordering::Release);
        file.truncate(0).map_err(|error| self.failed(&error))?;
        Ok(true)
    }

    /// Takes its space back, if there is as much again.
    pub fn take_back(&self) -> Result<(), Fault> {
        let Some(file) = self.file.get().filter(|_| self.is_given()) else { return Ok(()) };
        match file.allocate(self.bytes).map_err(|error| self.failed(&error)) {
            Ok(()) => self.given.store(false, Ordering::Release),
            // File systems do a part of what they cannot do: compaction needs that.
            Err(Fault::Full) => file.truncate(0).map_err(|error| self.failed(&error))?,
            Err(fault @ (Fault::Io(_) | Fault::Damaged(_))) => return Err(fault),
        }
        Ok(())
    }

    pub fn is_made(&self) -> bool {
        self.file.get().is_some()
    }

    /// Compaction has it: all that there is room for is for compaction.
    pub fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// What can be moved with it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn failed(&self, error: &std::io::Error) -> Fault {
        fault("reserve space for", &self.path, error)
    }
}

/// The name of the file.
pub const RESERVE: &str = "RESERVE";

/// The largest rewrite moves a whole segment. This part of one comes on top: for the headers, marks and seals of the
/// segments that it is moved to, what is reserved ahead there, and notes that are written meanwhile.
const AROUND_PART: u64 = 8;

/// A store has so many times as much before it gets one: a small store stays small, and a small disk is not mostly
/// reserve.
const STORE_PER_RESERVE: u64 = 4;
