//! The client's own clock: it counts while the machine sleeps, so a sleeper knows that its session is over.

use kumo_paxos::Time;
use rustix::time::{ClockId, clock_gettime};

pub(crate) fn now() -> Time {
    let time = clock_gettime(ClockId::Boottime);
    Time(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}
