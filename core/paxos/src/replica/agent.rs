//! A replica as agent: answering collects and begins, fetching large values.

use super::Replica;
use crate::data::{Arrival, Want};
use crate::identity::{Instance, Round, Time};
use crate::message::{Message, Proposal};
use crate::step::{Effect, Record};
use crate::unheld::Begun;
use crate::value::{DataName, Value};
use bytes::Bytes;
use std::net::SocketAddr;

impl Replica {
    pub(super) fn collect(
        &mut self,
        now: Time,
        from: SocketAddr,
        round: Round,
        first: Instance,
        effects: &mut Vec<Effect>,
    ) {
        self.heard = self.heard.max(round);
        // Under a grant to another round no collect is answered; a weaker one is refused all the same.
        if !self.may_promise(now, round) && round >= self.agreement.acceptor().promised() {
            return;
        }
        if let Some(answer) = self.agreement.collect(round, first, &mut self.records) {
            self.send(from, answer, effects);
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn begin(
        &mut self,
        now: Time,
        from: SocketAddr,
        round: Round,
        sent: Time,
        success: Instance,
        proposals: Vec<Proposal>,
        effects: &mut Vec<Effect>,
    ) {
        self.heard = self.heard.max(round);
        let promised = self.agreement.acceptor().promised();
        // Also one of the round that was promised: this memory may lack a later promise.
        if round >= promised && !self.is_confirmed() {
            return;
        }
        // A begin that would raise the promise is a collect as far as leases go.
        if round > promised && !self.may_promise(now, round) {
            return;
        }
        for proposal in &proposals {
            if let Value::Large { name, length } = &proposal.value
                && !self.data.holds(&proposal.value)
            {
                self.fetch(now, *name, *length, from, Want::Begun, effects);
                let (lineage, proposal) = (self.lineage, proposal.clone());
                let begun = Begun { lineage, from, round, sent, proposal };
                self.unheld.note(self.agreement.log().executed(), begun);
            }
        }
        let data = &self.data;
        match self.agreement.begin(round, proposals, |value| data.holds(value), &mut self.records) {
            Ok(instances) => {
                self.agreement.success(round, success, &mut self.records);
                if self.agreement.votes() && self.agreement.acceptor().promised() == round {
                    let granted_micros = self.lease.grant(now, round);
                    let executed = self.agreement.log().executed();
                    let accept = Message::Accept { round, sent, granted_micros, executed, instances };
                    self.send(from, accept, effects);
                }
            }
            Err(promised) => self.send(from, Message::Refuse { refused: round, promised }, effects),
        }
    }

    pub(super) fn offered(
        &mut self,
        now: Time,
        from: SocketAddr,
        name: DataName,
        length: u32,
        effects: &mut Vec<Effect>,
    ) {
        if self.data.holds(&Value::Large { name, length }) {
            self.send(from, Message::Held { name }, effects);
        } else {
            self.fetch(now, name, length, from, Want::Offered, effects);
        }
    }

    pub(super) fn fetch(
        &mut self,
        now: Time,
        name: DataName,
        length: u32,
        from: SocketAddr,
        want: Want,
        effects: &mut Vec<Effect>,
    ) {
        for offset in self.data.fetch(now, name, length, from, want) {
            self.send(from, Message::Fetch { name, offset }, effects);
        }
    }

    /// A peer wants a part of a value. One whose entry everybody here has executed is gone: whoever comes late
    /// takes a snapshot.
    pub(super) fn fetch_asked(
        &mut self,
        from: SocketAddr,
        name: DataName,
        offset: u32,
        effects: &mut Vec<Effect>,
    ) {
        let message = match self.data.slice(&name, offset) {
            Some((length, bytes)) => Message::Chunk { name, length, offset, bytes },
            None => Message::TooFar { first: self.agreement.log().first() },
        };
        self.send(from, message, effects);
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn chunk(
        &mut self,
        now: Time,
        from: SocketAddr,
        name: DataName,
        length: u32,
        offset: u32,
        bytes: Bytes,
        effects: &mut Vec<Effect>,
    ) {
        match self.data.chunk(now, name, length, offset, bytes) {
            Arrival::More(offsets) => {
                for offset in offsets {
                    self.send(from, Message::Fetch { name, offset }, effects);
                }
            }
            Arrival::Complete(bytes, offered_by) => {
                self.records.push(Record::Data { name, bytes });
                if let Some(offerer) = offered_by {
                    self.send(offerer, Message::Held { name }, effects);
                }
                // Begun before its bytes were here: as if the begin had come only now.
                for Begun { from, round, sent, proposal, .. } in self.unheld.take(name, self.lineage) {
                    self.begin(now, from, round, sent, Instance(0), vec![proposal], effects);
                }
                self.eager = true;
            }
            Arrival::Dropped => {}
        }
    }
}
