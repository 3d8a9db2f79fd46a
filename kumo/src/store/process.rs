//! [`Process`]: what surrounds a manager, a server or a gateway: its logs, its signals, its way into the background.

use super::common::Common;
use super::detach::{self, PidFile};
use crate::daemon;
use crate::failure::Failure;
use kumo_node::log::{self, Level, LogFile, Output};
use kumo_node::store::binary_log::{self, Value};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use tokio::signal::unix::{SignalKind, signal};

/// Completes when the process is to end.
pub type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

pub struct Process {
    program: &'static str,
    /// The text log is not on this terminal: what ends the process must be in it too.
    logs_elsewhere: bool,
    /// SIGHUP does not end the process.
    hangup_is_kept: bool,
    detached: bool,
    exit_on_stdin_eof: bool,
    /// Removed at the end.
    _pid_file: Option<PidFile>,
}

impl Process {
    /// Opens the logs. None: another process was started in the background and is ready, this one is done.
    pub fn start(program: &'static str, common: &Common) -> Result<Option<Process>, Failure> {
        if common.daemon.is_some() && !common.detached {
            return detach::launch().map(|()| None);
        }
        if common.detached {
            detach::leave_session();
        }
        allow_files();
        let output = output(common)?;
        let logs_to_file = matches!(output, Output::File(_));
        let logs_elsewhere = logs_to_file || matches!(output, Output::Nowhere);
        log::init(level(common), output);
        if logs_elsewhere {
            std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "bug")));
        }
        if let Some(path) = &common.binary_log {
            binary_log::open(path).map_err(|error| cannot("open binary log", path, &error))?;
        }
        Ok(Some(Process {
            program,
            logs_elsewhere,
            hangup_is_kept: common.binary_log.is_some() || logs_to_file || common.detached,
            detached: common.detached,
            exit_on_stdin_eof: common.exit_on_stdin_eof,
            _pid_file: common.daemon.as_deref().map(PidFile::take).transpose()?,
        }))
    }

    /// Works until it is told to stop. The work polls `Stop` when it has bound its sockets and opened its files: then
    /// it is ready.
    pub fn serve(
        self,
        address: &str,
        work: impl AsyncFnOnce(Stop) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let result = crate::block_on(async {
            let stop = daemon::stop(self.exit_on_stdin_eof)?;
            if self.hangup_is_kept {
                tokio::spawn(reopen_on_hangup()?);
            }
            let (program, detached, address) = (self.program, self.detached, address.to_owned());
            let announced = self.exit_on_stdin_eof;
            work(Box::pin(async move {
                record_start(program, &address);
                // Who started us does not wait any more: it was interrupted, and so are we.
                if detached && detach::say_ready().is_err() {
                    return;
                }
                if announced {
                    // Who does not read it does not care.
                    let _ = writeln!(std::io::stdout(), "{}", daemon::LISTENING);
                }
                stop.await;
            }))
            .await
        });
        let reason = match &result {
            Ok(()) => "asked to".to_owned(),
            Err(Failure::Line(line, _)) => line.clone(),
            Err(Failure::Client(_) | Failure::Status(_)) => "failed".to_owned(),
        };
        if result.is_err() && self.logs_elsewhere {
            tracing::error!(reason, "ended");
        }
        binary_log::record("end", || vec![("reason", Value::text(&reason))]);
        result
    }
}

fn output(common: &Common) -> Result<Output, Failure> {
    let plain = Path::new("-");
    match common.log.as_deref() {
        // A daemon has no standard output.
        None if common.detached => Ok(Output::Nowhere),
        Some(path) if path == plain && common.detached => Ok(Output::Nowhere),
        None => Ok(Output::Standard),
        Some(path) if path == plain => Ok(Output::Plain),
        Some(path) => LogFile::open(path).map(Output::File).map_err(|error| cannot("open log", path, &error)),
    }
}

fn level(common: &Common) -> Level {
    match common.verbose {
        0 => Level::Warn,
        1 => Level::Info,
        _ => Level::Debug,
    }
}

fn record_start(program: &str, address: &str) {
    binary_log::record("start", || {
        vec![
            ("program", Value::text(program)),
            ("version", Value::text(env!("CARGO_PKG_VERSION"))),
            ("pid", u64::from(std::process::id()).into()),
            ("address", Value::text(address)),
        ]
    });
}

/// logrotate renames a file and sends SIGHUP. (Seed 000, 4)
fn reopen_on_hangup() -> Result<impl Future<Output = ()>, Failure> {
    let mut hangups = signal(SignalKind::hangup())
        .map_err(|error| Failure::refused(format!("cannot wait for signals: {error}")))?;
    Ok(async move {
        while hangups.recv().await.is_some() {
            log::reopen();
            binary_log::reopen();
        }
    })
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::refused(format!("cannot {what} {}: {error}", path.display()))
}

/// Every connection takes a file descriptor, and shells allow few: as many as this process may have.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    // Who may not raise it serves as many as it may; the others wait at the door.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
