//! Others' opinion on our memcached: libmemcached's checks, and what other clients' suites found (lab/conformance).

use crate::cluster::Cluster;
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

/// Of each protocol.
const CHECKS: usize = 27;
