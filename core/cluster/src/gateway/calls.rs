//! How a [`Gateway`] takes calls on, sends them, and judges the answers.

use super::Gateway;
use super::call::{Call, Stands};
use super::route::Choice;
use super::slots::{PAUSES_MICROS, Wait};
use crate::{
    Answer, COPIES, GatewayEffect, GatewayError, GatewayNote, Message, Refusal, Request, RequestId, ServerId,
};
use crate::{GatewayId, SpaceNumber};
use kumo_paxos::Time;

impl Gateway {
    pub(super) fn call(&mut self, now: Time, mut call: Call, effects: &mut Vec<GatewayEffect>) {
        let bytes = call.bytes();
        if self.is_busy() {
            let error = GatewayError::Busy;
            effects.push(GatewayEffect::Done { ticket: call.ticket, result: Err(error) });
            // Who wants no reply hears of it nowhere else.
            let Call { key, operation, .. } = call;
            effects.push(GatewayEffect::Note(GatewayNote::Failed { key, operation, error }));
            return;
        }
        if self.settings.spread_reads && call.is_get() {
            call.turn = (self.gets % TURNS) as u8;
            self.gets += 1;
        }
        self.bytes += bytes;
        self.slots.insert(call);
        self.place(now, effects);
    }

    /// Gives those that wait for it a seq, in the order they came, and sends them.
    pub(super) fn place(&mut self, now: Time, effects: &mut Vec<GatewayEffect>) {
        if self.id().is_none() {
            // Managers issue none before there are servers.
            if self.route.as_ref().is_some_and(|route| route.space.members.is_empty()) {
                self.turn_all_down(effects);
            }
            return;
        }
        if self.route.is_none() {
            return;
        }
        self.place_flushes(effects);
        while let Some(slot) = self.slots.first(Wait::Place) {
            let call = self.slots.get_mut(slot);
            call.seq = self.window.open(slot);
            call.stands = Stands::Paused;
            self.send(now, slot, effects);
        }
    }

    fn turn_all_down(&mut self, effects: &mut Vec<GatewayEffect>) {
        while let Some(slot) = self.slots.first(Wait::Place) {
            self.turned_down(slot, GatewayError::NoServers, effects);
        }
        self.turn_flushes_down(effects);
    }

    /// The next try of a call that is in nobody's hands.
    pub(super) fn send(&mut self, now: Time, slot: u32, effects: &mut Vec<GatewayEffect>) {
        let route = self.route.as_ref().expect("no call is placed before there is a space");
        let gateway = self.managers.id.expect("no call is placed without an id");
        let call = self.slots.get_mut(slot);
        match route.choose(call) {
            Choice::Member(index) => {
                let early = self.settings.early.includes(&call.operation);
                let request = call.next_try(gateway, route.space.number, self.window.lowest_open(), early);
                effects.push(GatewayEffect::Server(route.space.server(index), Message::Request(request)));
                call.stands = Stands::Asked(index);
                self.begin_try(now, slot);
            }
            // What is held already has its time running.
            Choice::Down if call.stands == Stands::Held => {}
            Choice::Down => {
                call.stands = Stands::Held;
                self.begin_try(now, slot);
            }
            Choice::Lost => self.turned_down(slot, GatewayError::AllLost, effects),
            Choice::Nobody => self.turned_down(slot, GatewayError::NoServers, effects),
        }
    }

