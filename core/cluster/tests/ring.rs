//! The ring in numbers: KUMOFS.md, 3, worked out beside this code with another implementation of SHA-1. Stores that are
//! on disk lie where these say.

use kumo_cluster::{Incarnation, Member, MemberState, POINTS, Space, SpaceNumber, Table, key_hash, points};
use kumo_paxos::CellId;
use std::net::SocketAddr;

/// A server, and its first three points and its last: the port big-endian and the address hashed, then each point's
/// eight bytes, little-endian.
const SERVERS: [(&str, [u64; 4]); 6] = [
    (
        "10.0.0.7:19800",
        [0xed34_73ac_4b61_7a4b, 0xa377_934a_1d51_e2de, 0xd4d3_4367_1f36_9301, 0x55f4_5ab1_86a5_17e0],
    ),
    (
        "127.0.0.1:19800",
        [0xd976_338c_5421_9ce2, 0x6c3e_8d26_8511_c818, 0x1272_7f39_9949_afa3, 0xb1cf_3a63_13c7_6033],
    ),
    (
        "127.0.0.1:19801",
        [0xf366_4b67_9fd0_f407, 0x20d1_19f3_70e2_83f1, 0x22c4_8953_ca9b_e3c7, 0xd889_19a4_d0f4_11c5],
    ),
    (
        "127.0.0.1:19802",
        [0xc872_064f_1ffa_8427, 0xc28f_28a4_37c0_97f0, 0x3d64_935e_3ac1_93bc, 0x8f5a_2251_0906_af14],
    ),
    (
        "[::1]:19800",
        [0x2575_b8ea_7e69_8c0d, 0xc747_ba98_11dc_b725, 0x2a47_81ac_1039_3595, 0x98e5_eeea_4765_835a],
    ),
    (
        "[2001:db8::7]:19800",
        [0x95a9_ab79_ef69_f6bc, 0x5357_acb6_cafc_097c, 0xe9cc_5c7a_49dd_69ae, 0x3d19_4e7b_0e24_e691],
    ),
];

/// A key, its place, and its owners among all of them in walking order.
const KEYS: [(&str, u64, [&str; 3]); 7] = [
    ("foo", 0xdb0f_3fea_b5c7_ee0b, ["[::1]:19800", "127.0.0.1:19802", "10.0.0.7:19800"]),
    ("bar", 0xe520_f90f_02b7_cd62, ["[::1]:19800", "[2001:db8::7]:19800", "127.0.0.1:19802"]),
    ("user:1", 0xc9d0_be6a_4291_bcc0, ["10.0.0.7:19800", "127.0.0.1:19802", "[2001:db8::7]:19800"]),
    ("user:2", 0x8342_45fe_3ba9_bb50, ["[2001:db8::7]:19800", "[::1]:19800", "127.0.0.1:19801"]),
    ("", 0x0d4b_6b5e_eea3_39da, ["[2001:db8::7]:19800", "10.0.0.7:19800", "127.0.0.1:19800"]),
    ("雲", 0x141d_cb65_0379_c0a5, ["127.0.0.1:19800", "[::1]:19800", "[2001:db8::7]:19800"]),
    // Above the highest point: the walk goes on at the lowest.
    ("wrap879", 0xffd8_820a_3bf9_09e3, ["10.0.0.7:19800", "127.0.0.1:19801", "127.0.0.1:19800"]),
];

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn space() -> Space {
    let member = |(text, _): &(&str, [u64; 4])| Member {
        address: address(text),
        incarnation: Incarnation(1),
        state: MemberState::Active,
    };
    let members: Vec<Member> = SERVERS.iter().map(member).collect();
    let all: Vec<u16> = (0..members.len() as u16).collect();
    let space = Space { members, rhs: all.clone(), whs: all, ..Space::empty(CellId(1), SpaceNumber(1)) };
    assert!(space.well_formed());
    space
}

#[test]
fn a_server_has_its_points() {
    for (text, [first, second, third, last]) in SERVERS {
        let points = points(address(text)).map(|point| point.0);
        assert_eq!(
            [points[0], points[1], points[2], points[POINTS - 1]],
            [first, second, third, last],
            "{text}"
        );
    }
}

#[test]
fn a_key_has_its_owners() {
    let space = space();
    let table = Table::new(&space);
    for (key, place, owners) in KEYS {
        let hash = key_hash(key.as_bytes());
        assert_eq!(hash.0, place, "{key}");
        let found: Vec<SocketAddr> =
            table.arc(hash).owners.iter().map(|&index| space.member(index).address).collect();
        assert_eq!(found, owners.map(address), "{key}");
    }
}

/// A fault server keeps its place and is skipped; nobody takes it.
#[test]
fn a_lost_owner_is_skipped_and_not_replaced() {
    let mut space = space();
    let lost = address("[::1]:19800");
    let index = space.members.iter().position(|member| member.address == lost).expect("it is there");
    space.members[index].state = MemberState::Fault { order: 1 };
    let table = Table::new(&space);
    for (key, _, owners) in KEYS {
        let arc = table.arc(key_hash(key.as_bytes()));
        let named = |list: &[u16]| -> Vec<SocketAddr> {
            list.iter().map(|&index| space.member(index).address).collect()
        };
        assert_eq!(named(&arc.owners), owners.map(address), "{key}");
        let acting: Vec<SocketAddr> =
            owners.into_iter().map(address).filter(|&owner| owner != lost).collect();
        assert_eq!(named(&arc.readers), acting, "{key}");
    }
}
