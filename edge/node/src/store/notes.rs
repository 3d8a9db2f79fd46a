//! What the store's cores noted, in both logs: as lines of the text log, as events of the binary log.

use super::binary_log::{Value, record};
use kumo_cluster::{
    GatewayError, GatewayNote, GivenUp, Kind, ManagerNote, MemberState, Operation, ServerNote, Space,
};
use std::net::SocketAddr;
use tracing::{debug, error, info, warn};

pub fn server(note: &ServerNote) {
    match note {
        ServerNote::Adopted { space } => {
            info!(number = %space.number, "hash space");
            record_space(space);
        }
        ServerNote::Settling { arcs } => {
            info!(arcs, "settling");
            record("settling", || vec![("arcs", (*arcs as u64).into())]);
        }
        ServerNote::SettlementDone { arcs, micros } => {
            info!(arcs, micros, "settled");
            record("settled", || vec![("arcs", (*arcs as u64).into()), ("micros", (*micros).into())]);
        }
        ServerNote::CopyBegan { copies } => {
            info!(copies, "copying");
            record("copy began", || vec![("copies", (*copies).into())]);
        }
        ServerNote::CopyDone { records, bytes } => {
            info!(records, bytes, "copied");
            record("copy done", || vec![("records", (*records).into()), ("bytes", (*bytes).into())]);
        }
        ServerNote::Dropped { records } => {
            info!(records, "dropped what others own now");
            record("dropped", || vec![("records", (*records).into())]);
        }
        ServerNote::Stranger { cluster } => {
            warn!(%cluster, "managers of another cell are ignored: this server goes on with its own hash space");
            record("stranger", || vec![("cluster", Value::text(cluster))]);
        }
        ServerNote::Full(true) => {
            warn!("no space left on the disk: what this server keeps a copy of can be read, not written");
            record("disk full", Vec::new);
        }
        ServerNote::Full(false) => {
            warn!("there is space on the disk again");
            record("disk not full", Vec::new);
        }
        ServerNote::Unreplicated { to, key, record: version } => {
            warn!(key = %String::from_utf8_lossy(key), %to, "replication failed");
            record("replication failed", || {
                vec![
                    ("server", Value::text(to)),
                    ("key", Value::from(&key[..])),
                    ("value", Value::from(&version.data[..])),
                    ("deleted", Value::from(version.kind == Kind::Tombstone)),
                ]
            });
        }
        ServerNote::UnreplicatedMore { writes } => {
            warn!(writes, "replication failed of more writes than are named");
            record("replication failed of more", || vec![("writes", (*writes).into())]);
        }
        ServerNote::StoreFault { what } => {
            warn!(what, "the store refused");
            record("store refused", || vec![("what", Value::text(what))]);
        }
    }
}

/// A server's process goes on under another name.
pub fn reborn(reason: &str) {
    warn!(reason, "a new life begins");
    record("new life", || vec![("reason", Value::text(reason))]);
}

pub fn backup(suffix: &str, result: &Result<String, String>) {
    match result {
        Ok(path) => info!(path, "backup written"),
        Err(error) => warn!(error, "backup failed"),
    }
    record("backup", || {
        let (name, text) = match result {
            Ok(path) => ("path", path),
            Err(error) => ("error", error),
        };
        vec![("suffix", Value::text(suffix)), (name, Value::text(text))]
    });
}

