//! [`ask`]: one question of a tool to a manager or a server, and its answer.

use crate::failure::{Failure, NO_MASTER};
use bytes::BytesMut;
use kumo_cluster::control::{ControlAnswer, ControlRequest, ToolAnswer, ToolRequest};
use kumo_paxos::{CellId, Hello, Incarnation, MAGIC, Side, VERSION};
use kumo_session::Greeting;
use kumo_wire::{Wire, frame};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Asks a manager, and the master if that is another one.
pub async fn control(address: SocketAddr, request: &ControlRequest) -> Result<ControlAnswer, Failure> {
    let mut at = address;
    for _ in 0..REDIRECTS_MAX {
        match ask(at, &ToolRequest::Control(request.clone())).await? {
            ToolAnswer::Control(ControlAnswer::Master(Some(master))) if master != at => at = master,
            ToolAnswer::Control(ControlAnswer::Master(_)) => tokio::time::sleep(REDIRECT_PAUSE).await,
            ToolAnswer::Control(ControlAnswer::Refused(reason)) => return Err(Failure::refused(reason)),
            ToolAnswer::Control(answer) => return Ok(answer),
            ToolAnswer::Refused { reason } => return Err(Failure::refused(reason)),
            ToolAnswer::Report(_) => return Err(Failure::refused("a server answers there, not a manager")),
        }
    }
    Err(Failure::Line("the managers have no master".to_owned(), NO_MASTER))
}

/// One question to one process.
pub async fn ask(address: SocketAddr, request: &ToolRequest) -> Result<ToolAnswer, Failure> {
    let unreachable = |why: String| Failure::unreachable(format!("{address}: {why}"));
    match tokio::time::timeout(ANSWER_MAX, exchange(address, request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(why)) => Err(unreachable(why)),
        Err(_) => Err(unreachable("no answer".to_owned())),
    }
}

async fn exchange(address: SocketAddr, request: &ToolRequest) -> Result<ToolAnswer, String> {
    let said = |error: std::io::Error| error.to_string();
    let connected = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(address)).await;
    let mut stream = connected.map_err(|_| "no answer to the dial".to_owned())?.map_err(said)?;
    let mut out = BytesMut::new();
    frame::put(&Greeting::Hello(hello()), &mut out);
    frame::put(request, &mut out);
    stream.write_all(&out).await.map_err(said)?;
    let mut inbox = BytesMut::new();
    match receive::<Greeting>(&mut stream, &mut inbox).await? {
        Greeting::Hello(_) => receive(&mut stream, &mut inbox).await,
        Greeting::Refused { reason } => Err(reason),
    }
}

async fn receive<T: Wire>(stream: &mut TcpStream, inbox: &mut BytesMut) -> Result<T, String> {
    loop {
        if let Some(body) = frame::take(inbox, FRAME_BYTES_MAX).map_err(|error| error.to_string())? {
            return T::from_bytes(body).map_err(|error| format!("bad answer: {error}"));
        }
        if stream.read_buf(inbox).await.map_err(|error| error.to_string())? == 0 {
            return Err("closed without an answer".to_owned());
        }
    }
}

fn hello() -> Hello {
    Hello {
        magic: MAGIC,
        version: VERSION,
        cell: CellId(0),
        generation: 0,
        side: Side::Tool,
        address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        incarnation: Incarnation(0),
    }
}

/// A new master may be a moment in coming.
const REDIRECTS_MAX: usize = 50;
const REDIRECT_PAUSE: Duration = Duration::from_millis(200);

const CONNECT_MAX: Duration = Duration::from_secs(3);

/// A backup of all servers takes the longest.
const ANSWER_MAX: Duration = Duration::from_secs(600);

/// The largest answer: how a cluster of a thousand servers stands.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
