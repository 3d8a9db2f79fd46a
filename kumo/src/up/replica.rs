//! [`Replicas`]: the processes of `kumo up`. None outlives it: their standard input ends with its life.

use crate::daemon::LISTENING;
use crate::failure::Failure;
use rustix::process::{Pid, Signal, kill_process};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub struct Replicas {
    replicas: Vec<Replica>,
    gone: mpsc::UnboundedReceiver<(usize, String)>,
    announcements: Vec<ChildStdout>,
    /// Pass on what the replicas complain about.
    complaints: Vec<JoinHandle<()>>,
}

pub struct Replica {
    pub address: SocketAddr,
    pub pid: u32,
    pub data: Option<PathBuf>,
    pub log: Option<PathBuf>,
    ended: bool,
    /// Closed when we end, however we end; the replica ends then too.
    _lifeline: Option<ChildStdin>,
}

impl Replicas {
    pub fn start(addresses: &[SocketAddr], data: Option<&Path>) -> Result<Replicas, Failure> {
        let (sender, gone) = mpsc::unbounded_channel();
        let (mut replicas, mut announcements, mut complaints) = (Vec::new(), Vec::new(), Vec::new());
        for (index, &address) in addresses.iter().enumerate() {
            let folder = data.map(|data| data.join(format!("replica-{}", index + 1)));
            let log = data.map(|data| data.join(format!("replica-{}.log", index + 1)));
            let mut child = spawn(addresses, address, folder.as_deref(), log.as_deref())
                .map_err(|error| Failure::refused(format!("cannot start a replica: {error}")))?;
            let pid = child.id().unwrap_or_default();
            let lifeline = child.stdin.take();
            if let Some(errors) = child.stderr.take() {
                complaints.push(tokio::spawn(pass_on(address, errors)));
            }
            announcements.extend(child.stdout.take());
            tokio::spawn(watch(index, child, sender.clone()));
            replicas.push(Replica { address, pid, data: folder, log, ended: false, _lifeline: lifeline });
        }
        Ok(Replicas { replicas, gone, announcements, complaints })
    }

    pub fn list(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.iter()
    }

    /// Waits until every replica has its address. `false`: one ended instead.
    pub async fn all_listen(&mut self) -> bool {
        for announcement in std::mem::take(&mut self.announcements) {
            let mut lines = BufReader::new(announcement).lines();
            match lines.next_line().await {
                Ok(Some(line)) if line == LISTENING => {}
                Ok(_) | Err(_) => return false,
            }
        }
        true
    }

    /// Waits for the next replica that ends, and says which and how.
    pub async fn next_gone(&mut self) -> String {
        match self.gone.recv().await {
            Some((index, how)) => {
                self.replicas[index].ended = true;
                format!("replica {} {how}", self.replicas[index].address)
            }
            // Every sender is gone only after every replica was reported.
            None => std::future::pending().await,
        }
    }

    /// Asks all to end, waits, and kills who does not.
    pub async fn end(&mut self) {
        // From now on they miss each other, as they must.
        self.complaints.iter().for_each(JoinHandle::abort);
        self.signal(Signal::TERM);
        if tokio::time::timeout(END_TIMEOUT, self.all_gone()).await.is_err() {
            self.signal(Signal::KILL);
            let _ = tokio::time::timeout(END_TIMEOUT, self.all_gone()).await;
        }
    }

    async fn all_gone(&mut self) {
        while self.replicas.iter().any(|replica| !replica.ended) {
            self.next_gone().await;
        }
    }

    fn signal(&self, signal: Signal) {
        for replica in self.replicas.iter().filter(|replica| !replica.ended) {
            if let Some(pid) = Pid::from_raw(replica.pid as i32) {
                // An error means that it ended meanwhile.
                let _ = kill_process(pid, signal);
            }
        }
    }
}

fn spawn(
    addresses: &[SocketAddr],
    address: SocketAddr,
    data: Option<&Path>,
    log: Option<&Path>,
) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0("kumo-cell").arg("-l").arg(address.to_string()).arg("--exit-on-stdin-eof");
    for peer in addresses.iter().filter(|peer| **peer != address) {
        command.arg("-p").arg(peer.to_string());
    }
    if let Some(data) = data {
        command.arg("--data").arg(data);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    match log {
        Some(log) => {
            let file = std::fs::File::options().create(true).append(true).open(log)?;
            command.stderr(file).args(["--log-level", "info"]);
        }
        None => {
            command.stderr(Stdio::piped()).args(["--log-level", "warn"]);
        }
    }
    // A group of its own: Ctrl-C is for us and the command, and the cell goes on until that has ended.
    command.process_group(0).kill_on_drop(true).spawn()
}

async fn watch(index: usize, mut child: Child, gone: mpsc::UnboundedSender<(usize, String)>) {
    let how = match child.wait().await {
        Ok(status) => format!("ended: {status}"),
        Err(error) => format!("cannot be waited for: {error}"),
    };
    let _ = gone.send((index, how));
}

async fn pass_on(address: SocketAddr, errors: ChildStderr) {
    let mut lines = BufReader::new(errors).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        eprintln!("{address} {}", String::from_utf8_lossy(&line));
    }
}

/// A replica ends in milliseconds; on a loaded machine it may have much to write.
const END_TIMEOUT: Duration = Duration::from_secs(3);
