//! [`OpenError`]: why a store was not opened. Nothing was changed then.

use kumo_cluster::Fault;
use std::path::PathBuf;

/// Why a store was not opened, made or merged. What was there is untouched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("{}: in use by another process", .0.display())]
    Locked(PathBuf),
    #[error("{}: a Tokyo Cabinet file, not a kumo store", .0.display())]
    TokyoCabinet(PathBuf),
    #[error("{}: not a kumo store", .0.display())]
    Foreign(PathBuf),
    #[error("{}: store format {version}, this program knows {known}", path.display(), known = crate::FORMAT_VERSION)]
    Newer { path: PathBuf, version: u32 },
    /// Only for a backup, or the result of a merge: what is there is not what was written.
    #[error("{}: the backup is not complete: {file} {lack}", path.display())]
    Incomplete { path: PathBuf, file: String, lack: Lack },
    /// Only for a store that a server writes to: the file of a segment vanished, and with it some of what was written.
    #[error("{}: the store is not complete: {file} {lack}", path.display())]
    Lacking { path: PathBuf, file: String, lack: Lack },
    /// Only for what must not be there yet: a backup or the result of a merge.
    #[error("{}: already exists", .0.display())]
    Exists(PathBuf),
    /// Only for what is written to: a backup or merge would take it for a part of one that was cut short, and remove it.
    #[error("{}: a store with a name that ends so is taken for one that is not finished", .0.display())]
    Unfinished(PathBuf),
    /// Only for what must be there: a source of a merge.
    #[error("{}: no such store", .0.display())]
    Missing(PathBuf),
    /// Only for sources of a merge: stamps of two clusters say nothing about each other.
    #[error("{}: of another cluster than {}", .path.display(), .first.display())]
    OtherCluster { path: PathBuf, first: PathBuf },
    /// Names file and offset, or the call that failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// What is wrong with a file that must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    #[error("is missing")]
    Missing,
    #[error("has {found} bytes, not {listed}")]
    Bytes { found: u64, listed: u64 },
    #[error("is damaged")]
    Damaged,
    /// Its length is right, and what is there does not read. No crash can have torn it: a backup is whole when it gets
    /// its name.
    #[error("is damaged at offset {offset}")]
    DamagedAt { offset: u64 },
    /// Of another backup or store: its records do not follow those before.
    #[error("does not belong to it")]
    Foreign,
}
