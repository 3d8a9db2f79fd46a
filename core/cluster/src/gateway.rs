//! [`Gateway`]: turns an application's calls into requests to the servers that own the keys, and sees each through
//! to one answer.

mod call;
mod calls;
mod flush;
mod managers;
mod route;
mod slots;
mod spaces;
mod window;

use crate::{Answer, GatewayEffect, GatewayError, GatewayId, GatewayInput, GatewayNote, GatewaySettings};
use crate::{Message, ServerId, Space, SpaceNumber};
use call::{Call, Stands};
use calls::Limits;
use flush::Flushes;
use kumo_paxos::{CellId, Time};
use managers::Managers;
use route::Route;
use slots::{PAUSES_MICROS, Slots, Wait};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use window::Window;

/// A gateway without IO, or a native client, which is one without a memcached port.
///
/// Every call gets the next seq and keeps it through all tries. **A write is in the hands of one server at a time**:
/// it is sent again only when the try before was answered, or its connection is gone. So an answer that wrote
/// nothing (`NotStored`, `Exists`, ...), which no other owner hears of, is the last word: no other try can be
/// executed after it. A get changes nothing, and goes on to the next reader whenever one is slow or away.
///
/// A call that was answered or given up is closed, and `lowest_open` passes it. A write that was given up may still
/// be on its way. Whether a server that gets it late has heard of the newer `lowest_open` or not, it is executed once at
/// most: the one that remembers its id answers from memory, and the one that forgot the id did so because it
/// heard that `lowest_open`, and refuses. That is what its caller was told: the outcome is unknown.
pub struct Gateway {
    settings: GatewaySettings,
    managers: Managers,
    /// The cell that this gateway belongs to, once known.
    cluster: Option<CellId>,
    route: Option<Route>,
    /// The servers it keeps a link with, and whether there is one.
    links: BTreeMap<ServerId, bool>,
    slots: Slots,
    window: Window,
    limits: Limits,
    /// Of all open calls.
    bytes: usize,
    /// Gets so far, to spread them.
    gets: u64,
    flushes: Flushes,
}

/// Who says something.
#[derive(Clone, Copy)]
enum Speaker {
    Manager(SocketAddr),
    Server(ServerId),
}

impl Gateway {
    pub fn new(settings: GatewaySettings, now: Time) -> Gateway {
        let settings = GatewaySettings { try_micros: settings.try_micros.max(TRY_MICROS_MIN), ..settings };
        Gateway {
            managers: Managers::new(settings.nonce, settings.keepalive_micros, settings.renew_threshold, now),
            cluster: settings.cluster,
            limits: Limits::shared(settings.workers),
            settings,
            route: None,
            links: BTreeMap::new(),
            slots: Slots::new(),
            window: Window::new(),
            bytes: 0,
            gets: 0,
            flushes: Flushes::default(),
        }
    }

    /// All change happens here.
    pub fn step(&mut self, now: Time, input: GatewayInput, effects: &mut Vec<GatewayEffect>) {
        match input {
            GatewayInput::Server(server, message) => {
                self.said(now, Speaker::Server(server), message, effects)
            }
            GatewayInput::Call { ticket, hash, key, operation } => {
                self.call(now, Call::new(now, ticket, hash, key, operation), effects);
            }
            GatewayInput::Timeout => self.timeout(now, effects),
            GatewayInput::ManagerUp(manager) => {
                let above = self.space_number();
                self.managers.up(now, manager, above, effects);
            }
            GatewayInput::ManagerDown(manager) => self.managers.down(manager),
            GatewayInput::Manager(manager, message) => {
                self.said(now, Speaker::Manager(manager), message, effects);
            }
            GatewayInput::ServerUp(server) => self.server_up(now, server, effects),
            GatewayInput::ServerDown(server) => self.server_down(now, server, effects),
            GatewayInput::Flush { ticket, prefix } => self.flush(now, ticket, prefix, effects),
        }
        debug_assert!(self.slots.len() == 0 || self.deadline().is_some());
    }

    /// When to call `step` with [`GatewayInput::Timeout`] at the latest.
    pub fn deadline(&self) -> Option<Time> {
        let age = self.slots.oldest().map(|slot| self.end_of(slot));
        let waits = self.slots.firsts().map(|slot| self.slots.get(slot).until);
        waits.chain(age).chain(self.managers.deadline()).chain(self.flushes.deadline()).min()
    }

    /// Its id, while it has one.
    pub fn id(&self) -> Option<GatewayId> {
        self.managers.id
    }

    /// The space it has adopted.
    pub fn space(&self) -> Option<&Space> {
        self.route.as_ref().map(|route| &route.space)
    }

    /// Calls that have no answer yet.
    pub fn in_flight(&self) -> usize {
        self.slots.len()
    }

