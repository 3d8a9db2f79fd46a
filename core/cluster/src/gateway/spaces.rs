//! What a [`Gateway`] hears of spaces, servers and its own id, and what that means for the calls under way.

use super::call::Stands;
use super::route::Route;
use super::slots::Wait;
use super::{Gateway, Speaker};
use crate::{GatewayEffect, GatewayError, GatewayId, GatewayNote, Message, ServerId, Space, SpaceNumber};
use kumo_paxos::{CellId, Time};
use std::collections::BTreeSet;
use std::net::SocketAddr;

impl Gateway {
    pub(super) fn new_space(
        &mut self,
        now: Time,
        from: Speaker,
        space: Space,
        effects: &mut Vec<GatewayEffect>,
    ) {
        if !space.well_formed() {
            return;
        }
        if self.cluster.is_some_and(|ours| ours != space.cluster) {
            return self.stranger(from, &space, effects);
        }
        if self.route.is_none() || space.number > self.space_number() {
            self.adopt(now, space, effects);
        }
    }

    /// Whoever lacks a space that this gateway named gets it here, without asking a manager.
    pub(super) fn want_space(&self, from: Speaker, above: SpaceNumber, effects: &mut Vec<GatewayEffect>) {
        let Some(space) = self.space().filter(|space| space.number > above) else { return };
        let message = Message::new_space(space.clone());
        effects.push(match from {
            Speaker::Manager(manager) => GatewayEffect::Manager(manager, message),
            Speaker::Server(server) => GatewayEffect::Server(server, message),
        });
    }

    pub(super) fn registered(
        &mut self,
        now: Time,
        nonce: u128,
        gateway: GatewayId,
        cluster: CellId,
        effects: &mut Vec<GatewayEffect>,
    ) {
        if !self.managers.registered(nonce, gateway) {
            return;
        }
        self.cluster = Some(cluster);
        effects.push(GatewayEffect::Note(GatewayNote::Registered { gateway }));
        if self.space().is_some_and(|space| space.expired(gateway)) {
            return self.expired(now, effects);
        }
        let space = self.space_number();
        self.managers.tell(now, space, effects);
        self.place(now, effects);
    }

    pub(super) fn unwelcome(&self, manager: SocketAddr, reason: &str, effects: &mut Vec<GatewayEffect>) {
        // One that served already goes on: what another cell's manager says of it later is that one's affair.
        if self.route.is_none() {
            let why = format!("manager {manager} refuses this gateway: {reason}");
            effects.push(GatewayEffect::Exit(why));
        }
    }

    pub(super) fn server_up(&mut self, now: Time, server: ServerId, effects: &mut Vec<GatewayEffect>) {
        // One that was given up meanwhile has no entry.
        let Some(&link) = self.links.get(&server) else { return };
        if link {
            // Another connection than the one that was up before: what was asked on that one may not have been sent.
            self.server_down(now, server, effects);
        }
        self.links.insert(server, true);
        if let Some(route) = &mut self.route {
            route.set_up(server, true);
        }
        for slot in self.window.slots() {
            if self.slots.get(slot).stands == Stands::Held {
                self.send(now, slot, effects);
            }
        }
        self.send_flushes(effects);
    }

    pub(super) fn server_down(&mut self, now: Time, server: ServerId, effects: &mut Vec<GatewayEffect>) {
        let Some(link) = self.links.get_mut(&server) else { return };
        *link = false;
        self.flushes.server_down(server);
        let Some(index) = self.route.as_mut().and_then(|route| route.set_up(server, false)) else { return };
        for slot in self.window.slots() {
            let call = self.slots.get_mut(slot);
            if call.stands != Stands::Asked(index) {
                continue;
            }
            call.lost_sight();
            if self.failed(now, slot, effects) {
                self.send(now, slot, effects);
            }
        }
    }

    /// This gateway's id is refused for good. What was sent under it may have been executed, and nobody will tell;
    /// the rest begins anew under another id. Seqs go on, so that no late answer is taken for another's.
    pub(super) fn expired(&mut self, now: Time, effects: &mut Vec<GatewayEffect>) {
        let Some(gateway) = self.managers.expired() else { return };
        effects.push(GatewayEffect::Note(GatewayNote::Expired { gateway }));
        self.flushes_expired(effects);
        for slot in self.window.slots() {
            let call = self.slots.get_mut(slot);
            if call.in_doubt() {
                self.close(slot, Err(GatewayError::Unknown), effects);
                continue;
            }
            self.window.close(call.seq);
            call.stands = Stands::Unplaced;
            call.sends = 0;
            self.slots.wait(slot, Wait::Place, Time(u64::MAX));
        }
        let space = self.space_number();
        self.managers.tell(now, space, effects);
    }

    /// Managers of two cells were named, or their address was given to another cell.
    fn stranger(&self, from: Speaker, space: &Space, effects: &mut Vec<GatewayEffect>) {
        let from = match from {
            Speaker::Manager(manager) => manager,
            Speaker::Server(server) => server.address,
        };
        let cluster = space.cluster;
        effects.push(match self.route {
            None => GatewayEffect::Exit(format!("{from} belongs to another cell, {cluster}")),
            Some(_) => GatewayEffect::Note(GatewayNote::Stranger { from, cluster }),
        });
    }

    fn adopt(&mut self, now: Time, space: Space, effects: &mut Vec<GatewayEffect>) {
        effects.push(GatewayEffect::Note(GatewayNote::Adopted { space: space.clone() }));
        // One without servers binds to nothing: a rebuild brings them, under the name of the cluster they are of.
        if !space.members.is_empty() {
            self.cluster = Some(space.cluster);
        }
        self.redial(&space, effects);
        let before = self.route.replace(Route::new(space, &self.links));
        if self.id().zip(self.space()).is_some_and(|(id, space)| space.expired(id)) {
            self.expired(now, effects);
        }
        if let Some(before) = before {
            self.reroute(now, &before, effects);
        }
        self.restart_flushes(effects);
        self.place(now, effects);
    }

    fn redial(&mut self, space: &Space, effects: &mut Vec<GatewayEffect>) {
        let wanted: BTreeSet<ServerId> = Route::servers(space).collect();
        self.links.retain(|&server, _| {
            let stays = wanted.contains(&server);
            if !stays {
                effects.push(GatewayEffect::Undial(server));
            }
            stays
        });
        for server in wanted {
            self.links.entry(server).or_insert_with(|| {
                effects.push(GatewayEffect::Dial(server));
                false
            });
        }
    }

    /// Under a new space: a call whose server went is sent to the next one, and so is what could not be sent or
    /// was told to come again. A write that its old primary still has waits for that one's answer: the new one
    /// serves nothing before the old one knows the space, and then the old one says so. (REPLICATION.md, rule 16)
    fn reroute(&mut self, now: Time, before: &Route, effects: &mut Vec<GatewayEffect>) {
        for slot in self.window.slots() {
            let call = self.slots.get_mut(slot);
            let asked = match call.stands {
                Stands::Asked(index) => Some(before.space.server(index)),
                Stands::Held | Stands::Paused | Stands::Unplaced => None,
            };
            let route = self.route.as_ref().expect("it was just adopted");
            let still = asked
                .and_then(|server| route.space.index_of(server))
                .filter(|&index| route.is_up(index) && (!call.is_get() || route.reads(call, index)));
            if let Some(index) = still {
                call.stands = Stands::Asked(index);
                continue;
            }
            if asked.is_some() {
                call.lost_sight();
            }
            self.send(now, slot, effects);
        }
    }
}
