//! [`Panics`]: who panicked at which instance, and whether that is a bug or noise (seed 004).

use crate::identity::Instance;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The panics that this replica knows of: its own, and those that the others report.
/// One replica's panic at an instance is noise; a second one's at the same instance is a bug in executing it.
///
/// Replicas count by address: one that comes back with another incarnation is no second replica. What is here lives as
/// long as the process, and on no disk: a replica that is started again executes what it never got past again, with a
/// program that may have been mended.
#[derive(Debug, Default)]
pub struct Panics {
    /// The last instance at which this replica panicked. It stays when the replica has got past it.
    own: Option<Instance>,
    heard: BTreeMap<Instance, BTreeSet<SocketAddr>>,
    bug: Option<Instance>,
}

impl Panics {
    /// What this replica reports.
    pub fn own(&self) -> Option<Instance> {
        self.own
    }

    /// The instance at which two replicas panicked.
    pub fn bug(&self) -> Option<Instance> {
        self.bug
    }

    /// This replica panicked. True: it is the second, so it is a bug.
    pub fn panicked(&mut self, me: SocketAddr, instance: Instance) -> bool {
        self.own = Some(instance);
        self.hear(me, instance)
    }

    /// That replica panicked. True: it is the second at that instance, so it is a bug, which was not known before.
    pub fn hear(&mut self, replica: SocketAddr, instance: Instance) -> bool {
        if self.bug.is_some() {
            return false;
        }
        let replicas = self.heard.entry(instance).or_default();
        replicas.insert(replica);
        if replicas.len() >= 2 {
            self.bug = Some(instance);
        }
        while self.heard.len() > HEARD_MAX {
            self.heard.pop_first();
        }
        self.bug.is_some()
    }
}

/// Instances remembered at which one replica panicked: the newest, which others may still have to execute.
const HEARD_MAX: usize = 64;
