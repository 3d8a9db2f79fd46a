//! [`ServerMetrics`]: what a server measures.

use super::{Counter, Gauge, Latency, Metrics, Text};
use crate::clock;
use kumo_cluster::{MemberState, Message, Operation, Server, Store};
use kumo_paxos::Time;
use std::fmt;

#[derive(Debug)]
pub struct ServerMetrics {
    /// Messages of servers, gateways and managers, by [`MESSAGES`].
    messages: [Counter; MESSAGES.len()],
    requests: [Counter; OPERATIONS.len()],
    /// Of requests, by [`OPERATIONS`].
    pub latencies: [Latency; OPERATIONS.len()],
    items: Gauge,
    tombstones: Gauge,
    tombstone_bytes: Gauge,
    tombstone_age: Gauge,
    tombstones_held: Gauge,
    live_bytes: Gauge,
    file_bytes: Gauge,
    unreadable: Gauge,
    full: Gauge,
    pending: Gauge,
    dirty: Gauge,
    space: Gauge,
    /// 0: no space, 1: it is not in it, 2: it is and acts.
    place: Gauge,
    managers: Gauge,
    /// On the clock of this machine; so is the next.
    lease_end: Gauge,
    lease_renewed: Gauge,
    copies: Gauge,
    copies_done: Gauge,
    bytes_sent: Gauge,
    bytes_left: Gauge,
}

impl ServerMetrics {
    pub fn new() -> ServerMetrics {
        ServerMetrics {
            messages: std::array::from_fn(|_| Counter::default()),
            requests: std::array::from_fn(|_| Counter::default()),
            latencies: std::array::from_fn(|_| Latency::default()),
            items: Gauge::default(),
            tombstones: Gauge::default(),
            tombstone_bytes: Gauge::default(),
            tombstone_age: Gauge::default(),
            tombstones_held: Gauge::default(),
            live_bytes: Gauge::default(),
            file_bytes: Gauge::default(),
            unreadable: Gauge::default(),
            full: Gauge::default(),
            pending: Gauge::default(),
            dirty: Gauge::default(),
            space: Gauge::default(),
            place: Gauge::default(),
            managers: Gauge::default(),
            lease_end: Gauge::default(),
            lease_renewed: Gauge::default(),
            copies: Gauge::default(),
            copies_done: Gauge::default(),
            bytes_sent: Gauge::default(),
            bytes_left: Gauge::default(),
        }
    }

    /// A message came.
    pub fn heard(&self, message: &Message) {
        self.messages[kind(message)].add(1);
    }

    /// A gateway's request came; which of the operations it is.
    pub fn asked(&self, operation: &Operation) -> usize {
        let number = operation_number(operation);
        self.requests[number].add(1);
        number
    }

    pub fn publish<S: Store>(&self, now: Time, server: &Server<S>) {
        let usage = server.store().usage();
        self.items.set(usage.items);
        self.tombstones.set(usage.tombstones);
        let garbage = server.garbage();
        self.tombstone_bytes.set(garbage.bytes);
        self.tombstone_age.set(garbage.age_seconds);
        self.tombstones_held.set(garbage.held);
        self.live_bytes.set(usage.live_bytes);
        self.file_bytes.set(usage.file_bytes);
        self.unreadable.set(usage.unreadable);
        self.full.set(u64::from(server.store().is_full()));
        let (pending, dirty) = server.under_way();
        self.pending.set(pending);
        self.dirty.set(dirty);
        self.managers.set(server.managers_connected() as u64);
        let (number, place) = match server.space() {
            None => (0, NO_SPACE),
            Some(space) => {
                let own = space.index_of(server.id()).map(|index| space.member(index).state);
                let acts = match own {
                    Some(MemberState::Active | MemberState::Returned { .. }) => ACTS,
                    Some(MemberState::Fault { .. }) | None => OUTSIDE,
                };
                (space.number.0, acts)
            }
        };
        self.space.set(number);
        self.place.set(place);
        let lease_end = now.plus_micros(server.lease_left_micros(now)).0;
        if server.has_lease(now) && lease_end != self.lease_end.get() {
            self.lease_end.set(lease_end);
            self.lease_renewed.set(now.0);
        }
        let progress = server.progress();
        self.copies.set(progress.copies);
        self.copies_done.set(progress.copies_done);
        self.bytes_sent.set(progress.bytes_sent);
        self.bytes_left.set(progress.bytes_left);
    }

