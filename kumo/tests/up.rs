//! `kumo up`: a whole cluster of real processes, what it tells, what it leaves, and what happens when parts of it die.

#[allow(dead_code)] // The store's tests use the rest.
#[path = "store/client.rs"]
mod client;
mod support;

use client::Client;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use support::{KUMO, assert_status, ends, eventually, is_alive, next_line, signal};

/// A cluster of `kumo up`, with a temporary folder of its own.
struct Up {
    process: Child,
    said: BufReader<ChildStderr>,
    ready: Value,
}

impl Up {
    fn start(folder: &Folder, options: &[&str]) -> Up {
        Up::run(command(folder), options)
    }

    fn run(mut command: Command, options: &[&str]) -> Up {
        let mut process = command
            .args(["--format", "json"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap());
        let line = next_line(&mut BufReader::new(process.stdout.take().unwrap()));
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not ready: {}", rest(&mut said)));
        Up { process, said, ready }
    }

    fn pids(&self) -> Vec<u32> {
        let nodes =
            ["managers", "servers", "gateways"].map(|role| self.ready[role].as_array().unwrap().iter());
        nodes.into_iter().flatten().map(pid).collect()
    }

    fn text(&self, role: &str, index: usize, field: &str) -> &str {
        self.ready[role][index][field].as_str().unwrap()
    }

    fn client(&self) -> Client {
        Client::open(self.text("gateways", 0, "address").parse().unwrap()).unwrap()
    }

    /// Runs one of kumo's commands against it.
    fn kumo(&self, arguments: &[&str]) -> Output {
        let cell = self.text("managers", 0, "address");
        Command::new(KUMO).env("KUMO_CELL", cell).args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.kumo(arguments);
        assert_status(arguments, &output, 0);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends it as Ctrl-C does; it must end well, and nobody may be left.
    fn end(mut self) {
        signal(self.process.id(), Signal::INT);
        let status = ends(&mut self.process);
        assert!(status.success(), "{status}: {}", rest(&mut self.said));
        self.pids().into_iter().for_each(|pid| assert!(!is_alive(pid)));
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        signal(self.process.id(), Signal::TERM);
        let _ = self.process.wait();
    }
}

fn command(folder: &Folder) -> Command {
    let mut command = Command::new(KUMO);
    command.arg("up").current_dir(&folder.0).env("TMPDIR", &folder.0).stdin(Stdio::null());
    command
}

/// The first line that the first manager's page answers.
fn http(up: &Up, path: &str, header: &str) -> String {
    let address = up.text("managers", 0, "http");
    let mut browser = TcpStream::connect(address).unwrap();
    write!(browser, "GET {path} HTTP/1.0\r\nHost: {address}\r\n{header}\r\n").unwrap();
    next_line(&mut BufReader::new(browser))
}

fn pid(node: &Value) -> u32 {
    node["pid"].as_u64().unwrap() as u32
}

fn rest(said: &mut impl BufRead) -> String {
    let mut text = String::new();
    let _ = said.read_to_string(&mut text);
    text
}

/// A folder of a test's own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("kumo-up-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn assert_empty(&self) {
        let left: Vec<PathBuf> =
            std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The first of ports that are free and that no dial takes: below those that the kernel gives away.
fn base_port() -> u16 {
    let first = 20_000 + (std::process::id() % 200) as u16 * 40;
    let free = |base: &u16| (*base..*base + 40).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    (first..32_000).step_by(40).find(free).expect("forty free ports")
}

#[test]
fn one_cluster_gives_both_halves() {
    let folder = Folder::new("halves");
    let up = Up::start(&folder, &[]);
    for (role, count) in [("managers", 3), ("servers", 3), ("gateways", 1)] {
        let nodes = up.ready[role].as_array().unwrap();
        assert_eq!(nodes.len(), count);
        let is_there =
            |node: &Value| node["address"].is_string() && node["http"].is_string() && is_alive(pid(node));
        assert!(nodes.iter().all(is_there), "{nodes:?}");
    }
    assert_eq!(up.ready["dashboard"], format!("http://{}/", up.text("managers", 0, "http")));
    assert!(http(&up, "/health", "").ends_with("200 OK"));
    let mut client = up.client();
    assert!(client.set("greeting", "hello").unwrap());
    assert_eq!(client.get("greeting").unwrap().as_deref(), Some("hello"));

    up.done(&["fs", "mkdir", "/dir"]);
    assert!(up.done(&["fs", "ls", "/"]).contains("dir"));
    assert_eq!(up.done(&["lock", "demo", "--", "echo", "mine"]), "mine\n");
    up.done(&["queue", "post", "jobs", "resize 7"]);
    assert_eq!(up.done(&["queue", "wait", "jobs"]).trim_end(), "resize 7");
    assert_eq!(up.done(&["cell", "status"]).matches("voting").count(), 3);
    for manager in up.ready["managers"].as_array().unwrap() {
        let stat = up.done(&["ctl", manager["control"].as_str().unwrap(), "stat"]);
        assert_eq!(stat.matches("(active)").count(), 3, "{stat}");
    }
    up.end();
    folder.assert_empty();
}

#[test]
fn two_managers_are_ready_when_either_may_be_lost_with_a_server() {
    let folder = Folder::new("pair");
    let up = Up::start(&folder, &["--managers", "2"]);
    assert_eq!(up.done(&["cell", "status"]).matches("voting").count(), 5);
    let mut client = up.client();
    assert!(client.set("greeting", "hello").unwrap());
    signal(pid(&up.ready["managers"][1]), Signal::KILL);
    signal(pid(&up.ready["servers"][0]), Signal::KILL);
    up.done(&["fs", "mkdir", "/dir"]);
    assert_eq!(client.get("greeting").unwrap().as_deref(), Some("hello"));
    up.end();
    folder.assert_empty();
}

#[test]
fn the_token_of_its_environment_is_what_the_dashboard_asks_for() {
    let folder = Folder::new("token");
    let mut with_token = command(&folder);
    // The other one is for others: nobody could start with it.
    with_token.env("KUMO_HTTP_TOKEN", "open-sesame").env("KUMO_CELL_LISTEN", "nowhere at all");
    let up = Up::run(with_token, &["--servers", "0", "--managers", "1"]);
    assert!(http(&up, "/health", "").ends_with("200 OK"));
    assert!(http(&up, "/v1/cluster", "").contains(" 401 "));
    assert!(http(&up, "/v1/cluster", "Authorization: Bearer open-sesame\r\n").ends_with("200 OK"));
    up.end();
    let output = command(&folder).env("KUMO_HTTP_TOKEN", "short").args(["--", "true"]).output().unwrap();
    assert_status(&["up"], &output, 1);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("KUMO_HTTP_TOKEN") && error.lines().count() == 1, "{error}");
}

#[test]
fn sessions_live_as_long_as_it_was_told() {
    let folder = Folder::new("sessions");
    for (servers, gateways) in [("0", "0"), ("1", "0")] {
        let counts = ["--servers", servers, "--gateways", gateways, "--managers", "1"];
        let up = Up::run(command(&folder), &[&counts[..], &["--session-timeout", "2.5"]].concat());
        let address = up.text("managers", 0, "http");
        let told = eventually("the page knows the cell", || {
            let mut browser = TcpStream::connect(address).unwrap();
            write!(browser, "GET /v1/cluster HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
            let answer = rest(&mut BufReader::new(browser));
            let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
            body["cell"]["session_timeout_ms"].as_u64()
        });
        assert_eq!(told, 2500);
        up.end();
    }
}

#[test]
fn a_command_finds_it_and_its_status_is_passed() {
    let folder = Folder::new("command");
    let small = ["--servers", "1", "--managers", "1", "--gateways", "2"];
    let run =
        |script: &str| command(&folder).args(small).args(["--", "sh", "-c", script, KUMO]).output().unwrap();
    let script = r#"echo "$KUMO_GATEWAY"; echo "$MEMCACHED_SERVERS"; echo hi | "$0" fs put /x && "$0" fs cat /x; exit 7"#;
    let output = run(script);
    assert_status(&["up"], &output, 7);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (3, lines[1], "hi"), "{text}");
    assert_eq!(lines[0].split(',').filter(|gateway| gateway.contains(':')).count(), 2);
    assert_status(&["up"], &run("kill -TERM $$"), 128 + 15);
    assert_status(&["up"], &run("exit 0"), 0);
    let output = command(&folder).args(small).args(["--", "./no-such-command"]).output().unwrap();
    assert_status(&["up"], &output, 127);
    folder.assert_empty();
}

#[test]
fn a_killed_server_is_named_and_its_values_are_read_again() {
    let folder = Folder::new("kill");
    let mut up = Up::start(&folder, &[]);
    let keys: Vec<String> = (0..50).map(|key| format!("key-{key}")).collect();
    let mut client = up.client();
    keys.iter().for_each(|key| assert!(client.set(key, "kept").unwrap()));
    let victim = &up.ready["servers"][1];
    signal(pid(victim), Signal::KILL);
    let line = next_line(&mut up.said);
    assert!(line.contains(victim["address"].as_str().unwrap()), "{line}");
    assert!(line.contains(&pid(victim).to_string()) && line.contains("SIGKILL"), "{line}");
    for key in &keys {
        assert_eq!(client.get(key).unwrap().as_deref(), Some("kept"), "{key}");
    }
    up.end();
    folder.assert_empty();
}

#[test]
fn killed_itself_it_leaves_no_process_and_no_file() {
    let folder = Folder::new("orphans");
    let mut up = Up::start(&folder, &[]);
    signal(up.process.id(), Signal::KILL);
    up.process.wait().unwrap();
    for pid in up.pids() {
        eventually("the process ends", || (!is_alive(pid)).then_some(()));
    }
    folder.assert_empty();
}

#[test]
fn a_folder_keeps_everything_and_is_attached_again() {
    let folder = Folder::new("data");
    let base = base_port().to_string();
    let options = ["--data", "cluster", "--base-port", &base];
    let up = Up::start(&folder, &options);
    assert!(up.client().set("kept", "still").unwrap());
    up.done(&["fs", "mkdir", "/kept"]);
    assert!(Path::new(&folder.0).join(up.text("servers", 0, "log")).exists());
    // One of them is lost in this run: the next one brings it back.
    let victim = up.ready["servers"][2].clone();
    signal(pid(&victim), Signal::KILL);
    let control = up.text("managers", 0, "control").to_owned();
    eventually("it is fault", || up.done(&["ctl", &control, "stat"]).contains("(fault)").then_some(()));
    up.end();

    for (option, value) in
        [("--servers", "4"), ("--managers", "1"), ("--gateways", "2"), ("--base-port", "1")]
    {
        let output =
            command(&folder).args(["--data", "cluster", option, value, "--", "true"]).output().unwrap();
        assert_status(&[option], &output, 1);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("--servers 3") && error.lines().count() == 1, "{error}");
    }
    let up = Up::start(&folder, &["--data", "cluster"]);
    assert_eq!(up.client().get("kept").unwrap().as_deref(), Some("still"));
    assert!(up.done(&["fs", "ls", "/"]).contains("kept"));
    assert_eq!(up.done(&["ctl", &control, "stat"]).matches("(active)").count(), 3);
    assert_eq!(up.text("servers", 2, "address"), victim["address"].as_str().unwrap());
    // The folder is in use.
    let output = command(&folder).args(["--data", "cluster", "--", "true"]).output().unwrap();
    assert_status(&["up"], &output, 1);
    up.end();

