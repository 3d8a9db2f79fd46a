//! [`Stats`]: memcached's `stats`, made of what all workers of a gateway counted.

use super::gateway::GatewayConfig;
use crate::clock;
use crate::metrics::{GatewayMetrics, Totals, WorkerMetrics};
use bytes::{Bytes, BytesMut};
use kumo_paxos::Time;
use kumo_wire::memcache::{self, Failure, Outcome};
use std::sync::{Arc, Mutex, PoisonError};

/// The gateway as a whole, whichever worker is asked.
pub struct Stats {
    began: Time,
    connections_max: usize,
    value_bytes_max: usize,
    allow_flush: bool,
    metrics: Arc<GatewayMetrics>,
    /// What was counted before the last `stats reset`.
    before: Mutex<Totals>,
}

impl Stats {
    pub fn new(config: &GatewayConfig, metrics: Arc<GatewayMetrics>) -> Stats {
        Stats {
            began: clock::now(),
            connections_max: config.connections_max,
            value_bytes_max: config.value_bytes_max,
            allow_flush: config.allow_flush,
            metrics,
            before: Mutex::new(Totals::default()),
        }
    }

    /// The lines that answer `stats` with that argument.
    pub fn report(&self, argument: &Bytes, answer: &memcache::Answer, now: Time) -> Bytes {
        let mut out = BytesMut::new();
        let mut tell = |name: &str, value: String| {
            answer.write(&Outcome::Stat { name, value: &value }, &mut out);
        };
        // The first word says what is asked for; memcached overlooks what it does not need.
        let mut words = argument.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let is_binary = matches!(answer, memcache::Answer::Binary { .. });
        match words.next().unwrap_or_default() {
            b"" => self.general(now, &mut tell),
            b"settings" => {
                tell("maxconns", self.connections_max.to_string());
                tell("num_threads", self.metrics.workers().len().to_string());
                tell("item_size_max", self.value_bytes_max.to_string());
                tell("cas_enabled", "yes".to_owned());
                tell("binding_protocol", "auto-negotiate".to_owned());
                tell("flush_enabled", if self.allow_flush { "yes" } else { "no" }.to_owned());
            }
            // There are no slabs and no list of the least recently used here: nothing is ever evicted.
            b"items" | b"slabs" => {}
            // These two are known in text alone.
            b"cachedump" | b"conns" if !is_binary => {}
            b"sizes" => tell("sizes_status", "disabled".to_owned()),
            b"detail" => return detailed(words.next().unwrap_or_default(), answer),
            b"reset" => {
                // Only taken off what is told here: whoever scrapes counts on numbers that only grow.
                *self.before.lock().unwrap_or_else(PoisonError::into_inner) = self.metrics.totals();
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

    fn general(&self, now: Time, tell: &mut impl FnMut(&str, String)) {
        let before = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = self.metrics.totals();
        tell("pid", std::process::id().to_string());
        tell("uptime", (now.since(self.began) / 1_000_000).to_string());
        tell("time", (clock::wall().0 / 1000).to_string());
        tell("version", PROTOCOL_VERSION.to_owned());
        let mut count = |name: &str, number: u64| tell(name, number.to_string());
        count("pointer_size", u64::from(usize::BITS));
        count("curr_connections", self.metrics.sum(WorkerMetrics::open));
        count("total_connections", self.metrics.sum(|worker| worker.came.get()));
        count("rejected_connections", self.metrics.refused.get());
        count("max_connections", self.connections_max as u64);
        count("cmd_get", totals.gets - before.gets);
        count("cmd_set", totals.sets - before.sets);
        count("cmd_flush", totals.flushes - before.flushes);
        count("cmd_touch", totals.touches - before.touches);
        count("cmd_delete", totals.deletes - before.deletes);
        count("cmd_counter", totals.counters - before.counters);
        count("get_hits", totals.get.hits - before.get.hits);
        count("get_misses", totals.get.misses - before.get.misses);
        count("delete_misses", totals.delete.misses - before.delete.misses);
        count("delete_hits", totals.delete.hits - before.delete.hits);
        count("incr_misses", totals.increment.misses - before.increment.misses);
        count("incr_hits", totals.increment.hits - before.increment.hits);
        count("decr_misses", totals.decrement.misses - before.decrement.misses);
        count("decr_hits", totals.decrement.hits - before.decrement.hits);
        count("cas_misses", totals.cas.misses - before.cas.misses);
        count("cas_hits", totals.cas.hits - before.cas.hits);
        count("cas_badval", totals.cas_changed - before.cas_changed);
        count("touch_hits", totals.touch.hits - before.touch.hits);
        count("touch_misses", totals.touch.misses - before.touch.misses);
        count("auth_cmds", totals.logins - before.logins);
        count("auth_errors", totals.logins_failed - before.logins_failed);
        count("failures", totals.failures - before.failures);
        // Nothing is ever thrown out to make room. What is stored, and where, the servers know: `kumostat -m`.
        count("evictions", 0);
        count("threads", self.metrics.workers().len() as u64);
    }
}

/// Keys are not counted by their prefixes, of which there may be any number: the dump is empty.
fn detailed(wish: &[u8], answer: &memcache::Answer) -> Bytes {
    let mut out = BytesMut::new();
    let binary = matches!(answer, memcache::Answer::Binary { .. });
    let outcome = match wish {
        b"on" | b"off" => Outcome::Ok,
        b"dump" => {
            if binary {
                // As memcached does: the lines of the text protocol, in one packet.
                answer.write(&Outcome::Stat { name: "detailed", value: "END\r\n" }, &mut out);
            }
            Outcome::End
        }
        _other if binary => Outcome::NoSuchStats,
        _other => Outcome::Failed(Failure::Client(DETAIL_USAGE)),
    };
    answer.write(&outcome, &mut out);
    out.freeze()
}

const DETAIL_USAGE: &str = "usage: stats detail on|off|dump";

/// What clients are told: first the memcached whose protocol this is, because they take from it what they may ask and
/// what to expect; then what it really is.
pub const PROTOCOL_VERSION: &str = concat!("1.6.18-kumo-", env!("CARGO_PKG_VERSION"));
