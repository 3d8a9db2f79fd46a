//! `kumo cell`, `kumo session` and `kumo-cell`: real replicas.

mod support;

use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use support::{Cell, KUMO, assert_status, ends, eventually, free_addresses, signal};

#[test]
fn status_tells_the_documented_fields() {
    let cell = Cell::up();
    let status = cell.json(&["cell", "status"]);
    assert_eq!(status["generation"], 1);
    assert_eq!(status["cell_id"].as_str().unwrap().len(), 32);
    assert!(cell.members.contains(status["master"].as_str().unwrap()));
    assert!(status["round"]["sequence"].as_u64().unwrap() > 0 && status["round"]["id"].is_u64());
    let replicas = status["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 3);
    for replica in replicas {
        assert_eq!((&replica["role"], &replica["state"]), (&"core".into(), &"voting".into()));
        assert!(cell.members.contains(replica["address"].as_str().unwrap()));
        assert_eq!(replica["incarnation"].as_str().unwrap().len(), 32);
        for field in ["id", "decided", "executed", "age_ms", "load"] {
            assert!(replica[field].is_u64(), "{field}");
        }
    }
    let text = String::from_utf8(cell.done(&["cell", "status"])).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("voting")).count(), 3);
    cell.done(&["cell", "wait", "--voting"]);
}

#[test]
fn operators_orders_are_carried_out_or_refused() {
    let cell = Cell::up();
    let master = |cell: &Cell| cell.json(&["cell", "wait"])["master"].as_str().unwrap().to_owned();
    let before = master(&cell);
    cell.done(&["cell", "transfer"]);
    eventually("another leads", || (master(&cell) != before).then_some(()));
    cell.fails(&["cell", "remove", "127.0.0.1:1"], 1);
    cell.fails(&["cell", "promote", "127.0.0.1:1"], 1);
    cell.fails(&["cell", "add", &before], 1);
    cell.fails(&["cell", "recover", "--from", &before, "--accept-data-loss"], 1);
    assert_eq!(cell.kumo(&["cell", "recover", "--from", &before]).status.code(), Some(2));
    assert_eq!(cell.kumo(&["cell"]).status.code(), Some(2));
    assert_eq!(cell.kumo(&["cell", "-l", &before, "status"]).status.code(), Some(2));

    let sessions = cell.json(&["session", "ls"]);
    assert!(sessions["sessions"].as_array().unwrap().is_empty());
    cell.fails(&["session", "kill", "1.99999"], 3);
    assert_eq!(cell.kumo(&["session", "kill", "x"]).status.code(), Some(2));
}

#[test]
fn a_replica_is_added_promoted_and_removed() {
    let cell = Cell::up();
    let added = free_addresses(1)[0].to_string();
    assert_eq!(cell.json(&["cell", "add", &added]), json!({ "done": "change" }));
    assert_eq!(find(&cell, &added, "role"), Some("extension".into()));
    let mut replica = join(&cell, &added, &[]);
    // It is waited for, also while it comes up.
    assert_eq!(cell.json(&["--patience", "60", "cell", "promote", &added]), json!({ "done": "change" }));
    eventually("it votes", || (find(&cell, &added, "state") == Some("voting".into())).then_some(()));
    assert_eq!(cell.json(&["cell", "remove", &added]), json!({ "done": "change" }));
    eventually("it is gone", || find(&cell, &added, "role").is_none().then_some(()));
    ends(&mut replica);
}

#[test]
fn a_voter_is_replaced_by_an_extension_that_joined_by_itself() {
    let cell = Cell::up();
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/kept"], b"still"), 0);
    let new = free_addresses(1)[0].to_string();
    let mut replica = join(&cell, &new, &["--extension", "-u", "50"]);
    eventually("it follows", || (find(&cell, &new, "role") == Some("extension".into())).then_some(()));
    // Reads may be asked of it alone.
    eventually("it answers", || {
        let output = Command::new(KUMO).args(["--cell", &new, "fs", "cat", "/kept"]).output().unwrap();
        (output.status.success() && output.stdout == b"still").then_some(())
    });
    let error = cell.fails(&["cell", "add", &new], 1);
    assert!(error.contains("member already"), "{error}");
    let master = cell.json(&["cell", "wait"])["master"].as_str().unwrap().to_owned();
    let old = cell.members.split(',').find(|member| **member != master).unwrap().to_owned();
    cell.fails(&["cell", "replace", "127.0.0.1:1", &new], 1);
    assert_eq!(cell.json(&["--patience", "60", "cell", "replace", &old, &new]), json!({ "done": "change" }));
    eventually("it votes", || (find(&cell, &new, "state") == Some("voting".into())).then_some(()));
    assert_eq!(find(&cell, &new, "role"), Some("core".into()));
    eventually("the old one is gone", || find(&cell, &old, "role").is_none().then_some(()));
    assert_eq!(cell.json(&["cell", "status"])["replicas"].as_array().unwrap().len(), 3);
    assert_eq!(cell.done(&["fs", "cat", "/kept"]), b"still");
    signal(replica.id(), Signal::TERM);
    ends(&mut replica);
}

