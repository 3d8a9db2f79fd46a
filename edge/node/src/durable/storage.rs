//! [`Storage`]: a durable node's log and snapshots while it runs.

use super::directory::Directory;
use super::failure::{Failure, sync_folder};
use super::recovery::{self, FIRST_SEGMENT, Memory};
use super::segment::{Commit, Segment};
use super::snapshot::{self, SnapshotFile};
use crate::{NodeError, clock};
use bytes::Bytes;
use kumo_paxos::{Position, Record, Time};
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{error, info, warn};

/// The log and the snapshots of a durable node.
///
/// One commit is under way at a time; records that come meanwhile go together in the next one. A ticket numbers
/// each turn's records; a turn's effects may be performed once its ticket is on disk.
pub struct Storage {
    directory: Directory,
    /// The newest segment; away while a commit writes to it.
    segment: Option<Segment>,
    number: u64,
    /// Records for `segment` that no commit has taken yet.
    pending: Commit,
    /// Begin another segment after `pending`, and these records in it.
    rotation: Option<Commit>,
    commit: Option<JoinHandle<Result<Written, Failed>>>,
    /// A finished commit's buffer, for the next one.
    spare: Commit,
    /// The ticket of the newest records, of those being written, and of those on disk.
    ticket: u64,
    ticket_writing: u64,
    ticket_safe: u64,
    snapshot: Option<SnapshotWork>,
    /// After a snapshot that failed: not yet another one.
    pause: Option<Pause>,
    /// Bytes in the log since the newest snapshot, and in that snapshot.
    log_bytes: u64,
    snapshot_bytes: u64,
    /// Of `log_bytes`, those that the snapshot under way replaces.
    replaced_bytes: u64,
}

/// What a call of [`Storage::poll`] led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Everything up to this ticket is on disk.
    Safe(u64),
    /// A snapshot wants its next part: call [`Storage::snapshot_part`].
    WantsPart,
    /// A snapshot could not be written, and wants no more parts. The log goes on without it.
    SnapshotFailed,
}

/// What a commit gives back.
struct Written {
    segment: Segment,
    commit: Commit,
    bytes: u64,
}

/// A disk operation that failed, and where.
struct Failed {
    what: &'static str,
    failure: Failure,
}

/// A snapshot on its way.
struct SnapshotWork {
    /// The segment it goes before. It may be finished only when that segment's first commit is safe.
    number: u64,
    segment_ticket: u64,
    job: Option<JoinHandle<Result<Job, Failed>>>,
    file: Option<SnapshotFile>,
    all_parts: bool,
}

/// What a snapshot's blocking job gives back.
enum Job {
    Going(SnapshotFile),
    Finished {
        bytes: u64,
    },
    /// It is given up, and what there was of it is gone.
    Failed(io::Error),
}

/// Until when, and up to which length of the log, no snapshot is wanted.
struct Pause {
    until: Time,
    log_bytes: u64,
}

impl Storage {
    /// Opens a folder, and reads what an earlier life left there.
    pub fn open(path: &std::path::Path) -> Result<(Storage, Option<Memory>), NodeError> {
        let directory = Directory::open(path)?;
        let found = recovery::recover(&directory)?;
        directory.drop_unfinished()?;
        let number = found.segment.as_ref().map_or(FIRST_SEGMENT, |(_, number)| *number);
        if found.memory.is_some() {
            Directory::tidy(directory.path(), number.min(newest_snapshot(&directory)?))
                .map_err(|error| directory.fault("remove old files in", error))?;
        }
        directory.trust()?;
        let storage = Storage {
            directory,
            segment: found.segment.map(|(segment, _)| segment),
            number,
            pending: Commit::default(),
            rotation: None,
            commit: None,
            spare: Commit::default(),
            ticket: 0,
            ticket_writing: 0,
            ticket_safe: 0,
            snapshot: None,
            pause: None,
            log_bytes: found.log_bytes,
            snapshot_bytes: found.snapshot_bytes,
            replaced_bytes: 0,
        };
        Ok((storage, found.memory))
    }

    /// Begins the log of a new life in a folder that holds none.
    pub fn begin(&mut self) -> Result<(), NodeError> {
        let segment = Segment::create(self.directory.path(), FIRST_SEGMENT, 0)
            .map_err(|error| self.directory.fault("begin the log in", error))?;
        self.directory.sync()?;
        self.log_bytes = segment.length();
        self.number = FIRST_SEGMENT;
        self.segment = Some(segment);
        Ok(())
    }

    /// Puts a memory aside that the replica could not make sense of.
    pub fn forget(&mut self, reason: &str) -> Result<(), NodeError> {
        self.segment = None;
        recovery::forget(&self.directory, reason)?;
        self.directory.trust()
    }

    /// Takes a record for the next commit.
    pub fn append(&mut self, record: &Record) {
        let pending = self.rotation.as_mut().unwrap_or(&mut self.pending);
        pending.put(record);
    }

