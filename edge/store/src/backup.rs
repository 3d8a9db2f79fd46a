//! [`Backup`]: a copy of a store that is itself a store, taken while writing goes on.

use crate::disk::{Access, Disk, DiskFile, UNFINISHED, What, fault};
use crate::engine::{Core, Files};
use crate::error::OpenError;
use crate::folder::{Folder, Format, LOCK, is_ours};
use crate::manifest::Manifest;
use crate::segment::{Segment, hint_name};
use kumo_cluster::Fault;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a backup holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backup {
    /// Closed segments that share their bytes with the store.
    pub linked: usize,
    /// Segments that were copied.
    pub copied: usize,
    /// Of all segments.
    pub bytes: u64,
}

impl Core {
    pub fn backup(&self, destination: &Path, leave_out: &[&str]) -> Result<Backup, OpenError> {
        let Some(files) = self.files() else {
            return Err(Fault::Io("a store in memory has no files to back up".into()).into());
        };
        // One at a time, and no segment goes while a backup needs it.
        let _turn = files.removing.lock().expect("no panic under this lock");
        let disk = &files.folder.disk;
        let unfinished = start(disk, destination)?;
        // Locked until it has its name: whoever finds it meanwhile must not take it for one that was cut short.
        let (copy, _) = Folder::open(disk.clone(), &unfinished, Access::Write, Format::Copy)?;
        let written = files.write_backup(&copy, leave_out).and_then(|backup| {
            finish(&**disk, &unfinished, destination)?;
            Ok(backup)
        });
        written.inspect_err(|_| {
            // The space may be what the store itself lacks. What is left is removed by the next try.
            let _ = clear(&**disk, &unfinished);
        })
    }
}

/// Makes sure that nothing is at the destination, and that the folder that will get its name is empty.
pub fn start(disk: &Arc<dyn Disk>, destination: &Path) -> Result<PathBuf, OpenError> {
    let failed = |error| fault("create", destination, &error);
    check_name(destination)?;
    if disk.what(destination).map_err(failed)? != What::Missing {
        return Err(OpenError::Exists(destination.into()));
    }
    let mut name = destination.as_os_str().to_owned();
    name.push(UNFINISHED);
    let unfinished = PathBuf::from(name);
    match disk.what(&unfinished).map_err(failed)? {
        What::Missing => return Ok(unfinished),
        What::File => return Err(OpenError::Exists(unfinished)),
        What::Folder => {}
    }
    // Only what a store writes is removed.
    let names = disk.list(&unfinished).map_err(failed)?;
    if !names.iter().all(|name| is_ours(name)) {
        return Err(OpenError::Exists(unfinished));
    }
    // A try that was cut short, or one that is under way, perhaps of another process.
    let Some(_lock) = disk.lock(&unfinished.join(LOCK), Access::Write).map_err(failed)? else {
        return Err(OpenError::Locked(unfinished));
    };
    clear(&**disk, &unfinished).map_err(failed)?;
    Ok(unfinished)
}

/// No store has the name of one that is not finished: the next backup or merge would remove its files as left over.
pub fn check_name(path: &Path) -> Result<(), OpenError> {
    let name = path.file_name().unwrap_or_default();
    if name.as_encoded_bytes().ends_with(UNFINISHED.as_bytes()) {
        return Err(OpenError::Unfinished(path.into()));
    }
    Ok(())
}

/// Removes all files of an unfinished store but the one that says whose it is.
fn clear(disk: &dyn Disk, unfinished: &Path) -> io::Result<()> {
    let names = disk.list(unfinished)?;
    names.iter().filter(|name| *name != LOCK).try_for_each(|name| disk.remove(&unfinished.join(name)))
}

/// Says what the finished store holds, and gives it its name.
pub fn finish(disk: &dyn Disk, unfinished: &Path, destination: &Path) -> Result<(), Fault> {
    Manifest::write(disk, unfinished)?;
    let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
    let named = disk
        .sync_folder(unfinished)
        .and_then(|()| disk.rename(unfinished, destination))
        .and_then(|()| disk.sync_folder(parent.unwrap_or(Path::new("."))));
    named.map_err(|error| fault("rename to", destination, &error))
}

impl Files {
    fn write_backup(&self, copy: &Folder, leave_out: &[&str]) -> Result<Backup, OpenError> {
        let unfinished = &copy.path;
        // Linked segments must be on the disk by themselves. What comes after this is in what is copied.
        self.log.sync()?;
        let segments = self.log.cut()?;
        if let Some((damaged, _)) = segments.iter().find(|(one, _)| one.damaged.load(Ordering::Relaxed)) {
            let text = format!("{}: damaged: a backup of it would be refused", damaged.path.display());
            return Err(Fault::Damaged(text).into());
        }
        let mut backup = Backup::default();
        let active = segments.last().map(|(active, _)| active.number);
        for (segment, bytes) in &segments {
            let path = unfinished.join(segment.path.file_name().expect("a segment has a name"));
            let closed = Some(segment.number) != active;
            // On another file system there are no links.
            if closed && segment.synced() >= *bytes && self.folder.disk.link(&segment.path, &path).is_ok() {
                backup.linked += 1;
            } else {
                copy_bytes(&*self.folder.disk, segment, *bytes, &path)?;
                backup.copied += 1;
            }
            // The one that was active may be longer by now, and its hint speaks for all of it.
            if closed && segment.hinted.load(Ordering::Relaxed) {
                let hint = hint_name(segment.number);
                // Without it the start takes longer, nothing else.
                let _ = self.folder.disk.link(&self.folder.path.join(&hint), &unfinished.join(&hint));
            }
            backup.bytes += bytes;
        }
        for name in self.folder.notes()?.iter().filter(|name| !leave_out.contains(&name.as_str())) {
            if let Some(content) = self.folder.note(name)? {
                copy.put_note(name, &content)?;
            }
        }
        Ok(backup)
    }
}

pub fn copy_bytes(disk: &dyn Disk, segment: &Segment, bytes: u64, path: &Path) -> Result<(), Fault> {
    let copy = |to: Box<dyn DiskFile>| -> io::Result<()> {
        let mut piece = vec![0; COPY_BYTES];
        let mut offset = 0;
        while offset < bytes {
            let count = COPY_BYTES.min((bytes - offset) as usize);
            segment.file.read_at(offset, &mut piece[..count])?;
            to.write_at(offset, &piece[..count])?;
            offset += count as u64;
        }
        to.sync()
    };
    disk.create(path).and_then(copy).map_err(|error| fault("copy to", path, &error))
}

/// Copied at once.
const COPY_BYTES: usize = 256 << 10;
