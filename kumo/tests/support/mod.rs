//! Real cells and real commands for the tests of the binary.
#![allow(dead_code)] // Each test file uses its part.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// The binary under test.
pub const KUMO: &str = env!("CARGO_BIN_EXE_kumo");

/// A plain cell started by `kumo up`, ended when dropped.
pub struct Cell {
    up: Child,
    pub members: String,
    pub pids: Vec<u32>,
}

impl Cell {
    pub fn up() -> Cell {
        Cell::up_with(&[])
    }

    pub fn up_with(options: &[&str]) -> Cell {
        let mut up = Command::new(KUMO)
            .args(["up", "--servers", "0", "--format", "json"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(up.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).expect("kumo up says when the cell is ready");
        let replicas = ready["managers"].as_array().unwrap();
        let pids = replicas.iter().map(|replica| replica["pid"].as_u64().unwrap() as u32).collect();
        let members: Vec<&str> = replicas.iter().map(|one| one["address"].as_str().unwrap()).collect();
        Cell { up, members: members.join(","), pids }
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.split(',').map(|member| member.parse().unwrap()).collect()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(KUMO);
        command.env("KUMO_CELL", &self.members).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn kumo(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// As [`kumo`](Cell::kumo), with standard input.
    pub fn kumo_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Runs a command that must end with 0, and returns its output.
    pub fn done(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.kumo(arguments);
        assert_status(arguments, &output, 0);
        output.stdout
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.extend(["--format", "json"]);
        serde_json::from_slice(&self.done(&all)).expect("one line of JSON")
    }

    /// Runs a command that must end with this status and one line on standard error.
    pub fn fails(&self, arguments: &[&str], status: i32) -> String {
        let output = self.kumo(arguments);
        assert_status(arguments, &output, status);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        error
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        signal(self.up.id(), Signal::TERM);
        let _ = self.up.wait();
    }
}

pub fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

pub fn assert_status(arguments: &[&str], output: &Output, status: i32) {
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{arguments:?}\n{out}\n{error}");
}

/// The next line of a child's output; empty at its end.
pub fn next_line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Waits for a child, which must end soon.
pub fn ends(child: &mut Child) -> ExitStatus {
    eventually("the process ends", || child.try_wait().unwrap())
}

/// Asks again until there is an answer. The limit is far beyond what a busy machine needs.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "in time: {what}");
        // Not to wait for anything: the processes we look at need the processor too.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Whether a process is there and not only waiting to be reaped.
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(") ").next().unwrap_or_default().starts_with('Z')
}

/// Addresses on a loopback address of this process's own. Nobody dials from there, so a port stays free until who is
/// to listen on it does, and while it is dead.
pub fn free_addresses(count: usize) -> Vec<SocketAddr> {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 + high % 64, middle, low);
    let held: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind((host, 0)).unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

pub fn read_all(mut from: impl Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}