    pub(super) fn answered(
        &mut self,
        now: Time,
        from: ServerId,
        seq: u64,
        answer: Answer,
        effects: &mut Vec<GatewayEffect>,
    ) {
        let Some(slot) = self.window.find(seq) else {
            // Answered or given up already, if it is no flush.
            if let Some(ticket) = self.flushes.find(seq) {
                self.flush_answered(now, from, ticket, &answer, effects);
            }
            return;
        };
        match answer {
            Answer::Unknown => self.close(slot, Err(GatewayError::Unknown), effects),
            Answer::Reply(_)
            | Answer::Missing
            | Answer::NotStored
            | Answer::Exists
            | Answer::NotNumeric
            | Answer::TooLarge => {
                // Of a write, another try may be in another server's hands: what that one says counts. If the write was done
                // it says the same; and if it does not know of it, it may be about to do it.
                if self.slots.get(slot).is_get() || self.is_asked(slot, from) {
                    self.close(slot, Ok(answer), effects);
                }
            }
            // What an earlier try was told is of no use: it is being tried elsewhere, or again.
            Answer::WrongSpace { .. } | Answer::Wait | Answer::Refused { .. }
                if !self.is_asked(slot, from) => {}
            Answer::WrongSpace { newest } => self.wrong_space(now, slot, from, newest, effects),
            Answer::Wait => self.pause(now, slot),
            Answer::Refused { reason } => self.refused(now, slot, reason, effects),
        }
    }

    /// A try took as long as one may.
    pub(super) fn try_over(&mut self, now: Time, slot: u32, effects: &mut Vec<GatewayEffect>) {
        if !self.failed(now, slot, effects) {
            return;
        }
        let call = self.slots.get_mut(slot);
        match call.stands {
            Stands::Asked(_) if call.is_get() => {
                call.next_reader();
                self.send(now, slot, effects);
            }
            // The connection lives, so the server has it, and another copy would not reach it any sooner.
            Stands::Asked(_) => self.begin_try(now, slot),
            Stands::Held | Stands::Paused | Stands::Unplaced => self.begin_try(now, slot),
        }
    }

    /// Counts a failed try. False: it was the last one, and the call is closed.
    pub(super) fn failed(&mut self, now: Time, slot: u32, effects: &mut Vec<GatewayEffect>) -> bool {
        let above = self.space_number();
        self.managers.error(now, above, effects);
        let call = self.slots.get_mut(slot);
        call.failures += 1;
        let goes_on = call.failures <= call.failures_max(&self.settings);
        if !goes_on {
            let error = call.exhausted();
            self.close(slot, Err(error), effects);
        }
        goes_on
    }

    /// Nobody will execute it now, for that reason. But a try that nobody answered may have been executed, or may be yet:
    /// then nobody knows.
    fn turned_down(&mut self, slot: u32, error: GatewayError, effects: &mut Vec<GatewayEffect>) {
        let error = if self.slots.get(slot).adrift { GatewayError::Unknown } else { error };
        self.close(slot, Err(error), effects);
    }

    /// The last one taken may exceed the bytes: a value larger than a worker's share would wait for a moment without calls.
    fn is_busy(&self) -> bool {
        let places = self.id().is_some() && self.route.is_some();
        self.slots.len() >= self.limits.calls
            || self.window.span() >= self.limits.span
            || (!places && self.slots.waiting(Wait::Place) >= UNPLACED_MAX)
            || (self.bytes > 0 && self.bytes >= self.limits.bytes)
    }

    fn is_asked(&self, slot: u32, server: ServerId) -> bool {
        match self.slots.get(slot).stands {
            Stands::Asked(index) => self.space().is_some_and(|space| space.server(index) == server),
            Stands::Held | Stands::Paused | Stands::Unplaced => false,
        }
    }

    fn begin_try(&mut self, now: Time, slot: u32) {
        self.slots.wait(slot, Wait::Try, now.plus_micros(self.settings.try_micros));
    }

    /// Nothing happened; again in a moment, and a get elsewhere.
    fn pause(&mut self, now: Time, slot: u32) {
        let call = self.slots.get_mut(slot);
        let step = usize::from(call.pauses).min(PAUSES_MICROS.len() - 1);
        call.pauses = call.pauses.saturating_add(1);
        call.next_reader();
        call.stands = Stands::Paused;
        self.slots.wait(slot, Wait::Pause(step as u8), now.plus_micros(PAUSES_MICROS[step]));
    }

