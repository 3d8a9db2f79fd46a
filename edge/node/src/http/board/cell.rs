//! The cell in a snapshot: who leads, who is how far.

use super::health::voting;
use crate::metrics::NodeMetrics;
use pfs::{CellStatus, ReplicaState, ReplicaStatus, Role};
use serde_json::{Value, json};

pub fn value(answer: &CellStatus, metrics: &NodeMetrics) -> Value {
    let status = &answer.status;
    let furthest = status.replicas.iter().map(|replica| replica.executed.0).max().unwrap_or(0);
    let (voting, voters) = voting(status);
    json!({
        "cell_id": status.cell.to_string(),
        "generation": status.generation,
        "master": status.master.map(|master| master.to_string()),
        "round": { "sequence": status.round.sequence, "id": status.round.id.0 },
        "session_timeout_ms": answer.session_timeout.as_millis() as u64,
        "voting": voting,
        "voters": voters,
        "majority": voters / 2 + 1,
        "replicas": status.replicas.iter().map(|one| replica(one, furthest)).collect::<Vec<_>>(),
        "sessions": metrics.sessions.get(),
        "usage": {
            "bytes": metrics.bytes.get(),
            "files": metrics.files.get(),
            "directories": metrics.directories.get(),
            "messages": metrics.messages.get(),
        },
        "trouble": status.trouble,
    })
}

fn replica(replica: &ReplicaStatus, furthest: u64) -> Value {
    let (state, is_up) = match replica.state {
        ReplicaState::Voting => ("voting", true),
        ReplicaState::Learning => ("learning", true),
        ReplicaState::Down => ("down", false),
    };
    let role = match replica.member.role {
        Role::Core | Role::Returning => "core",
        Role::Extension => "extension",
    };
    json!({
        "id": replica.member.id.0,
        "address": replica.member.address.to_string(),
        "role": role,
        "state": state,
        "decided": replica.decided.0,
        "executed": replica.executed.0,
        "lag": is_up.then(|| furthest.saturating_sub(replica.executed.0)),
        "age_ms": replica.age_ms,
        "load": replica.load,
    })
}
