//! [`Pace`]: how fast a server copies. Within the job's rate, and slowly enough that clients who ask meanwhile hardly
//! notice; as fast as it goes while nobody asks.

use kumo_paxos::Time;

/// What a copy may do now. It only says when: what is copied, and in which order, does not depend on it.
///
/// Copying is counted in *work*: the bytes of a record, and what any record costs. While clients ask, all servers together
/// bring [`WORK_PER_SECOND`] to each one that catches up, spread evenly over the second; so a replace ends however
/// busy the store is.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Bytes of the job's rate.
    rate: Allowance,
    /// Work beside that of clients.
    work: Allowance,
    /// This server's part of the work of a second.
    share: u64,
    /// Whether clients come first at all.
    courteous: bool,
    /// An operator has said how fast: clients were thought of.
    ordered: bool,
    /// When a client last wanted something.
    asked_at: Option<Time>,
}

impl Pace {
    pub fn new(now: Time, courteous: bool) -> Pace {
        let none = Allowance { left: 0, counted_at: now };
        Pace { rate: none, work: none, share: WORK_PER_SECOND, courteous, ordered: false, asked_at: None }
    }

    /// A client wants something.
    pub fn asked(&mut self, now: Time) {
        self.asked_at = Some(now);
    }

    /// A new job: what the last one left over is not its own.
    pub fn begin(&mut self, now: Time) {
        *self = Pace { asked_at: self.asked_at, ..Pace::new(now, self.courteous) };
    }

    /// So many servers copy, and this one copies to so many: none is to send more than one may be brought.
    pub fn divide(&mut self, senders: usize, receivers: usize) {
        let (senders, receivers) = (senders.max(1) as u64, receivers.max(1) as u64);
        self.share = (WORK_PER_SECOND * receivers / senders).clamp(1, WORK_PER_SECOND);
    }

    /// Counts the time since it was last counted.
    pub fn allow(&mut self, now: Time, rate: u64) {
        self.ordered = rate != 0;
        self.rate.grow(now, rate, rate);
        if self.is_calm(now) {
            self.work = Allowance { left: 0, counted_at: now };
        } else {
            self.work.grow(now, self.share, self.share * AHEAD_MICROS / 1_000_000);
        }
    }

    /// Nobody waits for this server but those that it copies to.
    fn is_calm(&self, now: Time) -> bool {
        self.asked_at.is_none_or(|asked| now.since(asked) >= CALM_MICROS)
    }

    pub fn within_rate(&self, rate: u64) -> bool {
        rate == 0 || self.rate.left > 0
    }

    /// Clients come first now; when to go on.
    pub fn waits_until(&self, now: Time) -> Option<Time> {
        if !self.courteous || self.ordered || self.is_calm(now) || self.work.left > 0 {
            return None;
        }
        // Until there is more than nothing.
        let missing = self.work.left.unsigned_abs().saturating_add(1);
        let micros = missing.saturating_mul(1_000_000).div_ceil(self.share);
        Some(now.plus_micros(micros.min(CALM_MICROS)))
    }

    pub fn sent(&mut self, bytes: u64) {
        self.rate.spend(bytes);
    }

    /// Work is begun.
    pub fn spend(&mut self, work: u64) {
        self.work.spend(work);
    }

    /// It was found that most of that work need not be done.
    pub fn spare(&mut self, work: u64) {
        self.work.left = self.work.left.saturating_add(clamped(work / COMPARED_SHARE * (COMPARED_SHARE - 1)));
    }
}

/// Something that is given a little at a time.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    /// Below 0: spent ahead, and to be waited for.
    left: i64,
    counted_at: Time,
}

impl Allowance {
    fn grow(&mut self, now: Time, per_second: u64, most: u64) {
        let more = u128::from(per_second) * u128::from(now.since(self.counted_at)) / 1_000_000;
        self.counted_at = now;
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        self.left = self.left.saturating_add(more).min(clamped(most));
    }

    fn spend(&mut self, amount: u64) {
        self.left = self.left.saturating_sub(clamped(amount));
    }
}

