//! `kumo bench`: how fast a cell or a store is, with every value verified.

mod client;
mod processes;
mod store;
mod tally;
mod value;

use crate::failure::Failure;
use crate::output::{Out, row, table};
use crate::target::{Target, seconds};
use clap::{Args, Subcommand, ValueEnum};
use client::{Bencher, Shared};
use pfs::{Options, WRITE_BYTES_MAX};
use processes::Processes;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tally::Tally;
use tokio::sync::Barrier;
use tokio::time::Instant;

/// Measure
#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    Cell(CellBench),
    Store(store::StoreBench),
}

/// Operations of a cell, each client one after another in a session and connection of its own
#[derive(Args, Clone)]
#[command(after_help = EXAMPLES)]
pub struct CellBench {
    #[arg(long, value_enum)]
    pub op: Op,
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub clients: u32,
    /// Bytes of a value or message
    #[arg(long, value_name = "BYTES", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=WRITE_BYTES_MAX))]
    pub size: u64,
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub secs: Duration,
    /// All clients on one file, lock or queue; otherwise each has its own
    #[arg(long)]
    pub contended: bool,
    /// Reads are linear, at the master; otherwise at the least-loaded replica
    #[arg(long)]
    pub sync: bool,
    /// Processes whose processor time is counted: all replicas
    #[arg(long, value_name = "PID,PID...", value_delimiter = ',')]
    pub pids: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Op {
    /// Replace a file
    Write,
    /// Read a file
    Read,
    /// Lock and unlock
    Lock,
    /// Post a message and take one
    Queue,
}

pub async fn run(bench: Bench, target: Target, out: Out) -> Result<(), Failure> {
    match bench.command {
        BenchCommand::Cell(cell) => measure(cell, target, out).await,
        BenchCommand::Store(_) if target.cell.is_some() || target.any => {
            Err(Failure::usage("a store is named by --addr or --managers; --cell and --any are for cells"))
        }
        BenchCommand::Store(plan) => store::run(&plan, target.patience, &out).await,
    }
}

async fn measure(plan: CellBench, target: Target, out: Out) -> Result<(), Failure> {
    let mut options = target.options()?;
    options.sync = plan.sync;
    let processes = Processes::new(&plan.pids)?;
    let clients = plan.clients as usize;
    let shared = Arc::new(Shared::new(plan.clone()));
    let (ready, go) = (Arc::new(Barrier::new(clients + 1)), Arc::new(Barrier::new(clients + 1)));
    let mut tasks = Vec::new();
    for index in 0..plan.clients {
        let bencher = prepare(index, options.clone(), shared.clone());
        tasks.push(tokio::spawn(drive(bencher, ready.clone(), go.clone())));
    }
    // A client that could not start still comes to both barriers, so nobody waits for ever.
    ready.wait().await;
    shared.start(Instant::now());
    let (began, cpu, servers_before) = (Instant::now(), cpu(), processes.cpu()?);
    go.wait().await;
    let mut tally = Tally::new();
    let mut first_error = None;
    for task in tasks {
        match task.await.map_err(|error| Failure::refused(format!("a client ended early: {error}")))? {
            Ok(one) => tally.add(&one),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    if let Some(error) = first_error {
        return Err(error);
    }
    let spent = shared.ended_at().unwrap_or_else(Instant::now).saturating_duration_since(began);
    tally.wrong += shared.wrong_at_end();
    let cpu = shared.cpu_at_end().saturating_sub(cpu);
    let servers = processes.cpu()?.zip(servers_before).map(|(after, before)| after.saturating_sub(before));
    client::sweep(&plan, &options).await;
    let object = results(&plan, &tally, &shared, spent, cpu, servers);
    report(object, &tally, out)
}

async fn prepare(index: u32, options: Options, shared: Arc<Shared>) -> Result<Bencher, Failure> {
    let mut bencher = Bencher::open(index, options, shared).await?;
    bencher.prepare().await?;
    Ok(bencher)
}

async fn drive(
    bencher: impl Future<Output = Result<Bencher, Failure>>,
    ready: Arc<Barrier>,
    go: Arc<Barrier>,
) -> Result<Tally, Failure> {
    let bencher = bencher.await;
    ready.wait().await;
    go.wait().await;
    bencher?.run().await
}

fn report(object: Value, tally: &Tally, out: Out) -> Result<(), Failure> {
    let text = || {
        let rows: Vec<Vec<String>> = object
            .as_object()
            .map(|fields| fields.iter().map(|(name, value)| row([name, &plain(value)])).collect())
            .unwrap_or_default();
        table(&rows)
    };
    out.result(object.clone(), text)?;
    tally.verdict()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn results(
    plan: &CellBench,
    tally: &Tally,
    shared: &Shared,
    spent: Duration,
    cpu: Duration,
    servers: Option<Duration>,
) -> Value {
    let percentile = |part: f64| tally.latency_us.value_at_quantile(part);
    let ops = tally.latency_us.len();
    let per_op = |time: Duration| match ops {
        0 => 0.0,
        ops => (time.as_micros() as f64 / ops as f64 * 100.0).round() / 100.0,
    };
    json!({
        "op": plan.op.to_possible_value().map(|value| value.get_name().to_owned()),
        "clients": plan.clients,
        "size": plan.size,
        "contended": plan.contended,
        "sync": plan.sync,
        "secs": spent.as_secs_f64(),
        "ops": ops,
        "ops_s": (ops as f64 / spent.as_secs_f64()).round(),
        "p50_us": percentile(0.5),
        "p99_us": percentile(0.99),
        "p999_us": percentile(0.999),
        "max_us": tally.latency_us.max(),
        "gap_us_max": shared.gap_us_max(),
        "errors": tally.errors,
        "wrong": tally.wrong,
        "verified": tally.verified,
        "client_cpu_us": per_op(cpu),
        "server_cpu_us": servers.map(per_op),
    })
}

/// Processor time of this process.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

const EXAMPLES: &str = "\
Examples:
  kumo bench cell --op write --clients 64 --secs 10 --format json
  kumo bench cell --op lock --clients 16 --contended

Values are verified: every read, message and fencing number, and every client's file at the end; a wrong one ends
with 1, as does a run without any success. --format json: op, clients, size, contended, sync, secs, ops, ops_s,
p50_us, p99_us, p999_us, max_us, gap_us_max (the longest time in which no client had a success), errors, wrong, verified,
client_cpu_us and server_cpu_us (processor time per operation; the latter with --pids).
A lock operation is a lock and its unlock, a queue operation a post and a wait.";
