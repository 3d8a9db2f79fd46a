//! [`Coverage`]: whether copies of some servers' stores hold the whole ring, as backups of all servers do.

use crate::{MemberState, ServerId, Space, SpaceNumber, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// What copies of stores lack, judged by the spaces that lie beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// How much of the ring no copy holds, in 2^-32 parts of it; of anything at all it is one at least.
    pub missing_parts: u64,
    /// The servers that have it by the newest space. Of each stretch the copy of one is enough.
    pub missing: BTreeSet<SocketAddr>,
    /// Those whose copies do not count: by the newest space they were lost, or left, after their copy was made, and
    /// what was written since is not in it.
    pub outdated: BTreeSet<SocketAddr>,
}

impl Coverage {
    /// Of copies of one cluster, each with the server that it is of and the space in which that server acted when it was
    /// made. The spaces may differ: a copy holds what its server was read for by its own.
    pub fn of(copies: &[(ServerId, Space)]) -> Coverage {
        let Some((_, newest)) = copies.iter().max_by_key(|(_, space)| space.number) else {
            return Coverage::default();
        };
        let (current, outdated): (Vec<_>, Vec<_>) =
            copies.iter().partition(|(server, _)| is_current(newest, *server));
        // One that is being brought in holds nothing for sure yet, but it is not too old.
        let outdated = outdated.into_iter().filter(|(server, _)| !is_coming(newest, *server));
        let outdated = outdated.map(|(server, _)| server.address).collect();
        let mut coverage = Coverage { outdated, ..Coverage::default() };
        // Most of them have the same space, and laying one out is work.
        let mut by_number: BTreeMap<SpaceNumber, (&Space, BTreeSet<ServerId>)> = BTreeMap::new();
        for (server, space) in current {
            by_number.entry(space.number).or_insert((space, BTreeSet::new())).1.insert(*server);
        }
        let held = by_number.values().flat_map(|(space, servers)| read_at(space, servers)).collect();
        coverage.find_gaps(newest, joined(held));
        coverage
    }

    fn find_gaps(&mut self, newest: &Space, held: Vec<Stretch>) {
        let mut places = 0;
        for arc in Table::new(newest).arcs() {
            let width = lacking(&held, (arc.first.0, arc.last.0));
            if width == 0 {
                continue;
            }
            places += width;
            // Where nobody acts, whoever is lost may still have a copy somewhere.
            let having = if arc.readers.is_empty() { &arc.owners } else { &arc.readers };
            self.missing.extend(having.iter().map(|&index| newest.member(index).address));
        }
        self.missing_parts = u64::try_from(places >> 32).unwrap_or(u64::MAX).max(u64::from(places > 0));
    }
}

/// It is that very life, not lost, and keys are read from it or written to it still.
fn is_current(newest: &Space, server: ServerId) -> bool {
    newest.index_of(server).is_some_and(|index| {
        let takes_part = newest.rhs.contains(&index) || newest.old.contains(&index);
        takes_part && !matches!(newest.member(index).state, MemberState::Fault { .. })
    })
}

fn is_coming(newest: &Space, server: ServerId) -> bool {
    newest.index_of(server).is_some_and(|index| {
        newest.whs.contains(&index) && !matches!(newest.member(index).state, MemberState::Fault { .. })
    })
}

/// First and last place, both included.
type Stretch = (u64, u64);

/// Where one of these servers is read in that space.
fn read_at(space: &Space, servers: &BTreeSet<ServerId>) -> Vec<Stretch> {
    let table = Table::new(space);
    let read = |arc: &&crate::Arc| arc.readers.iter().any(|&index| servers.contains(&space.server(index)));
    table.arcs().iter().filter(read).map(|arc| (arc.first.0, arc.last.0)).collect()
}

/// The same places in stretches that neither touch nor overlap, ascending.
fn joined(mut stretches: Vec<Stretch>) -> Vec<Stretch> {
    stretches.sort_unstable();
    let mut joined: Vec<Stretch> = Vec::new();
    for (first, last) in stretches {
        match joined.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _apart => joined.push((first, last)),
        }
    }
    joined
}

