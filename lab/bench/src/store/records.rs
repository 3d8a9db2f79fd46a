//! What many records cost: memory, the time to start with them, and the time to move them to a fourth server.

use super::kumo::Store;
use super::{Op, Server, Work};
use crate::Options;
use crate::failure::{Failure, Result};
use crate::figures::{bounds, median};
use crate::kumo::Kumo;
use crate::process::{Process, until};
use crate::report::{Figure, Report, figure};
use crate::sample::Sample;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const MEMORY: &str = "memory per record and copy, values of 100 B";
pub const START_UP: &str = "start-up of three servers, values of 100 B";
pub const ATTACH: &str = "attach of a fourth server, 2,000 gets a second meanwhile";

/// Of kumo in memory and on disk, and of the peers.
pub fn memory(kumo: &Kumo, disk: &Path, servers: &[Box<dyn Server>], options: &Options, report: &mut Report) {
    for (name, on_disk) in [("kumo in memory", false), ("kumo on disk", true)] {
        let figures = Store::start(kumo, disk, on_disk).and_then(|store| {
            let keepers: Vec<&Process> = store.servers().iter().collect();
            record_bytes(&store, &keepers, !on_disk, options)
        });
        match figures {
            Ok(figures) => report.fact(MEMORY, name, &figures),
            Err(failure) => report.failed(&format!("{MEMORY}, {name}"), &failure),
        }
    }
    for server in servers {
        match record_bytes(server.as_ref(), &server.processes(), true, options) {
            Ok(figures) => report.fact(MEMORY, server.name(), &figures),
            Err(failure) => report.failed(&format!("{MEMORY}, {}", server.name()), &failure),
        }
    }
}

/// By how much the memory of those who keep records grows with the records.
fn record_bytes(
    server: &dyn Server,
    keepers: &[&Process],
    in_memory: bool,
    options: &Options,
) -> Result<Vec<Figure>> {
    let sum = || keepers.iter().map(|process| process.memory_bytes()).sum::<Result<u64>>();
    // What a server takes for its first requests is not what a record takes.
    fill(server, FEW)?;
    let before = sum()?;
    fill(server, options.records)?;
    let grown = sum()?.saturating_sub(before) as f64;
    let records = f64::from(options.records - FEW) * f64::from(server.copies());
    let mut figures = vec![
        figure("records", options.records.into(), ""),
        figure("copies", server.copies().into(), ""),
        figure("RSS", grown / records, "bytes"),
    ];
    if in_memory {
        figures.push(figure("beyond key and value", grown / records - RECORD_BYTES, "bytes"));
    }
    Ok(figures)
}

/// Stores the first `records` keys.
fn fill(server: &dyn Server, records: u32) -> Result<()> {
    let work = Work { op: Op::Get, conns: 16, pipeline: 16, size: 100, keys: records, secs: 0.1, rate: None };
    server.load(&work)().map(drop)
}

/// On one store, since it must be filled for both.
pub fn start_up_and_attach(kumo: &Kumo, disk: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let mut store = Store::start(kumo, disk, true)?;
    fill(&store, FEW)?;
    let few = if options.wants(START_UP) { Some(start_up(&mut store)) } else { None };
    fill(&store, options.records)?;
    if let Some(few) = few {
        let figures = few.and_then(|few| {
            let many = start_up(&mut store)?;
            Ok([
                figure("records", options.records.into(), ""),
                figure("stores open after", many.opened_ms, "ms"),
                figure("first get answered after", many.served_ms, "ms"),
                figure("all active after", many.active_ms, "ms"),
                figure("with 10,000 records stores open after", few.opened_ms, "ms"),
                figure("first get answered then after", few.served_ms, "ms"),
            ])
        });
        match figures {
            Ok(figures) => report.fact(START_UP, "kumo", &figures),
            Err(failure) => report.failed(START_UP, &failure),
        }
    }
    if options.wants(ATTACH) {
        match attach(&mut store, options) {
            Ok(figures) => report.fact(ATTACH, "kumo", &figures),
            Err(failure) => report.failed(ATTACH, &failure),
        }
    }
    Ok(())
}

