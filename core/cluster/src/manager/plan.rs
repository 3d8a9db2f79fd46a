//! What a change of the ring would move, computed without doing it.

use crate::cluster::is_few;
use crate::control::{Plan, ShareChange};
use crate::{Arc, Incarnation, Member, MemberState, Objection, Space, Table, Usage};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Compares the ring that is read with the one that a replace would go to. Amounts are estimated from what the servers
/// store, as if it lay evenly in their parts of the ring. Refused as the order would be.
pub(super) fn plan(
    space: &Space,
    attach: &[SocketAddr],
    detach: &[SocketAddr],
    usage: impl Fn(SocketAddr) -> Usage,
) -> Result<Plan, Objection> {
    let now = ring(space.rhs.iter().map(|&index| space.member(index).clone()).collect());
    let after = ring(members_after(space, attach, detach));
    let (table_now, table_after) = (Table::new(&now), Table::new(&after));
    if !now.members.is_empty() && table_after.arcs().iter().any(|arc| arc.primary().is_none()) {
        return Err(Objection::NoTaker);
    }
    if overlaps(&table_now, &table_after).any(|(was, is, _)| is_few(was, is)) {
        return Err(Objection::FewCopies);
    }
    let mut parts: BTreeMap<SocketAddr, Part> = BTreeMap::new();
    for arc in table_now.arcs() {
        for &owner in &arc.owners {
            parts.entry(now.member(owner).address).or_default().before += length(arc.first.0, arc.last.0);
        }
    }
    let mut sent: BTreeMap<SocketAddr, u128> = BTreeMap::new();
    for (was, is, width) in overlaps(&table_now, &table_after) {
        let source = was.primary().map(|index| now.member(index).address);
        for &owner in &is.owners {
            let address = after.member(owner).address;
            let part = parts.entry(address).or_default();
            part.after += width;
            // A fault server keeps its place and holds nothing that counts.
            let holds = was.readers.iter().any(|&index| now.member(index).address == address);
            if holds || is_lost(&after, owner) {
                continue;
            }
            part.gained += width;
            if let Some(source) = source {
                *sent.entry(source).or_default() += width;
            }
        }
    }
    let (mut bytes, mut records) = (0u128, 0u128);
    for (source, width) in sent {
        let (stored, share) = (usage(source), parts[&source].before.max(1));
        // A width has up to 66 bits, an amount 64: cut so that the product has room.
        let portion = |amount: u64| u128::from(amount) * (width >> 16) / (share >> 16).max(1);
        bytes += portion(stored.live_bytes);
        records += portion(stored.items);
    }
    let shares = parts.into_iter().map(|(server, part)| part.change(server)).collect();
    Ok(Plan { shares, bytes: narrow(bytes), records: narrow(records) })
}

/// Widths on the ring, of 2^64 in all.
#[derive(Default)]
struct Part {
    before: u128,
    after: u128,
    gained: u128,
}

impl Part {
    fn change(&self, server: SocketAddr) -> ShareChange {
        let parts = |width: u128| narrow(width >> 32);
        ShareChange {
            server,
            before: parts(self.before),
            after: parts(self.after),
            gained: parts(self.gained),
        }
    }
}

/// A settled space of these members alone.
fn ring(mut members: Vec<Member>) -> Space {
    members.sort_by_key(Member::id);
    let all: Vec<u16> = (0..members.len() as u16).collect();
    Space { members, rhs: all.clone(), whs: all, ..Space::empty(Default::default(), Default::default()) }
}

fn members_after(space: &Space, attach: &[SocketAddr], detach: &[SocketAddr]) -> Vec<Member> {
    let stays = |member: &&Member| {
        let replaced = attach.contains(&member.address) && !member.is_active();
        !detach.contains(&member.address) && !replaced
    };
    let rhs = space.rhs.iter().map(|&index| space.member(index));
    // Who came back as a last owner acts when the replace is done.
    let acting = |member: &Member| match member.state {
        MemberState::Returned { .. } => Member { state: MemberState::Active, ..member.clone() },
        MemberState::Active | MemberState::Fault { .. } => member.clone(),
    };
    let mut members: Vec<Member> = rhs.filter(stays).map(acting).collect();
    for &address in attach {
        if members.iter().all(|member| member.address != address) {
            let incarnation = Incarnation(u128::MAX);
            members.push(Member { address, incarnation, state: MemberState::Active });
        }
    }
    members
}

/// The stretches in which neither table changes owners, and how wide they are.
fn overlaps<'a>(now: &'a Table, after: &'a Table) -> impl Iterator<Item = (&'a Arc, &'a Arc, u128)> {
    let (mut left, mut right) = (now.arcs().iter().peekable(), after.arcs().iter().peekable());
    std::iter::from_fn(move || {
        let (was, is) = (*left.peek()?, *right.peek()?);
        let (first, last) = (was.first.max(is.first), was.last.min(is.last));
        if was.last == last {
            left.next();
        }
        if is.last == last {
            right.next();
        }
        Some((was, is, length(first.0, last.0)))
    })
}

fn length(first: u64, last: u64) -> u128 {
    u128::from(last) - u128::from(first) + 1
}

fn is_lost(space: &Space, index: u16) -> bool {
    matches!(space.member(index).state, MemberState::Fault { .. })
}

fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}
