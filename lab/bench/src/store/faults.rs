//! What clients notice of a server that is killed, and of one that is stopped.

use super::kumo::Store;
use super::{Op, Work};
use crate::Options;
use crate::failure::{Failure, Result};
use crate::figures::{bounds, median};
use crate::kumo::Kumo;
use crate::report::{Report, figure};
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

pub const TITLE: &str = "fault of one of three servers, 1,000 requests a second meanwhile";

pub fn measure(kumo: &Kumo, disk: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let mut store = Store::start(kumo, disk, true)?;
    for fault in [Fault::Kill, Fault::Stop] {
        let runs: Result<Vec<Seen>> =
            (0..options.kills).map(|run| seen(&mut store, fault, run as usize % 3)).collect();
        match runs {
            Ok(runs) => tell(fault, &runs, report),
            Err(failure) => report.failed(&format!("{TITLE}, {}", fault.name()), &failure),
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Stop,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kumo, kill -9",
            Fault::Stop => "kumo, SIGSTOP",
        }
    }
}

/// Of one fault.
struct Seen {
    detected_ms: f64,
    /// The longest that a request took, from when it was due.
    stall_ms: f64,
    errors: f64,
}

fn seen(store: &mut Store, fault: Fault, server: usize) -> Result<Seen> {
    let work = Work {
        op: Op::Mixed,
        conns: 16,
        pipeline: 1,
        size: 100,
        keys: super::KEYS,
        secs: SECS,
        rate: Some(RATE),
    };
    let running = std::thread::spawn(store.load_uncounted(&work));
    std::thread::sleep(BEGIN_AFTER);
    let began = Instant::now();
    match fault {
        Fault::Kill => store.kill(server)?,
        Fault::Stop => store.signal(server, Signal::STOP)?,
    }
    let detected = store.until_fault(server).map(|()| began.elapsed());
    let sample = running.join().map_err(|_| Failure::new("the load ended early"))?;
    // Whatever was seen, the next fault is to meet a whole store.
    match fault {
        Fault::Kill => store.start_again(server)?,
        Fault::Stop => store.signal(server, Signal::CONT)?,
    }
    store.until_known(server)?;
    store.attach()?;
    store.until_active(3)?;
    let (detected, sample) = (detected?, sample?);
    Ok(Seen {
        detected_ms: detected.as_secs_f64() * 1000.0,
        stall_ms: sample.max_us / 1000.0,
        errors: sample.errors as f64,
    })
}

fn tell(fault: Fault, runs: &[Seen], report: &mut Report) {
    let column = |what: fn(&Seen) -> f64| runs.iter().map(what).collect::<Vec<f64>>();
    let (detected, stalls) = (column(|seen| seen.detected_ms), column(|seen| seen.stall_ms));
    let worst = |values: &[f64]| bounds(values).map_or(0.0, |(_, worst)| worst);
    let middle = |values: &[f64]| median(values).unwrap_or(0.0);
    let figures = [
        figure("faults", runs.len() as f64, ""),
        figure("declared fault after", middle(&detected), "ms"),
        figure("at worst", worst(&detected), "ms"),
        figure("longest client stall, median", middle(&stalls), "ms"),
        figure("longest client stall, worst", worst(&stalls), "ms"),
        figure("failed requests", column(|seen| seen.errors).iter().sum(), ""),
    ];
    report.fact(TITLE, fault.name(), &figures);
}

/// The load is under way by then.
const BEGIN_AFTER: Duration = Duration::from_millis(1500);

/// Far below what the machine can do: a stall is seen, not a queue of our own.
const RATE: u32 = 1_000;

/// Longer than it takes to notice a stopped process.
const SECS: f64 = 15.0;
