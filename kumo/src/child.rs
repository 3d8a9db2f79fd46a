//! Runs another command under our care: signals are passed on, and it is killed when what it works under is lost.

use crate::failure::Failure;
use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// How a command ended.
pub enum Ended {
    /// By itself, with the status to pass on.
    Status(u8),
    /// Killed by us: `lost` was complete.
    Lost,
}

/// Runs the command with further environment and, if given, its standard input, until it ends or `lost` does.
pub async fn run(
    command: &[OsString],
    environment: &[(&str, String)],
    input: Option<Bytes>,
    lost: impl Future<Output = ()>,
) -> Result<Ended, Failure> {
    // At a terminal Ctrl-C reaches the command by itself, and it must stay in the foreground to read there.
    let alone = !std::io::stdin().is_terminal();
    let mut child = start(command, environment, input.is_some(), alone)?;
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        // A command need not read all of its input.
        tokio::spawn(async move { pipe.write_all(&input).await });
    }
    let mut signals = Signals::new()?;
    tokio::pin!(lost);
    loop {
        tokio::select! {
            status = child.wait() => return Ok(Ended::Status(passed(status))),
            () = &mut lost => {
                end(&child, Signal::KILL, alone);
                let _ = child.wait().await;
                return Ok(Ended::Lost);
            }
            signal = signals.next() => {
                if alone || signal != Signal::INT {
                    end(&child, signal, alone);
                }
            }
        }
    }
}

fn start(
    command: &[OsString],
    environment: &[(&str, String)],
    piped: bool,
    alone: bool,
) -> Result<Child, Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::usage("no command after --"));
    };
    let mut builder = Command::new(program);
    builder.args(arguments).kill_on_drop(true);
    for (name, value) in environment {
        builder.env(name, value);
    }
    if piped {
        builder.stdin(Stdio::piped());
    }
    if alone {
        // A group of its own: what the command started ends with it.
        builder.process_group(0);
    }
    let name = program.display();
    builder.spawn().map_err(|error| {
        let status = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
        Failure::Line(format!("cannot run {name}: {error}"), status)
    })
}

fn end(child: &Child, signal: Signal, group: bool) {
    let Some(pid) = child.id().and_then(|id| Pid::from_raw(id as i32)) else { return };
    // An error means that it ended meanwhile.
    let _ = if group { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
}

/// As a shell passes it: the code, or 128 and the signal's number.
fn passed(status: std::io::Result<ExitStatus>) -> u8 {
    let Ok(status) = status else { return 1 };
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// The signals that are passed on.
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    pub fn new() -> Result<Signals, Failure> {
        let open = |kind| {
            signal(kind).map_err(|error| Failure::refused(format!("cannot wait for signals: {error}")))
        };
        Ok(Signals {
            terminate: open(SignalKind::terminate())?,
            interrupt: open(SignalKind::interrupt())?,
            hangup: open(SignalKind::hangup())?,
        })
    }

    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.hangup.recv() => Signal::HUP,
        }
    }
}
