//! `PFSOpen` to `PFSWrite`: files with an offset. The offset is here alone; the cell does not know that a file is open.

use super::engine::Engine;
use super::failure::{FAILED, Failure, guarded, guarded_done};
use super::handle::{CSession, Slot};
use super::layout::FILE_EPHEMERAL;
use super::memory::{Memory, lend, length};
use super::text;
use crate::caller::{encode, unexpected};
use kumo_pfs::{Command, Condition, Place, READ_BYTES_MAX, Reply, WRITE_BYTES_MAX};
use libc::{c_int, off_t, size_t};
use std::ffi::c_char;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// `File_t`: in memory that the program's malloc gave.
#[repr(C)]
pub struct File {
    /// [`MAGIC`] and this very address.
    magic: AtomicU64,
    /// Gone when the session is closed.
    engine: Weak<Engine>,
    memory: Memory,
    path: String,
    offset: AtomicU64,
    ephemeral: bool,
}

/// Where a write goes and when, beside its data.
struct Aim {
    place: Option<Place>,
    condition: Condition,
}

impl File {
    /// The file that a pointer means.
    ///
    /// # Safety
    /// `file` is NULL or points to readable memory of a `File_t`'s size; it is not closed meanwhile.
    unsafe fn of<'a>(file: *mut File) -> Result<&'a File, Failure> {
        if file.is_null() {
            return Err(Failure::invalid("file is NULL"));
        }
        let foreign = || Failure::new(libc::EBADF, "not an open file");
        if !file.is_aligned() {
            return Err(foreign());
        }
        // SAFETY: readable by the caller's promise, and any bytes are a number.
        if unsafe { &(*file).magic }.load(Ordering::Acquire) != mark(file) {
            return Err(foreign());
        }
        // SAFETY: PFSOpen has written one here.
        Ok(unsafe { &*file })
    }

    fn engine(&self) -> Result<Arc<Engine>, Failure> {
        self.engine.upgrade().ok_or_else(|| Failure::new(libc::ENOTCONN, "the file's session is closed"))
    }

    /// All bytes of one call are of one version: a file that changes meanwhile makes it short.
    ///
    /// # Safety
    /// `buffer` points to `length` writable bytes.
    unsafe fn read(&self, buffer: *mut u8, length: usize) -> Result<usize, Failure> {
        let engine = self.engine()?;
        let offset = self.offset.load(Ordering::Acquire);
        let mut done = 0;
        let mut version = None;
        loop {
            let wanted = ((length - done) as u64).min(READ_BYTES_MAX);
            let asked = engine.run(engine.session().read_at(&self.path, offset + done as u64, wanted));
            let piece = match asked {
                Ok(piece) => piece,
                // What was read before is as good as if no more had been asked for.
                Err(_) if done > 0 => break,
                Err(failure) => return Err(failure),
            };
            let count = piece.bytes.len();
            if *version.get_or_insert(piece.version) != piece.version || count > length - done {
                break;
            }
            // SAFETY: there is room for this many, by the caller's promise.
            unsafe { buffer.add(done).copy_from_nonoverlapping(piece.bytes.as_ptr(), count) };
            done += count;
            if done == length || (count as u64) < wanted {
                break;
            }
        }
        self.offset.store(offset + done as u64, Ordering::Release);
        Ok(done)
    }

    /// # Safety
    /// `data` is NULL or points to `length` readable bytes.
    unsafe fn write(&self, data: *const c_char, length: usize, aim: Aim) -> Result<c_int, Failure> {
        if length as u64 > WRITE_BYTES_MAX {
            let limit = format!("write would exceed the limit of {WRITE_BYTES_MAX} bytes");
            return Err(Failure::new(libc::EFBIG, limit));
        }
        let engine = self.engine()?;
        let offset = self.offset.load(Ordering::Acquire);
        let Aim { place, condition } = aim;
        let place = place.unwrap_or(Place::Offset(offset));
        let (path, ephemeral) = (self.path.clone(), self.ephemeral);
        // The one copy of the data: from here on its bytes are shared, down to the socket.
        // SAFETY: the caller's promise.
        let command = unsafe {
            lend(data, length, |data| encode(&Command::Write { path, place, data, ephemeral, condition }))
        }?;
        match engine.run(engine.session().execute(command))? {
            Reply::Written { count, length, .. } => {
                let after = match place {
                    Place::Offset(offset) => offset + count,
                    Place::End | Place::Replace => length,
                };
                self.offset.store(after, Ordering::Release);
                c_int::try_from(count).map_err(|_| unexpected(count).into())
            }
            reply => Err(unexpected(reply).into()),
        }
    }
}

