//! [`Doubt`]: what a recovery of the cell may have lost of the hash space, and how that is settled.

use super::command::Objection;
use super::state::Cluster;
use crate::SpaceNumber;
use kumo_wire::wire_struct;
use std::net::SocketAddr;

/// The cell goes on from a replica that may have forgotten what servers know: a switch, after which it would name owners
/// that have dropped their data, or a server's loss. Spaces between these two are such; as long as it is not known that
/// there is none, the later one is nobody's, and no space follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What the survivor knew.
    pub from: SpaceNumber,
    /// What the recovery made of it.
    pub upto: SpaceNumber,
    /// A server that has one of those between, and which: this cell must not go on.
    pub known_by: Option<(SocketAddr, SpaceNumber)>,
}

impl Doubt {
    pub fn forgot(&self, number: SpaceNumber) -> bool {
        self.from < number && number < self.upto
    }
}

impl Cluster {
    /// The space has risen from that number to the one that it has now. What was in doubt before still is.
    pub(super) fn begin_doubt(&mut self, from: SpaceNumber) {
        let fresh = Doubt { from, upto: self.space.number, known_by: None };
        let doubt = self.doubt.map_or(fresh, |before| Doubt { upto: fresh.upto, ..before });
        self.doubt = Some(doubt).filter(|_| !self.space.members.is_empty());
        self.risen = self.doubt.map(|_| self.space.number);
    }

    pub(super) fn certain(&self) -> Result<(), Objection> {
        self.doubt.map_or(Ok(()), |_| Err(Objection::InDoubt))
    }

    pub(super) fn remembered(&mut self) -> Result<(), Objection> {
        let doubt = self.doubt.ok_or(Objection::Nothing)?;
        if doubt.known_by.is_some() {
            return Err(Objection::InDoubt);
        }
        self.doubt = None;
        Ok(())
    }

    /// The first one counts.
    pub(super) fn forgotten(&mut self, server: SocketAddr, knows: SpaceNumber) -> Result<(), Objection> {
        let doubt = self.doubt.as_mut().ok_or(Objection::Nothing)?;
        if doubt.known_by.is_some() || !doubt.forgot(knows) {
            return Err(Objection::Nothing);
        }
        doubt.known_by = Some((server, knows));
        Ok(())
    }
}

wire_struct!(Doubt { from, upto, known_by });
