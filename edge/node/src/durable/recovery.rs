//! What a durable node remembers when it starts: the newest snapshot and the segments from it on.

use super::directory::Directory;
use super::frame::FORMAT;
use super::segment::{self, Birth, Segment};
use super::snapshot;
use crate::NodeError;
use bytes::Bytes;
use kumo_paxos::{Incarnation, Position, Record};
use std::fs;
use std::path::PathBuf;
use tracing::{error, warn};

/// The memory of an earlier life.
#[derive(Debug)]
pub struct Memory {
    pub incarnation: Incarnation,
    pub snapshot: Option<(Position, Vec<Bytes>)>,
    /// All records since the snapshot, in order.
    pub records: Vec<Record>,
}

/// What was found in a folder.
#[derive(Debug)]
pub struct Found {
    /// `None`: nothing, or nothing that can be trusted (and that was set aside).
    pub memory: Option<Memory>,
    /// The segment to go on with, and its number. `None` without a memory.
    pub segment: Option<(Segment, u64)>,
    /// Bytes of the snapshot and of the segments.
    pub snapshot_bytes: u64,
    pub log_bytes: u64,
}

/// Reads a folder. A torn tail of the last segment is cut; anything else that cannot be read means that the
/// memory is incomplete, so its files are set aside: this node then starts as a new incarnation and learns.
pub fn recover(directory: &Directory) -> Result<Found, NodeError> {
    let distrusted = match directory.untrusted() {
        true => Err(Reading::Lost("an earlier sync failed, or the cell ended this memory".to_owned())),
        false => read(directory),
    };
    match distrusted {
        Ok(found) => Ok(found),
        Err(Reading::Refused(error)) => Err(error),
        Err(Reading::Lost(reason)) => {
            forget(directory, &reason)?;
            Ok(Found::nothing())
        }
    }
}

/// Sets the files of a memory aside that cannot be used.
pub fn forget(directory: &Directory, reason: &str) -> Result<(), NodeError> {
    let aside = directory.set_aside()?;
    error!(reason, aside = %aside.display(), "data cannot be trusted: starting as a new incarnation");
    Ok(())
}

impl Found {
    fn nothing() -> Found {
        Found { memory: None, segment: None, snapshot_bytes: 0, log_bytes: 0 }
    }
}

/// Why a memory was not read.
enum Reading {
    /// Not ours to touch, or the disk fails: the node does not start.
    Refused(NodeError),
    /// Damaged or incomplete.
    Lost(String),
}

fn read(directory: &Directory) -> Result<Found, Reading> {
    let listing = directory.list().map_err(Reading::Refused)?;
    let (Some(&last), newest) = (listing.segments.last(), listing.snapshots.last().copied()) else {
        return match listing.snapshots.is_empty() {
            true => Ok(Found::nothing()),
            false => Err(Reading::Lost("a snapshot without its log".to_owned())),
        };
    };
    let first = newest.unwrap_or(FIRST_SEGMENT);
    if let Some(missing) = (first..=last).find(|number| !listing.segments.contains(number)) {
        return Err(Reading::Lost(format!(
            "{} is missing",
            segment::path(directory.path(), missing).display()
        )));
    }
    if first > last {
        return Err(Reading::Lost("a snapshot without its log".to_owned()));
    }
    let (snapshot, snapshot_bytes) = match newest {
        Some(number) => {
            let (position, parts, bytes) = read_snapshot(directory, number)?;
            (Some((position, parts)), bytes)
        }
        None => (None, 0),
    };
    let Log { records, bytes: log_bytes, length_before, end } = read_log(directory, first, last)?;
    let Some(Record::Life { incarnation, .. }) = records.first() else {
        // Its first commit, which names the life, never reached the disk: nothing was ever acknowledged. Only a
        // fresh folder can be in this state.
        return match records.is_empty() && snapshot.is_none() && first == last {
            true => restart(directory, last),
            false => Err(Reading::Lost("the log does not begin with a life".to_owned())),
        };
    };
    let incarnation = *incarnation;
    let path = segment::path(directory.path(), last);
    let segment = match end {
        Some((birth, length)) => Segment::reopen(&path, birth, length),
        None => Segment::restart(&path, last, length_before),
    }
    .map_err(|failure| Reading::Refused(directory.failed("go on with the log in", failure)))?;
    // What is built on from now on: also names that the process before made and had no time to sync.
    directory.sync().map_err(Reading::Refused)?;
    let memory = Memory { incarnation, snapshot, records };
    Ok(Found { memory: Some(memory), segment: Some((segment, last)), snapshot_bytes, log_bytes })
}

/// What the segments say.
#[derive(Default)]
struct Log {
    records: Vec<Record>,
    bytes: u64,
    /// Of the segment before the last.
    length_before: u64,
    /// The last segment, and how many of its bytes are good. `None`: it was not begun.
    end: Option<(Birth, u64)>,
}

