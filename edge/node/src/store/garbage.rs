//! [`GarbageWatch`]: says when tombstones are more, or older, than the operator wanted them to become.

use super::binary_log::{Value, record};
use kumo_cluster::{Garbage, Space};
use kumo_paxos::Time;
use std::time::Duration;
use tracing::warn;

/// `-gX` and `-gS`. They drop nothing: a tombstone that goes early brings its key back. (Rule 19)
#[derive(Clone, Copy, Debug, Default)]
pub struct GarbageLimits {
    pub age_max: Option<Duration>,
    pub bytes_max: Option<u64>,
}

pub struct GarbageWatch {
    limits: GarbageLimits,
    told: Option<Time>,
}

impl GarbageWatch {
    pub fn new(limits: GarbageLimits) -> GarbageWatch {
        GarbageWatch { limits, told: None }
    }

    /// Looks at what the server holds, and warns of it now and then.
    pub fn look(&mut self, now: Time, garbage: Garbage, space: Option<&Space>) {
        if !self.is_beyond(garbage) || !self.may_tell(now) {
            return;
        }
        let (Garbage { bytes, age_seconds, held }, reason) = (garbage, reason(garbage, space));
        warn!(bytes, age_seconds, held, reason, "tombstones beyond -gX or -gS: none is dropped early");
        record("tombstones", || {
            vec![
                ("bytes", bytes.into()),
                ("age seconds", age_seconds.into()),
                ("held", held.into()),
                ("reason", Value::text(reason)),
            ]
        });
    }

    fn is_beyond(&self, garbage: Garbage) -> bool {
        let GarbageLimits { age_max, bytes_max } = self.limits;
        age_max.is_some_and(|age_max| garbage.age_seconds > age_max.as_secs())
            || bytes_max.is_some_and(|bytes_max| garbage.bytes > bytes_max)
    }

    /// Not oftener than now and then, also when they come and go.
    fn may_tell(&mut self, now: Time) -> bool {
        let may = self.told.is_none_or(|told| now.since(told) >= TELL_MICROS);
        if may {
            self.told = Some(now);
        }
        may
    }
}

fn reason(garbage: Garbage, space: Option<&Space>) -> &'static str {
    match space {
        _ if garbage.held == 0 => "they are younger than -gN",
        Some(space) if space.job.is_some() => "a replace is under way",
        Some(space) if !space.settled() => "a server has not confirmed the last replace",
        Some(_) | None => "this server is not attached, or writes are not known to be everywhere",
    }
}

/// Between two warnings: often enough for whoever looks at the log, too rare to fill it.
const TELL_MICROS: u64 = 600_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::{Job, SpaceNumber};

    fn garbage(bytes: u64, age_seconds: u64) -> Garbage {
        Garbage { bytes, age_seconds, held: 1 }
    }

    #[test]
    fn either_limit_is_enough_and_none_is_none() {
        let beyond = |limits, found| GarbageWatch::new(limits).is_beyond(found);
        let limits = GarbageLimits { age_max: Some(Duration::from_secs(60)), bytes_max: Some(1024) };
        assert!(!beyond(limits, garbage(1024, 60)));
        assert!(beyond(limits, garbage(1025, 0)));
        assert!(beyond(limits, garbage(0, 61)));
        assert!(!beyond(GarbageLimits::default(), garbage(u64::MAX, u64::MAX)));
    }

    #[test]
    fn it_is_told_once_in_a_while() {
        let mut watch = GarbageWatch::new(GarbageLimits::default());
        let told: Vec<u64> = (0..30).filter(|&minute| watch.may_tell(Time(minute * 60_000_000))).collect();
        assert_eq!(told, [0, 10, 20]);
    }

    #[test]
    fn what_holds_them_is_named() {
        let mut space = Space::empty(Default::default(), SpaceNumber(1));
        assert!(reason(Garbage::default(), Some(&space)).contains("younger"));
        assert!(reason(garbage(1, 1), None).contains("not attached"));
        space.old = vec![0];
        assert!(reason(garbage(1, 1), Some(&space)).contains("confirmed"));
        space.job = Some(Job { full: false, paused: false, rate: 0 });
        assert!(reason(garbage(1, 1), Some(&space)).contains("under way"));
    }
}
