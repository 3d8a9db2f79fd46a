//! `kumo man`: manual pages, one for each command and each further name.

use crate::failure::Failure;
use crate::output::Out;
use crate::{cli, daemon, store};
use clap::Command;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub fn run(folder: &Path, out: Out) -> Result<(), Failure> {
    // After kumo's own: `kumo manager` and kumo-manager have one page, the program's.
    let programs = store::command_lines().into_iter().map(|(_, command)| command);
    let mut pages = BTreeSet::new();
    let written = std::fs::create_dir_all(folder).and_then(|()| {
        [cli::whole(), daemon::command_line()].into_iter().chain(programs).try_for_each(|command| {
            let mut command = command.disable_help_subcommand(true);
            command.build();
            write(&command, folder, &mut pages)
        })
    });
    written.map_err(|error| Failure::refused(format!("cannot write to {}: {error}", folder.display())))?;
    let pages: Vec<String> = pages.iter().map(|page| page.display().to_string()).collect();
    out.result(json!({ "pages": pages }), || pages.join("\n"))
}

/// A command's page, and those of its commands.
fn write(command: &Command, folder: &Path, pages: &mut BTreeSet<PathBuf>) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write(below, folder, pages)?;
    }
    pages.insert(clap_mangen::Man::new(command.clone()).generate_to(folder)?);
    Ok(())
}