fn clamped(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// The work of bringing records of so many bytes.
pub(crate) fn work_of(records: usize, bytes: usize) -> u64 {
    BUCKET_WORK + records as u64 * RECORD_WORK + bytes as u64
}

/// What one server that catches up is brought in a second while clients ask: a hundred thousand small records, or 40 MB. It is a
/// quarter of a core at either end, and a third of what a link of a gigabit takes.
const WORK_PER_SECOND: u64 = 40_000_000;

/// To find, read, send and put a record takes as long as to move so many bytes.
const RECORD_WORK: u64 = 256;

/// The same of a message there and back.
const BUCKET_WORK: u64 = 4_096;

/// To compare is this part of the work of a record.
const COMPARED_SHARE: u64 = 4;

/// What was not done in this time is not done later at once: clients would wait for it.
const AHEAD_MICROS: u64 = 2_000;

/// Clients that were silent for so long may not ask again soon.
const CALM_MICROS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// What is begun in a while of steps of so many microseconds, and the most of one step.
    fn work_in(pace: &mut Pace, now: &mut Time, micros: u64, step: u64, asked: bool) -> (u64, u64) {
        let (mut done, mut most) = (0, 0);
        let until = now.plus_micros(micros);
        while *now < until {
            *now = now.plus_micros(step);
            if asked {
                pace.asked(*now);
            }
            pace.allow(*now, 0);
            let before = done;
            // As many as are let in at once.
            for _ in 0..8 {
                if pace.waits_until(*now).is_some() {
                    break;
                }
                pace.spend(BUCKET);
                done += BUCKET;
            }
            most = most.max(done - before);
        }
        (done, most)
    }

    const BUCKET: u64 = 48_000;

    #[test]
    fn a_bounded_share_while_clients_ask_and_all_there_is_when_they_do_not() {
        let (mut pace, mut now) = (Pace::new(Time(0), true), Time(0));
        let (calm, _) = work_in(&mut pace, &mut now, SECOND, 1_000, false);
        assert_eq!(calm, 8 * BUCKET * 1_000, "nobody asks, and it waits");
        let (busy, most) = work_in(&mut pace, &mut now, 10 * SECOND, 1_000, true);
        assert!(busy <= 10 * WORK_PER_SECOND + BUCKET, "{busy}");
        assert!(busy >= 9 * WORK_PER_SECOND, "{busy}: it would not end in time");
        assert!(most <= WORK_PER_SECOND * AHEAD_MICROS / SECOND + BUCKET, "{most} at once");
        // One who asks once in a while is not forgotten between; after a second it is.
        let (still, _) = work_in(&mut pace, &mut now, SECOND / 2, 1_000, false);
        assert!(still <= WORK_PER_SECOND / 2 + BUCKET, "{still}");
        work_in(&mut pace, &mut now, SECOND / 2, 1_000, false);
        let (calm, _) = work_in(&mut pace, &mut now, SECOND, 1_000, false);
        assert_eq!(calm, 8 * BUCKET * 1_000);
    }

    #[test]
    fn a_long_turn_is_not_made_up_for_at_once() {
        let (mut pace, mut now) = (Pace::new(Time(0), true), Time(0));
        let (_, most) = work_in(&mut pace, &mut now, 10 * SECOND, 500_000, true);
        assert!(most <= WORK_PER_SECOND * AHEAD_MICROS / SECOND + BUCKET, "{most} at once");
    }

    #[test]
    fn it_says_when_to_go_on_and_then_goes_on() {
        let (mut pace, mut now) = (Pace::new(Time(0), true), Time(0));
        pace.asked(now);
        pace.allow(now, 0);
        for work in [1, BUCKET, 3 * WORK_PER_SECOND] {
            pace.spend(work);
            let mut waits = 0;
            while let Some(until) = pace.waits_until(now) {
                assert!(until > now, "it would never sleep");
                now = until;
                pace.asked(now);
                pace.allow(now, 0);
                waits += 1;
            }
            assert!((1..=4).contains(&waits), "{waits} waits for {work}");
        }
    }

    #[test]
    fn many_senders_bring_one_receiver_no_more_than_one_sender() {
        for (senders, receivers) in [(1, 1), (3, 1), (3, 3), (2, 5), (100, 1), (1_024, 1)] {
            let (mut pace, mut now) = (Pace::new(Time(0), true), Time(0));
            pace.divide(senders, receivers);
            let (done, _) = work_in(&mut pace, &mut now, 20 * SECOND, 1_000, true);
            let part = 20 * WORK_PER_SECOND * receivers.min(senders) as u64 / senders as u64;
            assert!(done > 0 && done <= part + BUCKET, "{senders} to {receivers}: {done} of {part}");
        }
    }

    #[test]
    fn the_rate_of_the_job_holds_whether_clients_ask_or_not() {
        for asked in [false, true] {
            let (mut pace, mut now, mut sent) = (Pace::new(Time(0), true), Time(0), 0);
            for _ in 0..10_000 {
                now = now.plus_micros(1_000);
                if asked {
                    pace.asked(now);
                }
                pace.allow(now, 1_000_000);
                if pace.within_rate(1_000_000) && pace.waits_until(now).is_none() {
                    pace.spend(work_of(64, 8_000));
                    pace.sent(8_000);
                    sent += 8_000;
                }
            }
            assert!((9_900_000..=10_008_000).contains(&sent), "{sent}");
        }
    }

    #[test]
    fn who_orders_a_rate_gets_it_beside_clients_too() {
        let (mut pace, mut now) = (Pace::new(Time(0), true), Time(0));
        let rate = 5 * WORK_PER_SECOND;
        let mut sent = 0;
        for _ in 0..2_000 {
            now = now.plus_micros(1_000);
            pace.asked(now);
            pace.allow(now, rate);
            while pace.within_rate(rate) && pace.waits_until(now).is_none() {
                pace.spend(BUCKET);
                pace.sent(BUCKET);
                sent += BUCKET;
            }
        }
        assert!(sent >= 2 * rate - BUCKET, "{sent}");
    }

    #[test]
    fn what_is_only_compared_is_given_back() {
        let (mut pace, mut now) = (Pace::new(Time(0), true), Time(0));
        let mut compared = 0;
        while now < Time(10 * SECOND) {
            now = now.plus_micros(1_000);
            pace.asked(now);
            pace.allow(now, 0);
            while pace.waits_until(now).is_none() {
                pace.spend(BUCKET);
                // It is the same.
                pace.spare(BUCKET);
                compared += BUCKET;
            }
        }
        let wanted = 30 * WORK_PER_SECOND..=41 * WORK_PER_SECOND;
        assert!(wanted.contains(&compared), "{compared}");
    }
}
