//! [`Coverage`]: how many copies the parts of the ring have, and the ring as it is drawn.

use super::store::{place, state};
use kumo_cluster::{COPIES, POINTS, Space, Table, points};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Of one hash space.
pub struct Coverage {
    space: (kumo_paxos::CellId, kumo_cluster::SpaceNumber),
    /// Places on the ring of which each server is an owner.
    shares: BTreeMap<SocketAddr, u128>,
    /// Places on the ring where so many owners act.
    acting: [u128; COPIES + 1],
}

impl Coverage {
    pub fn new(space: &Space) -> Coverage {
        let mut shares: BTreeMap<SocketAddr, u128> = BTreeMap::new();
        let mut acting = [0; COPIES + 1];
        for arc in Table::new(space).arcs() {
            let width = u128::from(arc.last.0 - arc.first.0) + 1;
            acting[arc.readers.len().min(COPIES)] += width;
            for &owner in &arc.owners {
                *shares.entry(space.member(owner).address).or_default() += width;
            }
        }
        Coverage { space: (space.cluster, space.number), shares, acting }
    }

    pub fn is_of(&self, space: &Space) -> bool {
        self.space == (space.cluster, space.number)
    }

    /// Part of the ring of which a server is an owner.
    pub fn share(&self, server: SocketAddr) -> f64 {
        self.shares.get(&server).map_or(0.0, |&places| places as f64 / RING)
    }

    /// Part of the ring where so many owners act.
    pub fn with_acting(&self, owners: usize) -> f64 {
        self.acting[owners] as f64 / RING
    }
}

/// The points of all servers of a space, and how many copies act between them.
pub fn ring(space: &Space) -> Value {
    let servers: Vec<Value> = space
        .places()
        .into_iter()
        .map(|(address, (is, at))| {
            let mut places = points(address).map(|point| point.0);
            places.sort_unstable();
            let places = places.map(on_the_ring).to_vec();
            json!({ "address": address.to_string(), "state": state(is), "place": place(at), "points": places })
        })
        .collect();
    json!({
        "number": space.number.to_string(),
        "copies": COPIES,
        "points_per_server": POINTS,
        "servers": servers,
        "coverage": stretches(space),
    })
}

/// The ring from 0 to 1 in stretches of as many acting copies: where each ends. Which owners act is not for the page to
/// know: it depends on who was lost last.
fn stretches(space: &Space) -> Vec<Value> {
    if space.rhs.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<(u64, usize)> = Vec::new();
    for arc in Table::new(space).arcs() {
        match found.last_mut() {
            Some((to, copies)) if *copies == arc.readers.len() => *to = arc.last.0,
            Some(_) | None => found.push((arc.last.0, arc.readers.len())),
        }
    }
    let to = |last| if last == u64::MAX { 1.0 } else { on_the_ring(last) };
    found.into_iter().map(|(last, copies)| json!({ "to": to(last), "copies": copies })).collect()
}

/// 53 bits are what a number of JavaScript holds: rounding up would make the last place 1.
fn on_the_ring(place: u64) -> f64 {
    (place >> 11) as f64 / (RING / 2048.0)
}

/// Places on the ring: 2 to the power of 64.
const RING: f64 = 18_446_744_073_709_551_616.0;

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::{Incarnation, Member, MemberState, SpaceNumber};

    fn space(states: &[MemberState]) -> Space {
        let mut space = Space::empty(Default::default(), SpaceNumber(3));
        for (index, &state) in states.iter().enumerate() {
            let address = SocketAddr::from(([127, 0, 0, 1], 19801 + index as u16));
            space.members.push(Member { address, incarnation: Incarnation(1), state });
            space.rhs.push(index as u16);
            space.whs.push(index as u16);
        }
        space
    }

    #[test]
    fn lost_servers_leave_fewer_copies() {
        let whole = Coverage::new(&space(&[MemberState::Active; 3]));
        assert!((whole.with_acting(3) - 1.0).abs() < 1e-9);
        assert_eq!((whole.with_acting(0), whole.with_acting(1), whole.with_acting(2)), (0.0, 0.0, 0.0));
        let lost = MemberState::Fault { order: 1 };
        let one = Coverage::new(&space(&[MemberState::Active, MemberState::Active, lost]));
        assert!((one.with_acting(2) - 1.0).abs() < 1e-9);
        let four =
            Coverage::new(&space(&[MemberState::Active, MemberState::Active, MemberState::Active, lost]));
        let sum = four.with_acting(2) + four.with_acting(3);
        assert!((sum - 1.0).abs() < 1e-9 && four.with_acting(2) > 0.3, "{sum}");
        let shares: f64 = (19801..=19804).map(|port| four.share(([127, 0, 0, 1], port).into())).sum();
        assert!((shares - 3.0).abs() < 1e-9, "{shares}");
    }

    #[test]
    fn who_is_back_for_what_only_it_has_is_a_copy() {
        let copies = |states: &[MemberState]| {
            let space = space(states);
            let parts = [0, 1].map(|copies| Coverage::new(&space).with_acting(copies));
            (parts, ring(&space)["coverage"].clone())
        };
        let [first, second] = [1, 2].map(|order| MemberState::Fault { order });
        assert_eq!(copies(&[first, second]), ([1.0, 0.0], json!([{ "to": 1.0, "copies": 0 }])));
        let last = MemberState::Returned { order: 2 };
        assert_eq!(copies(&[first, last]), ([0.0, 1.0], json!([{ "to": 1.0, "copies": 1 }])));
        let earlier = MemberState::Returned { order: 1 };
        assert_eq!(copies(&[earlier, second]).0, [1.0, 0.0], "it was not lost last");
        assert_eq!(ring(&space(&[]))["coverage"], json!([]));
    }

    #[test]
    fn the_stretches_of_the_ring_are_what_the_banner_sums_up() {
        let up = MemberState::Active;
        let [one, two] = [1, 2].map(|order| MemberState::Fault { order });
        let space = space(&[up, up, one, two]);
        let coverage = Coverage::new(&space);
        let mut sums = [0.0; COPIES + 1];
        let mut from = 0.0;
        for stretch in ring(&space)["coverage"].as_array().expect("a list") {
            let (to, copies) = (stretch["to"].as_f64().unwrap(), stretch["copies"].as_u64().unwrap());
            sums[copies as usize] += to - from;
            from = to;
        }
        assert_eq!(from, 1.0);
        for (copies, sum) in sums.into_iter().enumerate() {
            assert!((sum - coverage.with_acting(copies)).abs() < 1e-9, "{copies} copies: {sum}");
        }
    }

    #[test]
    fn the_ring_has_128_points_a_server_from_0_to_1() {
        let ring = ring(&space(&[MemberState::Active, MemberState::Fault { order: 1 }]));
        let servers = ring["servers"].as_array().expect("a list");
        assert_eq!(servers.len(), 2);
        assert_eq!((&servers[0]["state"], &servers[1]["state"]), (&json!("active"), &json!("fault")));
        for server in servers {
            let points: Vec<f64> = server["points"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|one| one.as_f64().expect("a number"))
                .collect();
            assert_eq!(points.len(), 128);
            assert!(points.is_sorted() && points.iter().all(|point| (0.0..1.0).contains(point)));
        }
    }
}
