//! What deleted keys leave behind, as an operator sees it.

use crate::client::Client;
use crate::cluster::{Cluster, KUMO, until};
use serde_json::Value;
use std::process::Command;

#[test]
fn more_tombstones_than_wanted_are_told_and_kept() {
    let mut cluster = Cluster::start_detached(1, 2, &[]);
    cluster.add_server_with(&["-gS", "1"]);
    until("all are known", || (cluster.try_stat()?["not_attached"].as_array()?.len() == 3).then_some(()));
    cluster.attach();
    cluster.until_active(3);
    cluster.until_served();
    let mut client = Client::open(cluster.gateway.address).unwrap();
    for number in 0..KEYS {
        assert!(client.set(&format!("key-{number}"), "value").unwrap());
    }
    assert_eq!(of(&cluster, 2, "tombstones_held"), 0);
    assert!(!cluster.servers[2].log().contains(LINE), "nothing was deleted");
    for number in 0..KEYS {
        assert_eq!(client.ask(&format!("delete key-{number}\r\n")).unwrap(), "DELETED");
    }
    until("the server warns", || cluster.servers[2].log().contains(LINE).then_some(()));
    until("all are counted", || (of(&cluster, 2, "tombstone_bytes") > KEYS * 40).then_some(()));
    assert_eq!(of(&cluster, 2, "tombstones"), KEYS, "none is dropped early");
    assert_eq!(cluster.servers[2].log().matches(LINE).count(), 1, "once, not at every look");
    assert!(!cluster.servers[0].log().contains(LINE), "no limit was given to this one");
}

fn of(cluster: &Cluster, server: usize, name: &str) -> u64 {
    let address = cluster.servers[server].address.to_string();
    let output = Command::new(KUMO).args(["stat", &address, "stats", "--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    facts[name].as_u64().unwrap_or_else(|| panic!("{name} is in {facts}"))
}

/// With what is kept beside a key they are above 1 KB.
const KEYS: u64 = 40;

const LINE: &str = "tombstones beyond -gX or -gS";
