//! A server's state in words, as far as one place on the ring is concerned: a search tells states apart by it.

use super::Server;
use crate::{KeyHash, Store};
use std::fmt::{Result, Write};

impl<S: Store> Server<S> {
    /// Everything that what it does next to keys of that place depends on, but for its store and the time.
    pub fn portray(&self, hash: KeyHash, out: &mut impl Write) -> Result {
        if let Some(world) = &self.world {
            write!(out, "{:?} {:?} ", world.number(), world.piece(hash).state)?;
        }
        write!(out, "{:?} {} {:?} ", self.clock, self.owned, self.lease_end)?;
        for link in &self.links {
            write!(out, "{link:?} ")?;
        }
        write!(out, "{:?} {:?} {:?} {:?} ", self.pending, self.unread, self.dirty, self.replicated)?;
        write!(out, "{:?} {:?} {:?} {} ", self.unstored, self.ids, self.reads, self.watermark_wanted)?;
        if let Some(space) = &self.postponed {
            write!(out, "{:?} {:?} ", space.number, self.postponed_until)?;
        }
        write!(out, "{} ", self.orphaned_before.iter().any(|range| range.contains(hash)))?;
        if let Some(settlement) = &self.settlement {
            settlement.portray(out)?;
        }
        self.copies.portray(hash, out)
    }

    /// This server has copied the arc of that place, as far as that is its to do.
    pub fn has_copied(&self, hash: KeyHash) -> bool {
        self.copies.are_done_at(hash)
    }
}
