//! Seed 2.3.1: two managers and four servers. Voters are recruited from the servers, so that either manager may die, and a
//! server with it, and the rest goes on deciding.

use crate::client::Client;
use crate::cluster::{Folder, KUMO, Node, until, words};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

/// Seed 000, 2.3.1: where each line is typed, and the line.
const LINES: [(&str, &str); 8] = [
    ("s1", "kumo-manager -v -l s1 -p s2"),
    ("s2", "kumo-manager -v -l s2 -p s1"),
    ("s1", "kumo-server -v -m s1 -p s2 -l s1 -s database.tch"),
    ("s2", "kumo-server -v -m s1 -p s2 -l s2 -s database.tch"),
    ("s3", "kumo-server -v -m s1 -p s2 -l s3 -s database.tch"),
    ("s4", "kumo-server -v -m s1 -p s2 -l s4 -s database.tch"),
    ("c1", "kumo-gateway -v -m s1 -p s2 -t 11211"),
    ("c2", "kumo-gateway -v -m s1 -p s2 -t 11211"),
];

const HOSTS: [&str; 6] = ["s1", "s2", "s3", "s4", "c1", "c2"];

/// The seed's cluster, each host at an address of its own and with a folder of its own.
pub struct Pair {
    folder: Folder,
    pub managers: Vec<Node>,
    pub servers: Vec<Node>,
    pub gateways: Vec<Node>,
}

impl Pair {
    pub fn start(hosts: &[(Ipv4Addr, Vec<String>)], manager_options: &[&str]) -> Pair {
        let folder = Folder::new();
        let mut pair = Pair { folder, managers: Vec::new(), servers: Vec::new(), gateways: Vec::new() };
        for (index, (host, line)) in LINES.iter().enumerate() {
            let place = HOSTS.iter().position(|name| name == host).expect("a host of the seed");
            let (ip, prefix) = &hosts[place];
            let here = pair.folder.path().join(host);
            std::fs::create_dir_all(&here).unwrap();
            let named = |word: &str| match HOSTS.iter().position(|name| *name == word) {
                Some(place) => hosts[place].0.to_string(),
                // A gateway listens on its own host.
                None if word == "11211" => format!("{ip}:11211"),
                None => word.trim_start_matches("kumo-").to_owned(),
            };
            let mut arguments: Vec<String> = line.split(' ').map(named).collect();
            let (nodes, port) = match &arguments[0][..] {
                "manager" => (&mut pair.managers, 19700),
                "server" => (&mut pair.servers, 19800),
                _gateway => (&mut pair.gateways, 11211),
            };
            if port == 19700 {
                arguments.extend(words(manager_options));
            }
            let name = format!("line {} {host} {}", index + 1, arguments[0]);
            nodes.push(Node::at(here, name, (*ip, port).into(), arguments, prefix.clone()));
        }
        // Lines of different hosts are typed in any order: these servers must not be chosen among before they are there.
        pair.managers.iter_mut().chain(&mut pair.servers[2..]).for_each(Node::run);
        pair.until_known(2);
        pair.servers[..2].iter_mut().chain(&mut pair.gateways).for_each(Node::run);
        pair
    }

    /// Attached, with all voters.
    pub fn start_whole(hosts: &[(Ipv4Addr, Vec<String>)], manager_options: &[&str]) -> Pair {
        let pair = Pair::start(hosts, manager_options);
        pair.until_known(4);
        pair.attach();
        pair.until_voting(5);
        pair
    }

    pub fn nodes(&mut self) -> impl Iterator<Item = &mut Node> {
        self.managers.iter_mut().chain(&mut self.servers).chain(&mut self.gateways)
    }

