//! `kumoctl`: what an operator asks of the managers.

use super::common::{self, CONTROL_PORT};
use super::tool;
use crate::failure::Failure;
use crate::output::{Format, Out};
use clap::{Args, Command, Subcommand};
use kumo_cluster::MemberState;
use kumo_cluster::control::{ControlAnswer, ControlRequest, Stat};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::SocketAddr;

#[derive(Args, Clone, Debug)]
pub struct Kumoctl {
    /// A manager; any one answers
    #[arg(value_name = "ADDR[:19799]")]
    manager: String,
    #[command(subcommand)]
    order: Order,
    /// How results are printed
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Subcommand, Clone, Debug)]
enum Order {
    /// How the cluster stands
    #[command(alias = "status")]
    Stat,
    /// Attach all new servers and start replace
    Attach {
        /// Give up data of which every server is lost
        #[arg(long)]
        accept_data_loss: bool,
    },
    /// Attach all new servers; the next replace moves the data
    AttachNoreplace,
    /// Detach all fault servers and start replace
    Detach,
    /// Detach all fault servers; the next replace moves the data
    DetachNoreplace,
    /// Start replace without attach or detach
    Replace,
    /// Compare and repair all copies
    FullReplace,
    /// Attach, detach and replace by themselves from now on
    EnableAutoReplace,
    /// Only when asked
    DisableAutoReplace,
}

pub fn command_line() -> Command {
    Kumoctl::augment_args(Command::new("kumoctl"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("Ask the managers of a store, and tell them what to do")
}

pub fn run(kumoctl: Kumoctl) -> Result<(), Failure> {
    let manager = common::address(&kumoctl.manager, CONTROL_PORT)?;
    let out = Out::new(kumoctl.format);
    let request = match kumoctl.order {
        Order::Stat => ControlRequest::Stat,
        Order::Attach { accept_data_loss } => {
            ControlRequest::Attach { servers: Vec::new(), replace: true, accept_data_loss }
        }
        Order::AttachNoreplace => {
            ControlRequest::Attach { servers: Vec::new(), replace: false, accept_data_loss: false }
        }
        Order::Detach => ControlRequest::Detach { servers: Vec::new(), replace: true },
        Order::DetachNoreplace => ControlRequest::Detach { servers: Vec::new(), replace: false },
        Order::Replace => ControlRequest::Replace,
        Order::FullReplace => ControlRequest::FullReplace,
        Order::EnableAutoReplace => ControlRequest::AutoReplace { on: true },
        Order::DisableAutoReplace => ControlRequest::AutoReplace { on: false },
    };
    crate::block_on(async move {
        match tool::control(manager, &request).await? {
            ControlAnswer::Stat(stat) => print_stat(&stat, out),
            _done => out.result(json!({ "done": true }), String::new),
        }
    })
}

fn print_stat(stat: &Stat, out: Out) -> Result<(), Failure> {
    let space = &stat.space;
    let attached: Vec<(SocketAddr, &str)> = space
        .rhs
        .iter()
        .map(|&index| {
            let member = space.member(index);
            let state = match member.state {
                MemberState::Active => "active",
                MemberState::Fault { .. } | MemberState::Returned { .. } => "fault",
            };
            (member.address, state)
        })
        .collect();
    let active: BTreeSet<SocketAddr> =
        attached.iter().filter(|(_, state)| *state == "active").map(|(address, _)| *address).collect();
    let free: Vec<SocketAddr> = stat
        .servers
        .iter()
        .filter(|server| server.connected && !active.contains(&server.server.address))
        .map(|server| server.server.address)
        .collect();
    let value = json!({
        "space": {
            "number": space.number.to_string(),
            "time": space.clock.unix_seconds(),
            "clock": space.clock.counter(),
        },
        "attached": attached.iter().map(|(address, state)| json!({ "address": address.to_string(), "state": state })).collect::<Vec<_>>(),
        "not_attached": free.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "job": space.job.map(|job| json!({ "full": job.full, "paused": job.paused, "rate": job.rate })),
    });
    out.result(value, || {
        let mut text = format!(
            "hash space timestamp:\n  {} clock {}\nattached node:",
            space.clock.unix_seconds(),
            space.clock.counter()
        );
        for (address, state) in &attached {
            text += &format!("\n  {address} ({state})");
        }
        text += "\nnot attached node:";
        for address in &free {
            text += &format!("\n  {address}");
        }
        text
    })
}
