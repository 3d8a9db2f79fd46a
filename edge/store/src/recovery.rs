//! What a store's files say: every segment is read at the start, by its hint or record by record.

use crate::backup::copy_bytes;
use crate::disk::{Access, UNFINISHED, fault, rewrite};
use crate::entry::{Body, Entry, Place};
use crate::error::{Lack, OpenError};
use crate::folder::{Folder, HINT, SEGMENT};
use crate::hint::{Hint, Seen};
use crate::index::{Displaced, From};
use crate::layout::{LogKind, LogRecord, RECORD_BYTES, length, plausible};
use crate::options::Options;
use crate::roster::Roster;
use crate::segment::{HEADER_BYTES, Segment, Step, Walk, hint_name, number_of, segment_name};
use crate::shard::Shards;
use kumo_cluster::{Fault, Head, Kind};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What was found at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The store was made.
    pub created: bool,
    pub items: u64,
    pub tombstones: u64,
    pub segments: usize,
    /// Of these, read by their hint files.
    pub hinted: usize,
    /// What a crash tore, and was cut off. Nothing that a mark or a hint says was synced is ever among it.
    pub cuts: Vec<Cut>,
}

/// The torn end of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub file: PathBuf,
    pub offset: u64,
    pub bytes: u64,
}

/// Reads all segments into the shards.
pub struct Recovery<'a> {
    folder: &'a Folder,
    access: Access,
    options: &'a Options,
    shards: &'a Shards,
    segments: BTreeMap<u32, Arc<Segment>>,
    /// Up to this segment and offset everything was once on the disk.
    synced: (u32, u64),
    /// Segments without a seal and without a hint.
    open_ended: Vec<u32>,
    /// The last one, if nothing is in it and it is not listed: made ahead, or its making was cut short.
    spare: Option<u32>,
    suspects: Vec<Suspect>,
    opened: Opened,
}

/// A place where no whole record is and the segment does not end.
struct Suspect {
    number: u32,
    offset: u64,
    bytes: u64,
    /// Records follow, and no hole explains it.
    inside: bool,
}

impl<'a> Recovery<'a> {
    /// All segments, the last of which is active, and what was found.
    pub fn run(
        folder: &'a Folder,
        access: Access,
        options: &'a Options,
        shards: &'a Shards,
    ) -> Result<(BTreeMap<u32, Arc<Segment>>, Opened), OpenError> {
        let mut recovery = Recovery {
            folder,
            access,
            options,
            shards,
            segments: BTreeMap::new(),
            synced: (0, 0),
            open_ended: Vec::new(),
            spare: None,
            suspects: Vec::new(),
            opened: Opened::default(),
        };
        recovery.read_all()?;
        recovery.judge()?;
        if access == Access::Write {
            let staying = recovery.segments.values().filter(|one| Some(one.number) != recovery.spare);
            let (number, offset) = recovery.synced;
            folder.begin(Roster::of(staying, u64::from(number) << 32 | offset))?;
            recovery.drop_spare()?;
            recovery.unlink_open_ended()?;
            recovery.make_ready()?;
            folder.made()?;
        }
        for shard in shards.all() {
            recovery.opened.items += shard.index.items;
            recovery.opened.tombstones += shard.index.tombstones;
        }
        recovery.opened.segments = recovery.segments.len();
        Ok((recovery.segments, recovery.opened))
    }

    fn read_all(&mut self) -> Result<(), OpenError> {
        let names = self.folder.names()?;
        let numbers: Vec<u32> = names.iter().filter_map(|name| number_of(name, SEGMENT)).collect();
        let hints: Vec<u32> = names.iter().filter_map(|name| number_of(name, HINT)).collect();
        let roster = self.folder.roster()?;
        if let Some(number) = roster.as_ref().and_then(|roster| roster.vanished(&numbers)) {
            return Err(self.folder.lacks(&segment_name(number), Lack::Missing));
        }
        self.synced = roster.as_ref().map_or(self.synced, Roster::synced);
        // Nobody knows what became of a copy on its way: before a store is made of it, all of it is read.
        let whole = self.options.verify || (self.folder.copy && self.access == Access::Write);
        for number in &numbers {
            let opened = Segment::open(&*self.folder.disk, &self.folder.path, *number, self.access)?;
            let last = Some(number) == numbers.last();
            let listed = roster.as_ref().and_then(|roster| roster.salt(*number));
            let Some(segment) = opened else {
                if self.folder.copy {
                    return Err(self.folder.damaged_at(&segment_name(*number), 0));
                }
                if !last || hints.contains(number) || listed.is_some() {
                    let path = self.folder.path.join(segment_name(*number));
                    let text = format!("{}: damaged at offset 0: no header", path.display());
                    return Err(Fault::Damaged(text).into());
                }
                continue;
            };
            if listed.is_some_and(|salt| salt != segment.salt) {
                return Err(self.folder.lacks(&segment_name(*number), Lack::Foreign));
            }
            let segment = Arc::new(segment);
            self.segments.insert(*number, segment.clone());
            let hinted = !whole && hints.contains(number) && self.read_hint(&segment)?;
            if !hinted {
                self.read_segment(&segment, last)?;
            }
        }
        let listed = |number: u32| roster.as_ref().is_some_and(|roster| roster.salt(number).is_some());
        // One that is listed would have to be left out first, for which a full disk may have no room.
        let last = numbers.last().filter(|number| !hints.contains(number) && !listed(**number));
        let empty = |number: &&u32| self.segments.get(number).is_none_or(|one| one.written() == HEADER_BYTES);
        self.spare = last.filter(empty).copied();
        Ok(())
    }

