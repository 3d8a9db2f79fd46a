//! [`Folder`]: a store's folder, its format, its lock and its notes.

use crate::disk::{Access, Disk, Lock, UNFINISHED, What, fault, read_whole, write_whole};
use crate::error::{Lack, OpenError};
use crate::manifest::{Listing, MANIFEST, Manifest};
use crate::notes::{NOTE, ROOM, ROOM_BYTES, note_file};
use crate::reserve::RESERVE;
use crate::roster::{ROSTER, Roster};
use crate::segment::number_of;
use crate::settle::SYNCING;
use kumo_cluster::Fault;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

/// The newest format of a folder. Raised when an older program could not read what a newer one writes.
pub const FORMAT_VERSION: u32 = Format::Store as u32;

/// What a folder is, which its file `FORMAT` names in one line: `kumo store 4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Format {
    /// A store as older programs wrote it: its segments come and go, and nothing says which there are. A new one begins as
    /// this, until it has its roster.
    UnlistedStore = 1,
    /// A copy as older programs wrote it: its manifest does not tell segments of the same length from each other.
    CopyByLengths = 2,
    /// A backup, or the result of a merge, that nobody has written to yet: its manifest says what must be there. A format
    /// of its own, since the manifest may be what got lost, and since an older program would write beside it and leave it
    /// as it is.
    Copy = 3,
    /// A store that is written to, with a [`Roster`] of its segments. A format of its own, since an older program would
    /// remove segments that are in it.
    Store = 4,
}

/// A store's folder, locked as long as this lives.
///
/// | file                 | content                                             |
/// |----------------------|-----------------------------------------------------|
/// | `FORMAT`             | `kumo store 4`; of a backup `kumo store 3`          |
/// | `MANIFEST`           | of a backup: its files, their lengths and salts     |
/// | `SEGMENTS`           | of a store: which segments must be there            |
/// | `LOCK`               | nothing; locked by the process that uses the folder |
/// | `0000000001.segment` | records                                             |
/// | `0000000001.hint`    | the same without data, once the segment is closed   |
/// | `NAME.note`          | a blob of the server's                              |
/// | `ROOM`               | nothing; becomes the next note, and has its space   |
/// | `RESERVE`            | nothing; has the space that compaction may need     |
/// | `SYNCING`            | what is being made durable, or failed to be         |
/// | `….unfinished`       | was being written; means nothing after a crash      |
pub struct Folder {
    pub disk: Arc<dyn Disk>,
    pub path: PathBuf,
    /// It was a copy when it was opened: whole, so that what does not read is damage and was not torn by a crash.
    pub copy: bool,
    /// A store is being made of a copy, in this try or in one before.
    pub was_copy: bool,
    /// What it was when it was opened; none: it was made.
    pub found: Option<Format>,
    /// Its segments are listed: not those of a copy that is being made.
    pub lists: AtomicBool,
    /// What the disk has for a roster, if that is known.
    pub listed: Mutex<Option<Roster>>,
    _lock: Lock,
    /// Notes are written one after the other. True: the disk knows which file has which note.
    pub noting: Mutex<bool>,
    /// Why the next note has no room of its own.
    pub roomless: Mutex<Option<Fault>>,
    /// What is reserved for it.
    pub room_bytes: AtomicU64,
}

