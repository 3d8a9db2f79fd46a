//! [`Clock`]: what time a host believes it is. Hosts start a day apart, run fast or slow, and jump.

use kumo_paxos::Time;
use kumo_session::UnixMillis;

/// One host's clocks, as a function of the world's time.
#[derive(Clone, Debug)]
pub struct Clock {
    /// At this moment of the world ...
    since: u64,
    /// ... the host's monotonic clock showed this,
    shown: u64,
    /// and it runs at so many thousandths of true speed.
    rate_permille: u64,
    wall_millis: u64,
}

impl Clock {
    pub fn new(offset_micros: u64, wall_offset_millis: u64, rate_permille: u64) -> Clock {
        assert!(rate_permille > 0, "a clock that stands still has no deadlines");
        Clock {
            since: 0,
            shown: offset_micros,
            rate_permille,
            wall_millis: WALL_START_MILLIS + wall_offset_millis,
        }
    }

    pub fn local(&self, now: u64) -> Time {
        Time(self.shown + (now - self.since) * self.rate_permille / 1000)
    }

    /// The first moment of the world, not before `now`, at which this clock shows `local`.
    pub fn moment(&self, local: Time, now: u64) -> u64 {
        let ahead = local.0.saturating_sub(self.shown);
        (self.since + (ahead * 1000).div_ceil(self.rate_permille)).max(now)
    }

    pub fn wall(&self, now: u64) -> UnixMillis {
        UnixMillis(self.wall_millis + now / 1000)
    }

    pub fn set_rate(&mut self, now: u64, rate_permille: u64) {
        self.shown = self.local(now).0;
        self.since = now;
        self.rate_permille = rate_permille;
    }

    pub fn jump(&mut self, now: u64, micros: u64) {
        self.shown = self.local(now).0 + micros;
        self.since = now;
    }

    /// The wall clock is set, forward or back.
    pub fn jump_wall(&mut self, millis: i64) {
        self.wall_millis = self.wall_millis.saturating_add_signed(millis).max(WALL_START_MILLIS / 2);
    }
}

/// 2020: any year would do.
const WALL_START_MILLIS: u64 = 1_577_836_800_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_when_the_clock_gets_there() {
        for rate in [500, 900, 1000, 1100, 2000] {
            let mut clock = Clock::new(86_400_000_000, 5, 1000);
            clock.set_rate(1_000, rate);
            clock.jump(2_000, 77);
            for ahead in [0, 1, 7, 1_000, 999_999] {
                let local = clock.local(3_000).plus_micros(ahead);
                let moment = clock.moment(local, 3_000);
                assert!(clock.local(moment) >= local);
                assert!(moment == 3_000 || clock.local(moment - 1) < local);
            }
        }
    }
}
