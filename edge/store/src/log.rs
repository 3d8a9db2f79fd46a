//! [`Log`]: all segments, and the one place where records are appended.

use crate::disk::{Disk, fault};
use crate::entry::Place;
use crate::layout::{LogKind, LogRecord, RECORD_BYTES};
use crate::options::{Options, Sync};
use crate::reserve::Reserve;
use crate::roster::Roster;
use crate::segment::{HEADER_BYTES, Segment};
use kumo_cluster::Fault;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

/// The log. Whoever appends holds the lock of the key's shard, so that the order of the log is the order in which
/// the index changed, and replaying it gives the same index. Compaction appends what it keeps in the same way.
///
/// Locks are taken in this order: shard, `tail`, `spare`, `segments`.
pub struct Log {
    pub disk: Arc<dyn Disk>,
    pub folder: PathBuf,
    pub options: Options,
    pub reserve: Reserve,
    tail: Mutex<Tail>,
    spare: Mutex<Spare>,
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    /// How often that has changed, or which of them are leaving; counted after the change.
    changes: AtomicU64,
    /// One syncs, the others find that theirs is synced too: group commit.
    syncing: Mutex<()>,
    /// A sync failed. The system may have dropped what it could not write and will not say so twice, so nothing
    /// is accepted any more until a restart has looked at what is there.
    broken: OnceLock<Fault>,
    /// Up to this [`mark`](Log::mark) all is on the disk.
    safe: AtomicU64,
    /// The bytes of the record that was refused at last; 0: the last one was taken.
    lacking: AtomicUsize,
    /// Why it was refused, if not for want of room.
    failing: Mutex<Option<Fault>>,
    /// What recovery left without a mark.
    found: Option<(u32, u64)>,
}

/// Where the log grows.
struct Tail {
    active: Arc<Segment>,
    /// Appended and not yet handed to the system; it belongs at the end of the active segment.
    buffer: Vec<u8>,
    /// Where the buffer begins in the file.
    start: u64,
    /// Up to here the active segment has its space on the disk.
    reserved: u64,
    /// Closed segments without a hint file, oldest first.
    closed: Vec<Arc<Segment>>,
    /// Up to here everything is on the disk, and the log does not say so yet.
    unmarked: Option<(u32, u64)>,
    /// The last write failed, and is tried again before anything is accepted.
    stuck: bool,
}

/// Where a record that is appended comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// From a request.
    Request,
    /// From another place in the log.
    Moved,
}

/// The next segment, made ahead so that closing one costs nothing.
struct Spare {
    segment: Option<Arc<Segment>>,
    /// The number of the next one to make.
    next: u32,
}

impl Log {
    /// From what recovery found. The last of `segments` is active.
    pub fn new(
        disk: Arc<dyn Disk>,
        folder: PathBuf,
        options: Options,
        segments: BTreeMap<u32, Arc<Segment>>,
    ) -> Log {
        let active = segments.values().next_back().expect("recovery leaves an active segment").clone();
        let closed = segments.values().filter(|segment| segment.number < active.number);
        let closed = closed.filter(|segment| !segment.hinted.load(Ordering::Relaxed)).cloned().collect();
        let start = active.written();
        let unmarked = (start > HEADER_BYTES).then_some((active.number, start));
        let spare = Spare { segment: None, next: active.number + 1 };
        let reserve = Reserve::new(&folder, options.segment_bytes);
        let tail = Tail { active, buffer: Vec::new(), start, reserved: 0, closed, unmarked, stuck: false };
        Log {
            disk,
            folder,
            options,
            reserve,
            tail: Mutex::new(tail),
            spare: Mutex::new(spare),
            segments: RwLock::new(segments),
            changes: AtomicU64::new(1),
            syncing: Mutex::new(()),
            broken: OnceLock::new(),
            safe: AtomicU64::new(0),
            lacking: AtomicUsize::new(0),
            failing: Mutex::default(),
            found: unmarked,
        }
    }

