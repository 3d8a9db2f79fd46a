//! `kumo bench store`: every operation, verified, with the documented fields.

use crate::cluster::{Cluster, KUMO};
use serde_json::Value;
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

#[test]
fn every_operation_is_measured_and_verified() {
    let mut cluster = Cluster::start(1, 3, &[]);
    let address = cluster.gateway.address.to_string();
    let pids: Vec<String> = cluster.nodes().map(|node| node.pid().to_string()).collect();
    let pids = pids.join(",");
    let manager = cluster.managers[0].address.to_string();
    let (gateway, native) = (["--addr", address.as_str()], ["--managers", manager.as_str()]);
    let mut runs = Vec::new();
    for op in ["set", "get", "mixed", "mget"] {
        runs.extend([(op, gateway, None), (op, native, None)]);
    }
    runs.push(("mixed", gateway, Some("200")));
    for (op, target, rate) in runs {
        let mut arguments =
            vec!["--op", op, "--conns", "4", "--pipeline", "4", "--keys", "500", "--pids", &pids];
        arguments.extend(target);
        arguments.extend(rate.iter().flat_map(|rate| ["--rate", rate]));
        let output = bench(&arguments);
        assert!(output.status.success(), "{op}: {output:?}");
        let result: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
        for field in ["ops_s", "p50_us", "p99_us", "p999_us", "max_us", "gap_us_max", "client_cpu_us"] {
            assert!(result[field].as_f64().unwrap() > 0.0, "{op} {field}: {result}");
        }
        for field in ["misses", "errors", "wrong"] {
            assert_eq!(result[field], 0, "{op} {field}: {result}");
        }
        assert!(result["server_cpu_us"].is_number(), "{result}");
        if op == "get" || op == "mget" {
            let read = result["ops"].as_u64().unwrap() * result["keys_per_op"].as_u64().unwrap();
            assert_eq!(result["verified"].as_u64(), Some(read), "{result}");
        }
    }
}

#[test]
fn a_plan_that_cannot_work_is_refused_in_one_line() {
    for (arguments, status) in [
        (&["--op", "set", "--conns", "8", "--keys", "4"][..], 2),
        (&["--op", "set", "--size", "0"], 2),
        (&["--op", "set", "--cell", "127.0.0.1:1"], 2),
        (&["--op", "get", "--pids", "4294967295"], 1),
        (&["--op", "get"], 4),
    ] {
        let output = bench(&[&["--addr", "127.0.0.1:1"], arguments].concat());
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty());
    }
}

#[test]
fn a_store_that_serves_nothing_is_a_failure() {
    let output = bench(&["--op", "get", "--managers", "127.0.0.1:1", "--patience", "0.5"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    // Whoever listens there hangs up on everybody.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let output = bench(&["--op", "set", "--conns", "2", "--addr", &address]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!(result["ops"], 0, "{result}");
}

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(KUMO);
    command.args(["bench", "store", "--secs", "0.5", "--format", "json"]);
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}
