//! [`GatewayMetrics`]: what a gateway measures, worker by worker.

use super::server::{OPERATIONS, operation_number};
use super::{Counter, Gauge, Latency, Metrics, Text};
use kumo_cluster::{Answer, Gateway, GatewayError, MemberState, Operation, Space};
use kumo_wire::memcache::{Outcome, Sasl};
use std::fmt;
use std::sync::Arc;

/// Of a whole gateway: the sums over its workers, made when somebody asks.
#[derive(Debug)]
pub struct GatewayMetrics {
    workers: Vec<Arc<WorkerMetrics>>,
    /// Clients for whom there was no room.
    pub refused: Counter,
}

/// Of one worker. The worker writes all of it, but for `came`, which the door does. No two workers write to one line
/// of a processor's cache.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerMetrics {
    requests: [Counter; OPERATIONS.len()],
    /// By operation.
    pub latencies: [Latency; OPERATIONS.len()],
    /// Clients that it was given, and those that are gone again.
    pub came: Counter,
    pub left: Gauge,
    /// By operation: those that did what they were to, those whose key was missing.
    done: [Counter; OPERATIONS.len()],
    missed: [Counter; OPERATIONS.len()],
    /// The key has another version than the client said.
    changed: Counter,
    pub flushes: Counter,
    failures: Counter,
    logins: Counter,
    logins_failed: Counter,
    in_flight: Gauge,
    registered: Gauge,
    space: Gauge,
    /// Those that act in it.
    servers: Gauge,
}

/// What was asked and answered so far, by memcached's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub gets: u64,
    pub sets: u64,
    pub deletes: u64,
    pub touches: u64,
    pub counters: u64,
    pub flushes: u64,
    pub get: Found,
    pub delete: Found,
    pub increment: Found,
    pub decrement: Found,
    pub cas: Found,
    pub cas_changed: u64,
    pub touch: Found,
    pub failures: u64,
    pub logins: u64,
    pub logins_failed: u64,
}

/// Of one command: how often the key was there, and how often it was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub hits: u64,
    pub misses: u64,
}

impl GatewayMetrics {
    pub fn new(workers: usize) -> GatewayMetrics {
        let workers = std::iter::repeat_with(|| Arc::new(WorkerMetrics::new())).take(workers).collect();
        GatewayMetrics { workers, refused: Counter::default() }
    }

    pub fn workers(&self) -> &[Arc<WorkerMetrics>] {
        &self.workers
    }

    pub fn sum(&self, of: impl Fn(&WorkerMetrics) -> u64) -> u64 {
        self.workers.iter().map(|worker| of(worker)).sum()
    }

    pub fn totals(&self) -> Totals {
        let count = |names: &[&str], of: fn(&WorkerMetrics) -> &[Counter; OPERATIONS.len()]| {
            let named = OPERATIONS.iter().enumerate().filter(|(_, name)| names.contains(name));
            named.map(|(number, _)| self.sum(|worker| of(worker)[number].get())).sum()
        };
        let asked = |names: &[&str]| count(names, |worker| &worker.requests);
        let found = |names: &[&str]| Found {
            hits: count(names, |worker| &worker.done),
            misses: count(names, |worker| &worker.missed),
        };
        Totals {
            gets: asked(&["get", "gat"]),
            sets: asked(&["set", "add", "replace", "cas", "append", "prepend"]),
            deletes: asked(&["delete"]),
            touches: asked(&["touch", "gat"]),
            counters: asked(&["incr", "decr"]),
            flushes: self.sum(|worker| worker.flushes.get()),
            get: found(&["get", "gat"]),
            delete: found(&["delete"]),
            increment: found(&["incr"]),
            decrement: found(&["decr"]),
            cas: found(&["cas"]),
            cas_changed: self.sum(|worker| worker.changed.get()),
            touch: found(&["touch", "gat"]),
            failures: self.sum(|worker| worker.failures.get()),
            logins: self.sum(|worker| worker.logins.get()),
            logins_failed: self.sum(|worker| worker.logins_failed.get()),
        }
    }

    fn least(&self, of: impl Fn(&WorkerMetrics) -> u64) -> u64 {
        self.workers.iter().map(|worker| of(worker)).min().unwrap_or(0)
    }

