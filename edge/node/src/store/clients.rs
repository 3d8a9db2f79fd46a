//! [`Clients`]: the memcached connections of a gateway's worker. Requests become calls of the core; answers go back in the
//! order of the requests, whatever order they came in.

mod asking;
mod table;
mod waiting;

use super::budget::{Budget, Grant, Round, Verdict};
use super::client::Client;
use super::gateway::Shared;
use super::request::{Entry, Part};
use super::room::Room;
use crate::hub::Hub;
use crate::metrics::{Stopwatch, WorkerMetrics};
use bytes::Bytes;
use kumo_cluster::{Answer, GatewayError, GatewayInput, Operation, Reply};
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use kumo_wire::memcache::Decoder;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use table::Table;
use tracing::warn;

/// All memcached clients of a worker.
pub struct Clients {
    shared: Arc<Shared>,
    clients: Table,
    /// Of calls under way, by ticket.
    tickets: Vec<Ticket>,
    free: Vec<u32>,
    /// When the flush that was put off is due, and its number. Of several the last counts, as with memcached.
    delayed: Option<(Time, u64)>,
    /// Flushes that were put off, whose askers are told so at the next turn.
    told_early: Vec<u64>,
    /// Clients with calls that wait: until they have read their answers, or until there is memory for these. First the
    /// one whose turn is next.
    stalled: VecDeque<ConnectionId>,
    /// One of them waits for memory: the others have their turn after it, and newcomers after them.
    crowded: bool,
    /// For the answers under way.
    budget: Budget,
    /// For the requests.
    room: Room,
    /// Bytes of the answers on the spot in this turn.
    said: usize,
    /// Bytes of the surprises that are held since this turn began; the hub does not count them yet.
    surprises: usize,
    metrics: Arc<WorkerMetrics>,
    stopwatch: Stopwatch,
    /// Calls of the request that is being read; empty between two of them.
    parts: Vec<Part>,
}

/// Whose call it is.
#[derive(Default)]
pub struct Ticket {
    client: Option<ConnectionId>,
    /// The request, counted on its connection, and which of its keys.
    entry: u64,
    part: u32,
    key: Bytes,
    writes: bool,
    /// Which operation, as the metrics count it; none: a flush, which does not count among the client's calls.
    operation: Option<usize>,
    came: Time,
    /// What its answer was taken for, and what it writes.
    grant: Grant,
    written_bytes: usize,
    /// How large its answer was when it came and could not be held; 0: it did not come yet.
    pub let_go_bytes: usize,
}

impl Ticket {
    /// The order in which a client is told of its calls.
    pub fn place(&self) -> (u64, u32) {
        (self.entry, self.part)
    }
}

impl Clients {
    pub fn new(shared: Arc<Shared>, metrics: Arc<WorkerMetrics>) -> Clients {
        Clients {
            clients: Table::default(),
            tickets: Vec::new(),
            free: Vec::new(),
            delayed: None,
            told_early: Vec::new(),
            stalled: VecDeque::new(),
            crowded: false,
            budget: Budget::new(UNKNOWN_BYTES_MAX / shared.config.workers),
            room: Room::new(SENT_BYTES_MAX / shared.config.workers),
            said: 0,
            surprises: 0,
            shared,
            metrics,
            stopwatch: Stopwatch::new(),
            parts: Vec::new(),
        }
    }

    /// Nobody is left to be answered.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The answers of this turn are written.
    pub fn written(&mut self) {
        self.stopwatch.written(&self.metrics.latencies);
    }

    pub fn up(&mut self, id: ConnectionId, inputs: &mut Vec<GatewayInput>) {
        if let Some(before) = self.clients.at_place_of(id) {
            // It could not be written to, so the hub has used its place again before it tells that this one is gone.
            self.down(before, inputs);
        }
        let decoder = Decoder::new(self.shared.config.value_bytes_max);
        let guarded = self.shared.config.credentials.is_some();
        let client = Client::new(if guarded { decoder.guarded() } else { decoder });
        self.clients.insert(id, client);
    }

    /// Calls under way go on; nobody reads their answers. What it wrote before it went is written.
    pub fn down(&mut self, id: ConnectionId, inputs: &mut Vec<GatewayInput>) {
        let Some(mut client) = self.clients.remove(id) else { return };
        self.room.leave(id, &client.share);
        self.budget.doubt(&mut client.doubt, 0);
        if client.stalled {
            self.stalled.retain(|stalled| *stalled != id);
        }
        for (ticket, part) in client.uncalled.into_iter().filter(|(ticket, _)| ticket.writes) {
            self.call(ticket, part, inputs);
        }
    }