#[test]
fn a_snapshot_is_written_when_it_is_ordered() {
    let folder = std::env::temp_dir().join(format!("kumo-snapshot-{}", std::process::id()));
    let cell = Cell::up_with(&["--data", folder.to_str().unwrap()]);
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/x"], b"1"), 0);
    let snapshots = || {
        let mut found = Vec::new();
        let mut folders = vec![folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => folders.push(entry.path()),
                    false => found.push(entry.path()),
                }
            }
        }
        found.retain(|path| path.file_name().unwrap().to_str().unwrap().contains("snapshot"));
        found.len()
    };
    let before = snapshots();
    assert_eq!(cell.json(&["cell", "snapshot"]), json!({ "done": "snapshot" }));
    eventually("there is one more", || (snapshots() > before).then_some(()));
    drop(cell);
    std::fs::remove_dir_all(&folder).unwrap();
    // One that keeps nothing says so.
    Cell::up().fails(&["cell", "snapshot"], 1);
}

/// A replica that dials all members of the cell.
fn join(cell: &Cell, address: &str, options: &[&str]) -> Child {
    let peers = cell.members.split(',').flat_map(|member| ["-p", member]);
    Command::new(KUMO)
        .arg0("kumo-cell")
        .args(["-l", address, "--exit-on-stdin-eof", "--log-level", "error"])
        .args(options)
        .args(peers)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What status says of one replica.
fn find(cell: &Cell, address: &str, field: &str) -> Option<Value> {
    let status = cell.json(&["cell", "status"]);
    let replicas = status["replicas"].as_array().unwrap().clone();
    replicas.into_iter().find(|one| one["address"] == address).map(|one| one[field].clone())
}

#[test]
fn a_cell_of_up_with_a_folder_remembers() {
    let folder = std::env::temp_dir().join(format!("kumo-up-{}", std::process::id()));
    let data = folder.to_str().unwrap().to_owned();
    {
        let cell = Cell::up_with(&["--data", &data]);
        assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/kept"], b"still"), 0);
    }
    {
        let cell = Cell::up_with(&["--data", &data]);
        assert_eq!(cell.done(&["fs", "cat", "/kept"]), b"still");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_cell_goes_on_without_one_replica_and_stops_without_two() {
    let cell = Cell::up();
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/x"], b"1"), 0);
    signal(cell.pids[0], Signal::KILL);
    assert_status(&["put"], &cell.kumo_with(&["fs", "put", "/x"], b"2"), 0);
    let lost = cell.members.split(',').next().unwrap().to_owned();
    eventually("it is seen to be down", || {
        (find(&cell, &lost, "state") == Some("down".into())).then_some(())
    });
    cell.fails(&["cell", "wait", "--voting", "--timeout", "0.5"], 3);
    signal(cell.pids[1], Signal::KILL);
    cell.fails(&["fs", "put", "/x", "--patience", "2"], 5);
    let status = cell.kumo(&["cell", "status", "--format", "json"]);
    assert_status(&["status"], &status, 5);
    let known: Value = serde_json::from_slice(&status.stdout).expect("what is known is printed");
    assert_eq!(known["master"], Value::Null);
    cell.fails(&["cell", "wait", "--timeout", "0.5"], 5);
    signal(cell.pids[2], Signal::KILL);
    cell.fails(&["fs", "cat", "/x", "--patience", "0.5"], 4);
}

#[test]
fn a_taken_port_is_one_line_and_status_1() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    for arguments in [vec!["-l", &address], vec!["-l", &address, "--exit-on-stdin-eof"]] {
        let output = Command::new(KUMO)
            .arg0("kumo-cell")
            .args(&arguments)
            .args(["--log-level", "error"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_status(&arguments, &output, 1);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("is taken") && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_cell_of_one_ends_cleanly_when_told() {
    let address = free_addresses(1)[0].to_string();
    let mut daemon = Command::new(KUMO)
        .args(["cell", "-l", &address, "--log-level", "error"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let kumo =
        |arguments: &[&str]| Command::new(KUMO).args(["--cell", &address]).args(arguments).output().unwrap();
    assert_status(&["wait"], &kumo(&["cell", "wait", "--voting"]), 0);
    assert_status(&["mkdir"], &kumo(&["fs", "mkdir", "/one"]), 0);
    signal(daemon.id(), Signal::TERM);
    assert!(ends(&mut daemon).success());
}
