//! [`Storage`]: a durable node's log and snapshots while it runs.

use super::directory::{self, Directory};
use super::recovery::{self, FIRST_SEGMENT, Memory};
use super::segment::{Commit, Segment};
use super::snapshot::SnapshotFile;
use crate::NodeError;
use bytes::Bytes;
use kumo_paxos::{Position, Record};
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::info;

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
    /// Bytes in the log since the newest snapshot, and in that snapshot.
    log_bytes: u64,
    snapshot_bytes: u64,
}

/// What a call of [`Storage::poll`] led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Everything up to this ticket is on disk.
    Safe(u64),
    /// A snapshot wants its next part: call [`Storage::snapshot_part`].
    WantsPart,
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
    error: io::Error,
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
    Finished { bytes: u64 },
}

impl Storage {
    /// Opens a folder, and reads what an earlier life left there.
    pub fn open(path: &std::path::Path) -> Result<(Storage, Option<Memory>), NodeError> {
        let directory = Directory::open(path)?;
        let found = recovery::recover(&directory)?;
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
            log_bytes: found.log_bytes,
            snapshot_bytes: found.snapshot_bytes,
        };
        Ok((storage, found.memory))
    }

    /// Begins the log of a new life in a folder that holds none.
    pub fn begin(&mut self) -> Result<(), NodeError> {
        let path = self.directory.path().to_owned();
        let begun = || -> io::Result<Segment> {
            let segment = Segment::create(&path, FIRST_SEGMENT)?;
            std::fs::File::open(&path)?.sync_all()?;
            Ok(segment)
        };
        let segment = begun().map_err(|error| self.directory.fault("begin the log in", error))?;
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
        self.snapshot.is_none() && self.log_bytes > LOG_BYTES_MAX.max(self.snapshot_bytes)
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
        let path = self.directory.path().to_owned();
        let job = self.job(move || {
            SnapshotFile::create(&path, number, &position)
                .map(Job::Going)
                .map_err(|error| Failed { what: "begin a snapshot in", error })
        });
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
                work.job = Some(self.job(move || match file.part(&part) {
                    Ok(()) => Ok(Job::Going(file)),
                    Err(error) => Err(Failed { what: "write a snapshot in", error }),
                }));
            }
        }
        self.snapshot = Some(work);
    }

    /// What has come about since the last call. An error means: stop, and do not come back with this memory.
    pub fn poll(&mut self, context: &mut Context) -> Poll<Result<Progress, NodeError>> {
        if let Poll::Ready(committed) = self.poll_commit(context) {
            return Poll::Ready(committed.map(Progress::Safe).map_err(|failed| self.failed(failed)));
        }
        let part = ready!(self.poll_snapshot(context));
        Poll::Ready(part.map(|()| Progress::WantsPart).map_err(|failed| self.failed(failed)))
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
        let next = self.rotation.take().map(|commit| {
            self.number += 1;
            // What went before will be in the snapshot.
            self.log_bytes = 0;
            (self.directory.path().to_owned(), self.number, commit)
        });
        self.ticket_writing = self.ticket;
        self.commit = Some(self.job(move || {
            let failed = |error| Failed { what: "write the log in", error };
            let mut bytes = commit.len() as u64;
            if !commit.is_empty() {
                segment.commit(&mut commit).map_err(failed)?;
                commit.clear();
            }
            if let Some((path, number, first)) = next {
                segment = rotate(path, number, first).map_err(failed)?;
                bytes = segment.length();
            }
            Ok(Written { segment, commit, bytes })
        }));
    }

    /// Ready when the snapshot wants a part.
    fn poll_snapshot(&mut self, context: &mut Context) -> Poll<Result<(), Failed>> {
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
                        self.snapshot = None;
                        return Poll::Pending;
                    }
                }
            }
            if !work.all_parts {
                return Poll::Ready(Ok(()));
            }
            // The commit that makes the new segment safe wakes us again.
            if work.segment_ticket > self.ticket_safe {
                return Poll::Pending;
            }
            let Some(file) = work.file.take() else { return Poll::Pending };
            let (path, number) = (self.directory.path().to_owned(), work.number);
            let job = self.job(move || finish(file, path, number));
            if let Some(work) = &mut self.snapshot {
                work.job = Some(job);
            }
        }
    }

    /// Notes that the next start must not use this memory.
    pub fn distrust(&self) {
        directory::distrust(self.directory.path());
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
        self.distrust();
        self.directory.fault(failed.what, failed.error)
    }
}

/// Makes the next segment, with the records it begins with.
fn rotate(path: PathBuf, number: u64, mut first: Commit) -> io::Result<Segment> {
    let mut segment = Segment::create(&path, number)?;
    segment.commit(&mut first)?;
    std::fs::File::open(&path)?.sync_all()?;
    Ok(segment)
}

/// Gives the snapshot its name, then removes what it replaces.
fn finish(file: SnapshotFile, path: PathBuf, number: u64) -> Result<Job, Failed> {
    let bytes = file.finish().map_err(|error| Failed { what: "finish a snapshot in", error })?;
    Directory::tidy(&path, number).map_err(|error| Failed { what: "remove old files in", error })?;
    Ok(Job::Finished { bytes })
}

