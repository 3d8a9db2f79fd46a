//! [`Cluster`]: managers, servers and a gateway as processes of their own, which a test may kill, stop and start again.

use crate::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The binary under test.
pub const KUMO: &str = env!("CARGO_BIN_EXE_kumo");

/// A store of real processes. None of them outlives it, and their logs are shown when the test fails.
pub struct Cluster {
    pub folder: Folder,
    pub managers: Vec<Node>,
    pub servers: Vec<Node>,
    pub gateway: Node,
    /// Where the managers listen for kumoctl.
    pub controls: Vec<SocketAddr>,
}

/// One process, or the place where it runs.
pub struct Node {
    pub name: String,
    pub address: SocketAddr,
    arguments: Vec<String>,
    /// What runs it elsewhere, as in a network namespace.
    prefix: Vec<String>,
    folder: PathBuf,
    child: Option<Child>,
}

impl Cluster {
    /// So many managers, and so many servers, attached; `options` are the gateway's.
    pub fn start(managers: usize, servers: usize, options: &[&str]) -> Cluster {
        let cluster = Cluster::start_detached(managers, servers, options);
        cluster.attach();
        cluster.until_active(servers);
        cluster.until_served();
        cluster
    }

    /// As [`start`](Cluster::start), with managers that keep nothing on disk.
    pub fn start_forgetful(managers: usize, servers: usize) -> Cluster {
        let cluster = Cluster::launch(managers, servers, &[], true);
        cluster.attach();
        cluster.until_active(servers);
        cluster.until_served();
        cluster
    }

    /// As [`start`](Cluster::start), with nobody attached.
    pub fn start_detached(managers: usize, servers: usize, options: &[&str]) -> Cluster {
        Cluster::launch(managers, servers, options, false)
    }

