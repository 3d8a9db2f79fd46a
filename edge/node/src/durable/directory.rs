//! [`Directory`]: a durable node's folder, held by one process at a time.
//!
//! | name         | what                                                                        |
//! | `lock`       | locked while a process uses the folder                                      |
//! | `log-N`      | a segment; the highest is the one written to                                |
//! | `snapshot-N` | the state before `log-N`; older files are not needed any more               |
//! | `writing-N`  | a snapshot not finished; worthless after a restart                          |
//! | `trusted`    | its name becomes `untrusted` when the memory may have a hole                |
//! | `damaged-T`  | a folder with files that cannot be trusted, put aside at the Unix second T  |

use super::failure::{Failure, sync_folder};
use super::{segment, snapshot};
use crate::{NodeError, clock};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A folder and the lock on it, which ends with this value and all it gave out with [`hold`](Directory::hold).
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    lock: Arc<File>,
}

/// The numbers of the files in a folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub segments: BTreeSet<u64>,
    pub snapshots: BTreeSet<u64>,
}

impl Directory {
    /// Makes the folder if it is missing, and locks it.
    pub fn open(path: &Path) -> Result<Directory, NodeError> {
        let fault = |what| move |error| NodeError::Disk { what, path: path.to_owned(), error };
        if kumo_store::is_taken(path) {
            return Err(NodeError::DataIsStore(path.to_owned()));
        }
        make(path, sync_if_readable).map_err(fault("create folder"))?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(LOCK))
            .map_err(fault("open lock file in"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Directory { path: path.to_owned(), lock: Arc::new(lock) }),
            Err(TryLockError::WouldBlock) => Err(NodeError::DataInUse(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(fault("lock")(error)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder locked: for a job that may outlive the node.
    pub fn hold(&self) -> Arc<File> {
        self.lock.clone()
    }

    pub fn list(&self) -> Result<Listing, NodeError> {
        self.try_list().map_err(|error| self.fault("read folder", error))
    }

    fn try_list(&self) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(number) = number(name, segment::NAME) {
                listing.segments.insert(number);
            } else if let Some(number) = number(name, snapshot::NAME) {
                listing.snapshots.insert(number);
            }
        }
        Ok(listing)
    }

    /// Whether an earlier process could not be sure of what it had written.
    pub fn untrusted(&self) -> bool {
        self.path.join(UNTRUSTED).exists()
    }

    /// Notes that everything from here on is remembered. The file is made now, so that a hole can be noted
    /// later by a mere change of its name, also on a full disk.
    pub fn trust(&self) -> Result<(), NodeError> {
        File::create(self.path.join(TRUSTED)).map_err(|error| self.fault("write in", error))?;
        self.sync()
    }

    /// Makes the names in it durable.
    pub fn sync(&self) -> Result<(), NodeError> {
        sync_folder(&self.path).map_err(|failure| self.failed("sync", failure))
    }

    /// Moves all files but the lock into a folder of their own, whose path is returned.
    pub fn set_aside(&self) -> Result<PathBuf, NodeError> {
        let seconds = clock::wall().0 / 1000;
        // Twice within a second happens only to who restarts in a loop.
        let aside = (0..)
            .map(|count| match count {
                0 => self.path.join(format!("{DAMAGED_NAME}{seconds}")),
                _ => self.path.join(format!("{DAMAGED_NAME}{seconds}-{count}")),
            })
            .find(|path| !path.exists())
            .expect("an endless sequence has a free name");
        self.move_to(&aside, |from, to| fs::rename(from, to))
            .map_err(|error| self.fault("set files aside in", error))?;
        Ok(aside)
    }

    /// What is left of a memory when only some of its files are gone may look whole. So the mark is there before
    /// the first file is moved, and goes last.
    fn move_to(
        &self,
        aside: &Path,
        mut rename: impl FnMut(&Path, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        mark_untrusted(&self.path)?;
        fs::create_dir(aside)?;
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let text = name.to_string_lossy();
            if number(&text, segment::NAME).is_some() || number(&text, snapshot::NAME).is_some() {
                rename(&self.path.join(&name), &aside.join(&name))?;
            }
        }
        File::open(aside)?.sync_all()?;
        File::open(&self.path)?.sync_all()?;
        rename(&self.path.join(UNTRUSTED), &aside.join(UNTRUSTED))?;
        File::open(&self.path)?.sync_all()
    }

    /// Removes what the snapshot before segment `number` makes superfluous.
    pub fn tidy(path: &Path, number: u64) -> io::Result<()> {
        let old = |found: Option<u64>| found.is_some_and(|found| found < number);
        remove(path, |name| {
            old(self::number(name, segment::NAME))
                || old(self::number(name, snapshot::NAME))
                || old(self::number(name, snapshot::TEMPORARY_NAME))
        })
    }

    /// Removes the snapshots that an earlier process did not finish.
    pub fn drop_unfinished(&self) -> Result<(), NodeError> {
        remove(&self.path, |name| number(name, snapshot::TEMPORARY_NAME).is_some())
            .map_err(|error| self.fault("remove unfinished files in", error))
    }

    /// What to tell of a failure. After one that may have made a hole, the next start does not use this memory.
    pub fn failed(&self, what: &'static str, failure: Failure) -> NodeError {
        match failure {
            Failure::Unwritten(error) => self.fault(what, error),
            Failure::Unsynced(error) => {
                self.distrust();
                self.fault(what, error)
            }
        }
    }

    pub fn fault(&self, what: &'static str, error: io::Error) -> NodeError {
        let path = self.path.clone();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                NodeError::DiskFull { what, path, error }
            }
            _other => NodeError::Disk { what, path, error },
        }
    }

