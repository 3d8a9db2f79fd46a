//! `kumo completion`: completions for a shell.

use crate::failure::Failure;
use crate::output::Out;
use crate::{cli, daemon, store};
use clap_complete::Shell;

/// For `kumo` and for each of its other names.
pub fn run(shell: Shell, out: Out) -> Result<(), Failure> {
    let programs = store::command_lines().into_iter().map(|(_, command)| command);
    let mut script = Vec::new();
    for mut command in [cli::whole(), daemon::command_line()].into_iter().chain(programs) {
        let name = command.get_name().to_owned();
        clap_complete::generate(shell, &mut command, name, &mut script);
    }
    out.bytes(&script)
}
