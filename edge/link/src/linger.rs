//! [`Linger`]: a loop that has just had something to do looks again, a few times, before it sleeps.
//!
//! To put a processor to sleep and to wake it costs more than a small turn, of whoever wakes and of who is woken. So where
//! the next thing is likely to come within that time the loop stays awake for it; whoever else wants the processor
//! has it between two looks.

use crate::clock;
use kumo_paxos::Time;
use std::task::Context;
use std::time::Duration;

/// How a loop waits. It lingers only if its last wait of the same kind was a short one: a process that has little to do
/// sleeps.
#[derive(Debug)]
pub struct Linger {
    /// So long it looks on.
    micros: u64,
    kind: Kind,
    /// It has waited since then, by the beginning of the turn before.
    since: Time,
    /// It looks again until then; none: it may sleep.
    until: Option<Time>,
    looked_at: Time,
    /// Others could run before this look.
    yielded: bool,
    /// Until then it sleeps at once: between two looks somebody had the processor for long. Who sleeps is woken before such
    /// a one has done, and who is awake is not.
    rests_until: Time,
    /// For how long, last time: longer each time, and shorter with every wait that went well.
    rest_micros: u64,
    /// Something came in this turn: another wait begins.
    heard: bool,
    /// The last wait was short.
    soon_expected: bool,
    soon_idle: bool,
}

/// What a loop waits for.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// For somebody who was asked.
    Expecting,
    /// For whatever may come.
    Idle,
}

impl Linger {
    pub fn new(linger: Duration) -> Linger {
        Linger {
            micros: linger.as_micros() as u64,
            kind: Kind::Idle,
            since: Time(0),
            until: None,
            looked_at: Time(0),
            yielded: false,
            rests_until: Time(0),
            rest_micros: 0,
            heard: false,
            soon_expected: true,
            soon_idle: false,
        }
    }

    /// At the beginning of a turn; `woken`: a socket has something. True: it was one more look, and there is nothing yet. Then
    /// others run, and the runtime asks the kernel what came, without waiting for it.
    pub fn looks_on(&mut self, woken: bool, context: &mut Context) -> bool {
        if self.until.is_none() {
            return false;
        }
        let now = clock::now();
        let goes_on = self.goes_on(now, woken);
        if goes_on {
            (self.looked_at, self.yielded) = (now, true);
            std::thread::yield_now();
            context.waker().wake_by_ref();
        }
        goes_on
    }

    /// After a look.
    fn goes_on(&mut self, now: Time, woken: bool) -> bool {
        let away = now.since(self.looked_at) > AWAY_MICROS;
        if away {
            self.rest_micros = (2 * self.rest_micros).clamp(REST_MICROS_MIN, REST_MICROS_MAX);
            self.rests_until = now.plus_micros(self.rest_micros);
        } else if woken && self.yielded {
            self.rest_micros -= self.rest_micros / REST_DECAY;
        }
        // A whole turn follows the last look: it also sees what does not come from a socket.
        self.until = self.until.filter(|&until| !away && !woken && now < until);
        self.until.is_some()
    }

    /// Something came in the turn that began at `now`.
    pub fn heard(&mut self, now: Time) {
        let soon = now.since(self.since) <= SOON * self.micros;
        match self.kind {
            Kind::Expecting => self.soon_expected = soon,
            Kind::Idle => self.soon_idle = soon,
        }
        self.heard = true;
    }

    /// At the end of a turn that leaves nothing to do before `deadline`; `expects`: somebody was asked and has not answered.
    /// True: the loop is to be turned again at once.
    pub fn stays(&mut self, now: Time, deadline: Option<Time>, expects: bool, context: &mut Context) -> bool {
        let stays = self.waits(now, deadline, expects);
        if stays {
            // The first look comes before anybody else has the processor: a turn takes long enough for something to come, and
            // to give the processor away and have it back is dearer than a look.
            (self.looked_at, self.yielded) = (clock::now(), false);
            context.waker().wake_by_ref();
        }
        stays
    }

    /// From the end of a turn on.
    fn waits(&mut self, now: Time, deadline: Option<Time>, expects: bool) -> bool {
        if std::mem::take(&mut self.heard) {
            self.kind = if expects { Kind::Expecting } else { Kind::Idle };
            let soon = if expects { self.soon_expected } else { self.soon_idle };
            self.since = now;
            let until = now.plus_micros(self.micros);
            let until = deadline.map_or(until, |deadline| deadline.min(until));
            self.until = (soon && now >= self.rests_until && until > now).then_some(until);
        }
        self.until.is_some()
    }
}

/// What a process is told unless it is told otherwise: about what it takes to ask another one and to hear its answer.
pub const LINGER: Duration = Duration::from_micros(150);

