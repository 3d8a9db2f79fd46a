//! Agreement: whoever executed up to an instance of a cell has the same state as everybody else who did,
//! at any time and in any life.

use super::Verdict;
use kumo_paxos::{CellId, Instance};
use std::collections::BTreeMap;

/// State digests by position, as first seen.
#[derive(Debug, Default)]
pub struct Agreement {
    digests: BTreeMap<(CellId, u32, Instance), (u64, u64)>,
    /// How often two processes were compared at one position.
    compared: u64,
}

impl Agreement {
    /// That process has executed up to there, and its state has that digest.
    pub fn observe(
        &mut self,
        process: u64,
        (cell, generation, instance): (CellId, u32, Instance),
        digest: u64,
    ) -> Verdict {
        let (first, whose) = *self.digests.entry((cell, generation, instance)).or_insert((digest, process));
        self.compared += u64::from(whose != process);
        if first == digest {
            return Ok(());
        }
        Err(format!(
            "processes {whose} and {process} differ at instance {} of cell {cell} generation {generation}: \
             digests {first:x} and {digest:x}",
            instance.0
        ))
    }

    pub fn compared(&self) -> u64 {
        self.compared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_state_at_the_same_instance_is_found() {
        let mut agreement = Agreement::default();
        let at = |instance| (CellId(1), 1, Instance(instance));
        agreement.observe(1, at(5), 77).unwrap();
        agreement.observe(2, at(5), 77).unwrap();
        agreement.observe(2, at(6), 78).unwrap();
        // Another cell has its own sequence.
        agreement.observe(3, (CellId(2), 1, Instance(5)), 99).unwrap();
        assert_eq!(agreement.compared(), 1);
        agreement.observe(1, at(6), 79).unwrap_err();
    }
}
