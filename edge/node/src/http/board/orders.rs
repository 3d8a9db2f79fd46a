//! What an operator orders by a button, and what it would move.

use super::Board;
use super::lists::{Given, given, not_understood};
use crate::http::answer::{Answer, Refused, ok};
use crate::tool;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use kumo_cluster::MEMBERS_MAX;
use kumo_cluster::control::{ControlAnswer, ControlRequest};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Attach {
    servers: Vec<SocketAddr>,
    replace: bool,
    accept_data_loss: bool,
}

impl Default for Attach {
    fn default() -> Attach {
        Attach { servers: Vec::new(), replace: true, accept_data_loss: false }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Detach {
    servers: Vec<SocketAddr>,
    replace: bool,
}

impl Default for Detach {
    fn default() -> Detach {
        Detach { servers: Vec::new(), replace: true }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Replace {
    full: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    order: Order,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Pause,
    Resume,
    Cancel,
}

pub async fn attach(State(board): State<Arc<Board>>, body: Body) -> Answer {
    let Attach { servers, replace, accept_data_loss } = read(body).await?;
    obeyed(&board, ControlRequest::Attach { servers: some(servers)?, replace, accept_data_loss }).await
}

pub async fn detach(State(board): State<Arc<Board>>, body: Body) -> Answer {
    let Detach { servers, replace } = read(body).await?;
    obeyed(&board, ControlRequest::Detach { servers: some(servers)?, replace }).await
}

pub async fn replace(State(board): State<Arc<Board>>, body: Body) -> Answer {
    let Replace { full } = read(body).await?;
    obeyed(&board, if full { ControlRequest::FullReplace } else { ControlRequest::Replace }).await
}

pub async fn job(State(board): State<Arc<Board>>, body: Body) -> Answer {
    let Job { order } = read(body).await?;
    let request = match order {
        Order::Pause => ControlRequest::Pause,
        Order::Resume => ControlRequest::Resume,
        Order::Cancel => ControlRequest::Cancel,
    };
    obeyed(&board, request).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    #[serde(default)]
    attach: String,
    #[serde(default)]
    detach: String,
}

pub async fn plan(State(board): State<Arc<Board>>, planned: Given<Planned>) -> Answer {
    board.only_with_store()?;
    let planned = given(planned)?;
    let request =
        ControlRequest::Plan { attach: addresses(&planned.attach)?, detach: addresses(&planned.detach)? };
    let ControlAnswer::Plan(plan) = tool::control(board.node, &request).await? else {
        return Err(not_understood());
    };
    let part = |share: u64| share as f64 / SHARES;
    let servers: Vec<Value> = plan
        .shares
        .iter()
        .map(|change| {
            json!({
                "address": change.server.to_string(),
                "share_before": part(change.before),
                "share_after": part(change.after),
                "share_gained": part(change.gained),
            })
        })
        .collect();
    ok(&json!({ "bytes": plan.bytes, "records": plan.records, "servers": servers }))
}

async fn obeyed(board: &Board, request: ControlRequest) -> Answer {
    board.only_with_store()?;
    match tool::control(board.node, &request).await? {
        ControlAnswer::Done => ok(&json!({ "done": true })),
        _other => Err(not_understood()),
    }
}

async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Refused> {
    let too_long = |_| {
        let sentence = format!("a request has at most {BODY_BYTES_MAX} bytes");
        Refused(StatusCode::PAYLOAD_TOO_LARGE, sentence)
    };
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.map_err(too_long)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refused::bad(format!("the body is not understood: {error}")))
}

fn some(servers: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Refused> {
    match servers.len() <= MEMBERS_MAX {
        true => Ok(servers),
        false => Err(Refused::bad(format!("at most {MEMBERS_MAX} servers at a time"))),
    }
}

/// Separated by commas.
fn addresses(text: &str) -> Result<Vec<SocketAddr>, Refused> {
    let address = |one: &str| one.parse().map_err(|_| Refused::bad(format!("{one} is not ADDR:PORT")));
    let all = text.split(',').filter(|one| !one.is_empty()).map(address).collect::<Result<_, _>>()?;
    some(all)
}

/// An attach that names every server there can be.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Shares are counted in 2^-32 parts of the ring.
const SHARES: f64 = 4_294_967_296.0;
