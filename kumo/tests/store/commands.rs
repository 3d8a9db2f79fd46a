//! Every command of an operator's tools as a person or a script gives it: what it prints, and how it ends.

use crate::client::Client;
use crate::cluster::{Cluster, KUMO, Node, until};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[test]
fn every_command_says_what_its_manual_promises() {
    let began = Instant::now();
    let mut cluster = Cluster::start(3, 3, &["-g", "gateway.mpac"]);
    kumostat(&cluster, began);
    kumohash(&cluster);
    kumoctl(&mut cluster);
    kumotop(&cluster);
    kumolog(&mut cluster);
    // One of three managers cannot know who leads.
    cluster.managers[1..].iter_mut().for_each(Node::kill);
    until("there is no master any more", || {
        let output = cluster.kumoctl(&["stat"]);
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code() == Some(5) && said.contains("have no master")).then_some(())
    });
}

fn kumostat(cluster: &Cluster, began: Instant) {
    let mut client = Client::open(cluster.gateway.address).unwrap();
    for key in 0..KEYS {
        assert!(client.set(&format!("key-{key}"), "value").unwrap());
        assert!(client.get(&format!("key-{key}")).unwrap().is_some());
    }
    assert!(client.delete("key-0").unwrap());
    let control = cluster.controls[0].to_string();
    until("all hold the manager's hash space", || {
        let output = Command::new(KUMO).args(["stat", "-m", &control, "hscheck"]).output().unwrap();
        let rows = table(&String::from_utf8(output.stdout).unwrap());
        let settled = rows[1..].iter().all(|row| row.last().unwrap() == "settled");
        (output.status.success() && settled).then_some(())
    });
    let active: String =
        sorted(cluster).iter().map(|server| format!("{} (active)\n", server.address)).collect();
    let number = cluster.try_stat().unwrap()["space"]["number"].as_str().unwrap().to_owned();
    let mut served = BTreeMap::new();
    for server in &cluster.servers {
        let item = |item| said(&["stat", &server.address.to_string(), item]);
        assert_eq!(item("pid"), format!("{}\n", server.pid()));
        assert_eq!(item("version"), format!("{}\n", env!("CARGO_PKG_VERSION")));
        let (before, time) = (unix_seconds(), number_of(&item("time")));
        assert!((before..=unix_seconds()).contains(&time), "{time}");
        assert!(number_of(&item("uptime")) <= began.elapsed().as_secs());
        // One was deleted, and whoever starts a cluster has stored one.
        assert_eq!(item("items"), format!("{KEYS}\n"));
        for name in ["cmd_get", "cmd_set", "cmd_delete"] {
            *served.entry(name).or_insert(0) += number_of(&item(name));
        }
        assert_eq!((item("rhs"), item("whs")), (active.clone(), active.clone()));
        assert_eq!(item("hscheck"), format!("number {number}\nstate settled\n"));
        let replstat = item("replstat");
        let names = replstat.lines().map(|line| line.split(' ').next().unwrap());
        let known = ["pending", "dirty", "copies", "copies_done", "records_sent", "bytes_sent", "bytes_left"];
        assert!(names.eq(known), "{replstat}");
    }
    // A try that had to wait is counted too.
    assert!(served["cmd_get"] >= KEYS && served["cmd_set"] > KEYS && served["cmd_delete"] >= 1, "{served:?}");

    let rows = |item| table(&said(&["stat", "-m", &control, item]));
    let of_each = |value: &dyn Fn(&Node) -> String| -> Vec<Vec<String>> {
        sorted(cluster).iter().map(|server| vec![server.address.to_string(), value(server)]).collect()
    };
    assert_eq!(rows("items")[0], ["SERVER", "ITEMS"]);
    assert_eq!(rows("items")[1..], of_each(&|_| KEYS.to_string()));
    assert_eq!(rows("pid")[1..], of_each(&|server| server.pid().to_string()));
    let hscheck = rows("hscheck");
    assert_eq!(hscheck.len(), 5, "a row for each, and one for the managers: {hscheck:?}");
    assert!(hscheck[1..].iter().all(|row| row[1..] == [&number[..], "settled"]), "{hscheck:?}");
    assert!(said(&["stat", "-m", &control, "replstat"]).ends_with("no replace is under way\n"));
    println!("kumostat: 13 items of each server; of all: {served:?}");
}

