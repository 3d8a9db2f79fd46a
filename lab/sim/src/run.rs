//! One seed, or many.

use crate::fault::{Fault, Plan};
use crate::world::World;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a seed is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Faults left out, to find the one that matters.
    pub without: BTreeSet<Fault>,
    /// Clients of the first kinds only.
    pub plain: bool,
    /// Keep the text of the trace.
    pub trace: bool,
}

/// What came of one seed.
#[derive(Debug)]
pub struct Report {
    pub seed: u64,
    /// Of everything that happened, message bytes included.
    pub hash: u64,
    pub micros: u64,
    /// Faults that took effect.
    pub faults: BTreeMap<Fault, u64>,
    pub calls: u64,
    /// Calls that were answered as asked.
    pub succeeded: u64,
    /// How often two replicas were compared at one position.
    pub compared: u64,
    /// How often a session was told that events were omitted.
    pub overflows: u64,
    /// A change of members crossed a crash, and the cell may have stopped.
    pub excused: bool,
    pub failure: Option<String>,
    pub lines: Vec<String>,
}

/// Runs one seed. A panic in a core is a failure like any other.
pub fn run(seed: u64, options: &Options) -> Report {
    let mut plan = Plan::new(seed, &options.without);
    if !options.plain {
        plan.widen();
    }
    let mut world = World::new(plan, options.trace);
    let panic = catch_unwind(AssertUnwindSafe(|| world.run())).err();
    let mut report = world.report();
    if let Some(panic) = panic {
        report.failure = Some(format!("panic: {}", text(panic.as_ref())));
    }
    report
}

fn text(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) => (*text).to_owned(),
        (None, None) => "without a message".to_owned(),
    }
}

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Summary {
    pub runs: u64,
    pub micros: u64,
    pub faults: BTreeMap<Fault, u64>,
    pub calls: u64,
    pub succeeded: u64,
    pub compared: u64,
    pub overflows: u64,
    /// There were clients of the first kinds only.
    pub plain: bool,
    pub failures: BTreeMap<u64, String>,
    /// Runs in which nothing succeeded.
    pub idle: u64,
    /// Runs in which the cell may have stopped by chance.
    pub excused: u64,
}

impl Summary {
    fn add(&mut self, report: Report) {
        self.runs += 1;
        self.micros += report.micros;
        self.calls += report.calls;
        self.succeeded += report.succeeded;
        self.compared += report.compared;
        self.overflows += report.overflows;
        self.idle += u64::from(report.succeeded == 0);
        self.excused += u64::from(report.excused);
        for (fault, count) in report.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        if let Some(failure) = report.failure {
            self.failures.insert(report.seed, failure);
        }
    }

    /// A batch in which too little happened has shown nothing.
    pub fn too_little(&self) -> Option<String> {
        if self.succeeded < self.runs * CALLS_PER_RUN_MIN {
            return Some(format!("only {} calls succeeded in {} runs", self.succeeded, self.runs));
        }
        if self.idle * 100 > self.runs {
            return Some(format!("nothing succeeded in {} of {} runs", self.idle, self.runs));
        }
        if self.excused * 50 > self.runs {
            return Some(format!("{} of {} runs may have stopped by chance", self.excused, self.runs));
        }
        if self.runs < RUNS_FOR_FAULTS {
            return None;
        }
        if !self.plain && self.overflows * 100 < self.runs {
            return Some(format!("events were omitted only {} times in {} runs", self.overflows, self.runs));
        }
        let rare =
            Fault::ALL.iter().find(|fault| self.faults.get(fault).copied().unwrap_or(0) * 100 < self.runs);
        rare.map(|fault| format!("{} took effect too rarely: {:?}", fault.name(), self.faults.get(fault)))
    }
}

/// Runs `count` seeds from `first` on, `jobs` at a time. `progress` is told how many are done and each failure.
pub fn run_many(
    first: u64,
    count: u64,
    jobs: usize,
    options: &Options,
    progress: impl Fn(u64, Option<(u64, &str)>) + Sync,
) -> Summary {
    let next = AtomicU64::new(0);
    let summary = Mutex::new(Summary { plain: options.plain, ..Summary::default() });
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let report = run(first + index, options);
                    let mut summary = summary.lock().expect("no run panics while it holds the summary");
                    let failure = report.failure.clone();
                    let seed = report.seed;
                    summary.add(report);
                    progress(summary.runs, failure.as_deref().map(|failure| (seed, failure)));
                }
            });
        }
    });
    summary.into_inner().expect("no run panics while it holds the summary")
}

/// Successful calls a run must have on average.
const CALLS_PER_RUN_MIN: u64 = 50;
/// With so many runs every fault must have struck.
const RUNS_FOR_FAULTS: u64 = 300;
