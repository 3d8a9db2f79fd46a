//! `kumoctl plan`: what a change of the ring would move.

use super::{addresses, detachable};
use crate::failure::Failure;
use crate::output::{Out, row, table};
use crate::store::{shown, tool};
use clap::Subcommand;
use kumo_cluster::MemberState;
use kumo_cluster::control::{ControlAnswer, ControlRequest, Plan, Stat};
use serde_json::json;
use std::net::SocketAddr;

#[derive(Subcommand, Clone, Debug)]
pub enum Change {
    /// Of all new servers, or of those named, be they there or not
    Attach {
        /// Those to attach, by the address of their -l; none: all that are connected and not attached
        #[arg(value_name = "SERVER[:19800]")]
        servers: Vec<String>,
    },
    /// Of all fault servers, or of those named
    Detach {
        /// Those to detach, by the address of their -l; none: all that are fault
        #[arg(value_name = "SERVER[:19800]")]
        servers: Vec<String>,
    },
}

pub async fn run(manager: SocketAddr, change: Option<Change>, out: Out) -> Result<(), Failure> {
    let (attach, detach) = match change {
        None => (Vec::new(), Vec::new()),
        Some(Change::Attach { servers }) => (addresses(&servers)?, Vec::new()),
        Some(Change::Detach { servers }) if servers.is_empty() => {
            (Vec::new(), lost(&tool::stat(&[manager]).await?)?)
        }
        Some(Change::Detach { servers }) => (Vec::new(), detachable(manager, &servers).await?),
    };
    let request = ControlRequest::Plan { attach, detach };
    match tool::control(manager, &request).await? {
        ControlAnswer::Plan(plan) => print(&plan, out),
        _other => Err(Failure::refused("another question was answered")),
    }
}

fn lost(stat: &Stat) -> Result<Vec<SocketAddr>, Failure> {
    let members = stat.space.rhs.iter().map(|&index| stat.space.member(index));
    let lost: Vec<SocketAddr> = members
        .filter(|member| matches!(member.state, MemberState::Fault { .. }))
        .map(|member| member.address)
        .collect();
    match lost.is_empty() {
        true => Err(Failure::refused(
            "the order would be refused: nothing to detach: no attached server is fault",
        )),
        false => Ok(lost),
    }
}

fn print(plan: &Plan, out: Out) -> Result<(), Failure> {
    let shares: Vec<_> = plan
        .shares
        .iter()
        .map(|share| {
            json!({
                "server": share.server.to_string(),
                "before": percent(share.before),
                "after": percent(share.after),
                "gained": percent(share.gained),
            })
        })
        .collect();
    let value = json!({ "records": plan.records, "bytes": plan.bytes, "shares": shares });
    out.result(value, || {
        let part = |part: u64| if part == 0 { "-".to_owned() } else { format!("{:.1} %", percent(part)) };
        let mut rows = vec![row([&"SERVER", &"BEFORE", &"AFTER", &"TO RECEIVE"])];
        for share in &plan.shares {
            rows.push(row([&share.server, &part(share.before), &part(share.after), &part(share.gained)]));
        }
        let moved = format!("about {} records, {}, would be sent", plan.records, shown::bytes(plan.bytes));
        format!("{}Parts are of all keys, each kept by up to three servers.\n{moved}\n", table(&rows))
    })
}

/// Of 2^-32 parts of the ring.
fn percent(part: u64) -> f64 {
    part as f64 * 100.0 / (1u64 << 32) as f64
}