pub fn manager(note: &ManagerNote) {
    match note {
        ManagerNote::Joined { server } => {
            info!(server = %server.address, life = ?server.incarnation, "server joined");
            record("joined", || {
                vec![("server", Value::text(server.address)), ("life", Value::text(server.incarnation))]
            });
        }
        ManagerNote::Left { server } => {
            warn!(server = %server.address, "server left");
            record("left", || vec![("server", Value::text(server.address))]);
        }
        ManagerNote::Foreign { server } => {
            warn!(server = %server.address, "{}", FOREIGN);
            record("foreign", || vec![("server", Value::text(server.address))]);
        }
        ManagerNote::FaultProposed { server } => {
            warn!(server = %server.address, "server is lost");
            record("lost", || vec![("server", Value::text(server.address))]);
        }
        ManagerNote::StoresDiffer => {
            warn!("{}", DIFFERENT);
            record("stores differ", Vec::new);
        }
        ManagerNote::Restored { server } => {
            warn!(server = %server.address, "{}", RESTORED);
            record("restored", || vec![("server", Value::text(server.address))]);
        }
        ManagerNote::TakenOut { server } => {
            info!(server = %server.address, "not attached by itself: it was detached by order");
            record("left out", || vec![("server", Value::text(server.address))]);
        }
        ManagerNote::AutoRefused { objection } => {
            warn!(reason = %objection, "auto-replace was refused");
            record("auto-replace refused", || vec![("reason", Value::text(objection))]);
        }
        ManagerNote::Hopeless { lost } => {
            let lost = lost.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ");
            warn!(lost, "the replace cannot end without these servers, and is given up");
            record("replace given up", || vec![("lost", Value::text(lost))]);
        }
        ManagerNote::Space { space } => {
            info!(number = %space.number, attached = space.rhs.len(), moving = space.job.is_some(), "hash space");
            record_space(space);
        }
        ManagerNote::Forgotten { server, knows, number } => {
            error!(%server, %knows, here = %number, "{}", FORGOTTEN);
            record("hash space forgotten", || {
                vec![
                    ("server", Value::text(server)),
                    ("knows", Value::text(knows)),
                    ("here", Value::text(number)),
                ]
            });
        }
        ManagerNote::LossAccepted(given_up) => loss_accepted(given_up),
        ManagerNote::Refused { address, reason } => {
            warn!(%address, reason, "refused");
            record("refused", || vec![("address", Value::text(address)), ("reason", Value::text(reason))]);
        }
        ManagerNote::Recruiting { server, voter } => {
            info!(%server, %voter, "a server is to vote in the cell");
            record("recruited", || vec![("server", Value::text(server)), ("voter", Value::text(voter))]);
        }
        ManagerNote::Dismissing { voter } => {
            info!(%voter, "not wanted in the cell any more");
            record("dismissed", || vec![("voter", Value::text(voter))]);
        }
        // What came of it is noted by the replica.
        ManagerNote::Changing { change } => debug!(?change, "members of the cell"),
    }
}

fn loss_accepted(given_up: &GivenUp) {
    let GivenUp { number, parts, servers, lost_last } = given_up;
    let percent = *parts as f64 * 100.0 / (1u64 << 32) as f64;
    let named = |servers: &[SocketAddr]| {
        let names: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
        names.join(",")
    };
    let part = format!("{percent:.1}%");
    warn!(%number, part, lost_last = named(lost_last), servers = named(servers), "{}", LOSS_ACCEPTED);
    record("loss accepted", || {
        let list = |servers: &[SocketAddr]| Value::List(servers.iter().map(Value::text).collect());
        vec![
            ("number", Value::text(number)),
            ("part", Value::text(&part)),
            ("lost last", list(lost_last)),
            ("servers", list(servers)),
        ]
    });
}

pub fn gateway(note: &GatewayNote) {
    match note {
        GatewayNote::Adopted { space } => {
            info!(number = %space.number, servers = space.rhs.len(), "hash space");
            record_space(space);
        }
        GatewayNote::Registered { gateway } => {
            info!(%gateway, "registered");
            record("registered", || vec![("gateway", Value::text(gateway))]);
        }
        GatewayNote::Stranger { from, cluster } => {
            warn!(%from, %cluster, "a hash space of another cluster was ignored");
            record("stranger", || vec![("from", Value::text(from)), ("cluster", Value::text(cluster))]);
        }
        GatewayNote::Expired { gateway } => {
            warn!(%gateway, "given up by the managers, registering anew");
            record("expired", || vec![("gateway", Value::text(gateway))]);
        }
        GatewayNote::Failed { key, operation, error } => failed(key, operation, error, true),
    }
}

/// A request that failed. `named`: a person is to read of it; of very many at once the text log has the number.
pub fn failed(key: &[u8], operation: &Operation, error: &GatewayError, named: bool) {
    match (operation, error) {
        // Nothing is lost with a read that was not begun, and its client was told.
        (Operation::Get, GatewayError::Busy) => {}
        // Of a client that asks for too much, which must not fill the disk.
        (_, GatewayError::Busy) if named => record_failed(key, operation, error),
        (_, GatewayError::Busy) => {}
        (_, _) => {
            if named {
                warn!(key = %String::from_utf8_lossy(key), %error, "request failed");
            }
            // A write may have to be repeated from there, however many there are.
            if named || *operation != Operation::Get {
                record_failed(key, operation, error);
            }
        }
    }
}

fn record_failed(key: &[u8], operation: &Operation, error: &GatewayError) {
    record("request failed", || {
        let mut fields = vec![("error", Value::text(error)), ("key", Value::from(key))];
        fields.extend(wanted(operation));
        fields
    });
}

