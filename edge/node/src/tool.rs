//! Questions of tools (and of a manager's own dashboard) to managers and servers, and the answers.

use bytes::BytesMut;
use kumo_cluster::control::{ControlAnswer, ControlRequest, ServerReport, Stat, ToolAnswer, ToolRequest};
use kumo_paxos::{CellId, Hello, Incarnation, MAGIC, Side, VERSION};
use kumo_session::Greeting;
use kumo_wire::{Wire, frame};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Why there is no answer, or none that was asked for. Each prints as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// Nothing was done.
    #[error("{0}")]
    Refused(String),
    /// Nobody answers there. It may have been heard.
    #[error("{0}")]
    Unreachable(String),
    #[error("the managers have no master")]
    NoMaster,
}

/// Asks a manager, and the master if that is another one.
pub async fn control(manager: SocketAddr, request: &ControlRequest) -> Result<ControlAnswer, ToolError> {
    let until = Instant::now() + MASTER_MAX;
    let tool = ToolRequest::Control(request.clone());
    let mut at = manager;
    while Instant::now() < until {
        match ask(at, NOBODY, &tool, patience(request)).await {
            Ok(ToolAnswer::Control(ControlAnswer::Master(Some(master)))) if master != at => at = master,
            Ok(ToolAnswer::Control(ControlAnswer::Master(_))) => tokio::time::sleep(REDIRECT_PAUSE).await,
            Ok(ToolAnswer::Control(ControlAnswer::Refused(reason))) => {
                return Err(ToolError::Refused(reason));
            }
            Ok(ToolAnswer::Control(answer)) => return Ok(answer),
            Ok(ToolAnswer::Refused { reason }) => return Err(ToolError::Refused(format!("{at}: {reason}"))),
            Ok(ToolAnswer::Report(_)) => {
                return Err(ToolError::Refused(format!("{at}: a server answers there, not a manager")));
            }
            // It led a moment ago; who leads now is told where we came from.
            Err(Silence::Dial(_)) if at != manager => {
                at = manager;
                tokio::time::sleep(REDIRECT_PAUSE).await;
            }
            Err(silence) => return Err(silence.error(at)),
        }
    }
    Err(ToolError::NoMaster)
}

/// Asks the master what a tool asked the manager at `from`, once. None: it may have been heard, and there is no answer.
pub async fn pass_on(from: SocketAddr, master: SocketAddr, request: &ControlRequest) -> Option<ToolAnswer> {
    match ask(master, from, &ToolRequest::Control(request.clone()), patience(request)).await {
        Ok(answer) => Some(answer),
        Err(Silence::Turned(reason)) => Some(ToolAnswer::Refused { reason: format!("{master}: {reason}") }),
        // Nothing was asked: the tool may try it.
        Err(Silence::Dial(_)) => Some(ToolAnswer::Control(ControlAnswer::Master(Some(master)))),
        Err(Silence::Asked(_)) => None,
    }
}

/// Whether a manager asks for a tool. It names itself, which tools do not.
pub fn is_passed_on(hello: &Hello) -> bool {
    hello.address != NOBODY
}

fn patience(request: &ControlRequest) -> Duration {
    match request {
        ControlRequest::Backup { .. } => BACKUP_MAX,
        _short => ANSWER_MAX,
    }
}

