//! [`Condition`]: how a server of the hash space is, beyond the seed's two words, in the same words in every tool.

use kumo_cluster::control::Stat;
use kumo_cluster::{Member, MemberState, ServerId, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

/// A place in the hash space is that of one life of a server. What another life of it does is told beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    Active,
    /// Nothing says that it is lost, and nothing that it is there: the managers have not heard of it since the one that
    /// leads was started.
    Unheard,
    /// It is active as the asked server knows it, which goes on in another life.
    Restarted,
    Fault,
    /// Another life of it is there, and not attached.
    Waiting,
    /// Another life of it is there, and a replace brings it in.
    Joining,
    /// It is back, and acts for what only it has.
    Returned,
    /// As `Returned` when it was last heard of, by managers that were stopped since.
    UnheardReturned,
}

impl Condition {
    /// The seed's word. One that came back for what only it has is fault in all else until it is attached.
    pub fn state(self) -> &'static str {
        match self {
            Condition::Active | Condition::Unheard | Condition::Restarted => "active",
            Condition::Fault
            | Condition::Waiting
            | Condition::Joining
            | Condition::Returned
            | Condition::UnheardReturned => "fault",
        }
    }

    /// Whether the managers that were asked have heard of it since their start, or need not.
    pub fn is_heard(self) -> bool {
        !matches!(self, Condition::Unheard | Condition::UnheardReturned)
    }

    /// Back for what only it has.
    pub fn is_returned(self) -> bool {
        matches!(self, Condition::Returned | Condition::UnheardReturned)
    }

    /// What the seed's word leaves out.
    pub fn more(self) -> Option<&'static str> {
        match self {
            Condition::Active | Condition::Fault => None,
            Condition::Unheard => Some("not heard of yet"),
            Condition::Restarted => Some("until it restarted"),
            Condition::Waiting => Some("back: not attached"),
            Condition::Joining => Some("back: joining"),
            Condition::Returned => Some("back: serves what only it has"),
            Condition::UnheardReturned => Some("back for what only it has, not heard of yet"),
        }
    }

    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            Condition::Active => "active",
            Condition::Unheard => "unheard",
            Condition::Restarted => "restarted",
            Condition::Fault => "fault",
            Condition::Waiting => "waiting",
            Condition::Joining => "joining",
            Condition::Returned | Condition::UnheardReturned => "returned",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.state())?;
        self.more().map_or(Ok(()), |more| write!(out, ", {more}"))
    }
}

/// The lives of servers that are there, as whoever was asked knows.
pub struct Lives {
    there: BTreeMap<SocketAddr, ServerId>,
    /// None: who was asked knows of its own life alone.
    heard: Option<BTreeSet<ServerId>>,
}

impl Lives {
    /// As the managers know.
    pub fn of(stat: &Stat) -> Lives {
        let there = stat.servers.iter().filter(|server| server.connected).map(|server| server.server);
        Lives {
            there: there.map(|server| (server.address, server)).collect(),
            heard: Some(stat.servers.iter().map(|server| server.server).collect()),
        }
    }

    /// As that server knows.
    pub fn alone(server: ServerId) -> Lives {
        Lives { there: BTreeMap::from([(server.address, server)]), heard: None }
    }

    pub fn condition(&self, space: &Space, member: &Member) -> Condition {
        let other = self.there.get(&member.address).filter(|life| **life != member.id());
        let is_unheard = self.heard.as_ref().is_some_and(|heard| !heard.contains(&member.id()));
        match (member.state, &self.heard, other) {
            (MemberState::Returned { .. }, _, _) if is_unheard => Condition::UnheardReturned,
            (MemberState::Returned { .. }, _, _) => Condition::Returned,
            (MemberState::Active, _, _) if is_unheard => Condition::Unheard,
            (MemberState::Active, None, Some(_)) => Condition::Restarted,
            (MemberState::Active, _, _) => Condition::Active,
            (MemberState::Fault { .. }, _, None) => Condition::Fault,
            (MemberState::Fault { .. }, _, Some(life)) => match space.index_of(*life) {
                Some(_) => Condition::Joining,
                None => Condition::Waiting,
            },
        }
    }

    /// `127.0.0.1:19800 (active)`.
    pub fn shown(&self, space: &Space, member: &Member) -> String {
        format!("{} ({})", member.address, self.condition(space, member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::{Incarnation, SpaceNumber};

    fn server(life: u128) -> ServerId {
        ServerId { address: SocketAddr::from(([127, 0, 0, 1], 8000)), incarnation: Incarnation(life) }
    }

    #[test]
    fn a_place_and_the_life_that_is_there_are_told_apart() {
        let fault = MemberState::Fault { order: 1 };
        let returned = MemberState::Returned { order: 1 };
        let lives = |there: Option<u128>, heard: Option<&[u128]>| Lives {
            there: there.map(|life| (server(life).address, server(life))).into_iter().collect(),
            heard: heard.map(|heard| heard.iter().map(|&life| server(life)).collect()),
        };
        for (state, lives, words) in [
            (MemberState::Active, lives(Some(1), Some(&[1])), "active"),
            (MemberState::Active, lives(None, Some(&[1])), "active"),
            (MemberState::Active, lives(None, Some(&[])), "active, not heard of yet"),
            (MemberState::Active, lives(Some(2), Some(&[2])), "active, not heard of yet"),
            (MemberState::Active, lives(Some(1), None), "active"),
            (MemberState::Active, lives(Some(2), None), "active, until it restarted"),
            (MemberState::Active, lives(None, None), "active"),
            (fault, lives(None, Some(&[])), "fault"),
            (fault, lives(Some(1), Some(&[1])), "fault"),
            (fault, lives(Some(2), Some(&[1, 2])), "fault, back: not attached"),
            (fault, lives(Some(2), None), "fault, back: not attached"),
            (fault, lives(Some(3), Some(&[3])), "fault, back: joining"),
            (returned, lives(Some(1), Some(&[1])), "fault, back: serves what only it has"),
            (returned, lives(None, Some(&[])), "fault, back for what only it has, not heard of yet"),
            (returned, lives(None, None), "fault, back: serves what only it has"),
        ] {
            let member = |life, state| Member {
                address: server(life).address,
                incarnation: server(life).incarnation,
                state,
            };
            let empty = Space::empty(Default::default(), SpaceNumber(9));
            let space = Space { members: vec![member(1, state), member(3, MemberState::Active)], ..empty };
            let condition = lives.condition(&space, &space.members[0]);
            assert_eq!(condition.to_string(), words);
            let active = state == MemberState::Active;
            assert_eq!(condition.state(), if active { "active" } else { "fault" });
        }
    }
}