/// # Safety
/// `session` is NULL or points to PaxosSessionGetSize() bytes; `path` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSOpen(session: *mut CSession, path: *const c_char, flags: c_int) -> *mut File {
    guarded(null_mut(), || {
        // SAFETY: the caller's promise.
        let slot = unsafe { Slot::of(session) }?;
        // SAFETY: the caller's promise.
        let path = unsafe { text::path(path) }?;
        if ![0, FILE_EPHEMERAL].contains(&flags) {
            return Err(Failure::invalid(format!("unknown flags {flags}")));
        }
        let engine = slot.engine()?;
        let file = slot.memory.place(File {
            magic: AtomicU64::new(0),
            engine: Arc::downgrade(&engine),
            memory: slot.memory,
            path,
            offset: AtomicU64::new(0),
            ephemeral: flags == FILE_EPHEMERAL,
        })?;
        // SAFETY: it was just put there.
        unsafe { &(*file).magic }.store(mark(file), Ordering::Release);
        Ok(file)
    })
}

/// # Safety
/// `file` is NULL or came from PFSOpen and was not closed; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSClose(file: *mut File) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let open = unsafe { File::of(file) }?;
        // A second close finds this, as long as the memory has no other use.
        open.magic.store(0, Ordering::Release);
        // SAFETY: it is a file until here; moved out, its room is free.
        unsafe {
            let closed = file.read();
            closed.memory.free(file);
        }
        Ok(())
    })
}

/// # Safety
/// As for PFSRead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSLseek(file: *mut File, offset: off_t) -> c_int {
    guarded_done(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { File::of(file) }?;
        let offset = u64::try_from(offset).map_err(|_| Failure::invalid("offset is negative"))?;
        file.engine()?;
        file.offset.store(offset, Ordering::Release);
        Ok(())
    })
}

/// # Safety
/// `file` is NULL or came from PFSOpen and was not closed; `buffer` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSRead(file: *mut File, buffer: *mut c_char, room: size_t) -> c_int {
    guarded(FAILED, || {
        // SAFETY: the caller's promise.
        let file = unsafe { File::of(file) }?;
        let room = length(room)?.min(c_int::MAX as usize);
        if buffer.is_null() && room > 0 {
            return Err(Failure::invalid("buffer is NULL"));
        }
        // SAFETY: the caller's promise.
        let count = unsafe { file.read(buffer.cast(), room) }?;
        Ok(count as c_int)
    })
}

/// # Safety
/// `file` is NULL or came from PFSOpen and was not closed; `data` points to `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSWrite(file: *mut File, data: *const c_char, count: size_t) -> c_int {
    guarded(FAILED, || {
        // SAFETY: the caller's promise.
        unsafe {
            File::of(file)?.write(data, length(count)?, Aim { place: None, condition: Condition::Always })
        }
    })
}

/// # Safety
/// As for PFSWrite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSAppend(file: *mut File, data: *const c_char, count: size_t) -> c_int {
    let aim = Aim { place: Some(Place::End), condition: Condition::Always };
    // SAFETY: the caller's promise.
    guarded(FAILED, || unsafe { File::of(file)?.write(data, length(count)?, aim) })
}

/// # Safety
/// As for PFSWrite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSReplaceIfVersion(
    file: *mut File,
    data: *const c_char,
    count: size_t,
    version: u64,
) -> c_int {
    let aim = Aim { place: Some(Place::Replace), condition: Condition::Version(version) };
    // SAFETY: the caller's promise.
    guarded(FAILED, || unsafe { File::of(file)?.write(data, length(count)?, aim) })
}

/// # Safety
/// As for PFSWrite; `lock` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PFSReplaceIfLocked(
    file: *mut File,
    data: *const c_char,
    count: size_t,
    lock: *const c_char,
    number: u64,
) -> c_int {
    guarded(FAILED, || {
        // SAFETY: the caller's promise.
        let lock = unsafe { text::name(lock) }?;
        let aim = Aim { place: Some(Place::Replace), condition: Condition::Fence { lock, number } };
        // SAFETY: the caller's promise.
        unsafe { File::of(file)?.write(data, length(count)?, aim) }
    })
}

fn mark(file: *mut File) -> u64 {
    MAGIC ^ (file as usize as u64)
}

/// "kumopfsf" as bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"kumopfsf");
