//! `kumo session`: who is connected to the cell.

use crate::failure::Failure;
use crate::output::{Out, row, table, time};
use crate::target::Target;
use clap::{Args, Subcommand};
use pfs::{SessionId, SessionInfo};
use serde_json::json;

/// List sessions, or end one
#[derive(Args)]
#[command(after_help = "\
--format json: sessions [{id, address, pid, number, opened_ms, requests, parked, silent_ms}]; killed.")]
pub struct SessionTool {
    #[command(subcommand)]
    command: SessionCommand,
}

#[derive(Subcommand)]
enum SessionCommand {
    /// All sessions of the cell
    Ls,
    /// End a session: its locks are freed, its ephemeral files go
    Kill {
        /// As ls shows it
        #[arg(value_parser = parse_id)]
        id: SessionId,
    },
}

pub async fn run(tool: SessionTool, target: Target, out: Out) -> Result<(), Failure> {
    match tool.command {
        SessionCommand::Ls => list(&target.operator()?.sessions().await?, out),
        SessionCommand::Kill { id } => {
            target.in_session_unless_signalled(async |session| Ok(session.kill(id).await?)).await?;
            out.result(json!({ "killed": id.to_string() }), String::new)
        }
    }
}

fn list(sessions: &[SessionInfo], out: Out) -> Result<(), Failure> {
    let objects: Vec<_> = sessions
        .iter()
        .map(|info| {
            json!({
                "id": info.session.to_string(),
                "address": info.label.address,
                "pid": info.label.pid,
                "number": info.label.number,
                "opened_ms": info.opened.0,
                "requests": info.requests,
                "parked": info.parked,
                "silent_ms": info.silent_ms,
            })
        })
        .collect();
    out.result(json!({ "sessions": objects }), || {
        let heading = ["ID", "ADDRESS", "PID", "NUMBER", "OPENED", "REQUESTS", "PARKED", "SILENT_MS"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(sessions.iter().map(|info| {
            row([
                &info.session,
                &info.label.address,
                &info.label.pid,
                &info.label.number,
                &time(info.opened),
                &info.requests,
                &info.parked,
                &info.silent_ms,
            ])
        }));
        table(&rows)
    })
}

/// `generation.count`, the form sessions are shown in.
fn parse_id(text: &str) -> Result<SessionId, String> {
    let parsed = text.split_once('.').and_then(|(generation, count)| {
        let (generation, count): (u64, u64) = (generation.parse().ok()?, count.parse().ok()?);
        let fits = generation < 1 << (64 - pfs::GENERATION_SHIFT) && count < 1 << pfs::GENERATION_SHIFT;
        fits.then_some(SessionId(generation << pfs::GENERATION_SHIFT | count))
    });
    parsed.ok_or_else(|| format!("a session is written GENERATION.COUNT, not {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_shown() {
        let id = SessionId(3 << pfs::GENERATION_SHIFT | 17);
        assert_eq!(parse_id(&id.to_string()), Ok(id));
        for bad in ["", "1", "1.", "x.1", "65536.1", "1.-1"] {
            assert!(parse_id(bad).is_err(), "{bad}");
        }
    }
}
