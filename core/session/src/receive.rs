//! A node's two ends of snapshot transfer: handing copies out, and taking one over.

use crate::application::Application;
use crate::cell::Cell;
use crate::snapshot;
use crate::step::{Effect, NodeNote};
use crate::transfer::{Next, Receiver};
use bytes::Bytes;
use kumo_paxos::{Incarnation, Message, Position, Time};
use std::net::SocketAddr;

impl<A: Application> Cell<A> {
    /// Agreement says that this node is too far behind, or its state is torn.
    pub(crate) fn take_snapshot(&mut self, now: Time, from: SocketAddr, effects: &mut Vec<Effect>) {
        if self.receiver.as_ref().is_some_and(|receiver| receiver.from == from) {
            return;
        }
        self.receiver = Some(Receiver::new(from, now));
        self.ask_part(now, effects);
    }

    /// The link to a donor is gone.
    pub(crate) fn donor_lost(&mut self, now: Time, address: SocketAddr) {
        if self.receiver.as_ref().is_some_and(|receiver| receiver.from == address) {
            self.give_up_snapshot(now, address);
        }
    }

    pub(crate) fn snapshot_timeout(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.receiver.as_ref().is_some_and(|receiver| receiver.ask_at <= now) {
            self.ask_part(now, effects);
        }
    }

    fn ask_part(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(receiver) = &mut self.receiver else { return };
        let next = receiver.timeout(now, self.paxos.unit_micros);
        self.go_on(now, next, effects);
    }

    pub(crate) fn snapshot_message(
        &mut self,
        now: Time,
        from: SocketAddr,
        sender: Incarnation,
        message: Message,
        effects: &mut Vec<Effect>,
    ) {
        match message {
            Message::SnapshotAsk { at, part } => {
                let (replica, table, application, torn) =
                    (&self.replica, &self.table, &self.application, self.torn);
                let freeze = || {
                    let position = replica.position().filter(|_| !torn)?;
                    Some((position, snapshot::Parts::new(table, application)))
                };
                if let Some(answer) = self.donor.asked(now, sender, at, part, freeze) {
                    effects.push(Effect::Peer(from, self.envelope(sender, answer)));
                }
                self.replica.pin(self.donor.oldest());
            }
            Message::SnapshotPart { position, part, last, bytes } => {
                let wanted = self.receiver.as_mut().filter(|receiver| receiver.from == from);
                let Some(receiver) = wanted else { return };
                let next = receiver.part(now, self.paxos.unit_micros, position, part, last, bytes);
                self.go_on(now, next, effects);
            }
            // Agreement hands over no others.
            other => debug_assert!(false, "not a snapshot message: {other:?}"),
        }
    }

    fn go_on(&mut self, now: Time, next: Next, effects: &mut Vec<Effect>) {
        let Some(from) = self.receiver.as_ref().map(|receiver| receiver.from) else { return };
        match next {
            Next::Wait => {}
            Next::Ask(message) => {
                // Without a link there is nobody to ask; the next time-out tries again.
                if let Some(&incarnation) = self.peers.get(&from) {
                    effects.push(Effect::Peer(from, self.envelope(incarnation, message)));
                }
            }
            Next::Restore(position, parts, bytes) => self.install(now, from, position, parts, bytes, effects),
            Next::GiveUp => self.give_up_snapshot(now, from),
        }
    }

    fn give_up_snapshot(&mut self, now: Time, from: SocketAddr) {
        self.receiver = None;
        self.replica.snapshot_failed(now, from, &mut self.agreed);
    }

    fn install(
        &mut self,
        now: Time,
        from: SocketAddr,
        position: Position,
        parts: Vec<Bytes>,
        bytes: u64,
        effects: &mut Vec<Effect>,
    ) {
        // One that is not ahead helps nobody: a torn state needs one that got past the entry that tore it.
        let behind = self.replica.position().is_none_or(|mine| mine.executed < position.executed);
        if !behind {
            return self.give_up_snapshot(now, from);
        }
        let Ok((table, application)) = snapshot::restore(parts, position.digest) else {
            effects.push(Effect::Note(NodeNote::SnapshotMalformed { from }));
            return self.give_up_snapshot(now, from);
        };
        self.receiver = None;
        (self.table, self.application, self.torn) = (table, application, false);
        self.replica.install(now, position, &mut self.agreed);
        effects.push(Effect::Note(NodeNote::Restored { from, bytes }));
        // The log on disk, if there is one, does not lead here.
        self.want_snapshot(effects);
        self.reseat(effects);
    }

    /// Sessions may have ended, or got events, in the part of the log that the snapshot stands for.
    fn reseat(&mut self, effects: &mut Vec<Effect>) {
        let seated: Vec<_> = self.front.seats.keys().copied().collect();
        for session in seated {
            match self.table.get(session) {
                Some(_) => {
                    self.event_sessions.insert(session);
                }
                None => self.session_ended(session, self.table.end_of(session), effects),
            }
        }
    }
}