    /// Requests answered, by how long it took.
    pub fn latency(&self) -> Vec<u64> {
        let mut sum = self.latencies[0].buckets();
        for latency in &self.latencies[1..] {
            for (sum, count) in sum.iter_mut().zip(latency.buckets()) {
                *sum += count;
            }
        }
        sum.to_vec()
    }

    fn tell_garbage(&self, text: &mut Text) -> fmt::Result {
        text.gauge("kumo_server_tombstones", "Records of deleted keys.", self.tombstones.get())?;
        text.gauge(
            "kumo_server_tombstone_bytes",
            "Memory they take, about, at the last pass through the store.",
            self.tombstone_bytes.get(),
        )?;
        text.gauge(
            "kumo_server_tombstone_age_seconds",
            "Age of the oldest that stayed at the last pass.",
            self.tombstone_age.get(),
        )?;
        text.gauge(
            "kumo_server_tombstones_held",
            "Old enough to go, and held by a replace or an unconfirmed write.",
            self.tombstones_held.get(),
        )
    }

    fn tell_replace(&self, text: &mut Text) -> fmt::Result {
        text.gauge(
            "kumo_server_replace_copies",
            "Ranges to copy for the newest replace.",
            self.copies.get(),
        )?;
        text.gauge("kumo_server_replace_copies_done", "Of them, copied.", self.copies_done.get())?;
        text.gauge("kumo_server_replace_sent_bytes", "What was sent for it.", self.bytes_sent.get())?;
        text.gauge(
            "kumo_server_replace_left_bytes",
            "What is left to send, estimated.",
            self.bytes_left.get(),
        )
    }

    fn tell_lease(&self, text: &mut Text) -> fmt::Result {
        let now = clock::now();
        let left = Time(self.lease_end.get()).since(now) as f64 / 1e6;
        text.gauge_f64("kumo_server_lease_remaining_seconds", "How long it may read on its own.", left)?;
        let renewed = self.lease_renewed.get();
        if renewed == 0 {
            return Ok(());
        }
        let age = now.since(Time(renewed)) as f64 / 1e6;
        text.gauge_f64("kumo_server_lease_age_seconds", "Since the lease was renewed.", age)
    }
}

impl Metrics for ServerMetrics {
    fn kind(&self) -> &'static str {
        "server"
    }

    fn hindrance(&self) -> Option<&'static str> {
        match (self.place.get(), self.managers.get()) {
            (ACTS, _) => None,
            (NO_SPACE, 0) => Some("no manager is connected, and no hash space known"),
            _outside => Some("not attached, or lost: kumoctl MANAGER attach brings it in"),
        }
    }

    fn tell(&self, text: &mut Text) -> fmt::Result {
        text.gauge("kumo_server_items", "Records that are values.", self.items.get())?;
        self.tell_garbage(text)?;
        text.gauge("kumo_server_live_bytes", "Current keys and values.", self.live_bytes.get())?;
        text.gauge("kumo_server_file_bytes", "All files, garbage included.", self.file_bytes.get())?;
        text.gauge(
            "kumo_server_unreadable_records",
            "Records found unreadable, and neither read nor written anew since.",
            self.unreadable.get(),
        )?;
        text.gauge("kumo_server_full", "1: no space is left on the disk.", self.full.get())?;
        text.gauge("kumo_server_pending_writes", "Writes that wait for copies.", self.pending.get())?;
        text.gauge(
            "kumo_server_dirty_records",
            "Records whose last write is not known to be everywhere.",
            self.dirty.get(),
        )?;
        text.gauge("kumo_server_space_number", "Number of the hash space adopted.", self.space.get())?;
        let attached = u64::from(self.place.get() == ACTS);
        text.gauge("kumo_server_attached", "1: attached, and acts.", attached)?;
        text.gauge("kumo_server_managers", "Managers connected.", self.managers.get())?;
        self.tell_lease(text)?;
        self.tell_replace(text)?;
        text.counters(
            "kumo_server_messages_total",
            "Messages that came, by kind.",
            "kind",
            &MESSAGES,
            &self.messages,
        )?;
        text.counters(
            "kumo_server_requests_total",
            "Requests of gateways.",
            "operation",
            &OPERATIONS,
            &self.requests,
        )?;
        text.latencies(
            "kumo_server_request_seconds",
            "From a request's arrival to its answer, copies included.",
            "operation",
            &OPERATIONS,
            &self.latencies,
        )
    }
}

