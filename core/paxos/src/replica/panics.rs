//! When executing an entry panics: one replica's panic is noise, and it comes back by a snapshot; a second one's at the
//! same instance is a bug, and execution stops wherever that is heard of.

use super::Replica;
use crate::identity::{Instance, Time};
use crate::step::{Effect, Note};
use std::net::SocketAddr;

impl Replica {
    /// The host could not execute it: the application panicked. The replica reports that from now on, steps down if it
    /// led, and waits for a snapshot from one that got past it.
    pub fn panicked(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let instance = self.agreement.log().next();
        if self.panics.panicked(self.settings.address, instance) {
            self.stop_executing(now, instance, effects);
        }
        self.step_down(now, effects);
        self.heartbeats(now, effects);
        self.settle(now, effects);
    }

    /// The instance that this replica could not execute and has not got past.
    pub(super) fn halted(&self) -> Option<Instance> {
        self.panics.own().filter(|instance| *instance > self.agreement.log().executed())
    }

    /// A peer reports its last panic. Who is no member stops nobody.
    pub(super) fn panic_heard(
        &mut self,
        now: Time,
        from: SocketAddr,
        instance: Instance,
        effects: &mut Vec<Effect>,
    ) {
        let member = self.configuration().is_some_and(|configuration| configuration.at(from).is_some());
        if member && self.panics.hear(from, instance) {
            self.stop_executing(now, instance, effects);
        }
    }

    /// A bug: what executing that instance makes of the state cannot be trusted anywhere. Agreement keeps what it has;
    /// nothing is executed and nobody leads until a person has looked at it.
    fn stop_executing(&mut self, now: Time, instance: Instance, effects: &mut Vec<Effect>) {
        effects.push(Effect::Note(Note::Bug(instance)));
        self.step_down(now, effects);
    }

    /// Noise: a replica that got past it gives its state.
    pub(super) fn come_back(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(halted) = self.halted().filter(|_| self.panics.bug().is_none()) else { return };
        if self.catching.snapshot.is_some() {
            return;
        }
        let silence = self.silence_micros();
        let past = self.links.iter().find(|(_, link)| link.alive(now, silence) && link.executed >= halted);
        if let Some(donor) = past.map(|(peer, _)| peer) {
            self.take_snapshot(donor, effects);
        }
    }
}
