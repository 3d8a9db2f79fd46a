//! [`Voter`]: a replica of the cell in a server's process: a manager like any other, at the server's second port and on a
//! thread of its own, so that it does not disturb the records. (CELL.md, 3.8)

use crate::{NodeConfig, NodeError, entropy, run_manager};
use kumo_cluster::{ManagerSettings, Recruit, Seat};
use kumo_paxos::ExitReason;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info};

/// The place for a replica, and the replica that runs there.
pub struct Voter {
    address: SocketAddr,
    listener: TcpListener,
    /// Beside the server's store; none: it remembers nothing.
    folder: Option<PathBuf>,
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
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Voter {
    /// `store`: the server's.
    pub fn new(listener: TcpListener, store: Option<&Path>) -> Result<Voter, NodeError> {
        let address = listener.local_addr().map_err(NodeError::Socket)?;
        let (ended, ends) = mpsc::unbounded_channel();
        let folder = store.map(|store| {
            let mut name = store.as_os_str().to_owned();
            name.push("-cell");
            PathBuf::from(name)
        });
        Ok(Voter { address, listener, folder, running: None, next: None, ends, ended, hopeless: false })
    }

    pub fn seat(&self) -> Seat {
        Seat { address: self.address, durable: self.folder.is_some() }
    }

    /// Runs a replica of that cell, unless one runs. `kept`: the cell that the memory beside the store is of.
    pub fn start(&mut self, recruit: Recruit, kept: Option<&Recruit>) -> Result<(), NodeError> {
        if self.hopeless {
            return Ok(());
        }
        if let Some(running) = self.running.take_if(|running| !running.thread.is_finished()) {
            if running.recruit.cell == recruit.cell {
                self.running = Some(running);
            } else {
                // That cell is no more: its replica goes first.
                let _ = running.stop.send(());
                self.next = Some(recruit);
            }
            return Ok(());
        }
        if kept.is_none_or(|kept| kept.cell != recruit.cell) {
            self.forget()?;
        }
        info!(address = %self.address, cell = %recruit.cell, "a replica of the cell starts here");
        self.running = Some(self.run(recruit)?);
        Ok(())
    }

    /// The replica has ended. True: the cell has let it go, and what it remembered is gone.
    pub fn poll(&mut self, context: &mut Context) -> Option<bool> {
        let Poll::Ready(Some(end)) = self.ends.poll_recv(context) else { return None };
        self.running = None;
        match end {
            Ok(()) => info!(address = %self.address, "the cell has let its replica here go"),
            Err(reason) => {
                error!(address = %self.address, %reason, "the replica of the cell here has ended");
                // Nobody knows yet whose memory is wrong.
                self.hopeless = matches!(reason, NodeError::Exit(ExitReason::Conflict(_)));
                if self.next.is_none() {
                    return Some(false);
                }
            }
        }
        if let Err(reason) = self.forget() {
            error!(%reason, "the memory of the replica could not be removed");
        }
        if let Some(next) = self.next.take()
            && let Err(reason) = self.start(next, None)
        {
            error!(%reason, "a replica of the cell could not be started");
        }
        Some(self.running.is_none())
    }

    /// The replica hands on what it leads, and ends with the server.
    pub async fn end(mut self) {
        let Some(running) = self.running.take() else { return };
        let _ = running.stop.send(());
        let _ = tokio::time::timeout(END_MAX, self.ends.recv()).await;
    }

    /// A replica that starts without memory is a new one; that is always safe.
    fn forget(&self) -> Result<(), NodeError> {
        let Some(path) = self.folder.as_ref().filter(|path| path.exists()) else { return Ok(()) };
        std::fs::remove_dir_all(path).map_err(|error| NodeError::Disk {
            what: "remove",
            path: path.clone(),
            error,
        })
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
            // The server's own is enough for the process.
            http: None,
        };
        let settings = settings(&recruit, self.folder.is_some())?;
        let ended = self.ended.clone();
        let (stop, stopped) = oneshot::channel();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let end = runtime.map_err(NodeError::Socket).and_then(|runtime| {
                runtime.block_on(run_manager(listener, None, config, settings, async {
                    let _ = stopped.await;
                }))
            });
            // A server that ended meanwhile does not want to know.
            let _ = ended.send(end);
        };
        let thread = std::thread::Builder::new().name("voter".to_owned()).spawn(work);
        Ok(Running { recruit, stop, thread: thread.map_err(NodeError::Socket)? })
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
