//! [`Cell`]: replicas as processes of their own, which a test may kill, pause and start again.

use crate::raw;
use pfs::{Options, ReplicaState, Role, Session, Status};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The binary under test.
pub const KUMO: &str = env!("CARGO_BIN_EXE_kumo");

/// A cell of real processes. None of them outlives it, and their logs are shown when the test fails.
pub struct Cell {
    replicas: Vec<Replica>,
    options: Vec<String>,
    durable: bool,
    /// Where the logs of the processes are, and where their data is.
    folder: PathBuf,
    data: PathBuf,
    /// One cell at a time: several on two cores would only slow each other down.
    _turn: MutexGuard<'static, ()>,
}

/// Where a replica runs, and how it is started there.
pub struct Place {
    pub address: SocketAddr,
    /// A command that runs the command after it, in place of its own process.
    pub prefix: Vec<String>,
}

struct Replica {
    place: Place,
    child: Option<Child>,
}

impl Cell {
    /// Three replicas in memory, started and voting.
    pub async fn start(options: &[&str]) -> Cell {
        Cell::start_at(places(3), options, false).await
    }

    /// Three replicas that keep their memory on disk.
    pub async fn start_durable(options: &[&str]) -> Cell {
        Cell::start_at(places(3), options, true).await
    }

    /// Three replicas that keep their memory in that folder.
    pub async fn start_durable_in(data: PathBuf, options: &[&str]) -> Cell {
        let mut cell = Cell::new(places(3), options, true);
        cell.data = data;
        cell.begin().await
    }

    pub async fn start_at(places: Vec<Place>, options: &[&str], durable: bool) -> Cell {
        Cell::new(places, options, durable).begin().await
    }

    fn new(places: Vec<Place>, options: &[&str], durable: bool) -> Cell {
        static TURN: Mutex<()> = Mutex::new(());
        static CELLS: AtomicUsize = AtomicUsize::new(0);
        // A test that failed is over: its poison means nothing to the next one.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = CELLS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("kumo-chaos-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let replicas = places.into_iter().map(|place| Replica { place, child: None }).collect();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let data = folder.clone();
        Cell { replicas, options, durable, folder, data, _turn: turn }
    }

    async fn begin(mut self) -> Cell {
        self.run_all();
        self.voting().await;
        self
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(|replica| replica.place.address).collect()
    }

    pub fn address(&self, index: usize) -> SocketAddr {
        self.replicas[index].place.address
    }

    pub fn index_of(&self, address: SocketAddr) -> usize {
        self.addresses().iter().position(|&one| one == address).expect("the address of one of ours")
    }

    /// Starts a process where none runs.
    pub fn run(&mut self, index: usize) {
        assert!(self.replicas[index].child.is_none(), "one process at a time");
        let address = self.address(index);
        let mut command = self.replica_command(&self.replicas[index].place.prefix);
        command.args(["-l", &address.to_string()]).args(&self.options);
        for peer in self.addresses().into_iter().filter(|&peer| peer != address) {
            command.args(["-p", &peer.to_string()]);
        }
        if self.durable {
            command.arg("--data").arg(self.data.join(format!("data-{index}")));
        }
        let log = File::options().create(true).append(true).open(self.log_path(index)).unwrap();
        self.replicas[index].child = Some(command.stderr(log).spawn().unwrap());
    }

    pub fn run_all(&mut self) {
        (0..self.replicas.len()).for_each(|index| self.run(index));
    }

