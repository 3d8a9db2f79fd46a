//! An operator's tools on a running store.

use crate::client::Client;
use crate::cluster::{Cluster, KUMO, strings, until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

#[test]
fn a_replace_moves_what_a_new_server_owns_and_kumohash_names_it() {
    let mut cluster = Cluster::start(1, 2, &[]);
    let mut client = Client::open(cluster.gateway.address).unwrap();
    // What repeats itself is compressed on its way to the new server.
    let value = |key: usize| format!("{key} {}", "again and ".repeat(200));
    for key in 0..KEYS {
        assert!(client.set(&format!("key-{key}"), &value(key)).unwrap());
    }
    cluster.add_server();
    let added = cluster.servers[2].address.to_string();
    until("the new one is known", || {
        strings(&cluster.try_stat()?["not_attached"]).contains(&added).then_some(())
    });
    cluster.order(&["attach-noreplace"]);
    cluster.order(&["replace"]);
    cluster.until_settled();
    cluster.until_active(3);
    // It has all of it: every key is on three servers, and the other two are gone.
    let owners = kumohash(&["-m", &cluster.controls[0].to_string(), "assign", "key-0"]);
    for server in &cluster.servers {
        assert!(owners.contains(&server.address.to_string()), "{owners}");
    }
    for lost in [0, 1] {
        cluster.servers[lost].kill();
        cluster.until_fault(lost);
    }
    for key in 0..KEYS {
        let read = until("the last copy answers", || client.get(&format!("key-{key}")).ok());
        assert_eq!(read, Some(value(key)), "key-{key}");
    }
}

#[test]
fn a_server_that_is_back_and_waits_is_told_apart_from_one_that_is_lost() {
    let mut cluster = Cluster::start(1, 3, &[]);
    let control = cluster.controls[0].to_string();
    let (back, lost) = (cluster.servers[0].address.to_string(), cluster.servers[1].address.to_string());
    for server in [0, 1] {
        cluster.servers[server].kill();
        cluster.until_fault(server);
    }
    cluster.servers[0].run();
    until("it is back", || strings(&cluster.try_stat()?["not_attached"]).contains(&back).then_some(()));
    let asked: [&[&str]; 4] = [
        &["hash", "-m", &control, "assign", "key"],
        &["hash", "-m", &control, "dump"],
        &["stat", "-m", &control, "rhs"],
        &["stat", &back, "rhs"],
    ];
    // The server itself is told of it in a moment.
    for words in asked {
        let said = until("it is told apart", || {
            let output = Command::new(KUMO).args(words).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            said.contains(&format!("{back} (fault, back: not attached)")).then_some(said)
        });
        assert!(said.contains(&format!("{lost} (fault)")), "{words:?}: {said}");
    }
    let said = kumohash(&["-m", &control, "--format", "json", "assign", "key"]);
    let assigned: serde_json::Value = serde_json::from_str(&said).unwrap();
    let conditions: Vec<_> =
        assigned[0]["rhs"].as_array().unwrap().iter().map(|one| &one["condition"]).collect();
    for condition in ["active", "fault", "waiting"] {
        assert!(conditions.iter().any(|one| *one == condition), "{said}");
    }
    // It is no more than what it was when a replace has brought it in.
    cluster.order(&["attach"]);
    cluster.until_settled();
    let owners = kumohash(&["-m", &control, "assign", "key"]);
    assert!(
        owners.contains(&format!("{back} (active)")) && owners.contains(&format!("{lost} (fault)")),
        "{owners}"
    );
}

#[test]
fn a_plan_says_of_a_server_that_is_back_that_it_is_the_most_that_could_be_sent() {
    let mut cluster = Cluster::start(1, 2, &[]);
    Client::open(cluster.gateway.address).unwrap().fill(KEYS, 10);
    cluster.servers[0].kill();
    cluster.until_fault(0);
    let plan = |cluster: &Cluster, servers: &[&str]| {
        let said = |format: &[&str]| {
            let output = cluster.kumoctl(&[&["plan", "attach"], servers, format].concat());
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let value: serde_json::Value = serde_json::from_str(&said(&["--format", "json"])).unwrap();
        (said(&[]), value)
    };
    let known = |cluster: &Cluster, address: &str| {
        until("it is known", || {
            strings(&cluster.try_stat()?["not_attached"]).iter().any(|one| one == address).then_some(())
        });
    };
    // One with nothing gets all of its part.
    cluster.add_server();
    let fresh = cluster.servers[2].address.to_string();
    known(&cluster, &fresh);
    let (said, value) = plan(&cluster, &[&fresh]);
    assert!(said.contains("\nabout ") && !said.contains("at most"), "{said}");
    assert_eq!(value["upper_bound"], false);
    cluster.servers[0].run();
    let back = cluster.servers[0].address.to_string();
    known(&cluster, &back);
    let (said, value) = plan(&cluster, &[]);
    let bounded =
        |address: &str| said.lines().any(|line| line.starts_with(address) && line.contains("at most "));
    assert_eq!((bounded(&back), bounded(&fresh)), (true, false), "{said}");
    assert!(said.contains("\nat most about "), "{said}");
    assert!(said.contains(&format!("\n{back} has records already and gets only what differs; ")), "{said}");
    assert_eq!(value["upper_bound"], true);
    for share in value["shares"].as_array().unwrap() {
        assert_eq!(share["upper_bound"], share["server"] == back.as_str(), "{value}");
    }
}

#[test]
fn managers_that_have_heard_of_nobody_yet_say_so() {
    let mut cluster = Cluster::start(1, 2, &[]);
    let mut servers: Vec<SocketAddr> = cluster.servers.iter().map(|server| server.address).collect();
    servers.sort_unstable();
    let nodes = |what: &str| {
        let lines: String = servers.iter().map(|server| format!("  {server} ({what})\n")).collect();
        format!("attached node:\n{lines}not attached node:\n")
    };
    let block = |cluster: &Cluster| {
        let output = cluster.kumoctl(&["stat"]);
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    cluster.managers[0].end();
    // So patient that nobody is declared fault while we look.
    cluster.managers[0].add_options(&["--connect-retry-limit", "100", "--connect-timeout-steps", "100"]);
    cluster.managers[0].run();
    until("it has heard of them", || block(&cluster)?.ends_with(&nodes("active")).then_some(()));
    cluster.nodes().for_each(|node| node.end());
    cluster.managers[0].run();
    let said = until("it answers", || block(&cluster));
    assert!(said.ends_with(&nodes("active, not heard of yet")), "{said}");
    let stat = until("the manager answers", || cluster.try_stat());
    for server in stat["attached"].as_array().unwrap() {
        assert_eq!((&server["state"], &server["heard"]), (&"active".into(), &false.into()), "{stat}");
    }
}

#[test]
fn kumohash_says_where_a_key_lies() {
    assert_eq!(kumohash(&["hash", "foo"]), "db0f3feab5c7ee0b\n");
}

#[test]
fn kumoctl_says_when_nobody_of_ours_is_there() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let output = Command::new(KUMO).args(["ctl", &address, "stat"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.contains(&address) && line.contains("is it the port of a manager"), "{line}");
}

#[test]
fn a_port_of_another_kind_is_told_as_such() {
    let cluster = Cluster::start(1, 1, &[]);
    let tool = |arguments: &[&str]| {
        let output = Command::new(KUMO).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let log = cluster.managers[0].log();
    let line = log.lines().find(|line| line.contains(" http")).expect("its log names the dashboard's port");
    let dashboard = line.split("address=").nth(1).unwrap().split(' ').next().unwrap();
    let control = "this is not the control port of a manager (its -c, 19799 by default)";
    let said = format!("kumo: {dashboard}: HTTP is spoken there: {control}\n");
    assert_eq!(tool(&["ctl", dashboard, "stat"]), said);
    assert_eq!(tool(&["hash", "-m", dashboard, "assign", "key"]), said);
    let server = "this is not the port of a server (that of its -l, 19800 by default)";
    assert_eq!(
        tool(&["stat", dashboard, "items"]),
        format!("kumo: {dashboard}: HTTP is spoken there: {server}\n")
    );
    // One that greets before it is asked, as mail servers do.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let greeter = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example.org ready\r\n").unwrap();
        // Until it is hung up on.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert_eq!(
        tool(&["ctl", &address, "stat"]),
        format!("kumo: {address}: something else is spoken there: {control}\n")
    );
    greeter.join().unwrap();
}

fn kumohash(arguments: &[&str]) -> String {
    let output = Command::new(KUMO).arg("hash").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const KEYS: usize = 200;
