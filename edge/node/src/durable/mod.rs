//! Durable mode: promises, accepts and decisions are on disk before they are answered.
//!
//! Records are appended to a segment, all records of a turn with one write and one sync (group commit), in a
//! blocking thread while the node goes on; what the node wants to say meanwhile waits in line behind them.
//! Now and then a snapshot is written beside the log, a few parts at a time. It goes *before* a new segment,
//! which begins with what the replica must still remember, so that everything older can be dropped once both
//! are safe.
//!
//! What could not be written was not answered, so a full disk ends the process and not the memory: the next start
//! cuts the torn end and goes on. A sync that failed ends the memory too, see [`failure::Failure`]. A snapshot that
//! could not be written costs nothing but a longer log.

mod directory;
mod failure;
mod frame;
mod recovery;
mod segment;
mod snapshot;
mod storage;

pub use recovery::Memory;
pub use storage::{Progress, Storage};

/// A fresh folder for a test.
#[cfg(test)]
fn scratch(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("kumo-node-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}
