//! What a process tells a tool about itself.

use crate::clock;
use crate::metrics::ServerMetrics;
use bytes::Bytes;
use kumo_cluster::control::{ServerReport, ToolAnswer, ToolRequest};
use kumo_cluster::{Server, Store};
use kumo_paxos::Time;
use kumo_wire::Wire;

/// When this process began to serve.
pub struct Uptime(Time);

impl Uptime {
    pub fn new() -> Uptime {
        Uptime(clock::now())
    }
}

/// A server's answer to a tool.
pub fn server<S: Store>(
    request: &Bytes,
    server: &Server<S>,
    uptime: &Uptime,
    metrics: &ServerMetrics,
    now: Time,
) -> ToolAnswer {
    match ToolRequest::from_bytes(request.clone()) {
        Ok(ToolRequest::Inspect) => ToolAnswer::Report(report(server, uptime, metrics, now)),
        Ok(ToolRequest::Control(_)) => {
            ToolAnswer::Refused { reason: "this is a server, not a manager".to_owned() }
        }
        Err(error) => ToolAnswer::Refused { reason: format!("bad request: {error}") },
    }
}

fn report<S: Store>(server: &Server<S>, uptime: &Uptime, metrics: &ServerMetrics, now: Time) -> ServerReport {
    let counts = server.counts();
    let (pending, dirty) = server.under_way();
    ServerReport {
        server: server.id(),
        pid: std::process::id(),
        uptime_ms: now.since(uptime.0) / 1000,
        unix_millis: clock::wall().0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        gets: counts.gets,
        sets: counts.sets,
        deletes: counts.deletes,
        usage: server.store().usage(),
        garbage: server.garbage(),
        space: server.space().cloned(),
        lease_ms: server.lease_left_micros(now) / 1000,
        pending,
        dirty,
        progress: server.progress(),
        latency: metrics.latency(),
    }
}
