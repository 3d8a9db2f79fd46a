//! [`Links`]: what this replica knows of the peers it talks to. All of it is hints; nothing here is safety.

use crate::identity::{Incarnation, Instance, Time};
use crate::message::Heartbeat;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// One peer, by address.
#[derive(Clone, Debug)]
pub struct Link {
    /// The process at the other end of the link this replica dialled.
    pub incarnation: Incarnation,
    pub up: bool,
    /// When a message of that incarnation last arrived.
    pub heard: Option<Time>,
    pub heartbeat: Option<Heartbeat>,
    /// When that heartbeat arrived.
    pub heartbeat_at: Time,
    /// Drawn when the link came up; the peer's echo shows that it is alive.
    pub nonce: u64,
    pub echoed: bool,
    /// The peer's nonce, to echo.
    pub peer_nonce: u64,
    /// The next decided entry to send it without being asked, when it follows us.
    pub follows: Option<Instance>,
    pub executed: Instance,
    /// Heartbeats of newcomers there that got all there is and were still more than a window behind; none since one votes.
    pub trails: u32,
    /// The most promises and accepts that incarnation ever said it had kept.
    pub kept: u64,
    /// The process for whose sake the link was last dialled again.
    pub sought: Incarnation,
}

impl Link {
    fn new() -> Link {
        Link {
            incarnation: Incarnation(0),
            up: false,
            heard: None,
            heartbeat: None,
            heartbeat_at: Time(0),
            nonce: 0,
            echoed: false,
            peer_nonce: 0,
            follows: None,
            executed: Instance(0),
            trails: 0,
            kept: 0,
            sought: Incarnation(0),
        }
    }

    /// Connected, and heard of lately.
    pub fn alive(&self, now: Time, silence_micros: u64) -> bool {
        self.up && self.heard.is_some_and(|heard| now.since(heard) < silence_micros)
    }

    /// Milliseconds since that peer started or last stepped down, now.
    pub fn age_ms(&self, now: Time) -> u64 {
        let then = self.heartbeat.as_ref().map_or(0, |heartbeat| heartbeat.age_ms);
        then.saturating_add(now.since(self.heartbeat_at) / 1000)
    }
}

/// All peers.
#[derive(Clone, Debug, Default)]
pub struct Links {
    by_address: BTreeMap<SocketAddr, Link>,
}

impl Links {
    pub fn get(&self, address: SocketAddr) -> Option<&Link> {
        self.by_address.get(&address)
    }

    pub fn get_mut(&mut self, address: SocketAddr) -> Option<&mut Link> {
        self.by_address.get_mut(&address)
    }

    pub fn entry(&mut self, address: SocketAddr) -> &mut Link {
        self.by_address.entry(address).or_insert_with(Link::new)
    }

    pub fn remove(&mut self, address: SocketAddr) {
        self.by_address.remove(&address);
    }

    /// What was said belongs to a generation that is over: who does not say it again in the next one, does not count.
    pub fn forget_words(&mut self) {
        for link in self.by_address.values_mut() {
            (link.heard, link.heartbeat, link.echoed) = (None, None, false);
            (link.follows, link.executed) = (None, Instance(0));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (SocketAddr, &Link)> {
        self.by_address.iter().map(|(address, link)| (*address, link))
    }

    /// The connected peers of that incarnation: none or one.
    pub fn address_of(&self, incarnation: Incarnation) -> Option<SocketAddr> {
        self.iter().find(|(_, link)| link.up && link.incarnation == incarnation).map(|(address, _)| address)
    }

    pub fn of(&self, incarnation: Incarnation) -> Option<&Link> {
        self.iter().find(|(_, link)| link.incarnation == incarnation).map(|(_, link)| link)
    }
}
