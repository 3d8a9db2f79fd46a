//! `kumo bench store`: how fast a server of the memcached protocol is, whoever made it, with every value verified.

mod connection;
mod driver;
mod keys;
mod native;

use super::plain;
use super::processes::Processes;
use super::tally::Tally;
use crate::address;
use crate::failure::Failure;
use crate::output::{Out, row, table};
use crate::store::gateway::MEMCACHED_PORT;
use crate::target::seconds;
use clap::{Args, ValueEnum};
use driver::{Driver, Outcome};
use kumo_wire::memcache::VALUE_BYTES_MAX_DEFAULT;
use native::Native;
use serde_json::{Value, json};
use std::time::Duration;

/// Requests of memcached clients, at any server of that protocol
#[derive(Args, Clone)]
#[command(after_help = EXAMPLES)]
pub struct StoreBench {
    /// Where it listens
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:11211")]
    pub addr: String,
    /// Ask the servers of a kumo store without a gateway between, by the native client: its managers
    #[arg(long, value_name = "ADDR,ADDR...", conflicts_with_all = ["addr", "rate"])]
    pub managers: Option<String>,
    #[arg(long, value_enum)]
    pub op: Op,
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub conns: u32,
    /// Requests under way on each connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub pipeline: u32,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=VALUE_BYTES_MAX_DEFAULT as u64))]
    pub size: u64,
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub secs: Duration,
    /// Requests a second, sent when they are due whether or not earlier ones are answered (open loop); otherwise as
    /// fast as they are answered
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub rate: Option<u64>,
    /// Keys that are used, evenly; at least one a connection. Unless told, 10,000, or as many as take 1 GB
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    keys: Option<u32>,
    /// Processes whose processor time is counted: all that serve the requests
    #[arg(long, value_name = "PID,PID...", value_delimiter = ',')]
    pub pids: Vec<u32>,
}

impl StoreBench {
    pub fn keys(&self) -> u32 {
        let held = (FILL_BYTES_MAX / self.size).clamp(u64::from(self.conns), KEYS_DEFAULT);
        self.keys.unwrap_or(held as u32)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Op {
    /// Store a value
    Set,
    /// Read one
    Get,
    /// Of ten requests nine gets and a set
    Mixed,
    /// Read sixteen with one request
    Mget,
}

pub async fn run(plan: &StoreBench, patience: Duration, out: &Out) -> Result<(), Failure> {
    if plan.keys() < plan.conns {
        return Err(Failure::usage(format!("--keys {} is less than --conns {}", plan.keys(), plan.conns)));
    }
    let processes = Processes::new(&plan.pids)?;
    let mut load = match &plan.managers {
        None => Load::Gateway(Box::new(Driver::connect(address::one(&plan.addr, MEMCACHED_PORT)?, plan)?)),
        Some(managers) => Load::Native(Native::open(&address::members(managers)?, plan, patience).await?),
    };
    if plan.op != Op::Set {
        match &mut load {
            Load::Gateway(driver) => driver.fill()?,
            Load::Native(native) => native.fill().await?,
        }
    }
    let (servers_before, client_before) = (processes.cpu()?, super::cpu());
    let outcome = match load {
        Load::Gateway(driver) => driver.run(plan)?,
        Load::Native(native) => native.run(plan).await?,
    };
    let client = super::cpu().saturating_sub(client_before);
    let servers = processes.cpu()?.zip(servers_before).map(|(after, before)| after.saturating_sub(before));
    report(plan, &outcome, client, servers, out)
}

/// Who makes the requests: connections of memcached clients, or callers of the native client.
enum Load {
    Gateway(Box<Driver>),
    Native(Native),
}

fn report(
    plan: &StoreBench,
    outcome: &Outcome,
    client: Duration,
    servers: Option<Duration>,
    out: &Out,
) -> Result<(), Failure> {
    let object = results(plan, outcome, client, servers);
    let text = || {
        let rows: Vec<Vec<String>> = object
            .as_object()
            .map(|fields| fields.iter().map(|(name, value)| row([name, &plain(value)])).collect())
            .unwrap_or_default();
        table(&rows)
    };
    out.result(object.clone(), text)?;
    outcome.tally.verdict()
}

fn results(plan: &StoreBench, outcome: &Outcome, client: Duration, servers: Option<Duration>) -> Value {
    let Tally { latency_us, errors, wrong, verified } = &outcome.tally;
    let ops = latency_us.len();
    let seconds = outcome.spent.as_secs_f64();
    let per_op = |time: Duration| match ops {
        0 => 0.0,
        ops => (time.as_micros() as f64 / ops as f64 * 100.0).round() / 100.0,
    };
    json!({
        "op": plan.op.to_possible_value().map(|value| value.get_name().to_owned()),
        "conns": plan.conns,
        "pipeline": plan.pipeline,
        "size": plan.size,
        "keys": plan.keys(),
        "keys_per_op": plan.op.keys(),
        "rate": plan.rate,
        "secs": seconds,
        "ops": ops,
        "ops_s": (ops as f64 / seconds).round(),
        "p50_us": latency_us.value_at_quantile(0.5),
        "p99_us": latency_us.value_at_quantile(0.99),
        "p999_us": latency_us.value_at_quantile(0.999),
        "max_us": latency_us.max(),
        "gap_us_max": outcome.gap.as_micros() as u64,
        "misses": outcome.misses,
        "errors": errors,
        "wrong": wrong,
        "verified": verified,
        "client_cpu_us": per_op(client),
        "server_cpu_us": servers.map(per_op),
    })
}

impl Op {
    /// Keys that one request names.
    pub fn keys(self) -> u32 {
        match self {
            Op::Set | Op::Get | Op::Mixed => 1,
            Op::Mget => MGET_KEYS,
        }
    }
}

/// More than any cache of a processor holds, and stored within a second.
const KEYS_DEFAULT: u64 = 10_000;

/// What large values may come to, in each copy, where nobody says how many.
const FILL_BYTES_MAX: u64 = 1_000_000_000;

/// As many as a page of a web site asks for at once.
const MGET_KEYS: u32 = 16;

const EXAMPLES: &str = "\
Examples:
  kumo bench store --op set --conns 64 --secs 10 --format json
  kumo bench store --addr 127.0.0.1:11211 --op get --conns 16 --pipeline 16 --pids 4711,4712
  kumo bench store --op mixed --rate 5000 --size 1000
  kumo bench store --managers 127.0.0.1:19700 --op get --conns 16

With --managers --conns times --pipeline callers share one native client, which gives up when no server answers within
--patience. All but set store every key once before the clock runs. Every value read is compared with what was
written: a wrong or an older one ends with 1, as does a run without any success; a miss is counted, since a cache may
forget. Values below 16 bytes are too short to be told apart: only their length is verified.
--format json: op, conns, pipeline, size, keys, keys_per_op, rate, secs, ops, ops_s, p50_us, p99_us, p999_us, max_us,
gap_us_max (the longest time without any answer), misses, errors, wrong, verified, client_cpu_us and server_cpu_us
(processor time per operation; the latter with --pids). With --rate latency counts from when a request was due.";
