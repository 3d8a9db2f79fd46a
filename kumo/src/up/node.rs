//! [`Nodes`]: the processes of `kumo up`. None outlives it: their standard input ends with its life.

use super::layout::{Layout, Place, Role};
use super::ready::told;
use crate::daemon::LISTENING;
use crate::failure::Failure;
use crate::http::TOKEN_VARIABLE;
use crate::output::note;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub struct Nodes {
    nodes: Vec<Node>,
    news: mpsc::UnboundedReceiver<(usize, News)>,
    sender: mpsc::UnboundedSender<(usize, News)>,
}

pub struct Node {
    pub place: Place,
    pub pid: u32,
    pub log: Option<PathBuf>,
    tail: Tail,
    listens: bool,
    ended: bool,
    /// Closed when we end, however we end; the process ends then too.
    _lifeline: Option<ChildStdin>,
}

/// How nodes are run.
pub struct Running<'a> {
    /// Where they keep what they know, and their logs; `None`: in memory.
    pub data: Option<&'a Path>,
    pub session_timeout: Duration,
    /// Further options of each role.
    pub configured: Vec<(Role, Vec<OsString>)>,
    /// Their logs are shown.
    pub verbose: bool,
}

/// A node that ended, and what it said last.
pub struct Gone {
    pub line: String,
    pub tail: Vec<String>,
}

enum News {
    Listens,
    Ended(String),
}

impl Nodes {
    /// Starts all of them: first those whom the others look for. The inner error: one ended before it listened.
    pub async fn start(layout: &Layout, running: &Running<'_>) -> Result<Result<Nodes, Gone>, Failure> {
        let (sender, news) = mpsc::unbounded_channel();
        let mut nodes = Nodes { nodes: Vec::new(), news, sender };
        let (members, others): (Vec<&Place>, Vec<&Place>) =
            layout.places().iter().partition(|place| matches!(place.role, Role::Cell | Role::Manager));
        for some in [members, others] {
            for place in some {
                nodes.run(place, layout, running)?;
            }
            if let Err(gone) = told("all processes listen", nodes.all_listen()).await {
                nodes.end().await;
                return Ok(Err(gone));
            }
        }
        Ok(Ok(nodes))
    }

    pub fn of(&self, role: Role) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.place.role == role)
    }

    pub fn list(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// Waits for the next node that ends.
    pub async fn next_gone(&mut self) -> Gone {
        loop {
            // We have a sender ourselves: it cannot end.
            let Some((index, news)) = self.news.recv().await else { return std::future::pending().await };
            if let Some(gone) = self.learn(index, news) {
                return gone;
            }
        }
    }

    pub fn is_any_left(&self) -> bool {
        self.nodes.iter().any(|node| !node.ended)
    }

    /// Asks all to end, waits, and kills who does not.
    pub async fn end(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            self.signal(signal);
            let all_gone = async {
                while self.is_any_left() {
                    self.next_gone().await;
                }
            };
            if tokio::time::timeout(END_TIMEOUT, all_gone).await.is_ok() {
                return;
            }
        }
    }

    fn run(&mut self, place: &Place, layout: &Layout, running: &Running) -> Result<(), Failure> {
        let name = place.name();
        let cannot = |error: std::io::Error| Failure::refused(format!("cannot start {name}: {error}"));
        let log = running.data.map(|data| data.join(format!("{name}.log")));
        let file = log.as_ref().map(|log| File::options().create(true).append(true).open(log));
        let file = file.transpose().map_err(cannot)?;
        let mut child = spawn(place, layout, running).map_err(cannot)?;
        let tail = Tail::new(running.verbose.then(|| name.clone()), file);
        let index = self.nodes.len();
        self.nodes.push(Node {
            place: place.clone(),
            pid: child.id().unwrap_or_default(),
            log,
            tail: tail.clone(),
            listens: false,
            ended: false,
            _lifeline: child.stdin.take(),
        });
        let said = [
            child
                .stdout
                .take()
                .map(|out| tokio::spawn(follow(out, tail.clone(), index, self.sender.clone()))),
            child.stderr.take().map(|error| tokio::spawn(follow(error, tail, index, self.sender.clone()))),
        ];
        tokio::spawn(watch(index, child, said, self.sender.clone()));
        Ok(())
    }

    async fn all_listen(&mut self) -> Result<(), Gone> {
        while self.nodes.iter().any(|node| !node.listens) {
            let Some((index, news)) = self.news.recv().await else { break };
            if let Some(gone) = self.learn(index, news) {
                return Err(gone);
            }
        }
        Ok(())
    }

    fn learn(&mut self, index: usize, news: News) -> Option<Gone> {
        let node = &mut self.nodes[index];
        match news {
            News::Listens => {
                node.listens = true;
                None
            }
            News::Ended(how) => {
                node.ended = true;
                let Node { place, pid, .. } = node;
                let line = format!("{} {} (pid {pid}) {how}", place.role, place.address());
                Some(Gone { line, tail: node.tail.lines() })
            }
        }
    }

    fn signal(&self, signal: Signal) {
        for node in self.nodes.iter().filter(|node| !node.ended) {
            if let Some(pid) = Pid::from_raw(node.pid as i32) {
                // An error means that it ended meanwhile.
                let _ = kill_process(pid, signal);
            }
        }
    }
}