    /// False: there is no hint that can be trusted.
    fn read_hint(&mut self, segment: &Arc<Segment>) -> Result<bool, Fault> {
        let (disk, folder, number) = (&*self.folder.disk, &self.folder.path, segment.number);
        let Some(hint) = Hint::read(disk, folder, segment) else { return Ok(false) };
        if hint.segment_bytes() != segment.written() {
            let expected = format!("it should have {} bytes", hint.segment_bytes());
            return Err(segment.damage(segment.written().min(hint.segment_bytes()), &expected));
        }
        // Each thread has its shards, so that the records of a key stay in order.
        std::thread::scope(|scope| {
            for worker in 0..WORKERS {
                let (recovery, hint) = (&*self, &hint);
                scope.spawn(move || {
                    let own = |seen: &Seen| Shards::number(seen.hash) % WORKERS == worker;
                    hint.records().filter(own).for_each(|seen| recovery.apply(segment, &seen));
                });
            }
        });
        // It was written after this segment and all before it were on the disk.
        self.synced = self.synced.max((number, segment.written()));
        segment.synced.store(segment.written(), Ordering::Relaxed);
        segment.hinted.store(true, Ordering::Relaxed);
        self.opened.hinted += 1;
        Ok(true)
    }

    fn read_segment(&mut self, segment: &Arc<Segment>, last: bool) -> Result<(), OpenError> {
        let written = segment.written();
        let mut walk = Walk::new(segment, written);
        let mut sealed = None;
        let bad = loop {
            match walk.step()? {
                Step::Record { offset, record } => {
                    if let Some(offset) = sealed {
                        return Err(segment.damage(offset, "a seal that is not at the end").into());
                    }
                    match record.kind {
                        LogKind::Sealed => sealed = Some(offset),
                        LogKind::Synced => self.mark(&record),
                        LogKind::Value | LogKind::Tombstone | LogKind::Removed => {
                            self.apply(segment, &Seen::new(offset, &record));
                        }
                    }
                }
                Step::End => break None,
                Step::Bad { offset } => break Some(offset),
            }
        };
        let endless = sealed.is_none() && !last;
        if let Some(offset) = bad.or(endless.then_some(written)).filter(|_| self.folder.copy) {
            return Err(self.folder.damaged_at(&segment_name(segment.number), offset));
        }
        if let Some(offset) = bad {
            if sealed.is_some() {
                return Err(segment.damage(offset, "bytes behind the seal").into());
            }
            let suspect = self.suspect(segment, offset, written)?;
            self.suspects.push(suspect);
        } else if sealed.is_none() {
            // Its end may be missing, which only marks and the roster can tell from an end that was never written.
            self.suspects.push(Suspect { number: segment.number, offset: written, bytes: 0, inside: false });
        }
        if sealed.is_none() {
            self.open_ended.push(segment.number);
        }
        Ok(())
    }