impl Folder {
    /// Opens the folder, makes it if need be (and may write), and tells whether it was made. What is there is not changed
    /// before [`Folder::begin`]. One that is made says what it is before anything else is in it: of a copy that was cut
    /// short the manifest is missing, which nobody takes for whole, whatever it is called.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        access: Access,
        made: Format,
    ) -> Result<(Folder, bool), OpenError> {
        let failed = |error| fault("open", path, &error);
        let empty = match disk.what(path).map_err(failed)? {
            What::Missing if access == Access::Read => return Err(OpenError::Missing(path.into())),
            What::Missing => {
                disk.create_folder(path).map_err(|error| fault("create", path, &error))?;
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                disk.sync_folder(parent.unwrap_or(Path::new("."))).map_err(failed)?;
                true
            }
            What::File => return Err(foreign_file(&*disk, path)?),
            // Looked at before the lock: nothing is left behind in a folder that is not ours.
            What::Folder => Format::read(&*disk, path)?.is_none(),
        };
        if empty && access == Access::Read {
            return Err(OpenError::Foreign(path.into()));
        }
        let locked = disk.lock(&path.join(LOCK), access).map_err(|error| fault("lock", path, &error))?;
        let Some(lock) = locked else { return Err(OpenError::Locked(path.into())) };
        // Whoever had the lock until now may have changed it.
        let format = Format::read(&*disk, path)?;
        let listing = match format {
            None => {
                made.write(&*disk, path)?;
                None
            }
            Some(Format::UnlistedStore | Format::Store) => None,
            Some(Format::CopyByLengths) => Some(Listing::Lengths),
            Some(Format::Copy) => Some(Listing::LengthsAndSalts),
        };
        if let Some(listing) = listing {
            Manifest::check(&*disk, path, listing)?;
        }
        let was_copy = disk.what(&path.join(MANIFEST)).map_err(failed)? != What::Missing;
        let folder = Folder {
            disk,
            path: path.into(),
            copy: listing.is_some(),
            was_copy,
            found: format,
            lists: AtomicBool::new(format.is_some() || made != Format::Copy),
            listed: Mutex::default(),
            _lock: lock,
            noting: Mutex::new(false),
            roomless: Mutex::default(),
            room_bytes: AtomicU64::new(ROOM_BYTES),
        };
        if folder.copy {
            folder.check_notes()?;
        }
        Ok((folder, format.is_none()))
    }

    /// Makes it a store that is written to, once all of it was read: a copy that is refused stays a copy. From here on an end
    /// may be torn. The format is on the disk before the manifest goes ([`Folder::made`]), so a crash leaves a whole copy or
    /// a store. A manifest beside the format of a store is left of a try that ended in between, perhaps since the disk
    /// failed: then the format is written again. Other segments than those of `roster` may be removed from here on.
    pub fn begin(&self, roster: Roster) -> Result<(), Fault> {
        self.settle()?;
        self.tidy()?;
        self.reserve();
        self.begin_list(roster)
    }

    /// The store that was made of a copy writes nothing any more to what was copied.
    pub fn made(&self) -> Result<(), Fault> {
        if !self.was_copy {
            return Ok(());
        }
        let manifest = self.path.join(MANIFEST);
        self.disk.remove(&manifest).map_err(|error| fault("remove", &manifest, &error))
    }

    /// The refusal of a copy in which a file does not read from there on.
    pub fn damaged_at(&self, file: &str, offset: u64) -> OpenError {
        let lack = Lack::DamagedAt { offset };
        OpenError::Incomplete { path: self.path.clone(), file: file.into(), lack }
    }

    fn check_notes(&self) -> Result<(), OpenError> {
        for name in self.notes()? {
            match self.note(&name) {
                Ok(_) => {}
                Err(Fault::Damaged(_)) => return Err(self.damaged_at(&note_file(&name)?, 0)),
                Err(fault @ (Fault::Full | Fault::Io(_))) => return Err(fault.into()),
            }
        }
        Ok(())
    }

    pub fn names(&self) -> Result<Vec<String>, Fault> {
        let mut names = self.disk.list(&self.path).map_err(|error| fault("list", &self.path, &error))?;
        names.sort();
        Ok(names)
    }

    /// Removes what a crash left half written.
    fn tidy(&self) -> Result<(), Fault> {
        for name in self.names()?.iter().filter(|name| name.ends_with(UNFINISHED)) {
            let path = self.path.join(name);
            // A folder is none of ours.
            let removed = match self.disk.what(&path) {
                Ok(What::File) => self.disk.remove(&path),
                other => other.map(|_| ()),
            };
            removed.map_err(|error| fault("remove", &path, &error))?;
        }
        Ok(())
    }
}

