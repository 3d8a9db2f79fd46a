//! What is left of arcs whose loss an operator accepted: it is dropped before anything of them is served.

use super::Server;
use super::world::{Piece, State, World};
use crate::{Fault, Range, Store};

impl<S: Store> Server<S> {
    /// Arcs that become this server's without anybody who could copy them, because an operator accepted their loss:
    /// what it happens to have of them is older than what was lost, and not what the other owners have. Nobody
    /// serves it. A step drops some of it; true: there is none any more.
    ///
    /// Until then the server stays in the space before, as one that has not heard of the new one: there it serves nothing of
    /// these arcs, and as they have no primary, nobody sends it anything of them.
    pub(super) fn drop_leftovers(&self, world: &World) -> Result<bool, Fault> {
        let Some(before) = &self.world else { return Ok(true) };
        let orphaned =
            |was: &&Piece| matches!(was.state, State::Catching { .. }) && before.arc(was).primary().is_none();
        let served = |piece: &&Piece| matches!(piece.state, State::Normal | State::Settling);
        let mut room = self.settings.limits.dropped_max;
        for was in before.pieces.iter().filter(orphaned) {
            let (first, last) = (world.position(was.range.first), world.position(was.range.last));
            for piece in world.pieces[first..=last].iter().filter(served) {
                let first = was.range.first.max(piece.range.first);
                let range = Range { first, last: was.range.last.min(piece.range.last) };
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