    fn space_number(&self) -> SpaceNumber {
        self.space().map_or(SpaceNumber(0), |space| space.number)
    }

    fn said(&mut self, now: Time, from: Speaker, message: Message, effects: &mut Vec<GatewayEffect>) {
        match (message, from) {
            (Message::Answer { seq, answer }, Speaker::Server(server)) => {
                self.answered(now, server, seq, answer, effects);
            }
            (Message::Flushed { space, seq }, Speaker::Server(server)) => {
                self.flush_done(server, space, seq, effects);
            }
            (Message::NewSpace { space }, _) => self.new_space(now, from, *space, effects),
            (Message::WantSpace { above }, _) => self.want_space(from, above, effects),
            // One of another cluster's cell is of no use in this one, where somebody else may have it.
            (Message::Registered { nonce, gateway, cluster }, Speaker::Manager(_))
                if self.cluster.is_none_or(|ours| ours == cluster) =>
            {
                self.registered(now, nonce, gateway, cluster, effects);
            }
            // Those of another cell must not take the place of this one's; and one without a cell knows of nobody.
            (Message::Managers { cluster, managers, master: _ }, Speaker::Manager(_))
                if !managers.is_empty() && self.cluster.is_none_or(|ours| ours == cluster) =>
            {
                self.managers.listed(managers, effects);
            }
            (Message::Unwelcome { reason }, Speaker::Manager(manager)) => {
                self.unwelcome(manager, &reason, effects);
            }
            // Of no meaning to a gateway, or not from this side.
            (
                Message::Answer { .. }
                | Message::Registered { .. }
                | Message::Managers { .. }
                | Message::Unwelcome { .. }
                | Message::Request(_)
                | Message::Replicate { .. }
                | Message::Replicated { .. }
                | Message::ReplicaFull { .. }
                | Message::Watermark { .. }
                | Message::Confirm { .. }
                | Message::Confirmed { .. }
                | Message::AskPrimary { .. }
                | Message::PrimarySays { .. }
                | Message::Settle { .. }
                | Message::Settled { .. }
                | Message::CopyDigest { .. }
                | Message::CopySame { .. }
                | Message::CopyDiffers { .. }
                | Message::CopyRecords { .. }
                | Message::CopyStored { .. }
                | Message::CopyLater { .. }
                | Message::CopyHeads { .. }
                | Message::CopyNarrow { .. }
                | Message::CopyIds { .. }
                | Message::CopyIdsStored { .. }
                | Message::Alive(_)
                | Message::Lease { .. }
                | Message::Register { .. }
                | Message::GatewayAlive { .. }
                | Message::Backup { .. }
                | Message::Recruit(_)
                | Message::Probe { .. }
                | Message::Probed { .. }
                | Message::Flush { .. }
                | Message::Flushed { .. }
                | Message::BackedUp { .. },
                _,
            ) => {}
        }
    }

    fn timeout(&mut self, now: Time, effects: &mut Vec<GatewayEffect>) {
        while let Some(slot) = self.slots.oldest().filter(|&slot| self.end_of(slot) <= now) {
            let error = self.slots.get(slot).timed_out();
            self.close(slot, Err(error), effects);
        }
        while let Some(slot) = self.over(now, Wait::Try) {
            self.try_over(now, slot, effects);
        }
        for step in 0..PAUSES_MICROS.len() as u8 {
            while let Some(slot) = self.over(now, Wait::Pause(step)) {
                self.send(now, slot, effects);
            }
        }
        let space = self.space_number();
        self.managers.timeout(now, space, effects);
        self.flushes_timeout(now, effects);
    }

    /// The first of those that have waited for this long enough.
    fn over(&self, now: Time, wait: Wait) -> Option<u32> {
        self.slots.first(wait).filter(|&slot| self.slots.get(slot).until <= now)
    }

    fn end_of(&self, slot: u32) -> Time {
        self.slots.get(slot).came.plus_micros(self.settings.request_micros)
    }

    /// The one answer of a call.
    fn close(&mut self, slot: u32, result: Result<Answer, GatewayError>, effects: &mut Vec<GatewayEffect>) {
        let call = self.slots.remove(slot);
        self.bytes -= call.bytes();
        if call.stands != Stands::Unplaced {
            self.window.close(call.seq);
        }
        let error = result.as_ref().err().copied();
        effects.push(GatewayEffect::Done { ticket: call.ticket, result });
        if let Some(error) = error {
            let Call { key, operation, .. } = call;
            effects.push(GatewayEffect::Note(GatewayNote::Failed { key, operation, error }));
        }
    }
}

/// A try takes at least this long, whatever is set: shorter ones would only keep the gateway busy.
const TRY_MICROS_MIN: u64 = 1_000;
