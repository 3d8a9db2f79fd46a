//! Writes of 10 MB beside writes of 100 bytes.

use crate::process::{Cell, bounded};
use pfs::Session;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

#[tokio::test(flavor = "multi_thread")]
async fn large_writes_go_beside_small_ones() {
    bounded(async {
        let mut cell = Cell::start(&["--session-timeout", "60"]).await;
        let small = Small::start(&cell).await;
        // A measurement takes its time: nothing is waited for here.
        tokio::time::sleep(ALONE).await;
        let (alone, alone_took) = small.finish().await;

        let small = Small::start(&cell).await;
        let session = cell.session().await;
        let began = Instant::now();
        let (mut written, mut overtaking) = (0, 0);
        while written < LARGE_WRITES || began.elapsed() < ALONE {
            let data = large(written);
            let before = small.begun_and_finished();
            session.put(&large_path(written), data).await.expect("a large write succeeds");
            overtaking += small.begun_and_finished() - before;
            written += 1;
        }
        let large_took = began.elapsed();
        let (beside, beside_took) = small.finish().await;
        // One of each writer may have been begun before the large one: only what is more was begun after it.
        let overtaking = overtaking.saturating_sub(written * SMALL_WRITERS);
        for number in 0..written {
            let found = session.read(&large_path(number)).await.expect("a large file is there").bytes;
            assert!(found == large(number), "large file {number} is as it was written");
        }
        let rate = (written * LARGE_BYTES) as f64 / 1e6 / large_took.as_secs_f64();
        println!("100-byte writes alone:             {}", latencies(&alone, alone_took));
        println!("100-byte writes beside 10 MB ones: {}", latencies(&beside, beside_took));
        println!("10 MB writes: {written} succeeded and were read back ({rate:.0} MB/s)");
        println!("100-byte writes begun and finished while a 10 MB one was under way: {overtaking} at least");
        assert!(cell.all_run());
        assert!(overtaking > 0, "small writes begun after a large one are finished before it");
    })
    .await;
}

/// Clients that write 100 bytes all the time, each to a file of its own.
struct Small {
    stop: Arc<AtomicBool>,
    began: Instant,
    session: Session,
    writers: Vec<JoinHandle<Vec<Duration>>>,
    finished: Arc<AtomicUsize>,
}

impl Small {
    async fn start(cell: &Cell) -> Small {
        let stop = Arc::new(AtomicBool::new(false));
        let finished = Arc::new(AtomicUsize::new(0));
        let mut writers = Vec::new();
        for number in 0..SMALL_WRITERS {
            let (session, stop, finished) = (cell.session().await, stop.clone(), finished.clone());
            writers.push(tokio::spawn(write_small(session, number, stop, finished)));
        }
        Small { stop, began: Instant::now(), session: cell.session().await, writers, finished }
    }

    /// How many there were until now.
    fn begun_and_finished(&self) -> usize {
        self.finished.load(Ordering::SeqCst)
    }

    /// How long each write took; the last of each writer is read back.
    async fn finish(self) -> (Vec<Duration>, Duration) {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        for (number, writer) in self.writers.into_iter().enumerate() {
            let took = writer.await.expect("every small write succeeds");
            let found = self.session.read(&small_path(number)).await.unwrap().bytes;
            assert_eq!(found, small(number, took.len()), "the last small write is there");
            all.extend(took);
        }
        all.sort();
        (all, self.began.elapsed())
    }
}

async fn write_small(
    session: Session,
    number: usize,
    stop: Arc<AtomicBool>,
    finished: Arc<AtomicUsize>,
) -> Vec<Duration> {
    let mut took = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let began = Instant::now();
        session
            .put(&small_path(number), small(number, took.len() + 1))
            .await
            .expect("a small write succeeds");
        took.push(began.elapsed());
        finished.fetch_add(1, Ordering::SeqCst);
    }
    took
}

fn latencies(sorted: &[Duration], took: Duration) -> String {
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize].as_micros();
    let rate = sorted.len() as f64 / took.as_secs_f64();
    format!(
        "{} succeeded ({rate:.0}/s), p50 {} us, p99 {} us, max {} us",
        sorted.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    )
}

fn small_path(number: usize) -> String {
    format!("/small/{number}")
}

fn large_path(number: usize) -> String {
    format!("/large/{number}")
}

/// Exactly 100 bytes that tell writer and count.
fn small(number: usize, count: usize) -> String {
    format!("{number:>20} {count:>79}")
}

/// Bytes that no other file and no other place in this one has in the same order.
fn large(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let mut bytes = Vec::with_capacity(LARGE_BYTES + 8);
    while bytes.len() < LARGE_BYTES {
        // A step of a xorshift generator.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(LARGE_BYTES);
    bytes
}

const SMALL_WRITERS: usize = 4;
const LARGE_WRITES: usize = 8;
const LARGE_BYTES: usize = 10_000_000;

/// How long the small writes are measured by themselves.
const ALONE: Duration = Duration::from_secs(3);
