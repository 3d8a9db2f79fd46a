//! Options of the store's programs that no other test needs.

use crate::client::Client;
use crate::cluster::{Cluster, free_addresses, strings, until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn a_gateway_has_a_port_for_binary_clients_and_a_limit_for_values() {
    let cluster = Cluster::start(1, 1, &[]);
    let binary = free_addresses(1)[0];
    let gateway = cluster.second_gateway(&["-b", &binary.to_string(), "--max-value", "100"]);

    let mut client = Client::open(gateway.address).unwrap();
    assert!(client.set("fits", &"v".repeat(100)).unwrap());
    // Nobody said that clients may empty it.
    for request in ["flush_all\r\n", "flush_all 10\r\n"] {
        assert_eq!(client.ask(request).unwrap(), "CLIENT_ERROR flush_all not allowed");
    }
    let error = client.set("fits", &"v".repeat(101)).unwrap_err().to_string();
    assert_eq!(error, "SERVER_ERROR object too large for cache");
    assert_eq!(client.get("fits").unwrap(), Some("v".repeat(100)), "a refused request changes nothing");

    let mut stream = TcpStream::connect(binary).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut noop = [0u8; 24];
    (noop[0], noop[1]) = (0x80, 0x0a);
    stream.write_all(&noop).unwrap();
    let mut answer = [0; 24];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((answer[0], answer[1], &answer[6..8]), (0x81, 0x0a, &[0, 0][..]));
}

#[test]
fn with_min_copies_a_lone_server_reads_and_does_not_write() {
    let mut cluster = Cluster::start_detached(1, 0, &["--spread-reads"]);
    (0..3).for_each(|_| cluster.add_server_with(&["--min-copies", "2", "--sync", "always"]));
    until("the servers are known", || {
        (strings(&cluster.try_stat()?["not_attached"]).len() == 3).then_some(())
    });
    cluster.attach();
    cluster.until_active(3);
    cluster.until_served();

    let mut client = Client::open(cluster.gateway.address).unwrap();
    let keys: Vec<String> = (0..100).map(|number| format!("key-{number}")).collect();
    for key in &keys {
        assert!(client.set(key, "before").unwrap());
        assert_eq!(client.get(key).unwrap().as_deref(), Some("before"), "any copy shows what was answered");
    }
    cluster.servers[0].kill();
    cluster.until_fault(0);
    assert!(client.set(&keys[0], "two copies").unwrap(), "two are enough");
    cluster.servers[1].kill();
    cluster.until_fault(1);
    for key in &keys {
        let error = client.set(key, "after").unwrap_err().to_string();
        assert!(error.starts_with("SERVER_ERROR") && error.contains("--min-copies"), "{error}");
    }
    assert_eq!(client.get(&keys[0]).unwrap().as_deref(), Some("two copies"));
    for key in &keys[1..] {
        assert_eq!(client.get(key).unwrap().as_deref(), Some("before"), "a refused write changes nothing");
    }
}

#[test]
fn with_auto_replace_servers_come_and_go_without_an_order() {
    let mut cluster = Cluster::start(1, 3, &[]);
    let mut client = Client::open(cluster.gateway.address).unwrap();
    client.fill(500, 100);
    cluster.order(&["enable-auto-replace"]);
    cluster.add_server();
    cluster.until_active(4);
    cluster.until_settled();
    cluster.servers[0].kill();
    // The one that is lost leaves, and what it had is on three others again.
    cluster.until_active(3);
    cluster.until_settled();
    cluster.servers[1].kill();
    cluster.servers[2].kill();
    let values = (0..500).filter(|number| client.get(&format!("fill-{number}")).unwrap().is_some()).count();
    assert_eq!(values, 500, "a third copy of everything is left");
}
