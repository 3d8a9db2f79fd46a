//! `kumomergedb`: several stores, or backups of them, into one.

use super::common;
use crate::failure::Failure;
use crate::output::{Format, Out, row, table};
use clap::{Args, Command};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Merge stores
#[derive(Args, Clone, Debug)]
pub struct Kumomergedb {
    /// Where the result is written; nothing may be there
    #[arg(value_name = "DST")]
    destination: PathBuf,
    /// Backups, of all servers and of one suffix; or stores that no server uses
    #[arg(value_name = "SRC", required = true)]
    sources: Vec<PathBuf>,
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn command_line() -> Command {
    Kumomergedb::augment_args(Command::new("kumomergedb"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("Merge backups into one store: the newest record of each key wins")
        .after_help(EXAMPLES)
}

pub fn run(kumomergedb: Kumomergedb) -> Result<(), Failure> {
    let sources: Vec<&Path> = kumomergedb.sources.iter().map(PathBuf::as_path).collect();
    let destination = common::plain(kumomergedb.destination);
    let merged =
        kumo_store::merge(&destination, &sources).map_err(|error| Failure::refused(error.to_string()))?;
    let counts: Vec<_> = merged
        .sources
        .iter()
        .map(|source| {
            json!({
                "path": source.path.display().to_string(),
                "records": source.records,
                "added": source.added,
                "newer": source.newer,
                "older": source.older,
                "torn_bytes": source.torn_bytes,
            })
        })
        .collect();
    let value = json!({ "sources": counts, "items": merged.items, "tombstones": merged.tombstones });
    Out::new(kumomergedb.format).result(value, || {
        let mut rows = vec![row([&"SOURCE", &"RECORDS", &"ADDED", &"NEWER", &"OLDER"])];
        for source in &merged.sources {
            let path = source.path.display();
            rows.push(row([&path, &source.records, &source.added, &source.newer, &source.older]));
        }
        let mut text = table(&rows);
        for source in merged.sources.iter().filter(|source| source.torn_bytes > 0) {
            text += &format!("{}: a torn end of {} bytes\n", source.path.display(), source.torn_bytes);
        }
        let destination = destination.display();
        text + &format!("{destination}: {} values, {} tombstones\n", merged.items, merged.tombstones)
    })
}

const EXAMPLES: &str = "\
ADDED: keys that no source before had. NEWER: newer than those of the sources before. OLDER: not taken.
DST can be a server's store (-s).

Name the backups of all servers: what none of them has is not in the result, and nothing tells that it is missing. Each
key is on three servers, so of three or more servers any two may be missing, no more; one that was fault at the time of
the backup, or whose backup failed, is one of these two. Of two servers one may be missing.
All of one suffix: a deletion is remembered for about a minute, so a backup of another time brings back what was deleted
in between.

Examples:
  kumomergedb all.tch database1.tch-20081203 database2.tch-20081203";