    /// Looks at what follows a place where no record is.
    fn suspect(&mut self, segment: &Segment, offset: u64, written: u64) -> Result<Suspect, Fault> {
        let bytes = segment.read(offset, (written - offset) as usize)?;
        let mut first = None;
        let mut at = 1;
        // Where the next record begins, if the length of the one before it can be believed.
        let mut expected = length(&bytes);
        let mut budget = SEARCH_BYTES_MAX;
        while at < bytes.len() {
            let rest = &bytes[at..];
            // Once the budget is spent, a torn end is still told from damage: marks and seals are short, and a record
            // behind a damaged value is where it is expected. What is then cut instead of refused has a damaged
            // length, and only large records that were never synced behind it.
            let worth_a_sum = |length: usize| {
                let free = length <= SEARCH_FREE_BYTES || expected == Some(at);
                if !free && length > budget {
                    return false;
                }
                budget -= if free { 0 } else { length };
                true
            };
            let looked_at = plausible(rest) && length(rest).is_some_and(worth_a_sum);
            let record =
                looked_at.then(|| LogRecord::decode(segment.seed(offset + at as u64), rest)).flatten();
            let Some(record) = record else {
                at += 1;
                continue;
            };
            if record.kind == LogKind::Synced {
                self.mark(&record);
            }
            first.get_or_insert(at);
            at += record.bytes();
            expected = Some(at);
        }
        let inside = first.is_some_and(|first| !has_hole(offset, &bytes[..first]));
        Ok(Suspect { number: segment.number, offset, bytes: bytes.len() as u64, inside })
    }

    fn mark(&mut self, record: &LogRecord) {
        if let Ok(number) = u32::try_from(record.hash.0) {
            self.synced = self.synced.max((number, record.stamp.clock.0));
        }
    }

    /// What a crash can have torn is cut, all else is damage.
    fn judge(&mut self) -> Result<(), Fault> {
        for suspect in &self.suspects {
            let segment = &self.segments[&suspect.number];
            if suspect.inside || self.synced > (suspect.number, suspect.offset) {
                let what = if suspect.bytes == 0 { "its end is missing" } else { "wrong checksum" };
                return Err(segment.damage(suspect.offset, what));
            }
            segment.written.store(suspect.offset, Ordering::Relaxed);
            if suspect.bytes > 0 {
                let (file, offset, bytes) = (segment.path.clone(), suspect.offset, suspect.bytes);
                self.opened.cuts.push(Cut { file, offset, bytes });
            }
        }
        Ok(())
    }

    fn drop_spare(&mut self) -> Result<(), Fault> {
        let Some(number) = self.spare else { return Ok(()) };
        self.segments.remove(&number);
        self.open_ended.retain(|open_ended| *open_ended != number);
        let path = self.folder.path.join(segment_name(number));
        self.folder.disk.remove(&path).map_err(|error| fault("remove", &path, &error))
    }

    /// What is written to from here on has no other name, by which it is part of a copy that somebody made of links, or of
    /// what this is a copy of.
    fn unlink_open_ended(&mut self) -> Result<(), Fault> {
        let (disk, folder) = (&*self.folder.disk, &self.folder.path);
        for number in &self.open_ended {
            let segment = self.segments.get_mut(number).expect("only a spare is removed");
            let failed = |error| fault("copy", &folder.join(segment_name(*number)), &error);
            if segment.file.links().map_err(failed)? < 2 {
                continue;
            }
            let unfinished = folder.join(format!("{}{UNFINISHED}", segment_name(*number)));
            let copied = copy_bytes(disk, segment, segment.written(), &unfinished).inspect_err(|_| {
                // The next start does it, if this does not.
                let _ = disk.remove(&unfinished);
            });
            match copied {
                Ok(()) => {}
                // A full disk must not keep a server from starting. A backup is left as it is.
                Err(Fault::Full) if !self.folder.was_copy => continue,
                Err(fault @ (Fault::Full | Fault::Io(_) | Fault::Damaged(_))) => return Err(fault),
            }
            let file = disk.rename(&unfinished, &segment.path).and_then(|()| {
                disk.sync_folder(folder)?;
                disk.open(&segment.path, Access::Write)
            });
            let file = file.map_err(failed)?;
            Arc::get_mut(segment).expect("nobody else has it before all is read").file = file;
        }
        Ok(())
    }

    /// Makes the files fit to go on: torn ends cut, all but the last sealed, one to append to.
    fn make_ready(&mut self) -> Result<(), Fault> {
        let last = self.segments.keys().next_back().copied();
        // Several stores may be made of one copy: what each of them writes is in segments with salts of their own.
        let active = last.filter(|last| !self.folder.was_copy && self.open_ended.contains(last));
        for number in &self.open_ended {
            let segment = &self.segments[number];
            let written = segment.written();
            let ready = || {
                segment.file.truncate(written)?;
                if Some(*number) != active {
                    // First what was cut must be gone for good: it must not come back behind the seal.
                    segment.file.sync()?;
                    let mut seal = Vec::new();
                    LogRecord::sealed().encode(segment.seed(written), &mut seal);
                    segment.file.write_at(written, &seal)?;
                    segment.written.store(written + seal.len() as u64, Ordering::Relaxed);
                }
                Ok(())
            };
            ready().map_err(|error| fault("cut", &segment.path, &error))?;
        }
        for segment in self.segments.values().filter(|segment| segment.synced() < segment.written()) {
            self.make_durable(segment)?;
        }
        // Before there is a segment of a number that a hint of old has.
        self.drop_orphans()?;
        if active.is_none() {
            let number = self.next_number(last);
            let segment = Segment::create(&*self.folder.disk, &self.folder.path, number, 0)?;
            self.segments.insert(number, segment);
        }
        Ok(())
    }

