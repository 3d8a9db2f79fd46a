//! What `kumoctl`, the dashboard and the other tools ask of a manager.

use crate::{Garbage, Progress, ServerId, Space, Usage};
use kumo_paxos::ReplicaState;
use kumo_wire::{wire_enum, wire_struct};
use std::net::SocketAddr;

/// What may end the name of a backup beside a store: no path, no surprise for a shell, and not what a voter's memory is
/// called there.
pub fn check_suffix(suffix: &str) -> Result<(), &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match suffix {
        "cell" => Err("no backup can end in cell: that is what a voter's memory is called"),
        _ if (1..=64).contains(&suffix.len()) && suffix.bytes().all(allowed) => Ok(()),
        _ => Err("a suffix of a backup has letters, digits, dot, underscore and hyphen, 1 to 64 of them"),
    }
}

/// An operator's wish. Any manager takes it; it is the master that acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// How things stand.
    Stat,
    /// Bring servers into the ring: those named, or all that are connected and not attached. `replace`: move the
    /// data at once; otherwise the next `Replace` does. `accept_data_loss`: give up arcs whose last owner is lost.
    Attach {
        servers: Vec<SocketAddr>,
        replace: bool,
        accept_data_loss: bool,
    },
    /// Take servers out of the ring: those named, or all that are fault.
    Detach {
        servers: Vec<SocketAddr>,
        replace: bool,
    },
    /// Move the data to where the attached servers say.
    Replace,
    /// Compare and repair all arcs.
    FullReplace,
    /// What attaching or detaching these would move, without doing it.
    Plan {
        attach: Vec<SocketAddr>,
        detach: Vec<SocketAddr>,
    },
    /// Every server writes a copy of its store beside it.
    Backup {
        suffix: String,
    },
    AutoReplace {
        on: bool,
    },
    Pause,
    Resume,
    Cancel,
    /// Bytes a second a server; 0: no limit.
    Rate {
        bytes: u64,
    },
    /// A new cell takes the newest space that the connected servers hold. Unless the loss is accepted, all that act in
    /// it must be connected: one that is not may know of a newer one, and of what was written since.
    Rebuild {
        accept_data_loss: bool,
    },
}

// Rare messages: their size matters nowhere.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAnswer {
    Done,
    Stat(Stat),
    Plan(Plan),
    Backup(Vec<BackupResult>),
    /// This manager does not lead; ask that one.
    Master(Option<SocketAddr>),
    /// Nothing changed, unless it says that something may have; why, for people.
    Refused(String),
}

/// How a cluster stands, as its master sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub space: Space,
    pub servers: Vec<ServerStat>,
    pub auto_replace: bool,
    /// Attach and detach that wait for the next replace.
    pub attach_wanted: Vec<SocketAddr>,
    pub detach_wanted: Vec<SocketAddr>,
    pub gateways: u64,
    /// The cell that agrees on all this.
    pub managers: Vec<SocketAddr>,
    pub master: Option<SocketAddr>,
    /// Those of it that vote, or are to.
    pub voters: Vec<VoterStat>,
    /// The replace under way gives up the keys whose servers were all lost when it was ordered.
    pub loss_accepted: bool,
}

/// A voter of the cell, as its master sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoterStat {
    pub address: SocketAddr,
    /// The server in whose process it runs; none: a manager.
    pub server: Option<SocketAddr>,
    /// None: it has no vote yet.
    pub state: Option<ReplicaState>,
}

/// A replace under way, from what its servers reported last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStat {
    pub full: bool,
    pub paused: bool,
    /// Bytes a second a server; 0: no limit.
    pub rate: u64,
    /// All data is where it belongs, and the servers are being told.
    pub switching: bool,
    pub total: Progress,
    /// Those that have something to copy.
    pub servers: Vec<(SocketAddr, Progress)>,
}

impl Stat {
    pub fn job(&self) -> Option<JobStat> {
        let space = &self.space;
        if space.job.is_none() && space.settled() {
            return None;
        }
        let about = |progress: &Progress| progress.job == space.whs_since && progress.copies > 0;
        let servers = self.servers.iter().filter(|server| about(&server.progress));
        let servers: Vec<(SocketAddr, Progress)> =
            servers.map(|server| (server.server.address, server.progress)).collect();
        Some(JobStat {
            full: space.job.is_some_and(|job| job.full),
            paused: space.job.is_some_and(|job| job.paused),
            rate: space.job.map_or(0, |job| job.rate),
            switching: space.job.is_none(),
            total: Progress::sum(space.whs_since, servers.iter().map(|(_, progress)| *progress)),
            servers,
        })
    }
}

