//! `kumo bench cell`: every operation, verified, with the documented fields.

mod support;

use support::Cell;

#[test]
fn every_operation_is_measured_and_verified() {
    let cell = Cell::up();
    for op in ["write", "read", "lock", "queue"] {
        for contended in [false, true] {
            let mut arguments =
                vec!["bench", "cell", "--op", op, "--clients", "4", "--secs", "0.3", "--size", "200"];
            arguments.extend(contended.then_some("--contended"));
            let result = cell.json(&arguments);
            for field in ["ops_s", "p50_us", "p99_us", "p999_us", "max_us", "gap_us_max", "client_cpu_us"] {
                assert!(result[field].as_f64().unwrap() > 0.0, "{op} {field}: {result}");
            }
            assert_eq!((result["errors"].as_u64(), result["wrong"].as_u64()), (Some(0), Some(0)), "{result}");
            assert!(result["verified"].as_u64() >= result["ops"].as_u64());
        }
    }
    let pids: Vec<String> = cell.pids.iter().map(u32::to_string).collect();
    let pids = pids.join(",");
    let sync =
        ["bench", "cell", "--op", "read", "--sync", "--clients", "2", "--secs", "0.1", "--pids", &pids];
    assert!(cell.json(&sync)["server_cpu_us"].is_number());
    // Nothing is left behind.
    cell.fails(&["fs", "stat", "/bench"], 3);
    assert!(
        cell.json(&["queue", "ls"])["queues"].as_array().unwrap().iter().all(|queue| queue["ready"] == 0)
    );
}
