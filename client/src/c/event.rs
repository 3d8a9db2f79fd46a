//! `PFSEventGet` and what it is set by: events are handed to functions of the program, found when it is linked.

use super::failure::{Failure, guarded_done};
use super::handle::{CSession, Slot};
use super::layout::{FileEventDir, FileEventLock, FileEventQueue};
use super::lock::patience;
use super::text;
use crate::error::Error;
use crate::events::{Events, Notice};
use kumo_pfs::{Event, Resource};
use libc::c_int;
use std::arch::global_asm;
use std::ffi::c_char;
use std::time::Duration;

// The program's functions, or NULL where it has none: weak references, which the linker or the loader resolves. Rust
// has no way to say so, hence three words in the assembler's own.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("the words below are of 64 bits");
global_asm!(
    ".weak PFSEventDir",
    ".weak PFSEventLock",
    ".weak PFSEventQueue",
    ".pushsection .data.rel.pfs_upcalls,\"aw\"",
    ".p2align 3",
    ".globl pfs_upcall_dir",
    ".hidden pfs_upcall_dir",
    "pfs_upcall_dir: .quad PFSEventDir",
    ".globl pfs_upcall_lock",
    ".hidden pfs_upcall_lock",
    "pfs_upcall_lock: .quad PFSEventLock",
    ".globl pfs_upcall_queue",
    ".hidden pfs_upcall_queue",
    "pfs_upcall_queue: .quad PFSEventQueue",
    ".popsection",
);

unsafe extern "C" {
    static pfs_upcall_dir: Option<unsafe extern "C" fn(*mut CSession, *mut FileEventDir) -> c_int>;
    static pfs_upcall_lock: Option<unsafe extern "C" fn(*mut CSession, *mut FileEventLock) -> c_int>;
    static pfs_upcall_queue: Option<unsafe extern "C" fn(*mut CSession, *mut FileEventQueue) -> c_int>;
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes; `path` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSEventDirSet(session: *mut CSession, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    guarded_done(|| unsafe { set(session, Resource::Directory(text::path(path)?), true) })
}

/// # Safety
/// As for PFSEventDirSet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSEventDirCancel(session: *mut CSession, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    guarded_done(|| unsafe { set(session, Resource::Directory(text::path(path)?), false) })
}

/// # Safety
/// As for PFSEventDirSet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSEventLockSet(session: *mut CSession, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    guarded_done(|| unsafe { set(session, Resource::Lock(text::name(name)?), true) })
}

/// # Safety
/// As for PFSEventDirSet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSEventLockCancel(session: *mut CSession, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    guarded_done(|| unsafe { set(session, Resource::Lock(text::name(name)?), false) })
}

/// # Safety
/// As for PFSEventDirSet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSEventQueueSet(session: *mut CSession, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    guarded_done(|| unsafe { set(session, Resource::Queue(text::name(name)?), true) })
}

/// # Safety
/// As for PFSEventDirSet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSEventQueueCancel(session: *mut CSession, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    guarded_done(|| unsafe { set(session, Resource::Queue(text::name(name)?), false) })
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes; `count` and `omitted` are NULL or point to numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSEventGet(session: *mut CSession, count: *mut i32, omitted: *mut i32) -> c_int {
    // SAFETY: the caller's promise.
    guarded_done(|| unsafe { get(session, count, omitted, None) })
}

/// # Safety
/// As for PFSEventGet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSEventGetTimeout(
    session: *mut CSession,
    count: *mut i32,
    omitted: *mut i32,
    millis: c_int,
) -> c_int {
    let limit = match patience(millis) {
        crate::lock::Patience::Forever => None,
        crate::lock::Patience::Try => Some(Duration::ZERO),
        crate::lock::Patience::Within(limit) => Some(limit),
    };
    // SAFETY: the caller's promise.
    guarded_done(|| unsafe { get(session, count, omitted, limit) })
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes.
unsafe fn set(session: *mut CSession, resource: Resource, wanted: bool) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let engine = unsafe { Slot::of(session) }?.engine()?;
    match wanted {
        true => engine.run(engine.session().watch(resource)),
        false => engine.run(engine.session().unwatch(resource)),
    }
}

/// Waits for an event, and hands out all that came with it.
///
/// # Safety
/// As for PFSEventGet.
unsafe fn get(
    session: *mut CSession,
    count: *mut i32,
    omitted: *mut i32,
    limit: Option<Duration>,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let engine = unsafe { Slot::of(session) }?.engine()?;
    if count.is_null() || omitted.is_null() {
        return Err(Failure::invalid("room for the counts is NULL"));
    }
    let mut events = engine.session().events().map_err(Failure::from)?;
    let mut next = Some(engine.run(first(&mut events, limit))?);
    let (mut handed, mut missed) = (0i32, 0i32);
    let mut stopped = false;
    while let Some(notice) = next {
        handed = handed.saturating_add(1);
        missed = missed.saturating_add(i32::try_from(notice.omitted).unwrap_or(i32::MAX));
        // SAFETY: the program's own functions, called as `pfs.h` declares them.
        stopped = unsafe { hand_out(session, &notice) } < 0;
        next = if stopped { None } else { events.ready() };
    }
    // SAFETY: the caller's promise.
    unsafe {
        *count = handed;
        *omitted = missed;
    }
    match stopped {
        true => Err(Failure::new(libc::ECANCELED, "the program's function for an event refused")),
        false => Ok(()),
    }
}

async fn first(events: &mut Events, limit: Option<Duration>) -> Result<Notice, Error> {
    match limit {
        None => events.next().await,
        // A wait that was given up loses no event.
        Some(limit) => tokio::time::timeout(limit, events.next()).await.unwrap_or(Err(Error::TimedOut)),
    }
}

/// What the program's function returned; 0 when it has none for this kind.
///
/// # Safety
/// The functions that were linked are as `pfs.h` declares them.
unsafe fn hand_out(session: *mut CSession, notice: &Notice) -> c_int {
    let number = notice.number;
    match &notice.event {
        Event::Directory { path, name, change } => {
            // SAFETY: a word that was resolved before the program began.
            let Some(upcall) = (unsafe { pfs_upcall_dir }) else { return 0 };
            let mut event = FileEventDir::new(number, path, name, *change);
            // SAFETY: the caller's promise.
            unsafe { upcall(session, &mut *event) }
        }
        Event::Lock { name, exclusive } => {
            // SAFETY: as above.
            let Some(upcall) = (unsafe { pfs_upcall_lock }) else { return 0 };
            // SAFETY: the caller's promise.
            unsafe { upcall(session, &mut FileEventLock::new(number, name, *exclusive)) }
        }
        Event::Queue { name, change } => {
            // SAFETY: as above.
            let Some(upcall) = (unsafe { pfs_upcall_queue }) else { return 0 };
            // SAFETY: the caller's promise.
            unsafe { upcall(session, &mut FileEventQueue::new(number, name, *change)) }
        }
    }
}
