//! How [`Clients`] are read: what each asks becomes calls of the core, or is answered on the spot.

use super::{BACKLOG_BYTES_MAX, Clients, KEYS_MAX, Ticket};
use crate::clock;
use crate::hub::Hub;
use crate::store::budget::Grant;
use crate::store::client::Client;
use crate::store::request::{Entry, Part};
use crate::store::stats::PROTOCOL_VERSION;
use bytes::{BufMut, Bytes, BytesMut};
use kumo_cluster::{GatewayInput, Operation, key_hash};
use kumo_paxos::Time;
use kumo_session::ConnectionId;
use kumo_wire::memcache::{Bad, Command, Decoded, Failure, Outcome, Request};
use std::sync::atomic::Ordering;

impl Clients {
    /// Takes all whole requests that have arrived, as far as the client reads what it is answered.
    pub fn read(&mut self, now: Time, id: ConnectionId, hub: &mut Hub, inputs: &mut Vec<GatewayInput>) {
        self.budget.advance(now);
        let said_max = if self.said < SAID_BYTES_PER_TURN { SAID_BYTES_MAX } else { 1 };
        if let Some(client) = self.clients.get_mut(id).filter(|_| hub.backlog(id) == 0) {
            client.said = 0;
        }
        let mut unread = leaves_much(id, hub);
        loop {
            let (Some(client), Some(inbox)) = (self.clients.get_mut(id), hub.inbox(id)) else { return };
            if client.ending {
                // What comes after the end is nobody's; what came before it is still to be answered.
                inbox.clear();
                break;
            }
            if unread || client.said >= said_max {
                // The rest stays where it is until the client has taken some of its answers.
                hub.fall_behind(id, true);
                self.issue(id, hub, inputs);
                return self.write(id, hub);
            }
            if client.is_full() {
                // It asks faster than it is answered: no more is read until it is. What is answered goes out first; it
                // may be all there is.
                self.issue(id, hub, inputs);
                self.write(id, hub);
                let Some(client) = self.clients.get_mut(id) else { return };
                if !client.may_ask() {
                    pause(id, client, hub);
                    return;
                }
                unread = leaves_much(id, hub);
                continue;
            }
            let next = match client.held.take() {
                Some(request) => Decoded::Request(request),
                None => client.decode(inbox),
            };
            match next {
                Decoded::More(bytes) if self.room.promise(&mut client.share, inbox.len(), bytes) => {
                    inbox.reserve(bytes.min(RESERVE_BYTES_MAX));
                    break;
                }
                Decoded::More(_) => {
                    self.room.wait(id, &mut client.share);
                    pause(id, client, hub);
                    break;
                }
                Decoded::Request(request) if client.must_wait(&request) => {
                    client.held = Some(request);
                    pause(id, client, hub);
                    break;
                }
                Decoded::Request(request) if !self.room.admits(&mut client.share, || calls(&request)) => {
                    client.held = Some(request);
                    self.room.wait(id, &mut client.share);
                    pause(id, client, hub);
                    break;
                }
                Decoded::Request(request) => self.request(now, id, request, inputs),
                Decoded::Bad(Bad { reply, close }) => {
                    client.ending |= close;
                    self.said += client.say(Entry::said(reply));
                }
            }
        }
        hub.fall_behind(id, false);
        self.issue(id, hub, inputs);
        self.write(id, hub);
    }

    pub(super) fn resume(
        &mut self,
        now: Time,
        id: ConnectionId,
        hub: &mut Hub,
        inputs: &mut Vec<GatewayInput>,
    ) {
        let Some(client) = self.clients.get_mut(id).filter(|client| client.paused && client.may_ask()) else {
            return;
        };
        // Who stands in line had nothing to wait for but room.
        let waits = !client.share.waits && client.held.as_ref().is_some_and(|one| client.must_wait(one));
        if !waits && self.room.frees(id, &mut client.share) {
            client.paused = false;
            hub.pause(id, false);
            self.read(now, id, hub, inputs);
        }
    }

