//! Links between replicas: each side dials, hellos are exchanged, and each sends over its own link, in order.

use super::{Event, World};
use kumo_paxos::{Envelope, Hello};
use kumo_session::Input;
use std::net::SocketAddr;

/// A link that a machine dials.
pub struct Link {
    /// Which try this is; what belongs to an earlier one is ignored.
    attempt: u64,
    up: bool,
    /// The latest arrival: messages keep their order.
    last: u64,
}

impl World {
    pub fn want_link(&mut self, from: usize, to: SocketAddr) {
        if self.machines[from].links.contains_key(&to) {
            return;
        }
        let attempt = self.fresh();
        self.machines[from].links.insert(to, Link { attempt, up: false, last: 0 });
        self.schedule.put(self.now, Event::Dial { from, to, attempt });
    }

    pub fn drop_link(&mut self, from: usize, to: SocketAddr) {
        if self.machines[from].links.remove(&to).is_some_and(|link| link.up) {
            self.step(from, Input::PeerDown(to));
        }
    }

    /// The link, if this attempt is still the one that counts.
    fn link(&mut self, from: usize, to: SocketAddr, attempt: u64) -> Option<&mut Link> {
        self.machines[from].links.get_mut(&to).filter(|link| link.attempt == attempt)
    }

    pub fn dial(&mut self, from: usize, to: SocketAddr, attempt: u64) {
        let Some(hello) = self.machines[from].cell.as_ref().map(|cell| cell.hello()) else { return };
        if self.link(from, to, attempt).is_some_and(|link| !link.up) {
            let arrival = self.now + self.network.delay();
            self.schedule.put(arrival, Event::Greeting { from, to, attempt, hello });
            // Tried again unless it led somewhere.
            self.schedule.put(self.now + REDIAL_MICROS, Event::Dial { from, to, attempt });
        }
    }

    /// At the listener: a hello came in.
    pub fn greeting(&mut self, from: usize, to: SocketAddr, attempt: u64, hello: Hello) {
        let listener = self.index_of(to);
        let Some(cell) = &self.machines[listener].cell else { return };
        if cell.greet(&hello).is_ok() {
            let hello = cell.hello();
            let arrival = self.now + self.network.delay();
            self.schedule.put(arrival, Event::Greeted { from, to, attempt, hello });
        }
    }

    /// At the dialler: the listener answered.
    pub fn greeted(&mut self, from: usize, to: SocketAddr, attempt: u64, hello: Hello) {
        let there = self.machines[self.index_of(to)].cell.is_some();
        let welcome = self.machines[from].cell.as_ref().is_some_and(|cell| cell.greet(&hello).is_ok());
        let Some(link) = self.link(from, to, attempt).filter(|link| !link.up && there && welcome) else {
            return;
        };
        link.up = true;
        self.step(from, Input::PeerUp(hello));
    }

    pub fn link_down(&mut self, from: usize, to: SocketAddr, attempt: u64) {
        if self.link(from, to, attempt).is_none_or(|link| !std::mem::take(&mut link.up)) {
            return;
        }
        self.schedule.put(self.now + REDIAL_MICROS, Event::Dial { from, to, attempt });
        self.step(from, Input::PeerDown(to));
    }

    pub fn send_peer(&mut self, from: usize, to: SocketAddr, envelope: Envelope) {
        let delay = self.network.delay();
        let listener = self.index_of(to);
        let Some(link) = self.machines[from].links.get_mut(&to).filter(|link| link.up) else { return };
        link.last = link.last.max(self.now + delay);
        self.schedule.put(link.last, Event::Peer { to: listener, envelope });
    }

    pub fn break_links_to(&mut self, dead: usize) {
        let to = self.machines[dead].address;
        for from in 0..self.machines.len() {
            let Some(attempt) = self.machines[from].links.get(&to).map(|link| link.attempt) else { continue };
            let notice = self.now + self.network.delay();
            self.schedule.put(notice, Event::LinkDown { from, to, attempt });
        }
    }
}

/// Between two tries to dial.
const REDIAL_MICROS: u64 = 200_000;
