//! [`Budget`]: memory for answers whose sizes nobody knows before they come, and whose turn it is to take of it.

use super::client::Client;
use kumo_paxos::Time;

/// What the answers under way are taken for, and how much that may be.
///
/// Each is taken for what its client read and wrote lately, and those that are under way already for what it reads now: when
/// the first of many turns out large, the others count as large at once, and everybody's next calls see it.
///
/// That comes too late for what is under way: a thousand that were taken for small ones may bring a gigabyte. So a value that
/// is more than twice what it was taken for is a surprise. It is held if its client holds nothing else, or if what is held
/// for all clients is no more than the budget with it. Else it is let go, and asked for again in its place, when there is
/// memory for as much as it was; then it is let go only if it has doubled, so everybody is answered. Two gets of one key
/// that are under way together may be carried out in either order, so the second time is as good as the first. A touch is
/// not done twice: it is taken for more from the start, and held.
///
/// Small values of clients that await none have a quarter more, of their own: they need not stand in line with large ones,
/// nor those with them.
///
/// Calls that nobody has answered for long, because their server is stopped, must not keep others from being served. Beside
/// them a client that awaits no value may ask for one; of such calls, until they are slow themselves, there may be as
/// much again. So the memory is bounded by that and one value of each client, and nobody waits for others for ever.
pub struct Budget {
    bytes_max: usize,
    /// Of all calls under way but the light ones.
    pub bytes: usize,
    /// Of the light ones.
    light: usize,
    /// Of the calls begun in this period and in the one before. Older ones are slow.
    recent: [usize; 2],
    period: u64,
}

/// What a call was granted, to be given back with its answer.
#[derive(Clone, Copy, Default)]
pub struct Grant {
    pub bytes: usize,
    is_light: bool,
    period: u64,
}

/// Whether a client's next call may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It needs no memory, or there is some for it.
    Fits,
    /// There is some for small values.
    Light,
    /// There is none, but for slow calls.
    Spared,
    Waits,
}

/// One look at those that wait, in the order of their turns.
pub struct Round {
    /// Somebody waits for memory: who comes after takes none before it.
    pub crowded: bool,
    /// Somebody waits for what slow calls spare.
    spent: bool,
}

impl Budget {
    pub fn new(bytes_max: usize) -> Budget {
        Budget { bytes_max, bytes: 0, light: 0, recent: [0; 2], period: 0 }
    }

    /// Time passes.
    pub fn advance(&mut self, now: Time) {
        let period = now.0 / PERIOD_MICROS;
        if period > self.period {
            self.recent = [0, if period == self.period + 1 { self.recent[0] } else { 0 }];
            self.period = period;
        }
    }

    /// When more calls count as slow.
    pub fn next_period(&self) -> Time {
        Time((self.period + 1).saturating_mul(PERIOD_MICROS))
    }

    pub fn take(&mut self, bytes: usize, verdict: Verdict) -> Grant {
        let is_light = verdict == Verdict::Light;
        if is_light {
            self.light += bytes;
        } else {
            self.bytes += bytes;
            self.recent[0] += bytes;
        }
        Grant { bytes, is_light, period: self.period }
    }

    /// What a client's calls under way are taken for beyond their grants is so much now. What is added to it is as recent as
    /// a call that begins now, and may be slow like one.
    pub fn doubt(&mut self, doubt: &mut Grant, bytes: usize) {
        if bytes == doubt.bytes {
            return;
        }
        let period = if bytes > doubt.bytes { self.period } else { doubt.period };
        self.give_back(std::mem::take(doubt));
        *doubt = Grant { bytes, is_light: false, period };
        self.bytes += bytes;
        if let Some(recent) = self.recent.get_mut((self.period - period) as usize) {
            *recent += bytes;
        }
    }

    /// Whether a surprise of so many bytes may be held, beside those that clients hold already.
    pub fn holds(&self, bytes: usize, held: usize) -> bool {
        held + bytes <= self.bytes_max
    }

