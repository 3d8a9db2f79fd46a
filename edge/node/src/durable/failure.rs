//! [`Failure`]: a disk operation that failed, and what that says of the memory.

use std::fs::File;
use std::io;
use std::path::Path;

/// A disk operation that failed.
#[derive(Debug)]
pub enum Failure {
    /// Something was not written, or only in part. Nobody was told that it was: the memory is whole without it.
    Unwritten(io::Error),
    /// Something was written and may not be on disk. The system may have dropped it, and will not say so twice:
    /// whatever a later sync says, the memory may have a hole.
    Unsynced(io::Error),
}

/// Makes the names in a folder durable.
pub fn sync_folder(path: &Path) -> Result<(), Failure> {
    let folder = File::open(path).map_err(Failure::Unwritten)?;
    folder.sync_all().map_err(Failure::Unsynced)
}
