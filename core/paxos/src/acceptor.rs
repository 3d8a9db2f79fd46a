//! [`Acceptor`]: the memory that makes agreement safe. Losing any of it makes a replica a new one.

use crate::identity::{Instance, Round};
use crate::value::Value;
use std::collections::BTreeMap;

/// What one incarnation promised and accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Acceptor {
    promised: Round,
    /// The strongest accepted value per instance. An executed instance is gone from here: the log has it, and
    /// a last names the executed position, so no proposer begins it again.
    accepted: BTreeMap<Instance, (Round, Value)>,
}

impl Acceptor {
    pub fn promised(&self) -> Round {
        self.promised
    }

    /// Promises `round` unless a stronger one is promised. True: promised.
    pub fn promise(&mut self, round: Round) -> bool {
        if round < self.promised {
            return false;
        }
        self.promised = round;
        true
    }

    /// Accepts a value in a round that was promised before.
    pub fn accept(&mut self, instance: Instance, round: Round, value: Value) {
        self.accepted.insert(instance, (round, value));
    }

    pub fn accepted(&self, instance: Instance) -> Option<&(Round, Value)> {
        self.accepted.get(&instance)
    }

    pub fn accepted_from(&self, from: Instance) -> impl Iterator<Item = (Instance, &(Round, Value))> {
        self.accepted.range(from..).map(|(instance, accepted)| (*instance, accepted))
    }

    /// Gives up what was accepted from `from` on: only a recovered generation may.
    pub fn forget_from(&mut self, from: Instance) {
        self.accepted.split_off(&from);
    }

    /// The instance is executed: the log remembers it from here on.
    pub fn forget(&mut self, upto: Instance) {
        while let Some(entry) = self.accepted.first_entry() {
            if *entry.key() > upto {
                break;
            }
            entry.remove();
        }
    }
}
