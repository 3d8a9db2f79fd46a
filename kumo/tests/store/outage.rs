//! A server that can write nothing any more, though its disk is not full: it ends, and the others go on without it. And
//! all servers at once, as when the power fails: they serve again before anybody does something.

use crate::client::Client;
use crate::cluster::{Cluster, Node, until};
use crate::http_client::{Asked, get, get_json, samples};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;

#[test]
fn a_server_whose_store_is_gone_ends_and_nothing_is_lost() {
    let mut cluster = Cluster::start(1, 3, &[]);
    let mut client = Client::open(cluster.gateway.address).unwrap();
    client.set("before", "kept").unwrap();
    // What is open can still be written to: it is noticed when the next segment is begun.
    fs::remove_dir_all(cluster.folder.path().join("store-0")).unwrap();
    let mut stored = Vec::new();
    let mut server = cluster.servers.remove(0);
    for number in 0..SETS {
        // Those under way when the server is found out wait until it is lost, no longer.
        assert!(client.set(&format!("key-{number}"), &value(number)).unwrap());
        stored.push(number);
    }
    assert_eq!(server.wait(), Some(1));
    let log = server.log();
    let last = log.lines().rfind(|line| line.contains("the store cannot be written")).unwrap_or_default();
    assert!(last.contains("store-0") && last.contains("this server ends"), "{log}");
    for &number in &stored {
        assert_eq!(client.get(&format!("key-{number}")).unwrap(), Some(value(number)));
    }
    assert_eq!(client.get("before").unwrap().as_deref(), Some("kept"));
    println!("{} values of 1 MB stored over the end of a server, none lost", stored.len());
}

/// Every surface says the same of it: that they serve, with one copy, and wait for an operator.
#[test]
fn servers_that_all_start_again_serve_and_say_that_they_wait_to_be_attached() {
    let mut cluster = Cluster::start(1, 4, &[]);
    let (manager, gateway) = (http(&cluster.managers[0]), http(&cluster.gateway));
    let mut client = Client::open(cluster.gateway.address).unwrap();
    for number in 0..KEYS {
        assert!(client.set(&format!("key-{number}"), "value").unwrap());
    }
    let read_all = |client: &mut Client| {
        for number in 0..KEYS {
            assert_eq!(client.get(&format!("key-{number}")).unwrap().as_deref(), Some("value"), "{number}");
        }
    };
    cluster.servers.iter_mut().for_each(Node::kill);
    cluster.servers.iter_mut().for_each(Node::run);
    let returned = until("the last owners are back", || {
        let stat = cluster.try_stat()?;
        let attached = stat["attached"].as_array()?;
        let lost = attached.len() == 4 && attached.iter().all(|one| one["state"] == "fault");
        let there = stat["not_attached"].as_array()?.len() == 4 && stat["awaited"] == json!([]);
        (lost && there).then(|| attached.iter().filter(|one| one["returned"] == true).count())
    });
    assert!(returned > 0, "somebody has everything");
    let stat = cluster.kumoctl(&["stat"]);
    let [block, advice] = [stat.stdout, stat.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(block.matches(" (fault, back: serves what only it has)\n").count(), returned, "{block}");
    assert_eq!(block.matches(" (fault)\n").count(), 4 - returned, "{block}");
    let order = format!("`kumoctl {} attach`", cluster.controls[0]);
    assert_eq!(
        advice,
        format!("kumoctl: 4 servers that were lost are back and wait to be attached: {order}\n")
    );

    until("the gateway is ready", || (Asked::try_get(gateway, "/ready")?.status == 200).then_some(()));
    cluster.until_served();
    read_all(&mut client);
    until("the manager counts them as stat does", || {
        let wanted = [("active", 0), ("fault", 4 - returned), ("returned", returned)];
        wanted.into_iter().all(|(state, count)| counted(manager, state) == count).then_some(())
    });
    assert_eq!(get_json(manager, "/v1/ring")["coverage"], json!([{ "to": 1.0, "copies": 1 }]));
    let reasons = until("the page judges that ring", || {
        let reasons = reasons(manager);
        reasons.contains("is back for what only it has").then_some(reasons)
    });
    assert!(reasons.contains("all of the ring has one copy"), "{reasons}");
    assert!(!reasons.contains("no server that acts"), "{reasons}");

    cluster.attach();
    cluster.until_active(4);
    let stat = cluster.kumoctl(&["stat"]);
    let [block, advice] = [stat.stdout, stat.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!((block.matches(" (active)\n").count(), advice.as_str()), (4, ""), "{block}");
    assert!(block.ends_with("not attached node:\n"), "nothing follows it: {block}");
    until("all are active for the manager", || (counted(manager, "active") == 4).then_some(()));
    until("the ring has all copies", || (!self::reasons(manager).contains("of the ring")).then_some(()));
    assert_eq!(get(gateway, "/ready").status, 200);
    read_all(&mut client);
    println!(
        "4 servers restarted at once: {returned} served alone, {KEYS} of {KEYS} keys read before attach"
    );
}

/// Attached servers in that state, as a manager measures it.
fn counted(manager: SocketAddr, state: &str) -> usize {
    samples(&get(manager, "/metrics").text())[&format!("kumo_cluster_servers{{state=\"{state}\"}}")] as usize
}

/// What the banner of the page says.
fn reasons(manager: SocketAddr) -> String {
    match &get_json(manager, "/v1/cluster")["health"]["reasons"] {
        Value::Array(reasons) => reasons.iter().map(|one| one["text"].to_string() + "\n").collect(),
        other => panic!("no list: {other}"),
    }
}

/// Where a process serves HTTP, as its log says.
fn http(node: &Node) -> SocketAddr {
    until("the log names the address of http", || {
        let log = node.log();
        let line = log.lines().find(|line| line.contains(" http "))?;
        line.split("address=").nth(1)?.split_whitespace().next()?.parse().ok()
    })
}

fn value(number: usize) -> String {
    format!("{number:05}{}", "v".repeat(999_995))
}

const KEYS: usize = 500;

/// More than a segment holds.
const SETS: usize = 100;