    /// It will ask nothing more; what it asked is answered, then it is closed.
    pub fn ended(&mut self, id: ConnectionId, hub: &mut Hub) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.ending = true;
        self.write(id, hub);
    }

    /// As [`ended`](Clients::ended), of everybody.
    pub fn end_all(&mut self, hub: &mut Hub) {
        let all: Vec<ConnectionId> = self.clients.iter().map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.ended(id, hub));
    }

    pub fn deadline(&self) -> Option<Time> {
        // Who waits for memory may be spared some once the calls that hold it are slow.
        let spared = self.crowded.then(|| self.budget.next_period());
        [self.delayed.map(|(at, _)| at), spared, self.room.next_look()].into_iter().flatten().min()
    }

    /// All sockets had their turn. Answers flushes that were put off, and begins the one that is due.
    pub fn timeout(&mut self, now: Time, hub: &mut Hub, inputs: &mut Vec<GatewayInput>) {
        self.budget.advance(now);
        (self.said, self.surprises) = (0, 0);
        self.let_in(now, hub, inputs);
        self.issue_stalled(hub, inputs);
        // Behind the one that is answered the next may have come to its turn.
        while let Some(ticket) = self.told_early.pop() {
            self.done(now, ticket, Ok(Answer::Reply(Reply::Done { clock: 0 })), hub, inputs);
        }
        if let Some((_, number)) = self.delayed.take_if(|(at, _)| *at <= now)
            && number == self.shared.flushes.load(Ordering::Acquire)
        {
            let ticket = self.ticket(Ticket::default());
            inputs.push(self.flush(ticket));
        }
    }

    /// Somebody who waited can go on: what it was sent has been taken since, or there is memory; or it can be answered.
    pub fn has_more(&self, hub: &Hub) -> bool {
        if !self.told_early.is_empty() || self.room.has_turns() {
            return true;
        }
        let mut round = Round::new(false);
        let waiting = self.stalled.iter().filter_map(|id| Some((id, self.clients.get(*id)?)));
        let mut ready = waiting.filter(|(id, client)| has_room(**id, client, hub));
        ready.any(|(_, client)| self.budget.judge(client, &mut round) != Verdict::Waits)
    }

    /// Calls what may be under way now: no more than the client's window, nothing while it does not read, and of all
    /// clients no more than there is memory for.
    fn issue(&mut self, id: ConnectionId, hub: &Hub, inputs: &mut Vec<GatewayInput>) {
        if self.clients.get(id).is_none_or(|client| client.uncalled.is_empty()) {
            return;
        }
        let mut round = Round::new(self.crowded);
        while self.issue_one(id, &mut round, Verdict::Fits, hub, inputs) {}
        self.crowded = round.crowded;
        let Some(client) = self.clients.get_mut(id) else { return };
        if !client.uncalled.is_empty() && !std::mem::replace(&mut client.stalled, true) {
            self.stalled.push_back(id);
        }
    }

    /// Those that wait have their turns, a few calls each, until nobody can go on. Who waits for memory keeps its
    /// place; those behind it do what needs none.
    fn issue_stalled(&mut self, hub: &Hub, inputs: &mut Vec<GatewayInput>) {
        let mut round = Round::new(false);
        let mut in_vain = 0;
        while in_vain < self.stalled.len() && !round.crowded {
            let Some(id) = self.stalled.pop_front() else { break };
            let calls = self.turn(id, &mut round, hub, inputs);
            in_vain = if calls > 0 { 0 } else { in_vain + 1 };
            if round.crowded {
                self.stalled.push_front(id);
            } else if self.stays_stalled(id) {
                self.stalled.push_back(id);
            }
        }
        self.crowded = round.crowded;
        if !round.crowded {
            return;
        }
        let mut round = Round::new(true);
        let mut spared = Vec::new();
        for _ in 0..self.stalled.len() {
            let Some(id) = self.stalled.pop_front() else { break };
            self.turn(id, &mut round, hub, inputs);
            let took = self.issue_one(id, &mut round, Verdict::Spared, hub, inputs);
            match self.stays_stalled(id) {
                true if took => spared.push(id),
                true => self.stalled.push_back(id),
                false => {}
            }
        }
        self.stalled.extend(spared);
    }

    /// A turn of one client. Returns how many calls it took.
    fn turn(
        &mut self,
        id: ConnectionId,
        round: &mut Round,
        hub: &Hub,
        inputs: &mut Vec<GatewayInput>,
    ) -> usize {
        let enough = self.budget.bytes + BYTES_PER_TURN;
        (0..CALLS_PER_TURN)
            .take_while(|_| {
                self.budget.bytes < enough && self.issue_one(id, round, Verdict::Fits, hub, inputs)
            })
            .count()
    }

    fn stays_stalled(&mut self, id: ConnectionId) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return false };
        client.stalled = !client.uncalled.is_empty();
        client.stalled
    }

    /// A client's next call, if that is what the budget says of it. False: it has none, or none may begin.
    fn issue_one(
        &mut self,
        id: ConnectionId,
        round: &mut Round,
        wanted: Verdict,
        hub: &Hub,
        inputs: &mut Vec<GatewayInput>,
    ) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return false };
        if client.uncalled.is_empty() || !has_room(id, client, hub) {
            return false;
        }
        let verdict = self.budget.judge(client, round);
        if verdict != wanted && (verdict, wanted) != (Verdict::Light, Verdict::Fits) {
            return false;
        }
        let bytes = client.next_bytes();
        let Some((mut ticket, part)) = client.uncalled.pop_front() else { return false };
        client.called(bytes);
        ticket.grant = self.budget.take(bytes, verdict);
        self.call(ticket, part, inputs);
        true
    }

    /// A call is answered; its request, and those behind it, may be ready to be told.
    pub fn done(
        &mut self,
        now: Time,
        ticket: u64,
        result: Result<Answer, GatewayError>,
        hub: &mut Hub,
        inputs: &mut Vec<GatewayInput>,
    ) {
        let Some(ticket_here) = self.tickets.get_mut(ticket as usize) else { return };
        let taken = std::mem::take(ticket_here);
        self.free.push(ticket as u32);
        self.budget.give_back(taken.grant);
        if let Ok(Answer::Reply(Reply::Value { data, .. })) = &result
            && taken.grant.is_surprised(data.len())
            && !self.holds(&taken, data.len(), hub)
        {
            self.stopwatch.forget((0, ticket));
            return self.ask_again(taken, data.len(), hub, inputs);
        }
        self.stopwatch.answered((0, ticket));
        let Ticket { client: Some(id), entry, part, key, writes, operation, written_bytes, grant, .. } =
            taken
        else {
            if taken.operation.is_none() && !matches!(result, Ok(Answer::Reply(_))) {
                warn!(?result, "a flush that nobody waits for was not done everywhere");
            }
            return;
        };
        self.metrics.answered(operation, &result);
        let Some(client) = self.clients.get_mut(id) else { return };
        match operation {
            Some(_) => client.returned(grant.bytes),
            None => client.flushing = false,
        }
        client.end(&key, writes);
        let bytes = match &result {
            Ok(Answer::Reply(Reply::Value { data, .. })) => data.len(),
            _no_value => written_bytes,
        };
        client.learn(bytes);
        let doubtful = client.doubtful_bytes();
        self.budget.doubt(&mut client.doubt, doubtful);
        let Some(at) = entry.checked_sub(client.answered) else { return };
        let Some(entry) = client.entries.get_mut(at as usize) else { return };
        // A failure drops what came behind it.
        client.unwritten -= entry.held();
        entry.answer(part as usize, result, at == 0);
        client.unwritten += entry.held();
        match at {
            0 => self.write(id, hub),
            _behind => count(id, client, &mut self.room, hub),
        }
        self.issue(id, hub, inputs);
        self.resume(now, id, hub, inputs);
    }

    /// Whether a value may stay that is a surprise: there is memory to hold it until its client has read it, or it is not
    /// held at all, or cannot be asked for again.
    fn holds(&mut self, ticket: &Ticket, bytes: usize, hub: &Hub) -> bool {
        let Some((id, client)) = ticket.client.and_then(|id| Some((id, self.clients.get(id)?))) else {
            return true;
        };
        let entry = ticket.entry.checked_sub(client.answered).and_then(|at| client.entries.get(at as usize));
        if ticket.writes || !entry.is_some_and(|entry| entry.tells(ticket.part as usize)) {
            return true;
        }
        let has_nothing = hub.backlog(id) == 0 && client.unwritten == 0;
        let held = hub.left_of_all() + self.room.bytes() + self.surprises;
        let holds = has_nothing || self.budget.holds(bytes, held);
        self.surprises += if holds { bytes } else { 0 };
        holds
    }

    /// A value came that cannot be held. Its request waits as if it had not been called, and is taken for as much now.
    fn ask_again(&mut self, mut ticket: Ticket, bytes: usize, hub: &Hub, inputs: &mut Vec<GatewayInput>) {
        let Some((id, client)) = ticket.client.and_then(|id| Some((id, self.clients.get_mut(id)?))) else {
            return;
        };
        client.returned(ticket.grant.bytes);
        client.let_go(bytes);
        let doubtful = client.doubtful_bytes();
        self.budget.doubt(&mut client.doubt, doubtful);
        ticket.let_go_bytes = bytes;
        let part = Part { key: ticket.key.clone(), operation: Operation::Get };
        client.put_back(ticket, part);
        self.issue(id, hub, inputs);
    }

    /// Writes the answers that are whole, from the first on.
    fn write(&mut self, id: ConnectionId, hub: &mut Hub) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.entries.front().is_some_and(Entry::has_answers) {
            let Some(outbox) = hub.outbox(id) else { return };
            while let Some(entry) = client.entries.front_mut() {
                // What is told may be shorter than the values: they count as long as they are held, not until as much
                // is written.
                client.unwritten -= entry.held();
                entry.write_some(outbox);
                if !entry.is_ready() {
                    client.unwritten += entry.held();
                    break;
                }
                let Some(entry) = client.pop() else { break };
                entry.write(outbox);
            }
        }
        if client.ending && client.entries.is_empty() {
            self.room.leave(id, &client.share);
            self.clients.remove(id);
            hub.leave(id);
            return hub.short(self.room.is_short());
        }
        count(id, client, &mut self.room, hub);
    }
}

