//! Others' opinion on our memcached: libmemcached's checks.

use crate::cluster::Cluster;
use std::process::{Command, Stdio};

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

/// Of each protocol.
const CHECKS: usize = 27;