    /// Notes for the next start that this memory has a hole. Done as well as the broken disk allows: what was
    /// not synced was not acknowledged either.
    pub fn distrust(&self) {
        if let Err(error) = mark_untrusted(&self.path) {
            tracing::error!(path = %self.path.display(), %error, "cannot mark the data as untrusted");
        }
    }
}

/// Makes a folder and those above it that are missing, each with a name that survives a power failure: what is kept in
/// it must be found again.
fn make(path: &Path, mut sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    // One that never held a memory may be of a start that was cut short here.
    let unsafe_names = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .chain(Some(path).filter(|path| path.exists() && !path.join(TRUSTED).exists()))
        .collect::<Vec<_>>();
    fs::create_dir_all(path)?;
    for folder in unsafe_names.into_iter().rev() {
        let Some(parent) = folder.parent() else { continue };
        sync(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    }
    Ok(())
}

/// Whoever may not read the folder above did not make this one: its name was made by an administrator, long ago.
fn sync_if_readable(folder: &Path) -> io::Result<()> {
    match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        opened => opened?.sync_all(),
    }
}

/// The mark that the memory here has a hole, on disk.
fn mark_untrusted(path: &Path) -> io::Result<()> {
    match fs::rename(path.join(TRUSTED), path.join(UNTRUSTED)) {
        // Marked before, or never trusted.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::create(path.join(UNTRUSTED)).map(drop)?;
        }
        renamed => renamed?,
    }
    File::open(path)?.sync_all()
}

fn remove(path: &Path, superfluous: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if superfluous(&name.to_string_lossy()) {
            fs::remove_file(path.join(&name))?;
        }
    }
    Ok(())
}

/// The number in a file name that is `prefix` and a number.
fn number(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    // One spelling per number: `log-01` is not ours.
    let number = digits.parse().ok()?;
    (digits == format!("{number}")).then_some(number)
}

const LOCK: &str = "lock";
const TRUSTED: &str = "trusted";
const UNTRUSTED: &str = "untrusted";
const DAMAGED_NAME: &str = "damaged-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_once() {
        let path = crate::durable::scratch("held-once");
        let first = Directory::open(&path).unwrap();
        let error = Directory::open(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("--data {} is in use by another process", path.display()));
        drop(first);
        Directory::open(&path).unwrap();
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_servers_store_is_left_alone() {
        let path = crate::durable::scratch("store");
        let engine = kumo_store::Engine::open(&path, Default::default()).map(|(engine, _)| engine);
        drop(engine.unwrap());
        let names =
            || fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        let before = names();
        let error = Directory::open(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("--data {} is a server's store", path.display()));
        assert_eq!(names(), before);
        fs::remove_dir_all(path).unwrap();
    }

    /// A folder that is set aside, in which only some of the renames come about.
    fn set_aside_until(path: &Path, renames: usize) -> io::Result<()> {
        let directory = Directory::open(path).unwrap();
        let mut left = renames;
        directory.move_to(&path.join("damaged-1"), |from, to| {
            left = left.checked_sub(1).ok_or_else(|| io::Error::other("killed"))?;
            fs::rename(from, to)
        })
    }

    #[test]
    fn a_memory_set_aside_in_part_is_not_trusted() {
        const FILES: [&str; 3] = ["log-1", "log-2", "snapshot-2"];
        for renames in 0..=FILES.len() {
            let path = crate::durable::scratch("aside-in-part");
            for name in FILES.iter().chain(&[TRUSTED]) {
                fs::write(path.join(name), []).unwrap();
            }
            set_aside_until(&path, renames).unwrap_err();
            let directory = Directory::open(&path).unwrap();
            let left = directory.list().unwrap();
            assert_eq!(left.segments.len() + left.snapshots.len(), FILES.len() - renames);
            assert!(directory.untrusted(), "after {renames} renames");
            // The next start does the rest.
            directory.set_aside().unwrap();
            assert!(!directory.untrusted());
            assert_eq!(directory.list().unwrap(), Listing::default());
            fs::remove_dir_all(path).unwrap();
        }
    }

    #[test]
    fn the_names_of_new_folders_are_durable() {
        let path = crate::durable::scratch("new-folders");
        let folder = path.join("above/data");
        let synced = |folder: &Path| {
            let mut synced = Vec::new();
            make(folder, |parent| {
                synced.push(parent.to_owned());
                Ok(())
            })
            .unwrap();
            assert!(folder.is_dir());
            synced
        };
        assert_eq!(synced(&folder), [path.clone(), path.join("above")], "the uppermost first");
        assert_eq!(synced(&folder), [path.join("above")], "as long as nothing was kept there");
        Directory::open(&folder).unwrap().trust().unwrap();
        assert_eq!(synced(&folder), [] as [PathBuf; 0]);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn only_exact_names_count() {
        assert_eq!(number("log-12", "log-"), Some(12));
        for name in ["log-", "log-01", "log-+1", "log-1x", "blog-1", "log--1", "log-99999999999999999999999"]
        {
            assert_eq!(number(name, "log-"), None, "{name}");
        }
    }
}
