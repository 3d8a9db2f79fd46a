//! [`World`]: the space a server has adopted, and what state each piece of the ring is in for it.

use crate::guide::Guide;
use crate::{Arc, Broken, KeyHash, Mutation, Range, Space, SpaceNumber, Table};

/// A server's view of the ring in the space it adopted last.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub space: Space,
    /// Shared by all copies of this server that a search makes.
    pub table: std::sync::Arc<Table>,
    /// This server's place among the members; none: it is not attached.
    pub me: Option<u16>,
    /// Cover the ring, ascending. Finer than the table's arcs where the states differ.
    pub pieces: Vec<Piece>,
    guide: std::sync::Arc<Guide>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub range: Range,
    /// The table's arc that it lies in.
    pub arc: usize,
    pub state: State,
    /// The space in which this server began to order its keys, if it does: who asked before asked somebody else since,
    /// or a former reign of this server.
    pub led_since: SpaceNumber,
}

/// What a server does with a piece of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing: it does not have to acknowledge anything there.
    Gone,
    /// It acknowledges, and serves if it is a reader.
    Normal,
    /// It is the new primary, and gathers what the others hold unconfirmed. Nothing is served.
    Settling,
    /// It is to become an owner: stores what comes, serves nothing.
    Catching { since: SpaceNumber },
}

impl World {
    /// The world after `space`; what was Normal, Settling or Catching goes on where the space lets it.
    pub fn new(space: Space, me: Option<u16>, before: Option<&World>, broken: Broken) -> World {
        let table = table(&space, broken);
        let mut pieces: Vec<Piece> = Vec::with_capacity(table.arcs().len());
        let mut first = KeyHash(0);
        let (mut arc, mut old) = (0, 0);
        loop {
            let here = &table.arcs()[arc];
            let was = before.map(|world| (world, &world.pieces[old]));
            let last = was.map_or(here.last, |(_, piece)| piece.range.last.min(here.last));
            let state = match state(&space, me, here, was) {
                State::Settling if broken.is(Mutation::NoSettlement) => State::Normal,
                state => state,
            };
            let led_since = match was {
                Some((world, piece)) if state == State::Normal && world.leads(piece) => piece.led_since,
                _other => space.number,
            };
            match pieces.last_mut() {
                Some(piece) if (piece.arc, piece.state, piece.led_since) == (arc, state, led_since) => {
                    piece.range.last = last;
                }
                _ => pieces.push(Piece { range: Range { first, last }, arc, state, led_since }),
            }
            if last.0 == u64::MAX {
                break;
            }
            first = KeyHash(last.0 + 1);
            arc += usize::from(last == here.last);
            old += usize::from(was.is_some_and(|(_, piece)| piece.range.last == last));
        }
        let guide = Guide::new(pieces.iter().map(|piece| piece.range.last));
        World { space, table: table.into(), me, pieces, guide: guide.into() }
    }

    pub fn number(&self) -> SpaceNumber {
        self.space.number
    }

    /// What is not owned here is owned elsewhere, for certain, and somebody is there who has it. One that returned as a
    /// last owner keeps all: what it has of other arcs may be all there is, if an operator accepts the loss of what was
    /// newer.
    pub fn may_drop(&self, piece: &Piece) -> bool {
        let member = self.me.map(|me| self.space.member(me));
        let led = self.arc(piece).primary().is_some();
        self.space.settled() && led && member.is_none_or(|member| member.is_active())
    }

    /// This server is in a ring: it leaves by a space that lists it among the old members, or as lost.
    pub fn must_confirm(&self) -> bool {
        self.me.is_some_and(|me| self.space.rhs.contains(&me))
    }

    /// Where it is to become an owner, and nobody is there who could copy.
    pub fn orphaned(&self) -> impl Iterator<Item = Range> {
        let orphaned = |piece: &&Piece| {
            matches!(piece.state, State::Catching { .. }) && self.arc(piece).primary().is_none()
        };
        self.pieces.iter().filter(orphaned).map(|piece| piece.range)
    }

    pub fn position(&self, hash: KeyHash) -> usize {
        self.guide.find(hash, |number| self.pieces[number].range.last)
    }

    pub fn piece(&self, hash: KeyHash) -> &Piece {
        &self.pieces[self.position(hash)]
    }

    /// Everything in the range is served or acknowledged here.
    pub fn all_normal(&self, range: Range) -> bool {
        let (first, last) = (self.position(range.first), self.position(range.last));
        self.pieces[first..=last].iter().all(|piece| piece.state == State::Normal)
    }

    pub fn arc(&self, piece: &Piece) -> &Arc {
        &self.table.arcs()[piece.arc]
    }

    /// It orders the keys of that piece.
    pub fn leads(&self, piece: &Piece) -> bool {
        piece.state == State::Normal && self.is_primary(self.arc(piece))
    }

    pub fn is_primary(&self, arc: &Arc) -> bool {
        self.me.is_some() && arc.primary() == self.me
    }

    /// The others of A(k).
    pub fn others<'a>(&self, arc: &'a Arc) -> impl Iterator<Item = u16> + use<'a> {
        let me = self.me;
        arc.acknowledgers().filter(move |&one| Some(one) != me)
    }
}

fn table(space: &Space, broken: Broken) -> Table {
    if broken.is(Mutation::OldMembersForgotten) {
        return Table::new(&Space { old: Vec::new(), ..space.clone() });
    }
    if broken.is(Mutation::WriteRingPrimary) {
        return Table::led_by_whs(space);
    }
    Table::new(space)
}

fn state(space: &Space, me: Option<u16>, arc: &Arc, was: Option<(&World, &Piece)>) -> State {
    let Some(me) = me else { return State::Gone };
    if arc.primary() == Some(me) {
        // Who orders the keys already goes on; who begins to must first know what is unconfirmed.
        let goes_on = was.is_some_and(|(world, piece)| world.leads(piece));
        return if goes_on { State::Normal } else { State::Settling };
    }
    if arc.readers.contains(&me) || arc.old.contains(&me) {
        return State::Normal;
    }
    if arc.comers.contains(&me) {
        return State::Catching { since: space.whs_since };
    }
    State::Gone
}
