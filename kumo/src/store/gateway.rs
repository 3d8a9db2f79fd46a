//! `kumo-gateway`: the memcached port of the store.

use super::common::{self, Common, interval};
use super::process::Process;
use crate::address;
use crate::failure::Failure;
use crate::http::{self, Http};
use clap::{Args, Command};
use kumo_cluster::Early;
use kumo_node::store::{Credentials, GatewayConfig};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A gateway of the store
#[derive(Args, Clone, Debug)]
pub struct Gateway {
    /// A manager
    #[arg(short = 'm', long, value_name = "ADDR[:19700]")]
    manager: String,
    /// Another manager (repeat)
    #[arg(short = 'p', long = "partner", value_name = "ADDR[:19700]")]
    partners: Vec<String>,
    /// The port for memcached clients; text, meta and binary are told apart by the first byte [default: 11211, if
    /// there is no -b]
    #[arg(short = 't', long, value_name = "[ADDR:]PORT")]
    memproto_text: Option<String>,
    /// Another such port
    #[arg(short = 'b', long, value_name = "[ADDR:]PORT")]
    memproto_binary: Option<String>,
    /// Accepted for compatibility with kumofs: flags are always kept
    #[arg(short = 'F', long)]
    memproto_save_flag: bool,
    /// Accepted for compatibility with kumofs: expiry is always kept
    #[arg(short = 'E', long)]
    memproto_save_exptime: bool,
    /// Tries of a get, times the copies and one
    #[arg(short = 'G', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    get_retry: u32,
    /// Tries of a set
    #[arg(short = 'S', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    set_retry: u32,
    /// Tries of a delete
    #[arg(short = 'D', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    delete_retry: u32,
    /// Errors after which the managers are asked for the newest hash space (-rn)
    // The alias is the seed's spelling.
    #[arg(long, alias = "renew-threashold", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    renew_threshold: u32,
    /// Say that a set is done before the copies are (-As): one that was acknowledged may get lost
    #[arg(long)]
    async_replicate_set: bool,
    /// Say that a delete is done before the copies are (-Ad): one that was acknowledged may come back
    #[arg(long)]
    async_replicate_delete: bool,
    /// Read at all owners of a key in turn
    #[arg(long)]
    spread_reads: bool,
    /// Put before every key
    #[arg(long, value_name = "STRING", default_value = "")]
    key_prefix: String,
    /// The longest value
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20,
          value_parser = clap::value_parser!(u64).range(1..=67_108_864))]
    max_value: u64,
    /// Clients at a time, of all workers together
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: u32,
    /// Let clients delete everything with flush_all; with a --key-prefix, everything that begins with it
    #[arg(long)]
    allow_flush: bool,
    /// Serve only those who log in: a file of lines USER:PASSWORD that others cannot read. Binary clients do so by SASL
    /// PLAIN, text clients by a first set of "USER PASSWORD", as with memcached -Y; passwords travel in the clear
    #[arg(long, value_name = "FILE")]
    auth: Option<PathBuf>,
    /// All tries of a request together
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = interval)]
    request_timeout: Duration,
    #[command(flatten)]
    http: Http,
    #[command(flatten)]
    common: Common,
}

pub fn command_line() -> Command {
    crate::config::with_file(Gateway::augment_args(Command::new("kumo-gateway")))
        .version(env!("CARGO_PKG_VERSION"))
        .about("A gateway of the store: memcached on one side, servers on the other")
        .after_help(EXAMPLES)
}

