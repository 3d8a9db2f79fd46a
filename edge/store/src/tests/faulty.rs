//! [`FaultyDisk`]: a file system in memory that crashes, fails or fills up at a chosen operation.

use super::held::{Content, SECTOR_BYTES};
use crate::disk::{Access, Disk, DiskFile, Lock, What};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Remembers of every file what it holds and what of it is durable, and the same of names.
#[derive(Clone, Default)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    folders: BTreeSet<PathBuf>,
    durable_folders: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    /// Changes so far, and since when files are of no use.
    changes: u64,
    life: u64,
    plan: Plan,
    down: bool,
    capacity: Option<u64>,
    /// What does not fit is allocated as far as it does.
    allocates_in_part: bool,
    /// There was a moment without a byte left since the capacity was set.
    was_full: bool,
    written_bytes: u64,
    meddling: Option<(PathBuf, Meddling)>,
    /// A file, and where it cannot be read.
    unreadable: Option<(PathBuf, u64)>,
    /// A file that is neither removed nor made larger or smaller.
    stubborn: Option<PathBuf>,
    /// Changes of files' names that are not synced, in order.
    renames: Vec<Rename>,
}

/// A change of names in one folder, which the disk may have or not, whatever it has of the others.
enum Rename {
    Make(PathBuf, usize),
    Remove(PathBuf),
    Move(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
}

/// What others do in the middle of something.
type Meddling = Box<dyn FnOnce() + Send>;

/// What goes wrong.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Plan {
    #[default]
    Nothing,
    /// At this change everything ends; a write is done in part.
    CrashAt(u64),
    /// This change fails, once.
    FailAt(u64),
    /// This change fails, and everything ends before whoever is told of it can say so.
    FailAndEndAt(u64),
    /// This change finds no room, once.
    FullAt(u64),
}

/// What is left after a crash.
#[derive(Clone, Copy, Debug)]
pub enum Crash {
    /// The process was killed: the system has everything, and the disk what it had.
    Killed,
    /// The power failed: only what was synced.
    PowerFailed,
    /// The power failed, and any of the sectors that were not synced had been written before.
    PowerFailedAnyhow(u64),
}

impl FaultyDisk {
    pub fn plan(&self, plan: Plan) {
        self.state().plan = plan;
    }

    /// What was planned has not come about yet.
    pub fn plan_is_due(&self) -> bool {
        let state = self.state();
        match state.plan {
            Plan::Nothing => false,
            Plan::CrashAt(change)
            | Plan::FailAt(change)
            | Plan::FailAndEndAt(change)
            | Plan::FullAt(change) => change > state.changes,
        }
    }

    /// Bytes of all files together.
    pub fn limit(&self, capacity: Option<u64>) {
        let mut state = self.state();
        (state.capacity, state.was_full) = (capacity, false);
    }

    /// What cannot be allocated is allocated in part from here on, as most file systems do.
    pub fn allocate_in_part(&self) {
        self.state().allocates_in_part = true;
    }

    /// Something was allocated that left nothing to others.
    pub fn was_full(&self) -> bool {
        self.state().was_full
    }

    pub fn used(&self) -> u64 {
        self.state().used()
    }

    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Bytes of all writes so far.
    pub fn written_bytes(&self) -> u64 {
        self.state().written_bytes
    }

    /// Done once, just before a file of that name is created.
    pub fn meddle_before(&self, path: &Path, meddling: impl FnOnce() + Send + 'static) {
        self.state().meddling = Some((path.into(), Box::new(meddling)));
    }

    /// Reads of that byte fail.
    pub fn make_unreadable(&self, path: &Path, offset: u64) {
        self.state().unreadable = Some((path.into(), offset));
    }

    /// The removal of that file fails from here on, and whatever gives it space or takes it from it.
    pub fn make_stubborn(&self, path: Option<&Path>) {
        self.state().stubborn = path.map(Path::to_owned);
    }

    pub fn is_down(&self) -> bool {
        self.state().down
    }

