//! A gateway: workers that serve memcached clients, the door where clients come in, and the way to the end.
//!
//! A worker is a thread with a runtime, a gateway's core and connections of its own: for managers and servers it is a
//! gateway like any other. A client stays with one worker, so nothing is handed between threads on the way of a
//! request, and none waits for another.

use super::credentials::Credentials;
use super::door::Door;
use super::stats::Stats;
use super::worker::{Guest, Worker};
use crate::NodeError;
use crate::http::{self, HttpConfig};
use crate::metrics::GatewayMetrics;
use kumo_cluster::{Early, GatewayNote};
use kumo_paxos::CellId;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::{error, error_span, info};

/// What a gateway is told at its start.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    pub managers: Vec<SocketAddr>,
    pub get_retry_max: u32,
    pub set_retry_max: u32,
    pub delete_retry_max: u32,
    pub renew_threshold: u32,
    /// One try's patience, and that of all tries together.
    pub try_for: Duration,
    pub request_for: Duration,
    pub early: Early,
    pub spread_reads: bool,
    pub keepalive: Duration,
    /// How long one try to connect may take.
    pub dial_for: Duration,
    pub key_prefix: Vec<u8>,
    pub value_bytes_max: usize,
    /// Of all workers together.
    pub connections_max: usize,
    pub allow_flush: bool,
    /// Who may use it; none: everybody.
    pub credentials: Option<Arc<Credentials>>,
    /// Threads that serve clients, at least one.
    pub workers: usize,
    /// How long a worker looks for more before it sleeps, when it has much to do.
    pub linger: Duration,
    /// What can be scraped; none: nothing.
    pub http: Option<HttpConfig>,
}

/// What all workers know. Nothing of it is written on the way of a request.
pub struct Shared {
    pub config: GatewayConfig,
    pub metrics: Arc<GatewayMetrics>,
    pub stats: Stats,
    /// Flushes that clients of any worker have asked for: the last of them counts.
    pub flushes: AtomicU64,
    /// The newest hash space that is in the logs.
    noted: AtomicU64,
    /// That of the first worker to know it.
    cluster: OnceLock<CellId>,
}

impl Shared {
    pub fn new(config: GatewayConfig) -> Shared {
        assert!(config.workers > 0, "a gateway without workers serves nobody");
        let metrics = Arc::new(GatewayMetrics::new(config.workers));
        let stats = Stats::new(&config, metrics.clone());
        Shared {
            config,
            metrics,
            stats,
            flushes: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            cluster: OnceLock::new(),
        }
    }

    /// A worker belongs to that cluster now. Started with managers of two, each core takes the first it hears of; a client
    /// must not get another store with another connection.
    pub fn belong(&self, cluster: CellId) -> Result<(), NodeError> {
        let ours = *self.cluster.get_or_init(|| cluster);
        if ours == cluster {
            return Ok(());
        }
        Err(NodeError::Refused(format!("the managers are of two clusters, {ours} and {cluster}")))
    }

    /// Whether the logs need it from this worker: a hash space is noted by the first that adopts it.
    pub fn is_news(&self, note: &GatewayNote) -> bool {
        match note {
            GatewayNote::Adopted { space } => {
                self.noted.fetch_max(space.number.0, Ordering::Relaxed) < space.number.0
            }
            GatewayNote::Registered { .. }
            | GatewayNote::Stranger { .. }
            | GatewayNote::Expired { .. }
            | GatewayNote::Failed { .. } => true,
        }
    }
}

/// How a worker ended; an error is a panic.
type End = std::thread::Result<Result<(), NodeError>>;

/// Runs a gateway on sockets that are bound already, until `stop` completes or a worker must end. The caller's thread
/// only lets clients in.
pub async fn run_gateway(
    listeners: Vec<TcpListener>,
    config: GatewayConfig,
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    let http = config.http.as_ref().map(http::bind).transpose()?;
    let shared = Arc::new(Shared::new(config));
    let (handed, guests): (Vec<_>, Vec<_>) =
        (0..shared.config.workers).map(|_| mpsc::unbounded_channel()).unzip();
    let door = Door::open(listeners, handed, shared.config.connections_max, shared.metrics.clone())?;
    let _http = http.map(|http| http.serve_probes(shared.metrics.clone())).transpose()?;
    let (tell_end, mut ends) = mpsc::unbounded_channel();
    for (number, guests) in guests.into_iter().enumerate() {
        start(number, shared.clone(), guests, tell_end.clone())?;
    }
    drop(tell_end);
    let mut result = tokio::select! {
        () = stop => Ok(()),
        Some(end) = ends.recv() => finished(end),
        never = door.serve() => match never {},
    };
    info!("stopping");
    // Without a door the workers answer what they were asked, and end.
    drop(door);
    while let Some(end) = ends.recv().await {
        result = result.and(finished(end));
    }
    if let Err(NodeError::Refused(reason)) = &result {
        error!(reason, "the managers refuse this gateway");
    }
    result
}

fn start(
    number: usize,
    shared: Arc<Shared>,
    guests: mpsc::UnboundedReceiver<Guest>,
    ends: mpsc::UnboundedSender<End>,
) -> Result<(), NodeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(NodeError::Worker)?;
    let work = move || {
        // Of several, each line of the log says whose it is.
        let _named = (shared.config.workers > 1).then(|| error_span!("worker", number).entered());
        let serve = async move { Worker::open(number, shared, guests)?.run().await };
        let end = catch_unwind(AssertUnwindSafe(|| runtime.block_on(serve)));
        // Nobody waits for it when the gateway could not start.
        let _ = ends.send(end);
    };
    let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(work);
    thread.map(|_| ()).map_err(NodeError::Worker)
}

/// A bug in one worker is one of the whole process.
fn finished(end: End) -> Result<(), NodeError> {
    end.unwrap_or_else(|panic| resume_unwind(panic))
}
