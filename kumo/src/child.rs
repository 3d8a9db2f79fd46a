//! Runs another command under our care: signals are passed on, and it is killed when what it works under is lost, or
//! when we are.

use crate::failure::Failure;
use bytes::Bytes;
use rustix::process::{
    Pid, Signal, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
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
    // By way of [`step`]. This very binary, whatever lies under its name by now.
    let mut builder = Command::new("/proc/self/exe");
    builder.arg0("kumo").arg(STEP).arg(std::process::id().to_string());
    builder.arg(program).args(arguments).kill_on_drop(true);
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
    builder.spawn().map_err(|error| not_run(program, &error))
}

/// The small step between us and a command: `kumo STEP PID CMD…`, whose arguments from PID on these are, asks the kernel
/// to be killed with PID, who runs it, and becomes the command. That survives the change: a command under a lock must
/// not go on when nobody is left who could lose the lock for it.
pub fn step(arguments: &[OsString]) -> Failure {
    let (Some(parent), Some(program)) = (arguments.first(), arguments.get(1)) else {
        return Failure::usage(format!("{STEP} is kumo's own"));
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Failure::refused(format!("cannot run {}: {error}", program.display()));
    }
    // It may have ended before we asked.
    let alive = getppid().is_some_and(|pid| *parent == *pid.as_raw_nonzero().to_string());
    if !alive {
        return Failure::refused("whoever ran this is gone");
    }
    let error = std::process::Command::new(program).args(&arguments[2..]).exec();
    not_run(program, &error)
}

/// As a shell says it.
fn not_run(program: &OsString, error: &std::io::Error) -> Failure {
    let status = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    Failure::Line(format!("cannot run {}: {error}", program.display()), status)
}

/// `--` at the end promises a command: one that a script left empty must not be taken for none.
pub fn expected(command: &[OsString]) -> Result<(), Failure> {
    match command.is_empty() && std::env::args_os().next_back().is_some_and(|last| last == "--") {
        true => Err(Failure::usage("no command after --")),
        false => Ok(()),
    }
}

fn end(child: &Child, signal: Signal, group: bool) {
    let Some(pid) = child.id().and_then(|id| Pid::from_raw(id as i32)) else { return };
    // An error means that it ended meanwhile.
    let _ = if group { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
}

/// The first argument of a step.
pub const STEP: &str = "--step";

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
