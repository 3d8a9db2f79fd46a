//! `kumo up`: a whole cluster on this machine, for as long as this process or a command lives.

mod layout;
mod node;
mod ready;

use crate::child::{self, Ended, Signals};
use crate::config;
use crate::failure::Failure;
use crate::output::{Out, note, row, table};
use clap::Args;
use layout::{Counts, Layout, Place, Ports, Role};
use node::{Gone, Node, Nodes, Running};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Start a cluster on this machine
///
/// Managers, servers and a gateway on loopback, attached, until Ctrl-C; with a command, for as long as it runs, and with
/// its status. Without --data all of it is in memory, so that nothing is left behind however it ends.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Up {
    /// Keep records [default: 3]; 0: a plain cell, without a store
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=64))]
    servers: Option<u16>,
    /// Agree on who keeps what, and serve files, locks and queues [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=7))]
    managers: Option<u16>,
    /// Speak memcached [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=16))]
    gateways: Option<u16>,
    /// The first port; the others follow [default: the usual ones, or free ones where those are taken or another cluster is]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    base_port: Option<u16>,
    /// Keep everything, and the logs, in this folder; the next start with it goes on where this one ended
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How long a session lives without renewal
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = crate::target::session_timeout)]
    session_timeout: Duration,
    /// What the processes are configured with.
    #[arg(skip)]
    pub config: Option<PathBuf>,
    /// Show the processes' logs
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Run this against the cluster, and end with its status
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub async fn run(up: Up, out: Out) -> Result<(), Failure> {
    child::expected(&up.command)?;
    let (layout, mut nodes) = start(&up).await?;
    let result = serve(&up, &layout, &mut nodes, &out).await;
    nodes.end().await;
    result
}

/// Starts the processes. Free ports may be taken by others before ours have them: then choose again.
async fn start(up: &Up) -> Result<(Layout, Nodes), Failure> {
    let counts = counts(up)?;
    let running = Running {
        data: up.data.as_deref(),
        session_timeout: up.session_timeout,
        configured: configured(up.config.as_deref())?,
        verbose: up.verbose,
    };
    if let Some(folder) = &up.data {
        let layout = layout_of(folder, up, counts)?;
        return Ok((layout.clone(), begun(Nodes::start(&layout, &running).await?)?));
    }
    if let Some(base) = up.base_port {
        let layout = Layout::choose(counts, Ports::From(base))?;
        return Ok((layout.clone(), begun(Nodes::start(&layout, &running).await?)?));
    }
    let mut layout = Layout::choose(counts, Ports::Usual)?;
    for _ in 1..START_ATTEMPTS_MAX {
        if let Ok(nodes) = Nodes::start(&layout, &running).await? {
            return Ok((layout, nodes));
        }
        layout = Layout::choose(counts, Ports::Free)?;
    }
    Ok((layout.clone(), begun(Nodes::start(&layout, &running).await?)?))
}

/// What a file has for the processes.
fn configured(file: Option<&Path>) -> Result<Vec<(Role, Vec<OsString>)>, Failure> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let roles = Role::ALL.into_iter();
    roles.map(|role| Ok((role, config::passed_on(role.configured_as(), file, &OWN_OPTIONS)?))).collect()
}

fn begun(started: Result<Nodes, Gone>) -> Result<Nodes, Failure> {
    started.map_err(|gone| {
        // Its own line says why; its status is only how.
        let why = gone.tail.last().map(|line| line.strip_prefix("kumo: ").unwrap_or(line).to_owned());
        Failure::refused(why.unwrap_or(gone.line))
    })
}

fn counts(up: &Up) -> Result<Counts, Failure> {
    let servers = up.servers.unwrap_or(SERVERS);
    let gateways = up.gateways.unwrap_or(if servers == 0 { 0 } else { GATEWAYS });
    let managers = up.managers.unwrap_or(MANAGERS);
    if servers == 0 && gateways > 0 {
        return Err(Failure::usage("a gateway needs servers: --servers 0 goes with --gateways 0"));
    }
    Ok(Counts { managers, servers, gateways })
}

