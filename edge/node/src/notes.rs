//! A cell's notes as lines of the text log; who leads also as events of a manager's binary log.

use crate::store::binary_log::{Value, record};
use kumo_paxos::{ExitReason, Note};
use kumo_session::NodeNote;
use tracing::{debug, error, info, warn};

/// Writes what a cell noted. ERROR means a person must act, INFO is a change of state. `stopping`: this node was told to
/// end, and gives up what it led: that is no news of the cell.
pub fn write(note: NodeNote, stopping: bool) {
    match note {
        NodeNote::Paxos(Note::NoMaster) if stopping => debug!("no master here any more"),
        NodeNote::Paxos(note) => write_paxos(note),
        NodeNote::SessionExpired(session) => info!(%session, "session expired"),
        NodeNote::Panicked { instance } => error!(instance, "executing an entry panicked"),
        NodeNote::Restored { from, bytes } => info!(%from, bytes, "snapshot taken over"),
        NodeNote::SnapshotMalformed { from } => warn!(%from, "snapshot could not be read"),
        // Told with its address by what keeps the connections.
        NodeNote::RequestRefused { connection, reason } => {
            debug!(connection = connection.0, reason, "request refused")
        }
        NodeNote::ClientRefused { connection, reason } => {
            debug!(connection = connection.0, reason, "client refused")
        }
    }
}

/// Writes why the cell made this node leave.
pub fn write_exit(reason: &ExitReason) {
    match reason {
        ExitReason::Removed => info!("removed from the cell"),
        ExitReason::Replaced
        | ExitReason::Over(_)
        | ExitReason::Differs(_)
        | ExitReason::Forgot
        | ExitReason::Conflict(_) => {
            error!(%reason, "node stops")
        }
    }
}

fn write_paxos(note: Note) {
    match note {
        Note::Formed(cell) => info!(%cell, "cell formed"),
        Note::Joined { cell, generation } => info!(%cell, generation, "cell joined"),
        Note::Voting => info!("voting"),
        Note::Leading(round) => {
            info!(round = round.sequence, "leading");
            record("leading", || vec![("round", round.sequence.into())]);
        }
        Note::SteppedDown(round) => {
            info!(round = round.sequence, "stepped down");
            record("stepped down", || vec![("round", round.sequence.into())]);
        }
        Note::MasterIs(master) => {
            info!(%master, "master changed");
            record("master", || vec![("master", Value::text(master))]);
        }
        Note::NoMaster => {
            warn!("no master");
            record("no master", Vec::new);
        }
        Note::Configuration { version, members } => {
            let members: Vec<String> = members
                .iter()
                .map(|member| format!("{}={} ({:?})", member.id.0, member.address, member.role))
                .collect();
            info!(version, members = members.join(" "), "configuration changed")
        }
        Note::TakingSnapshot { from } => info!(%from, "taking a snapshot"),
        Note::MajorityForgot { remembering, voters } => error!(
            remembering,
            voters, "a majority of the voters lost its memory: the cell cannot go on by itself"
        ),
        Note::Stranger(address) => warn!(%address, "an address outside the configuration wants to join"),
        Note::ForeignCell { address, cell } => warn!(%address, %cell, "another cell answers"),
        Note::Bug(instance) => {
            error!(instance = instance.0, "two replicas panicked at one instance: execution stops")
        }
    }
}
