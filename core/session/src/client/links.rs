//! [`Links`]: the members of the cell as a client knows them, and its connections to them.

use crate::protocol::ClientMessage;
use crate::step::{ClientEffect, ClientSettings};
use kumo_paxos::Time;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Connections, one per member that is needed, and who is said to be master.
pub(super) struct Links {
    links: BTreeMap<SocketAddr, Link>,
    /// Who to try: the members as last told, then those the client was started with.
    members: Vec<SocketAddr>,
    first_members: Vec<SocketAddr>,
    /// The member tried next when the master is not known.
    cursor: usize,
    pub master: Option<SocketAddr>,
    pub least_loaded: Option<SocketAddr>,
    /// When the master last said anything.
    master_heard: Time,
    /// The master does not answer what it should: believe others.
    suspected: bool,
    /// How often the master changed without a word from any.
    changes: u32,
    /// When to ask, or try, one more member for the master.
    scout_at: Time,
    resend_micros: u64,
}

#[derive(Clone, Copy, Debug)]
enum Link {
    Down {
        retry_at: Time,
        failures: u32,
    },
    Connecting {
        failures: u32,
    },
    /// `attached`: it was told for which session the connection speaks. `proven`: it was of use.
    Up {
        attached: bool,
        proven: bool,
        failures: u32,
    },
}

impl Links {
    pub fn new(settings: &ClientSettings) -> Links {
        let mut members: Vec<SocketAddr> = Vec::new();
        for member in &settings.members {
            if !members.contains(member) {
                members.push(*member);
            }
        }
        // Clients spread over the members.
        let cursor = (settings.token % (members.len().max(1) as u128)) as usize;
        Links {
            links: BTreeMap::new(),
            first_members: members.clone(),
            members,
            cursor,
            master: None,
            least_loaded: None,
            master_heard: Time(0),
            suspected: false,
            changes: 0,
            scout_at: Time(0),
            resend_micros: settings.resend_micros,
        }
    }

    pub fn connected(&mut self, address: SocketAddr) {
        // One that was given up meanwhile is closed again by the edge's own order of things.
        if let Some(link) = self.links.get_mut(&address)
            && let Link::Connecting { failures } = *link
        {
            *link = Link::Up { attached: false, proven: false, failures };
        }
    }

    pub fn disconnected(&mut self, now: Time, address: SocketAddr) {
        let Some(link) = self.links.get_mut(&address) else { return };
        let failures = match *link {
            Link::Down { .. } => return,
            // It worked until now: try again at once. One that hangs up on us every time is given a rest.
            Link::Up { proven: true, .. } => 0,
            Link::Up { proven: false, failures, .. } | Link::Connecting { failures } => failures + 1,
        };
        let wait = match failures {
            0 => 0,
            more => (RETRY_MICROS << more.min(RETRY_DOUBLINGS_MAX)) / 2,
        };
        *link = Link::Down { retry_at: now.plus_micros(wait), failures };
        self.scout_at = now;
    }

    pub fn is_up(&self, address: SocketAddr) -> bool {
        matches!(self.links.get(&address), Some(Link::Up { .. }))
    }

    /// Connects to a member unless that is under way, or failed a moment ago.
    pub fn want(&mut self, now: Time, address: SocketAddr, effects: &mut Vec<ClientEffect>) {
        let link = self.links.entry(address).or_insert(Link::Down { retry_at: now, failures: 0 });
        if let Link::Down { retry_at, failures } = *link
            && retry_at <= now
        {
            *link = Link::Connecting { failures };
            effects.push(ClientEffect::Connect(address));
        }
    }

    /// The master, when it is known and can be spoken to.
    pub fn ready_master(&self) -> Option<SocketAddr> {
        self.master.filter(|master| self.is_up(*master))
    }

    /// Anybody who can be spoken to, the master first.
    pub fn anybody(&self) -> Option<SocketAddr> {
        let master = self.ready_master().filter(|_| !self.suspected);
        master.or_else(|| self.others().next()).or_else(|| self.ready_master())
    }

    fn others(&self) -> impl Iterator<Item = SocketAddr> {
        let up = self.links.iter().filter(|(_, link)| matches!(link, Link::Up { .. }));
        up.map(|(address, _)| *address).filter(|address| Some(*address) != self.master)
    }

    /// Keeps a connection to the master, or finds it.
    pub fn keep(&mut self, now: Time, effects: &mut Vec<ClientEffect>) {
        if let Some(master) = self.master {
            self.want(now, master, effects);
        }
        if self.ready_master().is_some() && !self.suspected || now < self.scout_at {
            return;
        }
        self.scout_at = now.plus_micros(self.resend_micros);
        let known: Vec<SocketAddr> = self.others().collect();
        for member in &known {
            effects.push(ClientEffect::Send(*member, ClientMessage::Who));
        }
        // Those may be cut off from the others, and never know better: one more is tried every time.
        self.try_next(now, effects);
    }

