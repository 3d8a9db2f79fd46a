//! Files and directories by path: `PFSDelete`, `PFSMkdir`, `PFSRmdir`, `PFSReadDir`, `PFSStat` and their like.

use super::engine::Engine;
use super::failure::{Failure, guarded_done};
use super::handle::{CSession, Slot};
use super::layout::{FileDirent, FileStat};
use super::text;
use libc::{c_int, off_t};
use std::ffi::c_char;
use std::sync::Arc;

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes; `path` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSDelete(session: *mut CSession, path: *const c_char) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, path) = unsafe { at(session, path) }?;
        engine.run(engine.session().delete(&path))
    })
}

/// # Safety
/// As for PFSDelete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSMkdir(session: *mut CSession, path: *const c_char) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, path) = unsafe { at(session, path) }?;
        engine.run(engine.session().mkdir(&path))
    })
}

/// # Safety
/// As for PFSDelete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSRmdir(session: *mut CSession, path: *const c_char) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, path) = unsafe { at(session, path) }?;
        engine.run(engine.session().rmdir(&path))
    })
}

/// # Safety
/// As for PFSDelete; `count` is NULL or points to a number, and `entries` to room for so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSReadDir(
    session: *mut CSession,
    path: *const c_char,
    entries: *mut FileDirent,
    index: i32,
    count: *mut i32,
) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, path) = unsafe { at(session, path) }?;
        if count.is_null() {
            return Err(Failure::invalid("count is NULL"));
        }
        // SAFETY: the caller's promise.
        let room = usize::try_from(unsafe { *count }).map_err(|_| Failure::invalid("count is negative"))?;
        let index = u64::try_from(index).map_err(|_| Failure::invalid("index is negative"))?;
        if entries.is_null() && room > 0 {
            return Err(Failure::invalid("room for entries is NULL"));
        }
        let mut done = 0;
        loop {
            let page = engine.session().readdir_page(&path, index + done as u64, (room - done) as u64);
            let page = engine.run(page)?;
            let over = page.entries.is_empty();
            for entry in page.entries.iter().take(room - done) {
                // SAFETY: there is room for this many, by the caller's promise.
                unsafe { entries.add(done).write(entry.into()) };
                done += 1;
            }
            if over || done == room || index + done as u64 >= page.total {
                break;
            }
        }
        // SAFETY: the caller's promise; no more than was asked for.
        unsafe { *count = done as i32 };
        Ok(())
    })
}

/// # Safety
/// As for PFSDelete; `stat` is NULL or points to where to put it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSStat(session: *mut CSession, path: *const c_char, stat: *mut FileStat) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, path) = unsafe { at(session, path) }?;
        if stat.is_null() {
            return Err(Failure::invalid("room for the answer is NULL"));
        }
        let found = engine.run(engine.session().stat(&path))?;
        // SAFETY: the caller's promise.
        unsafe { stat.write((&found).into()) };
        Ok(())
    })
}

/// # Safety
/// As for PFSDelete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSTruncate(session: *mut CSession, path: *const c_char, length: off_t) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, path) = unsafe { at(session, path) }?;
        let length = u64::try_from(length).map_err(|_| Failure::invalid("length is negative"))?;
        engine.run(engine.session().truncate(&path, length))
    })
}

/// # Safety
/// As for PFSDelete, for both paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSRename(session: *mut CSession, from: *const c_char, to: *const c_char) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, from) = unsafe { at(session, from) }?;
        // SAFETY: the caller's promise.
        let to = unsafe { text::path(to) }?;
        engine.run(engine.session().rename(&from, &to))
    })
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes; `path` is NULL or a string.
unsafe fn at(session: *mut CSession, path: *const c_char) -> Result<(Arc<Engine>, String), Failure> {
    // SAFETY: the caller's promise.
    let slot = unsafe { Slot::of(session) }?;
    // SAFETY: the caller's promise.
    let path = unsafe { text::path(path) }?;
    Ok((slot.engine()?, path))
}
