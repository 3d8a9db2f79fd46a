//! [`Forming`]: how replicas that know nothing become a cell, exactly once.
//!
//! Only the lowest configured address forms. It asks every member with a nonce; each answers that it is new and
//! from then on obeys only this asker; with all answers the asker fixes entry 0. Anyone with state answers nothing
//! of the kind, and the asker learns from it instead. (If everybody who hears "new" from all others formed a
//! cell, two could be formed.)

use crate::configuration::{Configuration, Genesis, Member, Role};
use crate::identity::{CellId, Incarnation, ReplicaId};
use crate::step::WINDOW;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// A replica without memory, before it belongs to a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Forming {
    me: SocketAddr,
    incarnation: Incarnation,
    /// All members that this replica was started with, itself included, in order.
    members: Vec<SocketAddr>,
    nonce: u64,
    /// Who answered that it is new.
    new: BTreeMap<SocketAddr, Incarnation>,
    /// The asker this replica answered last.
    obeys: Option<(SocketAddr, Incarnation)>,
    /// Earlier lives of that asker: a late question of theirs must not bring them back.
    superseded: BTreeSet<Incarnation>,
    /// Every replica asks, not only the lowest address: unsafe, for the model checker.
    symmetric: bool,
}

impl Forming {
    pub fn new(
        me: SocketAddr,
        incarnation: Incarnation,
        peers: &[SocketAddr],
        nonce: u64,
        symmetric: bool,
    ) -> Forming {
        let mut members: Vec<SocketAddr> = peers.iter().copied().chain([me]).collect();
        members.sort_unstable();
        members.dedup();
        Forming {
            me,
            incarnation,
            members,
            nonce,
            new: BTreeMap::new(),
            obeys: None,
            superseded: BTreeSet::new(),
            symmetric,
        }
    }

    /// The nonce to ask the others with, if it is this replica that asks.
    pub fn asks(&self) -> Option<u64> {
        (self.symmetric || self.members.first() == Some(&self.me)).then_some(self.nonce)
    }

    /// The members that have not answered yet.
    pub fn missing(&self) -> impl Iterator<Item = SocketAddr> {
        self.members.iter().copied().filter(|member| *member != self.me && !self.new.contains_key(member))
    }

    /// An asker's question. True: answer that this replica is new; it obeys that asker from now on.
    pub fn asked(&mut self, from: SocketAddr, incarnation: Incarnation) -> bool {
        if self.symmetric {
            return true;
        }
        // Who asks is lower than all others, itself included: two replicas never obey each other.
        if from >= self.me {
            return false;
        }
        // Of two askers (members started with different lists) the first stays; one that restarted follows itself.
        if self.obeys.is_some_and(|(address, _)| address != from) {
            return false;
        }
        if self.superseded.contains(&incarnation) {
            return false;
        }
        if let Some((_, before)) = self.obeys.replace((from, incarnation))
            && before != incarnation
        {
            self.superseded.insert(before);
        }
        true
    }

    /// "I am new", for the question with that nonce.
    pub fn answered(&mut self, from: SocketAddr, incarnation: Incarnation, nonce: u64) {
        if nonce == self.nonce && self.asks().is_some() && self.members.contains(&from) {
            self.new.insert(from, incarnation);
        }
    }

    /// Another process is at that address now, or none: its answer counts no more.
    pub fn forget(&mut self, address: SocketAddr) {
        self.new.remove(&address);
    }

    /// Entry 0, when every member has answered. Ids are places in the address order.
    pub fn formed(&self, cell: CellId) -> Option<Genesis> {
        self.asks()?;
        // A replica that obeys a lower asker does not form a cell of its own beside it.
        if !self.symmetric && self.obeys.is_some() || self.missing().next().is_some() {
            return None;
        }
        let members: Vec<Member> = self
            .members
            .iter()
            .enumerate()
            .map(|(place, address)| Member {
                id: ReplicaId(place as u32),
                address: *address,
                incarnation: self.new.get(address).copied().unwrap_or(self.incarnation),
                role: Role::Core,
            })
            .collect();
        let configuration = Configuration { version: 1, next_id: ReplicaId(members.len() as u32), members };
        Some(Genesis { cell, generation: 1, window: WINDOW, configuration })
    }

    /// Whether to take state (an entry 0, a snapshot) from that process. Not from another life of the asker
    /// this replica obeys: that one's cell was given up when its successor asked.
    pub fn believes(&self, from: SocketAddr, incarnation: Incarnation) -> bool {
        self.symmetric || self.obeys.is_none_or(|(address, obeyed)| address != from || obeyed == incarnation)
    }
}
