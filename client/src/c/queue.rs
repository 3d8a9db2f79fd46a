//! `PFSPost`, `PFSWait`, `PFSPeekMsg`, `PFSDeleteMsg`: queues by name.
//!
//! A message is received first and acknowledged when it fits the program's buffer, so none is lost: neither by a
//! buffer that is too small nor by a program that dies while the answer is on its way.

use super::engine::Engine;
use super::failure::{Failure, guarded_done};
use super::handle::CSession;
use super::layout::MessageId;
use super::lock::{of, patience};
use super::memory::{lend, length};
use crate::caller::{encode, unexpected};
use crate::lock::Patience;
use crate::queue::Message;
use bytes::Bytes;
use kumo_pfs::{Command, MESSAGE_BYTES_MAX, Reply};
use libc::c_int;
use std::ffi::c_char;

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes; `queue` is NULL or a string; `data` points to `count`
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSPost(
    session: *mut CSession,
    queue: *const c_char,
    count: c_int,
    data: *const c_char,
) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, queue) = unsafe { of(session, queue) }?;
        let count = length(count as isize)?;
        if count as u64 > MESSAGE_BYTES_MAX {
            let limit = format!("message would exceed the limit of {MESSAGE_BYTES_MAX} bytes");
            return Err(Failure::new(libc::EFBIG, limit));
        }
        // SAFETY: the caller's promise.
        let command = unsafe { lend(data, count, |data| encode(&Command::Post { queue, data })) }?;
        match engine.run(engine.session().execute(command))? {
            Reply::Done | Reply::Message { .. } => Ok(()),
            reply => Err(unexpected(reply).into()),
        }
    })
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes; `queue` is NULL or a string; `count` is NULL or points
/// to the number of bytes that `data` has room for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSWait(
    session: *mut CSession,
    queue: *const c_char,
    count: *mut c_int,
    data: *mut c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { wait(session, queue, count, data, Patience::Forever) }
}

/// # Safety
/// As for PFSWait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSWaitTimeout(
    session: *mut CSession,
    queue: *const c_char,
    count: *mut c_int,
    data: *mut c_char,
    millis: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { wait(session, queue, count, data, patience(millis)) }
}

/// # Safety
/// As for PFSWait; `id` is NULL or points to where to put it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSReceive(
    session: *mut CSession,
    queue: *const c_char,
    count: *mut c_int,
    data: *mut c_char,
    id: *mut MessageId,
    millis: c_int,
) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, queue) = unsafe { of(session, queue) }?;
        // SAFETY: the caller's promise.
        let room = unsafe { Room::new(count, data) }?;
        if id.is_null() {
            return Err(Failure::invalid("room for the id is NULL"));
        }
        let message = received(&engine, &queue, &room, patience(millis))?;
        room.fill(&message.data);
        // SAFETY: the caller's promise.
        unsafe { id.write(MessageId { number: message.id }) };
        Ok(())
    })
}

/// # Safety
/// As for PFSDeleteMsg.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSAck(session: *mut CSession, queue: *const c_char, id: *const MessageId) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, queue) = unsafe { of(session, queue) }?;
        // SAFETY: the caller's promise.
        let id = unsafe { number(id) }?;
        engine.run(engine.session().acknowledge(&queue, id))
    })
}

/// # Safety
/// As for PFSWait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSPeekMsg(
    session: *mut CSession,
    queue: *const c_char,
    count: *mut c_int,
    data: *mut c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    guarded_done(|| unsafe { peek(session, queue, count, data) }.map(drop))
}

/// # Safety
/// As for PFSWait; `id` is NULL or points to where to put it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSPeekMsgId(
    session: *mut CSession,
    queue: *const c_char,
    count: *mut c_int,
    data: *mut c_char,
    id: *mut MessageId,
) -> c_int {
    guarded_done(|| {
        if id.is_null() {
            return Err(Failure::invalid("room for the id is NULL"));
        }
        // SAFETY: the caller's promise.
        unsafe { id.write(MessageId { number: peek(session, queue, count, data)? }) };
        Ok(())
    })
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes; `queue` is NULL or a string; `id` is NULL or points to
/// an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSDeleteMsg(
    session: *mut CSession,
    queue: *const c_char,
    id: *const MessageId,
) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, queue) = unsafe { of(session, queue) }?;
        // SAFETY: the caller's promise.
        let id = unsafe { number(id) }?;
        engine.run(engine.session().delete_message(&queue, id))
    })
}

