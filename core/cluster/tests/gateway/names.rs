//! Servers called a, b, c, ..., and spaces and keys written with these letters.

use kumo_cluster::{
    Early, GatewaySettings, Incarnation, KeyHash, Member, MemberState, ServerId, Space, SpaceNumber, Table,
};
use kumo_paxos::CellId;
use std::net::{Ipv4Addr, SocketAddr};

pub const CLUSTER: CellId = CellId(1);

pub fn server(name: char) -> ServerId {
    let address = SocketAddr::from((Ipv4Addr::new(10, 0, 0, name as u8), 19800));
    ServerId { address, incarnation: Incarnation(name as u128) }
}

pub fn name(server: ServerId) -> char {
    server.incarnation.0 as u8 as char
}

pub fn manager(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, number), 19700))
}

/// The ring of these servers; `!` behind one: it is lost.
pub fn space(number: u64, servers: &str) -> Space {
    let mut space = Space::empty(CLUSTER, SpaceNumber(number));
    for (at, name) in servers.chars().enumerate().filter(|(_, name)| *name != '!') {
        let lost = servers.chars().nth(at + 1) == Some('!');
        let state = if lost { MemberState::Fault { order: number } } else { MemberState::Active };
        let ServerId { address, incarnation } = server(name);
        space.members.push(Member { address, incarnation, state });
    }
    space.members.sort_by_key(Member::id);
    space.rhs = (0..space.members.len() as u16).collect();
    space.whs = space.rhs.clone();
    space
}

/// A place whose owners are these, in this order, when a, b and c are the ring.
pub fn place(owners: &str) -> KeyHash {
    let space = space(1, "abc");
    let named = |indexes: &[u16]| -> String { indexes.iter().map(|&one| name(space.server(one))).collect() };
    let table = Table::new(&space);
    let arc = table.arcs().iter().find(|arc| named(&arc.owners) == owners);
    arc.unwrap_or_else(|| panic!("no place is owned by {owners}")).last
}

pub fn settings() -> GatewaySettings {
    GatewaySettings {
        nonce: 100,
        cluster: None,
        get_retry_max: 5,
        set_retry_max: 20,
        delete_retry_max: 20,
        renew_threshold: 5,
        try_micros: 5_000_000,
        request_micros: 30_000_000,
        early: Early::default(),
        spread_reads: false,
        keepalive_micros: 2_000_000,
        workers: 1,
    }
}
