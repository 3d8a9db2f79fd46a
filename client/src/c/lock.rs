//! `PFSLockW`, `PFSLockR`, `PFSUnlock`: locks by name. What the session holds is kept with its engine.

use super::engine::Engine;
use super::failure::{Failure, guarded_done};
use super::handle::{CSession, Slot};
use super::text;
use crate::lock::Patience;
use kumo_pfs::Command;
use libc::c_int;
use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes; `name` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSLockW(session: *mut CSession, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { lock(session, name, true, Patience::Forever) }
}

/// # Safety
/// As for PFSLockW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSLockR(session: *mut CSession, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { lock(session, name, false, Patience::Forever) }
}

/// # Safety
/// As for PFSLockW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSTryLockW(session: *mut CSession, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { lock(session, name, true, Patience::Try) }
}

/// # Safety
/// As for PFSLockW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSTryLockR(session: *mut CSession, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { lock(session, name, false, Patience::Try) }
}

/// # Safety
/// As for PFSLockW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSLockWTimeout(
    session: *mut CSession,
    name: *const c_char,
    millis: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { lock(session, name, true, patience(millis)) }
}

/// # Safety
/// As for PFSLockW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSLockRTimeout(
    session: *mut CSession,
    name: *const c_char,
    millis: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { lock(session, name, false, patience(millis)) }
}

/// # Safety
/// As for PFSLockW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSUnlock(session: *mut CSession, name: *const c_char) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, name) = unsafe { of(session, name) }?;
        let held = engine.locks().remove(&name);
        match held {
            Some(guard) => engine.run(guard.unlock()),
            // The cell knows best that it is not held, and says so.
            None => engine.run(engine.session().change(Command::Unlock { name })),
        }
    })
}

/// # Safety
/// As for PFSLockW; `number` is NULL or points to where to put it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSLockNumber(
    session: *mut CSession,
    name: *const c_char,
    number: *mut u64,
) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, name) = unsafe { of(session, name) }?;
        if number.is_null() {
            return Err(Failure::invalid("room for the number is NULL"));
        }
        let locks = engine.locks();
        let Some(guard) = locks.get(&name) else {
            return Err(Failure::new(libc::EPERM, format!("lock is not held by this session: {name}")));
        };
        if guard.is_lost() {
            return Err(Failure::new(libc::ECONNABORTED, "session lost, and the lock with it"));
        }
        // SAFETY: the caller's promise.
        unsafe { *number = guard.number() };
        Ok(())
    })
}

/// # Safety
/// As for PFSLockW.
unsafe fn lock(session: *mut CSession, name: *const c_char, exclusive: bool, patience: Patience) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, name) = unsafe { of(session, name) }?;
        let guard = engine.run(engine.session().lock(&name, exclusive, patience))?;
        engine.locks().insert(name, guard);
        Ok(())
    })
}

/// The session and the name of a lock or queue of a call.
///
/// # Safety
/// As for PFSLockW.
pub(super) unsafe fn of(
    session: *mut CSession,
    name: *const c_char,
) -> Result<(Arc<Engine>, String), Failure> {
    // SAFETY: the caller's promise.
    let slot = unsafe { Slot::of(session) }?;
    // SAFETY: the caller's promise.
    let name = unsafe { text::name(name) }?;
    Ok((slot.engine()?, name))
}

/// As poll(2) counts: negative waits for ever, 0 not at all.
pub(super) fn patience(millis: c_int) -> Patience {
    match u64::try_from(millis) {
        Err(_) => Patience::Forever,
        Ok(0) => Patience::Try,
        Ok(millis) => Patience::Within(Duration::from_millis(millis)),
    }
}
