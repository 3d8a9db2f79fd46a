//! HTTP of real processes: what can be scraped, what the dashboard is told and may order, and what strangers may not.

#[allow(dead_code)] // The store's tests use more of it.
#[path = "store/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "store/cluster.rs"]
mod cluster;
mod http_client;

use client::Client;
use cluster::{Cluster, Folder, KUMO, Node, free_addresses, until, words};
use http_client::{Asked, Stream, get, get_json, head_of, post, post_with};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};

#[test]
fn every_process_says_whether_it_lives_and_serves_and_what_it_measures() {
    let mut cluster = Cluster::start_detached(1, 3, &[]);
    let (manager, gateway) = (http(&cluster.managers[0]), http(&cluster.gateway));
    let servers: Vec<SocketAddr> = cluster.servers.iter().map(http).collect();
    let everybody: Vec<SocketAddr> = [manager, gateway].into_iter().chain(servers.iter().copied()).collect();
    for &process in &everybody {
        assert_eq!(
            (get(process, "/health").status, get(process, "/health").text()),
            (200, "ok\n".to_owned())
        );
    }
    until("the manager serves", || (get(manager, "/ready").status == 200).then_some(()));
    for &process in servers.iter().chain([&gateway]) {
        until("it says why it does not serve", || {
            let answer = get(process, "/ready");
            assert_eq!(answer.text().lines().count(), 1);
            (answer.status == 503 && answer.text().contains("attached")).then_some(())
        });
    }
    cluster.attach();
    cluster.until_served();
    for &process in &everybody {
        until("it serves", || (get(process, "/ready").status == 200).then_some(()));
    }
    let mut client = Client::open(cluster.gateway.address).expect("the gateway listens");
    for number in 0..100 {
        assert!(client.set(&format!("key-{number}"), "value").unwrap());
        client.get(&format!("key-{number}")).unwrap().expect("it was set");
    }
    let measured = |process, name: &str| metrics(process).get(name).copied().unwrap_or(-1.0);
    until("the gateway counts", || {
        let count = |operation: &str, name: &str| {
            measured(gateway, &format!("kumo_gateway_{name}{{operation=\"{operation}\"}}"))
        };
        let all = [("set", "requests_total"), ("get", "requests_total"), ("get", "request_seconds_count")];
        all.iter().all(|(operation, name)| count(operation, name) >= 100.0).then_some(())
    });
    assert!(measured(gateway, "kumo_gateway_hits_total") >= 100.0);
    for &server in &servers {
        until("the server counts", || {
            let stored = measured(server, "kumo_server_items") >= 100.0;
            let leased = measured(server, "kumo_server_lease_remaining_seconds") > 0.0;
            let copied = measured(server, "kumo_server_messages_total{kind=\"replicate\"}") > 0.0;
            (stored && leased && copied).then_some(())
        });
    }
    until("the manager tells of the cluster", || {
        let active = measured(manager, "kumo_cluster_servers{state=\"active\"}") == 3.0;
        let leads = measured(manager, "kumo_cell_is_master") == 1.0;
        (active && leads && measured(manager, "kumo_cell_executed_instance") > 0.0).then_some(())
    });
    for &process in &everybody {
        check_by_promtool(process);
    }
    // Only what is asked of all processes is there.
    assert_eq!(get(gateway, "/v1/cluster").status, 404);
    // A process that ends takes its port with it.
    cluster.gateway.kill();
    assert!(Asked::try_get(gateway, "/health").is_none());
}

/// Whoever is to look after it must reach a manager: readiness is of the process, and takes it out of a service.
#[test]
fn keys_out_of_reach_are_measured_and_their_managers_stay_ready() {
    let mut cluster = Cluster::start(1, 1, &[]);
    let manager = http(&cluster.managers[0]);
    let unreachable = || metrics(manager)["kumo_cluster_unreachable_ratio"];
    assert_eq!(unreachable(), 0.0);
    cluster.servers[0].kill();
    cluster.until_fault(0);
    until("it is measured", || (unreachable() == 1.0).then_some(()));
    assert_eq!((get(manager, "/ready").status, get(manager, "/health").status), (200, 200));
    until("the page tells it", || {
        let health = get_json(manager, "/v1/cluster")["health"].clone();
        let text = health["reasons"][0]["text"].as_str()?.to_owned();
        (health["level"] == "stopped" && text.contains("keys cannot be reached")).then_some(())
    });
    cluster.servers[0].run();
    until("the last owner is back", || (unreachable() == 0.0).then_some(()));
}