/// # Safety
/// As for PFSWait.
unsafe fn wait(
    session: *mut CSession,
    queue: *const c_char,
    count: *mut c_int,
    data: *mut c_char,
    patience: Patience,
) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let (engine, queue) = unsafe { of(session, queue) }?;
        // SAFETY: the caller's promise.
        let room = unsafe { Room::new(count, data) }?;
        let message = received(&engine, &queue, &room, patience)?;
        // Before the cell is told that it may forget it: if that has no answer, nobody else might have it.
        room.fill(&message.data);
        engine.run(engine.session().acknowledge(&queue, message.id))
    })
}

/// A message that fits. One that does not is kept for the next try: in the cell it stays hidden, and goes back to the
/// queue with the session's end.
fn received(engine: &Engine, queue: &str, room: &Room, patience: Patience) -> Result<Message, Failure> {
    let kept = engine.kept().remove(queue);
    let message = match kept {
        Some(message) => message,
        None => engine.run(engine.session().receive(queue, patience))?,
    };
    if let Err(failure) = room.check(&message.data) {
        engine.kept().insert(queue.to_owned(), message);
        return Err(failure);
    }
    Ok(message)
}

/// The id of the head.
///
/// # Safety
/// As for PFSWait.
unsafe fn peek(
    session: *mut CSession,
    queue: *const c_char,
    count: *mut c_int,
    data: *mut c_char,
) -> Result<u64, Failure> {
    // SAFETY: the caller's promise.
    let (engine, queue) = unsafe { of(session, queue) }?;
    // SAFETY: the caller's promise.
    let room = unsafe { Room::new(count, data) }?;
    let message = engine.run(engine.session().peek(&queue))?;
    room.check(&message.data)?;
    room.fill(&message.data);
    Ok(message.id)
}

/// # Safety
/// `id` is NULL or points to an id.
unsafe fn number(id: *const MessageId) -> Result<u64, Failure> {
    // SAFETY: the caller's promise.
    let id = unsafe { id.as_ref() }.ok_or_else(|| Failure::invalid("id is NULL"))?;
    Ok(id.number)
}

/// The program's buffer for a message, and where it is told how long the message is.
struct Room {
    count: *mut c_int,
    data: *mut c_char,
    bytes: usize,
}

impl Room {
    /// # Safety
    /// `count` is NULL or points to the number of bytes that `data` has room for, and both stay so while this lives.
    unsafe fn new(count: *mut c_int, data: *mut c_char) -> Result<Room, Failure> {
        // SAFETY: the caller's promise.
        let given = unsafe { count.as_ref() }.ok_or_else(|| Failure::invalid("length is NULL"))?;
        let bytes = length(*given as isize)?;
        if data.is_null() && bytes > 0 {
            return Err(Failure::invalid("buffer is NULL"));
        }
        Ok(Room { count, data, bytes })
    }

    /// Whether the message fits; if not, its length is told.
    fn check(&self, message: &Bytes) -> Result<(), Failure> {
        if message.len() <= self.bytes {
            return Ok(());
        }
        // SAFETY: see `new`; no message is longer than an int can say.
        unsafe { *self.count = message.len() as c_int };
        Err(Failure::new(libc::EMSGSIZE, format!("the message has {} bytes", message.len())))
    }

    fn fill(&self, message: &Bytes) {
        // SAFETY: see `new`; it was checked that the message fits.
        unsafe {
            if !message.is_empty() {
                self.data.cast::<u8>().copy_from_nonoverlapping(message.as_ptr(), message.len());
            }
            *self.count = message.len() as c_int;
        }
    }
}

const _: () = assert!(MESSAGE_BYTES_MAX <= c_int::MAX as u64);
