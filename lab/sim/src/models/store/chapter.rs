//! [`Chapter`]: one space of a [`Tale`](super::Tale), and when it may be published. Servers are named by their
//! place: 0 comes first walking up from the key, so of any ring the one with the lowest place is the key's primary.

use bytes::Bytes;
use kumo_cluster::{
    Incarnation, Job, Member, MemberState, ServerId, Space, SpaceNumber, StoreKey, key_hash, points,
};
use kumo_paxos::CellId;
use std::net::SocketAddr;
use std::sync::OnceLock;

/// A server's place, and which life of it.
pub type Life = (u8, u8);

/// A space.
#[derive(Clone, Debug)]
pub struct Chapter {
    pub when: When,
    pub rhs: &'static [Life],
    pub whs: &'static [Life],
    pub earlier: &'static [Life],
    /// Who has not confirmed the switch.
    pub old: &'static [Life],
    /// In the order they were lost.
    pub lost: &'static [Life],
    /// Lost as the last owner, and back.
    pub returned: &'static [Life],
    /// The space in which `whs` became what it is.
    pub since: u64,
    pub id_floor: u64,
}

/// What must have happened before it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Anytime,
    /// That life's lease has run out. (Rule 10)
    Over(Life),
    /// The primary has copied everything, in the space before. (Rule 15)
    Copied,
    /// That life runs.
    Born(Life),
}

impl Chapter {
    /// These own the key, and nothing is going on.
    pub const fn calm(ring: &'static [Life]) -> Chapter {
        Chapter {
            when: When::Anytime,
            rhs: ring,
            whs: ring,
            earlier: &[],
            old: &[],
            lost: &[],
            returned: &[],
            since: 1,
            id_floor: 0,
        }
    }

    pub fn space(&self, number: u64) -> Space {
        let mut lives: Vec<Life> = [self.rhs, self.whs, self.earlier, self.old].concat();
        lives.sort_by_key(|&life| server(life));
        lives.dedup();
        let member = |&life: &Life| {
            let ServerId { address, incarnation } = server(life);
            Member { address, incarnation, state: self.state(life) }
        };
        let indexes = |ring: &[Life]| {
            let place =
                |life: &Life| lives.iter().position(|one| one == life).expect("all are listed") as u16;
            let mut indexes: Vec<u16> = ring.iter().map(place).collect();
            indexes.sort_unstable();
            indexes
        };
        let moving = self.rhs != self.whs;
        let space = Space {
            members: lives.iter().map(member).collect(),
            rhs: indexes(self.rhs),
            whs: indexes(self.whs),
            earlier: indexes(self.earlier),
            old: indexes(self.old),
            whs_since: SpaceNumber(self.since),
            job: moving.then_some(Job { full: false, paused: false, rate: 0 }),
            id_floor: SpaceNumber(self.id_floor),
            ..Space::empty(CellId(1), SpaceNumber(number))
        };
        assert!(space.well_formed(), "{space:?}");
        space
    }

    fn state(&self, life: Life) -> MemberState {
        let order = |list: &[Life]| list.iter().position(|&one| one == life).map(|order| order as u64 + 1);
        match (order(self.returned), order(self.lost)) {
            (Some(order), _) => MemberState::Returned { order: order + 100 },
            (None, Some(order)) => MemberState::Fault { order },
            (None, None) => MemberState::Active,
        }
    }
}

pub fn server((place, life): Life) -> ServerId {
    ServerId { address: stage().addresses[usize::from(place)], incarnation: Incarnation(life.into()) }
}

/// The one key.
pub fn key() -> &'static StoreKey {
    &stage().key
}

struct Stage {
    key: StoreKey,
    /// By place.
    addresses: Vec<SocketAddr>,
}

/// The key is on the first arc of every ring, so that its records are the first to be copied.
fn stage() -> &'static Stage {
    static STAGE: OnceLock<Stage> = OnceLock::new();
    STAGE.get_or_init(|| {
        let names = (0..KEYS_TRIED).map(|number| Bytes::from(format!("key-{number}")));
        let keys = names.map(|key| StoreKey { hash: key_hash(&key), key });
        let key = keys.min_by_key(|key| key.hash).expect("there are some");
        let mut addresses: Vec<SocketAddr> =
            (1..=PLACES).map(|host| SocketAddr::from(([10, 0, 1, host], 19800))).collect();
        addresses.sort_by_key(|&address| {
            points(address).iter().filter(|point| **point >= key.hash).min().copied()
        });
        let first = addresses.iter().flat_map(|&address| points(address)).min();
        assert!(first.is_some_and(|first| key.hash <= first), "another key is needed");
        Stage { key, addresses }
    })
}

/// Among so many one is nearer to the beginning of the ring than any server.
const KEYS_TRIED: u32 = 50_000;
/// Servers at most.
const PLACES: u8 = 5;