#[test]
fn the_page_is_told_of_a_loss_and_brings_a_server_in() {
    let mut cluster = Cluster::start(3, 3, &[]);
    let board = http(&cluster.managers[0]);
    until("three managers and three servers are healthy", || {
        let snapshot = get_json(board, "/v1/cluster");
        (snapshot["health"]["level"] == "healthy").then_some(())
    });
    let snapshot = get_json(board, "/v1/cluster");
    assert_eq!(snapshot["self"]["kind"], "manager");
    assert_eq!(snapshot["self"]["access"], "open");
    assert_eq!(snapshot["health"]["reasons"], json!([]));
    assert_eq!(snapshot["cell"]["voting"], 3);
    assert_eq!(snapshot["cell"]["master"], snapshot["store"]["master"]);
    let replicas = snapshot["cell"]["replicas"].as_array().expect("a list");
    assert!(replicas.len() == 3 && replicas.iter().all(|one| one["executed"].as_u64() > Some(0)));
    for server in snapshot["store"]["servers"].as_array().expect("a list") {
        assert_eq!((&server["state"], &server["place"]), (&json!("active"), &json!("attached")), "{server}");
        assert_eq!((&server["share"], &server["answers"]), (&json!(1.0), &json!(true)), "{server}");
    }
    let ring = get_json(board, "/v1/ring");
    assert_eq!(ring["number"], snapshot["store"]["space"]["number"]);
    let points = |server: &Value| server["points"].as_array().expect("a list").len();
    assert!(ring["servers"].as_array().expect("a list").iter().all(|server| points(server) == 128));

    let mut stream = Stream::open(board, "/v1/events");
    let mut client = Client::open(cluster.gateway.address).expect("the gateway listens");
    stream.until("rates and latencies are told", |snapshot| {
        for number in 0..50 {
            client.set(&format!("key-{number}"), "value").unwrap();
        }
        let rates = &snapshot["store"]["rates"];
        (rates["sets"].as_f64()? > 0.0 && rates["p99_ms"].as_f64()? > 0.0).then_some(())
    });
    let lost = cluster.servers[2].address.to_string();
    cluster.servers[2].kill();
    let server = |snapshot: &Value, address: &str| -> Option<Value> {
        let servers = snapshot["store"]["servers"].as_array()?.iter();
        servers.into_iter().find(|server| server["address"] == address).cloned()
    };
    let reasons = stream.until("the loss is told", |snapshot| {
        let fault = server(snapshot, &lost)?["state"] == "fault";
        (fault && snapshot["health"]["level"] == "under_replicated")
            .then(|| snapshot["health"]["reasons"].to_string())
    });
    assert!(reasons.contains(&lost) && reasons.contains("2 copies"), "{reasons}");

    cluster.add_server();
    let comer = cluster.servers[3].address.to_string();
    stream.until("the newcomer is told", |snapshot| {
        (server(snapshot, &comer)?["state"] == "waiting").then_some(())
    });
    let plan = get_json(board, &format!("/v1/plan?attach={comer}&detach={lost}"));
    let shares = plan["servers"].as_array().expect("a list");
    assert!(shares.iter().any(|one| one["address"] == comer && one["share_after"] == 1.0), "{plan}");
    assert_eq!(
        post(board, "/v1/detach", &json!({ "servers": [lost], "replace": false })),
        (200, json!({ "done": true }))
    );
    assert_eq!(post(board, "/v1/attach", &json!({ "servers": [comer] })), (200, json!({ "done": true })));
    stream.until("the newcomer has all and the store is healthy", |snapshot| {
        let attached = server(snapshot, &comer)?["place"] == "attached";
        let gone = server(snapshot, &lost).is_none();
        (attached && gone && snapshot["health"]["level"] == "healthy").then_some(())
    });
    let (status, refused) = post(board, "/v1/job", &json!({ "order": "pause" }));
    assert_eq!((status, refused["error"].as_str().is_some()), (409, true), "{refused}");
}

