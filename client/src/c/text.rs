//! Names and paths from C: read up to their NUL, and never further than a name may be long.

use super::failure::Failure;
use kumo_pfs::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use std::ffi::c_char;

/// A path.
///
/// # Safety
/// `text` is NULL, or points to bytes that are readable up to a NUL or for 4097 bytes.
pub(super) unsafe fn path(text: *const c_char) -> Result<String, Failure> {
    // SAFETY: the caller's promise.
    let path = unsafe { bounded(text, PATH_BYTES_MAX, "path") }?;
    if path.split('/').any(|name| name.len() > NAME_BYTES_MAX) {
        return Err(too_long("a name in a path", NAME_BYTES_MAX));
    }
    Ok(path)
}

/// The name of a lock or queue.
///
/// # Safety
/// `text` is NULL, or points to bytes that are readable up to a NUL or for 256 bytes.
pub(super) unsafe fn name(text: *const c_char) -> Result<String, Failure> {
    // SAFETY: the caller's promise.
    unsafe { bounded(text, NAME_BYTES_MAX, "name") }
}

/// A list of members.
///
/// # Safety
/// `text` is NULL, or points to bytes that are readable up to a NUL or for 4097 bytes.
pub(super) unsafe fn members(text: *const c_char) -> Result<String, Failure> {
    // SAFETY: the caller's promise.
    unsafe { bounded(text, MEMBERS_BYTES_MAX, "list of members") }
}

/// # Safety
/// `text` is NULL, or points to bytes that are readable up to a NUL or for `limit + 1` bytes.
unsafe fn bounded(text: *const c_char, limit: usize, what: &str) -> Result<String, Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("{what} is NULL")));
    }
    // SAFETY: the caller's promise; `strnlen` reads no further than the NUL or the limit.
    let length = unsafe { libc::strnlen(text, limit + 1) };
    if length > limit {
        return Err(too_long(what, limit));
    }
    // SAFETY: these bytes were just read.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned).map_err(|_| Failure::new(libc::EILSEQ, format!("{what} is not UTF-8")))
}

fn too_long(what: &str, limit: usize) -> Failure {
    Failure::new(libc::ENAMETOOLONG, format!("{what} is longer than {limit} bytes"))
}

/// Copies a text into a field of a structure for C, which has room for the longest and a NUL.
pub(super) fn copy<const N: usize>(text: &str, field: &mut [c_char; N]) {
    let length = text.len().min(N - 1);
    for (to, from) in field.iter_mut().zip(&text.as_bytes()[..length]) {
        *to = *from as c_char;
    }
    field[length..].fill(0);
}

/// Members in one list: more than any cell has.
const MEMBERS_BYTES_MAX: usize = 4096;
