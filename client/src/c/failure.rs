//! [`Failure`]: how a call tells C that it failed: a number in `errno`, and a sentence kept for this thread.

use crate::error::Error;
use kumo_pfs::{DEPTH_MAX, FILE_BYTES_MAX, MESSAGE_BYTES_MAX, PATH_BYTES_MAX, Refusal, WRITE_BYTES_MAX};
use kumo_session::EndReason;
use libc::c_int;
use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call failed: what `errno` becomes, and what `PaxosSessionGetErr` says.
#[derive(Debug)]
pub(super) struct Failure {
    number: c_int,
    message: String,
}

impl Failure {
    pub(super) fn new(number: c_int, message: impl Into<String>) -> Failure {
        Failure { number, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, message)
    }

    fn tell(&self) {
        MESSAGE.with(|kept| {
            let length = floor_char(&self.message, MESSAGE_BYTES - 1);
            // SAFETY: the buffer belongs to this thread, and nothing of ours holds a reference to it.
            let buffer = unsafe { &mut *kept.get() };
            buffer[..length].copy_from_slice(&self.message.as_bytes()[..length]);
            buffer[length] = 0;
        });
        // SAFETY: the location of this thread's errno is always valid.
        unsafe { *libc::__errno_location() = self.number };
    }
}

/// Runs a call for C: `failed` is what it returns when it fails. A panic ends here: it must not cross into C.
pub(super) fn guarded<T>(failed: T, call: impl FnOnce() -> Result<T, Failure>) -> T {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(libc::EIO, "internal error of libpfs"),
    };
    failure.tell();
    failed
}

/// As [`guarded`] for calls that return 0.
pub(super) fn guarded_done(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    guarded(FAILED, || call().map(|()| 0))
}

/// The message of this thread's last failure.
pub(super) fn message() -> *const c_char {
    MESSAGE.with(|kept| kept.get().cast_const().cast())
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(number(&error), error.to_string())
    }
}

fn number(error: &Error) -> c_int {
    match error {
        Error::Refused(refusal) => refused(refusal),
        Error::CellRefused(_) => libc::ECONNREFUSED,
        Error::Lost | Error::ForeignCell(_) => libc::ECONNABORTED,
        Error::Ended(reason) => match reason {
            EndReason::Closed => libc::ENOTCONN,
            EndReason::Expired | EndReason::Killed | EndReason::Unknown => libc::ECONNABORTED,
        },
        Error::TimedOut => libc::ETIMEDOUT,
        Error::Unreachable(_) => libc::EHOSTUNREACH,
        Error::NoMaster => libc::EHOSTDOWN,
        Error::NoSession => libc::ENOTCONN,
        Error::Busy | Error::Changing(_) => libc::EAGAIN,
        Error::LockInUse(_) => libc::EDEADLK,
        Error::EventsInUse => libc::EBUSY,
        Error::Protocol(_) => libc::EPROTO,
        Error::Entropy => libc::EIO,
    }
}

fn refused(refusal: &Refusal) -> c_int {
    match refusal {
        Refusal::NotFound(_) => libc::ENOENT,
        Refusal::Exists(_) => libc::EEXIST,
        Refusal::NotDirectory(_) => libc::ENOTDIR,
        Refusal::IsDirectory(_) => libc::EISDIR,
        Refusal::NotEmpty(_) => libc::ENOTEMPTY,
        Refusal::BadPath(_) | Refusal::BadName(_) => libc::EINVAL,
        Refusal::Version(_) | Refusal::Fenced => libc::ESTALE,
        Refusal::Locked(_) => libc::EBUSY,
        Refusal::NotLocked(_) | Refusal::NotAllowed(_) => libc::EPERM,
        Refusal::Empty(_) | Refusal::NoMessage(_) => libc::ENOMSG,
        Refusal::Limit(_, limit) => exceeded(*limit),
        Refusal::Malformed => libc::EPROTO,
    }
}

/// Which limit it was shows in its number: one thing too large, a path too long, or a quota of the cell.
fn exceeded(limit: u64) -> c_int {
    match limit {
        WRITE_BYTES_MAX | FILE_BYTES_MAX => libc::EFBIG,
        _ if limit == PATH_BYTES_MAX as u64 || limit == DEPTH_MAX as u64 => libc::ENAMETOOLONG,
        _ => libc::ENOSPC,
    }
}

const _: () = assert!(WRITE_BYTES_MAX == MESSAGE_BYTES_MAX);

/// The longest prefix of at most `limit` bytes that ends between two characters.
fn floor_char(text: &str, limit: usize) -> usize {
    (0..=limit.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0)
}

thread_local! {
    // No destructor: it may be read until the thread's very end.
    static MESSAGE: UnsafeCell<[u8; MESSAGE_BYTES]> = const { UnsafeCell::new([0; MESSAGE_BYTES]) };
}

/// What a call that returns a number returns when it fails.
pub(super) const FAILED: c_int = -1;

/// Room for a message: the longest ones name a path, and are cut.
const MESSAGE_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn said() -> String {
        // SAFETY: the message is terminated, and this thread changes it only by failing again.
        unsafe { CStr::from_ptr(message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_failure_leaves_a_number_and_a_sentence() {
        let result = guarded_done(|| Err(Error::Refused(Refusal::NotFound("/x".into())).into()));
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOENT));
        assert_eq!((result, said().as_str()), (-1, "no such file or directory: /x"));
        assert_eq!(guarded_done(|| panic!("as a test")), -1);
        assert_eq!(said(), "internal error of libpfs");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        Failure::invalid("雲".repeat(1000)).tell();
        assert_eq!(said(), "雲".repeat((MESSAGE_BYTES - 1) / 3));
    }

    #[test]
    fn limits_are_told_apart() {
        for (limit, number) in [
            (WRITE_BYTES_MAX, libc::EFBIG),
            (FILE_BYTES_MAX, libc::EFBIG),
            (PATH_BYTES_MAX as u64, libc::ENAMETOOLONG),
            (1_000_000, libc::ENOSPC),
        ] {
            assert_eq!(refused(&Refusal::Limit("a thing".into(), limit)), number);
        }
    }
}
