//! `kumo queue`: messages, first in, first out.

use crate::child::{self, Ended, Signals};
use crate::failure::Failure;
use crate::fs::read_input;
use crate::output::{Out, row, table, with_data};
use crate::target::{Target, seconds};
use bytes::Bytes;
use clap::{Args, Subcommand};
use pfs::{Message, Patience, Session, SessionState};
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Queues: each message goes to one taker
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Queue {
    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Subcommand)]
enum QueueCommand {
    /// Put a message at the end; `-` or nothing: from standard input
    Post {
        name: String,
        #[arg(default_value = "-")]
        data: OsString,
    },
    /// Take the head, or wait for one
    ///
    /// It is removed when it is written out; what cannot be written goes back to the queue.
    Wait {
        name: String,
        /// 3 when none came in time; 0: only one that is there
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        timeout: Option<Duration>,
    },
    /// The id and the data of the head, which stays
    Peek { name: String },
    /// Remove a message by its id
    Delete { name: String, id: u64 },
    /// Receive messages one by one, give each to a command as its standard input, and remove it when that ends with 0
    ///
    /// A message whose command fails goes back to the queue, and kumo ends with the command's status.
    /// KUMO_MESSAGE_ID is in the command's environment.
    Work {
        name: String,
        /// One message only
        #[arg(long)]
        once: bool,
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// All queues
    Ls,
}

pub async fn run(queue: Queue, target: Target, out: Out) -> Result<(), Failure> {
    // Read before the session is opened: standard input may take longer than a session lives.
    let input = match &queue.command {
        QueueCommand::Post { data, .. } if data == "-" => read_input(Path::new("-"))?,
        QueueCommand::Post { data, .. } => Bytes::from(data.as_encoded_bytes().to_vec()),
        QueueCommand::Wait { .. }
        | QueueCommand::Peek { .. }
        | QueueCommand::Delete { .. }
        | QueueCommand::Work { .. }
        | QueueCommand::Ls => Bytes::new(),
    };
    match queue.command {
        // Signals are the worker's.
        QueueCommand::Work { name, once, command } => {
            target.in_session(async |session| work(session, &name, once, &command).await).await
        }
        command => {
            let perform = async |session: &Session| perform(command, input, session, &out).await;
            target.in_session_unless_signalled(perform).await
        }
    }
}

async fn perform(command: QueueCommand, input: Bytes, session: &Session, out: &Out) -> Result<(), Failure> {
    match command {
        QueueCommand::Post { name, .. } => {
            let length = input.len();
            session.post(&name, input).await?;
            out.result(json!({ "queue": name, "length": length }), String::new)
        }
        QueueCommand::Wait { name, timeout } => {
            let patience = match timeout {
                None => Patience::Forever,
                Some(Duration::ZERO) => Patience::Try,
                Some(limit) => Patience::Within(limit),
            };
            // It is gone only when it is written: what cannot be written goes back to the queue.
            let message = session.receive(&name, patience).await?;
            match out.is_json() {
                true => out.result(message_json(&name, &message), String::new)?,
                false => out.message(&message.data)?,
            }
            Ok(session.acknowledge(&name, message.id).await?)
        }
        QueueCommand::Peek { name } => {
            let message = session.peek(&name).await?;
            match out.is_json() {
                true => out.result(message_json(&name, &message), String::new),
                false => {
                    out.bytes(format!("{}\t", message.id).as_bytes())?;
                    out.message(&message.data)
                }
            }
        }
        QueueCommand::Delete { name, id } => {
            session.delete_message(&name, id).await?;
            out.result(json!({ "queue": name, "deleted": id }), String::new)
        }
        QueueCommand::Work { name, once, command } => work(session, &name, once, &command).await,
        QueueCommand::Ls => list(session, out).await,
    }
}

async fn work(session: &Session, name: &str, once: bool, command: &[OsString]) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    loop {
        let message = tokio::select! {
            message = session.receive(name, Patience::Forever) => message?,
            // Nothing is hidden for us now: ending the session gives back what came meanwhile.
            signal = signals.next() => return Err(Failure::Status(128 + signal.as_raw() as u8)),
        };
        let environment = [("KUMO_MESSAGE_ID", message.id.to_string())];
        match child::run(command, &environment, Some(message.data), lost(session)).await? {
            Ended::Lost => return Err(pfs::Error::Lost.into()),
            Ended::Status(0) => session.acknowledge(name, message.id).await?,
            Ended::Status(status) => return Err(Failure::Status(status)),
        }
        if once {
            return Ok(());
        }
    }
}

/// Completes when the session, and with it the hidden message, is another's.
async fn lost(session: &Session) {
    let _ = session.state().wait_for(|state| *state == SessionState::Lost).await;
}

async fn list(session: &Session, out: &Out) -> Result<(), Failure> {
    let queues = session.queues().await?;
    let objects: Vec<_> = queues
        .iter()
        .map(|queue| {
            json!({
                "name": queue.name,
                "ready": queue.ready,
                "hidden": queue.hidden,
                "waiting": queue.waiting,
            })
        })
        .collect();
    out.result(json!({ "queues": objects }), || {
        let mut rows = vec![row([&"NAME", &"READY", &"HIDDEN", &"WAITING"])];
        rows.extend(
            queues.iter().map(|queue| row([&queue.name, &queue.ready, &queue.hidden, &queue.waiting])),
        );
        table(&rows)
    })
}

fn message_json(queue: &str, message: &Message) -> serde_json::Value {
    let object = json!({ "queue": queue, "id": message.id, "length": message.data.len() });
    with_data(object, &message.data)
}

const EXAMPLES: &str = "\
Examples:
  kumo queue post jobs 'resize 7'            kumo queue wait jobs --timeout 5
  kumo queue work jobs -- ./worker.sh        each message on the worker's standard input
  tar c . | kumo queue post builds -

--format json: post {queue, length}; wait and peek {queue, id, length, encoding: utf-8|base64, data};
delete {queue, deleted}; ls {queues [{name, ready, hidden, waiting}]}.";
