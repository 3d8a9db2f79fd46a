//! `kumo up`: a whole cell on this machine, for as long as this process or a command lives.

mod replica;

use crate::cell::is_ready;
use crate::child::{self, Ended, Signals};
use crate::failure::Failure;
use crate::output::Out;
use clap::Args;
use pfs::{Cell, Options};
use replica::Replicas;
use serde_json::json;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// Start a cell on this machine
///
/// Three replicas on loopback, until Ctrl-C; with a command, for as long as it runs, and with its status. Its
/// environment then has KUMO_CELL, so that kumo's other commands in it find the cell.
#[derive(Args)]
#[command(after_help = "\
Examples:
  kumo up
  kumo up -- ./integration-tests.sh
  kumo up --data ./cell                      what is agreed survives the end
  kumo up --replicas 5 --base-port 20000

--format json, one line when the cell is ready: {cell, replicas [{address, pid, data, log}]}.")]
pub struct Up {
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=7))]
    replicas: u16,
    /// The first port; the others follow [default: 19700, or free ones where that is taken]
    #[arg(long, value_name = "PORT")]
    base_port: Option<u16>,
    /// Keep the replicas' memory and logs in this folder
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub async fn run(up: Up, out: Out) -> Result<(), Failure> {
    let (addresses, mut replicas) = start(&up).await?;
    let result = serve(&up, &addresses, &mut replicas, &out).await;
    replicas.end().await;
    result
}

/// Starts the replicas. Free ports may be taken by others before ours have them: then choose again.
async fn start(up: &Up) -> Result<(Vec<SocketAddr>, Replicas), Failure> {
    let fixed = up.base_port.is_some() || up.data.is_some();
    for _ in 0..if fixed { 1 } else { START_ATTEMPTS_MAX } {
        let addresses = addresses(up)?;
        let mut replicas = Replicas::start(&addresses, up.data.as_deref())?;
        if replicas.all_listen().await {
            return Ok((addresses, replicas));
        }
        replicas.end().await;
    }
    Err(Failure::refused("a replica could not start"))
}

async fn serve(up: &Up, addresses: &[SocketAddr], replicas: &mut Replicas, out: &Out) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    tokio::select! {
        ready = ready(addresses) => ready?,
        gone = replicas.next_gone() => return Err(Failure::refused(format!("{gone} before the cell was ready"))),
        signal = signals.next() => return Err(Failure::Status(128 + signal.as_raw() as u8)),
    }
    if !up.command.is_empty() {
        return run_command(up, addresses).await;
    }
    announce(addresses, replicas, out)?;
    // A cell goes on without some of its replicas; with none there is nothing to wait for.
    for _ in addresses {
        tokio::select! {
            gone = replicas.next_gone() => eprintln!("kumo: {gone}"),
            _ = signals.next() => return Ok(()),
        }
    }
    Err(Failure::refused("no replica is left"))
}

async fn run_command(up: &Up, addresses: &[SocketAddr]) -> Result<(), Failure> {
    let environment = [("KUMO_CELL", list(addresses))];
    match child::run(&up.command, &environment, None, std::future::pending()).await? {
        Ended::Status(0) => Ok(()),
        Ended::Status(status) => Err(Failure::Status(status)),
        Ended::Lost => Err(pfs::Error::Lost.into()),
    }
}

/// Waits until there is a master and everybody votes.
async fn ready(addresses: &[SocketAddr]) -> Result<(), Failure> {
    let until = Instant::now() + READY_TIMEOUT;
    let mut options = Options::new(addresses);
    options.patience = READY_TIMEOUT;
    let cell = Cell::connect(&options)?;
    loop {
        let seen = tokio::time::timeout_at(until, cell.status()).await;
        match seen {
            Ok(Ok(seen)) if is_ready(&seen.status, true) && seen.status.replicas.len() >= addresses.len() => {
                return Ok(());
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(pfs::Error::NoMaster.into()),
        }
        if Instant::now() >= until {
            return Err(Failure::not_obtained("the replicas did not form a cell in time"));
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}

fn announce(addresses: &[SocketAddr], replicas: &Replicas, out: &Out) -> Result<(), Failure> {
    let members: Vec<_> = replicas
        .list()
        .map(|replica| {
            json!({
                "address": replica.address.to_string(),
                "pid": replica.pid,
                "data": replica.data.as_ref().map(|path| path.display().to_string()),
                "log": replica.log.as_ref().map(|path| path.display().to_string()),
            })
        })
        .collect();
    let cell = list(addresses);
    out.result(json!({ "cell": cell, "replicas": members }), || {
        let mut text = format!("A cell of {} is up:\n", addresses.len());
        for replica in replicas.list() {
            text.push_str(&format!("  {}  pid {}\n", replica.address, replica.pid));
        }
        text.push_str(&format!("\nIn another shell:\n  export KUMO_CELL={cell}\n"));
        text.push_str("  echo hello | kumo fs put /greeting && kumo fs cat /greeting\n");
        text.push_str("  kumo lock demo -- sh -c 'echo fencing number $KUMO_LOCK_NUMBER'\n");
        text.push_str("  kumo cell status\n\nCtrl-C ends it.\n");
        text
    })
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}

/// The replicas' addresses: those of an earlier run with this folder, those asked for, or free ones.
fn addresses(up: &Up) -> Result<Vec<SocketAddr>, Failure> {
    let Some(folder) = &up.data else { return choose(up) };
    let unusable =
        |error: std::io::Error| Failure::refused(format!("cannot use {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(unusable)?;
    let file = folder.join(ADDRESSES_FILE);
    if file.exists() {
        // A replica's address is its name: with others, the memory in the folder would be nobody's.
        return remembered(up, &file);
    }
    let chosen = choose(up)?;
    std::fs::write(&file, list(&chosen)).map_err(unusable)?;
    Ok(chosen)
}

fn remembered(up: &Up, file: &Path) -> Result<Vec<SocketAddr>, Failure> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let addresses: Vec<SocketAddr> = text.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    let fits = up.base_port.is_none_or(|port| addresses.first().is_some_and(|first| first.port() == port));
    if addresses.len() != usize::from(up.replicas) || !fits {
        let file = file.display();
        return Err(Failure::refused(format!(
            "{file} tells of a cell at [{text}]: start that one, or use another folder"
        )));
    }
    Ok(addresses)
}

fn choose(up: &Up) -> Result<Vec<SocketAddr>, Failure> {
    let base = up.base_port.unwrap_or(pfs::PORT);
    // Held until all are chosen, so that no two are the same.
    let mut held = Vec::new();
    for index in 0..up.replicas {
        let port = base.checked_add(index).ok_or_else(|| Failure::usage("--base-port is too high"))?;
        let wanted = SocketAddr::from(([127, 0, 0, 1], port));
        let bound = TcpListener::bind(wanted).or_else(|error| match up.base_port {
            Some(_) => Err(Failure::refused(format!("cannot listen on {wanted}: {error}"))),
            None => TcpListener::bind("127.0.0.1:0")
                .map_err(|error| Failure::refused(format!("no free port: {error}"))),
        });
        held.push(bound?);
    }
    let found = held.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>();
    found.map_err(|error| Failure::refused(format!("no free port: {error}")))
}

/// Where a folder remembers who its replicas are.
const ADDRESSES_FILE: &str = "addresses";

/// A cell forms in well under a second; a loaded machine may take longer.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// How often free ports are chosen anew.
const START_ATTEMPTS_MAX: usize = 5;

const ASK_INTERVAL: Duration = Duration::from_millis(20);
