//! `kumo completion`: completions for a shell.

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output::Out;
use clap::CommandFactory;
use clap_complete::Shell;

pub fn run(shell: Shell, out: Out) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kumo", &mut script);
    out.bytes(&script)
}
