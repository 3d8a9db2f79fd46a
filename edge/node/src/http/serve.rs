//! The thread that serves HTTP: connections, their limits, and the routes.

use super::address::Bound;
use super::answer::Refused;
use super::board::{self, Board};
use super::guard::Guard;
use super::{page, probes};
use crate::NodeError;
use crate::metrics::{Metrics, NodeMetrics};
use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::{debug, warn};

/// HTTP is served as long as this lives.
pub struct Running {
    _stop: oneshot::Sender<()>,
}

impl Bound {
    /// What every process answers, and nothing else.
    pub fn serve_probes(self, metrics: Arc<impl Metrics>) -> Result<Running, NodeError> {
        self.serve(move || bounded(probes::routes(metrics)))
    }

    /// A replica's dashboard too. `node`: where it listens for clients and tools; `store`: a manager stands beside it.
    pub fn serve_board(
        self,
        node: SocketAddr,
        store: bool,
        metrics: Arc<NodeMetrics>,
    ) -> Result<Running, NodeError> {
        let address = self.address;
        let guard = Guard::new(address, self.token.clone());
        if guard.access() == "refused" {
            warn!(%address, "http on a network without --http-token: the dashboard tells nobody anything");
        }
        self.serve(move || {
            let board = Board::start(node, store, metrics.clone(), guard.access());
            let admitting = guard.clone();
            let admitted = judged(board::routes(board), move |request| admitting.admit(request.headers()));
            let checked = judged(admitted.merge(page::routes()), move |request| {
                guard.check(request.method(), request.headers())
            });
            bounded(probes::routes(metrics).merge(checked))
        })
    }

    /// `routes` are made on the thread that serves them.
    fn serve(self, routes: impl FnOnce() -> Router + Send + 'static) -> Result<Running, NodeError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(NodeError::Socket)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener).map_err(NodeError::Socket)?
        };
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async move {
                let routes = routes();
                tokio::select! {
                    () = accept(listener, routes) => {}
                    // Dropped, with the loop that it tells about.
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(serve);
        thread.map_err(NodeError::Socket)?;
        Ok(Running { _stop: stop })
    }
}

/// Only what the judge lets pass reaches the routes.
fn judged(
    router: Router,
    judge: impl Fn(&Request) -> Result<(), Refused> + Clone + Send + Sync + 'static,
) -> Router {
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let verdict = judge(&request);
        async move {
            match verdict {
                Ok(()) => next.run(request).await,
                Err(refused) => refused.into_response(),
            }
        }
    }))
}

/// No request takes for ever.
fn bounded(router: Router) -> Router {
    let unknown = async || Refused(axum::http::StatusCode::NOT_FOUND, "there is nothing here".to_owned());
    router.fallback(unknown).layer(middleware::from_fn(async |request: Request, next: Next| -> Response {
        match tokio::time::timeout(ANSWER_MAX, next.run(request)).await {
            Ok(response) => response,
            Err(_) => Refused::late().into_response(),
        }
    }))
}

async fn accept(listener: tokio::net::TcpListener, routes: Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Further ones wait in the kernel until one of these has ended.
        let Ok(place) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, routes.clone(), place));
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection for http");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, routes: Router, _place: OwnedSemaphorePermit) {
    // Answers are written whole; a small one must not wait for the next. A machine that vanished gives its place back.
    let _ = kumo_link::prepare(&stream, UNACKNOWLEDGED_MAX);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    match tokio::time::timeout(CONNECTION_MAX, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "http connection"),
        // It may be one that does not read: whoever does comes again.
        Err(_) => debug!("http connection ended after its longest time"),
    }
}

/// How long whoever asked may leave bytes of the answer unacknowledged.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

/// Browsers, scrapers and tools at a time. Beyond it connections wait.
const CONNECTIONS_MAX: usize = 256;

/// The head of a request, and the least that may wait to be written.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// How long the head of a request may take, and a connection be idle.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// How long one answer may take; a manager answers an order within 20 seconds.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// How long a connection lives. A stream that ends then is begun again by the browser.
const CONNECTION_MAX: Duration = Duration::from_secs(600);

/// How long accepting rests after it failed, as it does when no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
