//! [`Owners`]: which servers own some key together, on a ring as the store makes it.

use super::arithmetic::choose;
use kumo_cluster::{POINTS, points};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

/// The sets of servers that own some key, on a ring of so many servers.
pub struct Owners {
    servers: u32,
    copies: u32,
    /// Each ascending.
    sets: BTreeSet<Vec<u16>>,
}

impl Owners {
    /// The servers' addresses are made up: which ones they are moves the points, and hardly how many sets there are.
    pub fn new(servers: u32, copies: u32) -> Owners {
        let mut ring: Vec<(u64, u16)> = Vec::with_capacity(servers as usize * POINTS);
        for index in 0..servers as u16 {
            let host = Ipv4Addr::from(FIRST_HOST + u32::from(index));
            ring.extend(points(SocketAddr::from((host, PORT))).map(|point| (point.0, index)));
        }
        ring.sort_unstable();
        let sets = (0..ring.len()).map(|start| walk(&ring, start, copies as usize)).collect();
        Owners { servers, copies, sets }
    }

    pub fn count(&self) -> usize {
        self.sets.len()
    }

    /// All sets of that size.
    pub fn count_max(&self) -> f64 {
        choose(self.servers, self.copies)
    }

    pub fn share(&self) -> f64 {
        (self.count() as f64 / self.count_max()).min(1.0)
    }

    /// Whether the servers for which `lost` holds, `count` of them, own some key alone.
    pub fn all_lost(&self, lost: &[bool], count: u32) -> bool {
        if count < self.copies {
            return false;
        }
        if count == self.copies {
            let set: Vec<u16> = (0..self.servers as u16).filter(|&one| lost[usize::from(one)]).collect();
            return self.sets.contains(&set);
        }
        self.sets.iter().any(|set| set.iter().all(|&one| lost[usize::from(one)]))
    }
}

/// The first distinct servers walking up from a point, in ascending order.
fn walk(ring: &[(u64, u16)], start: usize, copies: usize) -> Vec<u16> {
    let mut owners = Vec::with_capacity(copies);
    for &(_, index) in ring[start..].iter().chain(&ring[..start]) {
        if owners.len() == copies {
            break;
        }
        if !owners.contains(&index) {
            owners.push(index);
        }
    }
    owners.sort_unstable();
    owners
}

/// 10.0.0.1, the first of a private network.
const FIRST_HOST: u32 = 0x0a00_0001;

/// Where servers listen unless told otherwise.
const PORT: u16 = 19800;

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::{COPIES, Incarnation, Member, MemberState, Space, SpaceNumber, Table};
    use kumo_paxos::CellId;
    use lot::Random;

    /// The hash space of a store in which those servers are lost, in this order.
    fn space(servers: u32, lost: &[bool]) -> Space {
        let mut space = Space::empty(CellId(1), SpaceNumber(1));
        space.members = (0..servers)
            .map(|index| Member {
                address: SocketAddr::from((Ipv4Addr::from(FIRST_HOST + index), PORT)),
                incarnation: Incarnation(1),
                state: match lost[index as usize] {
                    true => MemberState::Fault { order: u64::from(index) + 1 },
                    false => MemberState::Active,
                },
            })
            .collect();
        space.rhs = (0..servers as u16).collect();
        space.whs = space.rhs.clone();
        assert!(space.well_formed());
        space
    }

    /// What the store itself makes of its servers' faults: an arc that nobody serves is lost here and nowhere else.
    #[test]
    fn the_stores_own_table_agrees() {
        for servers in [3, 5, 12, 40] {
            let owners = Owners::new(servers, COPIES as u32);
            let mut lot = Random::new(u64::from(servers), "faults");
            let mut fatal = 0;
            for _ in 0..200 {
                let most = (servers as usize).min(COPIES + 2);
                let mut lost = vec![false; servers as usize];
                for _ in 0..lot.between(1, most as u64) {
                    lost[lot.below(u64::from(servers)) as usize] = true;
                }
                let count = lost.iter().filter(|&&lost| lost).count() as u32;
                let table = Table::new(&space(servers, &lost));
                let unserved = table.arcs().iter().any(|arc| arc.readers.is_empty());
                assert_eq!(owners.all_lost(&lost, count), unserved, "{lost:?}");
                fatal += u32::from(unserved);
            }
            assert!((1..200).contains(&fatal), "{servers} servers: {fatal}");
        }
    }

    #[test]
    fn few_servers_own_keys_in_every_combination() {
        for servers in 3..=8 {
            let owners = Owners::new(servers, 3);
            assert_eq!(owners.count() as f64, owners.count_max(), "{servers} servers");
        }
    }

    #[test]
    fn many_servers_do_not() {
        let owners = Owners::new(100, 3);
        assert!(owners.share() < 0.1, "{}", owners.share());
        assert!(owners.count() <= 100 * POINTS);
    }

    #[test]
    fn a_key_is_lost_with_its_last_owner() {
        let owners = Owners::new(4, 3);
        assert!(!owners.all_lost(&[true, true, false, false], 2));
        assert!(owners.all_lost(&[true, true, false, true], 3));
        assert!(owners.all_lost(&[true; 4], 4));
    }
}
