//! `bench`: kumo and its peers, measured in one run, interleaved, as ratios.

mod cell;
mod failure;
mod figures;
mod kumo;
mod load;
mod machine;
mod peers;
mod process;
mod report;
mod rounds;
mod sample;
mod store;

use clap::{Args, Parser, Subcommand};
use failure::Result;
use kumo::Kumo;
use machine::Machine;
use peers::Peers;
use report::{Format, Report};
use std::path::PathBuf;
use std::process::ExitCode;

/// kumo and its peers, measured in one run, interleaved, as ratios
#[derive(Parser)]
#[command(name = "bench", after_help = EXAMPLES)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Three replicas of a cell, etcd and ZooKeeper
    Cell(Options),
    /// The store, memcached, twemproxy and Redis
    Store(Options),
}

#[derive(Args, Clone)]
pub struct Options {
    /// Seconds of one run
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    pub secs: f64,
    /// Runs of each system that are counted, in turn, after one that is not
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,
    /// Only what has this word in its title
    #[arg(long, value_name = "WORD")]
    pub only: Option<String>,
    /// How often a process is killed, and stopped
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub kills: u32,
    /// Megabytes of state for the rejoin of a replica
    #[arg(long, value_name = "MB", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub state: u32,
    /// Records for memory, start-up and attach
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(10_000..=100_000_000))]
    pub records: u32,
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// The binary to measure, in place of this checkout's
    #[arg(long, value_name = "PATH")]
    pub kumo: Option<PathBuf>,
    /// Where stores on disk are put, in place of the folder of builds
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Fetch the peers that are missing, into the folder of builds
    #[arg(long)]
    pub install: bool,
}

impl Options {
    pub fn wants(&self, title: &str) -> bool {
        self.only.as_ref().is_none_or(|word| title.to_lowercase().contains(&word.to_lowercase()))
    }
}

fn main() -> ExitCode {
    match run(&CommandLine::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything could be measured.
fn run(command: &Command) -> Result<bool> {
    let (Command::Cell(options) | Command::Store(options)) = command;
    // Before we are the load ourselves.
    let machine = Machine::take();
    let kumo = Kumo::find(options.kumo.as_deref())?;
    let mut report = Report::new(options.format, &machine);
    let peers = Peers::new()?;
    let measured = match command {
        Command::Cell(options) => cell::measure(options, &kumo, &peers, &mut report),
        Command::Store(options) => store::measure(options, &kumo, &peers, &mut report),
    };
    if let Err(failure) = measured {
        report.failed("the rest", &failure);
    }
    Ok(report.finish())
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=600.0).contains(&seconds) => Ok(seconds),
        Ok(_) => Err("from 0.05 to 600".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

const EXAMPLES: &str = "\
Examples:
  cargo run --profile shipped -p bench -- cell --install
  cargo run --profile shipped -p bench -- store --secs 5 --repeats 5 --format json
  cargo run --release -p bench -- cell --only failover --kills 20

lab/bench/README.md says what is measured, and what cannot be compared.";
