//! [`Links`]: the links this node dials, two to each peer the cell names.

use super::link::{Lane, Link, is_bulk};
use kumo_link::{ReadyList, Signal, Token};
use kumo_paxos::{Envelope, Time};
use kumo_session::{Application, Cell, Input};
use std::net::SocketAddr;
use std::sync::Arc;

/// All links. A cell has a handful of members, so they are found by looking.
pub struct Links {
    ready: Arc<ReadyList>,
    /// This node's own address: never dialled.
    own: SocketAddr,
    unit_micros: u64,
    links: Vec<(u64, Link)>,
    /// The last number given to a link.
    number: u64,
    /// For jitter: must differ between nodes, need not be unpredictable.
    noise: u64,
}

impl Links {
    pub fn new(ready: Arc<ReadyList>, own: SocketAddr, unit_micros: u64, noise: u64) -> Links {
        Links { ready, own, unit_micros, links: Vec::new(), number: 0, noise: noise | 1 }
    }

    /// Keeps a link to that address from now on.
    pub fn dial(&mut self, now: Time, address: SocketAddr) {
        if address == self.own || self.links.iter().any(|(_, link)| link.address == address) {
            return;
        }
        for lane in [Lane::Main, Lane::Bulk] {
            self.number += 1;
            let signal = Signal::new(Token::Link(self.number), &self.ready);
            self.links.push((self.number, Link::new(now, address, lane, signal, self.unit_micros)));
        }
    }

    /// Gives the link to that address up.
    pub fn undial(&mut self, address: SocketAddr, inputs: &mut Vec<Input>) {
        if self.find(address, Lane::Main).is_some_and(|link| link.is_up()) {
            inputs.push(Input::PeerDown(address));
        }
        self.links.retain(|(_, link)| link.address != address);
    }

    /// A peer that says hello to us can be dialled.
    pub fn hurry(&mut self, now: Time, address: SocketAddr) {
        if let Some(link) = self.find(address, Lane::Main) {
            link.hurry(now);
        }
    }

    /// Lets a link that woke go on.
    pub fn wake<A: Application>(&mut self, now: Time, number: u64, cell: &Cell<A>, inputs: &mut Vec<Input>) {
        let jitter = self.jitter();
        let Some((_, link)) = self.links.iter_mut().find(|(known, _)| *known == number) else { return };
        link.signal.seen();
        link.advance(now, cell, jitter, inputs);
        link.dirty |= link.has_output();
        self.follow(now);
    }

    /// Lets the links go on whose time has come.
    pub fn expire<A: Application>(&mut self, now: Time, cell: &Cell<A>, inputs: &mut Vec<Input>) {
        let jitter = self.jitter();
        for (_, link) in &mut self.links {
            if link.deadline().is_some_and(|deadline| deadline <= now) {
                link.advance(now, cell, jitter, inputs);
            }
        }
        self.follow(now);
    }

    /// The second link to a peer is kept while the first is up.
    fn follow(&mut self, now: Time) {
        let up: Vec<SocketAddr> = self
            .links
            .iter()
            .filter(|(_, link)| link.lane == Lane::Main && link.is_up())
            .map(|(_, link)| link.address)
            .collect();
        for (_, link) in self.links.iter_mut().filter(|(_, link)| link.lane == Lane::Bulk) {
            link.follow(now, up.contains(&link.address));
        }
    }

    pub fn send(&mut self, now: Time, to: SocketAddr, envelope: &Envelope, inputs: &mut Vec<Input>) {
        let jitter = self.jitter();
        let parted = is_bulk(&envelope.message) && self.find(to, Lane::Bulk).is_some_and(|link| link.is_up());
        let lane = if parted { Lane::Bulk } else { Lane::Main };
        let Some(link) = self.find(to, lane) else { return };
        link.send(now, envelope, jitter, inputs);
        link.dirty = true;
    }

    /// Writes what waits, one call per link.
    pub fn flush(&mut self, now: Time, inputs: &mut Vec<Input>) {
        let jitter = self.jitter();
        for (_, link) in &mut self.links {
            if std::mem::take(&mut link.dirty) {
                link.flush(now, jitter, inputs);
            }
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        self.links.iter().filter_map(|(_, link)| link.deadline()).min()
    }

    pub fn has_output(&self) -> bool {
        self.links.iter().any(|(_, link)| link.has_output())
    }

    fn find(&mut self, address: SocketAddr, lane: Lane) -> Option<&mut Link> {
        let mut links = self.links.iter_mut().map(|(_, link)| link);
        links.find(|link| link.address == address && link.lane == lane)
    }

    /// The next of a sequence of numbers (xorshift).
    fn jitter(&mut self) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        self.noise >> 11
    }
}