    fn tell_workers(&self, text: &mut Text) -> fmt::Result {
        let numbers: Vec<String> = (0..self.workers.len()).map(|number| number.to_string()).collect();
        let names: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let each = |of: fn(&WorkerMetrics) -> u64| self.workers.iter().map(move |worker| of(worker));
        let counts = |of| each(of).map(Counter::of).collect::<Vec<Counter>>();
        let requests = counts(|worker| worker.requests.iter().map(Counter::get).sum());
        text.gauge("kumo_gateway_workers", "Threads that serve clients.", self.workers.len() as u64)?;
        text.counters(
            "kumo_gateway_worker_requests_total",
            "Requests of each worker's clients, counted by key.",
            "worker",
            &names,
            &requests,
        )?;
        text.counters(
            "kumo_gateway_worker_connections_total",
            "Clients ever, of each worker.",
            "worker",
            &names,
            &counts(|worker| worker.came.get()),
        )?;
        let open: Vec<(&str, u64)> = names.iter().copied().zip(each(WorkerMetrics::open)).collect();
        text.gauges("kumo_gateway_worker_open_connections", "Clients of each worker.", "worker", &open)
    }
}

impl WorkerMetrics {
    fn new() -> WorkerMetrics {
        WorkerMetrics {
            requests: std::array::from_fn(|_| Counter::default()),
            latencies: std::array::from_fn(|_| Latency::default()),
            came: Counter::default(),
            left: Gauge::default(),
            done: std::array::from_fn(|_| Counter::default()),
            missed: std::array::from_fn(|_| Counter::default()),
            changed: Counter::default(),
            flushes: Counter::default(),
            failures: Counter::default(),
            logins: Counter::default(),
            logins_failed: Counter::default(),
            in_flight: Gauge::default(),
            registered: Gauge::default(),
            space: Gauge::default(),
            servers: Gauge::default(),
        }
    }

    /// Clients that are connected, or about to be.
    pub fn open(&self) -> u64 {
        // In this order: whoever left came before.
        let left = self.left.get();
        self.came.get().saturating_sub(left)
    }

    /// A key is asked for; which of the operations it is.
    pub fn asked(&self, operation: &Operation) -> usize {
        let number = operation_number(operation);
        self.requests[number].add(1);
        number
    }

    /// `operation`: the number that [`asked`](WorkerMetrics::asked) gave it; none: a flush.
    pub fn answered(&self, operation: Option<usize>, result: &Result<Answer, GatewayError>) {
        match (operation, result) {
            (Some(number), Ok(Answer::Reply(_))) => self.done[number].add(1),
            (Some(number), Ok(Answer::Missing)) => self.missed[number].add(1),
            (Some(_), Ok(Answer::Exists)) => self.changed.add(1),
            (_, Ok(_other)) => {}
            (_, Err(_)) => self.failures.add(1),
        }
    }

    /// Somebody said who it is, and got that answer.
    pub fn logged_in(&self, sasl: &Sasl, outcome: &Outcome) {
        match sasl {
            Sasl::List => {}
            Sasl::Auth { .. } | Sasl::Step { .. } | Sasl::Login { .. } => {
                self.logins.add(1);
                self.logins_failed.add(u64::from(matches!(outcome, Outcome::Failed(_))));
            }
        }
    }

    pub fn publish(&self, gateway: &Gateway) {
        self.in_flight.set(gateway.in_flight() as u64);
        self.registered.set(u64::from(gateway.id().is_some()));
        let (number, servers) = gateway.space().map_or((0, 0), |space| (space.number.0, acting(space)));
        self.space.set(number);
        self.servers.set(servers);
    }
}

/// Servers that answer for keys. After all were lost, those that are back for what only they have serve the whole ring,
/// perhaps.
fn acting(space: &Space) -> u64 {
    let acts = |&&index: &&u16| match space.member(index).state {
        MemberState::Active | MemberState::Returned { .. } => true,
        MemberState::Fault { .. } => false,
    };
    space.rhs.iter().filter(acts).count() as u64
}

