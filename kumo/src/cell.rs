//! `kumo cell`: runs a replica (with -l), or asks and orders what concerns the cell itself.

use crate::daemon::{self, Daemon};
use crate::failure::{Failure, NO_MASTER};
use crate::output::{Out, row, table};
use crate::target::{Target, seconds};
use crate::{address, block_on};
use clap::{Args, Subcommand};
use kumo_paxos::ChangeRefusal;
use pfs::{Cell, Change, Options, ReplicaState, ReplicaStatus, Role, Status};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::time::Duration;
use tokio::time::Instant;

/// Run a replica (-l), or look after the cell
///
/// With -l this is kumo-cell: one replica, until SIGTERM. With a command it is the operator's tool.
#[derive(Args)]
#[command(after_help = EXAMPLES, subcommand_value_name = "COMMAND")]
pub struct CellTool {
    #[command(flatten)]
    daemon: Daemon,
    #[command(subcommand)]
    command: Option<CellCommand>,
}

#[derive(Subcommand)]
enum CellCommand {
    /// Who is master, who votes, how far everyone is
    Status,
    /// Take a replica in, as an extension first
    Add {
        #[arg(value_name = "ADDR[:PORT]")]
        address: String,
    },
    /// Make an extension a voter; one that was just started is waited for (--patience)
    Promote {
        #[arg(value_name = "ADDR[:PORT]")]
        address: String,
    },
    /// Let a replica go
    Remove {
        #[arg(value_name = "ADDR[:PORT]")]
        address: String,
    },
    /// Swap one voter for an extension in one step; one that was just started is waited for (--patience)
    Replace { old: String, new: String },
    /// Let the master step down
    Transfer,
    /// Wait until there is a master
    Wait {
        /// ... and every core replica votes: between the steps of a rolling restart
        #[arg(long)]
        voting: bool,
        #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
        timeout: Duration,
    },
    /// Let a durable replica write a snapshot now
    Snapshot,
    /// Go on from a lone survivor when a majority has forgotten
    Recover {
        /// The survivor
        #[arg(long, value_name = "ADDR[:PORT]")]
        from: String,
        /// What only the others knew is lost: yes
        #[arg(long, required = true)]
        accept_data_loss: bool,
    },
}

pub fn run(tool: CellTool, target: Target, out: Out) -> Result<(), Failure> {
    match (tool.command, tool.daemon.listen.is_some()) {
        (Some(command), false) => block_on(operate(command, target, out)),
        (Some(_), true) => Err(Failure::usage("-l runs a replica: it goes with no command")),
        (None, _) => {
            // By its own command line: some of what it needs may be configured.
            let typed = std::env::args_os().skip_while(|argument| argument != "cell").skip(1);
            let arguments: Vec<OsString> = std::iter::once("kumo-cell".into()).chain(typed).collect();
            daemon::main(&arguments)
        }
    }
}

async fn operate(command: CellCommand, target: Target, out: Out) -> Result<(), Failure> {
    let change = match command {
        CellCommand::Status => return status(&target, out).await,
        CellCommand::Wait { voting, timeout } => return wait(&target, voting, timeout, out).await,
        CellCommand::Transfer => {
            target.operator()?.transfer().await?;
            return done(&out, "transfer");
        }
        CellCommand::Snapshot => {
            target.operator()?.snapshot().await?;
            return done(&out, "snapshot");
        }
        CellCommand::Recover { from, accept_data_loss: _ } => return recover(&target, &from, out).await,
        CellCommand::Add { address } => Change::Add(address::one(&address, pfs::PORT)?),
        CellCommand::Promote { address } => Change::Promote(address::one(&address, pfs::PORT)?),
        CellCommand::Remove { address } => Change::Remove(address::one(&address, pfs::PORT)?),
        CellCommand::Replace { old, new } => {
            Change::Replace { old: address::one(&old, pfs::PORT)?, new: address::one(&new, pfs::PORT)? }
        }
    };
    change_members(&target, change).await?;
    done(&out, "change")
}

/// A newcomer that was started a moment ago is waited for, and a change before this one.
async fn change_members(target: &Target, change: Change) -> Result<(), Failure> {
    let until = Instant::now() + target.patience;
    loop {
        match target.operator()?.change(change.clone(), None).await {
            Err(pfs::Error::CellRefused(reason)) if Instant::now() < until && is_early(&change, &reason) => {
                tokio::time::sleep(ASK_INTERVAL).await;
            }
            changed => return Ok(changed?),
        }
    }
}

/// Whether it was refused only because another change, or the newcomer, is not so far yet.
fn is_early(change: &Change, reason: &str) -> bool {
    if reason == ChangeRefusal::Busy.to_string() {
        return true;
    }
    let (Change::Promote(newcomer) | Change::Replace { new: newcomer, .. }) = change else { return false };
    let early = [ChangeRefusal::Stranger, ChangeRefusal::Unreachable, ChangeRefusal::Behind];
    early.iter().any(|early| early(*newcomer).to_string() == reason)
}

