//! [`Clients`]: the memcached connections of a gateway's worker. Requests become calls of the core; answers go back in the
//! order of the requests, whatever order they came in.

use super::client::Client;
use super::gateway::Shared;
use super::request::{Entry, Part};
use super::stats::PROTOCOL_VERSION;
use crate::clock;
use crate::hub::Hub;
use crate::metrics::{Stopwatch, WorkerMetrics};
use bytes::{BufMut, Bytes, BytesMut};
use kumo_cluster::{Answer, GatewayError, GatewayInput, Operation, Reply, key_hash};
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use kumo_wire::memcache::{Bad, Command, Decoded, Decoder, Failure, Outcome, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All memcached clients of a worker.
pub struct Clients {
    shared: Arc<Shared>,
    clients: BTreeMap<ConnectionId, Client>,
    /// Of calls under way, by ticket.
    tickets: Vec<Ticket>,
    free: Vec<u32>,
    /// When the earliest flush that was put off is due. One is as good as many: it deletes everything.
    delayed: Option<Time>,
    told_early: Vec<u64>,
    /// Clients with calls that wait until they have read their answers.
    stalled: BTreeSet<ConnectionId>,
    metrics: Arc<WorkerMetrics>,
    stopwatch: Stopwatch,
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
}

impl Clients {
    pub fn new(shared: Arc<Shared>, metrics: Arc<WorkerMetrics>) -> Clients {
        Clients {
            shared,
            clients: BTreeMap::new(),
            tickets: Vec::new(),
            free: Vec::new(),
            delayed: None,
            told_early: Vec::new(),
            stalled: BTreeSet::new(),
            metrics,
            stopwatch: Stopwatch::new(),
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

    pub fn up(&mut self, id: ConnectionId) {
        let decoder = Decoder::new(self.shared.config.value_bytes_max);
        let guarded = self.shared.config.credentials.is_some();
        let client = Client::new(if guarded { decoder.guarded() } else { decoder });
        self.clients.insert(id, client);
    }

    /// Calls under way go on; nobody reads their answers. What it wrote before it went is written.
    pub fn down(&mut self, id: ConnectionId, inputs: &mut Vec<GatewayInput>) {
        self.stalled.remove(&id);
        let Some(client) = self.clients.remove(&id) else { return };
        for (ticket, part) in client.uncalled.into_iter().filter(|(ticket, _)| ticket.writes) {
            self.call(ticket, part, inputs);
        }
    }

    /// It will ask nothing more; what it asked is answered, then it is closed.
    pub fn ended(&mut self, id: ConnectionId, hub: &mut Hub) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.ending = true;
        self.write(id, hub);
    }

    /// As [`ended`](Clients::ended), of everybody.
    pub fn end_all(&mut self, hub: &mut Hub) {
        let all: Vec<ConnectionId> = self.clients.keys().copied().collect();
        all.into_iter().for_each(|id| self.ended(id, hub));
    }

    pub fn deadline(&self) -> Option<Time> {
        self.delayed
    }

    /// Answers flushes that were put off, and begins the one that is due.
    pub fn timeout(&mut self, now: Time, hub: &mut Hub, inputs: &mut Vec<GatewayInput>) {
        for id in self.stalled.clone() {
            self.issue(id, hub, inputs);
        }
        for ticket in std::mem::take(&mut self.told_early) {
            self.done(now, ticket, Ok(Answer::Reply(Reply::Done { clock: 0 })), hub, inputs);
        }
        if self.delayed.is_some_and(|at| at <= now) {
            self.delayed = None;
            let ticket = self.ticket(Ticket::default());
            inputs.push(self.flush(ticket));
        }
    }

    /// Takes all whole requests that have arrived.
    pub fn read(&mut self, now: Time, id: ConnectionId, hub: &mut Hub, inputs: &mut Vec<GatewayInput>) {
        loop {
            let (Some(client), Some(inbox)) = (self.clients.get_mut(&id), hub.inbox(id)) else { return };
            if client.ending {
                // What comes after the end is nobody's; what came before it is still to be answered.
                inbox.clear();
                break;
            }
            if client.entries.len() >= client.window() {
                // It asks faster than it is answered: no more is read until it is. What is answered goes out first; it
                // may be all there is.
                self.issue(id, hub, inputs);
                self.write(id, hub);
                let Some(client) = self.clients.get_mut(&id) else { return };
                if client.entries.len() >= client.window() / 2 {
                    client.paused = true;
                    hub.pause(id, true);
                    return;
                }
                continue;
            }
            let next = match client.held.take() {
                Some(request) => Decoded::Request(request),
                None => client.decoder.next(inbox),
            };
            match next {
                Decoded::More(bytes) => {
                    inbox.reserve(bytes.min(RESERVE_BYTES_MAX));
                    break;
                }
                Decoded::Request(request) if client.must_wait(&request) => {
                    client.held = Some(request);
                    client.paused = true;
                    hub.pause(id, true);
                    break;
                }
                Decoded::Request(request) => self.request(now, id, request, inputs),
                Decoded::Bad(Bad { reply, close }) => {
                    client.ending |= close;
                    client.entries.push_back(Entry::said(reply));
                }
            }
        }
        self.issue(id, hub, inputs);
        self.write(id, hub);
    }

    /// Calls what may be under way now: no more than the client's window, and nothing while it does not read.
    fn issue(&mut self, id: ConnectionId, hub: &Hub, inputs: &mut Vec<GatewayInput>) {
        loop {
            let Some(client) = self.clients.get_mut(&id) else { return };
            let room = client.calls < client.window() && hub.backlog(id) <= BACKLOG_BYTES_MAX;
            let Some((ticket, part)) = client.uncalled.pop_front_if(|_| room) else {
                if client.uncalled.is_empty() {
                    self.stalled.remove(&id);
                } else {
                    self.stalled.insert(id);
                }
                return;
            };
            client.calls += 1;
            self.call(ticket, part, inputs);
        }
    }

    fn request(&mut self, now: Time, id: ConnectionId, request: Request, inputs: &mut Vec<GatewayInput>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let entry = client.answered + client.entries.len() as u64;
        let Request { answer, command } = request;
        match command {
            Command::Quit => {
                client.ending = true;
                client.entries.push_back(Entry::told(answer, &Outcome::Ok));
            }
            Command::Version => {
                client.entries.push_back(Entry::told(answer, &Outcome::Version(PROTOCOL_VERSION)));
            }
            Command::Verbosity | Command::Noop => client.entries.push_back(Entry::told(answer, &Outcome::Ok)),
            Command::Sasl(sasl) => {
                let users = self.shared.config.credentials.as_deref();
                let known =
                    |user: &[u8], password: &[u8]| users.is_some_and(|users| users.has(user, password));
                let outcome = client.decoder.login(&sasl, known);
                self.metrics.logged_in(&sasl, &outcome);
                client.entries.push_back(Entry::told(answer, &outcome));
            }
            Command::FlushAll { .. } if !self.shared.config.allow_flush => {
                let refused = Outcome::Failed(Failure::FlushNotAllowed);
                client.entries.push_back(Entry::told(answer, &refused));
            }
            Command::FlushAll { delay } => {
                self.metrics.flushes.add(1);
                client.entries.push_back(Entry::flush(answer));
                client.flushing = true;
                let ticket = self.ticket(Ticket { client: Some(id), entry, ..Ticket::default() });
                let seconds = clock::wall().0 / 1000;
                let wait = delay.map_or(0, |delay| delay.at(seconds).saturating_sub(seconds));
                self.flush_after(now, ticket, wait, inputs);
            }
            Command::Stats { argument } => {
                let said = self.shared.stats.report(&argument, &answer, now);
                client.entries.push_back(Entry::said(said));
            }
            command @ (Command::Get { .. }
            | Command::Store { .. }
            | Command::Delete { .. }
            | Command::Arithmetic { .. }
            | Command::Touch { .. }
            | Command::Describe { .. }) => {
                let (made, parts) = Entry::of(answer, command);
                client.entries.push_back(made);
                for (number, part) in parts.into_iter().enumerate() {
                    let writes = part.operation != Operation::Get;
                    client.begin(&part.key, writes);
                    let key = part.key.clone();
                    let operation = Some(self.metrics.asked(&part.operation));
                    let number = number as u32;
                    let ticket =
                        Ticket { client: Some(id), entry, part: number, key, writes, operation, came: now };
                    client.uncalled.push_back((ticket, part));
                }
            }
        }
    }

    fn call(&mut self, ticket: Ticket, part: Part, inputs: &mut Vec<GatewayInput>) {
        let (came, operation) = (ticket.came, ticket.operation);
        let number = self.ticket(ticket);
        if let Some(operation) = operation {
            self.stopwatch.came(came, (0, number), operation);
        }
        let key = self.prefixed(part.key);
        let hash = key_hash(&key);
        inputs.push(GatewayInput::Call { ticket: number, hash, key, operation: part.operation });
    }

    fn ticket(&mut self, ticket: Ticket) -> u64 {
        match self.free.pop() {
            Some(number) => {
                self.tickets[number as usize] = ticket;
                u64::from(number)
            }
            None => {
                self.tickets.push(ticket);
                self.tickets.len() as u64 - 1
            }
        }
    }

    /// At once, or when its delay has passed; then the client was answered long ago, as memcached does.
    fn flush_after(&mut self, now: Time, ticket: u64, seconds: u64, inputs: &mut Vec<GatewayInput>) {
        if seconds == 0 {
            return inputs.push(self.flush(ticket));
        }
        self.told_early.push(ticket);
        let at = now.plus_micros(seconds.saturating_mul(1_000_000));
        self.delayed = Some(self.delayed.map_or(at, |delayed| delayed.min(at)));
    }

    /// Of this gateway's keys: what others keep under other prefixes is not its clients' to delete.
    fn flush(&self, ticket: u64) -> GatewayInput {
        let prefix = Bytes::copy_from_slice(&self.shared.config.key_prefix);
        GatewayInput::Flush { ticket, prefix }
    }

    fn prefixed(&self, key: Bytes) -> Bytes {
        let prefix = &self.shared.config.key_prefix;
        if prefix.is_empty() {
            return key;
        }
        let mut whole = BytesMut::with_capacity(prefix.len() + key.len());
        whole.put_slice(prefix);
        whole.put_slice(&key);
        whole.freeze()
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
        self.stopwatch.answered((0, ticket));
        let Ticket { client: Some(id), entry, part, key, writes, operation, came: _ } = taken else { return };
        self.metrics.answered(operation, &result);
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.calls -= usize::from(operation.is_some());
        client.flushing &= operation.is_some();
        client.end(&key, writes);
        let bytes = match &result {
            Ok(Answer::Reply(Reply::Value { data, .. })) => data.len(),
            _no_value => 0,
        };
        client.value_bytes = (client.value_bytes * 3 + bytes) / 4;
        let Some(at) = entry.checked_sub(client.answered) else { return };
        let Some(entry) = client.entries.get_mut(at as usize) else { return };
        entry.answer(part as usize, result);
        let held = client.held.is_some();
        if at == 0 {
            self.write(id, hub);
        }
        self.issue(id, hub, inputs);
        if at == 0 || held {
            self.resume(now, id, hub, inputs);
        }
    }

    /// Writes the answers that are whole, from the first on.
    fn write(&mut self, id: ConnectionId, hub: &mut Hub) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.entries.front().is_some_and(Entry::has_answers) {
            let Some(outbox) = hub.outbox(id) else { return };
            while let Some(entry) = client.entries.front_mut() {
                entry.write_some(outbox);
                if !entry.is_ready() {
                    break;
                }
                let Some(entry) = client.entries.pop_front() else { break };
                client.answered += 1;
                entry.write(outbox);
            }
        }
        if client.ending && client.entries.is_empty() {
            self.clients.remove(&id);
            hub.leave(id);
        }
    }

    fn resume(&mut self, now: Time, id: ConnectionId, hub: &mut Hub, inputs: &mut Vec<GatewayInput>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let waits = client.held.as_ref().is_some_and(|request| client.must_wait(request));
        if client.paused && !waits && client.entries.len() <= client.window() / 2 {
            client.paused = false;
            hub.pause(id, false);
            self.read(now, id, hub, inputs);
        }
    }
}

/// Answers that a client has not read yet beyond which nothing more is fetched for it.
const BACKLOG_BYTES_MAX: usize = 1024 * 1024;

/// Room made at once for a value that is on its way.
const RESERVE_BYTES_MAX: usize = 1 << 20;