/// What comes within so many times that comes soon: where nobody sleeps, all comes sooner.
const SOON: u64 = 2;

/// Longer than the turns of those who have little to do: somebody computes.
const AWAY_MICROS: u64 = 1_000;

/// It tries again after so long, which is lost if somebody computes still: a few milliseconds.
const REST_MICROS_MIN: u64 = 10_000;
const REST_MICROS_MAX: u64 = 1_000_000;

/// By this part of it a rest gets shorter.
const REST_DECAY: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn waits(linger: &mut Linger, at: u64, expects: bool) -> bool {
        linger.heard(Time(at));
        let waits = linger.waits(Time(at), None, expects);
        (linger.looked_at, linger.yielded) = (Time(at), true);
        waits
    }

    #[test]
    fn it_lingers_where_the_last_wait_of_the_kind_was_short() {
        let mut linger = Linger::new(LINGER);
        assert!(!waits(&mut linger, 1_000_000, false), "the first comes after a long silence");
        assert!(!waits(&mut linger, 2_000_000, false));
        assert!(waits(&mut linger, 2_000_100, false));
        assert!(waits(&mut linger, 2_000_200, true), "an answer");
        assert!(waits(&mut linger, 2_000_300, false));
        assert!(waits(&mut linger, 2_000_400, true));
        assert!(waits(&mut linger, 2_009_000, false), "the answer came late, but the last silence was short");
        assert!(!waits(&mut linger, 2_009_100, true), "the last answer came late");
        assert!(waits(&mut linger, 2_009_200, true), "this one did not");
    }

    #[test]
    fn who_is_told_so_sleeps_at_once() {
        let mut linger = Linger::new(Duration::ZERO);
        assert!(!waits(&mut linger, 100, true));
        assert!(!waits(&mut linger, 100, true));
    }

    #[test]
    fn a_deadline_is_not_lingered_over() {
        let mut linger = Linger::new(LINGER);
        linger.heard(Time(100));
        assert!(linger.waits(Time(100), Some(Time(110)), true));
        assert_eq!(linger.until, Some(Time(110)));
        linger.heard(Time(120));
        assert!(!linger.waits(Time(120), Some(Time(120)), true), "it is due");
    }

    #[test]
    fn where_others_compute_it_sleeps() {
        let mut linger = Linger::new(LINGER);
        let mut at = 1_000_000;
        for rest in [REST_MICROS_MIN, 2 * REST_MICROS_MIN, 4 * REST_MICROS_MIN] {
            linger.since = Time(at);
            assert!(waits(&mut linger, at, true), "it tries again");
            at += AWAY_MICROS + 1;
            assert!(!linger.goes_on(Time(at), true), "something woke, and it saw that late");
            at += rest;
            linger.since = Time(at - 1);
            assert!(!waits(&mut linger, at - 1, true));
        }
        for _ in 0..1000 {
            linger.since = Time(at);
            assert!(waits(&mut linger, at, true));
            assert!(!linger.goes_on(Time(at + 1), true));
        }
        assert!(linger.rest_micros < REST_MICROS_MIN, "nobody computes any more");
    }

    #[test]
    fn a_look_before_which_nobody_could_run_says_nothing_of_others() {
        let context = &mut Context::from_waker(Waker::noop());
        let mut linger = Linger::new(LINGER);
        linger.rest_micros = REST_MICROS_MAX;
        linger.since = clock::now();
        linger.heard(linger.since);
        assert!(
            linger.stays(clock::now(), None, true, context),
            "it looks once more, and gives nothing away before"
        );
        let looked_at = linger.looked_at;
        assert!(!linger.goes_on(looked_at, true), "something woke");
        assert_eq!(linger.rest_micros, REST_MICROS_MAX);
        linger.yielded = true;
        linger.until = Some(looked_at.plus_micros(1));
        assert!(!linger.goes_on(looked_at, true));
        assert!(linger.rest_micros < REST_MICROS_MAX, "others could have computed, and did not");
    }

    #[test]
    fn it_looks_on_until_something_woke_or_the_time_is_over() {
        let mut linger = Linger::new(LINGER);
        assert!(waits(&mut linger, 100, true));
        assert!(linger.goes_on(Time(110), false));
        assert!(!linger.goes_on(Time(100 + linger.micros), false), "a whole turn is due");
        assert!(!linger.waits(Time(300), None, true), "nothing came in it");
        assert!(waits(&mut linger, 310, true));
        assert!(!linger.goes_on(Time(320), true), "something woke");
    }

    #[test]
    fn who_heard_nothing_does_not_look_on() {
        let context = &mut Context::from_waker(Waker::noop());
        let mut linger = Linger::new(LINGER);
        assert!(!linger.looks_on(false, context));
        assert!(!linger.stays(clock::now(), None, true, context));
    }
}
