//! `kumo reference`: the help of every command as Markdown pages, one for each of the binary's names.

use crate::failure::Failure;
use crate::output::Out;
use crate::{cli, daemon, store};
use clap::Command;
use serde_json::json;
use std::path::Path;

pub fn run(folder: &Path, out: Out) -> Result<(), Failure> {
    // `kumo manager` and kumo-manager are one program with one page, its own: kumo's page only names it.
    let (named, programs): (Vec<&str>, Vec<Command>) = store::command_lines().into_iter().unzip();
    let mut pages = Vec::new();
    for command in [cli::whole(), daemon::command_line()].into_iter().chain(programs) {
        let path = folder.join(format!("{}.md", command.get_name()));
        let written =
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, page(command, &named)));
        written.map_err(|error| Failure::refused(format!("cannot write {}: {error}", path.display())))?;
        pages.push(path.display().to_string());
    }
    out.result(json!({ "pages": pages }), || pages.join("\n"))
}

/// `elsewhere`: commands that have a page of their own.
fn page(command: Command, elsewhere: &[&str]) -> String {
    let mut command = without_environment(command);
    command.build();
    let name = command.get_name().to_owned();
    let mut text = format!("# {name}\n\nWritten by `kumo reference`: what `--help` prints.\n");
    sections(&name, &mut command, elsewhere, &mut text);
    text
}

/// Help shows what variables hold here and now: that is nobody else's.
fn without_environment(command: Command) -> Command {
    command.mut_args(|arg| arg.hide_env_values(true)).mut_subcommands(without_environment)
}

/// The command's own help, then its subcommands', in the order in which help lists them.
fn sections(name: &str, command: &mut Command, elsewhere: &[&str], text: &mut String) {
    // Spaces at the ends of lines are none that anybody sees.
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    text.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n")));
    let is_here = |below: &&mut Command| {
        let own = if name == "kumo" { elsewhere } else { &[] };
        below.get_name() != "help" && !below.is_hide_set() && !own.contains(&below.get_name())
    };
    for below in command.get_subcommands_mut().filter(is_here) {
        let name = format!("{name} {}", below.get_name());
        sections(&name, below, &[], text);
    }
}