/// From when the servers were started.
struct StartUp {
    /// All tell what they keep.
    opened_ms: f64,
    /// A key is read through the gateway: the managers know the servers again.
    served_ms: f64,
    active_ms: f64,
}

/// All servers end and start again.
fn start_up(store: &mut Store) -> Result<StartUp> {
    for index in 0..3 {
        store.terminate(index)?;
    }
    let began = Instant::now();
    let milliseconds = || began.elapsed().as_secs_f64() * 1000.0;
    for index in 0..3 {
        store.start_again(index)?;
    }
    until("the servers answer after a restart", || {
        (0..3).all(|index| store.items(index).is_ok()).then_some(())
    })?;
    let opened_ms = milliseconds();
    until("a key is read after a restart", || store.has(FIRST_KEY).then_some(()))?;
    let served_ms = milliseconds();
    until("all servers are active after a restart", || {
        // Which of them must be attached again is for the managers to say.
        let is_active = store.is_active(3);
        if !is_active {
            store.try_attach();
        }
        is_active.then_some(())
    })?;
    Ok(StartUp { opened_ms, served_ms, active_ms: milliseconds() })
}

fn attach(store: &mut Store, options: &Options) -> Result<Vec<Figure>> {
    store.add_server()?;
    let idle = (0..IDLE_RUNS).map(|_| foreground(store, options.secs)()).collect::<Result<Vec<Sample>>>()?;
    let is_over = AtomicBool::new(false);
    let mut spent = Duration::ZERO;
    let store = &*store;
    let meanwhile = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut samples = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                samples.push(foreground(store, options.secs)()?);
            }
            Ok::<_, Failure>(samples)
        });
        // The load is under way by then.
        std::thread::sleep(BEGIN_AFTER);
        let began = Instant::now();
        let attached = store.attach();
        spent = began.elapsed();
        is_over.store(true, Ordering::Relaxed);
        let samples = watching.join().map_err(|_| Failure::new("the load ended early"))?;
        attached.and(samples)
    })?;
    let moved = store.items(3)?;
    let (idle, busy) = (p99s(&idle), p99s(&meanwhile));
    let middle = |values: &[f64]| median(values).unwrap_or(0.0);
    Ok(vec![
        figure("records", options.records.into(), ""),
        figure("moved", moved, ""),
        figure("took", spent.as_secs_f64() * 1000.0, "ms"),
        figure("records a second", moved / spent.as_secs_f64(), ""),
        figure("p99 of gets idle", middle(&idle), "us"),
        figure("p99 meanwhile", middle(&busy), "us"),
        figure("worst p99 meanwhile", bounds(&busy).map_or(0.0, |(_, worst)| worst), "us"),
        figure("p99 ratio", middle(&busy) / middle(&idle).max(1.0), "x"),
        figure("runs meanwhile", busy.len() as f64, ""),
    ])
}

fn p99s(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.p99_us).collect()
}

fn foreground(store: &Store, secs: f64) -> crate::load::Load {
    let work =
        Work { op: Op::Get, conns: 16, pipeline: 1, size: 100, keys: FEW, secs, rate: Some(FOREGROUND_RATE) };
    store.load_uncounted(&work)
}

/// The load is under way by then.
const BEGIN_AFTER: Duration = Duration::from_millis(500);

/// Far below what the machine can do: what is measured is the attach, not a queue of our own.
const FOREGROUND_RATE: u32 = 2_000;

/// Runs for the latency of gets when nothing moves.
const IDLE_RUNS: u32 = 3;

/// Records that are not many.
const FEW: u32 = 10_000;

/// The bytes of a key and a value.
const RECORD_BYTES: f64 = 121.0;

const FIRST_KEY: &str = "kumo-bench-0000000000";