    pub fn give_back(&mut self, grant: Grant) {
        if grant.is_light {
            self.light -= grant.bytes;
            return;
        }
        self.bytes -= grant.bytes;
        if let Some(recent) = self.recent.get_mut((self.period - grant.period) as usize) {
            *recent -= grant.bytes;
        }
    }

    /// May it begin, after all that this round looked at before? What is too large for all of the memory begins alone.
    pub fn judge(&self, client: &Client, round: &mut Round) -> Verdict {
        let next = client.next_bytes();
        let fits = |held: usize| held == 0 || held + next <= self.bytes_max;
        if next == 0 || (!round.crowded && fits(self.bytes)) {
            return Verdict::Fits;
        }
        let is_light = client.asks_small(LIGHT_BYTES_MAX) && !client.awaits_values();
        if is_light && self.light + next <= self.bytes_max / 4 {
            return Verdict::Light;
        }
        round.crowded = true;
        if client.awaits_values() || round.spent {
            return Verdict::Waits;
        }
        if self.recent.iter().sum::<usize>() < self.bytes && fits(self.recent.iter().sum()) {
            return Verdict::Spared;
        }
        round.spent = true;
        Verdict::Waits
    }
}

impl Grant {
    /// A value of so many bytes is far more than its call was taken for.
    pub fn is_surprised(&self, bytes: usize) -> bool {
        bytes / 2 > self.bytes
    }
}

impl Round {
    pub fn new(crowded: bool) -> Round {
        Round { crowded, spent: false }
    }
}

/// What a small value is taken for at most.
const LIGHT_BYTES_MAX: usize = 64 * 1024;

/// A call is slow when it began in neither this period nor the one before: a server that lives answers much sooner.
const PERIOD_MICROS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_is_counted_and_not_recent() {
        let mut budget = Budget::new(100);
        let early = budget.take(60, Verdict::Fits);
        budget.advance(Time(PERIOD_MICROS));
        let late = budget.take(30, Verdict::Spared);
        assert_eq!((budget.bytes, budget.recent), (90, [30, 60]));
        budget.advance(Time(2 * PERIOD_MICROS));
        assert_eq!((budget.bytes, budget.recent), (90, [0, 30]));
        budget.give_back(early);
        assert_eq!((budget.bytes, budget.recent), (30, [0, 30]));
        budget.give_back(late);
        assert_eq!((budget.bytes, budget.recent), (0, [0, 0]));
        let grant = budget.take(10, Verdict::Fits);
        budget.advance(Time(9 * PERIOD_MICROS));
        budget.advance(Time(0));
        assert_eq!((budget.bytes, budget.recent), (10, [0, 0]), "time does not go back");
        budget.give_back(grant);
        assert_eq!(budget.bytes, 0);
        assert_eq!(budget.next_period(), Time(10 * PERIOD_MICROS));
        let light = budget.take(20, Verdict::Light);
        assert_eq!((budget.bytes, budget.light), (0, 20), "what is light takes nothing from the others");
        budget.give_back(light);
        assert_eq!((budget.bytes, budget.light), (0, 0));
    }

    #[test]
    fn doubts_become_slow_as_the_calls_that_they_are_about() {
        let (mut budget, mut doubt) = (Budget::new(100), Grant::default());
        budget.doubt(&mut doubt, 80);
        budget.advance(Time(PERIOD_MICROS));
        budget.doubt(&mut doubt, 60);
        assert_eq!((budget.bytes, budget.recent), (60, [0, 60]), "less of the same");
        budget.doubt(&mut doubt, 70);
        assert_eq!((budget.bytes, budget.recent), (70, [70, 0]));
        budget.advance(Time(3 * PERIOD_MICROS));
        assert_eq!((budget.bytes, budget.recent), (70, [0, 0]));
        budget.doubt(&mut doubt, 0);
        assert_eq!((budget.bytes, budget.recent), (0, [0, 0]));
    }
}