    /// Ends all that is open and starts anew with what is left.
    pub fn crash(&self, crash: Crash) {
        let mut state = self.state();
        state.life += 1;
        state.down = false;
        state.plan = Plan::Nothing;
        state.locks.clear();
        match crash {
            Crash::Killed => {}
            Crash::PowerFailed => {
                state.names = state.durable_names.clone();
                state.folders = state.durable_folders.clone();
                for file in &mut state.files {
                    file.bytes = file.durable.clone();
                    file.dropped.clear();
                    file.allocated = 0;
                }
            }
            Crash::PowerFailedAnyhow(seed) => {
                let mut random = Random(seed);
                match random.below(3) {
                    0 => {
                        state.names = state.durable_names.clone();
                        state.folders = state.durable_folders.clone();
                    }
                    1 => {
                        let mut names = state.durable_names.clone();
                        let kept = state.renames.iter().filter(|_| random.below(2) == 0);
                        kept.for_each(|rename| rename.apply(&mut names));
                        state.names = names;
                    }
                    _all => {}
                }
                for file in &mut state.files {
                    file.mix(&mut random);
                }
            }
        }
        if matches!(crash, Crash::Killed) {
            return;
        }
        state.renames.clear();
        state.durable_names = state.names.clone();
        state.durable_folders = state.folders.clone();
        for file in &mut state.files {
            file.durable = file.bytes.clone();
        }
    }