/// The layout of an earlier run with this folder, or a new one that is written there. A process's address is its name:
/// with another, what it left in the folder would be nobody's.
fn layout_of(folder: &Path, up: &Up, counts: Counts) -> Result<Layout, Failure> {
    let unusable =
        |error: std::io::Error| Failure::refused(format!("cannot use {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(unusable)?;
    let file = folder.join(LAYOUT_FILE);
    let Some(layout) = Layout::remembered(&file)? else {
        let ports = up.base_port.map_or(Ports::Usual, Ports::From);
        let layout = Layout::choose(counts, ports)?;
        std::fs::write(&file, layout.to_string()).map_err(unusable)?;
        return Ok(layout);
    };
    let then = layout.counts();
    let first = layout.places().first().map(|place| place.address().port());
    let same = up.servers.is_none_or(|servers| servers == then.servers)
        && up.managers.is_none_or(|managers| managers == then.managers)
        && up.gateways.is_none_or(|gateways| gateways == then.gateways)
        && (up.base_port.is_none() || up.base_port == first);
    if !same {
        let (folder, first) = (folder.display(), first.unwrap_or_default());
        return Err(Failure::refused(format!(
            "{folder} has a cluster of {then} on ports from {first}: start that one, or use another folder"
        )));
    }
    layout.check_free()?;
    Ok(layout)
}

async fn serve(up: &Up, layout: &Layout, nodes: &mut Nodes, out: &Out) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    tokio::select! {
        ready = ready::ready(layout) => ready?,
        gone = nodes.next_gone() => {
            say(&gone);
            return Err(Failure::refused("a process ended before the cluster was ready"));
        }
        signal = signals.next() => return Err(Failure::Status(128 + signal.as_raw() as u8)),
    }
    if !up.command.is_empty() {
        return run_command(up, layout, nodes).await;
    }
    announce(nodes, layout, out)?;
    // A cluster goes on without some of its processes; with none there is nothing to wait for.
    while nodes.is_any_left() {
        tokio::select! {
            gone = nodes.next_gone() => say(&gone),
            _ = signals.next() => return Ok(()),
        }
    }
    Err(Failure::refused("no process is left"))
}

fn say(gone: &Gone) {
    note(format!("kumo: {}", gone.line));
    gone.tail.iter().for_each(|line| note(format!("  | {line}")));
}

async fn run_command(up: &Up, layout: &Layout, nodes: &mut Nodes) -> Result<(), Failure> {
    let mut environment = vec![("KUMO_CELL", addresses(layout.members()))];
    if layout.of(Role::Gateway).next().is_some() {
        let gateways = addresses(layout.of(Role::Gateway));
        environment.extend([("KUMO_GATEWAY", gateways.clone()), ("MEMCACHED_SERVERS", gateways)]);
    }
    let watch = async {
        loop {
            say(&nodes.next_gone().await);
        }
    };
    tokio::select! {
        ended = child::run(&up.command, &environment, None, std::future::pending()) => match ended? {
            Ended::Status(0) => Ok(()),
            Ended::Status(status) => Err(Failure::Status(status)),
            Ended::Lost => Err(pfs::Error::Lost.into()),
        },
        () = watch => unreachable!("it watches for ever"),
    }
}

fn announce(nodes: &Nodes, layout: &Layout, out: &Out) -> Result<(), Failure> {
    let of = |role| nodes.of(role).map(node_json).collect::<Vec<_>>();
    let members = [of(Role::Manager), of(Role::Cell)].concat();
    let value = json!({
        "managers": members,
        "servers": of(Role::Server),
        "gateways": of(Role::Gateway),
        "dashboard": dashboard(layout),
    });
    out.result(value, || text(nodes, layout))
}

fn node_json(node: &Node) -> Value {
    let (address, http) = (node.place.address().to_string(), node.place.http().to_string());
    let mut value = json!({ "address": address, "http": http, "pid": node.pid });
    if matches!(node.place.role, Role::Manager | Role::Cell) {
        value["control"] = json!(node.place.control().map(|control| control.to_string()));
    }
    if let Some(log) = &node.log {
        value["log"] = json!(log.display().to_string());
    }
    value
}

fn text(nodes: &Nodes, layout: &Layout) -> String {
    let rows: Vec<_> = nodes
        .list()
        .map(|node| {
            let control = node.place.control().map_or(String::new(), |control| format!("control {control}"));
            let (role, pid) = (format!("  {}", node.place.role), format!("pid {}", node.pid));
            row([&role, &node.place.address(), &pid, &control])
        })
        .collect();
    let what = if layout.counts().servers == 0 { "cell" } else { "cluster" };
    let mut text = format!("A {what} is up:\n{}", table(&rows));
    dashboard(layout).into_iter().for_each(|url| text += &format!("  dashboard  {url}\n"));
    text += "\nIn another shell:\n";
    tries(nodes, layout).iter().for_each(|line| text += &format!("  {line}\n"));
    text + "\nCtrl-C ends it.\n"
}

/// What a newcomer can do next, as lines for a shell.
fn tries(nodes: &Nodes, layout: &Layout) -> Vec<String> {
    let (kumo, cell) = (called(), addresses(layout.members()));
    let memcached = |requests: &str| {
        let gateway = layout.of(Role::Gateway).next()?.address();
        Some(format!("printf '{requests}quit\\r\\n' | nc {} {}", gateway.ip(), gateway.port()))
    };
    let mut lines = Vec::new();
    lines.extend(memcached("set greeting 0 0 5\\r\\nhello\\r\\nget greeting\\r\\n"));
    lines.push(format!("export KUMO_CELL={cell}"));
    lines.push(format!("echo blue | {kumo} fs put /colour && {kumo} fs cat /colour"));
    let Some(control) = layout.members().find_map(Place::control) else {
        lines.push(format!("{kumo} lock demo -- sh -c 'echo fencing number $KUMO_LOCK_NUMBER'"));
        lines.push(format!("{kumo} cell status"));
        return lines;
    };
    // A loss is noticed after two seconds.
    let kill = |server: &Node| format!("kill -9 {}; sleep 3; ", server.pid);
    let kill = nodes.of(Role::Server).next().map_or(String::new(), kill);
    lines.push(format!("{kill}{kumo} ctl {control} stat"));
    lines.extend(memcached("get greeting\\r\\n"));
    lines
}

/// The first member's page.
fn dashboard(layout: &Layout) -> Option<String> {
    layout.members().next().map(|member| format!("http://{}/", member.http()))
}

/// How a shell in the same folder can call this binary again.
fn called() -> String {
    let name = std::env::args().next().unwrap_or_default();
    if name.contains('/') { name } else { "kumo".to_owned() }
}

fn addresses<'a>(places: impl Iterator<Item = &'a Place>) -> String {
    places.map(|place| place.address().to_string()).collect::<Vec<_>>().join(",")
}

