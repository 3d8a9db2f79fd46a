//! [`Looks`]: looks at the cluster one after another, and makes a snapshot of each.

use super::coverage::Coverage;
use super::{Board, cell, health, store};
use crate::clock;
use crate::http::answer::Refused;
use crate::tool::{self, ToolError};
use axum::http::StatusCode;
use kumo_cluster::control::{JobStat, ServerReport, Stat};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The looks so far: what does not change is kept, and rates are differences.
pub struct Looks {
    operator: Result<pfs::Cell, pfs::Error>,
    last: Option<Look>,
    text: Arc<str>,
    coverage: Option<Arc<Coverage>>,
}

/// What was seen at one moment.
pub struct Look {
    pub at: Instant,
    pub store: Result<StoreLook, String>,
    pub cell: Result<pfs::CellStatus, String>,
}

pub struct StoreLook {
    pub stat: Stat,
    pub reports: BTreeMap<SocketAddr, Result<ServerReport, String>>,
    pub coverage: Arc<Coverage>,
    pub job: Option<JobStat>,
}

impl Looks {
    pub fn new(node: SocketAddr) -> Looks {
        let mut options = pfs::Options::new([node]);
        options.patience = LOOK_MAX;
        Looks { operator: pfs::Cell::connect(&options), last: None, text: "".into(), coverage: None }
    }

    /// A snapshot as text. One that was just taken is as good as another.
    pub async fn snapshot(&mut self, board: &Board) -> Arc<str> {
        let fresh = |look: &Look| look.at.elapsed() < FRESH_MAX;
        if !self.last.as_ref().is_some_and(fresh) {
            let look = self.look(board).await;
            self.text = text(board, &look, self.last.as_ref()).into();
            self.last = Some(look);
        }
        self.text.clone()
    }

    async fn look(&mut self, board: &Board) -> Look {
        let (store, cell) = tokio::join!(look_at_store(board), look_at_cell(&self.operator));
        let at = Instant::now();
        let store = store.map(|(stat, reports)| {
            let known = self.coverage.take().filter(|known| known.is_of(&stat.space));
            let coverage = known.unwrap_or_else(|| Arc::new(Coverage::new(&stat.space)));
            self.coverage = Some(coverage.clone());
            let job = stat.job();
            StoreLook { stat, reports, coverage, job }
        });
        Look { at, store, cell }
    }
}

impl Board {
    /// A `kumo-cell` has no store to speak of.
    pub(super) fn only_with_store(&self) -> Result<(), Refused> {
        match self.store {
            true => Ok(()),
            false => Err(Refused(StatusCode::NOT_FOUND, NO_STORE.to_owned())),
        }
    }

    pub(super) async fn stat(&self) -> Result<Stat, Refused> {
        match timeout(LOOK_MAX, tool::stat(&[self.node])).await {
            Ok(stat) => Ok(stat?),
            Err(_) => Err(Refused(StatusCode::SERVICE_UNAVAILABLE, SILENT.to_owned())),
        }
    }
}

type Reports = BTreeMap<SocketAddr, Result<ServerReport, String>>;

async fn look_at_store(board: &Board) -> Result<(Stat, Reports), String> {
    if !board.store {
        return Err(NO_STORE.to_owned());
    }
    let stat = board.stat().await.map_err(|refused| refused.1)?;
    let connected = stat.servers.iter().filter(|server| server.connected);
    let servers: BTreeSet<SocketAddr> = connected.map(|server| server.server.address).collect();
    let servers: Vec<SocketAddr> = servers.into_iter().collect();
    let reports = tool::inspect_all(&servers, INSPECT_MAX).await.into_iter();
    let said = |error: ToolError| error.to_string();
    Ok((stat, reports.map(|(server, report)| (server, report.map_err(said))).collect()))
}

async fn look_at_cell(operator: &Result<pfs::Cell, pfs::Error>) -> Result<pfs::CellStatus, String> {
    let operator = operator.as_ref().map_err(ToString::to_string)?;
    match timeout(LOOK_MAX, operator.status()).await {
        Ok(status) => status.map_err(|error| error.to_string()),
        Err(_) => Err("no member of the cell answers in time".to_owned()),
    }
}

fn text(board: &Board, look: &Look, before: Option<&Look>) -> String {
    let verdict = health::judge(board.store, look);
    let (store, store_error) = match &look.store {
        Ok(seen) => (store::value(seen, look.at, before), None),
        Err(error) => (json!(null), Some(error)),
    };
    let (cell, cell_error) = match &look.cell {
        Ok(status) => (cell::value(status, &board.metrics), None),
        Err(error) => (json!(null), Some(error)),
    };
    json!({
        "at": clock::wall().0,
        "version": env!("CARGO_PKG_VERSION"),
        "self": {
            "kind": if board.store { "manager" } else { "cell" },
            "address": board.node.to_string(),
            "access": board.access,
        },
        "health": verdict.value(),
        "store": store,
        "store_error": store_error.filter(|_| board.store),
        "cell": cell,
        "cell_error": cell_error,
    })
    .to_string()
}

const NO_STORE: &str = "this is a cell without a store";
const SILENT: &str = "the managers do not answer in time";

/// Who looks again so soon gets what was seen.
const FRESH_MAX: Duration = Duration::from_millis(700);

/// Longer than a master needs to answer, shorter than a person's patience.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// A server answers at once; one that is stopped must not stop the page.
const INSPECT_MAX: Duration = Duration::from_millis(800);
