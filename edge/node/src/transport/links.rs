//! [`Links`]: the links this node dials, one per peer the cell names.

use super::link::Link;
use super::ready::{ReadyList, Signal, Token};
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
        self.number += 1;
        let signal = Signal::new(Token::Link(self.number), &self.ready);
        self.links.push((self.number, Link::new(now, address, signal, self.unit_micros)));
    }

    /// Gives the link to that address up.
    pub fn undial(&mut self, address: SocketAddr, inputs: &mut Vec<Input>) {
        let Some(index) = self.links.iter().position(|(_, link)| link.address == address) else { return };
        let (_, link) = self.links.swap_remove(index);
        if link.is_up() {
            inputs.push(Input::PeerDown(address));
        }
    }

    /// A peer that says hello to us can be dialled.
    pub fn hurry(&mut self, now: Time, address: SocketAddr) {
        if let Some(link) = self.links.iter_mut().find(|(_, link)| link.address == address) {
            link.1.hurry(now);
        }
    }

    /// Lets a link that woke go on.
    pub fn wake<A: Application>(&mut self, now: Time, number: u64, cell: &Cell<A>, inputs: &mut Vec<Input>) {
        let jitter = self.jitter();
        let Some((_, link)) = self.links.iter_mut().find(|(known, _)| *known == number) else { return };
        link.signal.seen();
        link.advance(now, cell, jitter, inputs);
        link.dirty |= link.has_output();
    }

    /// Lets the links go on whose time has come.
    pub fn expire<A: Application>(&mut self, now: Time, cell: &Cell<A>, inputs: &mut Vec<Input>) {
        let jitter = self.jitter();
        for (_, link) in &mut self.links {
            if link.deadline().is_some_and(|deadline| deadline <= now) {
                link.advance(now, cell, jitter, inputs);
            }
        }
    }

    pub fn send(&mut self, now: Time, to: SocketAddr, envelope: &Envelope, inputs: &mut Vec<Input>) {
        let jitter = self.jitter();
        let Some((_, link)) = self.links.iter_mut().find(|(_, link)| link.address == to) else { return };
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

    /// The next of a sequence of numbers (xorshift).
    fn jitter(&mut self) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        self.noise >> 11
    }
}
