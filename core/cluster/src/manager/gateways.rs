//! Gateways: ids are issued and expire by entries of the log. (REPLICATION.md, rule 22)

use super::reign::Topic;
use super::state::Manager;
use crate::alive::GATEWAY_MICROS;
use crate::{Cluster, Command, GATEWAYS_MAX, GatewayId, ManagerEffect, Message, SpaceNumber};
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use std::collections::BTreeMap;

/// Gateways that wait for an id.
#[derive(Default)]
pub(super) struct Registrations {
    waiting: BTreeMap<u128, ConnectionId>,
}

impl Registrations {
    /// Some id that we wait for was issued.
    pub fn has_answer(&self, cluster: &Cluster) -> bool {
        self.waiting.keys().any(|&nonce| cluster.gateway_for(nonce).is_some())
    }

    pub fn down(&mut self, connection: ConnectionId) {
        self.waiting.retain(|_, waiting| *waiting != connection);
    }
}

impl Manager {
    pub(super) fn register(
        &mut self,
        now: Time,
        connection: ConnectionId,
        nonce: u128,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        if !self.greet_gateway(now, connection, SpaceNumber(0), cluster, effects) || self.term().is_none() {
            return;
        }
        let room = self.registrations.waiting.len() < REGISTRATIONS_MAX
            && cluster.gateways().len() + self.registrations.waiting.len() < GATEWAYS_MAX;
        if room || cluster.gateway_for(nonce).is_some() {
            self.registrations.waiting.insert(nonce, connection);
            self.serve_registrations(now, cluster, effects);
        }
    }

    pub(super) fn gateway_alive(
        &mut self,
        now: Time,
        connection: ConnectionId,
        gateway: GatewayId,
        has: SpaceNumber,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        if !self.greet_gateway(now, connection, has, cluster, effects) || !cluster.is_live(gateway) {
            return;
        }
        if let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) {
            term.gateway_heard.insert(gateway, now);
        }
    }

    /// Returns whether this connection is a gateway's.
    fn greet_gateway(
        &mut self,
        now: Time,
        connection: ConnectionId,
        has: SpaceNumber,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) -> bool {
        let Some(new) = self.peers.gateway(connection) else { return false };
        if new {
            effects.push(ManagerEffect::Send(connection, self.managers(cluster)));
        }
        if self.may_know(connection, cluster) {
            self.peers.bring_up_to_date(now, connection, has, cluster.space(), effects);
        }
        true
    }

    /// Hands out ids that were issued, and asks for those that were not.
    pub(super) fn serve_registrations(
        &mut self,
        now: Time,
        cluster: &Cluster,
        effects: &mut Vec<ManagerEffect>,
    ) {
        // A cell without members may be a new one, that counts ids from the beginning while gateways of the one before live.
        if cluster.space().members.is_empty() || cluster.risen().is_some() {
            return;
        }
        let name = cluster.space().cluster;
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        self.registrations.waiting.retain(|&nonce, &mut connection| {
            let topic = Topic::Register(nonce);
            let Some(gateway) = cluster.gateway_for(nonce) else {
                term.propose(now, topic, &Command::Register { nonce }, effects);
                return true;
            };
            term.forget(topic);
            term.gateway_heard.insert(gateway, now);
            effects
                .push(ManagerEffect::Send(connection, Message::Registered { nonce, gateway, cluster: name }));
            false
        });
    }

    /// Each expiry makes a new space, so many gateways go with one, and not often.
    pub(super) fn expire_gateways(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let awake_since = self.awake_since;
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        if term.expired_at.is_some_and(|at| now.since(at) < EXPIRE_EVERY_MICROS) {
            return;
        }
        let heard = |gateway| term.gateway_heard.get(&gateway).copied().unwrap_or(term.since);
        let silent = |gateway: &GatewayId| now.since(heard(*gateway).max(awake_since)) > GATEWAY_MICROS;
        let gateways: Vec<GatewayId> = cluster.gateways().filter(silent).take(EXPIRE_MAX).collect();
        if gateways.is_empty() {
            return;
        }
        term.expired_at = Some(now);
        let command = Command::ExpireGateways { term: term.number, gateways };
        term.propose(now, Topic::Expire, &command, effects);
    }
}

const EXPIRE_EVERY_MICROS: u64 = 10_000_000;

const EXPIRE_MAX: usize = 64;

/// Wishes for an id under way at once. Who finds no room asks again.
const REGISTRATIONS_MAX: usize = 1024;