fn kumohash(cluster: &Cluster) {
    let control = cluster.controls[0].to_string();
    let dump = table(&said(&["hash", "-m", &control, "dump"]));
    assert!(dump.is_sorted_by(|one, next| one[0] < next[0]), "in their order on the ring");
    for server in &cluster.servers {
        let points = dump.iter().filter(|row| row[1..] == [&server.address.to_string(), "(active)"]).count();
        assert_eq!(points, POINTS);
    }
    assert_eq!(dump.len(), 3 * POINTS);
    let walk = said(&["hash", "-m", &control, "dump", "foo"]);
    let (first, points) = walk.split_once('\n').unwrap();
    assert_eq!(first, "db0f3feab5c7ee0b foo");
    let passed = table(points);
    let mut met: Vec<&String> = Vec::new();
    for row in &passed {
        if !met.contains(&&row[1]) {
            met.push(&row[1]);
        }
    }
    let assigned = table(&said(&["hash", "-m", &control, "assign", "foo"]));
    assert!(assigned[1].iter().filter(|word| word.contains(':')).eq(met), "{assigned:?}");
    println!("kumohash dump: {} points, {} on the way from a key", dump.len(), passed.len());
}

fn kumoctl(cluster: &mut Cluster) {
    let order = |cluster: &Cluster, words: &[&str]| succeed(words, || cluster.kumoctl(words));
    // Any manager is told, whoever leads.
    for (control, word) in
        cluster.controls.iter().zip(["enable-auto-replace", "disable-auto-replace"].iter().cycle())
    {
        assert_eq!(said(&["ctl", &control.to_string(), word]), "");
        assert_eq!(cluster.try_stat().unwrap()["auto_replace"], word.starts_with("enable"));
    }
    order(cluster, &["disable-auto-replace"]);
    assert_eq!(order(cluster, &["status"]), order(cluster, &["stat"]));
    for word in ["show", "wait"] {
        assert_eq!(order(cluster, &["job", word]), "no replace is under way\n");
    }

    let leaving = cluster.servers[0].address.to_string();
    let wanted = format!("detach at the next replace:\n  {leaving}\n");
    let plain = order(cluster, &["stat"]);
    assert_eq!(order(cluster, &["detach-noreplace", &leaving]), "");
    assert_eq!(order(cluster, &["stat"]), plain.clone() + &wanted);
    order(cluster, &["attach-noreplace", &leaving]);
    assert_eq!(order(cluster, &["stat"]), plain, "it is taken back");

    let folder = cluster.folder.path().canonicalize().unwrap();
    let days = [today(), order(cluster, &["backup"]), today()];
    for (index, server) in cluster.servers.iter().enumerate() {
        let path = |day: &str| folder.join(format!("store-{index}-{day}"));
        let row = |day: &str| vec![server.address.to_string(), path(day).display().to_string()];
        let rows = table(&days[1]);
        // It may be midnight.
        let day = [&days[0], &days[2]].into_iter().find(|day| rows.contains(&row(day))).expect("a row");
        assert!(path(day).is_dir());
    }

    Client::open(cluster.gateway.address).unwrap().fill(RECORDS, RECORD_BYTES);
    cluster.add_server();
    let added = cluster.servers[3].address.to_string();
    until("the newcomer is known", || {
        (cluster.try_stat()?["not_attached"].as_array()?.len() == 1).then_some(())
    });
    let plan = order(cluster, &["plan"]);
    let rows = table(&plan);
    let row = rows.iter().find(|row| row[0] == added).expect("it is in the plan");
    assert!(row[1] == "-" && row[2] == row[4] && row[3] == "%", "it gets all that it will have: {plan}");
    assert!(plan.contains(" records, ") && plan.ends_with(" would be sent\n"), "{plan}");
    assert!(cluster.try_stat().unwrap()["job"].is_null(), "nothing is begun");
    order(cluster, &["attach"]);
    order(cluster, &["job", "pause"]);
    // Those that send have told how far they are.
    let shown = until("the job is shown", || {
        let shown = order(cluster, &["job", "show"]);
        let mut senders = cluster.servers[..3].iter();
        senders.all(|server| shown.contains(&format!("\n{} ", server.address))).then_some(shown)
    });
    assert!(shown.starts_with("replace ") && shown.contains(" %, paused"), "{shown}");
    let still = |row: &Vec<String>| row.ends_with(&["-".to_owned(), "-".to_owned()]);
    assert!(table(&shown)[2..].iter().all(still), "neither rate nor time left: {shown}");
    // Who asks how the cluster stands need not know of it to be told.
    let (brief, long) = (order(cluster, &["stat"]), order(cluster, &["stat", "-v"]));
    let told = brief.split_once("replace:\n").expect("it is behind the block").1;
    assert!(told.starts_with("  replace ") && told.contains(" %, paused"), "{brief}");
    assert!(long.contains("replace:\n  replace ") && long.contains(" %, paused"), "{long}");
    order(cluster, &["job", "cancel"]);
    cluster.until_settled();
    assert_eq!(order(cluster, &["job", "wait"]), "no replace is under way\n");
    println!("kumoctl: a plan: {}\na job: {}", plan.lines().last().unwrap(), shown.lines().next().unwrap());
}

