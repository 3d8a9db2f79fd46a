//! Others' opinion on our memcached: what memcached itself answers, libmemcached's checks, and what other clients' suites
//! found (lab/conformance).

use crate::client::Client;
use crate::cluster::Cluster;
use crate::recordings::{Case, cases, is_binary, recorded, replayed, told, unescaped};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn memccapable_finds_nothing_wrong() {
    if Command::new("memccapable").arg("-h").stdin(Stdio::null()).output().is_err() {
        println!("skipped: memccapable is not installed (Debian: libmemcached-tools)");
        return;
    }
    let cluster = Cluster::start(1, 3, &["--allow-flush"]);
    let address = cluster.gateway.address;
    for protocol in ["-a", "-b"] {
        let output = Command::new("memccapable")
            .args(["-h", &address.ip().to_string(), "-p", &address.port().to_string(), protocol])
            // Seconds that one check may wait: a busy machine is no fault.
            .args(["-t", "30"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let passed = said.matches("[pass]").count();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        println!("memccapable {protocol}: {passed} checks passed");
        assert_eq!(passed, CHECKS, "{said}");
    }
}

#[test]
fn what_follows_a_flush_on_a_connection_comes_after_it() {
    let cluster = Cluster::start(1, 3, &["--allow-flush"]);
    let mut stream = TcpStream::connect(cluster.gateway.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    for round in 0..50 {
        let noreply = if round % 2 == 0 { "" } else { " noreply" };
        let sent =
            format!("set k 0 0 3\r\nold\r\nflush_all 0{noreply}\r\nget k\r\nset k 0 0 3\r\nnew\r\nget k\r\n");
        let flushed = if noreply.is_empty() { "OK\r\n" } else { "" };
        let expected = format!("STORED\r\n{flushed}END\r\nSTORED\r\nVALUE k 0 3\r\nnew\r\nEND\r\n");
        stream.write_all(sent.as_bytes()).unwrap();
        let mut said = vec![0; expected.len()];
        stream.read_exact(&mut said).expect("all is answered");
        assert_eq!(String::from_utf8_lossy(&said), expected, "round {round}");
    }
}

/// The grammar's tests replay these recordings on a map; here they meet a store of three copies.
#[test]
fn a_gateway_answers_as_memcached_was_recorded() {
    let cluster = Cluster::start(1, 3, &["--allow-flush"]);
    let deviations = include_str!("deviations.txt").replace("{VERSION}", env!("CARGO_PKG_VERSION"));
    let mut deviations: Vec<Case> = cases(&deviations);
    let (mut wrong, mut deviated, mut alike) = (String::new(), 0, 0);
    for case in recorded() {
        let (said, closed) = replayed(cluster.gateway.address, &case);
        assert_eq!(closed, case.closed, "{}", case.name);
        let expected = told(&case.received, is_binary(&case.sent));
        let known = deviations.iter().position(|one| one.name == case.name).map(|at| deviations.remove(at));
        match known {
            Some(known) if known.received == unescaped(&said.replace('\n', "")) && said != expected => {
                deviated += 1
            }
            None if said == expected => alike += 1,
            Some(_) | None => {
                wrong += &format!("== {}\n{}\nrecorded:\n{expected}\n", case.name, shown(&said));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    let never: Vec<String> = deviations.into_iter().map(|case| case.name).collect();
    assert!(never.is_empty(), "not recorded at all: {never:?}");
    println!("{alike} conversations as recorded, {deviated} otherwise, on purpose");
    assert!(alike > 150, "recordings are missing: {alike}");
}

#[test]
fn a_prefix_bounds_what_a_flush_deletes() {
    let cluster = Cluster::start(1, 3, &["--allow-flush"]);
    let prefixed = cluster.second_gateway(&["--allow-flush", "--key-prefix", "app:"]);
    let (mut all, mut app) = (
        Client::open(cluster.gateway.address).unwrap(),
        Client::open(prefixed.address).expect("the second gateway listens"),
    );
    for key in ["ap", "app", "app;", "other"] {
        assert!(all.set(key, "kept").unwrap());
    }
    assert!(app.set("mine", "gone").unwrap());
    assert_eq!(all.get("app:mine").unwrap().as_deref(), Some("gone"));
    assert_eq!(app.ask("flush_all\r\n").unwrap(), "OK");
    assert_eq!(app.get("mine").unwrap(), None);
    assert_eq!(all.get("app:mine").unwrap(), None);
    for key in ["ap", "app", "app;", "other"] {
        assert_eq!(all.get(key).unwrap().as_deref(), Some("kept"), "{key}");
    }
    assert_eq!(all.ask("flush_all\r\n").unwrap(), "OK");
    assert_eq!(all.get("other").unwrap(), None);
}

#[test]
fn stats_tell_hits_and_misses_apart() {
    let cluster = Cluster::start(1, 1, &["--allow-flush"]);
    let mut client = Client::open(cluster.gateway.address).unwrap();
    client.ask("stats reset\r\n").unwrap();
    for request in [
        "set n 0 0 1\r\n1\r\n",
        "incr n 1\r\n",
        "incr missing 1\r\n",
        "decr n 1\r\n",
        "delete missing\r\n",
        "touch n 0\r\n",
        "touch missing 0\r\n",
        "cas n 0 0 1 1\r\nx\r\n",
        "cas missing 0 0 1 1\r\nx\r\n",
        "get missing\r\n",
        "flush_all\r\n",
        "delete n\r\n",
        "stats detail on\r\n",
        "stats detail dump\r\n",
    ] {
        client.ask(request).unwrap();
    }
    assert_eq!(client.ask("stats detail\r\n").unwrap(), "CLIENT_ERROR usage: stats detail on|off|dump");
    let mut line = client.ask("stats\r\n").unwrap();
    let mut stats = std::collections::BTreeMap::new();
    while line != "END" {
        let (name, value) = line.strip_prefix("STAT ").and_then(|line| line.split_once(' ')).expect("a stat");
        stats.insert(name.to_owned(), value.to_owned());
        line = client.line().unwrap();
    }
    for (name, value) in [
        ("get_hits", "0"),
        ("get_misses", "1"),
        ("incr_hits", "1"),
        ("incr_misses", "1"),
        ("decr_hits", "1"),
        ("decr_misses", "0"),
        ("delete_hits", "0"),
        ("delete_misses", "2"),
        ("touch_hits", "1"),
        ("touch_misses", "1"),
        ("cas_hits", "0"),
        ("cas_misses", "1"),
        ("cas_badval", "1"),
        ("cmd_flush", "1"),
        ("cmd_touch", "2"),
        ("evictions", "0"),
    ] {
        assert_eq!(stats.get(name).map(String::as_str), Some(value), "{name}");
    }
}

/// As deviations.txt has it: one line a line or packet.
fn shown(said: &str) -> String {
    said.lines().map(|line| format!("< {line}\n")).collect()
}

/// Of each protocol.
const CHECKS: usize = 27;
