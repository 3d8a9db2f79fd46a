//! Who is who: a server, a gateway, and one request of a gateway.

use kumo_wire::{Malformed, Reader, Wire, wire_struct};
use std::fmt;
use std::net::SocketAddr;

/// One life of a server process, drawn at its start. A restarted process never acts under its old one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

/// A server: where it is reached, and which life of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    pub address: SocketAddr,
    pub incarnation: Incarnation,
}

/// A gateway's (or native client's) name, issued by the cell: the generation above, a count below, never reused.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayId(pub u64);

/// One request. A retry keeps it, wherever it is sent. (REPLICATION.md, rule 22)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub gateway: GatewayId,
    /// Consecutive for a gateway, from 1.
    pub seq: u64,
}

wire_struct!(ServerId { address, incarnation });
wire_struct!(RequestId { gateway, seq });

macro_rules! number {
    ($($name:ident)*) => {$(
        impl Wire for $name {
            fn encode(&self, out: &mut kumo_wire::Writer) {
                self.0.encode(out);
            }
            fn decode(input: &mut Reader) -> Result<Self, Malformed> {
                Ok($name(Wire::decode(input)?))
            }
        }
    )*};
}
pub(crate) use number;
number!(Incarnation GatewayId);

/// The first digits: enough to tell lives apart by eye.
impl fmt::Debug for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:08x}", (self.0 >> 96) as u32)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}/{:?}", self.address, self.incarnation)
    }
}

impl fmt::Debug for GatewayId {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{self}")
    }
}

/// `generation.count`, as everywhere in kumo.
impl fmt::Display for GatewayId {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}.{}", self.0 >> 48, self.0 & ((1 << 48) - 1))
    }
}
