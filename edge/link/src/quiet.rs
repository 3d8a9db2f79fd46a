//! [`Quiet`]: a future that is polled when it woke, and not in every turn of the loop that waits for it.

use crate::{ReadyList, Signal, Token};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Waits for what happens once in the life of a loop: to look for it costs next to nothing meanwhile.
pub struct Quiet<F> {
    future: Pin<Box<F>>,
    list: Arc<ReadyList>,
    signal: Arc<Signal>,
    waker: Waker,
}

impl<F: Future> Quiet<F> {
    pub fn new(future: F) -> Quiet<F> {
        let list = Arc::default();
        let signal = Signal::new(Token::Link(0), &list);
        // The first look registers it with whatever will wake it.
        signal.raise();
        Quiet { future: Box::pin(future), list, waker: Waker::from(signal.clone()), signal }
    }

    /// As the future's own; not to be called again once it is ready.
    pub fn poll(&mut self, context: &mut Context) -> Poll<F::Output> {
        self.list.watch(context.waker());
        if self.list.is_empty() {
            return Poll::Pending;
        }
        self.list.take(&mut Vec::new());
        self.signal.seen();
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_is_polled_when_it_woke_and_wakes_who_waits() {
        let (looks, registered) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(None::<Waker>)));
        let (counted, kept) = (looks.clone(), registered.clone());
        let mut quiet = Quiet::new(poll_fn(move |context| {
            *kept.lock().unwrap() = Some(context.waker().clone());
            // Woken once for nothing.
            if counted.fetch_add(1, Ordering::Relaxed) < 2 { Poll::Pending } else { Poll::Ready("said") }
        }));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut turn = || quiet.poll(&mut Context::from_waker(&waker));
        let wake = || registered.lock().unwrap().take().unwrap().wake();
        (0..5).for_each(|_| assert!(turn().is_pending()));
        assert_eq!(looks.load(Ordering::Relaxed), 1);
        wake();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        (0..5).for_each(|_| assert!(turn().is_pending()));
        assert_eq!(looks.load(Ordering::Relaxed), 2);
        wake();
        assert_eq!(turn(), Poll::Ready("said"));
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    }
}
