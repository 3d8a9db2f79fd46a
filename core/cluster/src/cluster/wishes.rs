//! What operators want of the ring and is not done yet, and what becomes of it: a replace takes it along as its
//! [`Errand`], a cancel gives it back, and who was taken out by order is on record afterwards.

use super::command::{Author, Objection};
use super::draft::Draft;
use super::state::Cluster;
use crate::{MEMBERS_MAX, MemberState, ServerId};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// What the replace under way has of operators' wishes, until it is switched to or cancelled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Errand {
    /// Wishes from before it that it carries out. Who was named by its order alone is not among them.
    pub attach: BTreeSet<SocketAddr>,
    pub detach: BTreeSet<SocketAddr>,
    /// Those that an operator takes out by it, and that acted when it was ordered.
    pub out: BTreeSet<SocketAddr>,
}

impl Cluster {
    /// Each takes back the other, of a server that is where it is wanted already.
    pub(super) fn want(&mut self, attach: Vec<SocketAddr>, detach: Vec<SocketAddr>) -> Result<(), Objection> {
        let mut attach_wanted = self.attach_wanted.clone();
        let mut detach_wanted = self.detach_wanted.clone();
        let mut taken_out = self.taken_out.clone();
        let space = &self.space;
        let place = |address| space.rhs.iter().find(|&&index| space.member(index).address == address);
        let stays = |index: &u16| {
            !matches!(space.member(*index).state, MemberState::Fault { .. }) && space.whs.contains(index)
        };
        taken_out.retain(|server| !attach.contains(&server.address));
        for address in attach {
            detach_wanted.remove(&address);
            if !place(address).is_some_and(stays) {
                attach_wanted.insert(address);
            }
        }
        for address in detach {
            attach_wanted.remove(&address);
            if place(address).is_some() {
                detach_wanted.insert(address);
            }
        }
        // What the replace under way has of them may come back.
        if attach_wanted.union(&self.errand.attach).count() > MEMBERS_MAX {
            return Err(Objection::TooManyServers);
        }
        let before = (&self.attach_wanted, &self.detach_wanted, &self.taken_out);
        if (&attach_wanted, &detach_wanted, &taken_out) == before {
            return Err(Objection::Nothing);
        }
        self.attach_wanted = attach_wanted;
        self.detach_wanted = detach_wanted;
        self.taken_out = taken_out;
        Ok(())
    }

    /// What a replace to that ring has of the wishes. Only an operator's takes out more than it names: auto-replace
    /// knows nothing of what else the operator means to do before, such as to bring in another one.
    pub(super) fn errand(
        &self,
        draft: &Draft,
        attach: &[ServerId],
        detach: &[SocketAddr],
        author: Author,
    ) -> Errand {
        let named = attach.iter().map(|server| server.address);
        let attach = named.filter(|address| self.attach_wanted.contains(address)).collect();
        match author {
            Author::Operator => {
                let writers: BTreeSet<SocketAddr> = draft.whs.iter().map(|server| server.address).collect();
                let acting = draft.acting(&draft.rhs).into_iter().map(|server| server.address);
                let out = acting.filter(|address| !writers.contains(address)).collect();
                Errand { attach, detach: self.detach_wanted.clone(), out }
            }
            Author::AutoReplace => {
                let wanted = detach.iter().filter(|&address| self.detach_wanted.contains(address));
                Errand { attach, detach: wanted.copied().collect(), out: BTreeSet::new() }
            }
        }
    }

    /// These wishes are being carried out; who is attached again was not taken out for good.
    pub(super) fn take_along(&mut self, errand: &Errand, attach: &[ServerId]) {
        self.attach_wanted.retain(|address| !errand.attach.contains(address));
        self.detach_wanted.retain(|address| !errand.detach.contains(address));
        self.taken_out.retain(|out| attach.iter().all(|server| server.address != out.address));
    }

    /// The replace under way is cancelled: what was wanted before is wanted again, unless an operator has changed that
    /// meanwhile, or the server was lost on the way. Who cancels what an operator ordered has to leave the order on
    /// record: what was to be taken out then waits for the operator's next replace.
    pub(super) fn give_back(&mut self, author: Author) {
        let Errand { attach, mut detach, out } = std::mem::take(&mut self.errand);
        let space = &self.space;
        let lost = |index: &u16| matches!(space.member(*index).state, MemberState::Fault { .. });
        let comes = |index: &&u16| !space.rhs.contains(index);
        let gone: BTreeSet<SocketAddr> = space
            .whs
            .iter()
            .filter(comes)
            .filter(|index| lost(index))
            .map(|&index| space.member(index).address)
            .collect();
        match author {
            Author::Operator => {}
            Author::AutoReplace => {
                let acting = space.rhs.iter().filter(|index| !lost(index));
                let acting: BTreeSet<SocketAddr> = acting.map(|&index| space.member(index).address).collect();
                detach.extend(out.intersection(&acting));
            }
        }
        for address in attach {
            if !gone.contains(&address) && !self.detach_wanted.contains(&address) {
                self.attach_wanted.insert(address);
            }
        }
        for address in detach {
            if !self.attach_wanted.contains(&address) {
                self.detach_wanted.insert(address);
            }
        }
    }

    /// The replace under way is done: this is the space before the switch. Who acted and leaves by an operator's order is
    /// not brought in again by auto-replace, in this life or a later one of its store: who was lost meanwhile may have been
    /// silent for a moment. A wish to take out who is out is done.
    pub(super) fn carried_out(&mut self, before: &Draft) {
        let errand = std::mem::take(&mut self.errand);
        let leaves = |server: &ServerId| {
            errand.out.contains(&server.address)
                && before.writer_at(server.address).is_none()
                && !self.attach_wanted.contains(&server.address)
        };
        let leaving: Vec<ServerId> = before.rhs.iter().copied().filter(leaves).collect();
        for server in leaving {
            self.taken_out.retain(|out| out.address != server.address);
            self.taken_out.push(server);
        }
        let surplus = self.taken_out.len().saturating_sub(MEMBERS_MAX);
        self.taken_out.drain(..surplus);
        self.detach_wanted.retain(|&address| before.writer_at(address).is_some());
    }
}