    /// Appends a record. Refused: nothing has changed.
    pub fn append(&self, record: &LogRecord) -> Result<Place, Fault> {
        self.append_from(Origin::Request, record)
    }

    /// Appends a record of another segment, which is to be removed: for that there is the reserve.
    pub fn append_moved(&self, record: &LogRecord) -> Result<Place, Fault> {
        self.append_from(Origin::Moved, record)
    }

    fn append_from(&self, origin: Origin, record: &LogRecord) -> Result<Place, Fault> {
        self.unbroken()?;
        let mut tail = self.tail();
        let bytes = record.bytes();
        self.accept(&mut tail, bytes, origin)?;
        if let Some((segment, synced)) = tail.unmarked.take() {
            tail.push(&LogRecord::synced(segment, synced));
        }
        let offset = tail.push(record);
        let active = &tail.active;
        match record.kind {
            LogKind::Value | LogKind::Tombstone => active.live.fetch_add(bytes as u64, Ordering::Relaxed),
            LogKind::Removed => active.markers.fetch_add(bytes as u64, Ordering::Relaxed),
            LogKind::Synced | LogKind::Sealed => 0,
        };
        Ok(Place { segment: active.number, offset: offset as u32 })
    }

    /// The record at a place is not current any more.
    pub fn displaced(&self, place: Place, live_bytes: u64) {
        if let Some(segment) = self.segments().get(&place.segment) {
            segment.live.fetch_sub(RECORD_BYTES as u64 + live_bytes, Ordering::Relaxed);
        }
    }

    /// Reads as many bytes as `into` has at a place, and tells of which segment they are. None: it was compacted, the index
    /// knows a newer place.
    pub fn read(&self, place: Place, into: &mut [u8]) -> Result<Option<Arc<Segment>>, Fault> {
        let Some(segment) = self.segments().get(&place.segment).cloned() else { return Ok(None) };
        let offset = u64::from(place.offset);
        if offset + into.len() as u64 > segment.written() {
            let tail = self.tail();
            if tail.active.number == place.segment && offset >= tail.start {
                let from = (offset - tail.start) as usize;
                into.copy_from_slice(&tail.buffer[from..from + into.len()]);
                drop(tail);
                return Ok(Some(segment));
            }
        }
        segment.read_into(offset, into)?;
        Ok(Some(segment))
    }

    /// Hands everything appended to the system: from here on it survives the process.
    pub fn flush(&self) -> Result<(), Fault> {
        self.unbroken()?;
        self.write_out(&mut self.tail())
    }

    /// Forces everything appended to the disk.
    pub fn sync(&self) -> Result<(), Fault> {
        self.unbroken()?;
        let (segments, upto): (Vec<(Arc<Segment>, u64)>, u64) = {
            let mut tail = self.tail();
            self.write_out(&mut tail)?;
            let all = tail.closed.iter().chain([&tail.active]);
            let unsynced = all.filter(|segment| segment.synced() < segment.written());
            (unsynced.map(|segment| (segment.clone(), segment.written())).collect(), tail.mark())
        };
        let Some((last, bytes)) = segments.last() else {
            self.safe.fetch_max(upto, Ordering::AcqRel);
            return Ok(());
        };
        let mark = (last.number, *bytes);
        let _turn = self.syncing.lock().expect("no panic under this lock");
        self.unbroken()?;
        // Oldest first: a mark speaks for everything before it.
        for (segment, written) in segments.iter().filter(|(segment, written)| segment.synced() < *written) {
            if let Err(error) = segment.file.sync() {
                let fault = Fault::Io(format!("sync {}: {error}", segment.path.display()));
                return Err(self.broken.get_or_init(|| fault).clone());
            }
            segment.synced.fetch_max(*written, Ordering::AcqRel);
        }
        self.safe.fetch_max(upto, Ordering::AcqRel);
        let mut tail = self.tail();
        tail.unmarked = tail.unmarked.max(Some(mark));
        Ok(())
    }

