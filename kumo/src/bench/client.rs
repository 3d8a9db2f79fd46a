//! [`Bencher`]: one client of a benchmark: a session, one operation after another, and what must hold of each.

use super::tally::Tally;
use super::value::Values;
use super::{CellBench, Op, cpu};
use crate::failure::Failure;
use bytes::Bytes;
use pfs::{Error, Options, Session, SessionState};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// What all clients of a run have in common.
pub struct Shared {
    plan: CellBench,
    values: Values,
    began: OnceLock<Instant>,
    /// When the last client ended, and the processor time by then.
    ended: AtomicU64,
    cpu: AtomicU64,
    /// When any client last had a success, and the longest time in between; microseconds from the start.
    success: AtomicU64,
    gap: AtomicU64,
    /// The newest fencing number of the contended lock, and whether someone is inside.
    number: AtomicU64,
    inside: AtomicBool,
    /// Sums over the contended queue: what was posted less what was taken.
    posted: AtomicI64,
    balance: AtomicI64,
    uncertain: AtomicBool,
}

impl Shared {
    pub fn new(plan: CellBench) -> Shared {
        Shared {
            values: Values::new(plan.size as usize),
            plan,
            began: OnceLock::new(),
            ended: AtomicU64::new(0),
            cpu: AtomicU64::new(0),
            success: AtomicU64::new(0),
            gap: AtomicU64::new(0),
            number: AtomicU64::new(0),
            inside: AtomicBool::new(false),
            posted: AtomicI64::new(0),
            balance: AtomicI64::new(0),
            uncertain: AtomicBool::new(false),
        }
    }

    pub fn start(&self, now: Instant) {
        let _ = self.began.set(now);
    }

    pub fn gap_us_max(&self) -> u64 {
        self.gap.load(Ordering::Relaxed)
    }

    pub fn ended_at(&self) -> Option<Instant> {
        self.began.get().map(|began| *began + Duration::from_micros(self.ended.load(Ordering::Relaxed)))
    }

    pub fn cpu_at_end(&self) -> Duration {
        Duration::from_micros(self.cpu.load(Ordering::Relaxed))
    }

    /// Messages of the contended queue that were lost, doubled or changed; only known when no call failed.
    pub fn wrong_at_end(&self) -> u64 {
        let counted = !self.uncertain.load(Ordering::Relaxed);
        let lost = self.posted.load(Ordering::Relaxed) != 0 || self.balance.load(Ordering::Relaxed) != 0;
        u64::from(counted && lost)
    }

    fn micros(&self, now: Instant) -> u64 {
        self.began.get().map_or(0, |began| now.saturating_duration_since(*began).as_micros() as u64)
    }

    fn succeeded(&self, now: Instant) {
        let now = self.micros(now);
        let before = self.success.swap(now, Ordering::Relaxed);
        self.gap.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }

    fn client_ended(&self) {
        self.ended.fetch_max(self.micros(Instant::now()), Ordering::Relaxed);
        self.cpu.fetch_max(cpu().as_micros() as u64, Ordering::Relaxed);
    }
}

pub struct Bencher {
    client: u64,
    options: Options,
    session: Session,
    shared: Arc<Shared>,
    /// The file, lock or queue.
    name: String,
    tally: Tally,
    /// Of the newest value sent, and the newest acknowledged.
    sent: u64,
    acknowledged: u64,
}

impl Bencher {
    pub async fn open(index: u32, options: Options, shared: Arc<Shared>) -> Result<Bencher, Failure> {
        let session = Session::open(&options).await?;
        let place = if shared.plan.contended { SHARED.to_owned() } else { index.to_string() };
        let name = format!("{}/{place}", folder());
        let client = u64::from(index);
        Ok(Bencher { client, options, session, shared, name, tally: Tally::new(), sent: 0, acknowledged: 0 })
    }

    /// What must be there before the clock runs.
    pub async fn prepare(&mut self) -> Result<(), Failure> {
        match self.shared.plan.op {
            Op::Write | Op::Read => {
                self.session.put(&self.name, self.shared.values.make(self.client, 0)).await?;
            }
            Op::Lock | Op::Queue => {}
        }
        Ok(())
    }

    pub async fn run(mut self) -> Result<Tally, Failure> {
        let until = Instant::now() + self.shared.plan.secs;
        loop {
            let began = Instant::now();
            if began >= until {
                break;
            }
            match self.operate().await {
                Ok(()) => {
                    let now = Instant::now();
                    self.tally.success(now - began);
                    self.shared.succeeded(now);
                }
                Err(_) => self.failed().await,
            }
        }
        self.shared.client_ended();
        self.verify_end().await?;
        let _ = self.session.close().await;
        Ok(self.tally)
    }

