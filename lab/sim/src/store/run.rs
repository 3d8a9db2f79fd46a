//! One seed of a store cluster, or many.

use super::fault::{Fault, Plan};
use super::focus::Focus;
use super::world::World;
use kumo_cluster::Mutation;
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
    /// Keep the text of the trace.
    pub trace: bool,
    /// What the run is about; chance otherwise.
    pub focus: Option<Focus>,
    /// A rule that all nodes leave out.
    pub broken: Option<Mutation>,
    /// Servers do little at once.
    pub narrow: bool,
    /// Servers tell of what their disks did not store, and go on.
    pub heedless: bool,
    /// Clocks differ by a twentieth at most, as when the first seeds failed.
    pub close_clocks: bool,
}

/// What came of one seed.
#[derive(Debug)]
pub struct Report {
    pub seed: u64,
    /// Of everything that happened, message bytes included.
    pub hash: u64,
    pub micros: u64,
    /// Faults that took effect, and operators' wishes that were done.
    pub faults: BTreeMap<Fault, u64>,
    pub calls: u64,
    /// Calls that were answered.
    pub succeeded: u64,
    /// Writes that were refused for lack of copies.
    pub refused: u64,
    /// What disks did not do, and servers that ended because of it.
    pub denied: u64,
    pub ended: u64,
    /// Spaces that were made.
    pub spaces: u64,
    /// The last owner went on without what it had not made safe: more was lost than the store promises to bear, and nobody
    /// knows what. Such a run is not judged by what callers saw.
    pub excused: bool,
    /// Losses that operators accepted, and keys that they struck.
    pub accepted: u64,
    pub keys_lost: u64,
    /// Rebuilds that went on without servers that were missing, and of them those that lost something by it.
    pub forsaken: u64,
    pub forsaken_with_loss: u64,
    pub failure: Option<String>,
    pub lines: Vec<String>,
}

/// Runs one seed, in a thread of its own: the search for an order goes as deep as a key has calls.
pub fn run(seed: u64, options: &Options) -> Report {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    std::thread::scope(|scope| {
        let run = thread.spawn_scoped(scope, || run_here(seed, options)).expect("a thread can be started");
        run.join().expect("a run catches its panics")
    })
}

/// A panic in a core is a failure like any other.
fn run_here(seed: u64, options: &Options) -> Report {
    let mut plan = Plan::new(seed, &options.without, options.focus);
    if options.narrow {
        plan.narrow();
    }
    plan.heedless = options.heedless;
    if options.close_clocks {
        plan.rate_permille = (955, 1045);
    }
    let mut world = World::new(plan, options.trace, options.broken);
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
    /// What all of them were about.
    pub focus: Option<Focus>,
    pub runs: u64,
    pub micros: u64,
    pub faults: BTreeMap<Fault, u64>,
    pub calls: u64,
    pub succeeded: u64,
    pub refused: u64,
    pub denied: u64,
    pub ended: u64,
    pub spaces: u64,
    pub failures: BTreeMap<u64, String>,
    /// Runs in which nothing succeeded.
    pub idle: u64,
    pub excused: u64,
    /// Runs with losses that operators accepted, and those losses.
    pub bereft: u64,
    pub accepted: u64,
    pub keys_lost: u64,
    pub forsaken: u64,
    pub forsaken_with_loss: u64,
}