/// How a cluster stands, from whichever of these managers answers first.
pub async fn stat(managers: &[SocketAddr]) -> Result<Stat, ToolError> {
    let mut last = ToolError::Unreachable("no manager is known".to_owned());
    for &manager in managers {
        match control(manager, &ControlRequest::Stat).await {
            Ok(ControlAnswer::Stat(stat)) if stat.space.well_formed() => return Ok(stat),
            Ok(_other) => {
                return Err(ToolError::Refused(format!("{manager}: its answer is not understood")));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// How a server does.
pub async fn inspect(server: SocketAddr) -> Result<ServerReport, ToolError> {
    match ask(server, NOBODY, &ToolRequest::Inspect, INSPECT_MAX).await {
        Ok(ToolAnswer::Report(report)) => Ok(report),
        Ok(ToolAnswer::Refused { reason }) => Err(ToolError::Refused(format!("{server}: {reason}"))),
        Ok(ToolAnswer::Control(_)) => {
            Err(ToolError::Refused(format!("{server}: a manager answers there, not a server")))
        }
        Err(silence) => Err(silence.error(server)),
    }
}

/// How these servers do, in their order; all are asked at once, up to a number, and waited for this long at most.
pub async fn inspect_all(
    servers: &[SocketAddr],
    patience: Duration,
) -> Vec<(SocketAddr, Result<ServerReport, ToolError>)> {
    let mut reports = BTreeMap::new();
    for some in servers.chunks(INSPECTED_AT_ONCE_MAX) {
        let mut asked = JoinSet::new();
        for &server in some {
            asked.spawn(async move {
                let report = tokio::time::timeout(patience, inspect(server)).await;
                let late = |_| Err(ToolError::Unreachable(format!("{server}: no answer in time")));
                (server, report.unwrap_or_else(late))
            });
        }
        reports.extend(asked.join_all().await);
    }
    reports.into_iter().collect()
}

/// Why there is no answer.
enum Silence {
    /// Nothing was asked.
    Dial(String),
    /// It does not speak with us, and says why.
    Turned(String),
    /// It may have been heard.
    Asked(String),
}

impl Silence {
    fn error(self, address: SocketAddr) -> ToolError {
        let (Silence::Dial(why) | Silence::Turned(why) | Silence::Asked(why)) = self;
        ToolError::Unreachable(format!("{address}: {why}"))
    }
}

/// One question to one process.
async fn ask(
    address: SocketAddr,
    from: SocketAddr,
    request: &ToolRequest,
    patience: Duration,
) -> Result<ToolAnswer, Silence> {
    let dialled = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(address)).await;
    let stream = match dialled {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(Silence::Dial(error.to_string())),
        Err(_) => return Err(Silence::Dial("no answer to the dial".to_owned())),
    };
    match tokio::time::timeout(patience, exchange(stream, from, request)).await {
        Ok(answer) => answer,
        Err(_) => Err(Silence::Asked("no answer".to_owned())),
    }
}

async fn exchange(
    mut stream: TcpStream,
    from: SocketAddr,
    request: &ToolRequest,
) -> Result<ToolAnswer, Silence> {
    let said = |error: std::io::Error| Silence::Asked(error.to_string());
    let mut out = BytesMut::new();
    frame::append(&Greeting::Hello(hello(from)), &mut out);
    frame::append(request, &mut out);
    stream.write_all(&out).await.map_err(said)?;
    let mut inbox = BytesMut::new();
    let greeting = tokio::time::timeout(GREETING_MAX, receive::<Greeting>(&mut stream, &mut inbox)).await;
    let greeting = greeting.map_err(|_| Silence::Asked(STRANGER.to_owned()))?;
    match greeting.map_err(|why| Silence::Asked(stranger(&inbox, request).unwrap_or(why)))? {
        Greeting::Hello(_) => receive(&mut stream, &mut inbox).await.map_err(Silence::Asked),
        Greeting::Refused { reason } => Err(Silence::Turned(reason)),
    }
}

/// Who answers there instead of one of ours, by the first bytes that came. Text in place of a frame is a length beyond all
/// limits; what could be a frame is not judged.
fn stranger(heard: &[u8], request: &ToolRequest) -> Option<String> {
    let length = u32::from_le_bytes(*heard.first_chunk()?);
    if length as usize <= FRAME_BYTES_MAX {
        return None;
    }
    let speaks = |words: &[&str]| words.iter().any(|word| heard.starts_with(word.as_bytes()));
    let who = match () {
        () if speaks(&["HTTP"]) => "HTTP is spoken",
        () if speaks(&["ERROR", "CLIENT_ERROR", "SERVER_ERROR"]) => "memcached's protocol is spoken",
        () => "something else is spoken",
    };
    let wanted = match request {
        ToolRequest::Control(_) => "this is not the control port of a manager (its -c, 19799 by default)",
        ToolRequest::Inspect => "this is not the port of a server (that of its -l, 19800 by default)",
    };
    Some(format!("{who} there: {wanted}"))
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

fn hello(address: SocketAddr) -> Hello {
    Hello {
        magic: MAGIC,
        version: VERSION,
        cell: CellId(0),
        generation: 0,
        side: Side::Tool,
        address,
        incarnation: Incarnation(0),
    }
}

/// The address of a tool: nobody dials it.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A new master may be a moment in coming.
const MASTER_MAX: Duration = Duration::from_secs(10);
const REDIRECT_PAUSE: Duration = Duration::from_millis(200);

const CONNECT_MAX: Duration = Duration::from_secs(3);

/// Who is one of ours greets at once; others may wait for what they would understand.
const GREETING_MAX: Duration = Duration::from_secs(5);
const STRANGER: &str = "no answer: is it the port of a manager or server, and does it run?";

/// A manager answers or refuses within 15 seconds.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// A manager gives its servers ten minutes.
const BACKUP_MAX: Duration = Duration::from_secs(620);

/// A server answers at once, or is not well.
pub const INSPECT_MAX: Duration = Duration::from_secs(5);

const INSPECTED_AT_ONCE_MAX: usize = 64;

/// The largest answer: how a cluster of a thousand servers stands.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