    fn wrong_space(
        &mut self,
        now: Time,
        slot: u32,
        from: ServerId,
        newest: SpaceNumber,
        effects: &mut Vec<GatewayEffect>,
    ) {
        let ours = self.space_number();
        let call = self.slots.get_mut(slot);
        if newest >= call.last_space {
            // It may have ordered the write before it gave the key away: the next primary knows, if there is one.
            call.lost_sight();
        }
        if newest > ours {
            // It should have come before this answer. When it does come, everything at rest goes on.
            if self.managers.may_renew(now) {
                effects.push(GatewayEffect::Server(from, Message::WantSpace { above: ours }));
            }
            self.pause(now, slot);
        } else if self.slots.get(slot).last_space < ours {
            self.send(now, slot, effects);
        } else if newest < ours || self.failed(now, slot, effects) {
            // The server asks for our space now; or it disagrees with us about the same one.
            self.pause(now, slot);
        }
    }

    fn refused(&mut self, now: Time, slot: u32, reason: Refusal, effects: &mut Vec<GatewayEffect>) {
        let call = self.slots.get_mut(slot);
        match reason {
            Refusal::GatewayExpired => {
                // The only copy there was: it was not executed.
                if call.sends == 1 {
                    call.sends = 0;
                }
                self.expired(now, effects);
            }
            Refusal::Damaged if call.is_get() => {
                call.refusal = Some(reason);
                let all_asked = (call.failures as usize + 1).is_multiple_of(COPIES);
                if !self.failed(now, slot, effects) {
                    return;
                }
                if all_asked {
                    return self.pause(now, slot);
                }
                self.slots.get_mut(slot).next_reader();
                self.send(now, slot, effects);
            }
            Refusal::Answered => self.close(slot, Err(GatewayError::Unknown), effects),
            Refusal::Full | Refusal::FewCopies | Refusal::Damaged | Refusal::KeyTooLong => {
                self.turned_down(slot, GatewayError::Refused(reason), effects);
            }
        }
    }
}

impl Call {
    fn next_try(&mut self, gateway: GatewayId, space: SpaceNumber, lowest_open: u64, early: bool) -> Request {
        if self.sends == 0 {
            self.first_space = space;
        }
        self.sends = self.sends.saturating_add(1);
        self.last_space = space;
        Request {
            space,
            first_space: self.first_space,
            id: RequestId { gateway, seq: self.seq },
            lowest_open,
            hash: self.hash,
            key: self.key.clone(),
            operation: self.operation.clone(),
            early,
        }
    }
}

/// What one gateway may hold of what its process may hold.
pub(super) struct Limits {
    calls: usize,
    bytes: usize,
    span: usize,
}

impl Limits {
    /// An even share: clients are spread evenly over the gateways of a process.
    pub fn shared(workers: usize) -> Limits {
        let share = |limit: usize| (limit / workers.max(1)).max(1);
        Limits { calls: share(IN_FLIGHT_MAX), bytes: share(IN_FLIGHT_BYTES_MAX), span: share(SPAN_MAX) }
    }
}

/// Calls of a process under way. Beyond it we refuse, so that slow servers cannot eat the memory; 4096 connections can have 16 each.
const IN_FLIGHT_MAX: usize = 65_536;

/// Bytes of keys and values under way; one call is let in whatever its size.
const IN_FLIGHT_BYTES_MAX: usize = 256 << 20;

/// Calls that wait for an id or the first space. A gateway that has neither is of no use for long.
const UNPLACED_MAX: usize = 1024;

/// Seqs from the lowest open one to the last, at 4 bytes each. One call that is open for the default of 30 s holds
/// this at 280 thousand calls a second.
const SPAN_MAX: usize = 1 << 23;

/// Where the turns of spread reads begin again: a multiple of any number of readers.
const TURNS: u64 = 6;
const _: () = assert!(COPIES == 3, "1, 2 and 3 divide the turns");
