//! Server-sent events: every stream gets the newest snapshot once a second.

use super::Board;
use crate::http::answer::{Answer, Refused};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{MissedTickBehavior, interval};

/// Looks once a second as long as somebody watches.
pub async fn tell(board: Arc<Board>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if board.latest.receiver_count() == 0 {
            board.watched.notified().await;
        }
        ticks.tick().await;
        let snapshot = board.looks.lock().await.snapshot(&board).await;
        board.latest.send_replace(Some(snapshot));
    }
}

pub async fn stream(State(board): State<Arc<Board>>) -> Answer {
    let Ok(place) = board.streams.clone().try_acquire_owned() else {
        let sentence = format!("{STREAMS_MAX} browsers watch already");
        return Err(Refused(StatusCode::SERVICE_UNAVAILABLE, sentence));
    };
    let snapshots = board.latest.subscribe();
    board.watched.notify_one();
    // The one before is shown only while it is new: what nobody watched may be hours old.
    let mut watching = Watching { snapshots, first: true, _place: place };
    watching.snapshots.mark_unchanged();
    let events = stream::unfold(watching, async |mut watching| {
        let event = watching.next().await?;
        Some((Ok::<Bytes, Infallible>(event), watching))
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// One stream.
struct Watching {
    snapshots: watch::Receiver<Option<Arc<str>>>,
    first: bool,
    _place: OwnedSemaphorePermit,
}

impl Watching {
    /// The newest snapshot after the last one; those between are left out. None: the process ends.
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.first) {
            // The browser comes again this soon when the connection breaks.
            return Some(Bytes::from_static(b"retry: 1000\n\n"));
        }
        loop {
            self.snapshots.changed().await.ok()?;
            let snapshot = self.snapshots.borrow_and_update().clone();
            if let Some(snapshot) = snapshot {
                return Some(format!("event: snapshot\ndata: {snapshot}\n\n").into());
            }
        }
    }
}

const INTERVAL: Duration = Duration::from_secs(1);

/// Browsers that watch at a time: each is a connection and a snapshot a second.
pub const STREAMS_MAX: usize = 64;
