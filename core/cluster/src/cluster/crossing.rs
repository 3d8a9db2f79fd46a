//! Whether the ring that a replace goes to can take over from the one that is read.

use super::authority::{all_led, authorities};
use super::command::Objection;
use super::draft::Draft;
use crate::{Arc, MemberState, Space, Table};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Every arc has someone to copy from, unless the loss is accepted, and an acting server to go to: otherwise
/// a server without the data would be taken for the last owner. And none is left with one copy that has more: who is lost on
/// the way is worked around as long as the next loss can be borne.
pub(super) fn may_go_over(draft: &Draft, accept_loss: bool) -> Result<(), Objection> {
    let crossing = Crossing::of(draft);
    if !accept_loss && !all_led(&crossing.before) {
        return Err(Objection::OwnersLost);
    }
    if !all_led(&crossing.after) {
        return Err(Objection::NoTaker);
    }
    if crossing.arcs().any(|(was, is)| is_few(was, is)) {
        return Err(Objection::FewCopies);
    }
    Ok(())
}

/// There are copies enough to bear a loss, and there would not be, though the ring has servers enough.
pub fn is_few(was: &Arc, is: &Arc) -> bool {
    was.readers.len() >= COPIES_KEPT && is.readers.len() < COPIES_KEPT.min(is.owners.len())
}

/// Lost servers of the ring that the replace under way goes to, for want of which it is not switched to. A life that is
/// lost does not come back: it has to be given up.
pub fn stranded(space: &Space) -> BTreeSet<SocketAddr> {
    if space.job.is_none_or(|job| job.full) {
        return BTreeSet::new();
    }
    let crossing = Crossing::of(&Draft::of(space));
    let places = crossing.short().into_iter().map(|index| crossing.space.member(index));
    places
        .filter(|member| matches!(member.state, MemberState::Fault { .. }))
        .map(|member| member.address)
        .collect()
}

/// It never will be, unless more is lost: no last owner is awaited, that could come back in both rings.
pub(super) fn is_hopeless(space: &Space) -> bool {
    !stranded(space).is_empty() && authorities(space, &Table::new(space)).is_empty()
}

/// The ring that is read, and what it would be after the switch.
struct Crossing {
    before: Table,
    space: Space,
    after: Table,
}

impl Crossing {
    fn of(draft: &Draft) -> Crossing {
        let mut switched = draft.clone();
        switched.switch();
        let (number, clock) = (draft.base.number, draft.base.clock);
        let space = switched.seal(number, clock);
        let before = Table::new(&draft.clone().seal(number, clock));
        Crossing { before, after: Table::new(&space), space }
    }

    /// Each arc as it is and as it would be: the rings of both are the same, so no arc of now lies across two of then.
    fn arcs(&self) -> impl Iterator<Item = (&Arc, &Arc)> {
        self.before.arcs().iter().map(|arc| (arc, self.after.arc(arc.last)))
    }

    /// Owners of arcs that would have none that acts, or too few.
    fn short(&self) -> BTreeSet<u16> {
        let short = self.arcs().filter(|(was, is)| is.primary().is_none() || is_few(was, is));
        short.flat_map(|(_, is)| is.owners.iter().copied()).collect()
    }
}

/// Copies that are not given up for the sake of a replace: with two, one more server may be lost.
const COPIES_KEPT: usize = 2;
