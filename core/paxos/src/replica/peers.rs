//! Links as they come and go, and whether what arrives over them is for this cell.

use super::{Confirmed, Replica, TOLD_MAX};
use crate::identity::{CellId, Incarnation, Instance, Round, Time};
use crate::links::Link;
use crate::message::{Heartbeat, Hello, Message};
use crate::step::{Effect, ExitReason, Note};
use std::net::SocketAddr;

impl Replica {
    pub(super) fn peer_up(&mut self, now: Time, hello: &Hello, effects: &mut Vec<Effect>) {
        if hello.address == self.settings.address {
            return;
        }
        let nonce = self.draw();
        // Given up a moment ago, it came up before that was done: whoever is there is wanted again after it.
        self.dial(hello.address, effects);
        let link = self.links.entry(hello.address);
        if link.incarnation != hello.incarnation {
            if let Some(forming) = &mut self.forming {
                forming.forget(hello.address);
            }
            link.heartbeat = None;
            link.peer_nonce = 0;
            link.executed = Instance(0);
            link.kept = 0;
        }
        link.incarnation = hello.incarnation;
        link.up = true;
        link.heard = Some(now);
        link.nonce = nonce;
        link.echoed = false;
        link.follows = None;
        self.send_heartbeat(now, hello.address, effects);
        self.ask_new(now, effects);
    }

    pub(super) fn peer_down(&mut self, now: Time, address: SocketAddr, effects: &mut Vec<Effect>) {
        if let Some(link) = self.links.get_mut(address) {
            link.up = false;
            link.follows = None;
        }
        self.held.take_if(|(newcomer, _)| *newcomer == address);
        if self.catching.asked.is_some_and(|(asked, _)| asked == address) {
            self.catching.asked = None;
        }
        self.elect(now, effects);
    }

    /// The member at that address speaks, but our link leads to another process, one that had the address before and
    /// holds the connection still: dial again. Once for each member: where the link leads elsewhere again, it is
    /// the member that nobody can dial any more.
    pub(super) fn seek(&mut self, address: SocketAddr, member: Incarnation, effects: &mut Vec<Effect>) {
        let Some(schedule) = self.agreement.schedule() else { return };
        let named = schedule.latest().at(address).is_some_and(|named| named.incarnation == member);
        let voters = schedule.voters();
        let Some(link) = self.links.get_mut(address) else { return };
        // Who still votes on something may be needed for it, and might not be reached again.
        if !named || !link.up || link.sought == member || voters.contains(&link.incarnation) {
            return;
        }
        link.sought = member;
        effects.extend([Effect::Hangup(address), Effect::Dial(address)]);
    }

    /// A peer says how many of our promises and accepts it was told of. False: more than are here, so the disk has lost
    /// some, and this incarnation must not vote again.
    pub(super) fn confirm(
        &mut self,
        from: SocketAddr,
        sender: Incarnation,
        heartbeat: &Heartbeat,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if heartbeat.yours > self.kept_so_far() {
            self.exit(ExitReason::Forgot, effects);
            return false;
        }
        // What was said to an earlier life of this incarnation tells nothing: the echo shows that this is no replay.
        let echoes = |link: &Link| link.incarnation == sender && link.nonce == heartbeat.echo;
        if let Confirmed::By(voters) = &mut self.confirmed
            && self.links.get(from).is_some_and(echoes)
        {
            voters.insert(sender);
            if self.is_confirmed() {
                self.confirmed = Confirmed::Yes;
            }
        }
        true
    }

    /// Whether a majority of the voters, this replica among them, knows of nothing that it lost.
    pub(super) fn is_confirmed(&self) -> bool {
        let me = self.settings.incarnation;
        match &self.confirmed {
            Confirmed::Yes => true,
            Confirmed::By(voters) => self.configuration_now().is_some_and(|configuration| {
                configuration.majority(|voter| voter == me || voters.contains(&voter))
            }),
        }
    }

    /// Whether its votes are to be had: a memory that may lack something gives none.
    pub(super) fn votes_now(&self) -> bool {
        self.agreement.votes() && self.is_confirmed()
    }

    /// Whether another round may be promised now: no lease forbids it, and nothing of the memory is missing.
    pub(super) fn may_promise(&self, now: Time, round: Round) -> bool {
        self.is_confirmed() && self.lease.answers_collect(now, round)
    }

    /// Whether a message's cell and generation fit. A replica without a cell listens to everyone.
    pub(super) fn same_cell(
        &mut self,
        from: SocketAddr,
        cell: CellId,
        generation: u32,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let (mine, none) = (self.agreement.cell, CellId(0));
        if mine == none || cell == none {
            return true;
        }
        if mine != cell {
            if !self.told.foreign.contains(&from) && self.told.foreign.len() < TOLD_MAX {
                self.told.foreign.push(from);
                effects.push(Effect::Note(Note::ForeignCell { address: from, cell }));
            }
            return false;
        }
        if generation < self.lineage {
            self.send(from, Message::Over { generation: self.lineage }, effects);
            return false;
        }
        if generation > self.lineage {
            self.exit(ExitReason::Over(generation), effects);
            return false;
        }
        true
    }
}
