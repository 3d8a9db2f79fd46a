//! `kumo-server`: keeps records.

use super::common::{self, Common, SERVER_PORT};
use super::process::Process;
use crate::failure::Failure;
use crate::http::{self, Http};
use clap::{Args, Command, ValueEnum};
use kumo_cluster::Early;
use kumo_node::store::{GarbageLimits, ServerConfig, StoreSync};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A server of the store
#[derive(Args, Clone, Debug)]
pub struct Server {
    /// Where it listens, and its name for the others
    #[arg(short = 'l', long, value_name = "ADDR[:19800]")]
    listen: String,
    /// A second port, where a replica of the managers' cell is reached if one runs here; records go through the first
    #[arg(short = 'L', long, value_name = "PORT", default_value_t = 19900)]
    stream_listen: u16,
    /// A manager
    #[arg(short = 'm', long, value_name = "ADDR[:19700]")]
    manager: String,
    /// Another manager (repeat)
    #[arg(short = 'p', long = "partner", value_name = "ADDR[:19700]")]
    partners: Vec<String>,
    /// A folder for the records; without it they are in memory only
    #[arg(short = 's', long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// When records are forced to the disk: a killed process loses nothing in any case, a power cut does
    #[arg(long, value_enum, default_value_t = SyncWhen::Interval)]
    sync: SyncWhen,
    /// Refuse writes that fewer servers than this would keep
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=3))]
    min_copies: u16,
    /// Accepted for compatibility with kumofs, and not used: no temporary files are needed
    #[arg(short = 'f', long, value_name = "DIR")]
    offer_tmp: Option<PathBuf>,
    /// The least age of a tombstone that is collected (-gN)
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = crate::target::seconds)]
    garbage_min_time: Duration,
    /// Warn of tombstones older than this (-gX); none is dropped early
    #[arg(long, value_name = "SECONDS", value_parser = crate::target::seconds)]
    garbage_max_time: Option<Duration>,
    /// Warn when tombstones take more memory than this (-gS); none is dropped early
    #[arg(long, value_name = "KILOBYTES")]
    garbage_mem_limit: Option<u64>,
    /// As the gateway's, for whatever this server is asked (-As): a set that was acknowledged may get lost
    #[arg(long)]
    async_replicate_set: bool,
    /// As the gateway's, for whatever this server is asked (-Ad): a delete that was acknowledged may come back
    #[arg(long)]
    async_replicate_delete: bool,
    /// The longest value that append and prepend may make
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20,
          value_parser = clap::value_parser!(u64).range(1..=67_108_864))]
    max_value: u64,
    #[command(flatten)]
    http: Http,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SyncWhen {
    /// When the system likes
    None,
    /// Every tenth of a second
    Interval,
    /// Before every answer
    Always,
}

pub fn command_line() -> Command {
    crate::config::with_file(Server::augment_args(Command::new("kumo-server")))
        .version(env!("CARGO_PKG_VERSION"))
        .about("A server of the store: keeps records")
        .after_help(EXAMPLES)
}

pub fn run(server: Server) -> Result<(), Failure> {
    let Some(process) = Process::start("kumo-server", &server.common)? else { return Ok(()) };
    server.common.only_one_worker("server");
    let listen = common::named(&server.listen, SERVER_PORT)?;
    if listen.port() == server.stream_listen {
        return Err(Failure::usage(format!("-l and -L are both port {}", server.stream_listen)));
    }
    let config = ServerConfig {
        listen,
        managers: common::managers(&server.manager, &server.partners)?,
        store: server.store.clone().map(common::absolute).transpose()?,
        sync: match server.sync {
            SyncWhen::None => StoreSync::None,
            SyncWhen::Interval => StoreSync::Interval(SYNC_INTERVAL),
            SyncWhen::Always => StoreSync::Always,
        },
        copies_min: usize::from(server.min_copies),
        early: Early { set: server.async_replicate_set, delete: server.async_replicate_delete },
        tombstone_age_min: server.garbage_min_time,
        garbage: GarbageLimits {
            age_max: server.garbage_max_time,
            bytes_max: server.garbage_mem_limit.map(|kilobytes| kilobytes.saturating_mul(1024)),
        },
        keepalive: server.common.keep_alive_interval,
        dial_for: server.common.dial_for(),
        value_bytes_max: server.max_value as usize,
        connections_max: CONNECTIONS_MAX,
        linger: server.common.linger,
        http: server.http.config(http::SERVER_PORT)?,
    };
    process.serve(&listen.to_string(), async move |stop| {
        let listener = common::bind(listen)?;
        let stream = common::bind(SocketAddr::new(listen.ip(), server.stream_listen));
        let stream = stream.map_err(|failure| match failure {
            Failure::Line(line, status) => Failure::Line(format!("{line} (-L names another port)"), status),
            other @ (Failure::Client(_) | Failure::Status(_)) => other,
        })?;
        let node = kumo_node::store::run_server(listener, stream, config, stop).await;
        node.map_err(|error| Failure::refused(error.to_string()))
    })
}

const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// Gateways and servers at a time.
const CONNECTIONS_MAX: usize = 10_000;

const EXAMPLES: &str = "\
Examples:
  kumo-server -v -m localhost -l localhost:19801 -L 19901 -s database1.tch
  kumo-server -m 10.0.0.1 -p 10.0.0.2 -l 10.0.0.3 -s /var/lib/kumo/store";
