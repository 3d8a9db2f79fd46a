//! [`Attendants`]: the two threads that look after an engine's files.

use crate::engine::Core;
use kumo_cluster::Fault;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One thread syncs at intervals and makes the next segment ahead; the other closes and rewrites segments, which
/// takes long. None in memory mode.
#[derive(Default)]
pub struct Attendants {
    stopping: Arc<Stopping>,
    threads: Vec<JoinHandle<()>>,
}

impl Attendants {
    pub fn start(core: &Arc<Core>) -> Attendants {
        let stopping = Arc::new(Stopping::default());
        let mut threads = Vec::new();
        let jobs: [(&str, Job); 2] = [("store-sync", sync), ("store-compact", compact)];
        for (name, job) in jobs {
            let (core, stopping) = (core.clone(), stopping.clone());
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || job(&core, &stopping));
            // The system has no thread left for us: nothing of this process could go on.
            threads.push(thread.expect("a thread can be started"));
        }
        Attendants { stopping, threads }
    }

    /// Ends the threads and waits for them.
    pub fn stop(&mut self) {
        self.stopping.stop();
        for thread in self.threads.drain(..) {
            // A panic there has been printed; there is nothing left to do about it.
            let _ = thread.join();
        }
    }
}

/// What a thread does until it is told to stop.
type Job = fn(&Core, &Stopping);

/// Syncs at intervals, and makes segments ahead.
fn sync(core: &Core, stopping: &Stopping) {
    let Some(files) = core.files() else { return };
    let interval = files.log.syncs_at_intervals();
    while !stopping.wait(interval.unwrap_or(PREPARE_PERIOD).min(PREPARE_PERIOD).max(SYNC_INTERVAL_MIN)) {
        core.keep_ready();
    }
}

impl Core {
    /// What is due at every interval.
    pub fn keep_ready(&self) {
        let Some(files) = self.files() else { return };
        files.folder.keep_room();
        let prepared = files.log.prepare();
        let listed = files.list();
        let reserved = files.log.keep_reserve();
        let synced = files.log.syncs_at_intervals().map_or(Ok(()), |_| files.log.sync());
        // A full disk is told to whoever writes, and says nothing of the sync: only of that does nobody else hear.
        for done in [prepared, listed, reserved, synced] {
            if let Err(fault @ (Fault::Io(_) | Fault::Damaged(_))) = done {
                self.troubled(fault);
            }
        }
    }
}

/// Closes and rewrites segments.
fn compact(core: &Core, stopping: &Stopping) {
    let Some(files) = core.files() else { return };
    let rate = files.log.options.compaction_bytes_per_second.max(1);
    let mut pause = COMPACTION_PERIOD;
    while !stopping.wait(pause) {
        let mut pace = Pace { stopping, rate, since: Instant::now(), bytes: 0 };
        pause = match core.tend(&mut |bytes| pace.go_on(bytes)) {
            Ok(()) => {
                core.untroubled();
                COMPACTION_PERIOD
            }
            Err(fault) => {
                core.troubled(fault);
                COMPACTION_RETRY
            }
        };
    }
}

/// Holds compaction back to its rate.
struct Pace<'a> {
    stopping: &'a Stopping,
    rate: u64,
    since: Instant,
    bytes: u64,
}

impl Pace<'_> {
    /// Waits as long as so many more bytes take. False: stop.
    fn go_on(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        let due = Duration::from_secs_f64(self.bytes as f64 / self.rate as f64);
        let early = due.saturating_sub(self.since.elapsed());
        if early > PACE_STEP {
            return !self.stopping.wait(early);
        }
        !self.stopping.is_stopping()
    }
}

/// Tells the threads to end.
#[derive(Default)]
struct Stopping {
    asked: Mutex<bool>,
    wake: Condvar,
}

impl Stopping {
    fn stop(&self) {
        *self.asked.lock().expect("no panic under this lock") = true;
        self.wake.notify_all();
    }

    fn is_stopping(&self) -> bool {
        *self.asked.lock().expect("no panic under this lock")
    }

    /// Waits so long, or until asked to stop: true.
    fn wait(&self, period: Duration) -> bool {
        let asked = self.asked.lock().expect("no panic under this lock");
        let waited = self.wake.wait_timeout_while(asked, period, |asked| !*asked);
        *waited.expect("no panic under this lock").0
    }
}

/// How often to see whether the next segment is needed: much shorter than it takes to fill half of one.
const PREPARE_PERIOD: Duration = Duration::from_millis(100);

/// A shorter interval would be a busy loop.
const SYNC_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// How often to look for segments to close or rewrite.
const COMPACTION_PERIOD: Duration = Duration::from_millis(500);

/// After a failure, for instance of a full disk.
const COMPACTION_RETRY: Duration = Duration::from_secs(5);

/// Waits below this are not worth a wake-up.
const PACE_STEP: Duration = Duration::from_millis(2);
