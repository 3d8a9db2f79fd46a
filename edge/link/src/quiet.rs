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

    #[test]
    fn it_is_polled_when_it_woke_and_wakes_who_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let mut looks = 0;
            let mut receiver = Box::pin(receiver);
            let mut quiet = Quiet::new(poll_fn(move |context| {
                looks += 1;
                receiver.as_mut().poll(context).map(|said| (said, looks))
            }));
            let mut sender = Some(sender);
            let mut turns = 0;
            let ended = poll_fn(|context| {
                turns += 1;
                if turns < 10 {
                    context.waker().wake_by_ref();
                } else if let Some(sender) = sender.take() {
                    // Nothing but this wakes the loop again.
                    sender.send("said").unwrap();
                }
                quiet.poll(context)
            });
            assert_eq!(ended.await, (Ok("said"), 2));
        });
    }
}
