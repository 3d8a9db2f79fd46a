//! A gateway's shell: its core is fed, and what it wants done is done.

use super::links::Target;
use super::processes::{ProcessId, Program};
use super::servers::KEEPALIVE_MICROS;
use super::{Event, World};
use kumo_cluster::{Early, Gateway, GatewayEffect, GatewayInput, GatewayNote, GatewaySettings, ServerId};
use std::collections::BTreeSet;

/// A gateway's program.
pub struct GatewayNode {
    pub core: Gateway,
    /// Calls that have no answer.
    pub tickets: BTreeSet<usize>,
}

impl World {
    pub fn make_gateway(&mut self, index: usize) -> GatewayNode {
        let nonce = self.randoms.names.wide();
        let slot = &self.slots[index];
        let place = index - self.places(super::Kind::Gateway).start;
        let settings = GatewaySettings {
            nonce,
            cluster: None,
            get_retry_max: 5 * 4,
            set_retry_max: 20,
            delete_retry_max: 20,
            renew_threshold: 5,
            try_micros: 5_000_000,
            request_micros: self.plan.request_micros,
            early: Early::default(),
            spread_reads: self.plan.spread[place],
            keepalive_micros: KEEPALIVE_MICROS,
            workers: 1,
        };
        let core = Gateway::new(settings, slot.clock.local(self.now));
        GatewayNode { core, tickets: BTreeSet::new() }
    }

    pub fn gateway_step(&mut self, id: ProcessId, input: GatewayInput) {
        let Some((now, _)) = self.local(id) else { return };
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Program::Gateway(node) = &mut process.program else { return };
        let mut effects = Vec::new();
        node.core.step(now, input, &mut effects);
        for effect in effects {
            self.gateway_effect(id, effect);
        }
        self.arm(id);
    }

    fn gateway_effect(&mut self, id: ProcessId, effect: GatewayEffect) {
        let Some(process) = self.processes.get(&id) else { return };
        let connection = |target| process.links.get(&target).and_then(|link| link.connection);
        match effect {
            GatewayEffect::Manager(to, message) => {
                if let Some(connection) = connection(Target::Manager(to)) {
                    self.send(connection, 0, &message);
                }
            }
            GatewayEffect::Server(to, message) => {
                if let Some(connection) = connection(Target::Server(to)) {
                    self.send(connection, 0, &message);
                }
            }
            GatewayEffect::Dial(to) => self.want_link(id, Target::Server(to)),
            GatewayEffect::Undial(to) => self.gateway_undial(id, to),
            GatewayEffect::Managers(managers) => {
                for manager in self.only_managers(id, managers) {
                    self.gateway_step(id, GatewayInput::ManagerDown(manager));
                }
            }
            GatewayEffect::Done { ticket, result } => self.done(id, ticket as usize, result),
            GatewayEffect::Note(note) => self.gateway_note(id, &note),
            GatewayEffect::Exit(reason) => self.fail(format!("p{} exits: {reason}", id.0)),
        }
    }

    fn gateway_undial(&mut self, id: ProcessId, to: ServerId) {
        if self.drop_link(id, Target::Server(to)) {
            self.schedule.put(self.now, Event::Undialled { process: id, server: to });
        }
    }

    fn gateway_note(&mut self, id: ProcessId, note: &GatewayNote) {
        self.trace.note(self.now, &[9, id.0], &[], || format!("p{} notes {}", id.0, super::clip(note)));
        match note {
            GatewayNote::Adopted { space } => self.spread(space),
            GatewayNote::Stranger { .. } if !self.forgotten => {
                self.fail(format!("p{} met a stranger: {note:?}", id.0));
            }
            // Those that are to take the ring over, and have not yet.
            GatewayNote::Stranger { .. }
            | GatewayNote::Registered { .. }
            | GatewayNote::Expired { .. }
            | GatewayNote::Failed { .. } => {}
        }
    }
}
