//! Closing segments and rewriting those with much garbage, so that the files stay in proportion to the data.
//!
//! What is current in a segment is appended to the log again, under the lock of its shard and only if the index
//! still points at it: the order of the log stays the order of changes. The segment is removed after all of that
//! is on the disk, and with it all that made the rest garbage. A marker of a removed key is appended again too, as
//! long as there are older segments which may hold a version of the key; in the oldest segment it has done its duty.

use crate::disk::{What, fault};
use crate::engine::{Core, Files};
use crate::entry::{Body, Entry, Place};
use crate::hint::Hint;
use crate::layout::{LogKind, LogRecord};
use crate::segment::{HEADER_BYTES, Segment, Step, Walk, hint_name};
use crate::shard::Shards;
use bytes::Bytes;
use kumo_cluster::{Fault, KeyHash, StoreKey};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::Duration;

impl Core {
    /// Writes the hints of closed segments and rewrites segments until nothing is to be done. `pace` is called
    /// with the bytes done since, and says whether to go on.
    pub fn tend(&self, pace: &mut dyn FnMut(u64) -> bool) -> Result<(), Fault> {
        let Some(files) = self.files() else { return Ok(()) };
        // One of each in turn: segments that are closed as fast as they get their hints must not keep garbage for ever.
        loop {
            // That it cannot be taken back keeps nobody from what there is to do with it, nor it from being given up.
            let taken_back = files.log.reserve.take_back(&*files.log.disk);
            // What it says is remembered, and told to whoever writes.
            let _ = files.log.look_for_room();
            // A hint would take room that is for what is moved.
            let closed = files.unhinted().filter(|_| !files.log.reserve.is_given());
            let finished = closed.as_ref().map_or(Ok(()), |segment| files.finish(segment));
            match (&finished, &closed) {
                (Ok(()), Some(segment)) if !pace(segment.written()) => return Ok(()),
                // There may be garbage whose removal makes room for the hint, and what is wrong with the files of this
                // segment is not wrong with those of others.
                (Ok(()) | Err(Fault::Full | Fault::Io(_)), _) => {}
                // It is not tried again.
                (Err(Fault::Damaged(_)), _) => return finished,
            }
            match files.victim() {
                Some(victim) => {
                    if !self.rewrite(files, &victim, pace).or_else(|fault| files.fail_to_rewrite(fault))? {
                        return Ok(());
                    }
                    files.log.reserve.used();
                }
                None if files.log.reserve.is_given() => {
                    if !files.log.give_up_reserve()? {
                        return taken_back;
                    }
                }
                None if closed.is_none() => return Ok(()),
                None => finished?,
            }
        }
    }

    /// Writes the hints of the segments that are closed by now.
    pub fn write_hints(&self) -> Result<(), Fault> {
        let Some(files) = self.files() else { return Ok(()) };
        files.log.unhinted().iter().try_for_each(|segment| files.finish(segment))
    }

    /// Something failed behind the back of all requests.
    pub fn troubled(&self, fault: Fault) {
        if let Some(files) = self.files() {
            *files.trouble.lock().expect("no panic under this lock") = Some(fault);
        }
    }

    /// All went well, but for what cannot get well by itself.
    pub fn untroubled(&self) {
        let Some(files) = self.files() else { return };
        let damaged = files.log.closed_segments().iter().any(|one| one.damaged.load(Ordering::Relaxed));
        if !damaged && files.log.unbroken().is_ok() {
            *files.trouble.lock().expect("no panic under this lock") = None;
        }
    }

