//! [`Alarm`]: one timer for all that a loop waits for.

use kumo_paxos::Time;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Wakes a loop when the earliest of its deadlines has come.
pub struct Alarm {
    timer: Pin<Box<Sleep>>,
    /// When the timer fires; it may be earlier than needed, never later.
    at: Option<Time>,
}

impl Default for Alarm {
    fn default() -> Alarm {
        Alarm { timer: Box::pin(tokio::time::sleep(Duration::ZERO)), at: None }
    }
}

impl Alarm {
    /// Wakes the task at `wanted`.
    pub fn set(&mut self, now: Time, wanted: Time, context: &mut Context) {
        // An earlier alarm is left as it is: it costs one idle turn, moving it would cost more on every turn. But one that
        // goes off soon, again and again put off, would cost an idle turn each time.
        if self.at.is_none_or(|at| at > wanted || at < wanted && at.since(now) < SOON_MICROS) {
            let pause = Duration::from_micros(wanted.since(now));
            self.timer.as_mut().reset(Instant::now() + pause);
            self.at = Some(wanted);
        }
        if self.timer.as_mut().poll(context).is_ready() {
            self.at = None;
            context.waker().wake_by_ref();
        }
    }
}

/// Sooner than this an alarm is put off when it is not needed so early.
const SOON_MICROS: u64 = 2_500;
