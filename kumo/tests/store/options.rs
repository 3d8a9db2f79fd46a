//! Options of the store's programs that no other test needs.

use crate::client::Client;
use crate::cluster::{Cluster, Folder, KUMO, free_addresses, strings, until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

#[test]
fn a_daemon_is_ready_when_its_command_ends_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let daemon = Daemon { pid_file: folder.path().join("manager.pid") };
    let [address, control] = [free_addresses(1)[0], free_addresses(1)[0]];
    let output = daemon.start(address, control);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(daemon.pid().is_some(), "its process id is in the file");
    TcpStream::connect(address).expect("it listens already");

    // The pid file is one process's, whatever the ports.
    let [other, other_control] = [free_addresses(1)[0], free_addresses(1)[0]];
    let second = daemon.start(other, other_control);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.lines().count() == 1 && said.contains("belongs to a running process"), "{said}");
    TcpStream::connect(address).expect("the first one is not disturbed");

    kill_process(daemon.pid().expect("it runs"), Signal::TERM).unwrap();
    until("its pid file is removed", || (!daemon.pid_file.exists()).then_some(()));
    until("its port is free", || TcpStream::connect(address).is_err().then_some(()));
}

#[test]
fn a_gateway_has_a_port_for_binary_clients_and_a_limit_for_values() {
    let cluster = Cluster::start(1, 1, &[]);
    let binary = free_addresses(1)[0];
    let gateway = cluster.second_gateway(&["-b", &binary.to_string(), "--max-value", "100"]);

    let mut client = Client::open(gateway.address).unwrap();
    assert!(client.set("fits", &"v".repeat(100)).unwrap());
    let error = client.set("fits", &"v".repeat(101)).unwrap_err().to_string();
    assert_eq!(error, "SERVER_ERROR object too large for cache");
    assert_eq!(client.get("fits").unwrap(), Some("v".repeat(100)), "a refused request changes nothing");

    let mut stream = TcpStream::connect(binary).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut noop = [0u8; 24];
    (noop[0], noop[1]) = (0x80, 0x0a);
    stream.write_all(&noop).unwrap();
    let mut answer = [0; 24];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((answer[0], answer[1], &answer[6..8]), (0x81, 0x0a, &[0, 0][..]));
}

#[test]
fn with_min_copies_a_lone_server_reads_and_does_not_write() {
    let mut cluster = Cluster::start_detached(1, 0, &["--spread-reads"]);
    (0..3).for_each(|_| cluster.add_server_with(&["--min-copies", "2", "--sync", "always"]));
    until("the servers are known", || {
        (strings(&cluster.try_stat()?["not_attached"]).len() == 3).then_some(())
    });
    cluster.attach();
    cluster.until_active(3);
    cluster.until_served();

    let mut client = Client::open(cluster.gateway.address).unwrap();
    let keys: Vec<String> = (0..100).map(|number| format!("key-{number}")).collect();
    for key in &keys {
        assert!(client.set(key, "before").unwrap());
        assert_eq!(client.get(key).unwrap().as_deref(), Some("before"), "any copy shows what was answered");
    }
    cluster.servers[0].kill();
    cluster.until_fault(0);
    assert!(client.set(&keys[0], "two copies").unwrap(), "two are enough");
    cluster.servers[1].kill();
    cluster.until_fault(1);
    for key in &keys {
        let error = client.set(key, "after").unwrap_err().to_string();
        assert!(error.starts_with("SERVER_ERROR") && error.contains("--min-copies"), "{error}");
    }
    assert_eq!(client.get(&keys[0]).unwrap().as_deref(), Some("two copies"));
    for key in &keys[1..] {
        assert_eq!(client.get(key).unwrap().as_deref(), Some("before"), "a refused write changes nothing");
    }
}

#[test]
fn with_auto_replace_servers_come_and_go_without_an_order() {
    let mut cluster = Cluster::start(1, 3, &[]);
    let mut client = Client::open(cluster.gateway.address).unwrap();
    client.fill(500, 100);
    cluster.order(&["enable-auto-replace"]);
    cluster.add_server();
    cluster.until_active(4);
    cluster.until_settled();
    cluster.servers[0].kill();
    // The one that is lost leaves, and what it had is on three others again.
    cluster.until_active(3);
    cluster.until_settled();
    cluster.servers[1].kill();
    cluster.servers[2].kill();
    let values = (0..500).filter(|number| client.get(&format!("fill-{number}")).unwrap().is_some()).count();
    assert_eq!(values, 500, "a third copy of everything is left");
}

/// A manager in the background, which ends with this at the latest.
struct Daemon {
    pid_file: PathBuf,
}

impl Daemon {
    fn start(&self, address: SocketAddr, control: SocketAddr) -> Output {
        Command::new(KUMO)
            .args([
                "manager",
                "--memory",
                "-l",
                &address.to_string(),
                "-c",
                &control.port().to_string(),
                "-d",
            ])
            .arg(&self.pid_file)
            .stdin(Stdio::null())
            .output()
            .unwrap()
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
