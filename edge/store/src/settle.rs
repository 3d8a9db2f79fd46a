//! A start makes durable what it finds, and makes up for a sync that failed before it.

use crate::disk::{Access, DiskFile, What, fault, read_whole, rewrite};
use crate::folder::{Folder, LOCK, is_ours};
use crate::notes::{content, encoded};
use kumo_cluster::Fault;
use std::io;
use std::path::{Path, PathBuf};

impl Folder {
    /// Makes durable what is here. A sync that fails may have dropped what it could not write, and does not say so twice:
    /// the system's memory still has it, as if it were written. So a file is under suspicion from before it is synced until
    /// that is known to have gone well, and who finds one that is writes it once more before anything else: a try that was
    /// ended in between may have been told of a failure and not have lived to note it. It has asked for one file at a time,
    /// so that it leaves one at most. Of one that noted a failure all files are under suspicion, and no more of these are
    /// written by the next try than the one before has left: however often it is ended, there is an end to it.
    pub fn settle(&self) -> Result<(), Fault> {
        let path = self.path.join(SYNCING);
        let failed = |error| fault("write", &path, &error);
        let syncing = match self.disk.what(&path).map_err(failed)? {
            What::Missing => match self.disk.create(&path).map_err(failed) {
                Ok(file) => Some(Syncing { path: path.clone(), file }),
                // A full disk must not keep a server from starting, and has no room for what could get lost either.
                Err(Fault::Full) => None,
                Err(fault @ (Fault::Damaged(_) | Fault::Io(_))) => return Err(fault),
            },
            What::File | What::Folder => {
                let file = self.disk.open(&path, Access::Write).map_err(failed)?;
                let syncing = Syncing { path: path.clone(), file };
                self.make_up_for(&syncing)?;
                Some(syncing)
            }
        };
        self.sync_all(syncing.as_ref()).inspect_err(|_| {
            if let Some(syncing) = &syncing {
                // If it cannot be noted, the file whose sync has failed is.
                let _ = syncing.note(&Suspects::ALL);
            }
        })?;
        match syncing {
            None => Ok(()),
            Some(_) => self.disk.remove(&path).map_err(failed),
        }
    }

    /// Writes what is under suspicion once more, in place, and syncs it.
    fn make_up_for(&self, syncing: &Syncing) -> Result<(), Fault> {
        let suspects = syncing.suspects();
        for name in self.settled_names()?.iter().filter(|name| suspects.has(name)) {
            syncing.note(&suspects.left_at(name))?;
            let path = self.path.join(name);
            let opened = self.disk.open(&path, Access::Write);
            let rewritten = opened.and_then(|file| rewrite(&*file, 0, file.bytes()?));
            rewritten.map_err(|error| fault("rewrite", &path, &error))?;
            self.sync_file(name)?;
        }
        Ok(())
    }

    /// What somebody copied or moved here may not be on the disk yet, nor a name that was made or removed when the process
    /// before was killed: hints do not speak for that, and what is stored from now on must not depend on it. Nor is a file
    /// left out that a try before has synced: it may be another one by now.
    fn sync_all(&self, syncing: Option<&Syncing>) -> Result<(), Fault> {
        for name in self.settled_names()? {
            if let Some(syncing) = syncing {
                syncing.note(&Suspects::Only(name.clone()))?;
            }
            self.sync_file(&name)?;
        }
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let above = match self.disk.sync_folder(parent.unwrap_or(Path::new("."))) {
            // Whoever made it saw to its name.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => other,
        };
        let synced = above.and_then(|()| self.disk.sync_folder(&self.path));
        synced.map_err(|error| fault("sync", &self.path, &error))
    }

    fn sync_file(&self, name: &str) -> Result<(), Fault> {
        let path = self.path.join(name);
        let synced = self.disk.open(&path, Access::Read).and_then(|file| file.sync());
        synced.map_err(|error| fault("sync", &path, &error))
    }

    /// In order. What is noted is not for the time after a power failure: then, what is read is what the disk has.
    fn settled_names(&self) -> Result<Vec<String>, Fault> {
        let mut names = self.names()?;
        names.retain(|name| is_ours(name) && ![LOCK, SYNCING].contains(&name.as_str()));
        Ok(names)
    }
}

/// Files that the system may hold for written while the disk does not have them. In the file `SYNCING`, which has the
/// layout of a note:
///
/// | content             | meaning                                                                |
/// |---------------------|------------------------------------------------------------------------|
/// | `=` and a file name | that file                                                              |
/// | `>` and a file name | that file and those that come after it                                 |
/// | anything else       | all: written in part, for want of space not at all, by an older program |
#[derive(Debug, PartialEq, Eq)]
enum Suspects {
    Only(String),
    From(String),
}

impl Suspects {
    const ALL: Suspects = Suspects::From(String::new());

    fn has(&self, name: &str) -> bool {
        match self {
            Suspects::Only(suspect) => name == suspect,
            Suspects::From(first) => name >= first.as_str(),
        }
    }

    /// What is left of them when all before that file is on the disk.
    fn left_at(&self, name: &str) -> Suspects {
        match self {
            Suspects::Only(_) => Suspects::Only(name.to_owned()),
            Suspects::From(_) => Suspects::From(name.to_owned()),
        }
    }

    fn text(&self) -> String {
        match self {
            Suspects::Only(name) => format!("{ONLY}{name}"),
            Suspects::From(name) => format!("{FROM}{name}"),
        }
    }

    /// None: not what was written.
    fn parse(bytes: &[u8]) -> Option<Suspects> {
        let text = std::str::from_utf8(content(bytes)?).ok()?;
        let only = text.strip_prefix(ONLY).map(|name| Suspects::Only(name.to_owned()));
        only.or_else(|| text.strip_prefix(FROM).map(|name| Suspects::From(name.to_owned())))
    }
}

/// The file `SYNCING`.
struct Syncing {
    path: PathBuf,
    file: Box<dyn DiskFile>,
}

impl Syncing {
    fn suspects(&self) -> Suspects {
        let bytes = read_whole(&*self.file, SYNCING_BYTES_MAX).ok();
        bytes.as_deref().and_then(Suspects::parse).unwrap_or(Suspects::ALL)
    }

    /// Survives the process when this returns, which is enough.
    fn note(&self, suspects: &Suspects) -> Result<(), Fault> {
        let failed = |error| fault("write", &self.path, &error);
        let (crc, rest) = encoded(suspects.text().as_bytes());
        // In one piece: what is there of it when the process ends is told by its checksum.
        match self.file.write_at(0, &[&crc[..], &rest[..]].concat()).map_err(failed) {
            // What was noted before is not true any more.
            Err(Fault::Full) => self.file.truncate(0).map_err(failed),
            written => written,
        }
    }
}

/// The name of the file.
pub const SYNCING: &str = "SYNCING";

const ONLY: char = '=';
const FROM: char = '>';

/// Much more than a note of a file's name.
const SYNCING_BYTES_MAX: u64 = 4096;