impl Summary {
    fn add(&mut self, report: Report) {
        self.runs += 1;
        self.micros += report.micros;
        self.calls += report.calls;
        self.succeeded += report.succeeded;
        self.refused += report.refused;
        self.denied += report.denied;
        self.ended += report.ended;
        self.spaces += report.spaces;
        self.idle += u64::from(report.succeeded == 0);
        self.excused += u64::from(report.excused);
        self.bereft += u64::from(report.accepted > 0);
        self.accepted += report.accepted;
        self.keys_lost += report.keys_lost;
        self.forsaken += report.forsaken;
        self.forsaken_with_loss += report.forsaken_with_loss;
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
            return Some(format!("only {} calls were answered in {} runs", self.succeeded, self.runs));
        }
        if self.idle > 0 {
            return Some(format!("nothing was answered in {} of {} runs", self.idle, self.runs));
        }
        let about_losses = self.focus == Some(Focus::Bereft);
        let about_rebuilds = self.focus == Some(Focus::Rebuild);
        let beyond = self.excused + if about_losses || about_rebuilds { 0 } else { self.bereft };
        if beyond * 50 > self.runs.max(50) {
            return Some(format!("copies were lost beyond the promise in {beyond} of {} runs", self.runs));
        }
        if about_rebuilds && self.forsaken * 10 < self.runs {
            return Some(format!(
                "only {} rebuilds went on without missing servers in {} runs",
                self.forsaken, self.runs
            ));
        }
        if about_losses && (self.accepted < self.runs || self.keys_lost < self.runs * 2) {
            return Some(format!(
                "operators gave up only {} keys in {} runs, {} times",
                self.keys_lost, self.runs, self.accepted
            ));
        }
        if self.focus == Some(Focus::Copies) && self.refused < self.runs {
            return Some(format!(
                "only {} writes were refused for lack of copies in {} runs",
                self.refused, self.runs
            ));
        }
        let idle_disks = self.denied < self.runs * DENIED_PER_RUN_MIN || self.ended < self.runs;
        if self.focus == Some(Focus::Disk) && idle_disks {
            return Some(format!(
                "disks failed only {} times and ended only {} servers in {} runs",
                self.denied, self.ended, self.runs
            ));
        }
        let struck = |fault: &Fault| self.faults.get(fault).copied().unwrap_or(0);
        let rare = match self.focus {
            Some(focus) => focus.aims().iter().copied().find(|fault| struck(fault) < self.runs),
            None if self.runs < RUNS_FOR_FAULTS => None,
            None => {
                let mut all = Fault::ALL.into_iter().filter(|fault| fault.is_chance());
                all.find(|fault| struck(fault) * 50 < self.runs)
            }
        };
        rare.map(|fault| format!("{} took effect too rarely: {:?}", fault.name(), self.faults.get(&fault)))
    }
}

/// Runs `count` seeds from `first` on, `jobs` at a time. `progress` is told how many are done and each failure;
/// `false` from it ends the whole.
pub fn run_many(
    first: u64,
    count: u64,
    jobs: usize,
    options: &Options,
    progress: impl Fn(u64, Option<(u64, &str)>) -> bool + Sync,
) -> Summary {
    let next = AtomicU64::new(0);
    let summary = Mutex::new(Summary { focus: options.focus, ..Summary::default() });
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
                    if !progress(summary.runs, failure.as_deref().map(|failure| (seed, failure))) {
                        next.store(count, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    summary.into_inner().expect("no run panics while it holds the summary")
}

/// Some kilobytes a call, for a few thousand calls.
const STACK_BYTES: usize = 64 << 20;
/// Answered calls a run must have on average.
const CALLS_PER_RUN_MIN: u64 = 200;
/// What disks must fail to do in a run that is about them, on average.
const DENIED_PER_RUN_MIN: u64 = 50;
/// With so many runs every fault must have struck.
const RUNS_FOR_FAULTS: u64 = 300;

/// Every rule that can be left out.
pub const RULES: [Mutation; 43] = [
    Mutation::ReplicaShowsDirty,
    Mutation::PrimaryShowsPending,
    Mutation::NoSettlement,
    Mutation::SettlementNotRestarted,
    Mutation::FaultBeforeLeaseEnd,
    Mutation::ReadWithoutLease,
    Mutation::NegativeWithoutLease,
    Mutation::WriteRingPrimary,
    Mutation::OldMembersForgotten,
    Mutation::OldMembersNotCarried,
    Mutation::PendingNotSentToNew,
    Mutation::CopyPending,
    Mutation::CopyPendingIds,
    Mutation::CopyFromAnyOwner,
    Mutation::CatchingOldWins,
    Mutation::CollectDuringCopy,
    Mutation::IdsNotCarried,
    Mutation::NoIdFloor,
    Mutation::LateTryExecuted,
    Mutation::CommittedTakenAgain,
    Mutation::UnlistedKept,
    Mutation::AcknowledgedAhead,
    Mutation::NumberUsedAgain,
    Mutation::MarkLowered,
    Mutation::UnreadableDisowned,
    Mutation::RestartGoesOn,
    Mutation::NewMasterDoesNotWait,
    Mutation::StaleTermAccepted,
    Mutation::LeaseWhileCondemned,
    Mutation::SwitchUnreported,
    Mutation::ClearedUnconfirmed,
    Mutation::OldReportsCount,
    Mutation::LeftOutForgotten,
    Mutation::CopyUnsafe,
    Mutation::FlushEarly,
    Mutation::FlushPassesPending,
    Mutation::FlushAgain,
    Mutation::FewCopiesTaken,
    Mutation::FirstLostLeads,
    Mutation::LeftoversForgotten,
    Mutation::RebuiltTooSoon,
    Mutation::RisenTold,
    Mutation::GatewaysNumberedAgain,
];
