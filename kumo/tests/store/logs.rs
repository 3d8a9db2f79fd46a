//! The binary log: rotated by SIGHUP, read by kumolog.

use crate::cluster::{Cluster, KUMO, until};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

#[test]
fn a_log_that_was_renamed_is_begun_anew_on_a_hangup() {
    let mut cluster = Cluster::start(1, 1, &["-g", "gateway.mpac"]);
    let log = cluster.folder.path().join("gateway.mpac");
    let renamed = cluster.folder.path().join("gateway.mpac.1");
    std::fs::rename(&log, &renamed).unwrap();
    cluster.gateway.signal(Signal::HUP);
    until("the log is opened anew", || log.exists().then_some(()));
    cluster.gateway.signal(Signal::TERM);
    assert_eq!(cluster.gateway.wait(), Some(0), "the hangup ended nothing");
    let (before, after) = (events(&renamed), events(&log));
    assert!(before.contains(&"start".to_owned()), "{before:?}");
    assert!(!before.contains(&"end".to_owned()), "{before:?}");
    assert_eq!(after.last().map(String::as_str), Some("end"), "{after:?}");
}

/// The names of all events of a log, as kumolog tells them.
fn events(log: &Path) -> Vec<String> {
    let output = Command::new(KUMO).args(["log", "--format", "json"]).arg(log).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let event = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect("one line of JSON each");
        value["event"].as_str().expect("a name").to_owned()
    };
    text.lines().map(event).collect()
}
