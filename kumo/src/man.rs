//! `kumo man`: manual pages, one for each command and each further name.

use crate::cli::Cli;
use crate::daemon;
use crate::failure::Failure;
use crate::output::Out;
use clap::CommandFactory;
use serde_json::json;
use std::path::Path;

pub fn run(folder: &Path, out: Out) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
        .and_then(|()| clap_mangen::generate_to(daemon::command_line(), folder));
    written.map_err(|error| Failure::refused(format!("cannot write to {}: {error}", folder.display())))?;
    out.result(json!({ "folder": folder.display().to_string() }), String::new)
}
