//! [`GatewayMetrics`]: what a gateway measures.

use super::server::{OPERATIONS, operation_number};
use super::{Counter, Gauge, Latency, Metrics, Text};
use kumo_cluster::{Answer, Gateway, GatewayError, Operation, Reply};
use std::fmt;

#[derive(Debug)]
pub struct GatewayMetrics {
    requests: [Counter; OPERATIONS.len()],
    /// By operation.
    pub latencies: [Latency; OPERATIONS.len()],
    pub connections: Counter,
    pub open: Gauge,
    hits: Counter,
    misses: Counter,
    failures: Counter,
    in_flight: Gauge,
    registered: Gauge,
    space: Gauge,
    servers: Gauge,
}

impl GatewayMetrics {
    pub fn new() -> GatewayMetrics {
        GatewayMetrics {
            requests: std::array::from_fn(|_| Counter::default()),
            latencies: std::array::from_fn(|_| Latency::default()),
            connections: Counter::default(),
            open: Gauge::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            failures: Counter::default(),
            in_flight: Gauge::default(),
            registered: Gauge::default(),
            space: Gauge::default(),
            servers: Gauge::default(),
        }
    }

    /// A key is asked for; which of the operations it is.
    pub fn asked(&self, operation: &Operation) -> usize {
        let number = operation_number(operation);
        self.requests[number].add(1);
        number
    }

    pub fn answered(&self, result: &Result<Answer, GatewayError>) {
        match result {
            Ok(Answer::Reply(Reply::Value { .. })) => self.hits.add(1),
            Ok(Answer::Missing) => self.misses.add(1),
            Ok(_other) => {}
            Err(_) => self.failures.add(1),
        }
    }

    pub fn publish(&self, gateway: &Gateway, open: usize) {
        self.open.set(open as u64);
        self.in_flight.set(gateway.in_flight() as u64);
        self.registered.set(u64::from(gateway.id().is_some()));
        let (number, servers) = gateway.space().map_or((0, 0), |space| {
            let active = space.rhs.iter().filter(|&&index| space.member(index).is_active());
            (space.number.0, active.count() as u64)
        });
        self.space.set(number);
        self.servers.set(servers);
    }
}

impl Metrics for GatewayMetrics {
    fn kind(&self) -> &'static str {
        "gateway"
    }

    fn hindrance(&self) -> Option<&'static str> {
        if self.registered.get() == 0 {
            return Some("no manager has registered this gateway yet");
        }
        (self.servers.get() == 0).then_some("no server is attached")
    }

    fn tell(&self, text: &mut Text) -> fmt::Result {
        text.gauge("kumo_gateway_open_connections", "Memcached clients connected.", self.open.get())?;
        text.counter("kumo_gateway_connections_total", "Clients ever.", self.connections.get())?;
        text.counter("kumo_gateway_hits_total", "Answers with a value.", self.hits.get())?;
        text.counter("kumo_gateway_misses_total", "Answers that there is none.", self.misses.get())?;
        text.counter("kumo_gateway_failures_total", "Requests that failed for good.", self.failures.get())?;
        text.gauge("kumo_gateway_in_flight", "Requests that have no answer yet.", self.in_flight.get())?;
        text.gauge("kumo_gateway_registered", "1: the managers know it.", self.registered.get())?;
        text.gauge("kumo_gateway_space_number", "Number of the hash space adopted.", self.space.get())?;
        text.gauge("kumo_gateway_servers", "Active servers in it.", self.servers.get())?;
        text.counters(
            "kumo_gateway_requests_total",
            "Requests of clients, counted by key.",
            "operation",
            &OPERATIONS,
            &self.requests,
        )?;
        text.latencies(
            "kumo_gateway_request_seconds",
            "From a request's arrival to its answer, retries included.",
            "operation",
            &OPERATIONS,
            &self.latencies,
        )
    }
}