/// A blocking job that panicked or was dropped failed too.
fn poll_job<T>(job: &mut JoinHandle<Result<T, Failed>>, context: &mut Context) -> Poll<Result<T, Failed>> {
    Poll::Ready(match ready!(Pin::new(job).poll(context)) {
        Ok(done) => done,
        Err(error) => Err(Failed { what: "write in", error: io::Error::other(error) }),
    })
}

fn newest_snapshot(directory: &Directory) -> Result<u64, NodeError> {
    Ok(directory.list()?.snapshots.last().copied().unwrap_or(0))
}

/// The log is cut by a snapshot when it is larger than this, and larger than the last snapshot: then the
/// snapshots of a large state cost no more writing than its log does, and a start reads a bounded log.
const LOG_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_paxos::{
        CellId, Configuration, Incarnation, Instance, Member, ReplicaId, Role, Round, Schedule,
    };
    use std::future::poll_fn;

    fn life() -> Record {
        Record::Life { incarnation: Incarnation(7), grant_micros: 1, kept: 0 }
    }

    fn promise(sequence: u64) -> Record {
        Record::Promised(Round { sequence, ..Round::default() })
    }

    fn position() -> Position {
        let member = Member {
            id: ReplicaId(0),
            address: ([127, 0, 0, 1], 19700).into(),
            incarnation: Incarnation(1),
            role: Role::Core,
        };
        let configuration = Configuration { version: 1, next_id: ReplicaId(1), members: vec![member] };
        let schedule = Schedule { window: 8, entries: vec![(Instance(1), configuration)] };
        Position { cell: CellId(5), generation: 1, executed: Instance(9), schedule, digest: 3 }
    }

    /// A new life in a fresh folder, its first record on disk.
    async fn begun(name: &str) -> (PathBuf, Storage) {
        let path = crate::durable::scratch(name);
        let (mut storage, memory) = Storage::open(&path).unwrap();
        assert!(memory.is_none());
        storage.begin().unwrap();
        put(&mut storage, life()).await;
        (path, storage)
    }

    async fn put(storage: &mut Storage, record: Record) {
        storage.append(&record);
        let ticket = storage.seal();
        while !storage.is_safe(ticket) {
            poll_fn(|context| storage.poll(context)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn turns_that_come_during_a_commit_share_the_next_one() {
        let (path, mut storage) = begun("share").await;
        let tickets: Vec<u64> = (1..=3)
            .map(|sequence| {
                storage.append(&promise(sequence));
                storage.seal()
            })
            .collect();
        let first = poll_fn(|context| storage.poll(context)).await.unwrap();
        let second = poll_fn(|context| storage.poll(context)).await.unwrap();
        assert_eq!([first, second], [Progress::Safe(tickets[0]), Progress::Safe(tickets[2])]);
        drop(storage);
        let (_, memory) = Storage::open(&path).unwrap();
        assert_eq!(memory.unwrap().records, [life(), promise(1), promise(2), promise(3)]);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[tokio::test]
    async fn a_snapshot_that_was_not_finished_costs_nothing() {
        let (path, mut storage) = begun("unfinished").await;
        put(&mut storage, promise(1)).await;
        storage.begin_snapshot(position(), &[life(), promise(1)]);
        put(&mut storage, promise(2)).await;
        drop(storage);
        let (_, memory) = Storage::open(&path).unwrap();
        let memory = memory.unwrap();
        assert!(memory.snapshot.is_none());
        assert_eq!(memory.records, [life(), promise(1), life(), promise(1), promise(2)]);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[tokio::test]
    async fn a_finished_snapshot_replaces_what_was_before_it() {
        let (path, mut storage) = begun("finished").await;
        put(&mut storage, promise(1)).await;
        storage.begin_snapshot(position(), &[life(), promise(1)]);
        let mut parts = vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")].into_iter();
        while storage.is_writing_snapshot() {
            let progress = poll_fn(|context| match storage.poll(context) {
                Poll::Pending if !storage.is_writing_snapshot() => Poll::Ready(None),
                polled => polled.map(|progress| Some(progress.unwrap())),
            });
            if progress.await == Some(Progress::WantsPart) {
                storage.snapshot_part(parts.next());
            }
        }
        put(&mut storage, promise(2)).await;
        drop(storage);
        let (_, memory) = Storage::open(&path).unwrap();
        let memory = memory.unwrap();
        assert_eq!(memory.snapshot, Some((position(), vec!["a".into(), "b".into()])));
        assert_eq!(memory.records, [life(), promise(1), promise(2)]);
        assert!(!path.join("log-1").exists());
        std::fs::remove_dir_all(path).unwrap();
    }

    #[tokio::test]
    async fn after_a_write_that_failed_the_memory_is_not_used_again() {
        let (path, mut storage) = begun("failed").await;
        storage.segment = Some(Segment::unwritable(&path.join("log-1")));
        storage.append(&promise(1));
        let ticket = storage.seal();
        let error = poll_fn(|context| storage.poll(context)).await.unwrap_err();
        assert!(error.to_string().starts_with("write the log in "), "{error}");
        assert!(!storage.is_safe(ticket));
        drop(storage);
        let (_, memory) = Storage::open(&path).unwrap();
        assert!(memory.is_none());
        std::fs::remove_dir_all(path).unwrap();
    }
}
