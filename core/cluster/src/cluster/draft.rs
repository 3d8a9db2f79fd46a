//! [`Draft`]: a space being edited, by servers instead of indexes.

use crate::{Clock, Job, Member, MemberState, ServerId, Space, SpaceNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// A space taken apart. What is not here goes through as it was.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub base: Space,
    pub members: BTreeMap<ServerId, MemberState>,
    pub rhs: BTreeSet<ServerId>,
    pub whs: BTreeSet<ServerId>,
    pub earlier: BTreeSet<ServerId>,
    pub old: BTreeSet<ServerId>,
    pub job: Option<Job>,
    /// The ring that is written to becomes another one with this space.
    pub whs_changed: bool,
    /// Request ids from before this space are not remembered everywhere.
    pub ids_lost: bool,
}

impl Draft {
    pub fn of(space: &Space) -> Draft {
        let ring = |indexes: &[u16]| indexes.iter().map(|&index| space.server(index)).collect();
        Draft {
            members: space.members.iter().map(|member| (member.id(), member.state)).collect(),
            rhs: ring(&space.rhs),
            whs: ring(&space.whs),
            earlier: ring(&space.earlier),
            old: ring(&space.old),
            job: space.job,
            whs_changed: false,
            ids_lost: false,
            base: space.clone(),
        }
    }

    /// The space that comes of it. Who is in no ring is dropped, and so is the earlier ring when nobody has to
    /// confirm any more that it is over.
    pub fn seal(mut self, number: SpaceNumber, clock: Clock) -> Space {
        if self.old.is_empty() {
            self.earlier.clear();
        }
        let named: BTreeSet<ServerId> =
            [&self.rhs, &self.whs, &self.earlier].into_iter().flatten().copied().collect();
        self.members.retain(|server, _| named.contains(server));
        let places: BTreeMap<ServerId, u16> =
            self.members.keys().enumerate().map(|(place, &server)| (server, place as u16)).collect();
        let ring = |servers: &BTreeSet<ServerId>| servers.iter().map(|server| places[server]).collect();
        Space {
            number,
            clock,
            rhs: ring(&self.rhs),
            whs: ring(&self.whs),
            earlier: ring(&self.earlier),
            old: ring(&self.old),
            whs_since: if self.whs_changed { number } else { self.base.whs_since },
            job: self.job,
            id_floor: if self.ids_lost { number } else { self.base.id_floor },
            members: self
                .members
                .iter()
                .map(|(id, &state)| Member { address: id.address, incarnation: id.incarnation, state })
                .collect(),
            ..self.base
        }
    }

    pub fn acts(&self, server: &ServerId) -> bool {
        self.members.get(server).is_some_and(|state| !matches!(state, MemberState::Fault { .. }))
    }

    pub fn acting(&self, ring: &BTreeSet<ServerId>) -> BTreeSet<ServerId> {
        ring.iter().copied().filter(|server| self.acts(server)).collect()
    }

    /// The life of that address in the ring that is written to.
    pub fn writer_at(&self, address: SocketAddr) -> Option<ServerId> {
        self.whs.iter().copied().find(|server| server.address == address)
    }

    /// A lost member can go on in that life: it is in no ring yet, and nobody has taken the place.
    pub fn may_return(&self, before: ServerId, after: ServerId) -> bool {
        let writer = self.writer_at(before.address);
        !self.members.contains_key(&after) && writer.is_none_or(|writer| writer == before)
    }

    /// A member goes on in another life, in every ring it is in.
    pub fn rename(&mut self, before: ServerId, after: ServerId, state: MemberState) {
        self.members.remove(&before);
        self.members.insert(after, state);
        for ring in [&mut self.rhs, &mut self.whs, &mut self.earlier] {
            if ring.remove(&before) {
                ring.insert(after);
            }
        }
    }

    /// The last step of a replace: keys are read where they are written. Who came back to lead what it had last
    /// has caught up with the rest, and is like any other from now on.
    pub fn switch(&mut self) {
        self.old = self.acting(&self.rhs);
        self.earlier = std::mem::replace(&mut self.rhs, self.whs.clone());
        for server in &self.rhs {
            if let Some(state @ MemberState::Returned { .. }) = self.members.get_mut(server) {
                *state = MemberState::Active;
            }
        }
        self.job = None;
    }
}
