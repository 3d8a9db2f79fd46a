//! Questions of tools to managers and servers; why there is no answer, as a command's end.

use crate::failure::{Failure, NO_MASTER};
use kumo_cluster::control::{ControlAnswer, ControlRequest, ServerReport, Stat};
use kumo_node::tool::{self, ToolError};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Asks a manager, and the master if that is another one.
pub async fn control(manager: SocketAddr, request: &ControlRequest) -> Result<ControlAnswer, Failure> {
    Ok(tool::control(manager, request).await?)
}

/// The first of these managers that a connection can be made to.
pub async fn first_reached(managers: &[SocketAddr]) -> Result<SocketAddr, Failure> {
    if managers.is_empty() {
        return Err(Failure::usage("no manager is named"));
    }
    if let [manager] = managers {
        return Ok(*manager);
    }
    let mut reasons = Vec::new();
    for manager in managers {
        match timeout(CONNECT_FOR, TcpStream::connect(manager)).await {
            Ok(Ok(_)) => return Ok(*manager),
            Ok(Err(error)) => reasons.push(format!("{manager}: {error}")),
            Err(_) => reasons.push(format!("{manager}: no answer")),
        }
    }
    Err(Failure::unreachable(reasons.join("; ")))
}

/// How a cluster stands, from whichever of these managers answers first.
pub async fn stat(managers: &[SocketAddr]) -> Result<Stat, Failure> {
    Ok(tool::stat(managers).await?)
}

/// How a server does.
pub async fn inspect(server: SocketAddr) -> Result<ServerReport, Failure> {
    Ok(tool::inspect(server).await?)
}

/// How these servers do, in their order.
pub async fn inspect_all(servers: &[SocketAddr]) -> Vec<(SocketAddr, Result<ServerReport, Failure>)> {
    let reports = tool::inspect_all(servers, tool::INSPECT_MAX).await.into_iter();
    reports.map(|(server, report)| (server, report.map_err(Failure::from))).collect()
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Failure {
        let line = error.to_string();
        match error {
            ToolError::Refused(_) => Failure::refused(line),
            ToolError::Unreachable(_) => Failure::unreachable(line),
            ToolError::NoMaster => Failure::Line(line, NO_MASTER),
        }
    }
}

/// Of a manager on a machine that is gone nothing is heard at all.
const CONNECT_FOR: Duration = Duration::from_secs(2);
