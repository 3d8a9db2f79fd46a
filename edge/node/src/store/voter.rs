//! [`Voter`]: a replica of the cell in a server's process: a manager like any other, at the server's second port and on a
//! thread of its own, so that it does not disturb the records. (CELL.md, 3.8)

use crate::store::kept;
use crate::{NodeConfig, NodeError, entropy, run_manager};
use kumo_cluster::{ManagerSettings, Recruit, Seat};
use kumo_paxos::ExitReason;
use kumo_store::Engine;
use kumo_wire::Wire;
use std::net::{SocketAddr, TcpListener};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info};

/// The place for a replica, and the replica that runs there.
pub struct Voter {
    address: SocketAddr,
    listener: TcpListener,
    /// Where it is on record that a replica runs here.
    engine: Engine,
    /// Beside the server's store; none: it remembers nothing.
    folder: Option<PathBuf>,
    linger: Duration,
    /// Until its end is heard of here.
    running: Option<Running>,
    /// Whom to run next, when the one before has ended.
    next: Option<Recruit>,
    ends: mpsc::UnboundedReceiver<Result<(), NodeError>>,
    ended: mpsc::UnboundedSender<Result<(), NodeError>>,
    /// What it remembers is for a person to look at: it does not run again.
    hopeless: bool,
}

struct Running {
    recruit: Recruit,
    /// None: it has been told to stop.
    stop: Option<oneshot::Sender<()>>,
}

impl Voter {
    /// `store`: the server's. A replica that ran here when the server ended runs again, at once: the others may need
    /// its vote.
    pub fn new(
        listener: TcpListener,
        engine: Engine,
        store: Option<&Path>,
        linger: Duration,
    ) -> Result<Voter, NodeError> {
        let address = listener.local_addr().map_err(NodeError::Socket)?;
        let (ended, ends) = mpsc::unbounded_channel();
        let folder = store.map(|store| {
            let mut name = store.as_os_str().to_owned();
            name.push("-cell");
            PathBuf::from(name)
        });
        let (running, next, hopeless) = (None, None, false);
        let mut voter =
            Voter { address, listener, engine, folder, linger, running, next, ends, ended, hopeless };
        if let Some(recruit) = voter.recruited()? {
            voter.start(recruit)?;
        }
        Ok(voter)
    }

    pub fn seat(&self) -> Seat {
        Seat { address: self.address, durable: self.folder.is_some() }
    }

    /// The cell wants a replica here.
    pub fn recruit(&mut self, recruit: Recruit) {
        if let Err(reason) = self.start(recruit) {
            error!(%reason, "a replica of the cell could not be started");
        }
    }

    /// Runs a replica of that cell, unless one runs.
    fn start(&mut self, recruit: Recruit) -> Result<(), NodeError> {
        if self.hopeless {
            return Ok(());
        }
        if let Some(running) = &mut self.running {
            if running.recruit.cell != recruit.cell {
                // That cell is no more: its replica goes first.
                if let Some(stop) = running.stop.take() {
                    let _ = stop.send(());
                }
                self.next = Some(recruit);
            }
            return Ok(());
        }
        let kept = self.recruited()?;
        // In this order: the memory of one cell must never be on record as another's.
        if kept.as_ref().is_none_or(|kept| kept.cell != recruit.cell) {
            self.forget()?;
        }
        if kept.as_ref() != Some(&recruit) {
            self.keep(Some(&recruit))?;
        }
        info!(address = %self.address, cell = %recruit.cell, "a replica of the cell starts here");
        self.running = Some(self.run(recruit)?);
        Ok(())
    }

    /// Looks after the replica's end.
    pub fn poll(&mut self, context: &mut Context) {
        let Poll::Ready(Some(end)) = self.ends.poll_recv(context) else { return };
        self.running = None;
        match end {
            Ok(()) => {
                info!(address = %self.address, "the cell has let its replica here go");
                if let Err(reason) = self.forget() {
                    error!(%reason, "that the cell has let its replica go could not be kept");
                }
            }
            Err(reason) => {
                error!(address = %self.address, %reason, "the replica of the cell here has ended");
                // Nobody knows yet whose memory is wrong.
                self.hopeless = matches!(reason, NodeError::Exit(ExitReason::Conflict(_)));
            }
        }
        if let Some(next) = self.next.take() {
            self.recruit(next);
        }
    }

    /// The replica hands on what it leads, and ends with the server.
    pub async fn end(mut self) {
        let Some(running) = self.running.take() else { return };
        if let Some(stop) = running.stop {
            let _ = stop.send(());
        }
        let _ = tokio::time::timeout(END_MAX, self.ends.recv()).await;
    }

    /// What the cell said when it wanted a replica at this address.
    fn recruited(&self) -> Result<Option<Recruit>, NodeError> {
        let kept: Option<Option<(SocketAddr, Recruit)>> = kept::note(&self.engine, kept::VOTER)?;
        Ok(kept.flatten().filter(|(address, _)| *address == self.address).map(|(_, recruit)| recruit))
    }

