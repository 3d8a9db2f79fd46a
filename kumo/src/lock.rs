//! `kumo lock`: a command under a lock.

use crate::child::{self, Ended, Signals};
use crate::failure::Failure;
use crate::output::{note, visible};
use crate::target::{Target, seconds};
use clap::Args;
use pfs::{LockGuard, Patience, Session};
use std::ffi::OsString;
use std::time::Duration;

/// Run a command while holding a lock
///
/// KUMO_LOCK_NUMBER in its environment is the fencing number: it grows with every grant. When the lock is lost
/// the command is killed, and also when kumo itself is killed; what the command has started in turn goes on then, and
/// only the number keeps its writes out. The status is the command's; 3 if the lock was not
/// obtained.
#[derive(Args)]
#[command(after_help = "\
Examples:
  kumo lock deploy -- ./deploy.sh
  kumo lock -r data -- ./report.sh           readers share a lock
  kumo lock nightly --try -- ./nightly.sh    on whichever host comes first; 3 on the others
  kumo lock jobs --timeout 30 -- ./job.sh")]
pub struct Lock {
    /// Any text of 1 to 255 bytes
    name: String,
    /// Share it with other readers
    #[arg(short = 'r', long = "shared")]
    shared: bool,
    /// Do not wait
    #[arg(long = "try", conflicts_with = "timeout")]
    try_only: bool,
    /// Wait at most this long
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub async fn run(lock: Lock, target: Target) -> Result<(), Failure> {
    target.in_session(async |session| hold(&lock, session).await).await
}

async fn hold(lock: &Lock, session: &Session) -> Result<(), Failure> {
    let guard = obtain(lock, session).await?;
    let environment = [("KUMO_LOCK_NUMBER", guard.number().to_string())];
    match child::run(&lock.command, &environment, None, guard.lost()).await? {
        Ended::Lost => {
            note(format!("kumo: the lock {} was lost: the command was killed", visible(&lock.name)));
            Err(why_lost(guard).await.into())
        }
        Ended::Status(0) => Ok(guard.unlock().await?),
        Ended::Status(status) => {
            drop(guard);
            Err(Failure::Status(status))
        }
    }
}

/// A session that is lost says so to every call; one that was ended, why.
async fn why_lost(guard: LockGuard) -> pfs::Error {
    match tokio::time::timeout(ANSWER_MAX, guard.unlock()).await {
        Ok(Err(error)) => error,
        Ok(Ok(())) | Err(_) => pfs::Error::Lost,
    }
}

async fn obtain(lock: &Lock, session: &Session) -> Result<LockGuard, Failure> {
    let patience = match (lock.try_only, lock.timeout) {
        (true, _) => Patience::Try,
        (false, Some(limit)) => Patience::Within(limit),
        (false, None) => Patience::Forever,
    };
    let mut signals = Signals::new()?;
    tokio::select! {
        guard = session.lock(&lock.name, !lock.shared, patience) => Ok(guard?),
        signal = signals.next() => Err(Failure::Status(128 + signal.as_raw() as u8)),
    }
}

/// A session that has ended answers by itself, at once.
const ANSWER_MAX: Duration = Duration::from_secs(1);
