//! `kumo fs`: files and directories.

use crate::failure::Failure;
use crate::output::{Out, row, table, time, visible, with_data};
use crate::target::Target;
use bytes::Bytes;
use clap::{Args, Subcommand};
use pfs::{Condition, DirectoryEntry, Place, Session, Stat, WRITE_BYTES_MAX, Written};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Files and directories of the cell
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Fs {
    #[command(subcommand)]
    command: FsCommand,
}

#[derive(Subcommand)]
enum FsCommand {
    /// Entries of a directory
    Ls {
        #[arg(default_value = "/")]
        path: String,
        /// With kind, length, version and times
        #[arg(short)]
        long: bool,
    },
    /// A file's content
    Cat { path: String },
    /// Make a local file, or standard input, the content of a file; in one step, up to 64 MiB
    Put {
        path: String,
        #[arg(default_value = "-")]
        file: PathBuf,
        #[command(flatten)]
        unless: Unless,
    },
    /// Add a local file, or standard input, to the end of a file
    Append {
        path: String,
        #[arg(default_value = "-")]
        file: PathBuf,
        #[command(flatten)]
        unless: Unless,
    },
    /// Delete a file
    Rm { path: String },
    /// Make a directory and its parents
    Mkdir { path: String },
    /// Remove an empty directory
    Rmdir { path: String },
    /// What is known of a file or directory
    Stat { path: String },
    /// Rename a file or directory
    Mv { from: String, to: String },
    /// A directory and all below it
    Tree {
        #[arg(default_value = "/")]
        path: String,
    },
}

/// When not to write.
#[derive(Args)]
struct Unless {
    /// Only if the file has this version; 0: only if it does not exist
    #[arg(long, value_name = "VERSION", conflicts_with = "fence")]
    if_version: Option<u64>,
    /// Only while this lock is held under this number (see kumo lock)
    #[arg(long, value_name = "LOCK=NUMBER", value_parser = parse_fence)]
    fence: Option<(String, u64)>,
}

impl Unless {
    fn condition(self) -> Condition {
        match (self.if_version, self.fence) {
            (Some(version), _) => Condition::Version(version),
            (None, Some((lock, number))) => Condition::Fence { lock, number },
            (None, None) => Condition::Always,
        }
    }
}

pub async fn run(fs: Fs, target: Target, out: Out) -> Result<(), Failure> {
    // Read before the session is opened: standard input may take longer than a session lives.
    let input = match &fs.command {
        FsCommand::Put { file, .. } | FsCommand::Append { file, .. } => Some(read_input(file)?),
        FsCommand::Ls { .. }
        | FsCommand::Cat { .. }
        | FsCommand::Rm { .. }
        | FsCommand::Mkdir { .. }
        | FsCommand::Rmdir { .. }
        | FsCommand::Stat { .. }
        | FsCommand::Mv { .. }
        | FsCommand::Tree { .. } => None,
    };
    let input = input.unwrap_or_default();
    target.in_session_unless_signalled(async |session| perform(fs.command, input, session, &out).await).await
}

async fn perform(command: FsCommand, input: Bytes, session: &Session, out: &Out) -> Result<(), Failure> {
    match command {
        FsCommand::Ls { path, long } => list(session, &path, long, out).await,
        FsCommand::Cat { path } => cat(session, &path, out).await,
        FsCommand::Put { path, unless, .. } => {
            let written = session.write_if(&path, Place::Replace, input, unless.condition()).await?;
            report(out, &path, written)
        }
        FsCommand::Append { path, unless, .. } => {
            let written = session.write_if(&path, Place::End, input, unless.condition()).await?;
            report(out, &path, written)
        }
        FsCommand::Rm { path } => {
            session.delete(&path).await?;
            out.result(json!({ "deleted": path }), String::new)
        }
        FsCommand::Mkdir { path } => {
            session.mkdir(&path).await?;
            out.result(json!({ "created": path }), String::new)
        }
        FsCommand::Rmdir { path } => {
            session.rmdir(&path).await?;
            out.result(json!({ "deleted": path }), String::new)
        }
        FsCommand::Stat { path } => {
            let stat = session.stat(&path).await?;
            out.result(stat_json(&path, &stat), || stat_text(&path, &stat))
        }
        FsCommand::Mv { from, to } => {
            session.rename(&from, &to).await?;
            out.result(json!({ "from": from, "to": to }), String::new)
        }
        FsCommand::Tree { path } => tree(session, &path, out).await,
    }
}

/// A whole local file, or all of standard input. One byte above the limit is enough to know.
pub fn read_input(file: &Path) -> Result<Bytes, Failure> {
    let name = match file.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    };
    let mut data = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().take(WRITE_BYTES_MAX + 1).read_to_end(&mut data),
        false => std::fs::File::open(file)
            .and_then(|opened| opened.take(WRITE_BYTES_MAX + 1).read_to_end(&mut data)),
    };
    read.map_err(|error| Failure::refused(format!("cannot read {name}: {error}")))?;
    if data.len() as u64 > WRITE_BYTES_MAX {
        return Err(Failure::refused(format!(
            "{name} is larger than {WRITE_BYTES_MAX} bytes, the limit of one write"
        )));
    }
    Ok(data.into())
}

