//! A master that is stopped and goes on: what it still believes must not be told as the truth.

use crate::load::Load;
use crate::process::{Cell, bounded, until};
use crate::raw::{self, Raw};
use pfs::Session;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_masters_stale_reads_are_no_linear_reads() {
    bounded(async {
        let cell = Cell::start(&["--session-timeout", "60"]).await;
        let load = Load::start(&cell).await;
        let register = Register::start(&cell).await;
        let (mut redirected, mut fresh) = (0, 0);
        for pause in 0..PAUSES {
            load.further(200).await;
            let master = cell.master().await;
            let mut at_master = Raw::client(cell.address(master));
            let session = at_master.open(u128::from(pause) + 1);
            cell.pause(master);
            let paused = Instant::now();
            let next = cell.master_but(Some(master)).await;
            // Others write, and are told so, while the old master stands still.
            let newest = register.writes_more().await;
            until("the pause is over", async || (paused.elapsed() >= PAUSE).then_some(())).await;
            at_master.ask_linear(session, 1, REGISTER);
            cell.resume(master);
            match at_master.linear_answer(1) {
                None => redirected += 1,
                Some(value) => {
                    assert!(number(&value) >= newest, "the old master answers {value:?} after {newest}");
                    fresh += 1;
                }
            }
            steps_down(&cell, master, next).await;
            cell.voting().await;
        }
        let downs: usize = (0..3).map(|index| cell.log(index).matches("stepped down").count()).sum();
        assert!(downs >= PAUSES as usize, "every paused master stepped down");
        let (writes, reads) = register.finish().await;
        let tally = load.finish(&cell).await;
        println!(
            "SIGSTOP of the master: {PAUSES} of {PAUSES} took effect ({redirected} old masters sent the reader on, \
             {fresh} answered from the new state), {tally}; {reads} linear reads beside {writes} writes, none old"
        );
        assert!(writes >= 100 && reads >= 100, "{writes} writes, {reads} reads");
    })
    .await;
}

/// The old master must itself say that another leads, or lead again by a round of its own.
async fn steps_down(cell: &Cell, old: usize, next: usize) {
    let before = raw::status(cell.address(next)).map(|status| status.round);
    until("the old master steps down", async || {
        let status = raw::status(cell.address(old))?;
        let another = status.master.is_some_and(|master| master != cell.address(old));
        (another || Some(status.round) > before).then_some(())
    })
    .await;
}

/// A file that only grows in number, written by one session and read by others all the time.
struct Register {
    acknowledged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    writer: tokio::task::JoinHandle<u64>,
    readers: Vec<tokio::task::JoinHandle<u64>>,
}

impl Register {
    async fn start(cell: &Cell) -> Register {
        let (acknowledged, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let session = cell.session().await;
        session.put(REGISTER, "0").await.unwrap();
        let writer = tokio::spawn(write(session, acknowledged.clone(), stop.clone()));
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let session = cell.session().await;
            readers.push(tokio::spawn(read(session, acknowledged.clone(), stop.clone())));
        }
        Register { acknowledged, stop, writer, readers }
    }

    /// Waits for some more acknowledged writes, and returns the newest.
    async fn writes_more(&self) -> u64 {
        let wanted = self.acknowledged.load(Ordering::SeqCst) + 20;
        until("writes go on", async || (self.acknowledged.load(Ordering::SeqCst) >= wanted).then_some(()))
            .await;
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// The writes and reads there were.
    async fn finish(self) -> (u64, u64) {
        self.stop.store(true, Ordering::SeqCst);
        let mut reads = 0;
        for reader in self.readers {
            reads += reader.await.expect("no read is old");
        }
        (self.writer.await.expect("every write succeeds"), reads)
    }
}

async fn write(session: Session, acknowledged: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> u64 {
    let mut count = 0;
    while !stop.load(Ordering::SeqCst) {
        count += 1;
        session.put(REGISTER, count.to_string()).await.expect("every write succeeds");
        acknowledged.store(count, Ordering::SeqCst);
    }
    count
}

async fn read(session: Session, acknowledged: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> u64 {
    let (mut count, mut seen) = (0, 0);
    while !stop.load(Ordering::SeqCst) {
        let before = acknowledged.load(Ordering::SeqCst).max(seen);
        seen = number(&session.read(REGISTER).await.expect("every read succeeds").bytes);
        assert!(seen >= before, "read {seen} after {before} was acknowledged or read");
        count += 1;
    }
    count
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

const REGISTER: &str = "/register";
const READERS: usize = 2;
const PAUSES: u64 = 4;

/// Several times a lease and an election.
const PAUSE: Duration = Duration::from_secs(3);
