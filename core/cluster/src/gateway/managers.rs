//! [`Managers`]: the connections with the managers, this gateway's id, and its signs of life.

use crate::alive::GATEWAY_MICROS;
use crate::{GatewayEffect, GatewayId, Message, SpaceNumber};
use kumo_paxos::Time;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// What the managers know of this gateway. Everything goes to all of them: who leads changes, and the others
/// ignore what is not theirs to do.
pub(super) struct Managers {
    up: BTreeSet<SocketAddr>,
    /// Those that the edge was last told of.
    told: Vec<SocketAddr>,
    /// Names the wish for an id.
    nonce: u128,
    pub id: Option<GatewayId>,
    /// When to wish again, or to show life again.
    again_at: Time,
    keepalive_micros: u64,
    errors: u32,
    errors_max: u32,
    /// When the newest space was last asked for.
    renewed: Option<Time>,
}

impl Managers {
    pub fn new(nonce: u128, keepalive_micros: u64, renew_threshold: u32, now: Time) -> Managers {
        Managers {
            up: BTreeSet::new(),
            told: Vec::new(),
            nonce,
            id: None,
            again_at: now,
            keepalive_micros: keepalive_micros.clamp(KEEPALIVE_MICROS_MIN, KEEPALIVE_MICROS_MAX),
            errors: 0,
            errors_max: renew_threshold.max(1),
            renewed: None,
        }
    }

    pub fn up(
        &mut self,
        now: Time,
        manager: SocketAddr,
        above: SpaceNumber,
        effects: &mut Vec<GatewayEffect>,
    ) {
        if self.up.is_empty() {
            self.again_at = now.plus_micros(self.again_micros());
        }
        self.up.insert(manager);
        effects.push(GatewayEffect::Manager(manager, Message::WantSpace { above }));
        effects.push(GatewayEffect::Manager(manager, self.word(above)));
    }

    pub fn down(&mut self, manager: SocketAddr) {
        self.up.remove(&manager);
    }

    /// Who the managers are, as one of them says.
    pub fn listed(&mut self, managers: Vec<SocketAddr>, effects: &mut Vec<GatewayEffect>) {
        if self.told != managers {
            self.told.clone_from(&managers);
            effects.push(GatewayEffect::Managers(managers));
        }
    }

    /// An id was issued. A repeated or an old answer changes nothing.
    pub fn registered(&mut self, nonce: u128, gateway: GatewayId) -> bool {
        let wanted = self.id.is_none() && nonce == self.nonce;
        if wanted {
            self.id = Some(gateway);
        }
        wanted
    }

    /// The id is of no use any more: another one is another wish. The next number names it, as random as the one
    /// before.
    pub fn expired(&mut self) -> Option<GatewayId> {
        self.nonce = self.nonce.wrapping_add(1);
        self.id.take()
    }

    /// Tells all managers the wish for an id, or that this gateway lives.
    pub fn tell(&mut self, now: Time, space: SpaceNumber, effects: &mut Vec<GatewayEffect>) {
        self.again_at = now.plus_micros(self.again_micros());
        let word = self.word(space);
        effects.extend(self.up.iter().map(|&manager| GatewayEffect::Manager(manager, word.clone())));
    }

    pub fn timeout(&mut self, now: Time, space: SpaceNumber, effects: &mut Vec<GatewayEffect>) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.tell(now, space, effects);
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        (!self.up.is_empty()).then_some(self.again_at)
    }

    /// A try failed. After some of them the space that this gateway has may be why. (Seed 000, `-rn`)
    pub fn error(&mut self, now: Time, above: SpaceNumber, effects: &mut Vec<GatewayEffect>) {
        self.errors = self.errors.saturating_add(1);
        if self.errors >= self.errors_max && self.may_renew(now) {
            self.errors = 0;
            let want = |&manager: &SocketAddr| GatewayEffect::Manager(manager, Message::WantSpace { above });
            effects.extend(self.up.iter().map(want));
        }
    }

    /// Whether it is time to ask anybody for the newest space, as the caller then does.
    pub fn may_renew(&mut self, now: Time) -> bool {
        let may = self.renewed.is_none_or(|renewed| now.since(renewed) >= RENEW_MICROS_MIN);
        if may {
            self.renewed = Some(now);
        }
        may
    }

    fn word(&self, space: SpaceNumber) -> Message {
        match self.id {
            Some(gateway) => Message::GatewayAlive { gateway, space },
            None => Message::Register { nonce: self.nonce },
        }
    }

    fn again_micros(&self) -> u64 {
        match self.id {
            Some(_) => self.keepalive_micros,
            None => REGISTER_MICROS,
        }
    }
}

/// Between two wishes for an id: about the time in which a master is elected.
const REGISTER_MICROS: u64 = 500_000;

/// Signs of life come no oftener, whatever is set: each is a message to every manager.
const KEEPALIVE_MICROS_MIN: u64 = 10_000;

/// Nor rarer: managers give up a gateway that is silent for a minute.
const KEEPALIVE_MICROS_MAX: u64 = GATEWAY_MICROS / 6;

/// Between two questions for the newest space: when a server fails, thousands of tries do at once.
const RENEW_MICROS_MIN: u64 = 100_000;
