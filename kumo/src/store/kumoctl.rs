//! `kumoctl`: what an operator asks of the managers.

mod job;
mod plan;
mod stat;
mod voters;
mod wait;

use super::common::{CONTROL_PORT, SERVER_PORT};
use super::{shown, tool};
use crate::address;
use crate::failure::{Failure, NO_MASTER};
use crate::output::{Format, Out, row, table};
use clap::{Args, Command, Subcommand};
pub use job::JobView;
use kumo_cluster::control::{BackupResult, ControlAnswer, ControlRequest};
use serde_json::json;
pub use stat::attached;
use std::net::SocketAddr;

/// Ask the managers of a store, and tell them what to do
#[derive(Args, Clone, Debug)]
pub struct Kumoctl {
    /// A manager; any one answers. Of several the first that is reached is asked
    #[arg(value_name = MANAGERS)]
    manager: String,
    #[command(subcommand)]
    order: Order,
    /// How results are printed
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Subcommand, Clone, Debug)]
enum Order {
    /// How the cluster stands
    #[command(alias = "status")]
    Stat {
        /// Tell also of managers, gateways, auto-replace and a replace under way
        #[arg(short = 'v', long)]
        verbose: bool,
    },
    /// Attach all new servers, or those named, and start replace
    Attach {
        /// The servers to attach, by the address of their -l; none: all that are connected and not attached
        #[arg(value_name = "SERVER[:19800]")]
        servers: Vec<String>,
        /// Give up data of which every server is or was lost, also on servers that came back since. Stop first what may
        /// still run out of the managers' sight
        #[arg(long)]
        accept_data_loss: bool,
        #[command(flatten)]
        wait: Wait,
    },
    /// Attach all new servers, or those named; the next replace moves the data
    AttachNoreplace {
        /// The servers to attach, by the address of their -l; none: all that are connected and not attached
        #[arg(value_name = "SERVER[:19800]")]
        servers: Vec<String>,
    },
    /// Detach all fault servers, or those named, and start replace
    Detach {
        /// The servers to detach, by the address of their -l; none: all that are fault
        #[arg(value_name = "SERVER[:19800]")]
        servers: Vec<String>,
        #[command(flatten)]
        wait: Wait,
    },
    /// Detach all fault servers, or those named; the next replace moves the data
    DetachNoreplace {
        /// The servers to detach, by the address of their -l; none: all that are fault
        #[arg(value_name = "SERVER[:19800]")]
        servers: Vec<String>,
    },
    /// Start replace without attach or detach
    Replace {
        #[command(flatten)]
        wait: Wait,
    },
    /// Compare and repair all copies
    FullReplace {
        #[command(flatten)]
        wait: Wait,
    },
    /// Every server writes a copy of its store beside it, with this suffix [default: today, YYYYMMDD]
    Backup {
        /// What is added to the name of the store, behind a hyphen: letters, digits, dot, underscore and hyphen
        suffix: Option<String>,
    },
    /// Attach, detach and replace without being asked from now on
    EnableAutoReplace,
    /// Attach, detach and replace only when asked
    DisableAutoReplace,
    /// Take over the newest hash space that the servers hold, in a cell that has none
    Rebuild {
        /// Do not wait for servers that act in it: one that is missing may know of a newer one, and of later writes
        #[arg(long)]
        accept_data_loss: bool,
    },
    /// What an attach (of all new servers unless said otherwise) or a detach would move, without doing it; status 1 when
    /// it would be refused, and why. Of a server that has records already it is the most that can be: it gets what differs
    Plan {
        #[command(subcommand)]
        change: Option<plan::Change>,
    },
    /// The replace under way
    Job {
        #[command(subcommand)]
        order: job::JobOrder,
    },
}

#[derive(Args, Clone, Debug)]
struct Wait {
    /// Show progress until the data is where it belongs; status 1 when the replace was cancelled
    #[arg(long)]
    wait: bool,
}

