//! What binary logs keep for later: who came and went, what a replace did, and every write that failed, with all it
//! takes to ask for it again.

use crate::client::Client;
use crate::cluster::{Cluster, KUMO, Node, strings, until};
use crate::losses::{BINARY_LOG, log_in_binary};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Command;

#[test]
fn what_failed_and_who_came_and_went_can_be_read_later() {
    let mut cluster = Cluster::start_detached(1, 0, &["-g", "gateway.mpac"]);
    log_in_binary(&mut cluster);
    for server in 0..3 {
        cluster.add_server_with(&["-g", &format!("server-{server}.mpac"), "--min-copies", "2"]);
    }
    until("the servers are known", || {
        (strings(&cluster.try_stat()?["not_attached"]).len() == 3).then_some(())
    });
    cluster.attach();
    cluster.until_active(3);
    cluster.until_served();
    // So that their links are there when one of them stops.
    let mut client = Client::open(cluster.gateway.address).unwrap();
    (0..WRITES).for_each(|key| assert!(client.set(&format!("key-{key}"), "before").unwrap()));
    assert!(client.set("count", "1").unwrap());

    // Writes that a server is sent and never answers are done when it is given up, and told.
    cluster.servers[2].signal(Signal::STOP);
    let set = |key| format!("set key-{key} 7 0 5\r\nafter\r\n");
    let writes: String = (0..WRITES).map(set).chain(["delete key-0\r\n".to_owned()]).collect();
    client.send(&writes).unwrap();
    (0..WRITES).for_each(|_| assert_eq!(client.line().unwrap(), "STORED"));
    assert_eq!(client.line().unwrap(), "DELETED");
    cluster.until_fault(2);
    let (lost, behind) = (cluster.servers[2].address.to_string(), unreplicated(&cluster));
    assert!(behind.iter().all(|fields| fields["server"] == lost.as_str()), "{behind:?}");
    assert!(!behind.is_empty());
    for key in (1..WRITES).map(|key| format!("key-{key}")) {
        let told = behind.iter().filter(|fields| fields["key"] == text(&key));
        // The gateway asks somebody else than the one that stopped, who has nothing to tell then.
        let expected = usize::from(primary(&cluster, &key) != lost);
        let told: Vec<(&Value, &Value)> = told.map(|fields| (&fields["value"], &fields["deleted"])).collect();
        assert_eq!(told, vec![(&text("after"), &json!(false)); expected], "{key}");
    }

    // Writes that are refused are told by the gateway.
    cluster.servers[1].kill();
    cluster.until_fault(1);
    for (request, value) in [("set key-1 9 0 7", "refused"), ("append key-2 0 0 4", "tail")] {
        let answer = client.ask(&format!("{request}\r\n{value}\r\n")).unwrap();
        assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
    }
    assert!(client.ask("incr count 12\r\n").unwrap().starts_with("SERVER_ERROR"));
    let failed = fields_of(&cluster, "gateway.mpac", "request failed");
    for (key, wanted) in [
        ("key-1", json!({ "operation": "set", "flags": 9, "expiry": 0, "value": text("refused") })),
        ("key-2", json!({ "operation": "append", "value": text("tail") })),
        ("count", json!({ "operation": "incr", "delta": 12 })),
    ] {
        let fields = failed.iter().find(|fields| fields["key"] == text(key)).expect("it is told");
        assert!(fields["error"].as_str().is_some_and(|error| error.contains("copies")), "{fields}");
        let wanted = wanted.as_object().unwrap();
        assert!(wanted.iter().all(|(name, value)| fields[name] == *value), "{fields}");
    }

    // Two more come, and the two that were lost are let go.
    cluster.servers[2].kill();
    (0..2).for_each(|_| cluster.add_server());
    until("they are known", || (strings(&cluster.try_stat()?["not_attached"]).len() == 2).then_some(()));
    cluster.attach();
    cluster.order(&["detach"]);
    cluster.until_active(3);
    cluster.until_settled();
    replaces_are_told(&cluster);
    println!("binary logs: {} writes without a copy, {} requests that failed", behind.len(), failed.len());
}

/// The manager's log.
fn replaces_are_told(cluster: &Cluster) {
    let told = |event| fields_of(cluster, BINARY_LOG, event);
    let address = |server: usize| json!(cluster.servers[server].address.to_string());
    for server in 0..cluster.servers.len() {
        let joined = told("joined");
        assert!(joined.iter().any(|fields| fields["server"] == address(server)), "{server} of {joined:?}");
    }
    let named =
        |event| -> Vec<Value> { told(event).into_iter().map(|fields| fields["server"].clone()).collect() };
    assert_eq!(named("lost"), [address(2), address(1)], "in their order");
    assert!(named("left").contains(&address(1)), "its connection ended");
    let spaces = told("hash space");
    let phases: Vec<&str> = spaces.iter().map(|space| space["phase"].as_str().unwrap()).collect();
    let began = phases.iter().rposition(|phase| *phase == "replace").expect("a replace");
    assert_eq!(phases[began + 1..], ["switched", "settled"], "{phases:?}");
    let last = spaces.last().unwrap();
    let there: Vec<Value> = [0, 3, 4].map(address).to_vec();
    let attached = last["attached"].as_array().unwrap();
    assert!(attached.len() == 3 && there.iter().all(|one| attached.contains(one)), "{last}");
    assert_eq!(last["fault"], json!([]), "{last}");
    let faults: Vec<&Value> = spaces.iter().map(|space| &space["fault"]).collect();
    assert!(faults.contains(&&json!([address(2)])), "{faults:?}");
}

/// Of all servers that run.
fn unreplicated(cluster: &Cluster) -> Vec<Value> {
    let of = |server: usize| fields_of(cluster, &format!("server-{server}.mpac"), "replication failed");
    let running = (0..cluster.servers.len()).filter(|&server| Node::is_running(&cluster.servers[server]));
    running.flat_map(of).collect()
}

/// Before any of them was lost.
fn primary(cluster: &Cluster, key: &str) -> String {
    let control = cluster.controls[0].to_string();
    let output = Command::new(KUMO)
        .args(["hash", "-m", &control, "--format", "json", "assign", key])
        .output()
        .unwrap();
    let assigned: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assigned[0]["rhs"][0]["address"].as_str().expect("an address").to_owned()
}

/// What a log says of all events of that name.
fn fields_of(cluster: &Cluster, log: &str, event: &str) -> Vec<Value> {
    let output = Command::new(KUMO)
        .args(["log", "--format", "json"])
        .arg(cluster.folder.path().join(log))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let entries =
        text.lines().map(|line| serde_json::from_str::<Value>(line).expect("one line of JSON each"));
    entries.filter(|entry| entry["event"] == event).map(|mut entry| entry["fields"].take()).collect()
}

/// Bytes as a log shows them.
fn text(data: &str) -> Value {
    json!({ "encoding": "utf-8", "data": data })
}

/// Fewer than a server names one by one.
const WRITES: usize = 20;
