//! [`Stats`]: what a gateway counts, and memcached's `stats` made of it.

use super::gateway::GatewayConfig;
use crate::clock;
use bytes::{Bytes, BytesMut};
use kumo_cluster::{Answer, GatewayError, Operation};
use kumo_paxos::Time;
use kumo_wire::memcache::{self, Outcome};

/// Counts since the start, or since `stats reset`.
pub struct Stats {
    began: Time,
    /// Ever.
    pub connections: u64,
    connections_max: usize,
    value_bytes_max: usize,
    gets: u64,
    sets: u64,
    touches: u64,
    deletes: u64,
    counters: u64,
    hits: u64,
    misses: u64,
    failures: u64,
}

impl Stats {
    pub fn new(config: &GatewayConfig) -> Stats {
        Stats {
            began: clock::now(),
            connections: 0,
            connections_max: config.connections_max,
            value_bytes_max: config.value_bytes_max,
            gets: 0,
            sets: 0,
            touches: 0,
            deletes: 0,
            counters: 0,
            hits: 0,
            misses: 0,
            failures: 0,
        }
    }

    pub fn asked(&mut self, operation: &Operation) {
        let count = match operation {
            Operation::Get | Operation::GetAndTouch { .. } => &mut self.gets,
            Operation::Set { .. }
            | Operation::Add { .. }
            | Operation::Replace { .. }
            | Operation::Cas { .. }
            | Operation::Append { .. }
            | Operation::Prepend { .. } => &mut self.sets,
            Operation::Delete { .. } => &mut self.deletes,
            Operation::Touch { .. } => &mut self.touches,
            Operation::Add64 { .. } => &mut self.counters,
        };
        *count += 1;
    }

    pub fn answered(&mut self, result: &Result<Answer, GatewayError>) {
        match result {
            Ok(Answer::Reply(kumo_cluster::Reply::Value { .. })) => self.hits += 1,
            Ok(Answer::Missing) => self.misses += 1,
            Ok(_) => {}
            Err(_) => self.failures += 1,
        }
    }

    /// The lines that answer `stats` with that argument.
    pub fn report(&mut self, argument: &Bytes, answer: &memcache::Answer, open: usize, now: Time) -> Bytes {
        let mut out = BytesMut::new();
        let mut tell = |name: &str, value: String| {
            answer.write(&Outcome::Stat { name, value: &value }, &mut out);
        };
        match &argument[..] {
            b"" => self.general(open, now, &mut tell),
            b"settings" => {
                tell("maxconns", self.connections_max.to_string());
                tell("item_size_max", self.value_bytes_max.to_string());
                tell("cas_enabled", "yes".to_owned());
                tell("binding_protocol", "auto-negotiate".to_owned());
                tell("flush_enabled", "no".to_owned());
            }
            // There are no slabs and no list of the least recently used here: nothing is ever evicted.
            b"items" | b"slabs" | b"sizes" | b"conns" => {}
            b"reset" => {
                let connections = self.connections;
                (self.gets, self.sets, self.touches, self.deletes, self.counters) = (0, 0, 0, 0, 0);
                (self.hits, self.misses, self.failures, self.connections) = (0, 0, 0, connections);
                answer.write(&Outcome::StatsReset, &mut out);
                return out.freeze();
            }
            _unknown => {
                answer.write(&Outcome::NoSuchStats, &mut out);
                return out.freeze();
            }
        }
        answer.write(&Outcome::End, &mut out);
        out.freeze()
    }

    fn general(&self, open: usize, now: Time, tell: &mut impl FnMut(&str, String)) {
        tell("pid", std::process::id().to_string());
        tell("uptime", (now.since(self.began) / 1_000_000).to_string());
        tell("time", (clock::wall().0 / 1000).to_string());
        tell("version", PROTOCOL_VERSION.to_owned());
        tell("pointer_size", usize::BITS.to_string());
        tell("curr_connections", open.to_string());
        tell("total_connections", self.connections.to_string());
        tell("max_connections", self.connections_max.to_string());
        tell("cmd_get", self.gets.to_string());
        tell("cmd_set", self.sets.to_string());
        tell("cmd_touch", self.touches.to_string());
        tell("cmd_delete", self.deletes.to_string());
        tell("cmd_counter", self.counters.to_string());
        tell("get_hits", self.hits.to_string());
        tell("get_misses", self.misses.to_string());
        tell("failures", self.failures.to_string());
        tell("threads", "1".to_owned());
    }
}

/// What clients are told: first the memcached whose protocol this is, because they take from it what they may ask and
/// what to expect; then what it really is.
pub const PROTOCOL_VERSION: &str = concat!("1.6.18-kumo-", env!("CARGO_PKG_VERSION"));