pub fn run(gateway: Gateway) -> Result<(), Failure> {
    let Some(process) = Process::start("kumo-gateway", &gateway.common)? else { return Ok(()) };
    if gateway.key_prefix.len() > KEY_PREFIX_BYTES_MAX {
        return Err(Failure::usage(format!("--key-prefix has at most {KEY_PREFIX_BYTES_MAX} bytes")));
    }
    let ports = ports(&gateway)?;
    let config = GatewayConfig {
        managers: common::managers(&gateway.manager, &gateway.partners)?,
        get_retry_max: gateway.get_retry,
        set_retry_max: gateway.set_retry,
        delete_retry_max: gateway.delete_retry,
        renew_threshold: gateway.renew_threshold,
        try_for: gateway.common.clock_interval * TRY_STEPS,
        request_for: gateway.request_timeout,
        early: Early { set: gateway.async_replicate_set, delete: gateway.async_replicate_delete },
        spread_reads: gateway.spread_reads,
        keepalive: gateway.common.keep_alive_interval,
        dial_for: gateway.common.dial_for(),
        key_prefix: gateway.key_prefix.clone().into_bytes(),
        value_bytes_max: gateway.max_value as usize,
        connections_max: gateway.max_connections as usize,
        allow_flush: gateway.allow_flush,
        credentials: gateway.auth.as_deref().map(credentials).transpose()?,
        workers: gateway.common.workers(),
        linger: gateway.common.linger,
        http: gateway.http.config(http::GATEWAY_PORT)?,
    };
    let listen: Vec<String> = ports.iter().map(SocketAddr::to_string).collect();
    process.serve(&listen.join(" "), async move |stop| {
        let listeners = ports.into_iter().map(listen_on).collect::<Result<Vec<_>, _>>()?;
        let node = kumo_node::store::run_gateway(listeners, config, stop).await;
        node.map_err(|error| Failure::refused(error.to_string()))
    })
}

fn credentials(file: &Path) -> Result<Arc<Credentials>, Failure> {
    let read = Credentials::read(file).map(Arc::new);
    read.map_err(|error| Failure::refused(format!("cannot use --auth: {error}")))
}

/// Each once.
fn ports(gateway: &Gateway) -> Result<Vec<SocketAddr>, Failure> {
    let mut ports = Vec::new();
    for text in [&gateway.memproto_text, &gateway.memproto_binary].into_iter().flatten() {
        let port = port(text)?;
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    if ports.is_empty() {
        ports.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), MEMCACHED_PORT));
    }
    Ok(ports)
}

/// `PORT` is on loopback; another address must be named.
fn port(text: &str) -> Result<SocketAddr, Failure> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let address = address::one(text, MEMCACHED_PORT)?;
    common::warn_of_network(address);
    Ok(address)
}

fn listen_on(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = common::bind(address)?;
    if address.port() == 0
        && let Ok(address) = listener.local_addr()
    {
        // Nobody could know it otherwise.
        tracing::warn!(%address, "memcached on a free port");
    }
    Ok(listener)
}

/// A try ends after so many steps of the clock. (Seed 000, 7.3)
const TRY_STEPS: u32 = 10;

pub const MEMCACHED_PORT: u16 = 11211;

/// Half of the longest key.
const KEY_PREFIX_BYTES_MAX: usize = 125;

const EXAMPLES: &str = "\
Examples:
  kumo-gateway -m localhost
  kumo-gateway -v -m localhost -t 11211
  kumo-gateway -m localhost -t 11211 -TR 4                 four workers
  kumo-gateway -m 10.0.0.1 -p 10.0.0.2 -t 0.0.0.0:11211";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    #[test]
    fn memcacheds_port_is_served_unless_another_is_named() {
        let served = |arguments: &[&str]| {
            let arguments = [&["kumo-gateway", "-m", "localhost"], arguments].concat();
            let gateway = Gateway::from_arg_matches(&command_line().get_matches_from(arguments)).unwrap();
            ports(&gateway).unwrap().iter().map(SocketAddr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(served(&[]), ["127.0.0.1:11211"]);
        assert_eq!(served(&["-b", "11212"]), ["127.0.0.1:11212"]);
        assert_eq!(served(&["-t", "11213", "-b", "127.0.0.1:11213"]), ["127.0.0.1:11213"]);
    }
}
