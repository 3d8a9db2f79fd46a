//! Programs of the store in the background (`-d`): ready when their command ends, gone with all they had when told so.

use crate::client::Client;
use crate::cluster::{Cluster, Folder, KUMO, free_addresses, until, words};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

#[test]
fn a_daemon_is_ready_when_its_command_ends_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let manager = |address: SocketAddr, control: SocketAddr| {
        let (address, control) = (address.to_string(), control.port().to_string());
        words(&["manager", "--memory", "-l", &address, "-c", &control])
    };
    let [address, control] = [free_addresses(1)[0], free_addresses(1)[0]];
    let daemon = Daemon::new(folder.path(), "manager.pid", address, manager(address, control));
    daemon.start();

    // The pid file is one process's, whatever the ports.
    let [other, other_control] = [free_addresses(1)[0], free_addresses(1)[0]];
    let second = daemon.launch(&manager(other, other_control));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.lines().count() == 1 && said.contains("belongs to a running process"), "{said}");
    TcpStream::connect(address).expect("the first one is not disturbed");

    daemon.stop();
}

#[test]
fn a_server_and_a_gateway_serve_in_the_background() {
    let cluster = Cluster::start_detached(1, 0, &[]);
    let folder = cluster.folder.path();
    let manager = cluster.managers[0].address.to_string();
    let (listen, stream) = (free_addresses(1)[0], free_addresses(1)[0].port().to_string());
    let arguments = ["server", "-m", &manager, "-l", &listen.to_string(), "-L", &stream, "-s", "store"];
    let server = Daemon::new(folder, "server.pid", listen, words(&arguments));
    let listen = free_addresses(1)[0];
    let arguments = ["gateway", "-v", "-m", &manager, "-t", &listen.to_string(), "-o", "gateway.text"];
    let gateway = Daemon::new(folder, "gateway.pid", listen, words(&arguments));
    server.start();
    gateway.start();
    until("the server is known", || {
        (cluster.try_stat()?["not_attached"].as_array()?.len() == 1).then_some(())
    });
    cluster.attach();
    cluster.until_active(1);
    let mut client = Client::open(gateway.address).expect("the gateway listens");
    assert!(client.set("key", "value").unwrap());
    assert_eq!(client.get("key").unwrap().as_deref(), Some("value"));
    let log = std::fs::read_to_string(folder.join("gateway.text")).unwrap();
    assert!(log.contains("INFO") && !log.contains('\x1b'), "its log is the file's, without colours: {log}");
    gateway.stop();
    server.stop();
    assert!(folder.join("store").is_dir(), "its store stays");
}

/// A program in the background, which ends with this at the latest.
struct Daemon {
    folder: PathBuf,
    pid_file: PathBuf,
    address: SocketAddr,
    arguments: Vec<String>,
}

impl Daemon {
    fn new(folder: &Path, pid_file: &str, address: SocketAddr, arguments: Vec<String>) -> Daemon {
        Daemon { folder: folder.to_owned(), pid_file: folder.join(pid_file), address, arguments }
    }

    /// Its command ends, and it is there.
    fn start(&self) {
        let output = self.launch(&self.arguments);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(self.pid().is_some(), "its process id is in the file");
        TcpStream::connect(self.address).expect("it listens already");
    }

    fn launch(&self, arguments: &[String]) -> Output {
        let mut command = Command::new(KUMO);
        command.args(arguments).arg("-d").arg(&self.pid_file);
        command.current_dir(&self.folder).stdin(Stdio::null()).output().unwrap()
    }

    fn stop(&self) {
        kill_process(self.pid().expect("it runs"), Signal::TERM).unwrap();
        until("its pid file is removed", || (!self.pid_file.exists()).then_some(()));
        until("its port is free", || TcpStream::connect(self.address).is_err().then_some(()));
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(std::fs::read_to_string(&self.pid_file).ok()?.trim().parse().ok()?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
