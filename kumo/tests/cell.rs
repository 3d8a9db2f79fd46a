//! `kumo cell`, `kumo session` and `kumo-cell`: real replicas.

mod support;

use rustix::process::Signal;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
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
    let mut peers: Vec<&str> = Vec::new();
    for member in cell.members.split(',') {
        peers.extend(["-p", member]);
    }
    let mut replica = Command::new(KUMO)
        .arg0("kumo-cell")
        .args(["-l", &added, "--exit-on-stdin-eof", "--log-level", "error"])
        .args(peers)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It must be connected before it can be a member.
    eventually("it is taken in", || cell.kumo(&["cell", "add", &added]).status.success().then_some(()));
    let find = |field: &str| {
        let status = cell.json(&["cell", "status"]);
        let replicas = status["replicas"].as_array().unwrap().clone();
        replicas.into_iter().find(|one| one["address"] == added).map(|one| one[field].clone())
    };
    assert_eq!(find("role"), Some("extension".into()));
    eventually("it has caught up", || cell.kumo(&["cell", "promote", &added]).status.success().then_some(()));
    eventually("it votes", || (find("state") == Some("voting".into())).then_some(()));
    cell.done(&["cell", "remove", &added]);
    eventually("it is gone", || find("role").is_none().then_some(()));
    ends(&mut replica);
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
    signal(cell.pids[1], Signal::KILL);
    cell.fails(&["fs", "put", "/x", "--patience", "2"], 5);
    let status = cell.kumo(&["cell", "status", "--format", "json"]);
    assert_status(&["status"], &status, 5);
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
