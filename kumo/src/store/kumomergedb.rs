//! `kumomergedb`: several stores, or backups of them, into one.

use super::common;
use crate::failure::Failure;
use crate::output::{Format, Out, note, row, table, visible};
use clap::{Args, Command};
use kumo_cluster::{Coverage, ServerId, Space};
use kumo_node::store::origin;
use serde_json::json;
use std::net::SocketAddr;
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
    /// Merge though part of the hash ring is in none of the sources: its keys are not in the result
    #[arg(long)]
    accept_data_loss: bool,
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
    let ring = Ring::of(&sources, kumomergedb.accept_data_loss)?;
    if let Ring::Lacking(lack) = &ring
        && !kumomergedb.accept_data_loss
    {
        return Err(Failure::refused(format!("{lack} (--accept-data-loss merges what there is)")));
    }
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
    if let Some(line) = ring.line() {
        note(format!("kumomergedb: {}", visible(line)));
    }
    let value = json!({
        "sources": counts,
        "items": merged.items,
        "tombstones": merged.tombstones,
        "whole": ring.whole(),
    });
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

/// Whether the sources hold the whole hash ring.
enum Ring {
    Whole,
    /// What is missing.
    Lacking(String),
    /// Some do not say which server they are of, and the others do not hold it all.
    Unknown(String),
    /// The merge refuses them.
    OfClusters,
}

impl Ring {
    fn of(sources: &[&Path], accepts_loss: bool) -> Result<Ring, Failure> {
        let (mut known, mut silent) = (Vec::new(), Vec::new());
        for &source in sources {
            match origin(source) {
                Ok(Some(origin)) => known.push((source, origin)),
                Ok(None) => silent.push(source),
                // What it cannot say does not keep its records from whoever wants what there is.
                Err(error) if accepts_loss => {
                    note(format!("kumomergedb: {}", visible(&error.to_string())));
                    silent.push(source);
                }
                Err(error) => {
                    return Err(Failure::refused(format!(
                        "{error} (--accept-data-loss merges without knowing which server that is of)"
                    )));
                }
            }
        }
        let (paths, copies): (Vec<&Path>, Vec<(ServerId, Space)>) = known.into_iter().unzip();
        if copies.windows(2).any(|pair| pair[0].1.cluster != pair[1].1.cluster) {
            return Ok(Ring::OfClusters);
        }
        let coverage = Coverage::of(&copies);
        Ok(match silent.first() {
            _any if !copies.is_empty() && coverage.missing_parts == 0 => Ring::Whole,
            None => {
                let outdated = copies.iter().map(|(server, _)| coverage.outdated.contains(&server.address));
                let outdated: Vec<&Path> =
                    paths.into_iter().zip(outdated).filter(|(_, is)| *is).map(|(path, _)| path).collect();
                Ring::Lacking(lack(&coverage, &outdated))
            }
            Some(first) => Ring::Unknown(unknown(first, silent.len() - 1)),
        })
    }

    /// What is to be said of it.
    fn line(&self) -> Option<&str> {
        match self {
            Ring::Lacking(line) | Ring::Unknown(line) => Some(line),
            Ring::Whole | Ring::OfClusters => None,
        }
    }

    fn whole(&self) -> Option<bool> {
        match self {
            Ring::Whole => Some(true),
            Ring::Lacking(_) => Some(false),
            Ring::Unknown(_) | Ring::OfClusters => None,
        }
    }
}

fn lack(coverage: &Coverage, outdated: &[&Path]) -> String {
    let names: Vec<String> = coverage.missing.iter().map(SocketAddr::to_string).collect();
    let mut line = format!(
        "{} of the hash ring is in none of these: what is missing are backups of {}",
        percent(coverage.missing_parts),
        names.join(", ")
    );
    for path in outdated {
        line += &format!("; {} is too old: its server was lost or taken out since", path.display());
    }
    line
}

fn unknown(first: &Path, others: usize) -> String {
    let them = match others {
        0 => format!("{} does not say which server it is of", first.display()),
        others => format!("{} and {others} more do not say which servers they are of", first.display()),
    };
    format!("whether these have the whole hash ring cannot be told: {them}")
}

/// Of 2^-32 parts of the ring; never nothing.
fn percent(parts: u64) -> String {
    match parts as f64 * 100.0 / (1u64 << 32) as f64 {
        little if little < 0.1 => "less than 0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

const EXAMPLES: &str = "\
ADDED: keys that no source before had. NEWER: newer than those of the sources before. OLDER: not taken.
DST can be a server's store (-s).

Name the backups of all servers: what none of them has is not in the result. Each key is on three servers, so of three or
more servers any two may be missing, no more; one that was fault at the time of the backup, or whose backup failed, is one
of these two. Of two servers one may be missing. Backups say which server they are of and which servers there were: if part
of the hash ring is in none of them, the merge is refused and names whose backups are missing. What was merged before does
not say that; then this is told on standard error, and nothing is refused.
All of one suffix: a deletion is remembered for about a minute, so a backup of another time brings back what was deleted
in between.

Examples:
  kumomergedb all.tch database1.tch-20081203 database2.tch-20081203";
