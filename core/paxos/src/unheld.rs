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
    pub from: SocketAddr,
    pub round: Round,
    pub sent: Time,
    pub proposal: Proposal,
}

impl Unheld {
    /// The newest begin of an instance counts. What is executed needs no accept of ours any more.
    pub fn note(&mut self, executed: Instance, begun: Begun) {
        while let Some(oldest) = self.begun.first_entry()
            && *oldest.key() <= executed
        {
            oldest.remove();
        }
        let instance = begun.proposal.instance;
        if self.begun.len() < UNHELD_MAX || self.begun.contains_key(&instance) {
            self.begun.insert(instance, begun);
        }
    }

    /// The bytes of that name are here: takes the begins that waited for them.
    pub fn take(&mut self, name: DataName) -> Vec<Begun> {
        let named =
            |begun: &Begun| matches!(begun.proposal.value, Value::Large { name: it, .. } if it == name);
        self.begun.extract_if(.., |_, begun| named(begun)).map(|(_, begun)| begun).collect()
    }
}

/// More begins than values can be on their way are not kept: catch-up brings what they were about.
const UNHELD_MAX: usize = 256;
