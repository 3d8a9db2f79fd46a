//! `kumo-manager`: one of the cell of managers that agree on who keeps what.

use super::common::{self, CONTROL_PORT, Common, MANAGER_PORT};
use super::process::Process;
use crate::address;
use crate::failure::Failure;
use crate::http::{self, Http, HttpToken};
use clap::{Args, Command};
use kumo_cluster::ManagerSettings;
use kumo_node::NodeConfig;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A manager of the store
#[derive(Args, Clone, Debug)]
pub struct Manager {
    /// Where it listens, and its name for the others
    #[arg(short = 'l', long, value_name = "ADDR[:19700]")]
    listen: String,
    /// Another manager (repeat)
    #[arg(short = 'p', long = "partner", value_name = "ADDR[:19700]")]
    partners: Vec<String>,
    /// The port for kumoctl, on the same host
    #[arg(short = 'c', long, value_name = "PORT", default_value_t = CONTROL_PORT)]
    control: u16,
    /// A new cluster attaches, detaches and moves data without being asked; one that is there goes on as kumoctl
    /// enable-auto-replace and disable-auto-replace left it
    #[arg(long)]
    auto_replace: bool,
    /// Quiet time before auto-replace acts (-Rs)
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = crate::target::seconds)]
    replace_delay: Duration,
    /// Where it keeps what was agreed; kumo-manager-ADDRESS-PORT here unless given
    #[arg(long, value_name = "DIR", conflicts_with = "memory")]
    data: Option<PathBuf>,
    /// Keep nothing on disk: a cluster whose managers all end is forgotten
    #[arg(long)]
    memory: bool,
    /// The cell's heartbeat, from which its time-outs are derived
    #[arg(short = 'u', long, value_name = "MILLISECONDS", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(10..=10_000))]
    unit: u64,
    /// How long a server may read on its own after a sign of life
    #[arg(long, value_name = "SECONDS", default_value = "1.5", value_parser = crate::target::seconds)]
    lease: Duration,
    /// How long a PFS session lives without renewal
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = crate::target::session_timeout)]
    session_timeout: Duration,
    #[command(flatten)]
    http: Http,
    #[command(flatten)]
    http_token: HttpToken,
    #[command(flatten)]
    common: Common,
}

pub fn command_line() -> Command {
    crate::config::with_file(Manager::augment_args(Command::new("kumo-manager")))
        .version(env!("CARGO_PKG_VERSION"))
        .about("A manager of the store: one of a cell that agrees on who keeps what")
        .after_help(EXAMPLES)
}

pub fn run(manager: Manager) -> Result<(), Failure> {
    let Some(process) = Process::start("kumo-manager", &manager.common)? else { return Ok(()) };
    manager.common.only_one_worker("manager");
    let listen = common::named(&manager.listen, MANAGER_PORT)?;
    if listen.port() == manager.control {
        return Err(Failure::usage(format!("-l and -c are both port {}", manager.control)));
    }
    let named = |partner: &String| common::named(partner, MANAGER_PORT);
    let peers: Vec<SocketAddr> = manager.partners.iter().map(named).collect::<Result<_, _>>()?;
    let peers = address::partners(listen, &peers)?;
    if manager.lease < LEASE_MIN {
        return Err(Failure::usage("--lease is at least 0.2"));
    }
    let data = match manager.memory {
        true => None,
        false => Some(manager.data.clone().unwrap_or_else(|| folder(listen))),
    };
    let config = NodeConfig {
        listen,
        peers,
        unit: Duration::from_millis(manager.unit),
        data,
        extension: false,
        session_timeout: manager.session_timeout,
        linger: manager.common.linger,
        http: manager.http.config_with(http::BOARD_PORT, &manager.http_token)?,
    };
    if !config.may_remember() {
        config.check().map_err(|error| Failure::usage(error.to_string()))?;
    }
    process.serve(&listen.to_string(), async move |stop| {
        let listener = common::bind(listen)?;
        let control = common::bind(SocketAddr::new(listen.ip(), manager.control))?;
        let settings = settings(&manager)?;
        let node = kumo_node::run_manager(listener, Some(control), config, settings, stop).await;
        node.map_err(|error| Failure::refused(error.to_string()))
    })
}

fn settings(manager: &Manager) -> Result<ManagerSettings, Failure> {
    let micros = |time: Duration| time.as_micros() as u64;
    Ok(ManagerSettings {
        life: kumo_node::random().map_err(|error| Failure::refused(error.to_string()))?,
        lease_micros: micros(manager.lease),
        keepalive_micros: micros(manager.common.keep_alive_interval),
        connect_retry_limit: manager.common.connect_retry_limit,
        connect_timeout_steps: manager.common.steps(),
        clock_interval_micros: micros(manager.common.clock_interval),
        replace_delay_micros: micros(manager.replace_delay),
        auto_replace: manager.auto_replace,
        unit_micros: manager.unit * 1000,
        session_timeout_micros: micros(manager.session_timeout),
        durable: !manager.memory,
        voter_patience_micros: micros(VOTER_PATIENCE),
        broken: kumo_cluster::Broken::default(),
    })
}

fn folder(listen: SocketAddr) -> PathBuf {
    let host = listen.ip().to_string().replace(':', "_");
    PathBuf::from(format!("kumo-manager-{host}-{}", listen.port()))
}

/// A server that does not come back for so long is replaced as a voter: a reboot is shorter.
const VOTER_PATIENCE: Duration = Duration::from_secs(60);

const LEASE_MIN: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  kumo-manager -v -l localhost                            one manager
  kumo-manager -l 10.0.0.1 -p 10.0.0.2 -p 10.0.0.3        one of three
  kumoctl localhost attach                                when servers have joined";
