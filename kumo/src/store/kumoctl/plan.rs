//! `kumoctl plan`: what a change of the ring would move.

use super::{addresses, detachable};
use crate::failure::Failure;
use crate::output::{Out, row, table};
use crate::store::{shown, tool};
use clap::Subcommand;
use kumo_cluster::MemberState;
use kumo_cluster::control::{ControlAnswer, ControlRequest, Plan, ServerStat, Stat};
use serde_json::json;
use std::collections::BTreeSet;
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
        ControlAnswer::Plan(plan) => {
            let returning = returning(&plan, &tool::stat(&[manager]).await?);
            print(&plan, &returning, out)
        }
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

/// Those who would receive something, and have records already: they get what differs, which nobody knows before it is
/// compared. The plan counts all of it.
fn returning(plan: &Plan, stat: &Stat) -> BTreeSet<SocketAddr> {
    let receives = |address| plan.shares.iter().any(|share| share.server == address && share.gained > 0);
    let has_records = |server: &&ServerStat| {
        let state = stat.space.index_of(server.server).map(|index| stat.space.member(index).state);
        let comes = matches!(state, None | Some(MemberState::Returned { .. }));
        server.connected && comes && server.usage.items.saturating_add(server.usage.tombstones) > 0
    };
    let addresses = stat.servers.iter().filter(has_records).map(|server| server.server.address);
    addresses.filter(|&address| receives(address)).collect()
}

fn print(plan: &Plan, returning: &BTreeSet<SocketAddr>, out: Out) -> Result<(), Failure> {
    let shares: Vec<_> = plan
        .shares
        .iter()
        .map(|share| {
            json!({
                "server": share.server.to_string(),
                "before": percent(share.before),
                "after": percent(share.after),
                "gained": percent(share.gained),
                "upper_bound": returning.contains(&share.server),
            })
        })
        .collect();
    let value = json!({
        "records": plan.records,
        "bytes": plan.bytes,
        "upper_bound": !returning.is_empty(),
        "shares": shares,
    });
    out.result(value, || {
        let part = |part: u64| if part == 0 { "-".to_owned() } else { format!("{:.1} %", percent(part)) };
        let mut rows = vec![row([&"SERVER", &"BEFORE", &"AFTER", &"TO RECEIVE"])];
        for share in &plan.shares {
            let most = if returning.contains(&share.server) { "at most " } else { "" };
            let gained = format!("{most}{}", part(share.gained));
            rows.push(row([&share.server, &part(share.before), &part(share.after), &gained]));
        }
        let most = if returning.is_empty() { "about" } else { "at most about" };
        let moved = format!("{most} {} records, {}, would be sent", plan.records, shown::bytes(plan.bytes));
        let text =
            format!("{}Parts are of all keys, each kept by up to three servers.\n{moved}\n", table(&rows));
        text + &less(returning)
    })
}

fn less(returning: &BTreeSet<SocketAddr>) -> String {
    let names: Vec<String> = returning.iter().map(SocketAddr::to_string).collect();
    let who = match &names[..] {
        [] => return String::new(),
        [one] => format!("{one} has records already and gets"),
        all => format!("{} have records already and get", all.join(", ")),
    };
    format!("{who} only what differs; how much that is shows when it is compared\n")
}

/// Of 2^-32 parts of the ring.
fn percent(part: u64) -> f64 {
    part as f64 * 100.0 / (1u64 << 32) as f64
}