    std::fs::write(folder.0.join("cluster/cluster"), "king 1\n").unwrap();
    let output = command(&folder).args(["--data", "cluster", "--", "true"]).output().unwrap();
    assert_status(&["up"], &output, 1);
}

#[test]
fn a_taken_port_is_told_or_another_one_is_taken() {
    let folder = Folder::new("ports");
    let base = base_port();
    let held = TcpListener::bind(("127.0.0.1", base + 3)).unwrap();
    let output = command(&folder).args(["--base-port", &base.to_string(), "--", "true"]).output().unwrap();
    assert_status(&["up"], &output, 1);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(&format!("port {} is taken", base + 3)) && error.lines().count() == 1, "{error}");
    drop(held);
    // Two at a time: only one can have the usual ports.
    let small = ["--servers", "1", "--managers", "1"];
    let ups = [Up::start(&folder, &small), Up::start(&folder, &small)];
    for (number, up) in ups.iter().enumerate() {
        assert!(up.client().set("whose", &number.to_string()).unwrap());
    }
    for (number, up) in ups.iter().enumerate() {
        assert_eq!(up.client().get("whose").unwrap(), Some(number.to_string()));
    }
    ups.into_iter().for_each(Up::end);
    folder.assert_empty();
}

/// What is left of the earlier one dials addresses that are free again.
#[test]
fn a_cluster_starts_beside_one_that_is_half_dead() {
    let folder = Folder::new("half");
    for lost in [&["managers", "servers"][..], &["managers"], &["servers", "gateways"]] {
        let before = Up::start(&folder, &["--servers", "4"]);
        for role in lost {
            let nodes = before.ready[role].as_array().unwrap();
            nodes[..nodes.len().div_ceil(2)].iter().for_each(|node| signal(pid(node), Signal::KILL));
        }
        let mut up = Up::start(&folder, &[]);
        assert!(up.client().set("whose", "mine").unwrap());
        signal(up.process.id(), Signal::INT);
        assert!(ends(&mut up.process).success());
        assert_eq!(rest(&mut up.said), "", "nothing was waited for");
    }
}

#[test]
fn what_cannot_be_is_a_usage_error() {
    let folder = Folder::new("usage");
    for options in [
        &["--servers", "0", "--gateways", "1"][..],
        &["--managers", "0"],
        &["--managers", "8"],
        &["--servers", "65"],
        &["--base-port", "65530"],
        &["--base-port", "0"],
        &["--session-timeout", "0.5"],
    ] {
        let output = command(&folder).args(options).args(["--", "true"]).output().unwrap();
        assert_status(options, &output, 2);
    }
    folder.assert_empty();
}