    /// `kumoctl s1 ...`, or s2.
    pub fn kumoctl(&self, manager: usize, arguments: &[&str]) -> Output {
        let host = self.managers[manager].address.ip().to_string();
        Command::new(KUMO).arg("ctl").arg(host).args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    pub fn stat_at(&self, manager: usize) -> Option<Value> {
        let output = self.kumoctl(manager, &["stat", "--format", "json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("one line of JSON"))
    }

    pub fn try_stat(&self) -> Option<Value> {
        let running = self.managers.iter().position(Node::is_running)?;
        self.stat_at(running)
    }

    /// What `stat --verbose` prints.
    fn verbose(&self) -> Option<String> {
        let running = self.managers.iter().position(Node::is_running)?;
        let output = self.kumoctl(running, &["stat", "--verbose"]);
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// Attaches until all four are active: one that comes back a moment later than the others needs another word.
    pub fn attach(&self) {
        until("four servers are active", || {
            let stat = self.try_stat()?;
            let active = stat["attached"].as_array()?.iter().filter(|one| one["state"] == "active").count();
            if active == 4 && stat["job"].is_null() {
                return Some(());
            }
            let running = self.managers.iter().position(Node::is_running)?;
            let _ = self.kumoctl(running, &["attach"]);
            None
        });
    }

    fn until_known(&self, servers: usize) {
        until("the servers are known", || {
            (self.try_stat()?["not_attached"].as_array()?.len() == servers).then_some(())
        });
    }

    pub fn until_fault(&self, server: usize) {
        let address = self.servers[server].address.to_string();
        until("the server is declared fault", || {
            let stat = self.try_stat()?;
            let here = |one: &&Value| one["address"] == address.as_str();
            (stat["attached"].as_array()?.iter().find(here)?["state"] == "fault").then_some(())
        });
    }

    /// So many voters, all of them voting.
    pub fn until_voting(&self, count: usize) {
        until(&format!("{count} voters vote"), || {
            let stat = self.try_stat()?;
            let voters = stat["voters"].as_array()?;
            (voters.len() == count && voters.iter().all(|one| one["state"] == "voting")).then_some(())
        });
    }

    /// Hosts whose servers vote.
    pub fn recruited(&self) -> Vec<usize> {
        let stat = until("the managers answer", || self.try_stat());
        let voters = stat["voters"].as_array().expect("a list").clone();
        let is =
            |server: &Node| voters.iter().any(|one| one["server"] == server.address.to_string().as_str());
        (0..4).filter(|&server| is(&self.servers[server])).collect()
    }
}

impl Drop for Pair {
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

/// What was stored through a gateway, and must stay.
pub struct Ledger {
    gateway: SocketAddr,
    stored: usize,
}

impl Ledger {
    pub fn new(gateway: &Node) -> Ledger {
        Ledger { gateway: gateway.address, stored: 0 }
    }

    /// Stores so many more; one that fails is tried again.
    pub fn write(&mut self, count: usize) {
        let mut client = until("the gateway is there", || Client::open(self.gateway));
        for _ in 0..count {
            let (key, value) = (format!("key-{}", self.stored), format!("value-{}", self.stored));
            until("the gateway stores", || match client.set(&key, &value) {
                Ok(stored) => stored.then_some(()),
                Err(_) => {
                    client = Client::open(self.gateway)?;
                    None
                }
            });
            self.stored += 1;
        }
    }

    /// Everything is there.
    pub fn check(&self) {
        let mut client = until("the gateway is there", || Client::open(self.gateway));
        for key in 0..self.stored {
            let found = until("the gateway answers", || client.get(&format!("key-{key}")).ok());
            assert_eq!(found, Some(format!("value-{key}")));
        }
    }
}

/// Loopback addresses of this test's own: the seed's ports are free there.
fn loopback() -> Vec<(Ipv4Addr, Vec<String>)> {
    static TESTS: AtomicU8 = AtomicU8::new(0);
    let first = 128 + TESTS.fetch_add(1, Ordering::Relaxed) % 16 * 8;
    let [_, _, middle, low] = std::process::id().to_be_bytes();
    (0..6).map(|host| (Ipv4Addr::new(127, first + host, middle, low), Vec::new())).collect()
}

#[test]
fn either_manager_may_die_and_a_server_with_it() {
    let mut pair = Pair::start_whole(&loopback(), &[]);
    let mut ledger = Ledger::new(&pair.gateways[0]);
    ledger.write(200);
    let said = until("stat tells of the voters", || pair.verbose());
    assert_eq!(said.matches("(manager, voting").count(), 2, "{said}");
    assert_eq!(said.matches("(recruited from").count(), 3, "{said}");
    assert!(!said.contains("one more loss"), "{said}");
    assert_eq!(pair.recruited()[1..], [2, 3], "hosts without a manager come first");
    let mut losses = 0;
    for (manager, server) in [(0, 2), (1, 3)] {
        pair.managers[manager].kill();
        pair.servers[server].kill();
        pair.until_fault(server);
        until("stat says that no more may be lost", || {
            pair.verbose()?.contains("one more loss stops decisions: 3 of 5 voters answer").then_some(())
        });
        ledger.write(100);
        pair.servers[server].run();
        until("the server is back", || {
            let address = pair.servers[server].address.to_string();
            pair.try_stat()?["not_attached"]
                .as_array()?
                .iter()
                .any(|one| *one == address.as_str())
                .then_some(())
        });
        pair.attach();
        ledger.write(100);
        pair.managers[manager].run();
        pair.until_voting(5);
        ledger.check();
        losses += 2;
    }
    println!("seed 2.3.1: {losses} of 4 losses took effect, {} sets are there", ledger.stored);
}

#[test]
fn two_managers_and_all_servers_restart_without_a_command() {
    let mut pair = Pair::start_whole(&loopback(), &[]);
    let mut ledger = Ledger::new(&pair.gateways[1]);
    ledger.write(200);
    let recruited = pair.recruited();
    for times in 1..=2 {
        pair.nodes().for_each(Node::kill);
        pair.nodes().for_each(Node::run);
        ledger.check();
        pair.until_voting(5);
        assert_eq!(pair.recruited(), recruited);
        ledger.write(50 * times);
    }
    for server in recruited {
        assert!(pair.folder.path().join(HOSTS[server]).join("database.tch-cell").is_dir());
    }
    println!("whole-cluster restarts: 2 of 2 took effect, {} sets are there", ledger.stored);
}

#[test]
fn managers_without_a_disk_come_back_to_the_voters_they_recruited() {
    // They listen for twenty of these units before they form a cell: on a busy machine too that is time enough to be heard.
    let mut pair = Pair::start_whole(&loopback(), &["--memory", "-u", "500"]);
    let mut ledger = Ledger::new(&pair.gateways[0]);
    ledger.write(100);
    pair.managers.iter_mut().for_each(Node::kill);
    ledger.write(100);
    // At the same moment: they know nothing, and must hear of the cell before they form another.
    pair.managers.iter_mut().for_each(Node::run);
    for manager in 0..2 {
        until("it belongs to the cell again", || {
            let stat = pair.stat_at(manager)?;
            let here = pair.managers[manager].address.to_string();
            let voters = stat["voters"].as_array()?.clone();
            voters.iter().any(|one| one["address"] == here.as_str() && one["state"] == "voting").then_some(())
        });
    }
    pair.until_voting(5);
    pair.servers[3].kill();
    pair.until_fault(3);
    ledger.check();
    println!("managers without memory: 2 of 2 came back, {} sets are there", ledger.stored);
}
