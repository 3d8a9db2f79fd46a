//! [`GatewayLink`]: a gateway's core with the sockets it needs: what a gateway and a native client have in common.

use crate::hub::{Happening, Hub};
use crate::post::{Arrived, Me, Post, Refusals, Target};
use kumo_cluster::{
    Answer, Gateway, GatewayEffect, GatewayError, GatewayInput, GatewayNote, GatewaySettings,
};
use kumo_paxos::{CellId, Side, Time};
use std::net::SocketAddr;
use std::task::Context;
use tracing::warn;

/// A gateway's core, and its connections with managers and servers. The loop that owns it calls `poll`, `step` and
/// `flush` in every turn.
pub struct GatewayLink {
    gateway: Gateway,
    post: Post,
    /// Those it was started with.
    managers: Vec<SocketAddr>,
    inputs: Vec<GatewayInput>,
    effects: Vec<GatewayEffect>,
    refusals: Refusals,
    /// Why all managers refused this process.
    refused: Option<String>,
}

/// What a step came to.
// The large one is the frequent one.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Told {
    /// A call is answered, exactly once per ticket.
    Done {
        ticket: u64,
        result: Result<Answer, GatewayError>,
    },
    Note(GatewayNote),
    /// The managers do not want this process: it must end.
    Refused(String),
}

impl GatewayLink {
    /// `noise`: random, to spread dials.
    pub fn new(
        settings: GatewaySettings,
        managers: &[SocketAddr],
        hub: Hub,
        noise: u64,
        now: Time,
    ) -> GatewayLink {
        let me = Me { side: Side::Gateway, id: None, cell: CellId(0) };
        let mut post = Post::new(hub, me, noise);
        managers.iter().for_each(|&manager| post.dial(now, Target::Manager(manager)));
        GatewayLink {
            gateway: Gateway::new(settings, now),
            post,
            managers: managers.to_vec(),
            inputs: Vec::new(),
            effects: Vec::new(),
            refusals: Refusals::new(managers),
            refused: None,
        }
    }

    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    pub fn hub(&mut self) -> &mut Hub {
        &mut self.post.hub
    }

    /// Where calls are put for the next step, beside the hub.
    pub fn parts(&mut self) -> (&mut Hub, &mut Vec<GatewayInput>) {
        (&mut self.post.hub, &mut self.inputs)
    }

    /// There is something to read.
    pub fn has_more(&self) -> bool {
        self.post.has_more()
    }

    /// Reads all that can be read now. What happened on foreign connections goes to `foreign`.
    pub fn poll(&mut self, now: Time, context: &mut Context, foreign: &mut Vec<Happening>) {
        self.post.poll(now, context);
        while let Some(one) = self.post.next(now) {
            self.take(one, foreign);
        }
    }

    fn take(&mut self, arrived: Arrived, foreign: &mut Vec<Happening>) {
        let input = match arrived {
            Arrived::Server(id, message) => GatewayInput::Server(id, message),
            Arrived::Foreign(happening) => return foreign.push(happening),
            Arrived::ServerUp(id) => GatewayInput::ServerUp(id),
            Arrived::ServerDown(id) => GatewayInput::ServerDown(id),
            Arrived::ManagerUp(address) => {
                self.refusals.withdrawn(address);
                GatewayInput::ManagerUp(address)
            }
            Arrived::ManagerDown(address) => GatewayInput::ManagerDown(address),
            Arrived::Manager(address, message) => GatewayInput::Manager(address, message),
            // Nobody of the store dials a gateway.
            Arrived::Gateway(..) | Arrived::GatewayDown(_) | Arrived::Tool(..) => return,
            // One that serves already dials again, as after any failure: a manager may be full for a moment.
            Arrived::Refused(Target::Manager(address), reason) if self.post.me().cell != CellId(0) => {
                warn!(manager = %address, reason, "refused");
                return;
            }
            Arrived::Refused(Target::Manager(address), reason) => {
                self.refused = self.refusals.refused(address, &reason);
                return;
            }
            Arrived::Refused(Target::Server(id), reason) => {
                warn!(server = %id.address, reason, "refused");
                return;
            }
        };
        self.inputs.push(input);
    }

    /// Steps the core through everything that arrived and was called, and does what it wants done.
    pub fn step(&mut self, now: Time, told: &mut Vec<Told>) {
        told.extend(self.refused.take().map(Told::Refused));
        for input in self.inputs.drain(..) {
            self.gateway.step(now, input, &mut self.effects);
        }
        if self.gateway.deadline().is_some_and(|deadline| deadline <= now) {
            self.gateway.step(now, GatewayInput::Timeout, &mut self.effects);
        }
        for effect in self.effects.drain(..) {
            match effect {
                GatewayEffect::Server(to, message) => self.post.send_server(to, &message),
                GatewayEffect::Done { ticket, result } => told.push(Told::Done { ticket, result }),
                GatewayEffect::Manager(to, message) => self.post.send_manager(to, &message),
                GatewayEffect::Dial(id) => self.post.dial(now, Target::Server(id)),
                GatewayEffect::Undial(id) => self.post.undial(Target::Server(id)),
                GatewayEffect::Managers(mut managers) => {
                    managers.extend(&self.managers);
                    let dropped = self.post.only_managers(now, &managers);
                    self.inputs.extend(dropped.into_iter().map(GatewayInput::ManagerDown));
                }
                GatewayEffect::Note(note) => {
                    if let GatewayNote::Adopted { space } = &note {
                        let me = self.post.me();
                        self.post.set_me(Me { cell: space.cluster, ..me });
                    }
                    told.push(Told::Note(note));
                }
                GatewayEffect::Exit(reason) => told.push(Told::Refused(reason)),
            }
        }
    }

    /// Writes all that waits. True: there is more to do at once.
    pub fn flush(&mut self) -> bool {
        self.post.flush();
        self.post.has_left() || !self.inputs.is_empty()
    }

    pub fn deadline(&self) -> Option<Time> {
        [self.gateway.deadline(), self.post.deadline()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::Early;
    use std::time::Duration;

    fn settings() -> GatewaySettings {
        GatewaySettings {
            nonce: 1,
            cluster: None,
            get_retry_max: 1,
            set_retry_max: 1,
            delete_retry_max: 1,
            renew_threshold: 1,
            try_micros: 1_000_000,
            request_micros: 1_000_000,
            early: Early::default(),
            spread_reads: false,
            keepalive_micros: 1_000_000,
            workers: 1,
        }
    }

    #[test]
    fn one_manager_that_refuses_ends_nothing_and_all_do() {
        let managers = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let hub = Hub::new(Duration::from_secs(1));
        let mut link = GatewayLink::new(settings(), &managers, hub, 1, Time(0));
        let mut told = Vec::new();
        let refused = |manager| Arrived::Refused(Target::Manager(manager), "full".to_owned());
        link.take(refused(managers[1]), &mut Vec::new());
        link.step(Time(1), &mut told);
        assert!(told.is_empty(), "{told:?}");
        link.take(refused(managers[0]), &mut Vec::new());
        link.step(Time(2), &mut told);
        let [Told::Refused(reason)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(reason, "manager 127.0.0.1:1: full; manager 127.0.0.1:2: full");
    }
}
