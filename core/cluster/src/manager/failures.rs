//! Who is lost, who is back, and in which order the cell is told. (REPLICATION.md, rules 10, 13 and 20)

use super::reign::{Topic, acts};
use super::state::Manager;
use crate::cluster::returning;
use crate::{Cluster, Command, Incarnation, ManagerEffect, ManagerNote, ServerId};
use kumo_paxos::Time;
use std::collections::BTreeSet;

impl Manager {
    pub(super) fn find_failures(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        // A master whose own lease is out may be no master any more, and hears nobody for its own fault.
        if self.cell.lease_end.is_none_or(|end| now >= end) {
            return;
        }
        let gone = self.gone(now, cluster);
        let (free, stuck) = self.sorted_by_hope(now, gone, cluster);
        let ready = self.ready(now, free, stuck);
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        for &server in ready.iter().filter(|server| !term.is_condemned(server)) {
            effects.push(ManagerEffect::Note(ManagerNote::FaultProposed { server }));
        }
        term.condemn(ready);
        if term.doomed.is_empty() {
            term.forget(Topic::Fault);
        } else {
            let (number, servers) = (cluster.space().number, term.doomed.clone());
            let command = Command::Fault { term: term.number, number, servers };
            term.propose(now, Topic::Fault, &command, effects);
        }
        self.bring_back(now, cluster, effects);
    }

    /// Acting members that do not answer any more, whatever their leases.
    fn gone(&self, now: Time, cluster: &Cluster) -> BTreeSet<ServerId> {
        let space = cluster.space();
        let acting = space.members.iter().map(|member| member.id()).filter(|&id| acts(space, id));
        acting.filter(|server| self.is_gone(now, server)).collect()
    }

    fn is_gone(&self, now: Time, server: &ServerId) -> bool {
        let silence = self.peers.silence_micros();
        let Some(reign) = &self.reign else { return false };
        let since = reign.since().unwrap_or(now);
        match self.peers.heard(server) {
            // This process never heard of that life: it may be dialling us for the first time.
            None => {
                self.peers.life_at(server.address).is_some()
                    || now.since(since.max(self.awake_since)) > silence
            }
            Some(heard) if heard.connection.is_none() => true,
            Some(heard) => now.since(heard.at.max(self.awake_since)) > silence,
        }
    }

    /// Sorts out those whose fault leaves an arc without anyone to read it: for them it matters who is logged last.
    fn sorted_by_hope(
        &mut self,
        now: Time,
        gone: BTreeSet<ServerId>,
        cluster: &Cluster,
    ) -> (Vec<ServerId>, Vec<ServerId>) {
        let space = cluster.space();
        let Some(reign) = &mut self.reign else { return (Vec::new(), Vec::new()) };
        let mut last: BTreeSet<ServerId> = BTreeSet::new();
        let arcs = if gone.is_empty() { &[] } else { reign.rings(cluster).table.arcs() };
        for arc in arcs {
            let readers = arc.readers.iter().map(|&index| space.server(index));
            if readers.clone().all(|reader| gone.contains(&reader)) {
                last.extend(readers);
            }
        }
        if let Some(term) = reign.own() {
            term.stuck_since.retain(|server, _| last.contains(server));
            for &server in &last {
                term.stuck_since.entry(server).or_insert(now);
            }
        }
        gone.into_iter().partition(|server| !last.contains(server))
    }

    /// Those to be put up now, in order. Who is not back goes first: the one that is logged last has everything, and
    /// should be one that is there. When whole arcs are lost we wait a while for who may come back.
    fn ready(&mut self, now: Time, free: Vec<ServerId>, stuck: Vec<ServerId>) -> Vec<ServerId> {
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return Vec::new() };
        let out = |server: &ServerId| term.lease_is_out(now, server);
        let patience_over = stuck
            .iter()
            .all(|server| term.stuck_since.get(server).is_some_and(|&at| now.since(at) > PATIENCE_MICROS));
        let mut ready: Vec<ServerId> = free.into_iter().filter(out).collect();
        if stuck.iter().all(out) && (patience_over || stuck.iter().all(|&one| self.back(one).is_some())) {
            ready.extend(stuck);
        }
        ready.sort_by_key(|&server| self.back(server).is_some());
        ready
    }

    /// The life in which a lost one is back with its disk.
    fn back(&self, lost: ServerId) -> Option<Incarnation> {
        let heard = self.peers.life_at(lost.address)?;
        let back = heard.alive.previous.contains(&lost.incarnation);
        back.then_some(heard.alive.server.incarnation)
    }

    /// Last owners that are back, with the lives in which they are.
    pub(super) fn returning(&mut self, cluster: &Cluster) -> Vec<(ServerId, Incarnation)> {
        let Some(reign) = &mut self.reign else { return Vec::new() };
        let authorities = reign.rings(cluster).authorities.clone();
        if authorities.is_empty() {
            return Vec::new();
        }
        returning(cluster.space(), &authorities, |lost| self.back(lost))
    }

    /// They lead their arcs again.
    fn bring_back(&mut self, now: Time, cluster: &Cluster, effects: &mut Vec<ManagerEffect>) {
        let servers = self.returning(cluster);
        let Some(term) = self.reign.as_mut().and_then(|reign| reign.own()) else { return };
        if servers.is_empty() || now < term.faults_from {
            term.forget(Topic::Return);
            return;
        }
        let command = Command::Return { term: term.number, number: cluster.space().number, servers };
        term.propose(now, Topic::Return, &command, effects);
    }
}

/// How long whole arcs stay without service for the sake of who may come back.
const PATIENCE_MICROS: u64 = 5_000_000;
