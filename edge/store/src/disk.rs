//! [`Disk`]: all the engine asks of a file system, so that tests can stand in for one that fails.

use kumo_cluster::Fault;
use std::any::Any;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// The file system. Names are durable after [`Disk::sync_folder`], bytes after [`DiskFile::sync`].
pub trait Disk: Send + Sync {
    fn what(&self, path: &Path) -> io::Result<What>;

    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// How many bytes more the file system of this folder takes, as far as it knows.
    fn free(&self, folder: &Path) -> io::Result<u64>;

    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// A new file; there must be none of that name.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// Replaces what has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives each of two files the other's name, at once. A file system that cannot replaces the second one.
    fn exchange(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// A second name for the same bytes.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Held until the answer is dropped or the process ends; none if another has it. A reader shares it with
    /// other readers, and the file must be there; a writer creates it.
    fn lock(&self, path: &Path, access: Access) -> io::Result<Option<Lock>>;
}

/// An open file.
pub trait DiskFile: Send + Sync {
    fn bytes(&self) -> io::Result<u64>;

    /// How many bytes it has on the disk, with those that are reserved behind its end; less where a file system does not count
    /// them.
    fn space(&self) -> io::Result<u64>;

    /// How many names it has.
    fn links(&self) -> io::Result<u64>;

    /// Fills the whole buffer or fails.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes sure that writing up to `end` cannot find the disk full. The file does not get longer by it.
    fn allocate(&self, end: u64) -> io::Result<()>;

    fn truncate(&self, bytes: u64) -> io::Result<()>;

    fn sync(&self) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Missing,
    File,
    Folder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

pub type Lock = Box<dyn Any + Send + Sync>;

/// A fault of the engine from one of the disk.
pub fn fault(doing: &str, path: &Path, error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fault::Full,
        _other => Fault::Io(format!("{doing} {}: {error}", path.display())),
    }
}

/// The whole file, if it is not larger than that.
pub fn read_whole(file: &dyn DiskFile, bytes_max: u64) -> io::Result<Vec<u8>> {
    let length = file.bytes()?;
    if length > bytes_max {
        return Err(io::Error::other(format!("{length} bytes, more than {bytes_max}")));
    }
    let mut bytes = vec![0; length as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Writes the same bytes once more, in place: a sync that failed before left them in the system's memory alone.
pub fn rewrite(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    let mut piece = vec![0; REWRITE_BYTES];
    let mut offset = from;
    while offset < to {
        let count = REWRITE_BYTES.min((to - offset) as usize);
        file.read_at(offset, &mut piece[..count])?;
        file.write_at(offset, &piece[..count])?;
        offset += count as u64;
    }
    Ok(())
}

/// How much is written again at once.
const REWRITE_BYTES: usize = 56 << 10;

/// Writes a file whole or not at all: under another name first, durable before it gets its own.
pub fn write_whole(disk: &dyn Disk, folder: &Path, name: &str, parts: &[&[u8]]) -> io::Result<()> {
    write_roomy(disk, folder, name, parts, 0)
}

/// [`write_whole`] of a file that has so much space on the disk, or is not written.
pub fn write_roomy(disk: &dyn Disk, folder: &Path, name: &str, parts: &[&[u8]], room: u64) -> io::Result<()> {
    let unfinished = folder.join(format!("{name}{UNFINISHED}"));
    if disk.what(&unfinished)? == What::File {
        disk.remove(&unfinished)?;
    }
    let write = || {
        let file = disk.create(&unfinished)?;
        if room > 0 {
            file.allocate(room)?;
        }
        let mut offset = 0;
        for part in parts {
            file.write_at(offset, part)?;
            offset += part.len() as u64;
        }
        file.sync()?;
        disk.rename(&unfinished, &folder.join(name))?;
        disk.sync_folder(folder)
    };
    write().inspect_err(|_| {
        // What is left is removed at the next start, if not now.
        let _ = disk.remove(&unfinished);
    })
}

/// Ends the name of a file that is being written. It means nothing if a crash leaves it behind.
pub const UNFINISHED: &str = ".unfinished";

/// The operating system's.
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn what(&self, path: &Path) -> io::Result<What> {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(What::Folder),
            Ok(_) => Ok(What::File),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(What::Missing),
            Err(error) => Err(error),
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn free(&self, folder: &Path) -> io::Result<u64> {
        let filled = rustix::fs::statvfs(folder)?;
        Ok(filled.f_bavail.saturating_mul(filled.f_frsize))
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(access == Access::Write).open(path)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn exchange(&self, from: &Path, to: &Path) -> io::Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(()),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => std::fs::rename(from, to),
            Err(errno) => Err(errno.into()),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path, access: Access) -> io::Result<Option<Lock>> {
        let writes = access == Access::Write;
        let file = OpenOptions::new().read(true).write(writes).create(writes).truncate(false).open(path)?;
        let locked = if writes { file.try_lock() } else { file.try_lock_shared() };
        match locked {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl DiskFile for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn space(&self) -> io::Result<u64> {
        Ok(self.metadata()?.blocks().saturating_mul(BLOCK_BYTES))
    }

    fn links(&self) -> io::Result<u64> {
        Ok(self.metadata()?.nlink())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn allocate(&self, end: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::retry_on_intr;
        // A signal that comes meanwhile is no reason to refuse a record.
        match retry_on_intr(|| fallocate(self, FallocateFlags::KEEP_SIZE, 0, end)) {
            Ok(()) => Ok(()),
            // A file system that cannot promise space: a full disk is then found by the write, which is repeated
            // until there is space, and nothing is answered before.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// What the system counts the space of files in, whatever the file system's blocks are.
const BLOCK_BYTES: u64 = 512;