    /// Says in the log what was synced last: damage there is then told from an end that a crash has torn. A log to which
    /// nothing was appended stays as it is.
    pub fn write_mark(&self) -> Result<(), Fault> {
        self.unbroken()?;
        let mut tail = self.tail();
        let Some((segment, synced)) = tail.unmarked.filter(|_| tail.unmarked != self.found) else {
            return Ok(());
        };
        self.make_room(&mut tail, 0)?;
        tail.push(&LogRecord::synced(segment, synced));
        tail.unmarked = None;
        self.write_out(&mut tail)
    }

    /// Something was appended since recovery. A log that was only opened stays as it is.
    pub fn has_grown(&self) -> bool {
        let tail = self.tail();
        tail.end() > HEADER_BYTES && self.found != Some((tail.active.number, tail.end()))
    }

    /// The end of the log: grows with every record.
    pub fn mark(&self) -> u64 {
        self.tail().mark()
    }

    /// The mark up to which all was synced.
    pub fn safe_upto(&self) -> u64 {
        self.safe.load(Ordering::Acquire)
    }

    /// Makes the next segment if the active one is half full: the slow part of closing a segment, done ahead. Where a record
    /// was refused it sees whether one would be again, since a server that is told of it may not try for long.
    pub fn prepare(&self) -> Result<(), Fault> {
        self.look_for_room()?;
        // What compaction has is not for a segment that it may not need.
        if self.reserve.is_given() {
            return Ok(());
        }
        let half_full = {
            let segments = self.segments();
            let (_, active) = segments.last_key_value().expect("there is an active segment");
            active.written() > self.options.segment_bytes / 2
        };
        let mut spare = self.spare.lock().expect("no panic under this lock");
        if half_full && spare.segment.is_none() {
            spare.segment = Some(self.create(&mut spare.next)?);
        }
        Ok(())
    }

    /// Of a full disk, whether there is room again.
    pub fn look_for_room(&self) -> Result<(), Fault> {
        match self.lacking.load(Ordering::Relaxed) {
            0 => Ok(()),
            lacking => self.accept(&mut self.tail(), lacking, Origin::Request),
        }
    }

    /// Makes the reserve as soon as the store is large enough.
    pub fn keep_reserve(&self) -> Result<(), Fault> {
        if self.reserve.is_made() {
            return Ok(());
        }
        let active = self.tail().active.number;
        self.reserve.make(&*self.disk, self.file_bytes(), active)
    }

    /// Compaction has nothing left to do. False: it looks again before the reserve is given up.
    pub fn give_up_reserve(&self) -> Result<bool, Fault> {
        let active = self.tail().active.number;
        self.reserve.give_up(&*self.disk, active)
    }

    /// So much garbage is more than what its removal takes of a full disk: the space ahead of what is moved.
    pub fn gain_bytes_min(&self) -> u64 {
        2 * self.options.segment_bytes / GIVEN_PART
    }

    /// The disk is full, and there is a reserve, so that all garbage that is worth it can go.
    pub fn is_short(&self) -> bool {
        self.reserve.is_given() || (self.is_full() && self.reserve.is_made())
    }

    /// Gives back what is reserved behind the ends of closed segments.
    pub fn trim(&self) -> Result<(), Fault> {
        self.unhinted().iter().try_for_each(|segment| segment.trim())
    }

    /// All segments, with the bytes of each that were handed to the system at one moment.
    pub fn cut(&self) -> Result<Vec<(Arc<Segment>, u64)>, Fault> {
        self.unbroken()?;
        let mut tail = self.tail();
        self.write_out(&mut tail)?;
        let segments = self.segments();
        Ok(segments.values().map(|segment| (segment.clone(), segment.written())).collect())
    }

    /// Closed segments without a hint file, oldest first.
    pub fn unhinted(&self) -> Vec<Arc<Segment>> {
        self.tail().closed.clone()
    }

    /// It has its hint file now, or will never have one.
    pub fn settled(&self, number: u32) {
        self.tail().closed.retain(|segment| segment.number != number);
    }

