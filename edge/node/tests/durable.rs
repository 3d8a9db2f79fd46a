//! A durable node keeps its memory through restarts, and knows when it cannot trust it.

mod common;

use common::{Running, Session, members, scratch};
use kumo_node::{NodeConfig, NodeError};
use kumo_pfs::Reply;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// Starts a node again at the address it had.
fn again(config: &NodeConfig) -> Running {
    Running::start(config.clone(), TcpListener::bind(config.listen).unwrap())
}

fn alone(name: &str) -> (PathBuf, NodeConfig, Running) {
    let folder = scratch(name);
    let (config, listener) = members(1, Some(&folder)).remove(0);
    let node = Running::start(config.clone(), listener);
    (folder, config, node)
}

fn log(config: &NodeConfig) -> PathBuf {
    config.data.as_ref().unwrap().join("log-1")
}

fn refused(config: &NodeConfig) -> NodeError {
    again(config).end().unwrap_err()
}

fn incarnation(config: &NodeConfig) -> kumo_paxos::Incarnation {
    common::Raw::connect(config.listen).greet(common::hello()).incarnation
}

#[test]
fn a_cell_stopped_as_a_whole_remembers_everything() {
    let folder = scratch("whole");
    let members = members(3, Some(&folder));
    let configs: Vec<NodeConfig> = members.iter().map(|(config, _)| config.clone()).collect();
    let nodes: Vec<Running> =
        members.into_iter().map(|(config, listener)| Running::start(config, listener)).collect();
    let mut session = Session::open(configs[0].listen, 1);
    for count in 0..50 {
        session.write(&format!("/file-{count}"), format!("{count}"));
    }
    session.write("/large", vec![3; 2_000_000]);
    nodes.into_iter().for_each(|node| node.stop().unwrap());

    let nodes: Vec<Running> = configs.iter().map(again).collect();
    let mut session = Session::open(configs[0].listen, 2);
    for count in 0..50 {
        assert_eq!(session.data(&format!("/file-{count}")), format!("{count}"));
    }
    assert_eq!(session.data("/large"), vec![3; 1 << 20]);
    nodes.into_iter().for_each(|node| node.stop().unwrap());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_snapshot_replaces_the_log_before_it() {
    let (folder, config, node) = alone("snapshot");
    let mut session = Session::open(config.listen, 1);
    session.write("/before", "a");
    session.raw.send(&kumo_session::ClientMessage::Snapshot { tag: 1 });
    let data = config.data.clone().unwrap();
    // Each write is a turn that lets the snapshot go on.
    let mut count = 0;
    while log(&config).exists() {
        count += 1;
        assert!(count < 10_000, "the old log is still there");
        session.write("/between", format!("{count}"));
    }
    assert!(data.join("snapshot-2").exists() && data.join("log-2").exists());
    session.write("/after", "c");
    let life = incarnation(&config);
    node.stop().unwrap();

    let node = again(&config);
    assert_eq!(incarnation(&config), life);
    let mut session = Session::open(config.listen, 2);
    assert_eq!(session.data("/before"), "a");
    assert_eq!(session.data("/between"), format!("{count}"));
    assert_eq!(session.data("/after"), "c");
    node.stop().unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_torn_tail_is_cut_and_the_rest_kept() {
    let (folder, config, node) = alone("torn");
    let mut session = Session::open(config.listen, 1);
    session.write("/kept", "whole");
    let life = incarnation(&config);
    node.stop().unwrap();
    let mut bytes = fs::read(log(&config)).unwrap();
    bytes.extend_from_slice(&[200, 0, 0, 0, 1, 2, 3, 4, 5]);
    fs::write(log(&config), &bytes).unwrap();

    let node = again(&config);
    assert_eq!(incarnation(&config), life);
    let mut session = Session::open(config.listen, 2);
    assert_eq!(session.data("/kept"), "whole");
    session.write("/kept", "again");
    node.stop().unwrap();
    let node = again(&config);
    assert_eq!(Session::open(config.listen, 3).data("/kept"), "again");
    node.stop().unwrap();
    fs::remove_dir_all(folder).unwrap();
}

fn aside(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("damaged-")).collect()
}

#[test]
fn damage_makes_a_new_incarnation_and_the_files_are_kept_aside() {
    let (folder, config, node) = alone("damage");
    let mut session = Session::open(config.listen, 1);
    for count in 0..20 {
        session.write("/lost", format!("{count}"));
    }
    let life = incarnation(&config);
    node.stop().unwrap();
    let mut bytes = fs::read(log(&config)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(log(&config), &bytes).unwrap();

    let node = again(&config);
    assert_ne!(incarnation(&config), life);
    let aside = aside(config.data.as_ref().unwrap());
    assert_eq!(aside.len(), 1);
    assert_eq!(fs::read(aside[0].join("log-1")).unwrap(), bytes);
    // Its only member forgot: this is another cell.
    assert!(matches!(Session::open(config.listen, 2).read("/lost"), Reply::Refused(_)));
    node.stop().unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_failed_sync_makes_a_new_incarnation() {
    let (folder, config, node) = alone("untrusted");
    Session::open(config.listen, 1).write("/lost", "x");
    let life = incarnation(&config);
    node.stop().unwrap();
    let data = config.data.clone().unwrap();
    fs::rename(data.join("trusted"), data.join("untrusted")).unwrap();
    let node = again(&config);
    assert_ne!(incarnation(&config), life);
    assert_eq!(aside(&data).len(), 1);
    node.stop().unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn files_that_are_not_ours_are_refused_and_left_alone() {
    let (folder, config, node) = alone("foreign");
    Session::open(config.listen, 1).write("/kept", "x");
    let path = config.data.clone().unwrap();
    let second = refused_data(&config);
    assert_eq!(second, format!("--data {} is in use by another process", path.display()));
    node.stop().unwrap();
    let good = fs::read(log(&config)).unwrap();

    let of_format = |format: u8| {
        let mut bytes = good.clone();
        bytes[8] = format;
        let check = crc32fast::hash(&bytes[..20]);
        bytes[20..24].copy_from_slice(&check.to_le_bytes());
        bytes
    };
    let file = log(&config).display().to_string();
    for (bytes, text) in [
        (of_format(4), format!("data in {file} is of a newer format (4; this kumo reads up to 3)")),
        (
            of_format(2),
            format!(
                "data in {file} is of an older format (2; this kumo reads 3): start the kumo that wrote it, or see \
                 docs/how-to/upgrade.md"
            ),
        ),
        (b"#!/bin/sh\n".to_vec(), format!("{} is not a kumo file", log(&config).display())),
    ] {
        fs::write(log(&config), &bytes).unwrap();
        assert_eq!(refused(&config).to_string(), text);
        assert_eq!(fs::read(log(&config)).unwrap(), bytes, "nothing overwritten");
    }
    fs::write(log(&config), good).unwrap();
    let node = again(&config);
    assert_eq!(Session::open(config.listen, 2).data("/kept"), "x");
    node.stop().unwrap();
    fs::remove_dir_all(folder).unwrap();
}

/// What a second process on the same folder is told.
fn refused_data(config: &NodeConfig) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = NodeConfig { listen: listener.local_addr().unwrap(), ..config.clone() };
    Running::start(config, listener).end().unwrap_err().to_string()
}