    pub fn names(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    pub fn content(&self, path: &Path) -> Vec<u8> {
        let state = self.state();
        state.files[state.names[path]].bytes.clone()
    }

    pub fn set_content(&self, path: &Path, bytes: Vec<u8>) {
        let mut state = self.state();
        let number = state.names.get(path).copied().unwrap_or_else(|| {
            state.files.push(Content::default());
            state.files.len() - 1
        });
        state.names.insert(path.into(), number);
        state.durable_names.insert(path.into(), number);
        state.files[number] = Content { durable: bytes.clone(), bytes, ..Content::default() };
    }

    /// What a file takes on the disk, with what is reserved behind its end.
    pub fn space(&self, path: &Path) -> u64 {
        let state = self.state();
        state.files[state.names[path]].space()
    }

    /// Space that was reserved is not there after all.
    pub fn forget_reservation(&self, path: &Path) {
        let mut state = self.state();
        let number = state.names[path];
        state.files[number].allocated = 0;
    }

    /// A second disk with the same content.
    pub fn copy(&self) -> FaultyDisk {
        let state = self.state();
        let copy = State {
            files: state.files.clone(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            folders: state.folders.clone(),
            durable_folders: state.durable_folders.clone(),
            ..State::default()
        };
        FaultyDisk { state: Arc::new(Mutex::new(copy)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn up(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.down { Err(io::Error::other("crashed")) } else { Ok(state) }
    }

    /// Before a change of names.
    fn change(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.up()?;
        state.change()?;
        Ok(state)
    }
}

impl State {
    fn change(&mut self) -> io::Result<()> {
        self.changes += 1;
        match self.plan {
            Plan::CrashAt(change) if change == self.changes => {
                self.down = true;
                Err(io::Error::other("crashed"))
            }
            Plan::FailAt(change) | Plan::FailAndEndAt(change) if change == self.changes => {
                self.down = self.plan == Plan::FailAndEndAt(change);
                Err(io::Error::other("failed as planned"))
            }
            Plan::FullAt(change) if change == self.changes => Err(io::ErrorKind::StorageFull.into()),
            Plan::Nothing | Plan::CrashAt(_) | Plan::FailAt(_) | Plan::FailAndEndAt(_) | Plan::FullAt(_) => {
                Ok(())
            }
        }
    }

    /// Fails for a file that is stubborn.
    fn yielding(&self, number: Option<&usize>) -> io::Result<()> {
        let stubborn = self.stubborn.as_ref().and_then(|path| self.names.get(path));
        if stubborn.is_some() && stubborn == number {
            Err(io::Error::other("stubborn as planned"))
        } else {
            Ok(())
        }
    }

    fn used(&self) -> u64 {
        let linked: BTreeSet<usize> = self.names.values().copied().collect();
        linked.iter().map(|number| self.files[*number].space()).sum()
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&mut self, rename: Rename) {
        rename.apply(&mut self.names);
        self.renames.push(rename);
    }

    fn make(&mut self, path: &Path) -> usize {
        self.files.push(Content::default());
        let number = self.files.len() - 1;
        self.rename(Rename::Make(path.into(), number));
        number
    }
}

impl Rename {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Rename::Make(path, number) => {
                names.insert(path.clone(), *number);
            }
            Rename::Remove(path) => {
                names.remove(path);
            }
            Rename::Move(from, to) => {
                let moved = names.remove(from);
                names.extend(moved.map(|number| (to.clone(), number)));
            }
            Rename::Exchange(one, other) => {
                if let (Some(first), Some(second)) = (names.get(one).copied(), names.get(other).copied()) {
                    names.extend([(one.clone(), second), (other.clone(), first)]);
                }
            }
        }
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        match self {
            Rename::Make(path, _) | Rename::Remove(path) => vec![path],
            Rename::Move(from, to) | Rename::Exchange(from, to) => vec![from, to],
        }
    }
}

impl Disk for FaultyDisk {
    fn what(&self, path: &Path) -> io::Result<What> {
        let state = self.up()?;
        if state.folders.contains(path) {
            return Ok(What::Folder);
        }
        Ok(if state.names.contains_key(path) { What::File } else { What::Missing })
    }

    fn free(&self, _folder: &Path) -> io::Result<u64> {
        let state = self.up()?;
        Ok(state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used())))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.up()?;
        let inside = state.names.keys().filter(|path| path.parent() == Some(folder));
        Ok(inside.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect())
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.change()?.folders.insert(path.into());
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let meddling = self.state().meddling.take_if(|(before, _)| before == path);
        if let Some((_, meddling)) = meddling {
            meddling();
        }
        let mut state = self.change()?;
        if state.names.contains_key(path) || state.folders.contains(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = state.make(path);
        Ok(Box::new(FaultyFile { disk: self.clone(), number, life: state.life }))
    }

    fn open(&self, path: &Path, _access: Access) -> io::Result<Box<dyn DiskFile>> {
        let state = self.up()?;
        let number = state.find(path)?;
        Ok(Box::new(FaultyFile { disk: self.clone(), number, life: state.life }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        if state.folders.remove(from) {
            state.folders.insert(to.into());
            let moved = |names: &mut BTreeMap<PathBuf, usize>| {
                *names = std::mem::take(names)
                    .into_iter()
                    .map(|(path, number)| (moved_path(&path, from, to), number))
                    .collect();
            };
            let State { names, durable_names, renames, .. } = &mut *state;
            moved(names);
            moved(durable_names);
            for path in renames.iter_mut().flat_map(Rename::paths) {
                *path = moved_path(path, from, to);
            }
            return Ok(());
        }
        state.find(from)?;
        state.rename(Rename::Move(from.into(), to.into()));
        Ok(())
    }

    fn exchange(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        state.find(from).and_then(|_| state.find(to))?;
        state.rename(Rename::Exchange(from.into(), to.into()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        state.find(path)?;
        state.yielding(state.names.get(path))?;
        state.rename(Rename::Remove(path.into()));
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let number = state.find(from)?;
        state.rename(Rename::Make(to.into(), number));
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let inside = |path: &Path| path.parent() == Some(folder);
        let State { names, durable_names, folders, durable_folders, renames, .. } = &mut *state;
        renames.retain_mut(|rename| rename.paths().iter().any(|path| !inside(path)));
        durable_names.retain(|path, _| !inside(path));
        durable_names.extend(
            names.iter().filter(|(path, _)| inside(path)).map(|(path, number)| (path.clone(), *number)),
        );
        durable_folders.retain(|path| !inside(path));
        durable_folders.extend(folders.iter().filter(|path| inside(path)).cloned());
        Ok(())
    }

    fn lock(&self, path: &Path, access: Access) -> io::Result<Option<Lock>> {
        let mut state = self.up()?;
        if access == Access::Write && !state.names.contains_key(path) {
            state.make(path);
        }
        if !state.locks.insert(path.into()) {
            return Ok(None);
        }
        let lock = FaultyLock { disk: self.clone(), path: path.into(), life: state.life };
        Ok(Some(Box::new(lock)))
    }
}

/// Where a file is after a folder was moved.
fn moved_path(path: &Path, from: &Path, to: &Path) -> PathBuf {
    path.strip_prefix(from).map_or_else(|_| path.into(), |rest| to.join(rest))
}

struct FaultyLock {
    disk: FaultyDisk,
    path: PathBuf,
    life: u64,
}

impl Drop for FaultyLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

struct FaultyFile {
    disk: FaultyDisk,
    number: usize,
    life: u64,
}

impl FaultyFile {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.up()?;
        // Of a process that is no more.
        if state.life == self.life { Ok(state) } else { Err(io::Error::other("crashed")) }
    }
}

impl DiskFile for FaultyFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.state()?.files[self.number].bytes.len() as u64)
    }

    fn space(&self) -> io::Result<u64> {
        Ok(self.state()?.files[self.number].space())
    }

    fn links(&self) -> io::Result<u64> {
        Ok(self.state()?.names.values().filter(|number| **number == self.number).count() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let state = self.state()?;
        let unreadable =
            state.unreadable.as_ref().filter(|(path, _)| state.names.get(path) == Some(&self.number));
        if unreadable.is_some_and(|(_, at)| (offset..offset + buffer.len() as u64).contains(at)) {
            return Err(io::Error::other("unreadable as planned"));
        }
        let bytes = &state.files[self.number].bytes;
        let from = bytes.get(offset as usize..offset as usize + buffer.len());
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state()?;
        let failed = state.change();
        state.written_bytes += bytes.len() as u64;
        let (offset, mut end) = (offset as usize, offset as usize + bytes.len());
        if failed.is_err() {
            end = offset + (state.changes as usize * 7) % (bytes.len() + 1);
        }
        let others = state.used() - state.files[self.number].space();
        let room = state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(others));
        let fits = (end as u64) <= room.max(state.files[self.number].space());
        if !fits {
            end = offset.max(room as usize).min(end);
        }
        let file = &mut state.files[self.number].bytes;
        if file.len() < end {
            file.resize(end, 0);
        }
        file[offset..end].copy_from_slice(&bytes[..end - offset]);
        let rewritten = offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        state.files[self.number].dropped.retain(|sector| !rewritten.contains(sector));
        failed?;
        if fits { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn allocate(&self, end: u64) -> io::Result<()> {
        let mut state = self.state()?;
        state.change()?;
        state.yielding(Some(&self.number))?;
        let others = state.used() - state.files[self.number].space();
        if end <= state.files[self.number].space() {
            return Ok(());
        }
        let room = state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(others));
        state.was_full |= end >= room;
        let in_part = state.allocates_in_part;
        let file = &mut state.files[self.number];
        if end > room {
            file.allocated = file.allocated.max(if in_part { room } else { 0 });
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.allocated = file.allocated.max(end);
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.state()?;
        state.change()?;
        state.yielding(Some(&self.number))?;
        let file = &mut state.files[self.number];
        file.bytes.resize(bytes as usize, 0);
        file.dropped.retain(|sector| sector * SECTOR_BYTES < bytes as usize);
        file.allocated = 0;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state()?;
        let changed = state.change();
        // With the whole machine it is a crash, which has its own rules.
        if changed.is_ok() || !matches!(state.plan, Plan::CrashAt(_)) {
            state.files[self.number].sync(changed.is_err());
        }
        changed
    }
}

/// Numbers that look random and are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