fn spawn(place: &Place, layout: &Layout, running: &Running) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(place.role.program()).arg("--exit-on-stdin-eof");
    command.args(["--http", &place.http().to_string()]);
    for (_, options) in running.configured.iter().filter(|(role, _)| *role == place.role) {
        command.args(options);
    }
    // What is configured here is meant for other processes than these; but who sets a token wants it asked for.
    let variables = std::env::vars_os().map(|(name, _)| name).filter(|name| name != TOKEN_VARIABLE);
    for name in variables.filter(|name| name.as_encoded_bytes().starts_with(b"KUMO_")) {
        command.env_remove(name);
    }
    let address = place.address().to_string();
    let folder = running.data.map(|data| data.join(place.name()));
    let others = layout.members().map(Place::address).filter(|other| *other != place.address());
    let session_timeout = running.session_timeout.as_secs_f64().to_string();
    match place.role {
        Role::Cell => {
            command.args(["--session-timeout", &session_timeout]);
            command.args(["-l", &address, "--log-level", "info"]).args(each("-p", others));
            if let Some(folder) = folder {
                command.arg("--data").arg(folder);
            }
        }
        Role::Manager => {
            command.args(["--session-timeout", &session_timeout]);
            let control = place.control().map_or(0, |control| control.port()).to_string();
            command.args(["-v", "-o", "-", "-l", &address, "-c", &control]).args(each("-p", others));
            match folder {
                Some(folder) => command.arg("--data").arg(folder),
                None => command.arg("--memory"),
            };
        }
        Role::Server => {
            let stream = place.ports[1].to_string();
            command.args(["-v", "-o", "-", "-l", &address, "-L", &stream]).args(managers(layout));
            if let Some(folder) = folder {
                command.arg("-s").arg(folder);
            }
        }
        Role::Gateway => {
            command.args(["-v", "-o", "-", "-t", &address]).args(managers(layout));
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own: Ctrl-C is for us and the command, and the cluster goes on until that has ended.
    command.process_group(0).kill_on_drop(true).spawn()
}

fn managers(layout: &Layout) -> Vec<String> {
    let mut options = each("-p", layout.members().map(Place::address));
    if let Some(first) = options.first_mut() {
        "-m".clone_into(first);
    }
    options
}

fn each(option: &str, addresses: impl Iterator<Item = SocketAddr>) -> Vec<String> {
    addresses.flat_map(|address| [option.to_owned(), address.to_string()]).collect()
}

/// Says how a node ended, when all that it said is read.
async fn watch(
    index: usize,
    mut child: Child,
    said: [Option<JoinHandle<()>>; 2],
    news: mpsc::UnboundedSender<(usize, News)>,
) {
    let how = match child.wait().await {
        Ok(status) => format!("ended: {status}"),
        Err(error) => format!("cannot be waited for: {error}"),
    };
    for reading in said.into_iter().flatten() {
        // Somebody else may hold its streams open.
        let _ = tokio::time::timeout(LAST_WORDS_TIMEOUT, reading).await;
    }
    let _ = news.send((index, News::Ended(how)));
}

async fn follow(
    stream: impl AsyncRead + Unpin,
    tail: Tail,
    index: usize,
    news: mpsc::UnboundedSender<(usize, News)>,
) {
    let mut lines = BufReader::new(stream).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        match line == LISTENING.as_bytes() {
            true => drop(news.send((index, News::Listens))),
            false => tail.add(&String::from_utf8_lossy(&line)),
        }
    }
}

/// The last lines that a node said; all of them go to its log, if it has one.
#[derive(Clone)]
struct Tail(Arc<Mutex<Said>>);

struct Said {
    lines: VecDeque<String>,
    /// Its lines are shown behind this name.
    shown_as: Option<String>,
    log: Option<File>,
}

impl Tail {
    fn new(shown_as: Option<String>, log: Option<File>) -> Tail {
        Tail(Arc::new(Mutex::new(Said { lines: VecDeque::new(), shown_as, log })))
    }

    fn add(&self, line: &str) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = &said.shown_as {
            note(format!("{name} {line}"));
        }
        if let Some(log) = &mut said.log {
            // A full disk is the nodes' trouble first, and they say so.
            let _ = writeln!(log, "{line}");
        }
        if said.lines.len() == TAIL_LINES_MAX {
            said.lines.pop_front();
        }
        said.lines.push_back(line.chars().take(TAIL_LINE_CHARS_MAX).collect());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lines.iter().cloned().collect()
    }
}

/// A node ends in milliseconds; on a loaded machine it may have much to write.
const END_TIMEOUT: Duration = Duration::from_secs(5);

const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);

/// What is shown of a node that ended: enough for its reason, little enough to read at a glance.
const TAIL_LINES_MAX: usize = 4;
const TAIL_LINE_CHARS_MAX: usize = 400;