    fn keep(&self, recruit: Option<&Recruit>) -> Result<(), NodeError> {
        let note = recruit.map(|recruit| (self.address, recruit.clone()));
        self.engine.put_note(kept::VOTER, &note.to_bytes()).map_err(NodeError::Store)
    }

    /// A replica that starts without memory is a new one; that is always safe. One with a part of it is not: nothing
    /// starts here after a process that ended on the way, until a replica is wanted again and the rest is gone.
    fn forget(&self) -> Result<(), NodeError> {
        self.keep(None)?;
        let Some(path) = &self.folder else { return Ok(()) };
        let failed = |error| NodeError::Disk { what: "remove", path: path.clone(), error };
        if path.exists() {
            std::fs::remove_dir_all(path).map_err(failed)?;
        }
        // Also when it was removed before: a power failure must not bring it back beside the note of the next replica, which
        // would take it for its own memory.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = std::fs::File::open(parent.unwrap_or(Path::new(".")));
        folder.and_then(|folder| folder.sync_all()).map_err(failed)
    }

    fn run(&self, recruit: Recruit) -> Result<Running, NodeError> {
        let listener = self.listener.try_clone().map_err(NodeError::Socket)?;
        let config = NodeConfig {
            listen: self.address,
            peers: recruit.peers.clone(),
            unit: Duration::from_micros(recruit.unit_micros),
            data: self.folder.clone(),
            extension: true,
            session_timeout: Duration::from_micros(recruit.session_timeout_micros),
            linger: self.linger,
            // The server's own is enough for the process.
            http: None,
        };
        let settings = settings(&recruit, self.folder.is_some())?;
        let (stop, stopped) = oneshot::channel();
        self.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(NodeError::Socket)?.block_on(run_manager(
                listener,
                None,
                config,
                settings,
                async {
                    let _ = stopped.await;
                },
            ))
        })?;
        Ok(Running { recruit, stop: Some(stop) })
    }

    /// A thread whose end is heard of here, whichever it is: a replica that panicked must not be taken for one that runs.
    fn spawn(&self, work: impl FnOnce() -> Result<(), NodeError> + Send + 'static) -> Result<(), NodeError> {
        let ended = self.ended.clone();
        let work = move || {
            // Nothing that it had in hand is looked at again, but for its files, which are made for sudden ends.
            let end = std::panic::catch_unwind(AssertUnwindSafe(work));
            // What it was has been printed.
            let panicked = |_| Err(NodeError::Refused("it panicked".to_owned()));
            // A server that ended meanwhile does not want to know.
            let _ = ended.send(end.unwrap_or_else(panicked));
        };
        std::thread::Builder::new().name("voter".to_owned()).spawn(work).map_err(NodeError::Socket)?;
        Ok(())
    }
}

fn settings(recruit: &Recruit, durable: bool) -> Result<ManagerSettings, NodeError> {
    Ok(ManagerSettings {
        life: entropy::draw()?,
        lease_micros: recruit.lease_micros,
        keepalive_micros: recruit.keepalive_micros,
        connect_retry_limit: recruit.connect_retry_limit,
        connect_timeout_steps: recruit.connect_timeout_steps,
        clock_interval_micros: recruit.clock_interval_micros,
        replace_delay_micros: recruit.replace_delay_micros,
        auto_replace: false,
        unit_micros: recruit.unit_micros,
        session_timeout_micros: recruit.session_timeout_micros,
        durable,
        voter_patience_micros: recruit.voter_patience_micros,
        broken: kumo_cluster::Broken::default(),
    })
}

/// How long a server's end waits for its replica to hand on what it leads.
const END_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use kumo_paxos::CellId;
    use std::future::poll_fn;

    fn recruit() -> Recruit {
        Recruit {
            cell: CellId(7),
            peers: Vec::new(),
            unit_micros: 100_000,
            session_timeout_micros: 1_000_000,
            lease_micros: 1,
            keepalive_micros: 1,
            connect_retry_limit: 1,
            connect_timeout_steps: 1,
            clock_interval_micros: 1,
            replace_delay_micros: 1,
            voter_patience_micros: 1,
        }
    }

    #[tokio::test]
    async fn a_replica_that_panics_is_not_taken_for_one_that_runs() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut voter = Voter::new(listener, Engine::memory(), None, Duration::ZERO).unwrap();
        voter.running = Some(Running { recruit: recruit(), stop: None });
        voter.spawn(|| panic!("as planned")).unwrap();
        let ended = poll_fn(|context| {
            voter.poll(context);
            if voter.running.is_none() { Poll::Ready(()) } else { Poll::Pending }
        });
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        assert!(ended.is_ok() && !voter.hopeless, "another one may run here");
    }
}
