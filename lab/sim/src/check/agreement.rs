//! Agreement: whoever executed up to an instance of a cell has the same state as everybody else who did,
//! at any time and in any life. Only an operator who accepts the loss may have a cell go on otherwise.

use kumo_paxos::{CellId, Instance};
use std::collections::BTreeMap;

/// State digests by position, as first seen.
#[derive(Debug, Default)]
pub struct Agreement {
    digests: BTreeMap<(CellId, u32, Instance), (u64, u64)>,
    /// How often two processes were compared at one position.
    compared: u64,
    /// By cell: its generation, and up to where the ones before it still count.
    newest: BTreeMap<CellId, (u32, Instance)>,
}

/// A process at a position.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    pub cell: CellId,
    pub generation: u32,
    pub executed: Instance,
    /// How far it was when it was seen before.
    pub before: Instance,
    pub digest: u64,
}

impl Agreement {
    /// That process has executed up to there, and its state has that digest. True: it is the first one of a new
    /// generation, and what earlier ones executed beyond what it had then is void.
    pub fn observe(&mut self, process: u64, sight: Sight) -> Result<bool, String> {
        let Sight { cell, generation, executed, before, digest } = sight;
        let known = self.newest.get(&cell).copied();
        let (newest, counts) = known.unwrap_or((generation, Instance(0)));
        let recovered = generation > newest;
        if recovered || known.is_none() {
            self.newest.insert(cell, (generation, before));
            self.digests
                .retain(|(of, old, instance), _| *of != cell || *old == generation || *instance <= before);
        } else if generation < newest && executed > counts {
            return Ok(false);
        }
        let (first, whose) = *self.digests.entry((cell, generation, executed)).or_insert((digest, process));
        self.compared += u64::from(whose != process);
        if first == digest {
            return Ok(recovered);
        }
        Err(format!(
            "processes {whose} and {process} differ at instance {} of cell {cell} generation {generation}: \
             digests {first:x} and {digest:x}",
            executed.0
        ))
    }

    pub fn compared(&self) -> u64 {
        self.compared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(generation: u32, executed: u64, digest: u64) -> Sight {
        let before = Instance(executed - 1);
        Sight { cell: CellId(1), generation, executed: Instance(executed), before, digest }
    }

    #[test]
    fn another_state_at_the_same_instance_is_found() {
        let mut agreement = Agreement::default();
        agreement.observe(1, at(1, 5, 77)).unwrap();
        agreement.observe(2, at(1, 5, 77)).unwrap();
        agreement.observe(2, at(1, 6, 78)).unwrap();
        // Another cell has its own sequence.
        agreement.observe(3, Sight { cell: CellId(2), ..at(1, 5, 99) }).unwrap();
        assert_eq!(agreement.compared(), 1);
        agreement.observe(1, at(1, 6, 79)).unwrap_err();
    }

    #[test]
    fn a_survivor_may_leave_behind_what_others_did_and_nothing_it_had() {
        let mut agreement = Agreement::default();
        for executed in 5..9 {
            assert_eq!(agreement.observe(1, at(1, executed, executed)), Ok(false));
        }
        assert_eq!(agreement.observe(2, at(1, 6, 6)), Ok(false));
        // It had executed 6, and goes on from there.
        assert_eq!(agreement.observe(2, Sight { before: Instance(6), ..at(2, 8, 80) }), Ok(true));
        assert_eq!(agreement.observe(3, at(1, 7, 70)), Ok(false));
        assert_eq!(agreement.observe(3, at(2, 8, 80)), Ok(false));
        agreement.observe(3, at(1, 6, 60)).unwrap_err();
        agreement.observe(3, at(2, 8, 81)).unwrap_err();
    }
}
