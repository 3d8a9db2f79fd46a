//! The store's programs: kumo-manager, kumo-server, kumo-gateway and their tools.

mod argv;
mod common;
mod condition;
mod detach;
pub mod gateway;
mod kumoctl;
mod kumohash;
mod kumolog;
mod kumomergedb;
mod kumostat;
mod kumotop;
pub mod manager;
mod process;
pub mod server;
mod shown;
pub mod tool;

pub use argv::rewrite as spelled;

use crate::cli;
use crate::config::{self, Role};
use crate::failure::Failure;
use crate::links::Name;
use clap::error::ErrorKind;
use clap::{Command, FromArgMatches};
use std::ffi::OsString;

/// A program of the store, by its own name.
pub fn main(name: Name, arguments: &[OsString]) -> Result<(), Failure> {
    match name {
        Name::Cell => unreachable!("kumo-cell is not of the store"),
        Name::Manager => manager::run(configured(Role::Manager, arguments)?),
        Name::Server => server::run(configured(Role::Server, arguments)?),
        Name::Gateway => gateway::run(configured(Role::Gateway, arguments)?),
        Name::Kumoctl => kumoctl::run(parse(kumoctl::command_line(), arguments)?),
        Name::Kumostat => kumostat::run(parse(kumostat::command_line(), arguments)?),
        Name::Kumotop => kumotop::run(parse(kumotop::command_line(), arguments)?),
        Name::Kumohash => kumohash::run(parse(kumohash::command_line(), arguments)?),
        Name::Kumolog => kumolog::run(parse(kumolog::command_line(), arguments)?),
        Name::Kumomergedb => kumomergedb::run(parse(kumomergedb::command_line(), arguments)?),
    }
}

/// All of them, each with the command of `kumo` that is the same thing.
pub fn command_lines() -> Vec<(&'static str, Command)> {
    vec![
        ("manager", manager::command_line()),
        ("server", server::command_line()),
        ("gateway", gateway::command_line()),
        ("ctl", kumoctl::command_line()),
        ("stat", kumostat::command_line()),
        ("top", kumotop::command_line()),
        ("hash", kumohash::command_line()),
        ("log", kumolog::command_line()),
        ("mergedb", kumomergedb::command_line()),
    ]
}

/// Reads a command line in the seed's spelling.
fn parse<T: FromArgMatches>(command: Command, arguments: &[OsString]) -> Result<T, Failure> {
    let arguments = argv::rewrite(&command, arguments);
    read(command, &arguments)
}

/// As [`parse`], with what the environment and a file say beside it.
fn configured<T: FromArgMatches>(role: Role, arguments: &[OsString]) -> Result<T, Failure> {
    let command = role.command_line();
    let arguments = config::complete(role, &argv::rewrite(&command, arguments))?;
    read(command, &arguments)
}

fn read<T: FromArgMatches>(command: Command, arguments: &[OsString]) -> Result<T, Failure> {
    let name = command.get_name().to_owned();
    let matches = cli::with_negative_numbers(command).bin_name(&name).try_get_matches_from(arguments);
    let matches = matches.map_err(|error| misused(&name, &error))?;
    T::from_arg_matches(&matches).map_err(|error| misused(&name, &error))
}

/// What clap says in a paragraph, as one line that names the option.
pub fn misused(name: &str, error: &clap::Error) -> Failure {
    let whole = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if whole || !error.use_stderr() {
        error.exit();
    }
    let text = error.render().to_string();
    let sentence: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let sentence = sentence.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let tip = tip.map(|tip| format!("; {tip}")).unwrap_or_default();
    Failure::usage(format!("{sentence}{tip} (see {name} --help)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_line_is_well_formed() {
        for (short, command) in command_lines() {
            command.name(short).debug_assert();
        }
        crate::cli::whole().debug_assert();
    }

    #[test]
    fn a_bad_option_is_one_line_that_names_it() {
        for (arguments, named) in [
            (&["kumo-server", "-m", "localhost"][..], "--listen"),
            (&["kumo-server", "-m", "localhost", "-l", "localhost", "--bogus"][..], "--bogus"),
            (
                &["kumo-server", "-m", "localhost", "-l", "localhost", "-Yn", "many"][..],
                "--connect-retry-limit",
            ),
        ] {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            match parse::<server::Server>(server::command_line(), &arguments) {
                Err(Failure::Line(line, 2)) => {
                    assert!(line.contains(named) && !line.contains('\n'), "{line}");
                }
                other => panic!("{:?}", other.map(|_| ())),
            }
        }
    }
}