pub(super) fn operation_number(operation: &Operation) -> usize {
    match operation {
        Operation::Get => 0,
        Operation::GetAndTouch { .. } => 1,
        Operation::Set { .. } => 2,
        Operation::Add { .. } => 3,
        Operation::Replace { .. } => 4,
        Operation::Cas { .. } => 5,
        Operation::Append { .. } => 6,
        Operation::Prepend { .. } => 7,
        Operation::Delete { .. } => 8,
        Operation::Touch { .. } => 9,
        Operation::Add64 { down: false, .. } => 10,
        Operation::Add64 { down: true, .. } => 11,
    }
}

/// By [`operation_number`]; memcached's words.
pub(super) const OPERATIONS: [&str; 12] =
    ["get", "gat", "set", "add", "replace", "cas", "append", "prepend", "delete", "touch", "incr", "decr"];

fn kind(message: &Message) -> usize {
    match message {
        Message::NewSpace { .. } | Message::WantSpace { .. } => 0,
        Message::Request(_) => 1,
        Message::Replicate { .. } => 2,
        Message::Replicated { .. } | Message::ReplicaFull { .. } => 3,
        Message::Watermark { .. } => 4,
        Message::Confirm { .. } | Message::Confirmed { .. } => 5,
        Message::AskPrimary { .. } | Message::PrimarySays { .. } => 6,
        Message::Settle { .. } | Message::Settled { .. } => 7,
        Message::CopyDigest { .. }
        | Message::CopySame { .. }
        | Message::CopyDiffers { .. }
        | Message::CopyRecords { .. }
        | Message::CopyStored { .. }
        | Message::CopyLater { .. }
        | Message::CopyHeads { .. }
        | Message::CopyNarrow { .. }
        | Message::CopyIds { .. }
        | Message::CopyIdsStored { .. } => 8,
        Message::Lease { .. } => 9,
        Message::Flush { .. } => 10,
        Message::Answer { .. }
        | Message::Flushed { .. }
        | Message::Alive(_)
        | Message::Register { .. }
        | Message::Registered { .. }
        | Message::GatewayAlive { .. }
        | Message::Managers { .. }
        | Message::Recruit(_)
        | Message::Probe { .. }
        | Message::Probed { .. }
        | Message::Backup { .. }
        | Message::BackedUp { .. }
        | Message::Unwelcome { .. } => 11,
    }
}

/// By [`kind`].
const MESSAGES: [&str; 12] = [
    "space",
    "request",
    "replicate",
    "replicated",
    "watermark",
    "confirm",
    "ask_primary",
    "settle",
    "copy",
    "lease",
    "flush",
    "other",
];

const NO_SPACE: u64 = 0;
const OUTSIDE: u64 = 1;
const ACTS: u64 = 2;
