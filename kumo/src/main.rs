//! The kumo binary: called by one of its names, or as `kumo` with a command.
// They panic when nobody can read what is printed: results go through [`output::Out`], the rest through
// [`output::note`].
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod address;
mod bench;
mod cell;
mod child;
mod cli;
mod completion;
mod config;
mod daemon;
mod failure;
mod fs;
mod http;
mod links;
mod lock;
mod man;
mod output;
mod plan;
mod queue;
mod reference;
mod session;
mod store;
mod target;
mod up;
mod watch;

use cli::{Cli, Command};
use failure::Failure;
use output::Out;
use std::ffi::OsString;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == child::STEP) {
        return child::step(&arguments[2..]).report();
    }
    let result = match links::called_as(&arguments) {
        Some((links::Name::Cell, arguments)) => daemon::main(&arguments),
        Some((name, arguments)) => store::main(name, &arguments),
        None => cli::parse(&arguments).and_then(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn command(cli: Cli) -> Result<(), Failure> {
    let out = Out::new(cli.target.format);
    match cli.command {
        Command::Up(up) => block_on(up::run(up, out)),
        Command::Fs(fs) => block_on(fs::run(fs, cli.target, out)),
        Command::Watch(watch) => block_on(watch::run(watch, cli.target, out)),
        Command::Lock(lock) => block_on(lock::run(lock, cli.target)),
        Command::Queue(queue) => block_on(queue::run(queue, cli.target, out)),
        Command::Session(session) => block_on(session::run(session, cli.target, out)),
        Command::Cell(cell) => cell::run(cell, cli.target, out),
        Command::Bench(bench) => block_on(bench::run(bench, cli.target, out)),
        Command::Config(tool) => config::run(tool, out),
        Command::Plan(plan) => plan::run(&plan, &out),
        Command::Links { folder } => links::write(&folder, out),
        Command::Completion { shell } => completion::run(shell, out),
        Command::Man { folder } => man::run(&folder, out),
        Command::Reference { folder } => reference::run(&folder, out),
    }
}

/// One thread carries a command: nothing here is worth a second one.
fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("cannot start: {error}")))?;
    let result = runtime.block_on(work);
    // A read of standard input that nobody waits for must not keep the process.
    runtime.shutdown_background();
    result
}
