//! [`Door`]: where memcached clients come in. Each is handed to one worker, once, and stays with it.

use super::worker::Guest;
use crate::NodeError;
use crate::metrics::{GatewayMetrics, WorkerMetrics};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tracing::{info, warn};

/// The sockets that clients connect to. When it is gone, no more come, and the workers end.
///
/// One door for all workers: sockets of their own on one port (`SO_REUSEPORT`) would spread clients by a hash, so that of
/// few clients some workers get none; they would let a second process take the port without a word; and a limit
/// on all clients would have to be agreed on. A hop a connection is cheap, a hop a request would not be.
pub struct Door {
    listeners: Vec<tokio::net::TcpListener>,
    workers: Vec<mpsc::UnboundedSender<Guest>>,
    connections_max: u64,
    metrics: Arc<GatewayMetrics>,
}

impl Door {
    /// `workers`: as in `metrics`. Their queues need no limit of their own: who is in one counts as connected.
    pub fn open(
        listeners: Vec<TcpListener>,
        workers: Vec<mpsc::UnboundedSender<Guest>>,
        connections_max: usize,
        metrics: Arc<GatewayMetrics>,
    ) -> Result<Door, NodeError> {
        let mut opened = Vec::new();
        for listener in listeners {
            let address = listener.local_addr().map_err(NodeError::Socket)?;
            listener.set_nonblocking(true).map_err(NodeError::Socket)?;
            opened.push(tokio::net::TcpListener::from_std(listener).map_err(NodeError::Socket)?);
            info!(%address, "listening for memcached clients");
        }
        Ok(Door { listeners: opened, workers, connections_max: connections_max as u64, metrics })
    }

    /// Lets clients in, for ever.
    pub async fn serve(&self) -> Infallible {
        let mut turn = 0usize;
        loop {
            turn = turn.wrapping_add(1);
            match self.accept(turn).await {
                Ok(stream) => self.let_in(stream),
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The next client, whichever port it came to: each has its turn to be looked at first.
    async fn accept(&self, turn: usize) -> io::Result<TcpStream> {
        let count = self.listeners.len();
        let accepted = poll_fn(|context| {
            for number in 0..count {
                if let Poll::Ready(accepted) =
                    self.listeners[(turn % count + number) % count].poll_accept(context)
                {
                    return Poll::Ready(accepted);
                }
            }
            Poll::Pending
        });
        accepted.await.map(|(stream, _)| stream)
    }

    fn let_in(&self, stream: TcpStream) {
        let Ok(mut stream) = stream.into_std() else { return };
        let workers = self.metrics.workers();
        if self.metrics.sum(WorkerMetrics::open) >= self.connections_max {
            self.metrics.refused.add(1);
            // As memcached does. Whoever does not take it is closed all the same.
            let _ = stream.write(FULL);
            return;
        }
        // The one with the fewest; of several, the one that had the fewest so far.
        let fewest = (0..workers.len()).min_by_key(|&number| {
            let worker = &workers[number];
            (worker.open(), worker.came.get())
        });
        let Some(number) = fewest else { return };
        workers[number].came.add(1);
        // A worker that ended takes the whole process with it: its clients are closed with all others.
        let _ = self.workers[number].send(stream);
    }
}

/// What memcached says when it has no room.
const FULL: &[u8] = b"ERROR Too many open connections\r\n";

/// How long accepting rests after it failed, as it does when no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