    /// Ends a turn: the ticket its effects wait for. Starts a commit if none is under way.
    pub fn seal(&mut self) -> u64 {
        if !self.pending.is_empty() || self.rotation.is_some() {
            self.ticket += 1;
            self.start();
        }
        self.ticket
    }

    /// Whether everything up to that ticket is on disk.
    pub fn is_safe(&self, ticket: u64) -> bool {
        ticket <= self.ticket_safe
    }

    /// Whether the log has grown so much that a snapshot pays.
    pub fn wants_snapshot(&self) -> bool {
        self.snapshot.is_none()
            && self.log_bytes > LOG_BYTES_MAX.max(self.snapshot_bytes)
            && self
                .pause
                .as_ref()
                .is_none_or(|pause| self.log_bytes > pause.log_bytes && clock::now() >= pause.until)
    }

    pub fn is_writing_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Begins a snapshot of the state at this very moment. `memory` is what the replica must remember beyond
    /// it: the new segment begins with that. Parts are asked for through [`Progress::WantsPart`].
    pub fn begin_snapshot(&mut self, position: Position, memory: &[Record]) {
        assert!(self.snapshot.is_none() && self.rotation.is_none(), "one snapshot at a time");
        assert!(matches!(memory.first(), Some(Record::Life { .. })), "a memory begins with its life");
        let mut commit = Commit::default();
        memory.iter().for_each(|record| commit.put(record));
        self.rotation = Some(commit);
        let number = self.number + 1;
        let segment_ticket = self.seal();
        let job = self
            .snapshot_job(number, move |path| SnapshotFile::create(path, number, &position).map(Job::Going));
        self.snapshot =
            Some(SnapshotWork { number, segment_ticket, job: Some(job), file: None, all_parts: false });
    }

    /// The snapshot's next part; `None` after the last.
    pub fn snapshot_part(&mut self, part: Option<Bytes>) {
        let Some(mut work) = self.snapshot.take() else { return };
        match part {
            None => work.all_parts = true,
            Some(part) => {
                let mut file = work.file.take().expect("a part is asked for when the file is here");
                work.job = Some(self.snapshot_job(work.number, move |_| {
                    file.part(&part)?;
                    Ok(Job::Going(file))
                }));
            }
        }
        self.snapshot = Some(work);
    }

    /// What has come about since the last call. An error means: stop, and answer nothing that is not safe. Whether
    /// the next start may use this memory has been noted.
    pub fn poll(&mut self, context: &mut Context) -> Poll<Result<Progress, NodeError>> {
        if let Poll::Ready(committed) = self.poll_commit(context) {
            return Poll::Ready(committed.map(Progress::Safe).map_err(|failed| self.failed(failed)));
        }
        let progress = ready!(self.poll_snapshot(context));
        Poll::Ready(progress.map_err(|failed| self.failed(failed)))
    }

    fn poll_commit(&mut self, context: &mut Context) -> Poll<Result<u64, Failed>> {
        let Some(commit) = &mut self.commit else { return Poll::Pending };
        let written = ready!(poll_job(commit, context));
        self.commit = None;
        let written = written?;
        self.segment = Some(written.segment);
        self.spare = written.commit;
        self.log_bytes += written.bytes;
        self.ticket_safe = self.ticket_writing;
        self.start();
        Poll::Ready(Ok(self.ticket_safe))
    }

    /// Starts the next commit if there is something to write and no other is under way.
    fn start(&mut self) {
        if self.pending.is_empty() && self.rotation.is_none() {
            return;
        }
        let Some(mut segment) = self.segment.take() else { return };
        let mut commit = std::mem::replace(&mut self.pending, std::mem::take(&mut self.spare));
        let mut bytes = commit.len() as u64;
        let next = self.rotation.take().map(|commit| {
            self.number += 1;
            self.replaced_bytes = self.log_bytes + bytes;
            (self.directory.path().to_owned(), self.number, commit)
        });
        self.ticket_writing = self.ticket;
        self.commit = Some(self.job(move || {
            let failed = |failure| Failed { what: "write the log in", failure };
            if !commit.is_empty() {
                segment.commit(&mut commit).map_err(failed)?;
                commit.clear();
            }
            if let Some((path, number, first)) = next {
                segment = rotate(&path, number, segment.length(), first).map_err(failed)?;
                bytes += segment.length();
            }
            Ok(Written { segment, commit, bytes })
        }));
    }

