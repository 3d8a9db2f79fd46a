//! `kumo man`: manual pages, one for each command and each further name.

use crate::failure::Failure;
use crate::output::Out;
use crate::{cli, daemon, store};
use serde_json::json;
use std::path::Path;

pub fn run(folder: &Path, out: Out) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(folder).and_then(|()| {
        clap_mangen::generate_to(cli::whole(), folder)?;
        clap_mangen::generate_to(daemon::command_line(), folder)?;
        // After kumo's own: `kumo manager` and kumo-manager have one page, the program's.
        store::command_lines()
            .into_iter()
            .try_for_each(|(_, command)| clap_mangen::generate_to(command, folder))
    });
    written.map_err(|error| Failure::refused(format!("cannot write to {}: {error}", folder.display())))?;
    out.result(json!({ "folder": folder.display().to_string() }), String::new)
}
