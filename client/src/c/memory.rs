//! [`Memory`]: the program's `malloc` and `free`, for what it sees of ours; and its bytes, for what we see of it.

use super::failure::Failure;
use bytes::Bytes;
use libc::{c_void, size_t};
use std::ffi::c_char;
use std::sync::Arc;

pub(super) type Malloc = unsafe extern "C" fn(size_t) -> *mut c_void;
pub(super) type Free = unsafe extern "C" fn(*mut c_void);

/// Where structures for the program come from.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    malloc: Malloc,
    free: Free,
}

impl Memory {
    /// NULL means the C library's; one without the other is refused.
    pub(super) fn new(malloc: Option<Malloc>, free: Option<Free>) -> Result<Memory, Failure> {
        match (malloc, free) {
            (Some(malloc), Some(free)) => Ok(Memory { malloc, free }),
            (None, None) => Ok(Memory { malloc: libc::malloc, free: libc::free }),
            (Some(_), None) | (None, Some(_)) => Err(Failure::invalid("malloc and free come together")),
        }
    }

    pub(super) fn place<T>(&self, value: T) -> Result<*mut T, Failure> {
        // SAFETY: the program gave us the function to be called so.
        let room = unsafe { (self.malloc)(size_of::<T>()) }.cast::<T>();
        if room.is_null() || !room.is_aligned() {
            return Err(none());
        }
        // SAFETY: fresh memory of this size, and aligned.
        unsafe { room.write(value) };
        Ok(room)
    }

    /// A copy of `bytes`, which the program frees.
    pub(super) fn copy(&self, bytes: &[u8]) -> Result<*mut c_char, Failure> {
        // SAFETY: the program gave us the function to be called so. An empty copy gets an address too.
        let room = unsafe { (self.malloc)(bytes.len().max(1)) }.cast::<u8>();
        if room.is_null() {
            return Err(none());
        }
        // SAFETY: fresh memory of this size.
        unsafe { room.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(room.cast())
    }

    /// # Safety
    /// `room` came from [`place`](Memory::place), its value has been taken out, and nobody uses it any more.
    pub(super) unsafe fn free<T>(&self, room: *mut T) {
        // SAFETY: the caller's promise.
        unsafe { (self.free)(room.cast()) }
    }
}

fn none() -> Failure {
    Failure::new(libc::ENOMEM, "no memory")
}

/// A length that came as `size_t` or as `int`: what a negative number became is refused.
pub(super) fn length(length: impl TryInto<isize>) -> Result<usize, Failure> {
    let length = length.try_into().unwrap_or(-1);
    usize::try_from(length).map_err(|_| Failure::invalid("length is negative"))
}

/// Lets `work` see the program's bytes as [`Bytes`], without a copy.
///
/// # Safety
/// `data` points to `length` readable bytes that nobody changes meanwhile, or is NULL and `length` is 0.
pub(super) unsafe fn lend<T>(
    data: *const c_char,
    length: usize,
    work: impl FnOnce(Bytes) -> T,
) -> Result<T, Failure> {
    if length == 0 {
        return Ok(work(Bytes::new()));
    }
    if data.is_null() {
        return Err(Failure::invalid("data is NULL"));
    }
    let lent = Arc::new(());
    let result = work(Bytes::from_owner(Lent { data: data.cast(), length, _kept: lent.clone() }));
    if Arc::strong_count(&lent) > 1 {
        // Somebody kept what is not ours: better to end here than to read the program's memory later.
        std::process::abort();
    }
    Ok(result)
}

/// The program's bytes while they are lent to us.
struct Lent {
    data: *const u8,
    length: usize,
    _kept: Arc<()>,
}

// SAFETY: they are only read, and `lend` returns when nobody can read them any more.
unsafe impl Send for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `lend` has the caller's promise that they are readable while this lives.
        unsafe { std::slice::from_raw_parts(self.data, self.length) }
    }
}
