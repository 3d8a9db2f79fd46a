//! Managers that are killed while clients work: the master in a replace, and all of them.

use crate::client::Client;
use crate::cluster::{Cluster, strings, until};
use crate::load::Load;
use bytes::BytesMut;
use kumo_cluster::control::{ControlAnswer, ControlRequest, ToolAnswer, ToolRequest};
use kumo_paxos::{CellId, Hello, Incarnation, MAGIC, Side, VERSION};
use kumo_session::Greeting;
use kumo_wire::{Wire, frame};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[test]
fn the_master_is_killed_during_a_replace() {
    let mut cluster = Cluster::start(3, 3, &[]);
    Client::open(cluster.gateway.address).unwrap().fill(RECORDS, RECORD_BYTES);
    let others = [&[][..], &["--spread-reads"]].map(|options| cluster.second_gateway(options));
    let load = Load::watched(&cluster, &others.each_ref());
    load.further(OPERATIONS_BETWEEN);
    cluster.add_server();
    until("the newcomer is known", || {
        (cluster.try_stat()?["not_attached"].as_array()?.len() == 1).then_some(())
    });
    load.phase("attach");
    cluster.order(&["attach"]);
    // Slow enough to be under way for as long as this takes, and sending all the time.
    cluster.order(&["job", "pause"]);
    cluster.order(&["job", "rate", "200K"]);
    cluster.order(&["job", "resume"]);
    let sent = |cluster: &Cluster| cluster.try_stat()?["job"]["records_sent"].as_u64();
    let before = until("records are sent", || sent(&cluster).filter(|&sent| sent > 0));
    load.phase("kill -9 of the master");
    let master = cluster.master();
    cluster.managers[master].kill();
    let next = until("another one leads", || Some(cluster.master()).filter(|&next| next != master));
    assert_ne!(next, master);
    let after = until("it goes on", || sent(&cluster).filter(|&sent| sent > before));
    assert!(after < RECORDS as u64, "the replace was under way when its master died: {after} were sent");
    load.further(OPERATIONS_BETWEEN);
    load.phase("replace goes on");
    cluster.order(&["job", "rate", "0"]);
    cluster.until_settled();
    cluster.until_active(4);
    load.further(OPERATIONS_BETWEEN);
    cluster.managers[master].run();
    load.further(OPERATIONS_BETWEEN);
    let tally = load.finish();
    println!("kill -9 of the master manager in a replace: 1 of 1 took effect; {tally}");
    assert!(tally.operations() >= 4 * OPERATIONS_BETWEEN);
}

/// What a manager answers to a tool that reaches no other one, and so cannot follow to who leads.
fn asked_alone(manager: SocketAddr) -> Option<ControlAnswer> {
    let mut stream = TcpStream::connect(manager).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    let hello = Hello {
        magic: MAGIC,
        version: VERSION,
        cell: CellId(0),
        generation: 0,
        side: Side::Tool,
        address: SocketAddr::from(([0, 0, 0, 0], 0)),
        incarnation: Incarnation(0),
    };
    let mut out = BytesMut::new();
    frame::append(&Greeting::Hello(hello), &mut out);
    frame::append(&ToolRequest::Control(ControlRequest::Stat), &mut out);
    stream.write_all(&out).ok()?;
    let mut inbox = BytesMut::new();
    let mut greeted = false;
    loop {
        if let Some(body) = frame::take(&mut inbox, 1 << 20).ok()? {
            match (std::mem::replace(&mut greeted, true), ToolAnswer::from_bytes(body)) {
                (false, _) => continue,
                (true, Ok(ToolAnswer::Control(answer))) => return Some(answer),
                (true, _) => return None,
            }
        }
        let mut some = [0; 4096];
        match stream.read(&mut some).ok()? {
            0 => return None,
            read => inbox.extend_from_slice(&some[..read]),
        }
    }
}

#[test]
fn any_manager_answers_a_tool_that_reaches_no_other() {
    let cluster = Cluster::start(3, 1, &[]);
    for manager in 0..3 {
        let address = cluster.managers[manager].address;
        let stat = until("it answers itself, or asks who leads", || match asked_alone(address)? {
            ControlAnswer::Stat(stat) => Some(stat),
            // It does not know who leads, or asked one that has just ceased to.
            ControlAnswer::Master(_) => None,
            other => panic!("manager {manager} leaves the tool to itself: {other:?}"),
        });
        assert_eq!(stat.managers.len(), 3);
    }
}