    /// Moves what is needed of a segment to the end of the log and removes it. False: stopped on the way.
    fn rewrite(
        &self,
        files: &Files,
        victim: &Segment,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool, Fault> {
        let oldest = files.log.closed_segments().first().is_some_and(|oldest| oldest.number == victim.number);
        let marked = !oldest && victim.markers.load(Ordering::Relaxed) > 0;
        if !self.move_needed(files, victim, marked, pace)? {
            return Ok(false);
        }
        self.check_unneeded(victim)?;
        // Also of what was garbage already: what made it garbage may be nowhere but in memory.
        files.log.sync()?;
        if files.log.reserve.is_given() {
            files.log.trim()?;
        }
        let Some(turn) = files.turn_to_remove(pace) else { return Ok(false) };
        files.drop_segment(victim, turn)?;
        Ok(pace(0))
    }

    /// Moves the versions that the index points at, and markers, if it has some that are needed. What is left is needed by
    /// nobody, so that it is not even read if that can be avoided: whether it is damaged does not matter. What is needed
    /// is for the index to say, not for the counts of a segment, which only tell what is worth rewriting. Of one that is
    /// damaged all that can be read is moved: once the rest is written over, nobody needs it. False: stopped.
    fn move_needed(
        &self,
        files: &Files,
        victim: &Segment,
        marked: bool,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool, Fault> {
        // Markers are not in the index. Of the versions in a segment nearly all may be garbage, each of which would have
        // to be looked for in the index.
        let few_keys = self.shards.keys() < victim.written() / BYTES_PER_KEY;
        let damaged = victim.damaged.load(Ordering::Relaxed);
        let mut listed =
            (!marked && (few_keys || damaged)).then(|| self.offsets_in(victim.number).into_iter());
        let mut walk = Walk::new(victim, victim.written());
        let mut unpaced = 0;
        let mut unreadable = None;
        loop {
            if let Some(listed) = &mut listed {
                let Some(offset) = listed.next() else { break };
                walk.go_to(u64::from(offset));
            }
            let read = match walk.step() {
                Ok(Step::Record { offset, record }) => Ok((offset, record)),
                Ok(Step::End) => break,
                Ok(Step::Bad { offset }) => Err(victim.damage(offset, "wrong checksum")),
                Err(fault) => Err(fault),
            };
            // What cannot be read stays as it is; the garbage of the others must not wait for it.
            let (offset, record) = match read {
                Ok(read) => read,
                Err(fault) => {
                    victim.damaged.store(true, Ordering::Relaxed);
                    if listed.is_none() {
                        return Err(fault);
                    }
                    unreadable.get_or_insert(fault);
                    continue;
                }
            };
            match record.kind {
                LogKind::Value | LogKind::Tombstone => {
                    let place = Place { segment: victim.number, offset: offset as u32 };
                    self.move_version(files, place, &record)?;
                }
                LogKind::Removed if marked => self.move_marker(files, &record)?,
                LogKind::Removed | LogKind::Synced | LogKind::Sealed => {}
            }
            unpaced += record.bytes() as u64;
            if unpaced >= PACE_BYTES {
                if !pace(std::mem::take(&mut unpaced)) {
                    return Ok(false);
                }
                // Not to fill the buffer that requests wait for.
                files.log.flush()?;
            }
        }
        // What is left cannot be moved, and is not tried again.
        victim.salvaged.store(listed.is_some(), Ordering::Relaxed);
        unreadable.map_or(Ok(true), Err)
    }

    /// The index has the last word: a segment is not removed as long as it points there, whatever was found in it. A
    /// hint may have said that a record is where another one is.
    fn check_unneeded(&self, victim: &Segment) -> Result<(), Fault> {
        if victim.live.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let Some(offset) = self.offsets_in(victim.number).first().copied() else { return Ok(()) };
        victim.damaged.store(true, Ordering::Relaxed);
        Err(victim.damage(u64::from(offset), "another key's record"))
    }

    /// Where the records are in a segment that the index points at, in order. Of a closed one there are only fewer
    /// later on.
    fn offsets_in(&self, segment: u32) -> Vec<u32> {
        let mut offsets = Vec::new();
        for number in self.shards.numbers() {
            let mut after = None;
            loop {
                let shard = self.shards.at(number);
                let range = shard.index.range(Shards::lowest(number), KeyHash(u64::MAX), after.as_ref());
                let mut last = None;
                for (count, entry) in (1..=KEYS_AT_ONCE).zip(range) {
                    if let Body::At(place) = entry.body
                        && place.segment == segment
                    {
                        offsets.push(place.offset);
                    }
                    if count == KEYS_AT_ONCE {
                        last = Some(StoreKey { hash: entry.hash, key: Bytes::copy_from_slice(entry.key) });
                    }
                }
                drop(shard);
                if last.is_none() {
                    break;
                }
                after = last;
            }
        }
        offsets.sort_unstable();
        offsets
    }

    fn move_version(&self, files: &Files, place: Place, record: &LogRecord) -> Result<(), Fault> {
        let mut shard = self.shards.lock(record.hash);
        let Some(entry) = shard.index.find(record.hash, record.key) else { return Ok(()) };
        if entry.body != Body::At(place) {
            return Ok(());
        }
        let head = entry.head;
        let body = Body::At(files.log.append_moved(record)?);
        let old = shard.index.set(&Entry { hash: record.hash, key: record.key, head, body });
        files.displaced(old);
        Ok(())
    }

    fn move_marker(&self, files: &Files, record: &LogRecord) -> Result<(), Fault> {
        let shard = self.shards.lock(record.hash);
        // The key is back: its version comes later in the log than anything the marker hides.
        if shard.index.find(record.hash, record.key).is_none() {
            files.log.append_moved(record)?;
        }
        Ok(())
    }
}

impl Files {
    /// It is tried again, and may fail for ever: others on this disk have taken of the reserve, or a file cannot be removed.
    /// What is left of the reserve is then not kept from requests.
    fn fail_to_rewrite(&self, fault: Fault) -> Result<bool, Fault> {
        match fault {
            Fault::Full | Fault::Io(_) if self.log.reserve.is_given() => drop(self.log.give_up_reserve()?),
            // What is damaged is not tried again.
            Fault::Full | Fault::Io(_) | Fault::Damaged(_) => {}
        }
        Err(fault)
    }

    /// Makes a closed segment durable, gives back the space it does not need, and writes its hint.
    fn finish(&self, segment: &Segment) -> Result<(), Fault> {
        self.log.sync()?;
        // What was reserved behind its end is given back. Not when it is closed, since then a put waits; and before it
        // has a hint, since after a crash only what has none comes here again.
        segment.trim()?;
        match Hint::write(&*self.folder.disk, &self.folder.path, segment) {
            Ok(()) => segment.hinted.store(true, Ordering::Relaxed),
            Err(fault @ Fault::Damaged(_)) => {
                segment.damaged.store(true, Ordering::Relaxed);
                self.log.settled(segment.number);
                return Err(fault);
            }
            Err(fault @ (Fault::Full | Fault::Io(_))) => return Err(fault),
        }
        self.log.settled(segment.number);
        Ok(())
    }

    /// The oldest closed segment that lacks its hint and is here to stay. One that is rewritten anyway is not read and
    /// summed up before: without a hint a start takes longer, nothing else.
    fn unhinted(&self) -> Option<Arc<Segment>> {
        self.log.unhinted().into_iter().find(|segment| !self.is_worth_rewriting(segment))
    }

    fn is_worth_rewriting(&self, segment: &Segment) -> bool {
        let percent = u64::from(self.log.options.garbage_percent.clamp(1, 99));
        if self.log.is_short() {
            return self.is_worth_the_reserve(segment, percent.min(SHORT_PERCENT));
        }
        !segment.damaged.load(Ordering::Relaxed) && segment.garbage_percent() >= percent
    }

    /// There is so much garbage in it that more is gained than taken, and what is moved fits into the reserve: a part of it
    /// that was moved for nothing would be missed by others. A store that was written with larger segments has some that do
    /// not.
    fn is_worth_the_reserve(&self, segment: &Segment, percent: u64) -> bool {
        let moved = segment.written().saturating_sub(segment.garbage());
        let fits = moved <= self.log.reserve.bytes();
        // What has nothing to be moved takes nothing.
        let gains = moved <= HEADER_BYTES || segment.garbage() >= self.log.gain_bytes_min();
        fits && gains && !segment.damaged.load(Ordering::Relaxed) && segment.garbage_percent() >= percent
    }

    /// Looks for the reserve of an earlier process. That it fails is no reason not to start.
    pub fn find_reserve(&self) {
        let closed = self.log.closed_segments();
        let compactable = closed.iter().any(|segment| self.is_worth_the_reserve(segment, SHORT_PERCENT));
        if let Err(fault) = self.log.reserve.find(&*self.log.disk, compactable) {
            *self.trouble.lock().expect("no panic under this lock") = Some(fault);
        }
    }

    /// One that is damaged, once nobody needs it: nothing is read of it. Else the segment with most garbage, if it is worth
    /// it. If the markers of removed keys have become many, the oldest one: they are only dropped from there, so that of one
    /// that is damaged what can be read is moved, once.
    fn victim(&self) -> Option<Arc<Segment>> {
        let closed = self.log.closed_segments();
        if let Some((_, relic)) = closed.iter().enumerate().find(|(older, segment)| segment.is_relic(*older))
        {
            return Some(relic.clone());
        }
        let worthwhile = closed.iter().filter(|segment| self.is_worth_rewriting(segment));
        if let Some(worst) = worthwhile.max_by_key(|segment| segment.garbage_percent()) {
            return Some(worst.clone());
        }
        let markers: u64 = closed.iter().map(|segment| segment.markers.load(Ordering::Relaxed)).sum();
        let written: u64 = closed.iter().map(|segment| segment.written()).sum();
        let oldest = closed.first().filter(|oldest| oldest.is_movable())?;
        let many = markers * 100 > written * MARKERS_PERCENT_MAX;
        let worthwhile = || !self.log.is_short() || self.are_markers_worth_the_reserve(&closed);
        // A part of it that was moved for nothing would be missed by others.
        let fits = || self.log.reserve.is_room_to_move(&*self.log.disk, oldest.live.load(Ordering::Relaxed));
        (many && worthwhile() && fits()).then(|| oldest.clone())
    }

    /// On a full disk nothing is gained on the way to the markers of removed keys if older segments have none, and requests
    /// are refused until the reserve can be taken back: a store must not be rewritten as a whole for that. So they must be
    /// among the oldest segments: what goes with these is as much as the reserve, or all there is, and a part of them that
    /// is worth the rewriting of a single one.
    fn are_markers_worth_the_reserve(&self, closed: &[Arc<Segment>]) -> bool {
        let reserve_bytes = self.log.reserve.bytes();
        let (mut moved, mut freed) = (0, 0);
        for segment in closed {
            let live = segment.live.load(Ordering::Relaxed);
            // It stays the oldest one, and keeps the markers behind it.
            let stays = segment.damaged.load(Ordering::Relaxed) || live > reserve_bytes;
            if stays || freed >= reserve_bytes {
                break;
            }
            moved += live;
            freed += segment.written().saturating_sub(live);
        }
        freed >= self.log.gain_bytes_min() && freed * 100 >= (moved + freed) * SHORT_PERCENT
    }

    /// Says on the disk which segments there are, if that has changed. Asked for often: as long as it has not, they are not
    /// even gone through.
    pub fn list(&self) -> Result<(), Fault> {
        // Before what they are: a change in between is for the next call.
        let changes = self.log.changes();
        if self.listed.load(Ordering::Acquire) == changes {
            return Ok(());
        }
        self.folder.list(|| self.log.roster())?;
        self.listed.fetch_max(changes, Ordering::AcqRel);
        Ok(())
    }

    /// Says on the disk how far it has the log.
    pub fn list_end(&self) -> Result<(), Fault> {
        if self.log.has_grown() { self.folder.list_end(self.log.roster()) } else { Ok(()) }
    }

    /// Says on the disk that a segment is not needed, before its file goes: a start would miss it.
    fn leave_out(&self, segment: &Segment) -> Result<(), Fault> {
        self.log.leave(segment);
        match self.list() {
            Err(Fault::Full) if self.log.reserve.give()? => self.list(),
            listed => listed,
        }
    }

    /// A backup keeps it for as long as it takes. None: stopped.
    fn turn_to_remove(&self, pace: &mut dyn FnMut(u64) -> bool) -> Option<MutexGuard<'_, ()>> {
        loop {
            match self.removing.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::WouldBlock) if pace(0) => std::thread::sleep(TURN_PERIOD),
                Err(TryLockError::WouldBlock) => return None,
                Err(TryLockError::Poisoned(_)) => panic!("no panic under this lock"),
            }
        }
    }

    fn drop_segment(&self, segment: &Segment, _turn: MutexGuard<'_, ()>) -> Result<(), Fault> {
        let (disk, folder) = (&self.folder.disk, &self.folder.path);
        let remove = |path: &Path| {
            // It may be gone since a try that failed later.
            if disk.what(path)? == What::File { disk.remove(path) } else { Ok(()) }
        };
        let failed = |error| fault("remove", &segment.path, &error);
        let remove_hint = || remove(&folder.join(hint_name(segment.number))).map_err(failed);
        match self.leave_out(segment) {
            // Its space may be what the roster lacks.
            Err(Fault::Full) if !segment.damaged.load(Ordering::Relaxed) => {
                remove_hint()?;
                self.leave_out(segment)?;
            }
            left => left?,
        }
        remove(&segment.path).and_then(|()| disk.sync_folder(folder)).map_err(failed)?;
        // Not before: a start that found the segment without it would read it, and refuse the whole store for what is
        // damaged there and needed by nobody.
        remove_hint()?;
        // Last: as long as its removal is not durable, markers that hide its records are kept.
        self.log.forget(segment.number);
        Ok(())
    }
}

/// Between two looks whether a backup is done.
const TURN_PERIOD: Duration = Duration::from_millis(20);

/// How much is rewritten between two looks at the clock.
const PACE_BYTES: u64 = 1 << 20;

/// On a full disk a segment is rewritten if this part of it is garbage: what is freed costs nine times as much of moving,
/// at most, and is more than what marks, seals and space that is taken ahead make of it.
pub const SHORT_PERCENT: u64 = 10;

/// Keys of the index that are looked at under one lock, which requests wait for.
const KEYS_AT_ONCE: usize = 256;

/// The index is gone through in search of a segment's records if there are so many bytes of it for each key. Looking at
/// the next key takes a small part of what reading a record and looking for its key takes, and few records are larger.
const BYTES_PER_KEY: u64 = 256;

/// Above this part of all closed segments, markers are worth the rewriting of old segments.
const MARKERS_PERCENT_MAX: u64 = 25;