    /// Closed segments, oldest first.
    pub fn closed_segments(&self) -> Vec<Arc<Segment>> {
        let mut all: Vec<_> = self.segments().values().cloned().collect();
        all.pop();
        all
    }

    /// Its file is gone for good.
    pub fn forget(&self, number: u32) {
        self.settled(number);
        self.segments.write().expect("no panic under this lock").remove(&number);
        self.changed();
    }

    /// It is about to be removed, and not in the roster any more.
    pub fn leave(&self, segment: &Segment) {
        segment.leaving.store(true, Ordering::Release);
        self.changed();
    }

    /// As long as this stays the same, so do the segments of the roster. Never 0.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub fn roster(&self) -> Roster {
        let synced = self.safe_upto();
        Roster::of(self.segments().values(), synced)
    }

    pub fn file_bytes(&self) -> u64 {
        let buffered = self.tail().buffer.len() as u64;
        self.segments().values().map(|segment| segment.written()).sum::<u64>() + buffered
    }

    /// How often a thread is to sync, if at all.
    pub fn syncs_at_intervals(&self) -> Option<std::time::Duration> {
        match self.options.sync {
            Sync::Interval(interval) => Some(interval),
            Sync::None | Sync::Always => None,
        }
    }

    /// Why nothing is accepted any more, if so.
    pub fn unbroken(&self) -> Result<(), Fault> {
        self.broken.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// The last record found no room. [`Log::prepare`] sees whether there is room again.
    pub fn is_full(&self) -> bool {
        self.is_refusing() && self.failing().is_none()
    }

    /// Why the last record was refused though the disk is not full. [`Log::prepare`] sees whether it would be again.
    pub fn failing(&self) -> Option<Fault> {
        self.failing.lock().expect("no panic under this lock").clone()
    }

    fn is_refusing(&self) -> bool {
        self.lacking.load(Ordering::Relaxed) > 0
    }

    /// A record of so many bytes was refused; none: one was taken.
    fn refused(&self, bytes: usize, failing: Option<&Fault>) {
        self.lacking.store(bytes, Ordering::Relaxed);
        *self.failing.lock().expect("no panic under this lock") = failing.cloned();
    }

    /// Makes sure that a record of so many bytes can be appended, and remembers if not.
    fn accept(&self, tail: &mut Tail, bytes: usize, origin: Origin) -> Result<(), Fault> {
        let accepted = match origin {
            Origin::Request if self.reserve.is_given() => Err(Fault::Full),
            Origin::Request => self.find_room(tail, bytes),
            Origin::Moved => match self.find_room(tail, bytes) {
                Err(Fault::Full) if self.reserve.give()? => self.find_room(tail, bytes),
                found => found,
            },
        };
        match (&accepted, origin) {
            (Ok(()), Origin::Request) if self.is_refusing() => self.refused(0, None),
            (Err(Fault::Full), Origin::Request) => self.refused(bytes, None),
            (Err(fault @ Fault::Io(_)), Origin::Request) => self.refused(bytes, Some(fault)),
            // What a request waits for is not forgotten for what was moved.
            (Err(Fault::Full), Origin::Moved) => drop(self.lacking.fetch_max(bytes, Ordering::Relaxed)),
            (Ok(()) | Err(Fault::Damaged(_) | Fault::Io(_)), _) => {}
        }
        accepted
    }

    fn find_room(&self, tail: &mut Tail, bytes: usize) -> Result<(), Fault> {
        let crowded = !tail.buffer.is_empty() && tail.buffer.len() + bytes > BUFFER_BYTES_MAX;
        if tail.stuck || crowded {
            self.write_out(tail)?;
        }
        self.make_room(tail, bytes)
    }

    fn write_out(&self, tail: &mut Tail) -> Result<(), Fault> {
        if tail.buffer.is_empty() {
            return Ok(());
        }
        let Tail { active, buffer, start, stuck, .. } = tail;
        if let Err(error) = active.file.write_at(*start, buffer) {
            // The buffer stays, and reads find it there; it is written to the same place again.
            *stuck = true;
            let fault = fault("write", &active.path, &error);
            if fault == Fault::Full {
                self.lacking.fetch_max(1, Ordering::Relaxed);
            }
            return Err(fault);
        }
        *start += buffer.len() as u64;
        *stuck = false;
        active.written.store(*start, Ordering::Release);
        buffer.clear();
        buffer.shrink_to(BUFFER_BYTES_MAX);
        Ok(())
    }

    /// Makes sure that a record of so many bytes fits into the active segment, and has its space on the disk.
    fn make_room(&self, tail: &mut Tail, bytes: usize) -> Result<(), Fault> {
        // A mark may come before it, and the seal must still fit behind it.
        let needed = (bytes + 2 * RECORD_BYTES) as u64;
        let end = tail.end();
        if end + needed > self.options.segment_bytes && end > HEADER_BYTES {
            self.close(tail)?;
        }
        let needed = tail.end() + needed;
        if needed <= tail.reserved {
            return Ok(());
        }
        let ahead = needed.max((tail.reserved + self.ahead_bytes()).min(self.options.segment_bytes));
        let file = &tail.active.file;
        // A nearly full disk may still have room for this one.
        let reserved =
            file.allocate(ahead).map(|()| ahead).or_else(|_| file.allocate(needed).map(|()| needed));
        tail.reserved = reserved.map_err(|error| fault("reserve space for", &tail.active.path, &error))?;
        Ok(())
    }

    /// Seals the active segment and goes on in the next one.
    fn close(&self, tail: &mut Tail) -> Result<(), Fault> {
        let mut spare = self.spare.lock().expect("no panic under this lock");
        let next = match spare.segment.take() {
            Some(next) => next,
            None => self.create(&mut spare.next)?,
        };
        let unsealed = tail.buffer.len();
        tail.push(&LogRecord::sealed());
        if let Err(fault) = self.write_out(tail) {
            tail.buffer.truncate(unsealed);
            spare.segment = Some(next);
            return Err(fault);
        }
        self.segments.write().expect("no panic under this lock").insert(next.number, next.clone());
        self.changed();
        let closed = std::mem::replace(&mut tail.active, next);
        tail.closed.push(closed);
        tail.start = HEADER_BYTES;
        tail.reserved = 0;
        Ok(())
    }

    fn create(&self, next: &mut u32) -> Result<Arc<Segment>, Fault> {
        let room = self.ahead_bytes();
        let segment = Segment::create(&*self.disk, &self.folder, *next, room)?;
        *next += 1;
        Ok(segment)
    }

    /// By how much the space of a segment grows.
    fn ahead_bytes(&self) -> u64 {
        let segment_bytes = self.options.segment_bytes;
        if self.reserve.is_given() { segment_bytes / GIVEN_PART } else { AHEAD_BYTES.min(segment_bytes) }
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().expect("no panic under this lock")
    }

    fn segments(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<u32, Arc<Segment>>> {
        self.segments.read().expect("no panic under this lock")
    }
}

impl Tail {
    fn end(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }

    /// Segments are far below 4 GiB: a place in one is 32 bits.
    fn mark(&self) -> u64 {
        u64::from(self.active.number) << 32 | self.end()
    }

    fn push(&mut self, record: &LogRecord) -> u64 {
        let offset = self.end();
        record.encode(self.active.seed(offset), &mut self.buffer);
        offset
    }
}

/// Appends gather up to this before they are handed to the system without being asked. A turn of a server is
/// below it; a larger buffer would only wait longer under the lock.
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// By how much the space of the active segment grows on the disk: rarely, and a small store stays small.
const AHEAD_BYTES: u64 = 4 << 20;

/// By this part of a segment it grows instead while compaction has the reserve: what is taken ahead of need must be much
/// less than what the removal of a segment gains, so that the reserve can be taken back.
const GIVEN_PART: u64 = 64;
