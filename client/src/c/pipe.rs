//! [`Pipe`]: bytes between a thread that blocks and a task that must not. Bounded: who is faster waits.

use bytes::{Buf, BytesMut};
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// One direction of a connection.
#[derive(Default)]
pub(super) struct Pipe {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    bytes: BytesMut,
    /// Nothing more comes, or nobody takes any more.
    ended: bool,
    failed: bool,
    /// The task that waits for bytes, or for room.
    task: Option<Waker>,
}

impl Pipe {
    /// The task's side of what the thread puts in; `Ok(0)`: the end.
    pub(super) fn poll_take(&self, cx: &mut Context, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        if state.bytes.is_empty() {
            if state.failed {
                return Poll::Ready(Err(broken()));
            }
            if state.ended {
                return Poll::Ready(Ok(0));
            }
            state.task = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = state.bytes.len().min(into.len());
        state.bytes.copy_to_slice(&mut into[..count]);
        self.changed.notify_one();
        Poll::Ready(Ok(count))
    }

    /// The task's side of what the thread takes out.
    pub(super) fn poll_put(&self, cx: &mut Context, from: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        if state.failed || state.ended {
            return Poll::Ready(Err(broken()));
        }
        let room = PIPE_BYTES_MAX.saturating_sub(state.bytes.len());
        if room == 0 {
            state.task = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = room.min(from.len());
        state.bytes.extend_from_slice(&from[..count]);
        self.changed.notify_one();
        Poll::Ready(Ok(count))
    }

    /// The thread's side: waits for room. `false`: nobody takes any more.
    pub(super) fn put(&self, from: &[u8]) -> bool {
        let full = |state: &mut State| !state.ended && state.bytes.len() >= PIPE_BYTES_MAX;
        let waited = self.changed.wait_while(self.state(), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return false;
        }
        state.bytes.extend_from_slice(from);
        state.wake();
        true
    }

    /// The thread's side: waits for bytes and takes all there are. `None`: the end.
    pub(super) fn take(&self) -> Option<BytesMut> {
        let idle = |state: &mut State| !state.ended && state.bytes.is_empty();
        let waited = self.changed.wait_while(self.state(), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return None;
        }
        let bytes = state.bytes.split();
        state.wake();
        Some(bytes)
    }

    /// Nothing more goes through.
    pub(super) fn end(&self, failed: bool) {
        let mut state = self.state();
        state.ended = true;
        state.failed |= failed;
        state.wake();
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the program's transport failed")
}

/// Bytes on their way in one direction: a large write then takes few calls.
const PIPE_BYTES_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_full_pipe_waits_for_its_taker() {
        let pipe = Pipe::default();
        let cx = &mut Context::from_waker(Waker::noop());
        let bytes = vec![7; PIPE_BYTES_MAX + 5];
        assert!(matches!(pipe.poll_put(cx, &bytes), Poll::Ready(Ok(PIPE_BYTES_MAX))));
        assert!(pipe.poll_put(cx, &bytes).is_pending());
        assert_eq!(pipe.take().map(|taken| taken.len()), Some(PIPE_BYTES_MAX));
        assert!(matches!(pipe.poll_put(cx, b"more"), Poll::Ready(Ok(4))));
    }

    #[test]
    fn what_arrived_before_the_end_is_still_read() {
        let pipe = Pipe::default();
        let cx = &mut Context::from_waker(Waker::noop());
        let mut room = [0; 4];
        assert!(pipe.poll_take(cx, &mut room).is_pending());
        assert!(pipe.put(b"bytes"));
        pipe.end(false);
        assert!(matches!(pipe.poll_take(cx, &mut room), Poll::Ready(Ok(4))));
        assert!(matches!(pipe.poll_take(cx, &mut room), Poll::Ready(Ok(1))));
        assert!(matches!(pipe.poll_take(cx, &mut room), Poll::Ready(Ok(0))));
        assert!(!pipe.put(b"late"));
        pipe.end(true);
        assert!(matches!(pipe.poll_take(cx, &mut room), Poll::Ready(Err(_))));
        assert!(matches!(pipe.poll_put(cx, b"late"), Poll::Ready(Err(_))));
    }

    #[test]
    fn a_thread_that_waits_is_let_go_at_the_end() {
        let pipe = Pipe::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pipe.take());
            pipe.end(false);
            assert_eq!(waiting.join().unwrap(), None);
        });
    }
}
