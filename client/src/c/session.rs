//! `PaxosSession*`: from a caller's memory to an open session, and back.

use super::engine::Engine;
use super::failure::{FAILED, Failure, guarded, guarded_done, message};
use super::handle::{CSession, Slot, State};
use super::layout::{JEOPARDY, LOST, OPENING, SAFE};
use super::memory::{Free, Malloc, Memory, length};
use super::roster::{Roster, members};
use super::text;
use super::transport::{Callbacks, Close, Connect, GetMyAddr, RecvFrom, SendTo, Shutdown};
use crate::options::Options;
use bytes::Bytes;
use kumo_session::SessionState;
use libc::{c_int, size_t};
use std::ffi::c_char;
use std::sync::Arc;

/// Bytes of a `struct Session`.
#[unsafe(no_mangle)]
pub extern "C" fn PaxosSessionGetSize() -> size_t {
    Slot::BYTES
}

/// # Safety
/// `session` points to PaxosSessionGetSize() writable bytes; the functions are as `pfs.h` declares them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PaxosSessionInit(
    session: *mut CSession,
    connect: Option<Connect>,
    shutdown: Option<Shutdown>,
    close: Option<Close>,
    address: Option<GetMyAddr>,
    send: Option<SendTo>,
    receive: Option<RecvFrom>,
    malloc: Option<Malloc>,
    free: Option<Free>,
) -> c_int {
    guarded_done(|| {
        let memory = Memory::new(malloc, free)?;
        let callbacks = Callbacks::new(connect, shutdown, close, address, send, receive)?;
        // SAFETY: the caller's promise.
        unsafe { Slot::init(session, memory, callbacks) }
    })
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PaxosSessionDestroy(session: *mut CSession) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let slot = unsafe { Slot::of(session) }?;
        if !slot.is_inherited() {
            // It is gone whether the cell could be told or not.
            let _ = close(slot);
        }
        // SAFETY: the caller's promise.
        unsafe { Slot::destroy(session) }
    })
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes; `list` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PaxosSessionSetCell(session: *mut CSession, list: *const c_char) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let slot = unsafe { Slot::of(session) }?;
        // SAFETY: the caller's promise.
        let list = unsafe { text::members(list) }?;
        slot.check_closed()?;
        *slot.members() = members(&list)?;
        Ok(())
    })
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PaxosSessionOpen(session: *mut CSession, number: c_int, sync: c_int) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let slot = unsafe { Slot::of(session) }?;
        slot.check_closed()?;
        let members = cell(slot)?;
        let options = Options { number: number.into(), sync: sync != 0, ..Options::new(members.clone()) };
        let roster = Arc::new(Roster::new(members));
        slot.begin(roster.clone())?;
        match Engine::open(&options, slot.callbacks, session, roster) {
            Ok(engine) => {
                slot.replace(State::Open(Arc::new(engine)));
                Ok(())
            }
            Err(failure) => {
                slot.replace(State::Closed);
                Err(failure)
            }
        }
    })
}

/// The cell's members: as set, or from the environment, or where a cell is by default.
fn cell(slot: &Slot) -> Result<Vec<std::net::SocketAddr>, Failure> {
    let set = slot.members().clone();
    if !set.is_empty() {
        return Ok(set);
    }
    match std::env::var("KUMO_CELL") {
        Ok(list) if !list.is_empty() => members(&list),
        Ok(_) | Err(std::env::VarError::NotPresent) => Ok(Options::default().members),
        Err(std::env::VarError::NotUnicode(_)) => Err(Failure::invalid("KUMO_CELL is not UTF-8")),
    }
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PaxosSessionClose(session: *mut CSession) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        close(unsafe { Slot::of(session) }?)
    })
}

fn close(slot: &Slot) -> Result<(), Failure> {
    let engine = slot.engine()?;
    // Told before it is forgotten: a call of another thread that is under way ends with the session.
    let told = engine.close();
    slot.replace(State::Closed);
    told
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PaxosSessionSnapshot(session: *mut CSession) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { Slot::of(session) }?.engine()?;
        engine.run(engine.session().cell().snapshot())
    })
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes, `request` to as many as it says, `reply` and
/// `reply_length` to where to put them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PaxosSessionReqAndRplByMsg(
    session: *mut CSession,
    update: c_int,
    request: *const c_char,
    request_length: size_t,
    reply: *mut *mut c_char,
    reply_length: *mut size_t,
) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let slot = unsafe { Slot::of(session) }?;
        let request_length = length(request_length)?;
        if request.is_null() || reply.is_null() || reply_length.is_null() {
            return Err(Failure::invalid("a request and room for its reply are needed"));
        }
        if request_length > kumo_paxos::OUT_OF_BAND_MAX {
            return Err(Failure::new(libc::EFBIG, "request would exceed the limit of a message"));
        }
        let engine = slot.engine()?;
        // SAFETY: the caller's promise.
        let bytes = Bytes::copy_from_slice(unsafe {
            std::slice::from_raw_parts(request.cast::<u8>(), request_length)
        });
        let answer = match update != 0 {
            true => engine.run(engine.session().request(bytes))?,
            false => engine.run(engine.session().inquire(bytes))?,
        };
        let copy = slot.memory.copy(&answer)?;
        // SAFETY: the caller's promise.
        unsafe {
            *reply = copy;
            *reply_length = answer.len();
        }
        Ok(())
    })
}

/// The session is not looked at: the message is this thread's.
#[unsafe(no_mangle)]
pub extern "C" fn PaxosSessionGetErr(_session: *mut CSession) -> *const c_char {
    message()
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PaxosSessionGetState(session: *mut CSession) -> c_int {
    guarded(FAILED, || {
        // SAFETY: the caller's promise.
        let engine = unsafe { Slot::of(session) }?.engine()?;
        let state = *engine.session().state().borrow();
        Ok(match state {
            SessionState::Opening => OPENING,
            SessionState::Safe => SAFE,
            SessionState::Jeopardy => JEOPARDY,
            SessionState::Lost => LOST,
        })
    })
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes, `id` is NULL or to where to put it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PaxosSessionGetId(session: *mut CSession, id: *mut u64) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { Slot::of(session) }?.engine()?;
        let found = engine.session().id().ok_or_else(|| Failure::new(libc::ENOTCONN, "no id yet"))?;
        if id.is_null() {
            return Err(Failure::invalid("room for the id is NULL"));
        }
        // SAFETY: the caller's promise.
        unsafe { *id = found.0 };
        Ok(())
    })
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes, `text` is NULL or to `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PaxosSessionGetMember(
    session: *mut CSession,
    member: c_int,
    text: *mut c_char,
    room: size_t,
) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let roster = unsafe { Slot::of(session) }?.roster()?;
        let place = usize::try_from(member).map_err(|_| Failure::invalid("a member's number is negative"))?;
        let unknown = || Failure::new(libc::ENOENT, format!("no member has the number {place}"));
        let address = roster.address(place).ok_or_else(unknown)?.to_string();
        if text.is_null() || length(room)? <= address.len() {
            return Err(Failure::new(libc::ERANGE, format!("{} bytes are needed", address.len() + 1)));
        }
        // SAFETY: there is room for it and for the NUL, by the caller's promise.
        unsafe {
            text.cast::<u8>().copy_from_nonoverlapping(address.as_ptr(), address.len());
            *text.add(address.len()) = 0;
        }
        Ok(())
    })
}