#[test]
fn files_locks_queues_and_sessions_are_shown_a_page_at_a_time() {
    let cell = Replica::start(&["--http", "127.0.0.1:0"]);
    let board = cell.http();
    until("the cell serves", || (get(board, "/ready").status == 200).then_some(()));
    let snapshot = get_json(board, "/v1/cluster");
    assert_eq!((&snapshot["self"]["kind"], &snapshot["store"]), (&json!("cell"), &json!(null)));
    assert_eq!(snapshot["health"]["level"], "one_loss", "a cell of one");
    assert_eq!(get(board, "/v1/ring").status, 404);
    assert_eq!(post(board, "/v1/attach", &json!({})).0, 404);

    for number in 0..5 {
        cell.done(&["fs", "put", &format!("/tree/file-{number}"), "-"], b"some text");
    }
    cell.done(&["fs", "put", "/tree/bytes", "-"], b"\xff\xfe\x00");
    cell.done(&["queue", "post", "jobs", "resize 7"], b"");
    let first = get_json(board, "/v1/fs/list?path=/tree&count=4");
    assert_eq!((&first["total"], &first["next"]), (&json!(6), &json!(4)));
    let second = get_json(board, "/v1/fs/list?path=/tree&count=4&index=4");
    assert_eq!((second["entries"].as_array().map(Vec::len), &second["next"]), (Some(2), &json!(null)));
    assert_eq!(get_json(board, "/v1/fs/stat?path=/tree/file-1")["length"], 9);
    let text = get_json(board, "/v1/fs/read?path=/tree/file-1&length=4");
    assert_eq!((&text["data"], &text["more"]), (&json!("some"), &json!(true)));
    let bytes = get_json(board, "/v1/fs/read?path=/tree/bytes");
    assert_eq!((&bytes["encoding"], &bytes["data"]), (&json!("base64"), &json!("//4A")));
    assert_eq!(get(board, "/v1/fs/stat?path=/nothing").status, 404);
    for bad in
        ["/v1/fs/list", "/v1/fs/list?path=/&count=0", "/v1/fs/read?path=relative", "/v1/locks?count=many"]
    {
        let answer = get(board, bad);
        assert_eq!(answer.status, 400, "{bad}");
        assert!(answer.json()["error"].is_string(), "{bad}");
    }
    assert_eq!(
        get_json(board, "/v1/queues")["queues"],
        json!([{ "name": "jobs", "ready": 1, "hidden": 0, "waiting": 0 }])
    );

    until("the cell counts", || {
        let metrics = metrics(board);
        let count = |name: &str| metrics.get(name).copied().unwrap_or(-1.0);
        let counted = count("kumo_cell_requests_total{operation=\"write\"}") >= 6.0;
        let timed = count("kumo_cell_request_seconds_count{operation=\"post\"}") >= 1.0;
        (counted && timed && count("kumo_pfs_files") == 6.0 && count("kumo_pfs_messages") == 1.0)
            .then_some(())
    });
    check_by_promtool(board);

    let holder = cell.waiting(&["lock", "deploy", "--", "cat"]);
    let held = |count: usize, who: &str| {
        until("the lock is told", || {
            let locks = get_json(board, "/v1/locks");
            let lock = locks["locks"].as_array()?.first()?.clone();
            (lock["name"] == "deploy" && lock[who].as_array()?.len() == count).then_some(lock)
        })
    };
    let lock = held(1, "holders");
    let waiter = cell.waiting(&["lock", "deploy", "--", "cat"]);
    let waited = held(1, "waiters");
    assert_eq!((&waited["holders"], &waited["waiters_total"]), (&lock["holders"], &json!(1)));
    let sessions = get_json(board, "/v1/sessions");
    let ids: Vec<&Value> =
        sessions["sessions"].as_array().expect("a list").iter().map(|one| &one["id"]).collect();
    assert!(ids.contains(&&waited["holders"][0]) && ids.contains(&&waited["waiters"][0]), "{sessions}");
    let page = get_json(board, "/v1/sessions?count=1");
    let rest =
        get_json(board, &format!("/v1/sessions?after={}", page["next"].as_str().expect("there are more")));
    assert_eq!(rest["sessions"].as_array().map(Vec::len), Some(ids.len() - 1));
    drop((holder, waiter));
    until("the lock is free", || get_json(board, "/v1/locks")["locks"].as_array()?.is_empty().then_some(()));
}

