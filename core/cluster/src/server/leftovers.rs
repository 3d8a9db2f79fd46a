//! What is left of arcs whose loss an operator accepted: it is dropped before anything of them is served, by the life that
//! was to become their owner or by one after it.
//!
//! An arc is *orphaned* for a server that catches up with it while nobody leads it. To be orphaned is no order to drop: the
//! last owner may come back, or the job be cancelled. It is one when the next space that the store takes part in has it
//! serve the arc. That is exact, across restarts too. Let K be the space that is kept, with the life that took part in
//! it, and S the first after it that names a life of this store, which serves there what was orphaned in K.
//!
//! - All owners in K's rhs are lost or returned, and this one is not the last of them. Neither changes without a switch:
//!   who is lost keeps its order, and who returns too. So there was a switch between K and S.
//! - A switch waits until all who act in whs have adopted the very space it is made in. If that was K, it was made over an
//!   arc that nobody led, which the cell does for an accepted loss alone: all that was acknowledged there before is given
//!   up. Since then no life of this store has acted, so there is nothing newer in it.
//! - If it was a later space, of which this store kept nothing, its life there was lost already. The switch had another
//!   owner of the arc that acted, and was lost later if at all: that one is the last owner, and nobody but it returns
//!   to serve. This store gets the arc by a copy, and adopts a space in which it catches up first.
//!
//! A cancelled job ends in the rhs of K. An earlier life of this store is in it perhaps, but not as the last owner of an
//! orphaned arc: the managers let that one return before they accept the loss of what it has. Histories in which the
//! cell has forgotten K begin with an order, a rebuild or a recovery, that gives up what only this server knows.

use super::Server;
use super::world::{State, World};
use crate::{Fault, Mutation, Range, ServerId, Space, Store};

impl<S: Store> Server<S> {
    /// What was orphaned for the life before that took part in the space that is kept.
    pub(super) fn orphaned_before(&self, kept: &Space) -> Vec<Range> {
        if self.settings.broken.is(Mutation::LeftoversForgotten) {
            return Vec::new();
        }
        let former = self.lives_before().find_map(|life| kept.index_of(life));
        let world = |me| World::new(kept.clone(), Some(me), None, self.settings.broken);
        former.map(world).map(|world| world.orphaned().collect()).unwrap_or_default()
    }

    fn lives_before(&self) -> impl Iterator<Item = ServerId> {
        let address = self.settings.id.address;
        self.settings.previous.iter().map(move |&incarnation| ServerId { address, incarnation })
    }

    /// Something may have to be dropped, which only the space says that is kept.
    pub(super) fn may_have_leftovers(&self) -> bool {
        self.orphaned().next().is_some()
    }

    fn orphaned(&self) -> impl Iterator<Item = Range> {
        self.world.iter().flat_map(World::orphaned).chain(self.orphaned_before.iter().copied())
    }

    /// A space is adopted. One that names this life says itself what is orphaned; in one that names no life of this store
    /// the job is over for which it was to become an owner, and it gets nothing but by another.
    pub(super) fn orphaned_no_more(&mut self, space: &Space) {
        let me = self.settings.id;
        if space.index_of(me).is_some() || !self.lives_before().any(|life| space.index_of(life).is_some()) {
            self.orphaned_before.clear();
        }
    }

    /// What this server happens to have of arcs that become its own without anybody who could copy them is older than
    /// what was lost, and not what the other owners have. Nobody serves it. A step drops some of it; true: there is
    /// none any more.
    ///
    /// Until then the server stays in the space before, as one that has not heard of the new one: there it serves nothing of
    /// these arcs, and as they have no primary, nobody sends it anything of them.
    pub(super) fn drop_leftovers(&self, world: &World) -> Result<bool, Fault> {
        let mut room = self.settings.limits.dropped_max;
        for was in self.orphaned() {
            let (first, last) = (world.position(was.first), world.position(was.last));
            let pieces = world.pieces[first..=last].iter();
            for piece in pieces.filter(|piece| matches!(piece.state, State::Normal | State::Settling)) {
                let first = was.first.max(piece.range.first);
                let range = Range { first, last: was.last.min(piece.range.last) };
                let dropped = self.drop_some(range, room)?;
                if dropped == room {
                    return Ok(false);
                }
                room -= dropped;
            }
        }
        Ok(true)
    }

    /// How many records of the range it dropped; fewer than `count`: all there were.
    fn drop_some(&self, range: Range, count: usize) -> Result<usize, Fault> {
        let found = self.store.scan(range.first, range.last, None, count)?;
        for (key, _) in &found {
            self.store.remove(key.hash, &key.key)?;
        }
        Ok(found.len())
    }
}