pub fn command_line() -> Command {
    Kumoctl::augment_args(Command::new("kumoctl"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("Ask the managers of a store, and tell them what to do")
        .after_help(EXAMPLES)
        .mut_subcommand("plan", with_whole_usage)
        .mut_subcommand("job", with_whole_usage)
}

/// A command's own commands show in their usage that the address comes before: clap tells of it one level down only.
fn with_whole_usage(group: Command) -> Command {
    let before = format!("kumoctl <{MANAGERS}> {}", group.get_name());
    group.mut_subcommands(|command| {
        let named = command.get_positionals().map(|positional| format!(" {positional}"));
        let usage = format!("{before} {} [OPTIONS]{}", command.get_name(), named.collect::<String>());
        command.override_usage(usage)
    })
}

pub fn run(kumoctl: Kumoctl) -> Result<(), Failure> {
    let named = kumoctl.manager.split(',').map(str::trim).filter(|text| !text.is_empty());
    let managers = address::known(named.map(|text| address::one(text, CONTROL_PORT)))?;
    let out = Out::new(kumoctl.format);
    crate::block_on(async {
        let manager = tool::first_reached(&managers).await?;
        obey(kumoctl.order, manager, out).await.map_err(advised)
    })
}

/// With what to do next, where the managers are the matter.
fn advised(failure: Failure) -> Failure {
    match failure {
        Failure::Line(line, NO_MASTER) => {
            Failure::Line(line + ": `kumo --cell MANAGER cell status` tells who is there", NO_MASTER)
        }
        other => other,
    }
}

async fn obey(order: Order, manager: SocketAddr, out: Out) -> Result<(), Failure> {
    let (request, waits) = match order {
        Order::Stat { verbose } => return stat::run(manager, verbose, out).await,
        Order::Plan { change } => return plan::run(manager, change, out).await,
        Order::Job { order } => return job::run(manager, order, out).await,
        Order::Backup { suffix } => return backup(manager, suffix, out).await,
        Order::Attach { servers, accept_data_loss, wait } => {
            let servers = addresses(&servers)?;
            (ControlRequest::Attach { servers, replace: true, accept_data_loss }, wait.wait)
        }
        Order::AttachNoreplace { servers } => {
            let servers = addresses(&servers)?;
            (ControlRequest::Attach { servers, replace: false, accept_data_loss: false }, false)
        }
        Order::Detach { servers, wait } => {
            let servers = detachable(manager, &servers).await?;
            (ControlRequest::Detach { servers, replace: true }, wait.wait)
        }
        Order::DetachNoreplace { servers } => {
            let servers = addresses(&servers)?;
            (ControlRequest::Detach { servers, replace: false }, false)
        }
        Order::Replace { wait } => (ControlRequest::Replace, wait.wait),
        Order::FullReplace { wait } => (ControlRequest::FullReplace, wait.wait),
        Order::EnableAutoReplace => (ControlRequest::AutoReplace { on: true }, false),
        Order::DisableAutoReplace => (ControlRequest::AutoReplace { on: false }, false),
        Order::Rebuild { accept_data_loss } => (ControlRequest::Rebuild { accept_data_loss }, false),
    };
    tool::control(manager, &request).await?;
    match waits {
        true => wait::run(manager, out).await,
        false => out.result(json!({ "done": true }), String::new),
    }
}

async fn backup(manager: SocketAddr, suffix: Option<String>, out: Out) -> Result<(), Failure> {
    let request = ControlRequest::Backup { suffix: suffix.unwrap_or_else(shown::today) };
    let ControlAnswer::Backup(results) = tool::control(manager, &request).await? else {
        return Err(Failure::refused("another question was answered"));
    };
    let value = |result: &BackupResult| json!({ "server": result.server.to_string(), "path": result.path, "error": result.error });
    let values: Vec<_> = results.iter().map(value).collect();
    out.result(json!({ "backups": values }), || {
        let mut rows = vec![row([&"SERVER", &"BACKUP"])];
        for result in &results {
            let text = match (&result.path, &result.error) {
                (Some(path), _) => path.clone(),
                (None, error) => format!("failed: {}", error.as_deref().unwrap_or("no reason was given")),
            };
            rows.push(row([&result.server, &text]));
        }
        table(&rows)
    })?;
    match results.iter().filter(|result| result.path.is_none()).count() {
        0 => Ok(()),
        failed => Err(Failure::refused(format!("{failed} of {} backups failed", results.len()))),
    }
}

/// The managers say of a server that is only wanted that it is not attached; what to do about it is said here.
async fn detachable(manager: SocketAddr, texts: &[String]) -> Result<Vec<SocketAddr>, Failure> {
    let servers = addresses(texts)?;
    if servers.is_empty() {
        return Ok(servers);
    }
    match stat::only_wanted(&tool::stat(&[manager]).await?, &servers) {
        Some(what) => Err(Failure::refused(what)),
        None => Ok(servers),
    }
}

fn addresses(texts: &[String]) -> Result<Vec<SocketAddr>, Failure> {
    texts.iter().map(|text| address::one(text, SERVER_PORT)).collect()
}

/// How the managers are named.
const MANAGERS: &str = "ADDR[:19799][,ADDR...]";

const EXAMPLES: &str = "\
Examples:
  kumoctl localhost stat
  kumoctl localhost attach --wait            new servers join; returns when their data is there
  kumoctl localhost plan detach 10.0.0.3     what that would move
  kumoctl localhost detach --wait            fault servers leave, their data is copied anew
  kumoctl localhost job rate 20M             a replace sends at most 20 MiB a second from each server
  kumoctl localhost backup nightly           every server writes STORE-nightly
  kumoctl localhost stat --format json

--format json: stat {space {number, time, clock}, attached [{address, state, returned, heard, moving, full, unreadable}], not_attached, awaited, voters [{address, kind, server, state}], risk, master,
auto_replace, attach_wanted, detach_wanted, gateways, job}; job {kind, number, paused, rate, percent, …, servers [{address, …}]}.

Exit status:
  0 done   1 refused   2 usage   4 unreachable   5 no master";
