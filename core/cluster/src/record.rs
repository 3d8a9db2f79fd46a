//! [`Record`]: one version of one key, and the [`Stamp`] that orders versions.

use crate::identity::number;
use bytes::Bytes;
use kumo_wire::{Malformed, Reader, Wire, wire_enum, wire_struct};
use std::fmt;

/// The number of a hash space: the cell's generation in the upper 16 bits, a count below. It only grows, through
/// master changes and through a recovery from a lone survivor, and no two spaces share one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceNumber(pub u64);

/// The seed's clock: UNIX seconds in the upper 32 bits, a Lamport counter below. It is the cas unique.
/// Not a time: it follows the host's clock while that is ahead, and never goes back.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Clock(pub u64);

/// When a version was written. The space leads: whoever owns a key in a later space stamps above everything
/// that a lost owner may have stamped unheard, whatever the hosts' clocks say. (REPLICATION.md, rule 12)
/// Only ever compared with stamps of the same key.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    pub space: SpaceNumber,
    pub clock: Clock,
}

/// What a version says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    Value = 1,
    /// The key was deleted, and that must win over older versions that come back.
    Tombstone = 2,
}

/// One version of a key. A tombstone has no data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub stamp: Stamp,
    pub kind: Kind,
    pub flags: u32,
    /// UNIX seconds of the cell's time after which the value is no more; 0: never.
    pub expiry: u32,
    pub data: Bytes,
}

impl Clock {
    /// The next clock: above everything heard, and at the host's time if that is ahead. Of a time beyond
    /// `SECONDS_MAX` nothing is believed.
    pub fn after(heard: Clock, unix_seconds: u32) -> Clock {
        Clock(heard.0.saturating_add(1).max(u64::from(unix_seconds.min(SECONDS_MAX)) << 32))
    }

    pub fn unix_seconds(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The counter below the seconds, which `kumoctl stat` shows.
    pub fn counter(self) -> u32 {
        self.0 as u32
    }
}

/// The latest time that a stamp takes from a host's clock, some hours before the 32 bits end in 2106. A host whose clock
/// is out of its mind makes stamps of that time, and 2^47 of them, and all that follow on other hosts, still grow.
const SECONDS_MAX: u32 = u32::MAX - (1 << 15);

number!(SpaceNumber Clock);
wire_struct!(Stamp { space, clock });
wire_enum!(Kind { 1 = Value, 2 = Tombstone });
wire_struct!(Record { stamp, kind, flags, expiry, data });

impl fmt::Debug for SpaceNumber {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{self}")
    }
}

/// `generation.count`, as everywhere in kumo.
impl fmt::Display for SpaceNumber {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}.{}", self.0 >> 48, self.0 & ((1 << 48) - 1))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}+{}", self.unix_seconds(), self.counter())
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}@{:?}", self.space, self.clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_never_goes_back() {
        let ahead = Clock::after(Clock(0), 1000);
        assert_eq!(ahead.unix_seconds(), 1000);
        let behind = Clock::after(ahead, 10);
        assert!(behind > ahead);
        assert_eq!((behind.unix_seconds(), behind.counter()), (1000, 1));
    }

    #[test]
    fn a_clock_out_of_its_mind_leaves_room_above() {
        let mad = Clock::after(Clock(0), u32::MAX);
        let later = Clock(mad.0 + (1 << 46));
        for heard in [mad, later] {
            assert!(Clock::after(heard, u32::MAX) > heard, "{heard:?}");
        }
        assert_eq!(Clock::after(mad, u32::MAX).0, mad.0 + 1);
    }

    #[test]
    fn the_space_leads_the_stamp() {
        let early = Stamp { space: SpaceNumber(1), clock: Clock(u64::MAX) };
        let late = Stamp { space: SpaceNumber(2), clock: Clock(1) };
        assert!(late > early);
    }
}