#[test]
fn strangers_and_other_sites_learn_and_order_nothing() {
    let folder = Folder::new();
    let token = folder.path().join("token");
    std::fs::write(&token, "a-good-token\n").unwrap();
    let cell = Replica::start(&["--http", "127.0.0.1:0", "--http-token", token.to_str().unwrap()]);
    let board = cell.http();
    let json = "Content-Type: application/json";
    let bearer = "Authorization: Bearer a-good-token";
    let host = board.to_string();
    let with = |header: &str, path: &str| Asked::new("GET", path, &host).with(header).send(board, b"");
    assert_eq!(with(bearer, "/v1/cluster").json()["self"]["access"], "token");
    for path in READS {
        let stranger = get(board, path);
        assert_eq!((stranger.status, stranger.header("www-authenticate")), (401, Some("Bearer")), "{path}");
        assert!(stranger.json()["error"].is_string(), "{path}");
        assert_eq!(with("Authorization: Bearer a-bad-token!", path).status, 401, "{path}");
    }
    assert_eq!(with(bearer, "/v1/fs/list?path=/").status, 200);
    for probe in ["/health", "/ready", "/metrics"] {
        until("probes need no token", || (get(board, probe).status == 200).then_some(()));
    }
    // The right token reaches the board, which has no store; everything else is refused before.
    for (headers, status) in [
        (&["X-Kumo: write", json, bearer][..], 404),
        (&["X-Kumo: write", json], 401),
        (&["X-Kumo: write", json, "Authorization: Bearer a-bad-token!"], 401),
        (&[json, bearer], 403),
        (&["X-Kumo: write", "Content-Type: text/plain", bearer], 415),
        (&["X-Kumo: write", json, bearer, "Origin: http://elsewhere.example"], 403),
        (&["X-Kumo: write", json, bearer, "Sec-Fetch-Site: cross-site"], 403),
    ] {
        let answer = post_with(board, "/v1/attach", headers, b"{}");
        assert_eq!(answer.status, status, "{headers:?}");
        assert!(answer.json()["error"].is_string(), "{headers:?}");
    }
    let elsewhere = Asked::new("GET", "/v1/cluster", "elsewhere.example").with(bearer).send(board, b"");
    assert_eq!(elsewhere.status, 403, "a name that another site had point here");
    for (path, kind) in [("/", "text/html"), ("/style.css", "text/css"), ("/main.js", "text/javascript")] {
        let file = get(board, path);
        assert_eq!(file.status, 200, "{path}");
        assert!(file.header("content-type").is_some_and(|given| given.starts_with(kind)), "{path}");
        let policy = file.header("content-security-policy").expect("a policy");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
    }
}

#[test]
fn on_a_network_nothing_is_told_without_a_token() {
    let cell = Replica::start(&["--http", "0.0.0.0:0"]);
    let board = SocketAddr::from(([127, 0, 0, 1], cell.http().port()));
    for path in READS {
        let answer = get(board, path);
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.text().contains("--http-token"), "{path}: {}", answer.text());
    }
    assert_eq!(post(board, "/v1/attach", &json!({})).0, 403);
    for open in ["/", "/main.js", "/health", "/metrics"] {
        assert_eq!(get(board, open).status, 200, "{open}");
    }
    assert!(cell.node.log().contains("without --http-token"), "{}", cell.node.log());
}