impl Metrics for GatewayMetrics {
    fn kind(&self) -> &'static str {
        "gateway"
    }

    fn hindrance(&self) -> Option<&'static str> {
        // Managers register nobody before there are servers.
        let knows = self.least(|worker| worker.space.get()) > 0;
        let registered = self.least(|worker| worker.registered.get()) > 0;
        let served = self.least(|worker| worker.servers.get()) > 0;
        match (registered, served) {
            (true, true) => None,
            (true, false) => Some(NO_SERVER),
            (false, false) if knows => Some(NO_SERVER),
            (false, _) => Some("no manager has registered this gateway yet"),
        }
    }

    fn tell(&self, text: &mut Text) -> fmt::Result {
        let totals = self.totals();
        let open = self.sum(WorkerMetrics::open);
        text.gauge("kumo_gateway_open_connections", "Memcached clients connected.", open)?;
        let came = self.sum(|worker| worker.came.get());
        text.counter("kumo_gateway_connections_total", "Clients ever.", came)?;
        let refused = self.refused.get();
        text.counter("kumo_gateway_refused_connections_total", "Clients beyond --max-connections.", refused)?;
        text.counter("kumo_gateway_hits_total", "Gets of a key that was there.", totals.get.hits)?;
        text.counter("kumo_gateway_misses_total", "Gets of a key that was not.", totals.get.misses)?;
        text.counter("kumo_gateway_failures_total", "Requests that failed for good.", totals.failures)?;
        text.counter("kumo_gateway_logins_total", "Tries to log in (--auth).", totals.logins)?;
        text.counter("kumo_gateway_failed_logins_total", "Of them, refused.", totals.logins_failed)?;
        let in_flight = self.sum(|worker| worker.in_flight.get());
        text.gauge("kumo_gateway_in_flight", "Requests that have no answer yet.", in_flight)?;
        let registered = self.least(|worker| worker.registered.get());
        text.gauge("kumo_gateway_registered", "1: the managers know all its workers.", registered)?;
        let space = self.least(|worker| worker.space.get());
        text.gauge("kumo_gateway_space_number", "Number of the hash space adopted by all.", space)?;
        let servers = self.least(|worker| worker.servers.get());
        text.gauge("kumo_gateway_servers", "Servers that act in it.", servers)?;
        self.tell_workers(text)?;
        let requests: [Counter; OPERATIONS.len()] =
            std::array::from_fn(|number| Counter::of(self.sum(|worker| worker.requests[number].get())));
        text.counters(
            "kumo_gateway_requests_total",
            "Requests of clients, counted by key.",
            "operation",
            &OPERATIONS,
            &requests,
        )?;
        let latencies: [Latency; OPERATIONS.len()] =
            std::array::from_fn(|number| Latency::sum(self.workers.iter().map(|one| &one.latencies[number])));
        text.latencies(
            "kumo_gateway_request_seconds",
            "From a request's arrival to its answer, retries included.",
            "operation",
            &OPERATIONS,
            &latencies,
        )
    }
}

const NO_SERVER: &str = "no attached server acts";

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_cluster::{Incarnation, Member, SpaceNumber};

    #[test]
    fn workers_are_counted_apart_and_told_together() {
        let metrics = GatewayMetrics::new(3);
        let [first, second, _] = metrics.workers() else { panic!("three workers") };
        for worker in [first, second, second] {
            let get = worker.asked(&Operation::Get);
            worker.answered(Some(get), &Ok(Answer::Missing));
            worker.came.add(1);
        }
        let delete = second.asked(&Operation::Delete { unique: None });
        second.answered(Some(delete), &Ok(Answer::Missing));
        second.left.set(1);
        let totals = Totals {
            gets: 3,
            deletes: 1,
            get: Found { hits: 0, misses: 3 },
            delete: Found { hits: 0, misses: 1 },
            ..Totals::default()
        };
        assert_eq!(metrics.totals(), totals);
        let open: Vec<u64> = metrics.workers().iter().map(|worker| worker.open()).collect();
        assert_eq!(open, [1, 1, 0]);
    }

    #[test]
    fn who_is_back_for_what_only_it_has_acts() {
        let mut space = Space::empty(Default::default(), SpaceNumber(9));
        let states =
            [MemberState::Fault { order: 1 }, MemberState::Returned { order: 2 }, MemberState::Active];
        for (index, state) in (0..).zip(states) {
            let address = ([127, 0, 0, 1], 19801 + index).into();
            space.members.push(Member { address, incarnation: Incarnation(1), state });
        }
        for (ring, count) in [(&[][..], 0), (&[0], 0), (&[0, 1], 1), (&[0, 1, 2], 2)] {
            space.rhs = ring.to_vec();
            assert_eq!(acting(&space), count, "{ring:?}");
        }
    }

    #[test]
    fn a_gateway_is_ready_when_all_workers_are() {
        let metrics = GatewayMetrics::new(2);
        let [first, second] = metrics.workers() else { panic!("two workers") };
        first.registered.set(1);
        first.space.set(2);
        first.servers.set(3);
        assert!(metrics.hindrance().is_some_and(|why| why.contains("registered")));
        second.space.set(1);
        assert!(metrics.hindrance().is_some_and(|why| why.contains("attached")));
        second.space.set(2);
        second.servers.set(3);
        assert!(metrics.hindrance().is_some_and(|why| why.contains("registered")));
        second.registered.set(1);
        assert_eq!(metrics.hindrance(), None);
    }
}
