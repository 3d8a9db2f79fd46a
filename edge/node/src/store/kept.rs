//! [`Kept`]: what a server's store remembers of the cluster, besides records.

use crate::store::origin::{Acting, SPACE};
use crate::{NodeError, entropy};
use kumo_cluster::{Fault, Incarnation, LIVES_MAX, Space};
use kumo_paxos::CellId;
use kumo_store::{CLUSTER_NOTE, Engine};
use kumo_wire::Wire;
use tracing::warn;

/// What earlier lives of this server left.
pub struct Kept {
    pub cluster: Option<CellId>,
    pub space: Option<Space>,
    /// The last life that owned something, and those since.
    pub lives: Vec<Incarnation>,
}

impl Kept {
    /// Begins a new life, which is on record before anybody hears of it: the life after it must be able to say that
    /// it was this one.
    pub fn begin(engine: &Engine) -> Result<(Kept, Incarnation), NodeError> {
        let mut lives: Vec<Incarnation> = note(engine, LIVES)?.unwrap_or_default();
        let spoke: Option<Incarnation> = note(engine, SPOKE)?;
        if lives.len() > 1 && spoke.is_some() && spoke != lives.last().copied() {
            // Nobody has heard of it: it does not take the place of one that was heard of.
            lives.pop();
        }
        let acting: Option<Acting> = note(engine, SPACE)?;
        let space = acting.map(|acting| acting.space);
        let kept = Kept { cluster: note(engine, CLUSTER_NOTE)?, space, lives: lives.clone() };
        let incarnation = Incarnation(entropy::draw()?);
        // Beyond it the oldest of those that never owned anything are forgotten, but not the one before.
        if lives.len() >= LIVES_MAX {
            lives.remove(1);
        }
        if lives.len() > LIVES_USUAL {
            warn!(lives = lives.len(), "{}", RESTARTS);
        }
        lives.push(incarnation);
        engine.put_note(LIVES, &lives.to_bytes()).map_err(NodeError::Store)?;
        Ok((kept, incarnation))
    }
}

/// From now on managers know of this life.
pub fn spoke(engine: &Engine, life: Incarnation) -> Result<(), Fault> {
    engine.put_note(SPOKE, &life.to_bytes())
}

/// The server acts in that space: the next life need not know of any before this one.
pub fn adopted(engine: &Engine, life: Option<Incarnation>, space: &Space) -> Result<(), Fault> {
    if let Some(life) = life {
        engine.put_note(LIVES, &vec![life].to_bytes())?;
    }
    engine.put_note(CLUSTER_NOTE, &space.cluster.to_bytes())?;
    engine.put_note(SPACE, &Acting::of(life, space).to_bytes())
}

pub fn note<T: Wire>(engine: &Engine, name: &str) -> Result<Option<T>, NodeError> {
    let Some(bytes) = engine.note(name).map_err(NodeError::Store)? else { return Ok(None) };
    let damaged = |_| NodeError::Store(Fault::Damaged(format!("the store's note {name:?} cannot be read")));
    T::from_bytes(bytes.into()).map(Some).map_err(damaged)
}

const LIVES: &str = "lives";
/// The last life that managers heard of.
const SPOKE: &str = "spoke";
/// The replica of the cell that runs beside the store.
pub const VOTER: &str = "voter";

/// Notes that make no sense in a copy of the store.
pub const OF_THIS_SERVER: [&str; 3] = [LIVES, SPOKE, VOTER];

/// More lives that managers heard of, and none of which was attached, are worth a word.
const LIVES_USUAL: usize = 32;

const RESTARTS: &str = "this server has begun many lives and was attached in none of them: it restarts again and again, or \
                        its managers have no master";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_that_owned_nothing_is_still_on_record() {
        let engine = Engine::memory();
        let (first, owner) = Kept::begin(&engine).expect("a note");
        assert_eq!(first.lives, []);
        let (second, reborn) = Kept::begin(&engine).expect("a note");
        assert_eq!(second.lives, [owner]);
        let (third, _) = Kept::begin(&engine).expect("a note");
        assert_eq!(third.lives, [owner, reborn]);
    }

    #[test]
    fn a_last_owner_that_restarts_all_night_is_on_record() {
        let engine = Engine::memory();
        let (_, owner) = Kept::begin(&engine).expect("a note");
        spoke(&engine, owner).expect("a note");
        for restarts in 1..LIVES_MAX + 10 {
            let (kept, life) = Kept::begin(&engine).expect("a note");
            spoke(&engine, life).expect("a note");
            assert_eq!(kept.lives.first(), Some(&owner));
            assert_eq!(kept.lives.len(), restarts.min(LIVES_MAX));
        }
    }

    #[test]
    fn a_life_that_was_lost_as_a_last_owner_is_named_after_a_thousand_others() {
        let engine = Engine::memory();
        // Attached once, and adopted: then attached again before it knew, and lost as that.
        let (_, first) = Kept::begin(&engine).expect("a note");
        spoke(&engine, first).expect("a note");
        let (_, lost) = Kept::begin(&engine).expect("a note");
        spoke(&engine, lost).expect("a note");
        let mut named = Vec::new();
        for _ in 0..1000 {
            let (kept, life) = Kept::begin(&engine).expect("a note");
            spoke(&engine, life).expect("a note");
            named = kept.lives;
        }
        assert_eq!(named[..2], [first, lost]);
    }

    #[test]
    fn lives_that_nobody_heard_of_take_no_place() {
        let engine = Engine::memory();
        let (_, owner) = Kept::begin(&engine).expect("a note");
        spoke(&engine, owner).expect("a note");
        let (_, heard) = Kept::begin(&engine).expect("a note");
        spoke(&engine, heard).expect("a note");
        for _ in 0..2 * LIVES_MAX {
            Kept::begin(&engine).expect("a note");
        }
        let (last, _) = Kept::begin(&engine).expect("a note");
        assert_eq!(last.lives, [owner, heard]);
    }
}
