//! Threads of the library's own. They take no signal: handlers of the program run on the program's threads, and a
//! connection that breaks while it is written to is an error, not the program's end by SIGPIPE.

use std::io;
use std::mem::MaybeUninit;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Starts a thread with all signals blocked.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // A thread inherits the mask of who starts it.
    // SAFETY: `sigfillset` fills the first set, `pthread_sigmask` reads it and fills the second.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = Builder::new().name(name.to_owned()).spawn(work);
    // SAFETY: filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}

/// Counts threads, so that their end can be waited for.
#[derive(Default)]
pub(super) struct Crew {
    count: Mutex<usize>,
    fewer: Condvar,
}

impl Crew {
    pub(super) fn join(&self) {
        *self.count() += 1;
    }

    pub(super) fn leave(&self) {
        *self.count() -= 1;
        self.fewer.notify_all();
    }

    pub(super) fn wait_for_all(&self) {
        let count = self.count();
        let _none = self.fewer.wait_while(count, |count| *count > 0).unwrap_or_else(PoisonError::into_inner);
    }

    fn count(&self) -> std::sync::MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