fn report(out: &Out, path: &str, written: Written) -> Result<(), Failure> {
    let Written { count, version, length } = written;
    out.result(json!({ "path": path, "count": count, "version": version, "length": length }), String::new)
}

async fn cat(session: &Session, path: &str, out: &Out) -> Result<(), Failure> {
    let piece = session.read(path).await?;
    if !out.is_json() {
        return out.bytes(&piece.bytes);
    }
    let object = json!({ "path": path, "version": piece.version, "length": piece.bytes.len() });
    out.result(with_data(object, &piece.bytes), String::new)
}

async fn list(session: &Session, path: &str, long: bool, out: &Out) -> Result<(), Failure> {
    let entries = session.readdir(path).await?;
    let objects: Vec<Value> = entries.iter().map(|entry| stat_json(&entry.name, &entry.stat)).collect();
    out.result(json!({ "path": path, "entries": objects, "total": entries.len() }), || match long {
        true => table(&entries.iter().map(long_row).collect::<Vec<_>>()),
        false => entries.iter().map(|entry| shown(&entry.name, &entry.stat) + "\n").collect(),
    })
}

fn long_row(entry: &DirectoryEntry) -> Vec<String> {
    let stat = &entry.stat;
    let modified = time(stat.modified);
    row([&kind(stat), &stat.length, &stat.version, &modified, &shown(&entry.name, stat)])
}

/// A directory's name ends with a slash.
fn shown(name: &str, stat: &Stat) -> String {
    let name = visible(name);
    if stat.directory { format!("{name}/") } else { name }
}

fn kind(stat: &Stat) -> &'static str {
    match (stat.directory, stat.ephemeral) {
        (true, _) => "directory",
        (false, None) => "file",
        (false, Some(_)) => "ephemeral",
    }
}

fn stat_json(name: &str, stat: &Stat) -> Value {
    json!({
        "name": name,
        "kind": kind(stat),
        "length": stat.length,
        "version": stat.version,
        "created_ms": stat.created.0,
        "modified_ms": stat.modified.0,
        "session": stat.ephemeral.map(|session| session.to_string()),
    })
}

fn stat_text(path: &str, stat: &Stat) -> String {
    let session = stat.ephemeral.map(|session| format!(" of session {session}")).unwrap_or_default();
    let (created, modified) = (time(stat.created), time(stat.modified));
    table(&[
        row([&"path", &path]),
        row([&"kind", &format!("{}{session}", kind(stat))]),
        row([&"length", &stat.length]),
        row([&"version", &stat.version]),
        row([&"created", &created]),
        row([&"modified", &modified]),
    ])
}

/// Depth first without recursion: what is still to be shown is on a stack.
async fn tree(session: &Session, path: &str, out: &Out) -> Result<(), Failure> {
    let root = path.trim_end_matches('/').to_owned();
    let mut objects = Vec::new();
    let mut text = format!("{}\n", visible(path));
    let mut open = vec![(root.clone(), String::new(), session.readdir(path).await?.into_iter())];
    while let Some((folder, indent, entries)) = open.last_mut() {
        let Some(entry) = entries.next() else {
            open.pop();
            continue;
        };
        let last = entries.len() == 0;
        text.push_str(&format!(
            "{indent}{} {}\n",
            if last { "└──" } else { "├──" },
            shown(&entry.name, &entry.stat)
        ));
        let below = format!("{folder}/{}", entry.name);
        objects.push(stat_json(&below, &entry.stat));
        if entry.stat.directory {
            let indent = format!("{indent}{}", if last { "    " } else { "│   " });
            let entries = session.readdir(&below).await?;
            open.push((below, indent, entries.into_iter()));
        }
    }
    out.result(json!({ "path": path, "entries": objects, "total": objects.len() }), || text)
}

fn parse_fence(text: &str) -> Result<(String, u64), String> {
    let parsed =
        text.rsplit_once('=').and_then(|(lock, number)| Some((lock.to_owned(), number.parse().ok()?)));
    parsed.ok_or_else(|| format!("a fence is written LOCK=NUMBER, not {text}"))
}

const EXAMPLES: &str = "\
Examples:
  kumo fs put /config/app.toml app.toml      kumo fs cat /config/app.toml
  echo one | kumo fs append /log             kumo fs ls -l /config
  hostname | kumo fs put /leader --fence leader=$KUMO_LOCK_NUMBER      (inside kumo lock leader -- ...)

--format json: ls and tree {path, entries, total} with entries (and stat) of {name, kind: file|ephemeral|directory,
length, version, created_ms, modified_ms, session}; cat {path, version, length, encoding: utf-8|base64, data};
put and append {path, count, version, length}; rm and rmdir {deleted}; mkdir {created}; mv {from, to}.";