/// On a terminal of its own, which `script` makes.
fn kumotop(cluster: &Cluster) {
    let command = format!("stty rows 40 cols 120; exec '{KUMO}' top -m {}", cluster.controls[0]);
    let mut script = Command::new("script");
    script.args(["-qfec", &command, "/dev/null"]).env("TERM", "xterm");
    let mut child = match script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: kumotop needs a terminal, and script is not installed (Debian: bsdutils)");
            return;
        }
        child => child.unwrap(),
    };
    let (mut keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let drawn = Arc::new(Mutex::new(String::new()));
    let reader = std::thread::spawn({
        let drawn = drawn.clone();
        move || {
            let mut bytes = [0; 4096];
            while let Some(read) = screen.read(&mut bytes).ok().filter(|&read| read > 0) {
                drawn.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        }
    });
    until("all servers are on the screen", || {
        let drawn = drawn.lock().unwrap();
        let mut servers = cluster.servers.iter();
        servers.all(|server| drawn.contains(&server.address.to_string())).then_some(())
    });
    keyboard.write_all(b"q").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "q quits");
    reader.join().unwrap();
    let drawn = drawn.lock().unwrap();
    assert!(drawn.contains("LEASE") && drawn.contains("not attached"), "{drawn:?}");
    assert!(drawn.trim_end().ends_with("\x1b[?25h") && drawn.contains("\x1b[?1049l"), "it is given back");
    println!("kumotop: {} bytes drawn for {} servers", drawn.len(), cluster.servers.len());
}

fn kumolog(cluster: &mut Cluster) {
    let log = cluster.folder.path().join("gateway.mpac").display().to_string();
    let (all, two) = until("nothing is added meanwhile", || {
        let (all, two) = (said(&["log", &log]), said(&["log", "-n", "2", &log]));
        (said(&["log", &log]) == all).then_some((all, two))
    });
    let lines: Vec<&str> = all.lines().collect();
    let start = format!(" start program=kumo-gateway version={} pid=", env!("CARGO_PKG_VERSION"));
    assert!(lines[0].contains(&start) && lines.len() > 2, "{all}");
    let last = lines.len() - 2;
    assert_eq!(two, lines[last..].join("\n") + "\n");
    // What is written from now on follows the last line.
    let mut follow = Command::new("timeout");
    follow.args(["60", KUMO, "log", "-f", "-n", "1", &log]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut follow = follow.spawn().unwrap();
    let mut told = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = || told.next().expect("one more line").unwrap();
    let first = next();
    assert!(said(&["log", &log]).lines().skip(last).any(|line| line == first), "one of the last: {first}");
    cluster.gateway.signal(Signal::TERM);
    assert_eq!(cluster.gateway.wait(), Some(0));
    let mut last = next();
    while !last.contains(" end ") {
        last = next();
    }
    assert!(last.ends_with(" end reason=\"asked to\""), "{last}");
    // It hands this on.
    kill_process(Pid::from_child(&follow), Signal::TERM).unwrap();
    follow.wait().unwrap();
    println!("kumolog: {} events, then {last}", lines.len());
}

/// What a command prints that ends well.
fn said(arguments: &[&str]) -> String {
    let run = || Command::new(KUMO).args(arguments).stdin(Stdio::null()).output().unwrap();
    succeed(arguments, run)
}

/// One for which there is no master yet is given again: an election may be on.
fn succeed(arguments: &[&str], run: impl Fn() -> Output) -> String {
    until(&format!("{arguments:?}"), || {
        let output = run();
        let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        match output.status.code() {
            Some(0) => Some(told),
            Some(4 | 5) => None,
            status => panic!("{arguments:?} ended with {status:?}: {told}"),
        }
    })
}

/// The words of each line.
fn table(text: &str) -> Vec<Vec<String>> {
    text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// As tools list them.
fn sorted(cluster: &Cluster) -> Vec<&Node> {
    let mut servers: Vec<&Node> = cluster.servers.iter().collect();
    servers.sort_by_key(|server| server.address);
    servers
}

fn number_of(text: &str) -> u64 {
    text.trim_end().parse().expect("a number")
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn today() -> String {
    jiff::Zoned::now().strftime("%Y%m%d").to_string()
}

const KEYS: u64 = 50;
/// Of each server on the ring.
const POINTS: usize = 128;

/// Enough to be under way for longer than an order takes.
const RECORDS: usize = 20_000;
const RECORD_BYTES: usize = 2_000;