/// A hash space with who is attached, who of them is lost, and what a replace is doing: its phases are spaces.
fn record_space(space: &Space) {
    record("hash space", || {
        let named = |ring: &[u16]| -> Value {
            Value::List(ring.iter().map(|&index| Value::text(space.member(index).address)).collect())
        };
        let is_lost = |index: &u16| !matches!(space.member(*index).state, MemberState::Active);
        let lost: Vec<u16> = space.rhs.iter().copied().filter(is_lost).collect();
        let mut fields = vec![
            ("number", Value::text(space.number)),
            ("phase", Value::text(phase(space))),
            ("attached", named(&space.rhs)),
            ("fault", named(&lost)),
        ];
        if space.whs != space.rhs {
            fields.push(("going to", named(&space.whs)));
        }
        if let Some(job) = space.job {
            fields.extend([("paused", job.paused.into()), ("rate", job.rate.into())]);
        }
        fields
    });
}

fn phase(space: &Space) -> &'static str {
    match space.job {
        Some(job) if job.full => "full replace",
        Some(_) => "replace",
        None if !space.old.is_empty() => "switched",
        None => "settled",
    }
}

/// What a request wanted, with all it takes to ask for it again.
fn wanted(operation: &Operation) -> Vec<(&'static str, Value)> {
    let store = |name: &str, flags: u32, expiry: i64, data: &[u8]| {
        let flags = u64::from(flags);
        vec![
            ("operation", Value::text(name)),
            ("flags", flags.into()),
            ("expiry", expiry.into()),
            ("value", data.into()),
        ]
    };
    let only = |name: &str| vec![("operation", Value::text(name))];
    let (mut fields, unique) = match operation {
        Operation::Get => (only("get"), None),
        Operation::GetAndTouch { expiry } => (with(only("gat"), "expiry", *expiry), None),
        Operation::Set { flags, expiry, data } => (store("set", *flags, *expiry, data), None),
        Operation::Add { flags, expiry, data } => (store("add", *flags, *expiry, data), None),
        Operation::Replace { flags, expiry, data } => (store("replace", *flags, *expiry, data), None),
        Operation::Cas { unique, flags, expiry, data } => {
            (store("cas", *flags, *expiry, data), Some(*unique))
        }
        Operation::Append { unique, data } => (with(only("append"), "value", &data[..]), *unique),
        Operation::Prepend { unique, data } => (with(only("prepend"), "value", &data[..]), *unique),
        Operation::Delete { unique } => (only("delete"), *unique),
        Operation::Touch { expiry } => (with(only("touch"), "expiry", *expiry), None),
        Operation::Add64 { unique, delta, down, initial, touch } => {
            let mut fields = with(only(if *down { "decr" } else { "incr" }), "delta", *delta);
            if let Some(initial) = initial {
                fields.extend([("initial", initial.value.into()), ("initial expiry", initial.expiry.into())]);
            }
            if let Some(touch) = touch {
                fields.push(("expiry", (*touch).into()));
            }
            (fields, *unique)
        }
    };
    if let Some(unique) = unique {
        fields.push(("cas", unique.into()));
    }
    fields
}

fn with(
    mut fields: Vec<(&'static str, Value)>,
    name: &'static str,
    value: impl Into<Value>,
) -> Vec<(&'static str, Value)> {
    fields.push((name, value.into()));
    fields
}

/// What an operator has decided, for whoever looks for the keys later.
const LOSS_ACCEPTED: &str = "loss of data accepted by an operator: the keys of this part of the ring are given up, all their \
                             servers were lost";

/// What an operator has to decide when managers know nothing and servers do.
const FOREIGN: &str = "the server's store belongs to another cluster: if this cell takes the place of one that is lost, \
                       `kumoctl rebuild` takes over the hash space that the servers hold; otherwise attach the others \
                       by name";

/// Why a recovered cell does nothing.
const FORGOTTEN: &str = "the cell was recovered from a manager that had forgotten a hash space which that server has: it \
                         leads no server, since they would drop what they have; stop all managers, move their --data \
                         folders away, start them, and order `kumoctl MANAGER rebuild`";

/// Why auto-replace does nothing with a server of its own past.
const RESTORED: &str = "the server brings records of no cluster, a restored backup: auto-replace leaves it alone, since it \
                        would be made equal to those that are attached, and its records be dropped; `kumoctl attach` \
                        with its address does that";

/// Why auto-replace does nothing with the servers of a new cluster.
const DIFFERENT: &str = "the servers' stores differ, and nothing is attached yet: auto-replace waits until an operator \
                         attaches the one whose store counts, by its address";
