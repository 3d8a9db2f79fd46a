//! The binary log: rotated by SIGHUP, read by kumolog. The text log: rotated too; everything, when it is asked for twice.

use crate::client::Client;
use crate::cluster::{Cluster, KUMO, strings, until};
use rustix::process::Signal;
use std::fs::OpenOptions;
use std::io::Write;
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

#[test]
fn a_text_log_that_was_renamed_is_begun_anew_on_a_hangup() {
    let mut cluster = Cluster::start(1, 1, &["-o", "gateway.text"]);
    let log = cluster.folder.path().join("gateway.text");
    let renamed = cluster.folder.path().join("gateway.text.1");
    std::fs::rename(&log, &renamed).unwrap();
    cluster.gateway.signal(Signal::HUP);
    let again = || std::fs::read_to_string(&log).ok().filter(|text| text.contains("text log reopened"));
    let text = until("the log is opened anew", again);
    assert!(!text.contains('\x1b'), "no colours in a file: {text:?}");
    let before = std::fs::read_to_string(&renamed).unwrap();
    cluster.gateway.signal(Signal::TERM);
    assert_eq!(cluster.gateway.wait(), Some(0), "the hangup ended nothing");
    assert!(!before.is_empty(), "what came before is in the old file");
    assert_eq!(std::fs::read_to_string(&renamed).unwrap(), before, "and nothing else");
}

#[test]
fn twice_verbose_shows_each_request_and_no_large_value() {
    let mut cluster = Cluster::start_detached(1, 0, &["-v"]);
    cluster.add_server_with(&["-v"]);
    until("the server is known", || (strings(&cluster.try_stat()?["not_attached"]).len() == 1).then_some(()));
    cluster.attach();
    cluster.until_active(1);
    cluster.until_served();
    let value = "v".repeat(100_000);
    assert!(Client::open(cluster.gateway.address).unwrap().set("told", &value).unwrap());
    for (node, lines) in [
        (&cluster.gateway, [r#"kind="set" key=b"told""#, r#"kind="done""#]),
        (&cluster.servers[0], [r#"key: b"told""#, "Answer"]),
    ] {
        let log = until("request and answer are in the log", || {
            Some(node.log()).filter(|log| lines.iter().all(|line| log.contains(line)))
        });
        assert!(!log.contains(&value[..1000]), "values are cut");
    }
}

#[test]
fn a_torn_end_that_was_cut_off_is_a_warning_with_its_place() {
    let mut cluster = Cluster::start(1, 1, &[]);
    cluster.servers[0].kill();
    let store = cluster.folder.path().join("store-0");
    let mut names = std::fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
    let segment = names.find(|path| path.extension().is_some_and(|end| end == "segment")).unwrap();
    let whole = segment.metadata().unwrap().len();
    OpenOptions::new().append(true).open(&segment).unwrap().write_all(b"torn").unwrap();
    cluster.servers[0].run();
    let place = format!("offset={whole} bytes=4");
    let log = until("it is told", || Some(cluster.servers[0].log()).filter(|log| log.contains(&place)));
    let line = log.lines().find(|line| line.contains(&place)).unwrap();
    let whole = cluster.folder.path().canonicalize().unwrap().join("store-0").display().to_string();
    assert!(line.contains("WARN") && line.contains(&format!("file={whole}/")), "{line}");
    assert!(log.contains(&format!("store={whole}\n")), "the store is named from the root on: {log}");
}

/// The names of all events of a log, as kumolog tells them.
pub fn events(log: &Path) -> Vec<String> {
    let output = Command::new(KUMO).args(["log", "--format", "json"]).arg(log).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let event = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect("one line of JSON each");
        value["event"].as_str().expect("a name").to_owned()
    };
    text.lines().map(event).collect()
}
