//! `kumostat`: one fact about one server, or about all of them.

use super::common::{CONTROL_PORT, SERVER_PORT};
use super::condition::Lives;
use super::kumoctl::JobView;
use super::tool;
use crate::address;
use crate::failure::Failure;
use crate::output::{Format, Out, row, table};
use clap::{Args, Command, ValueEnum};
use kumo_cluster::control::{ServerReport, Stat};
use kumo_cluster::{Space, SpaceNumber};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Ask servers how they do
#[derive(Args, Clone, Debug)]
pub struct Kumostat {
    /// All servers that this manager knows, in place of one
    #[arg(short = 'm', long, value_name = "ADDR[:19799]")]
    manager: Option<String>,
    /// The server (not with -m), and the item
    #[arg(value_name = "[SERVER[:19800]] ITEM", num_args = 1..=2, required = true)]
    words: Vec<String>,
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Item {
    Pid,
    Uptime,
    Time,
    Version,
    CmdGet,
    CmdSet,
    CmdDelete,
    Items,
    Stats,
    Rhs,
    Whs,
    Hscheck,
    Replstat,
}

pub fn command_line() -> Command {
    Kumostat::augment_args(Command::new("kumostat"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("Ask servers how they do")
        .after_help(EXAMPLES)
}

pub fn run(kumostat: Kumostat) -> Result<(), Failure> {
    let out = Out::new(kumostat.format);
    let (server, item) = match (&kumostat.manager, &kumostat.words[..]) {
        (Some(_), [item]) => (None, item),
        (None, [server, item]) => (Some(server), item),
        (Some(_), _) => return Err(Failure::usage("with -m there is only an ITEM")),
        (None, _) => {
            return Err(Failure::usage("a SERVER and an ITEM are wanted, or -m MANAGER and an ITEM"));
        }
    };
    let item = Item::from_str(item, false).map_err(|_| {
        let known: Vec<_> = Item::value_variants().iter().map(|item| item.name()).collect();
        Failure::usage(format!("no such item: {item} (there are {})", known.join(", ")))
    })?;
    match (server, &kumostat.manager) {
        (Some(server), _) => {
            let server = address::one(server, SERVER_PORT)?;
            crate::block_on(async move {
                let report = tool::inspect(server).await?;
                let facts = facts(item, &report, &Lives::alone(report.server));
                out.result(facts_value(&facts), || facts_text(&facts))
            })
        }
        (None, Some(manager)) => {
            let manager = address::one(manager, CONTROL_PORT)?;
            crate::block_on(all(manager, item, out))
        }
        (None, None) => unreachable!("one of them was given"),
    }
}

impl Item {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

async fn all(manager: SocketAddr, item: Item, out: Out) -> Result<(), Failure> {
    let stat = tool::stat(&[manager]).await?;
    let reports = tool::inspect_all(&servers(&stat)).await;
    let lives = Lives::of(&stat);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut values = Vec::new();
    for (address, report) in &reports {
        match report {
            Ok(report) => {
                let facts = facts(item, report, &lives);
                if rows.is_empty() {
                    rows.push(heading(&facts));
                }
                let cells = facts.iter().map(|(_, value)| plain(value));
                rows.push(std::iter::once(address.to_string()).chain(cells).collect());
                let mut value = facts_value(&facts);
                value["server"] = json!(address.to_string());
                values.push(value);
            }
            Err(failure) => {
                let reason = reason(failure);
                rows.push(row([address, &reason]));
                values.push(json!({ "server": address.to_string(), "error": reason }));
            }
        }
    }
    let silent = reports.iter().filter(|(_, report)| report.is_err()).count();
    let mut value = json!({ "servers": values });
    let (mut verdict, mut last) = (None, String::new());
    if item == Item::Hscheck {
        let same = reports.iter().all(|(_, report)| holds(&stat, report.as_ref().ok()));
        value["manager"] = json!(stat.space.number.to_string());
        value["same"] = json!(same);
        rows.push(row([&"manager", &stat.space.number, &settled(&stat.space)]));
        verdict = Some(same);
    }
    if item == Item::Replstat {
        let job = JobView::of(&stat);
        value["job"] = job.as_ref().map(JobView::value).unwrap_or_default();
        last = job.map_or("no replace is under way".to_owned(), |job| job.line());
    }
    out.result(value, || table(&rows) + &last)?;
    match (verdict, silent) {
        (Some(false), _) => Err(Failure::refused("not all hold the manager's hash space")),
        (_, 0) => Ok(()),
        (_, silent) => {
            Err(Failure::unreachable(format!("{silent} of {} servers do not answer", reports.len())))
        }
    }
}

/// All that are in the hash space or connected.
pub fn servers(stat: &Stat) -> Vec<SocketAddr> {
    let members = stat.space.members.iter().map(|member| member.address);
    let connected = stat.servers.iter().filter(|server| server.connected).map(|server| server.server.address);
    let all: BTreeSet<SocketAddr> = members.chain(connected).collect();
    all.into_iter().collect()
}

/// It has the manager's hash space, or needs none.
fn holds(stat: &Stat, report: Option<&ServerReport>) -> bool {
    let Some(report) = report else { return false };
    let member = stat.space.index_of(report.server).is_some();
    report
        .space
        .as_ref()
        .map_or(!member, |space| (space.cluster, space.number) == (stat.space.cluster, stat.space.number))
}

fn number(report: &ServerReport) -> SpaceNumber {
    report.space.as_ref().map_or(SpaceNumber(0), |space| space.number)
}

/// What an item says, by name.
fn facts(item: Item, report: &ServerReport, lives: &Lives) -> Vec<(&'static str, Value)> {
    match item {
        Item::Pid => vec![("pid", json!(report.pid))],
        Item::Uptime => vec![("uptime", json!(report.uptime_ms / 1000))],
        Item::Time => vec![("time", json!(report.unix_millis / 1000))],
        Item::Version => vec![("version", json!(report.version))],
        Item::CmdGet => vec![("cmd_get", json!(report.gets))],
        Item::CmdSet => vec![("cmd_set", json!(report.sets))],
        Item::CmdDelete => vec![("cmd_delete", json!(report.deletes))],
        Item::Items => vec![("items", json!(report.usage.items))],
        Item::Stats => stats(report, lives),
        Item::Rhs => vec![("rhs", ring(report, lives, |space| &space.rhs))],
        Item::Whs => vec![("whs", ring(report, lives, |space| &space.whs))],
        Item::Hscheck => vec![
            ("number", json!(number(report).to_string())),
            ("state", json!(report.space.as_ref().map_or("none", settled))),
        ],
        Item::Replstat => {
            let progress = &report.progress;
            vec![
                ("pending", json!(report.pending)),
                ("dirty", json!(report.dirty)),
                ("copies", json!(progress.copies)),
                ("copies_done", json!(progress.copies_done)),
                ("records_sent", json!(progress.records_sent)),
                ("bytes_sent", json!(progress.bytes_sent)),
                ("bytes_left", json!(progress.bytes_left)),
            ]
        }
    }
}

fn stats(report: &ServerReport, lives: &Lives) -> Vec<(&'static str, Value)> {
    let usage = &report.usage;
    let one =
        [Item::Pid, Item::Uptime, Item::Time, Item::Version, Item::CmdGet, Item::CmdSet, Item::CmdDelete];
    let mut facts: Vec<_> = one.into_iter().flat_map(|item| facts(item, report, lives)).collect();
    facts.extend([
        ("items", json!(usage.items)),
        ("tombstones", json!(usage.tombstones)),
        ("tombstone_bytes", json!(report.garbage.bytes)),
        ("tombstone_age", json!(report.garbage.age_seconds)),
        ("tombstones_held", json!(report.garbage.held)),
        ("bytes", json!(usage.live_bytes)),
        ("file_bytes", json!(usage.file_bytes)),
        ("unreadable", json!(usage.unreadable)),
        ("space", json!(number(report).to_string())),
        ("lease_ms", json!(report.lease_ms)),
        ("pending", json!(report.pending)),
        ("dirty", json!(report.dirty)),
    ]);
    facts
}

fn ring(report: &ServerReport, lives: &Lives, which: impl Fn(&Space) -> &Vec<u16>) -> Value {
    let Some(space) = &report.space else { return json!([]) };
    let members = which(space).iter().map(|&index| space.member(index));
    members.map(|member| json!(lives.shown(space, member))).collect()
}

fn settled(space: &Space) -> &'static str {
    match (space.job.is_some(), space.settled()) {
        (false, true) => "settled",
        (true, _) => "replacing",
        (false, false) => "switched",
    }
}

fn heading(facts: &[(&'static str, Value)]) -> Vec<String> {
    std::iter::once("SERVER".to_owned()).chain(facts.iter().map(|(name, _)| name.to_uppercase())).collect()
}

/// One fact is its value alone, as scripts want it; lists are a line each.
fn facts_text(facts: &[(&'static str, Value)]) -> String {
    match facts {
        [(_, Value::Array(values))] => values.iter().map(|value| plain(value) + "\n").collect(),
        [(_, value)] => plain(value),
        many => many.iter().map(|(name, value)| format!("{name} {}\n", plain(value))).collect(),
    }
}

fn facts_value(facts: &[(&'static str, Value)]) -> Value {
    facts.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// A failure's line without its address, which stands beside it.
fn reason(failure: &Failure) -> String {
    match failure {
        Failure::Line(line, _) => line.split_once(": ").map_or(line.clone(), |(_, why)| why.to_owned()),
        Failure::Client(error) => error.to_string(),
        Failure::Status(_) => "failed".to_owned(),
    }
}

const EXAMPLES: &str = "\
Items:
  pid uptime time version      of the process
  cmd_get cmd_set cmd_delete   requests served
  items                        values stored
  stats                        all of these and more
  rhs whs                      the servers that keys are read from, and those that a replace goes to, by the hash space
                               that it holds; without -m it knows of no other server whether that was started again
  hscheck                      the hash space it holds; with -m: whether all that are attached hold the manager's (status 1 if not)
  replstat                     writes that wait for copies, and how far a replace is

Examples:
  kumostat localhost:19801 items
  kumostat -m localhost stats
  kumostat -m localhost hscheck && echo all agree

Exit status:
  0 done   1 refused   2 usage   4 unreachable   5 no master";