/// What it holds has changed.
fn count(id: ConnectionId, client: &mut Client, room: &mut Room, hub: &mut Hub) {
    let held = client.sent(hub.inbox(id).map_or(0, |inbox| inbox.len()));
    room.count(&mut client.share, held);
    hub.short(room.is_short());
}

/// A call of the client's may be under way.
fn has_room(id: ConnectionId, client: &Client, hub: &Hub) -> bool {
    let unwritten_max = if hub.is_short() { 0 } else { UNWRITTEN_BYTES_MAX };
    // What was let go and stands before all that is held must come, for the rest to go.
    let holds_much = client.unwritten > unwritten_max && !client.asks_first();
    if !client.has_room() || hub.backlog(id) > BACKLOG_BYTES_MAX || holds_much {
        return false;
    }
    // Who has not read all may not read what is on its way either.
    let reads = hub.left(id) == 0;
    match hub.is_crowded() {
        true => reads && !client.awaits_values(),
        false => reads || hub.backlog(id) + client.awaited_bytes() <= BACKLOG_BYTES_MAX,
    }
}

/// Keys of one line. Each costs some hundred bytes until it is answered; clients that fetch many send several lines.
pub const KEYS_MAX: usize = 16_384;

/// Answers under way over a whole gateway, whose sizes nobody knows before they come: each is taken for what its client
/// read and wrote lately. Without it, clients that ask for large values at once fill the memory. As much again may be held
/// of those that turned out far larger, beside one of each client.
const UNKNOWN_BYTES_MAX: usize = 48 * 1024 * 1024;

/// What clients of a whole gateway have sent and were not answered, beyond what each has free. Half of what the cores let
/// be under way, so that what there is room for is not refused there.
const SENT_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Calls of one client before the next one has its turn, and what their answers may be taken for; the last may exceed it.
const CALLS_PER_TURN: usize = 16;
const BYTES_PER_TURN: usize = 256 * 1024;

/// Answers that a client has not read yet beyond which nothing more is fetched for it.
const BACKLOG_BYTES_MAX: usize = 1024 * 1024;

/// The same over all clients of a gateway, divided among its workers. Beyond it those that read have one value at a time
/// under way, those that do not get nothing, and of these whoever has taken nothing for so many seconds is cut off. A
/// kernel tells of what was taken in large pieces only: one that reads slowly takes some in that time.
pub const LEFT_BYTES_MAX: usize = 256 * 1024 * 1024;
pub const LEFT_SECONDS_MAX: u32 = 120;

/// Values that came before those that a client asked for earlier, beyond which nothing more is fetched for it.
const UNWRITTEN_BYTES_MAX: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests;