    fn request(&mut self, now: Time, id: ConnectionId, request: Request, inputs: &mut Vec<GatewayInput>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let entry = client.answered + client.entries.len() as u64;
        let Request { answer, command } = request;
        match command {
            Command::Quit => {
                client.ending = true;
                self.said += client.say(Entry::told(answer, &Outcome::Ok));
            }
            Command::Version => {
                self.said += client.say(Entry::told(answer, &Outcome::Version(PROTOCOL_VERSION)));
            }
            Command::Verbosity | Command::Noop => {
                self.said += client.say(Entry::told(answer, &Outcome::Ok));
            }
            Command::Sasl(sasl) => {
                let users = self.shared.config.credentials.as_deref();
                let known =
                    |user: &[u8], password: &[u8]| users.is_some_and(|users| users.has(user, password));
                let outcome = client.decoder.login(&sasl, known);
                self.metrics.logged_in(&sasl, &outcome);
                self.said += client.say(Entry::told(answer, &outcome));
            }
            Command::FlushAll { .. } if !self.shared.config.allow_flush => {
                let refused = Outcome::Failed(Failure::FlushNotAllowed);
                self.said += client.say(Entry::told(answer, &refused));
            }
            Command::FlushAll { delay } => {
                self.metrics.flushes.add(1);
                client.push(Entry::flush(answer));
                client.flushing = true;
                let ticket = self.ticket(Ticket { client: Some(id), entry, ..Ticket::default() });
                let seconds = clock::wall().0 / 1000;
                let wait = delay.map_or(0, |delay| delay.at(seconds).saturating_sub(seconds));
                self.flush_after(now, ticket, wait, inputs);
            }
            Command::Stats { argument } => {
                let said = self.shared.stats.report(&argument, &answer, now);
                self.said += client.say(Entry::said(said));
            }
            Command::Get { keys, .. } if keys.iter().nth(KEYS_MAX).is_some() => {
                let text = format!("too many keys in one line, at most {KEYS_MAX}");
                self.said += client.say(Entry::told(answer, &Outcome::Failed(Failure::Client(&text))));
            }
            command @ (Command::Get { .. }
            | Command::Store { .. }
            | Command::Delete { .. }
            | Command::Arithmetic { .. }
            | Command::Touch { .. }
            | Command::Describe { .. }) => {
                client.push(Entry::of(answer, command, &mut self.parts));
                for (number, part) in self.parts.drain(..).enumerate() {
                    let writes = part.operation != Operation::Get;
                    client.begin(&part.key, writes);
                    let key = part.key.clone();
                    let operation = Some(self.metrics.asked(&part.operation));
                    let number = number as u32;
                    let ticket = Ticket {
                        client: Some(id),
                        entry,
                        part: number,
                        key,
                        writes,
                        operation,
                        came: now,
                        grant: Grant::default(),
                        written_bytes: part.written_bytes(),
                        let_go_bytes: 0,
                    };
                    client.uncalled.push_back((ticket, part));
                }
            }
        }
    }

    pub(super) fn call(&mut self, ticket: Ticket, part: Part, inputs: &mut Vec<GatewayInput>) {
        let (came, operation) = (ticket.came, ticket.operation);
        let number = self.ticket(ticket);
        if let Some(operation) = operation {
            self.stopwatch.came(came, (0, number), operation);
        }
        let key = self.prefixed(part.key);
        let hash = key_hash(&key);
        inputs.push(GatewayInput::Call { ticket: number, hash, key, operation: part.operation });
    }

    pub(super) fn ticket(&mut self, ticket: Ticket) -> u64 {
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
        let number = self.shared.flushes.fetch_add(1, Ordering::AcqRel) + 1;
        if seconds == 0 {
            self.delayed = None;
            return inputs.push(self.flush(ticket));
        }
        self.told_early.push(ticket);
        self.delayed = Some((now.plus_micros(seconds.saturating_mul(1_000_000)), number));
    }

    /// Of this gateway's keys: what others keep under other prefixes is not its clients' to delete.
    pub(super) fn flush(&self, ticket: u64) -> GatewayInput {
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
}

/// It has so many answers to read that nothing is added to them.
fn leaves_much(id: ConnectionId, hub: &Hub) -> bool {
    hub.backlog(id) > BACKLOG_BYTES_MAX || (hub.is_crowded() && hub.left(id) > 0)
}

/// Nothing more is read from it.
fn pause(id: ConnectionId, client: &mut Client, hub: &mut Hub) {
    client.paused = true;
    hub.pause(id, true);
}

/// What a request becomes.
fn calls(request: &Request) -> usize {
    match &request.command {
        Command::Get { keys, .. } => keys.iter().take(KEYS_MAX).count(),
        _at_most_one => 1,
    }
}

/// Room made at once for a value that is on its way.
const RESERVE_BYTES_MAX: usize = 1 << 20;

/// Answers on the spot that a client has before it takes them: a request of a few bytes may have a hundred times as many.
const SAID_BYTES_MAX: usize = 64 * 1024;

/// The same for all clients in one turn, so that it stays short. Beyond it each has one answer.
pub(super) const SAID_BYTES_PER_TURN: usize = 256 * 1024;
