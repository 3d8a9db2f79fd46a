//! [`Unheld`]: begins of large values whose bytes are not here yet.

use crate::identity::{Instance, Round, Time};
use crate::message::Proposal;
use crate::value::{DataName, Value};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Begins that an agent could not accept when they came, by instance. Without them it would miss every large value
/// that the others were quicker to hold: a decided instance is not begun again, and all that follows it waits.
#[derive(Clone, Debug, Default)]
pub struct Unheld {
    begun: BTreeMap<Instance, Begun>,
}

/// A begin as it came.
#[derive(Clone, Debug)]
pub struct Begun {
    /// The generation it was begun in.
    pub lineage: u32,
    pub from: SocketAddr,
    pub round: Round,
    pub sent: Time,
    pub proposal: Proposal,
}

impl Unheld {
    /// The strongest begin of an instance counts. What is executed needs no accept of ours any more.
    pub fn note(&mut self, executed: Instance, begun: Begun) {
        while let Some(oldest) = self.begun.first_entry()
            && *oldest.key() <= executed
        {
            oldest.remove();
        }
        let instance = begun.proposal.instance;
        let wanted = match self.begun.get(&instance) {
            Some(known) => known.round <= begun.round,
            None => self.begun.len() < UNHELD_MAX,
        };
        if wanted {
            self.begun.insert(instance, begun);
        }
    }

    /// The bytes of that name are here: takes the begins that waited for them. Those of another generation are void.
    pub fn take(&mut self, name: DataName, lineage: u32) -> Vec<Begun> {
        let named =
            |begun: &Begun| matches!(begun.proposal.value, Value::Large { name: it, .. } if it == name);
        self.begun
            .extract_if(.., |_, begun| named(begun))
            .map(|(_, begun)| begun)
            .filter(|begun| begun.lineage == lineage)
            .collect()
    }
}

/// More begins than values can be on their way are not kept: catch-up brings what they were about.
const UNHELD_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(instance: u64, name: DataName) -> Begun {
        let proposal = Proposal { instance: Instance(instance), value: Value::Large { name, length: 1 } };
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        Begun { lineage: 1, from, round: Round::default(), sent: Time(0), proposal }
    }

    #[test]
    fn begins_wait_for_their_own_bytes_and_are_bounded() {
        let (one, other) = (DataName::of(b"one"), DataName::of(b"other"));
        let mut unheld = Unheld::default();
        for instance in 1..=UNHELD_MAX as u64 + 9 {
            unheld.note(Instance(0), begun(instance, if instance == 5 { other } else { one }));
        }
        assert_eq!(unheld.begun.len(), UNHELD_MAX);
        assert_eq!(unheld.take(other, 1).len(), 1);
        assert!(unheld.take(other, 1).is_empty());
        unheld.note(Instance(UNHELD_MAX as u64 - 2), begun(1000, other));
        assert_eq!(unheld.take(one, 1).len(), 2, "what is executed is forgotten");
        assert_eq!(unheld.take(other, 1).len(), 1);
        unheld.note(Instance(0), begun(1001, other));
        assert!(unheld.take(other, 2).is_empty(), "begun in another generation");
    }
}