impl JobStat {
    /// As operators call it.
    pub fn kind(&self) -> &'static str {
        if self.full { "full-replace" } else { "replace" }
    }

    /// Of 100.
    pub fn percent(&self) -> f64 {
        if self.switching { 100.0 } else { self.total.percent() }
    }
}

/// A server that the master hears of, attached or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStat {
    pub server: ServerId,
    pub connected: bool,
    pub heard_ms: u64,
    pub space: crate::SpaceNumber,
    pub usage: Usage,
    pub progress: Progress,
    pub gets: u64,
    pub sets: u64,
    pub deletes: u64,
    /// Its store belongs to another cluster.
    pub foreign: bool,
    /// There is no space left on its disk: what it keeps a copy of cannot be written.
    pub full: bool,
}

/// What a change of the ring would move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub shares: Vec<ShareChange>,
    /// Estimated from what the servers store now.
    pub bytes: u64,
    pub records: u64,
}

/// How much of the ring a server holds copies of, in 2^-32 parts of the ring, before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareChange {
    pub server: SocketAddr,
    pub before: u64,
    pub after: u64,
    /// Of the part after, what it does not hold yet.
    pub gained: u64,
}

/// How one server's backup went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupResult {
    pub server: SocketAddr,
    /// Where it was written.
    pub path: Option<String>,
    pub error: Option<String>,
}

wire_enum!(ControlRequest {
    1 = Stat,
    2 = Attach { servers, replace, accept_data_loss },
    3 = Detach { servers, replace },
    4 = Replace,
    5 = FullReplace,
    6 = Plan { attach, detach },
    7 = Backup { suffix },
    8 = AutoReplace { on },
    9 = Pause,
    10 = Resume,
    11 = Cancel,
    12 = Rate { bytes },
    13 = Rebuild { accept_data_loss },
});
wire_enum!(ControlAnswer {
    1 = Done,
    2 = Stat(stat),
    3 = Plan(plan),
    4 = Backup(results),
    5 = Master(master),
    6 = Refused(reason),
});
wire_struct!(Stat {
    space,
    servers,
    auto_replace,
    attach_wanted,
    detach_wanted,
    gateways,
    managers,
    master,
    voters,
    loss_accepted
});
wire_struct!(VoterStat { address, server, state });
wire_struct!(ServerStat {
    server,
    connected,
    heard_ms,
    space,
    usage,
    progress,
    gets,
    sets,
    deletes,
    foreign,
    full
});
wire_struct!(Plan { shares, bytes, records });
wire_struct!(ShareChange { server, before, after, gained });
wire_struct!(BackupResult { server, path, error });

/// What a tool says first and last to a manager or a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolRequest {
    /// To a manager.
    Control(ControlRequest),
    /// To a server: how do you do?
    Inspect,
}

// Rare messages: their size matters nowhere.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolAnswer {
    Control(ControlAnswer),
    Report(ServerReport),
    /// Not asked of the right process, or not understood.
    Refused {
        reason: String,
    },
}

/// How a server does, for `kumostat` and `kumotop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    pub server: ServerId,
    pub pid: u32,
    pub uptime_ms: u64,
    pub unix_millis: u64,
    pub version: String,
    pub gets: u64,
    pub sets: u64,
    pub deletes: u64,
    pub usage: Usage,
    pub garbage: Garbage,
    pub space: Option<Space>,
    /// What is left of its lease.
    pub lease_ms: u64,
    /// Writes that not all owners have acknowledged.
    pub pending: u64,
    /// Records that may not be committed.
    pub dirty: u64,
    pub progress: Progress,
    /// Requests of gateways answered in this life of the process, by how long it took: one count a bound of
    /// [`LATENCY_MICROS_BOUNDS`], and one for those beyond the last.
    pub latency: Vec<u64>,
}

/// Requests are counted by how long they took, up to and including these.
pub const LATENCY_MICROS_BOUNDS: [u64; 19] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

wire_enum!(ToolRequest { 1 = Control(request), 2 = Inspect });
wire_enum!(ToolAnswer { 1 = Control(answer), 2 = Report(report), 3 = Refused { reason } });
wire_struct!(ServerReport {
    server,
    pid,
    uptime_ms,
    unix_millis,
    version,
    gets,
    sets,
    deletes,
    usage,
    garbage,
    space,
    lease_ms,
    pending,
    dirty,
    progress,
    latency,
});
