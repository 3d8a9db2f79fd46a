//! [`ReadyList`]: which sockets have something to do, in the order they were woken.

use kumo_session::ConnectionId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// A socket of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// A connection that arrived.
    Arrival(ConnectionId),
    /// A link this node dials, by its number.
    Link(u64),
}

/// Sockets that were woken since the drive loop last looked. The lock is never contended: the runtime that
/// wakes and the loop that looks are one thread.
#[derive(Debug, Default)]
pub struct ReadyList {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tokens: Vec<Token>,
    /// The drive loop's own waker.
    task: Option<Waker>,
}

impl ReadyList {
    /// Wake this task when a socket becomes ready.
    pub fn watch(&self, task: &Waker) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            state.task = Some(task.clone());
        }
    }

    /// Moves the list into `tokens`, which must be empty.
    pub fn take(&self, tokens: &mut Vec<Token>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.tokens, tokens);
    }

    /// Nothing woke since the last `take`.
    pub fn is_empty(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).tokens.is_empty()
    }

    fn push(&self, token: Token) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tokens.push(token);
        if let Some(task) = &state.task {
            task.wake_by_ref();
        }
    }
}

/// Puts one socket on the ready list, once until it is looked at.
#[derive(Debug)]
pub struct Signal {
    token: Token,
    queued: AtomicBool,
    list: Arc<ReadyList>,
}

impl Signal {
    pub fn new(token: Token, list: &Arc<ReadyList>) -> Arc<Signal> {
        Arc::new(Signal { token, queued: AtomicBool::new(false), list: list.clone() })
    }

    /// The loop looks at this socket now: the next wake counts again.
    pub fn seen(&self) {
        // A swap: what was said before the last wake is seen by the look that follows.
        self.queued.swap(false, Ordering::AcqRel);
    }

    /// Look at this socket in the next turn.
    pub fn raise(&self) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.list.push(self.token);
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_listed_once_until_it_is_seen() {
        let list = Arc::new(ReadyList::default());
        let signal = Signal::new(Token::Link(3), &list);
        let mut tokens = Vec::new();
        signal.raise();
        Waker::from(signal.clone()).wake();
        list.take(&mut tokens);
        assert_eq!(tokens, [Token::Link(3)]);
        tokens.clear();
        signal.raise();
        list.take(&mut tokens);
        assert!(tokens.is_empty(), "not seen yet");
        signal.seen();
        signal.raise();
        list.take(&mut tokens);
        assert_eq!(tokens, [Token::Link(3)]);
    }
}
