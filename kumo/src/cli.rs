//! The command line of `kumo`.

use crate::failure::Failure;
use crate::{bench, cell, config, fs, lock, plan, queue, session, store, target, up, watch};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// A store behind memcached's port that does not forget, and its cell: small files, locks, queues and events.
#[derive(Parser)]
#[command(name = "kumo", version, after_help = EXAMPLES, propagate_version = true)]
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
    Config(config::ConfigTool),
    Plan(plan::Plan),
    /// Write symlinks for kumo and its other names (kumo-server, kumoctl, …) into a folder
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
    /// Write the help of every command as Markdown pages into a folder
    Reference {
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// The command line with the store's programs among its commands: for help, completions and manuals. They are called
/// before it is read (links.rs), each with a command line of its own.
pub fn whole() -> clap::Command {
    own().subcommands(store::command_lines().into_iter().map(|(short, command)| command.name(short)))
}

/// kumo's own commands.
pub fn own() -> clap::Command {
    let command = Cli::command().mut_subcommands(|command| match command.get_name() {
        "up" | "cell" => config::with_file(command),
        _other => command,
    });
    with_negative_numbers(command)
}

/// `-1` is a value, and what is wrong with it is said: not that there is no such option.
pub fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let taken = |arg: clap::Arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(taken).mut_subcommands(with_negative_numbers)
}

pub fn parse(arguments: &[OsString]) -> Result<Cli, Failure> {
    let matches = whole().get_matches_from(configured(arguments)?);
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let (Command::Up(up), Some((_, own))) = (&mut cli.command, matches.subcommand()) {
        up.config = config::file(own);
    }
    Ok(cli)
}

/// Of kumo's own commands, `up` is the one that can be configured.
fn configured(arguments: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let is_up = |&index: &usize| {
        let matches = whole().ignore_errors(true).try_get_matches_from(&arguments[..=index]);
        matches.is_ok_and(|matches| matches.subcommand_name() == Some("up"))
    };
    let up = (1..arguments.len()).filter(|&index| arguments[index] == "up").find(is_up);
    let (before, own) = arguments.split_at(up.unwrap_or(arguments.len()));
    match up {
        None => Ok(before.to_vec()),
        Some(_) => Ok([before.to_vec(), config::complete(config::Role::Up, own)?].concat()),
    }
}

const EXAMPLES: &str = "\
Examples:
  kumo up                                    a whole cluster on this machine, until Ctrl-C
  kumo up -- ./tests.sh                      the same for as long as a command runs
  kumo fs put /config/colour - <<< blue      kumo fs cat /config/colour
  kumo lock deploy -- ./deploy.sh            one at a time in the whole cluster
  kumo queue post jobs 'resize 7'            kumo queue work jobs -- ./worker.sh
  kumo cell status
  kumo manager -v -l localhost               also kumo-manager, by the links of `kumo links DIR`;
  kumo ctl localhost stat                    so are server, gateway, ctl, stat, top, hash, log and mergedb

Exit status:
  0 done   1 refused   2 usage   3 not found or not obtained   4 unreachable   5 no master
  A command run by kumo (lock, up, queue work) passes its own.";
