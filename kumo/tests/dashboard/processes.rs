//! Real processes under the page: [`Up`], a cluster; [`Server`], one more of it; [`Manager`], one that asks for a token.

use crate::client::Client;
use crate::support::{KUMO, assert_status, eventually, free_addresses, signal};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A cluster of `kumo up`, ended when dropped.
pub struct Up {
    process: Child,
    pub ready: Value,
    pub folder: PathBuf,
}

impl Up {
    pub fn start() -> Up {
        let folder = folder("up");
        let mut process = Command::new(KUMO)
            .args(["up", "--format", "json"])
            .env("TMPDIR", &folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).expect("kumo up says when the cluster is ready");
        Up { process, ready, folder }
    }

    pub fn dashboard(&self) -> &str {
        self.ready["dashboard"].as_str().expect("there is a dashboard")
    }

    pub fn manager(&self, index: usize) -> &str {
        self.ready["managers"][index]["address"].as_str().unwrap()
    }

    /// The page of one of the managers.
    pub fn page(&self, index: usize) -> String {
        format!("http://{}/", self.ready["managers"][index]["http"].as_str().unwrap())
    }

    pub fn pid(&self, role: &str, index: usize) -> u32 {
        self.ready[role][index]["pid"].as_u64().unwrap() as u32
    }

    pub fn kumo(&self, arguments: &[&str]) {
        assert_status(arguments, &self.try_kumo(arguments), 0);
    }

    pub fn try_kumo(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(KUMO);
        command.env("KUMO_CELL", self.manager(0)).args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Something to move.
    pub fn store(&self) {
        let gateway = self.ready["gateways"][0]["address"].as_str().unwrap().parse().unwrap();
        Client::open(gateway).expect("the gateway listens").fill(3_000, 20_000);
    }

    pub fn add_server(&self) -> Server {
        let [address, stream] = free_addresses(2)[..] else { panic!("two addresses") };
        let (listen, stream) = (address.to_string(), stream.port().to_string());
        let store = self.folder.join("store");
        let process = Command::new(KUMO)
            .args(["server", "-l", &listen, "-L", &stream, "-m", self.manager(0), "-p", self.manager(1)])
            .args(["--http", "off", "--exit-on-stdin-eof", "-s"])
            .arg(store)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Server { process, address: listen }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        signal(self.process.id(), Signal::TERM);
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// One more server, ended when dropped.
pub struct Server {
    process: Child,
    pub address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A manager without servers, whose dashboard asks for a token. Ended when dropped.
pub struct Manager {
    process: Child,
    pub dashboard: String,
    folder: PathBuf,
}

impl Manager {
    pub fn start(token: &str) -> Manager {
        let folder = folder("manager");
        std::fs::write(folder.join("token"), token).unwrap();
        let [listen, control, http] = free_addresses(3)[..] else { panic!("three addresses") };
        let process = Command::new(KUMO)
            .args(["manager", "-l", &listen.to_string(), "-c", &control.port().to_string(), "--data", "data"])
            .args(["--http", &http.to_string(), "--http-token", "token", "--exit-on-stdin-eof"])
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("it serves the page", || TcpStream::connect(http).ok());
        Manager { process, dashboard: format!("http://{http}/"), folder }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A folder of a test's own; the one who asked for it removes it.
fn folder(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("dashboard-{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