#[test]
fn a_lone_manager_ends_without_an_alarm() {
    let mut cluster = Cluster::start_detached(1, 1, &[]);
    cluster.attach();
    cluster.managers[0].signal(Signal::TERM);
    assert_eq!(cluster.managers[0].wait(), Some(0));
    let log = cluster.managers[0].log();
    let (_, end) = log.split_once("stopping").expect("it says that it was told to");
    assert!(!end.contains("WARN") && !end.contains("no master"), "{end}");
}

#[test]
fn without_managers_reads_and_writes_go_on() {
    let mut cluster = Cluster::start(3, 3, &[]);
    let load = Load::start(&cluster);
    load.further(OPERATIONS_BETWEEN);
    load.phase("without managers");
    cluster.managers.iter_mut().for_each(|manager| manager.kill());
    load.further(4 * OPERATIONS_BETWEEN);
    load.phase("managers are back");
    cluster.managers.iter_mut().for_each(|manager| manager.run());
    cluster.until_active(3);
    load.further(OPERATIONS_BETWEEN);
    // They do their duty again.
    load.phase("kill -9 of a server");
    cluster.servers[2].kill();
    cluster.until_fault(2);
    load.further(OPERATIONS_BETWEEN);
    let tally = load.finish();
    println!("kill -9 of all managers: 3 of 3 took effect; {tally}");
    assert!(tally.operations() >= 7 * OPERATIONS_BETWEEN);
}

#[test]
fn managers_that_forgot_everything_are_refused_until_the_operator_rebuilds() {
    let mut cluster = Cluster::start_forgetful(3, 3);
    let load = Load::start(&cluster);
    load.further(OPERATIONS_BETWEEN);
    load.phase("managers forget");
    cluster.managers.iter_mut().for_each(|manager| manager.kill());
    cluster.managers.iter_mut().for_each(|manager| manager.run());
    // A new cell, which knows of no server that is attached; and it is told what to do about it.
    until("stat says what to do", || {
        let output = cluster.kumoctl(&["stat"]);
        let hint = String::from_utf8_lossy(&output.stderr).into_owned();
        let block = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!block.contains("(active)") && !block.contains("(fault)"), "{block}");
        (output.status.success() && hint.contains("3 connected servers") && hint.contains("rebuild"))
            .then_some(())
    });
    let attach = cluster.kumoctl(&["attach"]);
    assert_eq!(attach.status.code(), Some(1), "{attach:?}");
    assert!(String::from_utf8_lossy(&attach.stderr).contains("rebuild"), "{attach:?}");
    for server in &cluster.servers {
        assert!(server.log().contains("managers of another cell are ignored"), "{}", server.log());
    }
    load.phase("servers go on by themselves");
    let early = cluster.add_gateway(&[]);
    until("a new gateway knows of nobody", || early.log().contains("hash space").then_some(()));
    load.further(4 * OPERATIONS_BETWEEN);
    load.phase("rebuild");
    cluster.order(&["rebuild"]);
    cluster.until_active(3);
    early.until_served();
    load.further(OPERATIONS_BETWEEN);
    // The new managers do their duty.
    load.phase("kill -9 of a server");
    cluster.servers[2].kill();
    cluster.until_fault(2);
    load.further(OPERATIONS_BETWEEN);
    let tally = load.finish();
    println!("managers that forgot everything: 3 of 3 took effect; {tally}");
    assert!(tally.operations() >= 7 * OPERATIONS_BETWEEN);
}

#[test]
fn a_spare_server_serves_managers_that_forgot_everything() {
    let mut cluster = Cluster::start_forgetful(1, 2);
    cluster.add_server();
    let spare = cluster.servers[2].address.to_string();
    let waits =
        |cluster: &Cluster| strings(&cluster.try_stat()?["not_attached"]).contains(&spare).then_some(());
    until("it is known", || waits(&cluster));
    // It has heard of more changes than the new cell will make.
    cluster.servers[1].kill();
    cluster.until_fault(1);
    cluster.order(&["detach"]);
    cluster.until_settled();
    cluster.managers[0].kill();
    cluster.servers[0].kill();
    cluster.gateway.kill();
    cluster.managers[0].run();
    until("it is known again", || waits(&cluster));
    cluster.attach();
    cluster.until_active(1);
    cluster.gateway.run();
    cluster.until_served();
    let mut client = Client::open(cluster.gateway.address).unwrap();
    assert!(client.set("key", "value").unwrap());
    assert_eq!(client.get("key").unwrap().as_deref(), Some("value"));
}

const OPERATIONS_BETWEEN: u64 = 500;

/// As much as keeps a replace busy for longer than the orders take that slow it down, and then for minutes.
const RECORDS: usize = 20_000;
const RECORD_BYTES: usize = 2_000;