    /// Connects to the next member that is not known to be unreachable.
    fn try_next(&mut self, now: Time, effects: &mut Vec<ClientEffect>) {
        for _ in 0..self.members.len() {
            let member = self.members[self.cursor % self.members.len()];
            self.cursor = (self.cursor + 1) % self.members.len();
            let idle = match self.links.get(&member) {
                None => true,
                Some(Link::Down { retry_at, .. }) => *retry_at <= now,
                Some(Link::Connecting { .. } | Link::Up { .. }) => false,
            };
            if idle {
                return self.want(now, member, effects);
            }
        }
    }

    /// Whether the connection must still be told for whom it speaks; it counts as told from now on.
    pub fn attach(&mut self, address: SocketAddr) -> bool {
        match self.links.get_mut(&address) {
            Some(Link::Up { attached, .. }) => !std::mem::replace(attached, true),
            Some(Link::Down { .. } | Link::Connecting { .. }) | None => false,
        }
    }

    /// Somebody answered. True: it is the master, and it was suspected of being silent.
    pub fn heard(&mut self, now: Time, from: SocketAddr) -> bool {
        if let Some(Link::Up { proven, .. }) = self.links.get_mut(&from) {
            *proven = true;
        }
        if self.master != Some(from) {
            return false;
        }
        self.master_heard = now;
        self.changes = 0;
        std::mem::replace(&mut self.suspected, false)
    }

    /// An answer to something sent at `since` is overdue.
    pub fn suspect(&mut self, now: Time, since: Time) {
        if self.master_heard <= since && !self.suspected {
            self.suspected = true;
            self.scout_at = now;
        }
    }

    /// A member says who is master.
    pub fn told(
        &mut self,
        now: Time,
        from: SocketAddr,
        master: Option<SocketAddr>,
        members: Vec<SocketAddr>,
        least_loaded: Option<SocketAddr>,
    ) {
        self.remember(members);
        self.least_loaded = least_loaded;
        if master == self.master {
            return;
        }
        // A master that answers knows better than the others whether it is one; it would say so.
        let others_word = self.master != Some(from) && self.ready_master().is_some();
        if others_word && (!self.suspected || master.is_none()) {
            return;
        }
        self.changes += 1;
        // Two that name each other must not send us to and fro: wait until one has won.
        self.master = master.filter(|_| self.changes <= CHANGES_MAX);
        self.master_heard = now;
        self.suspected = false;
        // News comes by itself; asking is only in case it does not.
        self.scout_at = now.plus_micros(self.resend_micros);
        if self.master.is_none() {
            self.changes = 0;
        }
    }

    /// The member taken for the master is not. Others are asked, after a while.
    pub fn not_master(&mut self, now: Time) {
        self.master = None;
        self.scout_at = now.plus_micros(self.resend_micros);
    }

    fn remember(&mut self, members: Vec<SocketAddr>) {
        if members.is_empty() {
            return;
        }
        self.members = members;
        self.members.truncate(MEMBERS_MAX);
        for member in &self.first_members {
            if !self.members.contains(member) {
                self.members.push(*member);
            }
        }
    }

    /// Whom to ask for a read: the least loaded, the master, then the others, the first `skip` of them last.
    pub fn read_targets(&self, skip: u32) -> Vec<SocketAddr> {
        let mut targets: Vec<SocketAddr> = Vec::with_capacity(self.members.len() + 2);
        for target in self.least_loaded.iter().chain(&self.master).chain(&self.members) {
            if !targets.contains(target) {
                targets.push(*target);
            }
        }
        if !targets.is_empty() {
            let skip = skip as usize % targets.len();
            targets.rotate_left(skip);
        }
        targets
    }

    pub fn drop_all(&mut self, effects: &mut Vec<ClientEffect>) {
        for (address, link) in std::mem::take(&mut self.links) {
            match link {
                Link::Down { .. } => {}
                Link::Connecting { .. } | Link::Up { .. } => effects.push(ClientEffect::Disconnect(address)),
            }
        }
    }

    /// When to look again for the master.
    pub fn deadline(&self) -> Option<Time> {
        if self.ready_master().is_some() && !self.suspected {
            return None;
        }
        let retry = self.links.values().filter_map(|link| match link {
            Link::Down { retry_at, .. } => Some((*retry_at).max(self.scout_at)),
            Link::Connecting { .. } | Link::Up { .. } => None,
        });
        let master = self.master.and_then(|master| match self.links.get(&master) {
            Some(Link::Down { retry_at, .. }) => Some(*retry_at),
            Some(Link::Connecting { .. } | Link::Up { .. }) | None => None,
        });
        retry.chain(master).chain(Some(self.scout_at)).min()
    }
}

/// Before a member that could not be reached is tried again; doubled with every failure.
const RETRY_MICROS: u64 = 100_000;
const RETRY_DOUBLINGS_MAX: u32 = 4;

/// Times the master may change hands without a word from any before the client waits.
const CHANGES_MAX: u32 = 8;

/// Members remembered. A cell has seven voters and a few extensions.
const MEMBERS_MAX: usize = 64;
