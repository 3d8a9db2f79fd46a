//! A server that can write nothing any more, though its disk is not full: it ends, and the others go on without it.

use crate::client::Client;
use crate::cluster::Cluster;
use std::fs;

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

fn value(number: usize) -> String {
    format!("{number:05}{}", "v".repeat(999_995))
}

/// More than a segment holds.
const SETS: usize = 100;
