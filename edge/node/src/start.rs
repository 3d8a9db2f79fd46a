//! How a node starts: its address, its memory, its cell, then the loop.

use crate::drive::Node;
use crate::durable::{Memory, Storage};
use crate::house::{House, NoHouse};
use crate::metrics::NodeMetrics;
use crate::pair::Pair;
use crate::store::ManagerHouse;
use crate::{NodeConfig, NodeError, clock, entropy, http};
use kumo_cluster::{Manager, ManagerSettings};
use kumo_paxos::{Incarnation, Settings};
use kumo_pfs::Pfs;
use kumo_session::{Application, Cell, CellSettings};
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// Runs a node until `stop` completes (a clean end) or the cell makes it leave. Its work is done by the task
/// that awaits it, so a runtime of one thread serves it best.
pub async fn run(config: NodeConfig, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
    run_application::<Pfs>(config, stop).await
}

/// As [`run`], for a service of your own instead of PFS. The pages over HTTP are PFS's: leave them out.
pub async fn run_application<A: Application + Default>(
    config: NodeConfig,
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    // The address is the node's name in the cell: "any host" or "any port" is none.
    if config.listen.ip().is_unspecified() || config.listen.port() == 0 {
        return Err(NodeError::Nameless(config.listen));
    }
    let listener = bind(config.listen)?;
    alone::<A>(listener, config, stop).await
}

/// As [`run`], on a listener that is bound already; it may have chosen the port. The node's name is still
/// `config.listen`.
pub async fn run_on(
    listener: TcpListener,
    config: NodeConfig,
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    alone::<Pfs>(listener, config, stop).await
}

/// Runs a manager: a node of a cell with the store's manager beside it. `control`: a second socket for tools.
pub async fn run_manager(
    listener: TcpListener,
    control: Option<TcpListener>,
    config: NodeConfig,
    settings: ManagerSettings,
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    let metrics = Arc::new(NodeMetrics::new(true));
    let house = ManagerHouse::new(Manager::new(settings, clock::now()), config.listen, metrics.clone());
    let listeners = std::iter::once(listener).chain(control).collect();
    run_with::<Pair, ManagerHouse>(listeners, config, house, metrics, stop).await
}

/// A node with nobody beside it.
async fn alone<A: Application + Default>(
    listener: TcpListener,
    config: NodeConfig,
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    let metrics = Arc::new(NodeMetrics::new(false));
    run_with::<A, NoHouse>(vec![listener], config, NoHouse, metrics, stop).await
}

async fn run_with<A: Application + Default, H: House<A>>(
    listeners: Vec<TcpListener>,
    config: NodeConfig,
    house: H,
    metrics: Arc<NodeMetrics>,
    stop: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    let address = config.listen;
    let fault = |error| NodeError::Listen { address, error };
    let mut sockets = Vec::new();
    for listener in listeners {
        listener.set_nonblocking(true).map_err(fault)?;
        sockets.push(tokio::net::TcpListener::from_std(listener).map_err(fault)?);
    }
    let http = config.http.as_ref().map(http::bind).transpose()?;
    let (cell, storage) = remember::<A>(&config, forms_after_micros::<A, H>(&config))?;
    info!(%address, durable = storage.is_some(), "listening");
    let _http = http.map(|http| http.serve_board(address, H::OPEN, metrics.clone())).transpose()?;
    let unit_micros = unit_micros(&config);
    let noise = entropy::draw()? as u64;
    Node::new(cell, house, sockets, storage, unit_micros, address, noise, config.linger, metrics)
        .run(stop)
        .await
}

/// Binds the address in a way that a restart need not wait for old connections to fade.
fn bind(address: SocketAddr) -> Result<TcpListener, NodeError> {
    TcpListener::bind(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => NodeError::AddressTaken(address),
        _ => NodeError::Listen { address, error },
    })
}

/// The cell with the memory of its earlier life, or a new one.
fn remember<A: Application + Default>(
    config: &NodeConfig,
    forms_after_micros: u64,
) -> Result<(Cell<A>, Option<Storage>), NodeError> {
    let Some(path) = &config.data else {
        let incarnation = Incarnation(entropy::draw()?);
        return Ok((new_cell(config, incarnation, forms_after_micros)?, None));
    };
    let (mut storage, memory) = Storage::open(path)?;
    if let Some(memory) = memory {
        match recovered_cell(config, memory)? {
            Ok(cell) => return Ok((cell, Some(storage))),
            Err(malformed) => storage.forget(&format!("its snapshot cannot be read: {malformed}"))?,
        }
    }
    let incarnation = Incarnation(entropy::draw()?);
    storage.begin()?;
    Ok((new_cell(config, incarnation, forms_after_micros)?, Some(storage)))
}

fn new_cell<A: Application + Default>(
    config: &NodeConfig,
    incarnation: Incarnation,
    forms_after_micros: u64,
) -> Result<Cell<A>, NodeError> {
    config.check()?;
    info!(%incarnation, "new incarnation");
    let settings = Settings { forms_after_micros, ..settings(config, incarnation)? };
    Ok(Cell::new(settings, cell_settings(config), A::default(), clock::now()))
}

fn recovered_cell<A: Application + Default>(
    config: &NodeConfig,
    memory: Memory,
) -> Result<Result<Cell<A>, kumo_wire::Malformed>, NodeError> {
    let Memory { incarnation, snapshot, records } = memory;
    info!(%incarnation, records = records.len(), "memory read back");
    let settings = settings(config, incarnation)?;
    Ok(Cell::recover(settings, cell_settings(config), A::default(), snapshot, records, clock::now()))
}

fn settings(config: &NodeConfig, incarnation: Incarnation) -> Result<Settings, NodeError> {
    Ok(Settings {
        address: config.listen,
        peers: config.peers.iter().copied().filter(|peer| *peer != config.listen).collect(),
        extension: config.extension,
        incarnation,
        unit_micros: unit_micros(config),
        entropy: entropy::draw()?,
        durable: config.data.is_some(),
        forms_after_micros: 0,
    })
}

/// Two managers without a disk that both end forget the cell, but not so the voters that they recruited. Those dial
/// them, and are to be heard before another cell is formed beside theirs.
fn forms_after_micros<A: Application, H: House<A>>(config: &NodeConfig) -> u64 {
    let may_forget = H::OPEN && config.data.is_none() && config.peers.len() == 1;
    if may_forget { unit_micros(config).saturating_mul(FORMS_AFTER_UNITS) } else { 0 }
}

fn cell_settings(config: &NodeConfig) -> CellSettings {
    CellSettings {
        session_timeout_micros: config.session_timeout.as_micros() as u64,
        sessions_max: SESSIONS_MAX,
    }
}

/// The unit, but never so short that a node would do nothing but beat.
fn unit_micros(config: &NodeConfig) -> u64 {
    config.unit.max(UNIT_MIN).as_micros().min(u128::from(u64::MAX)) as u64
}

/// Longer than the longest pause between two dials, with its jitter, and what follows them.
const FORMS_AFTER_UNITS: u64 = 20;

/// The shortest unit: the timers of the runtime count milliseconds.
const UNIT_MIN: Duration = Duration::from_millis(1);

/// Sessions at a time. Each is remembered by every replica, with its unacknowledged replies.
const SESSIONS_MAX: usize = 100_000;
