//! `counter replica ADDR [PEER…]` runs a replica; `counter add|get|wait CELL NAME [N]` asks a cell of them.

use counter::{Client, Counters};
use kumo_node::log::{self, Level, Output};
use kumo_node::{NodeConfig, run_application};
use pfs::Options;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(|error| error.to_string()).and_then(|runtime| match words.as_slice() {
        ["replica", listen, peers @ ..] => runtime.block_on(replica(listen, peers)),
        ["get", cell, name] => runtime.block_on(ask(cell, Ask::Get(name))),
        ["add", cell, name, amount] => runtime.block_on(ask(cell, Ask::Add(name, number(amount)?))),
        ["wait", cell, name, at_least] => runtime.block_on(ask(cell, Ask::Wait(name, number(at_least)?))),
        _ => Err(USAGE.to_owned()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("counter: {line}");
            ExitCode::FAILURE
        }
    }
}

/// One replica, in memory, until Ctrl-C.
async fn replica(listen: &str, peers: &[&str]) -> Result<(), String> {
    log::init(Level::Info, Output::Error);
    let config = NodeConfig {
        listen: address(listen)?,
        peers: peers.iter().map(|peer| address(peer)).collect::<Result<_, _>>()?,
        unit: Duration::from_millis(100),
        data: None,
        extension: false,
        session_timeout: Duration::from_secs(10),
        linger: kumo_node::LINGER,
        http: None,
    };
    let stop = async {
        // Without a handler for the signal the process ends by it, which is as good.
        let _ = tokio::signal::ctrl_c().await;
    };
    run_application::<Counters>(config, stop).await.map_err(|error| error.to_string())
}

enum Ask<'a> {
    Add(&'a str, u64),
    Get(&'a str),
    Wait(&'a str, u64),
}

async fn ask(cell: &str, ask: Ask<'_>) -> Result<(), String> {
    let options = Options::new(cell.split(',').map(address).collect::<Result<Vec<SocketAddr>, _>>()?);
    let counted = async {
        let client = Client::open(&options).await?;
        let count = match ask {
            Ask::Add(name, amount) => client.add(name, amount).await?,
            Ask::Get(name) => client.get(name).await?,
            Ask::Wait(name, at_least) => client.wait(name, at_least).await?,
        };
        client.close().await?;
        Ok(count)
    };
    let count = counted.await.map_err(|error: pfs::Error| error.to_string())?;
    println!("{count}");
    Ok(())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("not an address with a port: {text}"))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("not a count: {text}"))
}

const USAGE: &str =
    "usage: counter replica ADDR:PORT [PEER:PORT…] | add CELL NAME N | get CELL NAME | wait CELL NAME N";