#[test]
fn what_is_too_long_too_slow_or_too_much_is_refused() {
    let cell = Replica::start(&["--http", "127.0.0.1:0"]);
    let board = cell.http();
    let slow = head_of(board, "GET /health HTTP/1.1\r\nHost: localhost\r\n");
    let write = ["X-Kumo: write", "Content-Type: application/json"];
    assert_eq!(post_with(board, "/v1/attach", &write, &vec![b' '; 70_000]).status, 413);
    assert_eq!(post_with(board, "/v1/attach", &write, b"{\"servers\": 7}").status, 400);
    assert_eq!(post_with(board, "/v1/attach", &write, b"{\"surprise\": true}").status, 400);
    let long = format!("X-Long: {}", "a".repeat(40_000));
    assert_eq!(Asked::new("GET", "/health", "localhost").with(&long).send(board, b"").status, 431);
    let streams: Vec<Stream> = (0..64).map(|_| Stream::open(board, "/v1/events")).collect();
    let further = get(board, "/v1/events");
    assert_eq!(further.status, 503, "{}", further.text());
    drop(streams);
    until("streams that ended make room", || Stream::try_open(board, "/v1/events").map(|_| ()));
    // Connections that say nothing hold nothing up but themselves.
    let silent: Vec<_> = (0..100).map(|_| head_of(board, "")).collect();
    assert_eq!(get(board, "/health").status, 200);
    drop(silent);
    assert!(slow.ends(), "a head that never ends is not waited for");
}

#[test]
fn a_taken_port_matters_only_when_it_was_named() {
    let first = Replica::start(&[]);
    let second = Replica::start(&[]);
    assert_ne!(first.http(), second.http(), "each has a port of its own");
    for replica in [&first, &second] {
        assert_eq!(get(replica.http(), "/health").status, 200);
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let named = taken.local_addr().unwrap().to_string();
    let listen = free_addresses(1)[0].to_string();
    let output =
        Command::new(KUMO).args(["cell", "-l", &listen, "--log-level", "error", "--http", &named]).output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said, format!("kumo: address {named} is taken by another process\n"));
    let silent = Replica::start(&["--http", "off"]);
    until("it runs", || silent.node.log().contains("listening").then_some(()));
    assert!(!silent.node.log().contains("http"), "{}", silent.node.log());
}

/// Everything that can be read of the cluster.
const READS: [&str; 10] = [
    "/v1/cluster",
    "/v1/events",
    "/v1/ring",
    "/v1/plan",
    "/v1/sessions",
    "/v1/locks",
    "/v1/queues",
    "/v1/fs/list?path=/",
    "/v1/fs/stat?path=/",
    "/v1/fs/read?path=/x",
];

/// A cell of one, with its log.
struct Replica {
    node: Node,
    _folder: Folder,
}

impl Replica {
    fn start(options: &[&str]) -> Replica {
        let folder = Folder::new();
        let address = free_addresses(1)[0];
        let mut arguments = words(&["cell", "-l", &address.to_string()]);
        arguments.extend(words(options));
        let mut node = Node::new(&folder, "cell".to_owned(), address, arguments);
        node.run();
        Replica { node, _folder: folder }
    }

    fn http(&self) -> SocketAddr {
        http(&self.node)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(KUMO);
        command.args(arguments).env("KUMO_CELL", self.node.address.to_string()).stdin(Stdio::piped());
        command
    }

    /// Runs a command that must succeed.
    fn done(&self, arguments: &[&str], input: &[u8]) {
        let mut child = self.command(arguments).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        assert!(child.wait().unwrap().success(), "{arguments:?}");
    }

    /// Runs a command that ends with its standard input.
    fn waiting(&self, arguments: &[&str]) -> Waiting {
        Waiting(self.command(arguments).stdout(Stdio::null()).spawn().unwrap())
    }
}

struct Waiting(std::process::Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where a process serves HTTP, as its log says.
fn http(node: &Node) -> SocketAddr {
    until("the log names the address of http", || {
        let log = node.log();
        let line = log.lines().find(|line| line.contains(" http "))?;
        line.split("address=").nth(1)?.split_whitespace().next()?.parse().ok()
    })
}

/// Samples by name and labels, after the text was found to keep its grammar.
fn metrics(process: SocketAddr) -> std::collections::BTreeMap<String, f64> {
    let answer = get(process, "/metrics");
    assert_eq!(answer.status, 200);
    http_client::samples(&answer.text())
}

/// By those who made the format, where their tool is installed.
fn check_by_promtool(process: SocketAddr) {
    let tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut tool) = tool else { return };
    let text = get(process, "/metrics").text();
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
}
