//! `kumo-cell`: one replica of a cell, until it is told to end.

use crate::address;
use crate::config::{self, Role};
use crate::failure::Failure;
use crate::http::{self, Http, HttpToken};
use clap::{Args, Command, FromArgMatches};
use kumo_node::log::{self, Level, Output};
use kumo_node::{NodeConfig, NodeError};
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// What a replica is told at its start.
#[derive(Args, Clone)]
#[command(next_help_heading = "Running a replica")]
pub struct Daemon {
    /// Where this replica listens, and its name for the others; the port is 19700 unless given
    #[arg(short = 'l', long, value_name = "ADDR[:PORT]")]
    pub listen: Option<String>,
    /// Another member (repeat); none: a cell of one
    #[arg(short = 'p', long = "peer", value_name = "ADDR[:PORT]")]
    pub peers: Vec<String>,
    /// The heartbeat, from which all time-outs are derived
    #[arg(short = 'u', long, value_name = "MILLISECONDS", default_value_t = UNIT_MS,
          value_parser = clap::value_parser!(u64).range(UNIT_MS_MIN..=UNIT_MS_MAX))]
    pub unit: u64,
    /// Keep promises and decisions in this folder; without it a replica lives in memory
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Follow without a vote: serve reads, be promoted later
    #[arg(long)]
    pub extension: bool,
    /// How long a session lives without renewal
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = crate::target::session_timeout)]
    pub session_timeout: Duration,
    /// How long it looks for more before it sleeps, when it has much to do; 0: answers take longer and less processor time.
    /// With --data it never does so: it waits for its disk
    #[arg(long, value_name = "MICROSECONDS", default_value = "150", value_parser = crate::target::linger)]
    pub linger: Duration,
    #[command(flatten)]
    http: Http,
    #[command(flatten)]
    http_token: HttpToken,
    /// What the text log on standard error tells
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
    /// End when standard input does: who started this replica is gone then
    #[arg(long, hide = true)]
    pub exit_on_stdin_eof: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

/// The command line of the name `kumo-cell`.
pub fn command_line() -> Command {
    config::with_file(Daemon::augment_args(Command::new("kumo-cell")))
        .version(env!("CARGO_PKG_VERSION"))
        .about("One replica of a cell")
        .after_help(EXAMPLES)
        .mut_arg("listen", |listen| listen.required(true))
}

pub fn main(arguments: &[OsString]) -> Result<(), Failure> {
    let matches = command_line().get_matches_from(config::complete(Role::Cell, arguments)?);
    run(Daemon::from_arg_matches(&matches).map_err(|error| Failure::usage(error.to_string()))?)
}

pub fn run(daemon: Daemon) -> Result<(), Failure> {
    let config = configuration(&daemon)?;
    log::init(daemon.log_level.into(), Output::Error);
    crate::block_on(async move {
        let stop = stop(daemon.exit_on_stdin_eof)?;
        let node = match daemon.exit_on_stdin_eof {
            false => kumo_node::run(config, stop).await,
            true => run_announced(config, stop).await,
        };
        node.map_err(|error| Failure::refused(error.to_string()))
    })
}

/// Says on standard output when the address is ours: who started us must not take another's cell for this one.
async fn run_announced(config: NodeConfig, stop: impl Future<Output = ()>) -> Result<(), NodeError> {
    let address = config.listen;
    let listener = TcpListener::bind(address).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => NodeError::AddressTaken(address),
        _ => NodeError::Listen { address, error },
    })?;
    // Who does not read it does not care.
    let _ = writeln!(std::io::stdout(), "{LISTENING}");
    kumo_node::run_on(listener, config, stop).await
}

fn configuration(daemon: &Daemon) -> Result<NodeConfig, Failure> {
    let Some(listen) = &daemon.listen else { return Err(Failure::usage("-l ADDR:PORT is missing")) };
    let listen = named(listen)?;
    let peers: Vec<SocketAddr> = daemon.peers.iter().map(|peer| named(peer)).collect::<Result<_, _>>()?;
    let peers = address::partners(listen, &peers)?;
    let config = NodeConfig {
        listen,
        peers,
        unit: Duration::from_millis(daemon.unit),
        data: daemon.data.clone(),
        extension: daemon.extension,
        session_timeout: daemon.session_timeout,
        linger: daemon.linger,
        http: daemon.http.config_with(http::BOARD_PORT, &daemon.http_token)?,
    };
    if !config.may_remember() {
        config.check().map_err(|error| Failure::usage(error.to_string()))?;
    }
    Ok(config)
}

/// An address that is also a name: the others dial it.
fn named(text: &str) -> Result<SocketAddr, Failure> {
    let address = address::one(text, pfs::PORT)?;
    if address.ip().is_unspecified() || address.port() == 0 {
        return Err(Failure::usage(format!("{address} is no address that others can reach")));
    }
    Ok(address)
}

/// Completes on SIGTERM, SIGINT or, if so wanted, at the end of standard input.
pub fn stop(at_stdin_eof: bool) -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let refused = |error: std::io::Error| Failure::refused(format!("cannot wait for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let (ended, mut orphaned) = oneshot::channel();
    let mut kept = None;
    if at_stdin_eof {
        std::thread::spawn(move || {
            let mut ignored = [0; 64];
            while std::io::stdin().read(&mut ignored).is_ok_and(|count| count > 0) {}
            let _ = ended.send(());
        });
    } else {
        kept = Some(ended);
    }
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = &mut orphaned => {}
        }
        drop(kept);
    })
}

impl From<LogLevel> for Level {
    fn from(level: LogLevel) -> Level {
        match level {
            LogLevel::Error => Level::Error,
            LogLevel::Warn => Level::Warn,
            LogLevel::Info => Level::Info,
            LogLevel::Debug => Level::Debug,
        }
    }
}

pub const EXAMPLES: &str = "\
Examples:
  kumo-cell -l 10.0.0.1 -p 10.0.0.2 -p 10.0.0.3          one of three, in memory
  kumo-cell -l 10.0.0.1 -p 10.0.0.2 --data /var/kumo     keeps its memory on disk
  kumo-cell -l 127.0.0.1:19700                           a cell of one";

/// The line on standard output of a process that ends with its standard input.
pub const LISTENING: &str = "listening";

/// The seed's unit is a second; a tenth of it is right for one machine room.
const UNIT_MS: u64 = 100;
/// Below, a busy machine looks dead; above, a dead one looks busy for minutes.
const UNIT_MS_MIN: u64 = 10;
const UNIT_MS_MAX: u64 = 10_000;