const SERVERS: u16 = 3;
const MANAGERS: u16 = 3;
const GATEWAYS: u16 = 1;

/// What every process is told by its place in the cluster, whatever a file says: addresses, folders and logs.
const OWN_OPTIONS: [&str; 20] = [
    "listen",
    "stream-listen",
    "control",
    "memproto-text",
    "memproto-binary",
    "http",
    "partner",
    "peer",
    "manager",
    "extension",
    "data",
    "memory",
    "store",
    "offer-tmp",
    "session-timeout",
    "log",
    "binary-log",
    "log-level",
    "verbose",
    "daemon",
];

/// Where a folder remembers who runs in it.
const LAYOUT_FILE: &str = "cluster";

/// How often ports are chosen anew.
const START_ATTEMPTS_MAX: usize = 5;

const EXAMPLES: &str = "\
Examples:
  kumo up
  kumo up -- ./integration-tests.sh
  kumo up --data ./cluster                   what was stored survives the end
  kumo up --servers 5 --base-port 20000
  kumo up --servers 0                        a plain cell: files, locks and queues without a store

The environment of CMD has KUMO_CELL, by which kumo's other commands find the managers, KUMO_GATEWAY and
MEMCACHED_SERVERS: host:port,host:port… A CMD that a signal ended is status 128 and its number.

KUMO_HTTP_TOKEN, if it is set, is the token that the dashboard asks for; other settings in the environment are not
for these processes. Of a file that --config names they get their sections, but for addresses, folders and logs.

--format json, one line when the cluster is ready, but with a CMD, whose standard output is its own:
{managers [{address, control, http, pid}], servers [{address, http, pid}], gateways [{address, http, pid}], dashboard},
each process with its log when there is --data; of a plain cell control is null.";
