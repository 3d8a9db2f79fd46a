//! [`Load`]: clients that write all the time, and the proof that what was acknowledged is there, once.

use crate::process::{Cell, until};
use pfs::Session;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use tokio::task::JoinHandle;

/// Writers at work, in a directory of their own. Each appends numbered lines to a file of its own, and between them swaps a counter under its
/// version: an append lost or executed twice shows in the file, a swap lost or executed twice breaks the chain of
/// versions.
pub struct Load {
    root: String,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    writers: Vec<JoinHandle<u64>>,
    lines: Vec<Arc<AtomicU64>>,
    began: Instant,
}

/// What a load did.
pub struct Tally {
    root: String,
    /// The lines of each writer.
    counts: Vec<u64>,
    operations: u64,
    seconds: f64,
}

impl Load {
    pub async fn start(cell: &Cell) -> Load {
        static LOADS: AtomicU64 = AtomicU64::new(0);
        let root = format!("/load-{}", LOADS.fetch_add(1, Ordering::Relaxed));
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (mut writers, mut lines) = (Vec::new(), Vec::new());
        for number in 0..WRITERS {
            let writer = Writer {
                session: cell.session().await,
                file: file(&root, number),
                counter: counter(&root, number),
                stop: stop.clone(),
                acknowledged: acknowledged.clone(),
                lines: Arc::default(),
            };
            lines.push(writer.lines.clone());
            writers.push(tokio::spawn(writer.run()));
        }
        Load { root, stop, acknowledged, writers, lines, began: Instant::now() }
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Waits until so many more operations were acknowledged.
    pub async fn further(&self, count: u64) {
        let wanted = self.acknowledged() + count;
        until("the load goes on", async || {
            assert!(!self.writers.iter().any(JoinHandle::is_finished), "a writer failed");
            (self.acknowledged() >= wanted).then_some(())
        })
        .await;
    }

    /// While the load goes on: everything acknowledged until now is there now.
    pub async fn check(&self, session: &Session) {
        for (number, lines) in self.lines.iter().enumerate() {
            let lines = lines.load(Ordering::SeqCst);
            if lines == 0 {
                continue;
            }
            let length =
                session.stat(&file(&self.root, number)).await.expect("an acknowledged file is there").length;
            assert!(length >= lines * LINE_BYTES, "writer {number}: {lines} lines, but {length} bytes");
        }
    }

    /// Ends the load, and checks what it left.
    pub async fn finish(self, cell: &Cell) -> Tally {
        self.stop.store(true, Ordering::SeqCst);
        let mut counts = Vec::new();
        for writer in self.writers {
            counts.push(writer.await.expect("every write succeeds"));
        }
        let seconds = self.began.elapsed().as_secs_f64();
        let operations = self.acknowledged.load(Ordering::SeqCst);
        let tally = Tally { root: self.root, counts, operations, seconds };
        tally.verify(cell).await;
        assert!(operations >= OPERATIONS_MIN, "too little load: {tally}");
        tally
    }
}

impl Tally {
    /// Every acknowledged write is there, in order and once.
    pub async fn verify(&self, cell: &Cell) {
        let session = cell.session().await;
        for (number, &count) in self.counts.iter().enumerate() {
            let found = session.read(&file(&self.root, number)).await.expect("an acknowledged file is there");
            let expected: String = (1..=count).map(line).collect();
            assert_eq!(found.bytes.len(), expected.len(), "writer {number}: all lines, each once");
            assert!(found.bytes == expected.as_bytes(), "writer {number}: lines in order");
            let counter = session.read(&counter(&self.root, number)).await.expect("the counter is there");
            assert_eq!(counter.bytes, count.to_string(), "writer {number}: the last swap");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let rate = self.operations as f64 / self.seconds;
        write!(out, "{} operations succeeded in {:.1} s ({rate:.0}/s)", self.operations, self.seconds)
    }
}

struct Writer {
    session: Session,
    file: String,
    counter: String,
    stop: Arc<AtomicBool>,
    /// Operations of all writers, and lines of this one.
    acknowledged: Arc<AtomicU64>,
    lines: Arc<AtomicU64>,
}

impl Writer {
    /// Returns the lines written, all of them acknowledged.
    async fn run(self) -> u64 {
        let (mut count, mut version) = (0, 0);
        while !self.stop.load(Ordering::SeqCst) {
            count += 1;
            let appended = self.session.append(&self.file, line(count)).await;
            let appended = appended.unwrap_or_else(|error| panic!("append {count}: {error}"));
            assert_eq!(appended.length, count * LINE_BYTES, "append {count} is executed once, in order");
            self.lines.store(count, Ordering::SeqCst);
            let swapped = self.session.compare_and_put(&self.counter, version, count.to_string()).await;
            version = swapped.unwrap_or_else(|error| panic!("swap {count}: {error}")).version;
            self.acknowledged.fetch_add(2, Ordering::SeqCst);
        }
        count
    }
}

fn line(count: u64) -> String {
    format!("{count:09}\n")
}

fn file(root: &str, writer: usize) -> String {
    format!("{root}/file-{writer}")
}

fn counter(root: &str, writer: usize) -> String {
    format!("{root}/counter-{writer}")
}

const WRITERS: usize = 4;
const LINE_BYTES: u64 = 10;

/// Below it a fault may simply have met nobody.
const OPERATIONS_MIN: u64 = 100;
