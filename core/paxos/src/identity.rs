//! The small words of agreement: who, which slot, how strong, when.

use kumo_wire::{Malformed, Reader, Wire, Writer};
use std::fmt;

/// Microseconds on this process's own monotonic clock (it counts while the machine sleeps).
/// Never compared with another process's: only durations travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    pub fn plus_micros(self, micros: u64) -> Time {
        Time(self.0.saturating_add(micros))
    }

    /// Microseconds since `earlier`; 0 when it is not earlier.
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A replica's number in its cell: its place in the first configuration's address order, later ones are
/// handed out by the log. It outlives restarts; what voted is the [`Incarnation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u32);

/// One life of a replica's memory: 128 random bits, drawn anew whenever memory was lost.
/// An incarnation is an acceptor; a replica that forgot is another one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

/// Which cell: 128 random bits drawn when it was formed. All zero: no cell yet.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(pub u128);

/// One slot of the agreed sequence. Instance 0 holds the genesis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance(pub u64);

impl Instance {
    pub fn next(self) -> Instance {
        Instance(self.0.saturating_add(1))
    }

    pub fn plus(self, count: u64) -> Instance {
        Instance(self.0.saturating_add(count))
    }
}

/// The strength of a proposal, compared field by field. No two processes ever share one, because no two
/// share an incarnation. Sequence 0 is weakest: nobody proposed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round {
    pub sequence: u64,
    pub id: ReplicaId,
    pub incarnation: Incarnation,
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:x}", self.0)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl fmt::Debug for CellId {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:x}", self.0)
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

macro_rules! wire_newtype {
    ($($name:ident)*) => {$(
        impl Wire for $name {
            fn encode(&self, out: &mut Writer) {
                self.0.encode(out);
            }
            fn decode(input: &mut Reader) -> Result<Self, Malformed> {
                Ok($name(Wire::decode(input)?))
            }
        }
    )*};
}
wire_newtype!(Time ReplicaId Incarnation CellId);

/// Beyond any number a cell can reach. What is above it did not come from one of us, and arithmetic below it
/// cannot overflow.
const COUNT_MAX: u64 = 1 << 62;

impl Wire for Instance {
    fn encode(&self, out: &mut Writer) {
        self.0.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        let instance = u64::decode(input)?;
        if instance > COUNT_MAX { Err(Malformed::Length(instance)) } else { Ok(Instance(instance)) }
    }
}

impl Wire for Round {
    fn encode(&self, out: &mut Writer) {
        self.sequence.encode(out);
        self.id.encode(out);
        self.incarnation.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        let (sequence, (id, incarnation)): (u64, (ReplicaId, Incarnation)) = Wire::decode(input)?;
        if sequence > COUNT_MAX {
            Err(Malformed::Length(sequence))
        } else {
            Ok(Round { sequence, id, incarnation })
        }
    }
}