async fn recover(target: &Target, from: &str, out: Out) -> Result<(), Failure> {
    let from = address::one(from, pfs::PORT)?;
    let mut options = Options::new([from]);
    options.patience = target.patience;
    Cell::connect(&options)?.change(Change::Recover, Some(from)).await?;
    done(&out, "recover")
}

fn done(out: &Out, what: &str) -> Result<(), Failure> {
    out.result(json!({ "done": what }), String::new)
}

async fn status(target: &Target, out: Out) -> Result<(), Failure> {
    let answer = target.operator()?.status().await?;
    let status = answer.status;
    out.result(to_json(&status), || text(&status))?;
    match status.master {
        Some(_) => Ok(()),
        // What is known was printed; scripts see that nobody leads.
        None => Err(Failure::Status(NO_MASTER)),
    }
}

async fn wait(target: &Target, voting: bool, timeout: Duration, out: Out) -> Result<(), Failure> {
    let until = Instant::now() + timeout;
    let mut patient = target.clone();
    patient.patience = patient.patience.min(timeout);
    loop {
        let seen = patient.operator()?.status().await;
        match &seen {
            Ok(answer) if is_ready(&answer.status, voting) => {
                return out.result(to_json(&answer.status), String::new);
            }
            Ok(_) | Err(_) => {}
        }
        if Instant::now() >= until {
            let status = seen?.status;
            return Err(match status.master {
                None => pfs::Error::NoMaster.into(),
                Some(_) => Failure::not_obtained("not every core replica votes"),
            });
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}

/// There is a master; with `voting` every core replica votes.
pub fn is_ready(status: &Status, voting: bool) -> bool {
    let votes = |replica: &ReplicaStatus| match replica.member.role {
        Role::Core => replica.state == ReplicaState::Voting,
        Role::Returning => false,
        Role::Extension => true,
    };
    status.master.is_some() && (!voting || status.replicas.iter().all(votes))
}

fn to_json(status: &Status) -> Value {
    let replicas: Vec<Value> = status.replicas.iter().map(replica_json).collect();
    let mut object = json!({
        "generation": status.generation,
        "cell_id": status.cell.to_string(),
        "master": status.master.map(|master| master.to_string()),
        "round": { "sequence": status.round.sequence, "id": status.round.id.0 },
        "replicas": replicas,
    });
    if let Some(trouble) = &status.trouble {
        object["trouble"] = json!(trouble);
    }
    object
}

fn replica_json(replica: &ReplicaStatus) -> Value {
    json!({
        "id": replica.member.id.0,
        "address": replica.member.address.to_string(),
        "incarnation": replica.member.incarnation.to_string(),
        "role": role(replica.member.role),
        "state": state(replica.state),
        "decided": replica.decided.0,
        "executed": replica.executed.0,
        "age_ms": replica.age_ms,
        "load": replica.load,
    })
}

fn text(status: &Status) -> String {
    let master = status.master.map_or("none".to_owned(), |master| master.to_string());
    let mut text = format!(
        "cell {} generation {}\nmaster {master}, round {} of replica {}\n",
        status.cell, status.generation, status.round.sequence, status.round.id.0
    );
    if let Some(trouble) = &status.trouble {
        text.push_str(&format!("trouble: {trouble}\n"));
    }
    let heading = ["ID", "ADDRESS", "ROLE", "STATE", "DECIDED", "EXECUTED", "AGE_MS", "LOAD"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for replica in &status.replicas {
        rows.push(row([
            &replica.member.id.0,
            &replica.member.address,
            &role(replica.member.role),
            &state(replica.state),
            &replica.decided.0,
            &replica.executed.0,
            &replica.age_ms,
            &replica.load,
        ]));
    }
    text + &table(&rows)
}

fn role(role: Role) -> &'static str {
    match role {
        // One that is to vote again after a recovery: of the core, and its state says that it does not vote yet.
        Role::Core | Role::Returning => "core",
        Role::Extension => "extension",
    }
}

fn state(state: ReplicaState) -> &'static str {
    match state {
        ReplicaState::Voting => "voting",
        ReplicaState::Learning => "learning",
        ReplicaState::Down => "down",
    }
}

const EXAMPLES: &str = "\
Examples:
  kumo cell status
  kumo cell -l 10.0.0.1 -p 10.0.0.2 -p 10.0.0.3     the same as kumo-cell with these options
  kumo cell promote 10.0.0.4                        started there: kumo-cell -l 10.0.0.4 -p 10.0.0.1 --extension
  kumo cell wait --voting                           before the next step of a rolling restart

status and wait with --format json: generation, cell_id, master (address or null), round {sequence, id},
replicas [{id, address, incarnation, role, state, decided, executed, age_ms, load}], trouble (when there is).
status ends with 5 when there is no master.";

/// How often `wait` asks.
const ASK_INTERVAL: Duration = Duration::from_millis(50);
