//! The store's programs: kumo-manager, kumo-server, kumo-gateway and their tools.

mod argv;
mod common;
mod gateway;
mod kumoctl;
mod manager;
mod server;
mod tool;

use crate::failure::Failure;
use crate::links::Name;
use clap::{Command, FromArgMatches};
use std::ffi::OsString;

/// A program of the store, by its own name.
pub fn main(name: Name, arguments: &[OsString]) -> Result<(), Failure> {
    match name {
        Name::Cell => unreachable!("kumo-cell is not of the store"),
        Name::Manager => manager::run(parse(manager::command_line(), arguments)?),
        Name::Server => server::run(parse(server::command_line(), arguments)?),
        Name::Gateway => gateway::run(parse(gateway::command_line(), arguments)?),
        Name::Kumoctl => kumoctl::run(parse(kumoctl::command_line(), arguments)?),
    }
}

/// Reads a command line in the seed's spelling.
fn parse<T: FromArgMatches>(command: Command, arguments: &[OsString]) -> Result<T, Failure> {
    let arguments = argv::rewrite(&command, arguments);
    let matches = command.get_matches_from(arguments);
    T::from_arg_matches(&matches).map_err(|error| Failure::usage(error.to_string()))
}