/// Reads the segments from `first` to `last`. A segment is begun when the one before is complete and safe, so that must
/// be as long as it was then: what is missing at its end is seen only by that, and what follows counts it as if it were
/// there.
fn read_log(directory: &Directory, first: u64, last: u64) -> Result<Log, Reading> {
    let mut log = Log::default();
    for number in first..=last {
        log.length_before = log.end.map_or(0, |(_, length)| length);
        let start = log.records.len();
        log.end = read_segment(directory, number, number == last, &mut log.records)?;
        if let Some((birth, _)) = log.end
            && number > first
            && birth.length_before != log.length_before
        {
            return Err(Reading::Lost(format!(
                "{} has {} bytes, not {}",
                segment::path(directory.path(), number - 1).display(),
                log.length_before,
                birth.length_before
            )));
        }
        if number == last && is_beginning_torn(&log.records, start) {
            warn!(number, "torn beginning of a segment cut");
            log.records.truncate(start);
            log.end = None;
        }
        log.bytes += log.end.map_or(0, |(_, length)| length);
    }
    Ok(log)
}

/// Whether the records from `start` on, a later segment's, are only a part of what it must begin with. That says again
/// what came before, so it counts no fewer votes once it is whole; in part it would make this replica look as if it
/// had forgotten some. Nothing of such a segment was ever answered.
fn is_beginning_torn(records: &[Record], start: usize) -> bool {
    let votes = |records: &[Record]| {
        records.iter().fold(0, |votes, record| match record {
            Record::Life { kept, .. } => *kept,
            Record::Promised(_) | Record::Accepted { .. } => votes + 1,
            Record::Decided { .. } | Record::Data { .. } => votes,
        })
    };
    votes(records) < votes(&records[..start])
}

/// A folder whose only segment holds nothing: begin again.
fn restart(directory: &Directory, number: u64) -> Result<Found, Reading> {
    let path = segment::path(directory.path(), number);
    fs::remove_file(&path).map_err(|error| refused("remove", path, error))?;
    Ok(Found::nothing())
}

/// A snapshot's position, parts and bytes.
fn read_snapshot(directory: &Directory, number: u64) -> Result<(Position, Vec<Bytes>, u64), Reading> {
    let path = snapshot::path(directory.path(), number);
    let file = load(&path)?;
    match snapshot::read(number, &file) {
        snapshot::Contents::Whole { position, parts } => Ok((position, parts, file.len() as u64)),
        snapshot::Contents::Damaged { offset } => Err(damaged(&path, offset)),
        snapshot::Contents::OtherFormat(found) => Err(other_format(path, found)),
        snapshot::Contents::Foreign => Err(Reading::Refused(NodeError::ForeignFile(path))),
    }
}

/// Appends a segment's records; returns how many of its bytes are good. `None`: it was not begun.
fn read_segment(
    directory: &Directory,
    number: u64,
    last: bool,
    records: &mut Vec<Record>,
) -> Result<Option<(Birth, u64)>, Reading> {
    let path = segment::path(directory.path(), number);
    let file = load(&path)?;
    match segment::read(number, &file) {
        segment::Contents::Whole { birth, records: more, length } => {
            let torn = file.len() as u64 - length;
            // The next segment is begun only when this one is safe: then it has no tail to tear.
            if torn > 0 && !last {
                return Err(damaged(&path, length));
            }
            if torn > 0 {
                warn!(file = %path.display(), offset = length, bytes = torn, "torn tail cut");
            }
            records.extend(more);
            Ok(Some((birth, length)))
        }
        // The process ended, or the power failed, while it was begun. Only of the last one: the next is begun when this
        // one is safe.
        segment::Contents::Unbegun if last => {
            warn!(file = %path.display(), bytes = file.len(), "torn beginning of a segment cut");
            Ok(None)
        }
        segment::Contents::Unbegun => Err(damaged(&path, 0)),
        segment::Contents::Damaged { offset } => Err(damaged(&path, offset)),
        segment::Contents::OtherFormat(found) => Err(other_format(path, found)),
        segment::Contents::Foreign => Err(Reading::Refused(NodeError::ForeignFile(path))),
    }
}

fn load(path: &PathBuf) -> Result<Bytes, Reading> {
    match fs::read(path) {
        Ok(bytes) => Ok(Bytes::from(bytes)),
        Err(error) => Err(refused("read", path.clone(), error)),
    }
}

fn refused(what: &'static str, path: PathBuf, error: std::io::Error) -> Reading {
    Reading::Refused(NodeError::Disk { what, path, error })
}

fn damaged(path: &std::path::Path, offset: u64) -> Reading {
    Reading::Lost(format!("{} is damaged at byte {offset}", path.display()))
}

fn other_format(path: PathBuf, found: u32) -> Reading {
    Reading::Refused(match found > FORMAT {
        true => NodeError::NewerFormat { path, found, known: FORMAT },
        false => NodeError::OlderFormat { path, found, known: FORMAT },
    })
}

/// The number of a new folder's first segment.
pub const FIRST_SEGMENT: u64 = 1;
