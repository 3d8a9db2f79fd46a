//! [`NodeConfig`]: what a node is told at its start, and [`NodeError`]: why it could not go on.

use crate::http::HttpConfig;
use kumo_paxos::{ExitReason, VOTERS_MAX};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What a node is told at its start.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Where this node listens, and the name by which the others know it.
    pub listen: SocketAddr,
    /// The other members it is started with. None: a cell of one.
    pub peers: Vec<SocketAddr>,
    /// The heartbeat. Time-outs scale with it.
    pub unit: Duration,
    /// Where a durable node keeps its memory; `None`: in memory only.
    pub data: Option<PathBuf>,
    /// Follow without a vote.
    pub extension: bool,
    /// How long a session lives without renewal.
    pub session_timeout: Duration,
    /// How long it looks for more before it sleeps, when it has much to do. ([`LINGER`](crate::LINGER))
    pub linger: Duration,
    /// The dashboard and what can be scraped; `None`: nothing.
    pub http: Option<HttpConfig>,
}

impl NodeConfig {
    /// Whether such a node can form a cell or follow one. A node with a memory is in one: it finds the others by that.
    pub fn check(&self) -> Result<(), NodeError> {
        let others: BTreeSet<&SocketAddr> = self.peers.iter().filter(|peer| **peer != self.listen).collect();
        match (self.extension, others.len()) {
            (true, 0) => Err(NodeError::Alone),
            (false, others) if others >= VOTERS_MAX => Err(NodeError::Voters(others + 1)),
            _possible => Ok(()),
        }
    }

    /// Whether there is a folder in which it may have a memory.
    pub fn may_remember(&self) -> bool {
        self.data.as_ref().is_some_and(|folder| folder.exists())
    }
}

/// Why a node could not start, or had to stop. Each prints as one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("{0} names no host and port by which the others could reach this node")]
    Nameless(SocketAddr),
    #[error("an extension follows a cell: name a member of it")]
    Alone,
    #[error("a cell has at most {VOTERS_MAX} voters, not {0}: others follow as extensions")]
    Voters(usize),
    #[error("address {0} is taken by another process")]
    AddressTaken(SocketAddr),
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("--data {} is in use by another process", .0.display())]
    DataInUse(PathBuf),
    #[error("--data {} is a server's store", .0.display())]
    DataIsStore(PathBuf),
    #[error("data in {} is of a newer format ({found}; this kumo reads up to {known})", .path.display())]
    NewerFormat { path: PathBuf, found: u32, known: u32 },
    #[error(
        "data in {} is of an older format ({found}; this kumo reads {known}): start the kumo that wrote it, or see \
         docs/how-to/upgrade.md",
        .path.display()
    )]
    OlderFormat { path: PathBuf, found: u32, known: u32 },
    #[error("{} is not a kumo file", .0.display())]
    ForeignFile(PathBuf),
    #[error("{what} {}: {error}", .path.display())]
    Disk { what: &'static str, path: PathBuf, error: io::Error },
    #[error("disk full: {what} {}: {error}; free space and start it again", .path.display())]
    DiskFull { what: &'static str, path: PathBuf, error: io::Error },
    #[error("no randomness from the operating system: {0}")]
    Entropy(io::Error),
    #[error("{0}")]
    Exit(ExitReason),
    #[error("socket: {0}")]
    Socket(io::Error),
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
    #[error("{0}")]
    OpenStore(String),
    #[error("store: {0}")]
    Store(kumo_cluster::Fault),
    #[error("{0}")]
    Refused(String),
}
