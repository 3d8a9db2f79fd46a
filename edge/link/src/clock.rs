//! The two clocks of a node: its own, which only ever goes on, and the people's.

use kumo_paxos::Time;
use kumo_session::UnixMillis;
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since this machine booted, sleep included. A lease must not outlive a suspended laptop, so
/// `Instant` (which stands still meanwhile) will not do.
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Boottime);
    Time(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// What time people have. Before 1970 it is 1970.
pub fn wall() -> UnixMillis {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(elapsed.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on() {
        let first = now();
        while now() == first {}
        assert!(now() > first);
        assert!(wall() > UnixMillis(1_700_000_000_000));
    }
}
