//! [`Seat`]: the board's own session in the cell, while somebody looks into files, locks or queues.

use super::Board;
use crate::http::answer::Refused;
use axum::http::StatusCode;
use pfs::{Error, Options, Query, Reply, Session};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Opened when it is first needed.
pub struct Seat {
    options: Options,
    open: Mutex<Option<Open>>,
}

struct Open {
    session: Session,
    used: Instant,
}

impl Seat {
    pub fn new(node: SocketAddr) -> Seat {
        // What a person wrote a moment ago must be there: reads are linear.
        let options = Options { sync: true, patience: ASK_MAX, ..Options::new([node]) };
        Seat { options, open: Mutex::new(None) }
    }

    /// Asks PFS. A session that was lost meanwhile is opened anew, once.
    pub async fn ask(&self, query: Query) -> Result<Reply, Refused> {
        let asked = async {
            match self.session().await?.query(&query).await {
                Err(Error::Lost | Error::Ended(_) | Error::ForeignCell(_)) => {
                    self.leave().await;
                    self.session().await?.query(&query).await
                }
                answer => answer,
            }
        };
        in_time(asked).await
    }

    /// Of the cell itself.
    pub async fn sessions(&self) -> Result<Vec<pfs::SessionInfo>, Refused> {
        in_time(async { self.session().await?.cell().sessions().await }).await
    }

    async fn session(&self) -> Result<Session, Error> {
        let mut open = self.open.lock().await;
        if let Some(open) = open.as_mut() {
            open.used = Instant::now();
            return Ok(open.session.clone());
        }
        let session = Session::open(&self.options).await?;
        *open = Some(Open { session: session.clone(), used: Instant::now() });
        Ok(session)
    }

    /// Closed when its last clone is gone.
    async fn leave(&self) {
        *self.open.lock().await = None;
    }
}

/// Calls of a session wait while the cell has no master; a browser does not.
async fn in_time<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Refused> {
    match timeout(ASK_MAX, asked).await {
        Ok(answer) => Ok(answer?),
        Err(_) => {
            let sentence = "the cell does not answer in time".to_owned();
            Err(Refused(StatusCode::SERVICE_UNAVAILABLE, sentence))
        }
    }
}

/// Nobody looks any more: the cell need not remember us.
pub async fn leave_when_idle(board: Arc<Board>) {
    loop {
        tokio::time::sleep(IDLE_MAX).await;
        let mut open = board.seat.open.lock().await;
        *open = open.take().filter(|open| open.used.elapsed() < IDLE_MAX);
    }
}

/// As long as a change of master takes, and some.
const ASK_MAX: Duration = Duration::from_secs(5);

const IDLE_MAX: Duration = Duration::from_secs(30);