    /// Ready when the snapshot wants a part, or nothing any more.
    fn poll_snapshot(&mut self, context: &mut Context) -> Poll<Result<Progress, Failed>> {
        loop {
            let Some(work) = &mut self.snapshot else { return Poll::Pending };
            if let Some(job) = &mut work.job {
                let done = ready!(poll_job(job, context));
                work.job = None;
                match done? {
                    Job::Going(file) => work.file = Some(file),
                    Job::Finished { bytes } => {
                        info!(number = work.number, bytes, "snapshot written");
                        self.snapshot_bytes = bytes;
                        self.log_bytes -= self.replaced_bytes;
                        (self.snapshot, self.pause) = (None, None);
                        return Poll::Pending;
                    }
                    Job::Failed(error) => {
                        self.give_up_snapshot(&error);
                        return Poll::Ready(Ok(Progress::SnapshotFailed));
                    }
                }
            }
            if !work.all_parts {
                return Poll::Ready(Ok(Progress::WantsPart));
            }
            // The commit that makes the new segment safe wakes us again.
            if work.segment_ticket > self.ticket_safe {
                return Poll::Pending;
            }
            let Some(file) = work.file.take() else { return Poll::Pending };
            let number = work.number;
            let job = self.snapshot_job(number, move |_| Ok(Job::Finished { bytes: file.finish()? }));
            if let Some(work) = &mut self.snapshot {
                work.job = Some(job);
            }
        }
    }

    /// The log is whole without it, and goes on.
    fn give_up_snapshot(&mut self, error: &io::Error) {
        error!(
            path = %self.directory.path().display(), %error, log_bytes = self.log_bytes,
            "snapshot not written: the log grows until one is"
        );
        self.snapshot = None;
        let until = clock::now().plus_micros(SNAPSHOT_PAUSE_MICROS);
        self.pause = Some(Pause { until, log_bytes: self.log_bytes + SNAPSHOT_PAUSE_BYTES });
    }

    /// Notes that the next start must not use this memory.
    pub fn distrust(&self) {
        self.directory.distrust();
    }

    /// A step of a snapshot. Whatever keeps it from being written is in the way of this snapshot only.
    fn snapshot_job(
        &self,
        number: u64,
        work: impl FnOnce(&Path) -> io::Result<Job> + Send + 'static,
    ) -> JoinHandle<Result<Job, Failed>> {
        let path = self.directory.path().to_owned();
        self.job(move || match work(&path) {
            Ok(going @ Job::Going(_)) => Ok(going),
            Ok(finished @ Job::Finished { .. }) => settle(&path, number).map(|()| finished),
            Ok(Job::Failed(error)) | Err(error) => {
                // Its space is the first that is needed.
                if let Err(error) = snapshot::abandon(&path, number) {
                    warn!(path = %path.display(), %error, "unfinished snapshot not removed");
                }
                Ok(Job::Failed(error))
            }
        })
    }

    /// Runs in a thread for blocking work; the folder stays locked until it is done.
    fn job<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failed> + Send + 'static,
    ) -> JoinHandle<Result<T, Failed>> {
        let lock = self.directory.hold();
        spawn_blocking(move || {
            let done = work();
            drop(lock);
            done
        })
    }

    fn failed(&self, failed: Failed) -> NodeError {
        self.directory.failed(failed.what, failed.failure)
    }
}

/// Makes the next segment, with the records it begins with.
fn rotate(path: &Path, number: u64, length_before: u64, mut first: Commit) -> Result<Segment, Failure> {
    let mut segment = Segment::create(path, number, length_before).map_err(Failure::Unwritten)?;
    segment.commit(&mut first)?;
    sync_folder(path)?;
    Ok(segment)
}

/// Makes the name of a snapshot durable, then removes what it replaces.
fn settle(path: &Path, number: u64) -> Result<(), Failed> {
    sync_folder(path).map_err(|failure| Failed { what: "name a snapshot in", failure })?;
    // They are in nobody's way, and the next snapshot or start removes them.
    if let Err(error) = Directory::tidy(path, number) {
        warn!(path = %path.display(), %error, "old files not removed");
    }
    Ok(())
}

/// A blocking job that panicked or was dropped failed too.
fn poll_job<T>(job: &mut JoinHandle<Result<T, Failed>>, context: &mut Context) -> Poll<Result<T, Failed>> {
    Poll::Ready(match ready!(Pin::new(job).poll(context)) {
        Ok(done) => done,
        Err(error) => Err(Failed { what: "write in", failure: Failure::Unwritten(io::Error::other(error)) }),
    })
}

fn newest_snapshot(directory: &Directory) -> Result<u64, NodeError> {
    Ok(directory.list()?.snapshots.last().copied().unwrap_or(0))
}

/// The log is cut by a snapshot when it is larger than this, and larger than the last snapshot: then the
/// snapshots of a large state cost no more writing than its log does, and a start reads a bounded log.
const LOG_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How long, and for how much of the log, no snapshot is tried after one that failed: a disk that was full a moment ago
/// is full, and a large snapshot would be written in vain over and over.
const SNAPSHOT_PAUSE_MICROS: u64 = 60_000_000;
const SNAPSHOT_PAUSE_BYTES: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests;
