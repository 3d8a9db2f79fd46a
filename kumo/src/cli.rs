//! The command line of `kumo`.

use crate::{bench, cell, fs, lock, queue, session, target, up, watch};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// A cell of a few servers that agree: small files, locks, queues and events.
#[derive(Parser)]
#[command(name = "kumo", version, about, after_help = EXAMPLES, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    pub target: target::Target,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Up(up::Up),
    Fs(fs::Fs),
    Watch(watch::Watch),
    Lock(lock::Lock),
    Queue(queue::Queue),
    Session(session::SessionTool),
    Cell(cell::CellTool),
    Bench(bench::Bench),
    /// Write the symlinks for kumo's other names (kumo-cell) into a folder
    Links {
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Print completions for a shell
    #[command(after_help = "Example:\n  kumo completion bash > /etc/bash_completion.d/kumo")]
    Completion {
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    Man {
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

const EXAMPLES: &str = "\
Examples:
  kumo up                                    a cell of three on this machine, until Ctrl-C
  kumo up -- ./tests.sh                      the same for as long as a command runs
  kumo fs put /config/colour - <<< blue      kumo fs cat /config/colour
  kumo lock deploy -- ./deploy.sh            one at a time in the whole cluster
  kumo queue post jobs 'resize 7'            kumo queue work jobs -- ./worker.sh
  kumo cell status

Exit status:
  0 done   1 refused   2 usage   3 not found or not obtained   4 unreachable   5 no master
  A command run by kumo (lock, up, queue work) passes its own.";
