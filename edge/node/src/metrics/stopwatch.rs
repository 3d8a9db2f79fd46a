//! [`Stopwatch`]: when requests came, until they are answered.

use super::Latency;
use crate::clock;
use kumo_paxos::Time;

/// Requests under way, in a table of fixed size: two that fall on one place are one too many, and the older one is not
/// timed. Counters count all of them; here a sample is enough.
pub struct Stopwatch {
    slots: Box<[Slot]>,
    /// Answered in this turn: what, and when it came.
    answered: Vec<(usize, Time)>,
}

#[derive(Clone, Copy)]
struct Slot {
    key: (u64, u64),
    kind: u16,
    used: bool,
    came: Time,
}

impl Stopwatch {
    pub fn new() -> Stopwatch {
        let empty = Slot { key: (0, 0), kind: 0, used: false, came: Time(0) };
        Stopwatch { slots: vec![empty; SLOTS].into(), answered: Vec::new() }
    }

    /// A request came: whose, its number there, and what it is.
    pub fn came(&mut self, now: Time, key: (u64, u64), kind: usize) {
        self.slots[place(key)] = Slot { key, kind: kind as u16, used: true, came: now };
    }

    /// It is answered, or about to be in this turn.
    pub fn answered(&mut self, key: (u64, u64)) {
        let slot = &mut self.slots[place(key)];
        if slot.used && slot.key == key {
            slot.used = false;
            self.answered.push((usize::from(slot.kind), slot.came));
        }
    }

    /// It begins anew, perhaps with another number.
    pub fn forget(&mut self, key: (u64, u64)) {
        let slot = &mut self.slots[place(key)];
        if slot.key == key {
            slot.used = false;
        }
    }

    /// The turn's answers are written. The clock is read once for all of them.
    pub fn written(&mut self, latencies: &[Latency]) {
        if self.answered.is_empty() {
            return;
        }
        let now = clock::now();
        for (kind, came) in self.answered.drain(..) {
            latencies[kind].record(now.since(came));
        }
    }
}

/// Numbers of one asker follow each other, so its requests do not fall on one place; the factor keeps askers apart.
fn place((asker, number): (u64, u64)) -> usize {
    (asker.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).wrapping_add(number) as usize % SLOTS
}

/// Requests timed at once; 40 bytes each.
const SLOTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_is_timed_and_only_once() {
        let mut watch = Stopwatch::new();
        let latencies = [Latency::default(), Latency::default()];
        watch.came(clock::now(), (7, 1), 1);
        watch.answered((7, 2));
        watch.answered((7, 1));
        watch.answered((7, 1));
        watch.written(&latencies);
        watch.written(&latencies);
        let count = |kind: usize| latencies[kind].buckets().iter().sum::<u64>();
        assert_eq!((count(0), count(1)), (0, 1));
        watch.came(clock::now(), (7, 3), 1);
        watch.forget((7, 3));
        watch.answered((7, 3));
        watch.written(&latencies);
        assert_eq!(count(1), 1);
    }

    #[test]
    fn a_place_taken_twice_times_the_later_one() {
        let mut watch = Stopwatch::new();
        let latencies = [Latency::default()];
        watch.came(Time(0), (1, 5), 0);
        watch.came(clock::now(), (1, 5 + SLOTS as u64), 0);
        watch.answered((1, 5));
        watch.answered((1, 5 + SLOTS as u64));
        watch.written(&latencies);
        assert_eq!(latencies[0].buckets().iter().sum::<u64>(), 1);
        assert!(latencies[0].sum_seconds() < 60.0);
    }
}
