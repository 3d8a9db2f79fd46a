//! [`Target`]: which cell a command speaks to and how, the options all commands share.

use crate::address;
use crate::child::Signals;
use crate::failure::Failure;
use crate::output::Format;
use clap::Args;
use pfs::{Cell, Options, Session};
use std::env::VarError;
use std::time::Duration;

#[derive(Args, Clone)]
pub struct Target {
    // Not by clap's means: a variable that is set would make it look like a required option wherever usage is shown.
    /// Members of the cell; one that answers is enough, the port is 19700 unless given [env: KUMO_CELL] [default:
    /// 127.0.0.1:19700]
    #[arg(long, global = true, help_heading = SHARED, value_name = "ADDR[,ADDR...]")]
    pub cell: Option<String>,
    /// How results are printed
    #[arg(long, global = true, help_heading = SHARED, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Read at the least-loaded replica, not at the master
    #[arg(long, global = true, help_heading = SHARED)]
    pub any: bool,
    /// Give up when there is no member or no master for this long
    #[arg(long, global = true, help_heading = SHARED, default_value = "10", value_name = "SECONDS", value_parser = patience)]
    pub patience: Duration,
}

impl Target {
    pub fn options(&self) -> Result<Options, Failure> {
        let mut options = Options::new(address::members(&self.cell()?)?);
        options.sync = !self.any;
        options.patience = self.patience;
        Ok(options)
    }

    fn cell(&self) -> Result<String, Failure> {
        match (&self.cell, std::env::var(CELL_VARIABLE)) {
            (Some(cell), _) => Ok(cell.clone()),
            (None, Ok(cell)) => Ok(cell),
            (None, Err(VarError::NotPresent)) => Ok(CELL.to_owned()),
            (None, Err(VarError::NotUnicode(_))) => {
                Err(Failure::usage(format!("{CELL_VARIABLE} is no list of addresses")))
            }
        }
    }

    /// Does something in a session of its own, and closes it however that ends: an orderly close frees at once what
    /// the session held.
    pub async fn in_session<T>(
        &self,
        work: impl AsyncFnOnce(&Session) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let session = Session::open(&self.options()?).await?;
        let result = work(&session).await;
        // What was asked is answered. A close that fails leaves a session that expires by itself.
        let _ = tokio::time::timeout(CLOSE_PATIENCE, session.close()).await;
        result
    }

    /// As [`in_session`](Target::in_session); a signal ends the work, and the session is still closed.
    pub async fn in_session_unless_signalled<T>(
        &self,
        work: impl AsyncFnOnce(&Session) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut signals = Signals::new()?;
        self.in_session(async |session| {
            tokio::select! {
                result = work(session) => result,
                signal = signals.next() => Err(Failure::Status(128 + signal.as_raw() as u8)),
            }
        })
        .await
    }

    pub fn operator(&self) -> Result<Cell, Failure> {
        Ok(Cell::connect(&self.options()?)?)
    }
}

/// A duration in seconds, with or without a fraction.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| format!("not a number of seconds: {text}"))?;
    Duration::try_from_secs_f64(value).map_err(|_| format!("not a time to wait: {text}"))
}

/// How long a process looks for more before it sleeps: microseconds, and not so many that it never would.
pub fn linger(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(micros @ 0..=LINGER_MICROS_MAX) => Ok(Duration::from_micros(micros)),
        Ok(_) | Err(_) => Err(format!("{text} is not a number of microseconds up to {LINGER_MICROS_MAX}")),
    }
}

/// As [`seconds`], of a session: below a second one would be lost by every pause of a busy machine.
pub fn session_timeout(text: &str) -> Result<Duration, String> {
    let timeout = seconds(text)?;
    if timeout < SESSION_TIMEOUT_MIN { Err("it is at least 1".to_owned()) } else { Ok(timeout) }
}

/// As [`seconds`]; in no time at all nobody can answer.
fn patience(text: &str) -> Result<Duration, String> {
    let patience = seconds(text)?;
    if patience.is_zero() { Err("it must be above 0".to_owned()) } else { Ok(patience) }
}

/// Under this help lists what is not a command's own.
const SHARED: &str = "Shared options";

const CELL_VARIABLE: &str = "KUMO_CELL";
const CELL: &str = "127.0.0.1:19700";

const SESSION_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// A hundredth of a second.
const LINGER_MICROS_MAX: u64 = 10_000;

/// A command's status is due: do not wait longer than this for a cell without a majority.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