    /// Numbers never go back: what the roster says was synced of a segment that is gone would be missed in another one of
    /// its number, or in one below. Where nothing but its header was, it is used again.
    fn next_number(&self, last: Option<u32>) -> u32 {
        let (number, offset) = self.synced;
        let unused = number.saturating_add(u32::from(offset > HEADER_BYTES));
        last.unwrap_or(0).saturating_add(1).max(self.spare.unwrap_or(0)).max(unused)
    }

    /// What is served from now on must not vanish with the power. After a sync that failed, the system holds what it
    /// could not write for written: it is read here as if nothing had happened, and no sync tries again. So
    /// everything that is not known to be on the disk is written once more, in place, before it is synced.
    fn make_durable(&self, segment: &Segment) -> Result<(), Fault> {
        let written = segment.written();
        let from = match segment.number.cmp(&self.synced.0) {
            std::cmp::Ordering::Less => written,
            std::cmp::Ordering::Equal => self.synced.1.min(written),
            std::cmp::Ordering::Greater => 0,
        };
        let rewritten = rewrite(&*segment.file, from, written);
        rewritten.map_err(|error| fault("rewrite the end of", &segment.path, &error))?;
        segment.file.sync().map_err(|error| fault("sync", &segment.path, &error))?;
        segment.synced.store(written, Ordering::Relaxed);
        Ok(())
    }

    /// Hints whose segments are gone: compaction was cut short.
    fn drop_orphans(&self) -> Result<(), Fault> {
        for number in self.folder.names()?.iter().filter_map(|name| number_of(name, HINT)) {
            if !self.segments.contains_key(&number) {
                let path = self.folder.path.join(hint_name(number));
                self.folder.disk.remove(&path).map_err(|error| fault("remove", &path, &error))?;
            }
        }
        Ok(())
    }

    /// Does to the index what the record did when it was appended.
    fn apply(&self, segment: &Segment, seen: &Seen) {
        let mut shard = self.shards.lock(seen.hash);
        let kind = match seen.kind {
            LogKind::Value => Kind::Value,
            LogKind::Tombstone => Kind::Tombstone,
            LogKind::Removed => {
                segment.markers.fetch_add(seen.bytes(), Ordering::Relaxed);
                let old = shard.index.remove(seen.hash, seen.key);
                return self.displaced(old);
            }
            LogKind::Synced | LogKind::Sealed => return,
        };
        let head = Head { stamp: seen.stamp, kind, expiry: seen.expiry, data_bytes: seen.data_bytes };
        let body = Body::At(Place { segment: segment.number, offset: seen.offset });
        segment.live.fetch_add(seen.bytes(), Ordering::Relaxed);
        let old = shard.index.set(&Entry { hash: seen.hash, key: seen.key, head, body });
        self.displaced(old);
    }

    fn displaced(&self, old: Option<Displaced>) {
        if let Some(Displaced { from: From::File(place), live_bytes, .. }) = old {
            let bytes = RECORD_BYTES as u64 + live_bytes;
            self.segments[&place.segment].live.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Whether the bytes, which begin at that offset, may have a hole as a power failure leaves it: a page that was not
/// written again is zero behind its old end, while later pages may have been written. A damaged record can look like
/// this, rarely; where it was once synced, a mark tells.
fn has_hole(offset: u64, bytes: &[u8]) -> bool {
    bytes.iter().zip(offset + 1..).any(|(byte, end)| *byte == 0 && end % SECTOR_BYTES == 0)
}

/// No disk writes less.
const SECTOR_BYTES: u64 = 512;

/// Threads that read a hint: what they mostly do is wait for memory.
const WORKERS: usize = 4;

/// How many bytes are summed in search of a large record behind damage: bytes that look like the beginnings of many
/// large records must not take for ever.
#[cfg(not(test))]
const SEARCH_BYTES_MAX: usize = 4 << 30;

/// So small that a test can spend it.
#[cfg(test)]
const SEARCH_BYTES_MAX: usize = 64 << 10;

/// Records up to this are looked for whatever it takes: marks, seals, all without data under usual keys, most values.
const SEARCH_FREE_BYTES: usize = 1 << 10;
