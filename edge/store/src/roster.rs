//! [`Roster`]: which segments a store has, so that a start misses one whose file vanished or was cut short.

use crate::disk::{What, fault};
use crate::error::{Lack, OpenError};
use crate::folder::{Folder, Format};
use crate::notes::{HEAD_BYTES, NOTE_BYTES_MAX, ROOM_BYTES};
use crate::segment::Segment;
use kumo_cluster::Fault;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The segments of a store, in the file [`ROSTER`], which is written like a note:
///
/// | offset | size | field                                                           |
/// |--------|------|-----------------------------------------------------------------|
/// |      0 |    8 | the log was on the disk up to there: segment 4, offset in it 4  |
/// |      8 |  8 n | of each segment, in order: its number 4, its salt 4             |
///
/// All numbers are big-endian.
///
/// What it names is there, at every moment: a segment is named after its file is on the disk, and its name is gone from
/// the disk before its file goes. There may be more than it names: a segment that was made a moment ago, or one whose
/// removal was cut short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// A mark of the log, as of the last change of the segments, or of the end: what is below never was an end that a crash
    /// tore.
    synced: u64,
    salts: BTreeMap<u32, u32>,
}

impl Roster {
    pub fn of<'a>(segments: impl Iterator<Item = &'a Arc<Segment>>, synced: u64) -> Roster {
        let staying = segments.filter(|segment| !segment.leaving.load(Ordering::Acquire));
        let salts = staying.map(|segment| (segment.number, segment.salt)).take(SEGMENTS_MAX).collect();
        Roster { synced, salts }
    }

    /// Up to this segment, and this offset in it, the log was on the disk.
    pub fn synced(&self) -> (u32, u64) {
        ((self.synced >> 32) as u32, self.synced & u64::from(u32::MAX))
    }

    /// The first that is not among these, which are in order.
    pub fn vanished(&self, numbers: &[u32]) -> Option<u32> {
        self.salts.keys().find(|number| numbers.binary_search(number).is_err()).copied()
    }

    pub fn salt(&self, number: u32) -> Option<u32> {
        self.salts.get(&number).copied()
    }

    /// Names one that the other does not.
    fn exceeds(&self, other: &Roster) -> bool {
        self.salts.iter().any(|(number, salt)| other.salts.get(number) != Some(salt))
    }

    fn bytes(&self) -> Vec<u8> {
        let entries = self.salts.iter().flat_map(|(number, salt)| [number.to_be_bytes(), salt.to_be_bytes()]);
        self.synced.to_be_bytes().into_iter().chain(entries.flatten()).collect()
    }

    /// None: not what was written.
    fn parse(bytes: &[u8]) -> Option<Roster> {
        let ([synced, entries @ ..], []) = bytes.as_chunks::<{ ENTRY_BYTES }>() else { return None };
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let salts = entries.iter().map(|entry| (number(&entry[..4]), number(&entry[4..]))).collect();
        Some(Roster { synced: u64::from_be_bytes(*synced), salts })
    }
}

impl Folder {
    /// Which segments must be there. None: a store of an older program, or a copy, which has its manifest.
    pub fn roster(&self) -> Result<Option<Roster>, OpenError> {
        if self.found != Some(Format::Store) {
            return Ok(None);
        }
        let Some(bytes) = self.kept(ROSTER)? else { return Err(self.lacks(ROSTER, Lack::Missing)) };
        let Some(roster) = Roster::parse(&bytes) else { return Err(self.lacks(ROSTER, Lack::Damaged)) };
        *self.listed.lock().expect("no panic under this lock") = Some(roster.clone());
        Ok(Some(roster))
    }

    /// Names the segments that there are from now on, and none that will be removed. Durable when this returns. What they
    /// are is asked when nobody else is at it: nothing may be named again that another thread is about to remove.
    pub fn list(&self, segments: impl FnOnce() -> Roster) -> Result<(), Fault> {
        if !self.lists.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut listed = self.listed.lock().expect("no panic under this lock");
        let roster = segments();
        if listed.as_ref().is_some_and(|listed| listed.salts == roster.salts) {
            return Ok(());
        }
        self.write_list(&mut listed, roster)
    }

    /// Says how far the log is on the disk, which stays so: nothing is appended before the next start.
    pub fn list_end(&self, end: Roster) -> Result<(), Fault> {
        let mut listed = self.listed.lock().expect("no panic under this lock");
        if !self.lists.load(Ordering::Acquire) || listed.as_ref() == Some(&end) {
            return Ok(());
        }
        self.write_list(&mut listed, end)
    }

    fn write_list(&self, listed: &mut Option<Roster>, mut roster: Roster) -> Result<(), Fault> {
        roster.synced = listed.as_ref().map_or(roster.synced, |listed| listed.synced.max(roster.synced));
        // Until it is written the disk may have either.
        *listed = None;
        let bytes = roster.bytes();
        let room = (HEAD_BYTES + bytes.len() as u64).next_multiple_of(ROOM_BYTES);
        self.room_bytes.fetch_max(room, Ordering::Relaxed);
        let path = self.path.join(ROSTER);
        match self.disk.what(&path).map_err(|error| fault("write", &path, &error))? {
            What::Missing => self.keep_first(ROSTER, &bytes)?,
            What::File | What::Folder => self.keep(ROSTER, &bytes)?,
        }
        *listed = Some(roster);
        Ok(())
    }

    /// Of a store that is opened, before any of its segments is removed. The format says that there is a roster, and comes
    /// after it.
    pub fn begin_list(&self, roster: Roster) -> Result<(), Fault> {
        let before = self.listed.lock().expect("no panic under this lock").clone();
        let leaves_out = before.as_ref().is_some_and(|before| before.exceeds(&roster));
        match self.list(|| roster) {
            Ok(()) => {}
            // A full disk must not keep a server from starting. What is there is named later on, by a store that has a
            // roster; another one gets it at a start that finds room.
            Err(Fault::Full) if !leaves_out && !self.was_copy => {
                self.lists.fetch_and(before.is_some(), Ordering::AcqRel);
                return Ok(());
            }
            Err(fault) => return Err(fault),
        }
        if !self.lists.load(Ordering::Acquire) || (before.is_some() && !self.was_copy) {
            return Ok(());
        }
        match Format::Store.write(&*self.disk, &self.path) {
            // The roster is kept all the same, since the disk may have the new format.
            Err(Fault::Full) if !self.was_copy => Ok(()),
            written => written,
        }
    }

    pub fn lacks(&self, file: &str, lack: Lack) -> OpenError {
        OpenError::Lacking { path: self.path.clone(), file: file.into(), lack }
    }
}

/// The name of the file.
pub const ROSTER: &str = "SEGMENTS";

const ENTRY_BYTES: usize = 8;

/// As many as fit into a note: 4 TiB of segments of the usual size. Of what is beyond, the newest, nothing can be said.
const SEGMENTS_MAX: usize = NOTE_BYTES_MAX / ENTRY_BYTES - 1;
