//! Configuration: flags over the environment over a file over defaults, for every process that runs for long.
//!
//! There is one list of keys, the long options of clap's own command lines: a file's `key = value` and a variable
//! become the option of that name, put before those that were typed, and clap judges them all alike.

mod file;
mod layers;
mod nearest;
mod role;
mod show;

use crate::failure::Failure;
use crate::output::Out;
use clap::{Arg, ArgMatches, Args, Command, Subcommand};
use layers::Layers;
pub use role::Role;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Look at the configuration of a process
#[derive(Args)]
pub struct ConfigTool {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// What a process would run with, and where each value came from
    #[command(after_help = HELP)]
    Show {
        /// manager, server, gateway, cell or up (all of them unless one is named), and its options
        #[arg(value_name = "ROLE [OPTIONS]", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

pub fn run(tool: ConfigTool, out: Out) -> Result<(), Failure> {
    match tool.command {
        ConfigCommand::Show { arguments } => show::run(&arguments, out),
    }
}

/// The arguments of a process, the first being its name, with what the environment and a file say beside them.
pub fn complete(role: Role, arguments: &[OsString]) -> Result<Vec<OsString>, Failure> {
    Ok(Layers::of(role, &role.command_line(), arguments)?.complete(arguments))
}

/// What a file has for another process, as one would type it there, but for the options named.
pub fn passed_on(role: Role, file: &Path, but: &[&str]) -> Result<Vec<OsString>, Failure> {
    Layers::of_section(role, &role.command_line(), file, but)
}

/// The file that was named where it can be.
pub fn file(matches: &ArgMatches) -> Option<PathBuf> {
    matches.get_one::<PathBuf>(FILE).cloned()
}

/// A command line that can be configured: it takes a file.
pub fn with_file(command: Command) -> Command {
    let file = Arg::new(FILE)
        .long(FILE)
        .value_name("FILE.toml")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Take options that are not given from this file, or from that of KUMO_CONFIG")
        .long_help(LONG_HELP);
    command.arg(file)
}

/// The option that names the file, and the variable.
const FILE: &str = "config";
const FILE_VARIABLE: &str = "KUMO_CONFIG";

const LONG_HELP: &str = "\
Take options that are not given from this file, or from that of KUMO_CONFIG.

Each long option is a key in its program's section: [manager], [server], [gateway], [cell] or [up]. A variable \
KUMO_ROLE_OPTION, like KUMO_SERVER_MIN_COPIES, comes before the file; lists are separated by commas, switches are true \
or false. kumo config show tells which value came from where.";

const HELP: &str = "\
Examples:
  kumo config show
  kumo config show server --config /etc/kumo.toml --sync always
  KUMO_MANAGER_LEASE=3 kumo config show manager --format json

A flag comes before the variable KUMO_ROLE_OPTION (KUMO_SERVER_MIN_COPIES; one that is empty is not set), that before
the file of --config or KUMO_CONFIG, that before the default:

  [manager]
  listen = \"10.0.0.1\"
  partner = [\"10.0.0.2\", \"10.0.0.3\"]
  [server]
  listen = \"10.0.0.1\"
  manager = \"10.0.0.1\"
  min-copies = 2

Keys are long options. An unknown key is an error, and so is a variable that is nearly an option's; other variables
of such names are left alone: container platforms make some up.

--format json: {ROLE: {KEY: {value, from (flag, environment, file, default or unset), name}}}.";