    /// A replica's process that ends with this one, whatever happens: its standard input is ours.
    pub fn replica_command(&self, prefix: &[String]) -> Command {
        let mut words = prefix.iter().map(String::as_str).chain([KUMO]);
        let mut command = Command::new(words.next().expect("at least the binary"));
        command.args(words).args(["cell", "--exit-on-stdin-eof"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command
    }

    /// kill -9, and not there any more afterwards.
    pub fn kill(&mut self, index: usize) {
        self.kill_at_once(&[index]);
    }

    /// kill -9 of several before any of them is waited for.
    pub fn kill_at_once(&mut self, indices: &[usize]) {
        indices.iter().for_each(|&index| self.signal(index, Signal::KILL));
        for &index in indices {
            let mut child = self.replicas[index].child.take().expect("it runs");
            child.wait().unwrap();
        }
    }

    /// SIGTERM, and the clean end that must follow.
    pub async fn terminate(&mut self, index: usize) {
        self.signal(index, Signal::TERM);
        let mut child = self.replicas[index].child.take().expect("it runs");
        let status = ended(&mut child).await;
        assert!(status.success(), "{} after SIGTERM: {status}", self.address(index));
    }

    pub fn pause(&self, index: usize) {
        self.signal(index, Signal::STOP);
    }

    pub fn resume(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    fn signal(&self, index: usize, what: Signal) {
        signal(self.replicas[index].child.as_ref().expect("it runs"), what);
    }

    /// How many have ended by themselves.
    pub fn ended(&mut self) -> usize {
        let children = self.replicas.iter_mut().filter_map(|replica| replica.child.as_mut());
        children.filter_map(|child| child.try_wait().unwrap()).count()
    }

    /// Starts again what has ended by itself, as a service manager does. Returns how many.
    pub fn run_ended(&mut self) -> usize {
        let mut count = 0;
        for index in 0..self.replicas.len() {
            let Some(child) = &mut self.replicas[index].child else { continue };
            if child.try_wait().unwrap().is_some() {
                self.replicas[index].child = None;
                self.run(index);
                count += 1;
            }
        }
        count
    }

    /// Whether every process that was started is still there.
    pub fn all_run(&mut self) -> bool {
        self.replicas
            .iter_mut()
            .filter_map(|replica| replica.child.as_mut())
            .all(|child| child.try_wait().unwrap().is_none())
    }

    /// For sessions whose reads are linearizable. Patient: a busy machine is no fault.
    pub fn session_options(&self) -> Options {
        Options { sync: true, patience: PATIENCE, ..Options::new(self.addresses()) }
    }

    pub async fn session(&self) -> Session {
        Session::open(&self.session_options()).await.expect("a session opens")
    }

    /// The master's view of the cell, or any member's while there is none. `None`: nobody answers.
    pub async fn status(&self) -> Option<Status> {
        let options = Options { patience: Duration::from_secs(5), ..self.session_options() };
        Some(pfs::Cell::connect(&options).ok()?.status().await.ok()?.status)
    }

    /// Waits for a master that is not `other`.
    pub async fn master_but(&self, other: Option<usize>) -> usize {
        let other = other.map(|index| self.address(index));
        let address = until("there is a master", async || {
            self.status().await?.master.filter(|&master| Some(master) != other)
        })
        .await;
        self.index_of(address)
    }

    pub async fn master(&self) -> usize {
        self.master_but(None).await
    }

    /// Waits until there is a master and all replicas vote, each with the memory its process has now.
    pub async fn voting(&self) -> Status {
        until("every replica votes", async || self.if_voting().await).await
    }

    pub async fn if_voting(&self) -> Option<Status> {
        let status = self.status().await?;
        let votes = |replica: &pfs::ReplicaStatus| {
            replica.state == ReplicaState::Voting
                && replica.member.role == Role::Core
                && raw::incarnation(replica.member.address) == Some(replica.member.incarnation)
        };
        let all = status.replicas.len() == self.replicas.len() && status.replicas.iter().all(votes);
        (all && status.master.is_some()).then_some(status)
    }

    /// A command of the binary against this cell.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let members: Vec<String> = self.addresses().iter().map(SocketAddr::to_string).collect();
        let mut command = Command::new(KUMO);
        command.env("KUMO_CELL", members.join(",")).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end, which must have this status.
    pub fn kumo(&self, arguments: &[&str], status: i32) -> Output {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
        output
    }

    /// Everything a replica's processes logged so far.
    pub fn log(&self, index: usize) -> String {
        std::fs::read_to_string(self.log_path(index)).unwrap_or_default()
    }

    fn log_path(&self, index: usize) -> PathBuf {
        self.folder.join(format!("log-{index}"))
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        for replica in &mut self.replicas {
            if let Some(mut child) = replica.child.take() {
                // It may have ended by itself.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if std::thread::panicking() {
            for index in 0..self.replicas.len() {
                let log = self.log(index);
                let skipped = log.lines().count().saturating_sub(LOG_LINES_SHOWN);
                println!("--- log of {} ({skipped} lines before)", self.address(index));
                log.lines().skip(skipped).for_each(|line| println!("{line}"));
            }
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A child that a test does not wait for in the end is killed.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).expect("a child has a process id");
    kill_process(pid, signal).expect("a child that was not waited for can be signalled");
}

/// Waits for a child, which must end soon.
pub async fn ended(child: &mut Child) -> ExitStatus {
    until("the process ends", async || child.try_wait().unwrap()).await
}

/// Asks again until there is an answer.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let limit = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < limit, "in time: {what}");
        // Not to wait for anything: the processes we look at need the processor too.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The whole of a test, with an end.
pub async fn bounded(test: impl Future<Output = ()>) {
    tokio::time::timeout(TEST_TIME_MAX, test).await.expect("the test ends in time");
}

/// Addresses on a loopback address of this process's own. Nobody dials from there, so a port stays free while the
/// replica that listens on it is dead.
pub fn places(count: usize) -> Vec<Place> {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 + high % 64, middle, low);
    let held: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind((host, 0)).unwrap()).collect();
    let place =
        |listener: &TcpListener| Place { address: listener.local_addr().unwrap(), prefix: Vec::new() };
    held.iter().map(place).collect()
}

/// How long a condition may take to become true: far beyond what a busy machine needs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Twice what the longest test takes on a busy machine.
const TEST_TIME_MAX: Duration = Duration::from_secs(300);

/// Lines of each replica's log that a failing test shows.
const LOG_LINES_SHOWN: usize = 80;