impl Format {
    /// What a folder is; none if it is empty and may become a store.
    fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Format>, OpenError> {
        let failed = |error| fault("open", path, &error);
        let names = disk.list(path).map_err(failed)?;
        if !names.iter().any(|name| name == FORMAT) {
            // A crash at the very first start leaves these two.
            let unfinished = format!("{FORMAT}{UNFINISHED}");
            let empty = names.iter().all(|name| *name == LOCK || *name == unfinished);
            return if empty { Ok(None) } else { Err(OpenError::Foreign(path.into())) };
        }
        let file = disk.open(&path.join(FORMAT), Access::Read).map_err(failed)?;
        let Ok(bytes) = read_whole(&*file, FORMAT_BYTES_MAX) else {
            return Err(OpenError::Foreign(path.into()));
        };
        let line = std::str::from_utf8(&bytes).ok().and_then(|line| line.strip_suffix('\n'));
        let number = line.and_then(|line| line.strip_prefix(FORMAT_LINE));
        match number.and_then(|number| number.parse().ok()) {
            Some(1) => Ok(Some(Format::UnlistedStore)),
            Some(2) => Ok(Some(Format::CopyByLengths)),
            Some(3) => Ok(Some(Format::Copy)),
            Some(4) => Ok(Some(Format::Store)),
            Some(version) if version > FORMAT_VERSION => Err(OpenError::Newer { path: path.into(), version }),
            Some(_) | None => Err(OpenError::Foreign(path.into())),
        }
    }

    /// Says what the folder is from now on. Durable when this returns.
    pub fn write(self, disk: &dyn Disk, path: &Path) -> Result<(), Fault> {
        let line = format!("{FORMAT_LINE}{}\n", self as u32);
        let written = write_whole(disk, path, FORMAT, &[line.as_bytes()]);
        written.map_err(|error| fault("write", &path.join(FORMAT), &error))
    }
}

/// What to say of a file where a folder should be.
fn foreign_file(disk: &dyn Disk, path: &Path) -> Result<OpenError, Fault> {
    let failed = |error| fault("read", path, &error);
    let file = disk.open(path, Access::Read).map_err(failed)?;
    let mut front = [0; TOKYO_CABINET.len()];
    let there = front.len().min(file.bytes().map_err(failed)? as usize);
    file.read_at(0, &mut front[..there]).map_err(failed)?;
    let tokyo_cabinet = front == *TOKYO_CABINET;
    Ok(if tokyo_cabinet { OpenError::TokyoCabinet(path.into()) } else { OpenError::Foreign(path.into()) })
}

/// Whether a file of this name is one that a store writes.
pub fn is_ours(name: &str) -> bool {
    let name = name.strip_suffix(UNFINISHED).unwrap_or(name);
    let numbered = [SEGMENT, HINT].iter().any(|suffix| number_of(name, suffix).is_some());
    numbered
        || [FORMAT, LOCK, MANIFEST, RESERVE, ROOM, ROSTER, SYNCING].contains(&name)
        || name.ends_with(NOTE)
}

/// Whether a folder is a store, whoever uses it: nobody else may put files there.
pub fn is_taken(path: &Path) -> bool {
    path.join(FORMAT).exists()
}

pub const SEGMENT: &str = ".segment";
pub const HINT: &str = ".hint";
const FORMAT: &str = "FORMAT";
pub const LOCK: &str = "LOCK";
const FORMAT_LINE: &str = "kumo store ";

/// One line; more is not ours.
const FORMAT_BYTES_MAX: u64 = 64;

/// How a Tokyo Cabinet file begins.
const TOKYO_CABINET: &[u8; 13] = b"ToKyO CaBiNeT";