    fn launch(managers: usize, servers: usize, options: &[&str], forgetful: bool) -> Cluster {
        let folder = Folder::new();
        let (addresses, controls) = (free_addresses(managers), free_addresses(managers));
        let mut nodes = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let mut arguments = words(&["manager", "-v", "-l", &address.to_string()]);
            for partner in addresses.iter().filter(|partner| *partner != address) {
                arguments.extend(words(&["-p", &partner.to_string()]));
            }
            arguments.extend(words(&["-c", &controls[index].port().to_string()]));
            match forgetful {
                true => arguments.push("--memory".to_owned()),
                false => arguments.extend(["--data".to_owned(), format!("manager-{index}")]),
            }
            nodes.push(Node::new(&folder, format!("manager {index}"), *address, arguments));
        }
        let gateway = free_addresses(1)[0];
        let mut arguments = words(&["gateway", "-v", "-t", &gateway.to_string()]);
        arguments.extend(named(&addresses));
        arguments.extend(words(options));
        let gateway = Node::new(&folder, "gateway".to_owned(), gateway, arguments);
        let mut cluster = Cluster { folder, managers: nodes, servers: Vec::new(), gateway, controls };
        cluster.managers.iter_mut().for_each(Node::run);
        (0..servers).for_each(|_| cluster.add_server());
        cluster.gateway.run();
        until("the servers are known to the managers", || {
            (strings(&cluster.try_stat()?["not_attached"]).len() == servers).then_some(())
        });
        cluster
    }

    /// Starts one more server.
    pub fn add_server(&mut self) {
        self.add_server_with(&[]);
    }

    pub fn add_server_with(&mut self, options: &[&str]) {
        self.add_server_at(&format!("store-{}", self.servers.len()), options);
    }

    /// With a store of that name.
    pub fn add_server_at(&mut self, store: &str, options: &[&str]) {
        let index = self.servers.len();
        let (address, stream) = (free_addresses(1)[0], free_addresses(1)[0].port().to_string());
        let mut arguments = words(&["server", "-v", "-l", &address.to_string(), "-L", &stream, "-s", store]);
        let managers: Vec<SocketAddr> = self.managers.iter().map(|manager| manager.address).collect();
        arguments.extend(named(&managers));
        arguments.extend(words(options));
        let mut server = Node::new(&self.folder, format!("server {index}"), address, arguments);
        server.run();
        self.servers.push(server);
    }

    /// One more gateway, with options of its own, that serves.
    pub fn second_gateway(&self, options: &[&str]) -> Node {
        let gateway = self.add_gateway(options);
        gateway.until_served();
        gateway
    }

    /// The same, whether it can serve or not.
    pub fn add_gateway(&self, options: &[&str]) -> Node {
        let address = free_addresses(1)[0];
        let mut arguments = words(&["gateway", "-v", "-t", &address.to_string()]);
        let managers: Vec<SocketAddr> = self.managers.iter().map(|manager| manager.address).collect();
        arguments.extend(named(&managers));
        arguments.extend(words(options));
        let mut gateway = Node::new(&self.folder, format!("gateway {}", address.port()), address, arguments);
        gateway.run();
        gateway
    }

    /// `kumoctl` at the first manager whose process runs.
    pub fn kumoctl(&self, arguments: &[&str]) -> Output {
        let running = self.managers.iter().position(Node::is_running).expect("a manager runs");
        let control = self.controls[running].to_string();
        Command::new(KUMO).arg("ctl").arg(control).args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// An order that must be obeyed. One for which there is no master yet is given again.
    pub fn order(&self, arguments: &[&str]) {
        until(&format!("kumoctl {arguments:?}"), || {
            let output = self.kumoctl(arguments);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.code() {
                Some(0) => Some(()),
                // Unreachable, or without a master: as long as an election takes.
                Some(4 | 5) => None,
                status => panic!("kumoctl {arguments:?} ended with {status:?}: {error}"),
            }
        });
    }

    /// Attaches all that are there, and waits until the data is where it belongs.
    pub fn attach(&self) {
        self.order(&["attach"]);
        self.until_settled();
    }

    pub fn try_stat(&self) -> Option<Value> {
        let output = self.kumoctl(&["stat", "--format", "json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("one line of JSON"))
    }

    /// What `stat` says of a server that is attached.
    pub fn state(&self, server: usize) -> Option<String> {
        let address = self.servers[server].address.to_string();
        let stat = self.try_stat()?;
        let attached = stat["attached"].as_array().expect("a list");
        let found = attached.iter().find(|one| one["address"] == address.as_str())?;
        found["state"].as_str().map(str::to_owned)
    }

    pub fn until_fault(&self, server: usize) {
        until("the server is declared fault", || (self.state(server)? == "fault").then_some(()));
    }

    /// No replace is under way.
    pub fn until_settled(&self) {
        until("the replace has ended", || {
            let stat = self.try_stat()?;
            let attached = stat["attached"].as_array().expect("a list");
            let still = attached.iter().all(|one| one["moving"].is_null());
            (stat["job"].is_null() && still).then_some(())
        });
    }

    /// Exactly so many servers are attached, all of them active.
    pub fn until_active(&self, count: usize) {
        until(&format!("{count} servers are active"), || {
            let stat = self.try_stat()?;
            let attached = stat["attached"].as_array().expect("a list");
            let active = attached.iter().filter(|one| one["state"] == "active").count();
            (active == count && attached.len() == count).then_some(())
        });
    }

    /// The gateway answers requests.
    pub fn until_served(&self) {
        self.gateway.until_served();
    }

    /// The manager that leads.
    pub fn master(&self) -> usize {
        until("there is a master", || {
            let stat = self.try_stat()?;
            let master = stat["master"].as_str()?.parse::<SocketAddr>().ok()?;
            self.managers.iter().position(|manager| manager.address == master)
        })
    }

    pub fn nodes(&mut self) -> impl Iterator<Item = &mut Node> {
        self.managers.iter_mut().chain(&mut self.servers).chain([&mut self.gateway])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        for node in self.nodes() {
            node.end();
            if failed {
                node.show_log();
            }
        }
    }
}

impl Node {
    pub fn new(folder: &Folder, name: String, address: SocketAddr, arguments: Vec<String>) -> Node {
        Node::at(folder.path().to_owned(), name, address, arguments, Vec::new())
    }

    pub fn at(
        folder: PathBuf,
        name: String,
        address: SocketAddr,
        arguments: Vec<String>,
        prefix: Vec<String>,
    ) -> Node {
        Node { name, address, arguments, prefix, folder, child: None }
    }

    /// With further options from its next start on.
    pub fn add_options(&mut self, options: &[&str]) {
        self.arguments.extend(words(options));
    }

    /// Starts a process where none runs. It ends with this one, whatever happens: its standard input is ours.
    pub fn run(&mut self) {
        assert!(self.child.is_none(), "one process at a time");
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let words: Vec<&str> = self.prefix.iter().map(String::as_str).chain([KUMO]).collect();
        let child = Command::new(words[0])
            .args(&words[1..])
            .args(&self.arguments)
            .arg("--exit-on-stdin-eof")
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.child = Some(child.unwrap());
    }

    /// It is a gateway, and stores.
    pub fn until_served(&self) {
        until("the gateway serves", || Client::open(self.address)?.set("served", "yes").ok()?.then_some(()));
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a child has a process id");
        kill_process(pid, signal).expect("a child that was not waited for can be signalled");
    }

    /// kill -9, and not there any more afterwards.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.take().expect("it runs").wait().unwrap();
    }

    /// Waits for its own end; its exit status.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.take().expect("it runs").wait().unwrap().code()
    }

    pub fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Resident memory.
    pub fn memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Everything its processes said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name.replace(' ', "-")))
    }

    pub fn show_log(&self) {
        let log = self.log();
        let skipped = log.lines().count().saturating_sub(LOG_LINES_SHOWN);
        println!("--- log of {} at {} ({skipped} lines before)", self.name, self.address);
        log.lines().skip(skipped).for_each(|line| println!("{line}"));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}

/// A folder of a test's own, removed with it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kumo-store-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Asks again until there is an answer. The limit is far beyond what a busy machine needs.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let limit = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < limit, "in time: {what}");
        // Not to wait for anything: the processes we look at need the processor too.
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Addresses on a loopback address of this process's own. Nobody dials from there, so a port stays free while the
/// process that listens on it is dead.
pub fn free_addresses(count: usize) -> Vec<SocketAddr> {
    // The kernel may give a port again that whoever got it has not bound yet.
    static GIVEN: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 + high % 64, middle, low);
    let mut given = GIVEN.lock().unwrap();
    let draw = || TcpListener::bind((host, 0)).unwrap().local_addr().unwrap();
    let fresh = std::iter::repeat_with(draw).filter(|&address| given.insert(address));
    fresh.take(count).collect()
}

pub fn strings(list: &Value) -> Vec<String> {
    list.as_array().expect("a list").iter().map(|one| one.as_str().expect("text").to_owned()).collect()
}

pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The options that name managers: `-m` for the first, `-p` for the others.
pub fn named(managers: &[SocketAddr]) -> Vec<String> {
    let options = ["-m"].into_iter().chain(std::iter::repeat("-p"));
    options.zip(managers).flat_map(|(option, manager)| [option.to_owned(), manager.to_string()]).collect()
}

/// How long a condition may take to become true.
const PATIENCE: Duration = Duration::from_secs(90);

/// Lines of each log that a failing test shows.
const LOG_LINES_SHOWN: usize = 60;