/// How many places of a stretch are in none of those.
fn lacking(held: &[Stretch], (first, last): Stretch) -> u128 {
    let width = |first: u64, last: u64| u128::from(last) - u128::from(first) + 1;
    let from = held.partition_point(|&(_, end)| end < first);
    let within = held[from..].iter().take_while(|&&(start, _)| start <= last);
    width(first, last) - within.map(|&(start, end)| width(start.max(first), end.min(last))).sum::<u128>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Incarnation, Member};

    fn server(port: u16) -> ServerId {
        ServerId {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            incarnation: Incarnation(u128::from(port)),
        }
    }

    /// All of them attached, and all acting.
    fn space(number: u64, ports: std::ops::RangeInclusive<u16>) -> Space {
        let active =
            |ServerId { address, incarnation }| Member { address, incarnation, state: MemberState::Active };
        let members: Vec<Member> = ports.map(server).map(active).collect();
        let all: Vec<u16> = (0..members.len() as u16).collect();
        let empty = Space::empty(Default::default(), SpaceNumber(number));
        Space { members, rhs: all.clone(), whs: all, ..empty }
    }

    fn addresses(ports: impl IntoIterator<Item = u16>) -> BTreeSet<SocketAddr> {
        ports.into_iter().map(|port| server(port).address).collect()
    }

    fn of(space: &Space, ports: impl IntoIterator<Item = u16>) -> Vec<(ServerId, Space)> {
        ports.into_iter().map(|port| (server(port), space.clone())).collect()
    }

    #[test]
    fn any_two_of_many_may_be_missing_and_no_more() {
        for servers in 1..=6u16 {
            let space = space(7, 1..=servers);
            for absent in 0..servers {
                let coverage = Coverage::of(&of(&space, 1 + absent..=servers));
                match absent <= 2 {
                    true => assert_eq!(coverage, Coverage::default(), "{absent} of {servers} are missing"),
                    false => {
                        assert!(coverage.missing_parts > 0, "{absent} of {servers} are missing");
                        assert_eq!(coverage.missing, addresses(1..=absent));
                    }
                }
            }
        }
    }

    #[test]
    fn how_much_is_missing_is_what_the_table_says() {
        let space = space(7, 1..=5);
        let given = [server(2), server(4)];
        let mut places = 0;
        for arc in Table::new(&space).arcs() {
            if arc.readers.iter().all(|&index| !given.contains(&space.server(index))) {
                places += u128::from(arc.last.0 - arc.first.0) + 1;
            }
        }
        let coverage = Coverage::of(&of(&space, [2, 4]));
        assert_eq!(u128::from(coverage.missing_parts), places >> 32);
        assert!((1u64 << 28..1 << 31).contains(&coverage.missing_parts), "{coverage:?}");
    }

    #[test]
    fn copies_of_before_and_after_a_change_count_for_what_they_hold() {
        // The first was copied before the sixth came, the others after.
        let (before, after) = (space(7, 1..=5), space(9, 1..=6));
        let mixed = [of(&before, [1]), of(&after, 2..=4)].concat();
        assert_eq!(Coverage::of(&mixed), Coverage::default());
        // The sixth has what was theirs: of three that knew nothing of it no place is missing.
        assert_eq!(Coverage::of(&of(&before, 1..=3)), Coverage::default());
        // But of two of them and the sixth some is.
        let few = [of(&before, [1]), of(&after, [6])].concat();
        let coverage = Coverage::of(&few);
        assert!(coverage.missing_parts > 0 && coverage.outdated.is_empty(), "{coverage:?}");
        assert!(coverage.missing.is_superset(&addresses(2..=5)), "{coverage:?}");
    }

    #[test]
    fn a_server_that_was_lost_or_left_after_its_copy_does_not_count() {
        let before = space(7, 1..=5);
        let mut after = space(9, 2..=5);
        after.members[0].state = MemberState::Fault { order: 1 };
        let coverage = Coverage::of(&[of(&before, [1, 2]), of(&after, [3, 4])].concat());
        assert_eq!((coverage.missing_parts, coverage.outdated), (0, addresses([1, 2])));
        let coverage = Coverage::of(&[of(&before, [1, 2]), of(&after, [3])].concat());
        assert!(coverage.missing_parts > 0);
        // The lost one is not among those that have it.
        assert_eq!(coverage.missing, addresses([4, 5]));
        // The same server in a later life.
        let mut reborn = space(9, 1..=5);
        reborn.members[0].incarnation = Incarnation(99);
        let coverage = Coverage::of(&[of(&before, [1]), of(&reborn, 2..=4)].concat());
        assert_eq!((coverage.missing_parts, coverage.outdated), (0, addresses([1])));
    }

    #[test]
    fn one_that_is_being_brought_in_does_not_count_and_is_not_too_old() {
        let mut space = space(7, 1..=6);
        space.rhs.retain(|&index| space.members[usize::from(index)].address != server(6).address);
        let coverage = Coverage::of(&of(&space, [1, 6]));
        assert!(coverage.missing_parts > 0 && coverage.outdated.is_empty(), "{coverage:?}");
        assert!(!coverage.missing.contains(&server(6).address), "{coverage:?}");
    }

    #[test]
    fn where_all_are_lost_they_are_named_all_the_same() {
        let mut space = space(7, 1..=4);
        for (order, member) in space.members[1..].iter_mut().enumerate() {
            member.state = MemberState::Fault { order: order as u64 };
        }
        let coverage = Coverage::of(&of(&space, [1]));
        assert!(coverage.missing_parts > 0);
        assert_eq!(coverage.missing, addresses(2..=4));
    }

    #[test]
    fn one_place_is_missing_too() {
        assert_eq!(lacking(&joined(vec![(8, 9), (0, 4), (4, 6)]), (0, u64::MAX)), (1u128 << 64) - 9);
        assert_eq!(lacking(&joined(vec![(0, 6), (7, u64::MAX)]), (0, u64::MAX)), 0);
        assert_eq!(lacking(&[(0, 6), (8, 9)], (5, 9)), 1);
        assert_eq!(Coverage::of(&[]), Coverage::default());
    }
}
