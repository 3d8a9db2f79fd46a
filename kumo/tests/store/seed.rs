//! The seed's own example: the command lines of 2.3.2 as they are printed, and a memcached client.

use crate::client::Client;
use crate::cluster::{Folder, KUMO, until};
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Seed 000, 2.3.2.
const LINES: [&str; 4] = [
    "kumo-manager -v -l localhost",
    "kumo-server -v -m localhost -l localhost:19801 -L 19901 -s database1.tch",
    "kumo-server -v -m localhost -l localhost:19802 -L 19902 -s database2.tch",
    "kumo-gateway -v -m localhost -t 11211",
];

/// The ports that these lines name, or leave to their defaults.
const PORTS: [u16; 7] = [19700, 19799, 19801, 19901, 19802, 19902, 11211];

#[test]
fn the_seeds_example_works_as_printed() {
    let taken = PORTS.iter().find(|&&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err());
    if let Some(port) = taken {
        println!("skipped: port {port}, which the seed's command lines name, is taken by another process");
        return;
    }
    let folder = Folder::new();
    let links = Command::new(KUMO).arg("links").arg(folder.path()).output().unwrap();
    assert!(links.status.success(), "{links:?}");
    let _running: Vec<Running> = LINES.iter().map(|line| Running::start(folder.path(), line)).collect();
    let free = "hash space timestamp:\n  # clock #\nattached node:\nnot attached node:\n  \
                127.0.0.1:19801\n  127.0.0.1:19802\n";
    until("kumoctl tells of both servers", || {
        let output = run(folder.path(), "kumoctl localhost stat");
        (output.status.success() && shape(&output) == free).then_some(())
    });
    let attach = run(folder.path(), "kumoctl localhost attach");
    assert!(attach.status.success(), "{attach:?}");
    let attached = "hash space timestamp:\n  # clock #\nattached node:\n  127.0.0.1:19801 (active)\n  \
                    127.0.0.1:19802 (active)\nnot attached node:\n";
    until("both are attached", || {
        let output = run(folder.path(), "kumoctl localhost stat");
        (output.status.success() && shape(&output) == attached).then_some(())
    });
    let mut client = until("the gateway is there", || Client::open((Ipv4Addr::LOCALHOST, 11211).into()));
    until("the gateway serves", || client.set("key", "value").ok());
    assert_eq!(client.get("key").unwrap().as_deref(), Some("value"));
    assert_eq!(client.ask("delete key\r\n").unwrap(), "DELETED");
    assert_eq!(client.get("key").unwrap(), None);
    assert!(folder.path().join("database1.tch").is_dir() && folder.path().join("database2.tch").is_dir());
    println!("seed 2.3.2: {} of 4 lines run as printed", LINES.len());
}

/// What `stat` prints, without its time.
fn shape(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if let Some((_, clock)) = lines.get(1).and_then(|line| line.split_once(" clock ")) {
        assert!(clock.parse::<u64>().is_ok(), "{text}");
        lines[1] = "  # clock #".to_owned();
    }
    lines.join("\n") + "\n"
}

fn command(folder: &Path, line: &str) -> Command {
    let mut words = line.split(' ');
    // By its symlink, as an installed one is.
    let mut command = Command::new(folder.join(words.next().expect("a program")));
    command.args(words).current_dir(folder);
    command
}

fn run(folder: &Path, line: &str) -> Output {
    command(folder, line).stdin(Stdio::null()).output().unwrap()
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn start(folder: &Path, line: &str) -> Running {
        let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
        let child =
            command(folder, line).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn();
        Running(child.unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