    async fn operate(&mut self) -> Result<(), Error> {
        match self.shared.plan.op {
            Op::Write => self.write().await,
            Op::Read => self.read().await,
            Op::Lock => self.lock().await,
            Op::Queue => self.queue().await,
        }
    }

    async fn write(&mut self) -> Result<(), Error> {
        self.sent += 1;
        let value = self.shared.values.make(self.client, self.sent);
        let written = self.session.put(&self.name, value).await?;
        self.acknowledged = self.sent;
        self.tally.check(written.count == self.shared.plan.size && written.length == self.shared.plan.size);
        Ok(())
    }

    async fn read(&mut self) -> Result<(), Error> {
        let piece = self.session.read_at(&self.name, 0, pfs::READ_BYTES_MAX).await?;
        let whole = self.shared.plan.size.min(pfs::READ_BYTES_MAX);
        let right = piece.bytes.len() as u64 == whole
            && (!self.is_readable() || self.shared.values.read(&piece.bytes).is_some());
        self.tally.check(right);
        Ok(())
    }

    /// Whether a read shows a whole signed value.
    fn is_readable(&self) -> bool {
        self.shared.values.are_signed() && self.shared.plan.size <= pfs::READ_BYTES_MAX
    }

    async fn lock(&mut self) -> Result<(), Error> {
        let guard = self.session.lock_exclusive(&self.name).await?;
        if self.shared.plan.contended {
            let alone = !self.shared.inside.swap(true, Ordering::Relaxed);
            let grown = self.shared.number.fetch_max(guard.number(), Ordering::Relaxed) < guard.number();
            self.tally.check(alone && grown);
            self.shared.inside.store(false, Ordering::Relaxed);
        } else {
            self.tally.check(guard.number() > self.acknowledged);
            self.acknowledged = guard.number();
        }
        guard.unlock().await
    }

    async fn queue(&mut self) -> Result<(), Error> {
        self.sent += 1;
        let value = self.shared.values.make(self.client, self.sent);
        self.count(&value, 1);
        self.session.post(&self.name, value.clone()).await?;
        let message = self.session.wait(&self.name).await?;
        self.count(&message.data, -1);
        // Alone at a queue one takes what one posted; with others, any value that was posted.
        let right = match self.shared.plan.contended {
            false => message.data == value,
            true => !self.shared.values.are_signed() || self.shared.values.read(&message.data).is_some(),
        };
        self.tally.check(right);
        Ok(())
    }

    fn count(&self, value: &Bytes, sign: i64) {
        if let Some((client, number)) = self.shared.values.read(value) {
            let mixed = (client << 40 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15) as i64;
            self.shared.posted.fetch_add(sign, Ordering::Relaxed);
            self.shared.balance.fetch_add(mixed.wrapping_mul(sign), Ordering::Relaxed);
        }
    }

    async fn failed(&mut self) {
        self.tally.errors += 1;
        self.shared.uncertain.store(true, Ordering::Relaxed);
        if *self.session.state().borrow() == SessionState::Lost {
            match Session::open(&self.options).await {
                Ok(session) => self.session = session,
                Err(_) => tokio::time::sleep(REOPEN_INTERVAL).await,
            }
        }
    }

    /// A file holds the newest value acknowledged, or a later one whose outcome is not known.
    async fn verify_end(&mut self) -> Result<(), Failure> {
        let plan = &self.shared.plan;
        if plan.op == Op::Write && self.shared.values.are_signed() {
            let piece = self.session.read(&self.name).await?;
            let right = match self.shared.values.read(&piece.bytes) {
                Some((client, number)) if client == self.client => {
                    (self.acknowledged..=self.sent).contains(&number)
                }
                Some(_) => plan.contended,
                None => false,
            };
            self.tally.check(right);
        }
        match plan.op {
            // Others may still read the shared file.
            Op::Write | Op::Read if !plan.contended => self.session.delete(&self.name).await?,
            Op::Write | Op::Read | Op::Lock | Op::Queue => {}
        }
        Ok(())
    }
}

/// Removes what is left when all clients have ended. What cannot be removed harms nobody: it is no failure of the run.
pub async fn sweep(plan: &CellBench, options: &Options) {
    if !matches!(plan.op, Op::Write | Op::Read) {
        return;
    }
    let Ok(session) = Session::open(options).await else { return };
    if plan.contended {
        let _ = session.delete(&format!("{}/{SHARED}", folder())).await;
    }
    let _ = session.rmdir(&folder()).await;
    // Not while others measure too.
    let _ = session.rmdir(FOLDER).await;
    let _ = session.close().await;
}

fn folder() -> String {
    format!("{FOLDER}/{}", std::process::id())
}

const FOLDER: &str = "/bench";

/// The name that contending clients have in common.
const SHARED: &str = "all";

/// Between attempts to open a session while the cell has no master.
const REOPEN_INTERVAL: Duration = Duration::from_millis(20);
