//! [`Board`]: the dashboard of a replica, and the JSON interface that it uses. It is a tool and a client like any other:
//! what it shows it has asked for at this process's own port.

mod cell;
mod coverage;
mod events;
mod files;
mod health;
mod job;
mod lists;
mod looks;
mod orders;
mod rates;
mod session;
mod store;

use super::answer::{Answer, json_text, ok};
use crate::metrics::NodeMetrics;
use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use looks::Looks;
use session::Seat;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{Mutex, Notify, Semaphore, watch};

/// What all requests share.
pub struct Board {
    /// Where the replica listens for clients and tools.
    node: SocketAddr,
    /// A manager stands beside it.
    store: bool,
    metrics: Arc<NodeMetrics>,
    /// What the guard says of who may ask.
    access: &'static str,
    /// Whoever holds it looks at the cluster; the others wait for what it sees.
    looks: Mutex<Looks>,
    /// The newest snapshot, for all streams.
    latest: watch::Sender<Option<Arc<str>>>,
    /// Somebody began to watch.
    watched: Notify,
    /// Places for streams.
    streams: Arc<Semaphore>,
    seat: Seat,
}

impl Board {
    /// Must be called on the runtime that serves it.
    pub fn start(
        node: SocketAddr,
        store: bool,
        metrics: Arc<NodeMetrics>,
        access: &'static str,
    ) -> Arc<Board> {
        let board = Arc::new(Board {
            node,
            store,
            metrics,
            access,
            looks: Mutex::new(Looks::new(node)),
            latest: watch::Sender::new(None),
            watched: Notify::new(),
            streams: Arc::new(Semaphore::new(events::STREAMS_MAX)),
            seat: Seat::new(node),
        });
        tokio::spawn(events::tell(board.clone()));
        tokio::spawn(session::leave_when_idle(board.clone()));
        board
    }
}

pub fn routes(board: Arc<Board>) -> Router {
    Router::new()
        .route("/v1/cluster", get(cluster))
        .route("/v1/events", get(events::stream))
        .route("/v1/ring", get(ring))
        .route("/v1/plan", get(orders::plan))
        .route("/v1/sessions", get(lists::sessions))
        .route("/v1/locks", get(lists::locks))
        .route("/v1/queues", get(lists::queues))
        .route("/v1/fs/list", get(files::list))
        .route("/v1/fs/stat", get(files::stat))
        .route("/v1/fs/read", get(files::read))
        .route("/v1/attach", post(orders::attach))
        .route("/v1/detach", post(orders::detach))
        .route("/v1/replace", post(orders::replace))
        .route("/v1/job", post(orders::job))
        .with_state(board)
}

async fn cluster(State(board): State<Arc<Board>>) -> Answer {
    let mut looks = board.looks.lock().await;
    Ok(json_text(looks.snapshot(&board).await.to_string()))
}

async fn ring(State(board): State<Arc<Board>>) -> Answer {
    board.only_with_store()?;
    ok(&coverage::ring(&board.stat().await?.space))
}
