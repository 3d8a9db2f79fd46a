//! A gateway with several workers: clients are spread over them, and see one store, one set of limits and one end.

use crate::client::Client;
use crate::cluster::{Cluster, Folder, KUMO, Node, free_addresses, until, words};
use crate::http_client::{get, samples};
use crate::load::Load;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn clients_of_all_workers_see_one_store() {
    let cluster = Cluster::start(1, 3, &["-TR", "4"]);
    let gateway = http(&cluster.gateway);
    until("all workers are ready", || (get(gateway, "/ready").status == 200).then_some(()));
    let mut clients = clients(&cluster, gateway, 16);
    let open = until("all are let in", || {
        let open = by_worker(gateway, "open_connections");
        (open.iter().sum::<u64>() == 16).then_some(open)
    });
    assert_eq!(open, [4; 4], "each worker has as many as the others");

    let before = by_worker(gateway, "requests_total");
    for round in 0..48 {
        let writer = round % clients.len();
        assert!(clients[writer].set("shared", &round.to_string()).unwrap());
        for (reader, client) in clients.iter_mut().enumerate() {
            let read = client.get("shared").unwrap();
            assert_eq!(read, Some(round.to_string()), "{reader} reads what {writer} was told is stored");
        }
    }
    assert!(clients[0].set("count", "0").unwrap());
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                let mut last = 0;
                for _ in 0..COUNTS {
                    let number = client.increment("count").unwrap().expect("it is there");
                    assert!(number > last, "{number} after {last}");
                    last = number;
                }
            });
        }
    });
    let counted = clients[1].get("count").unwrap();
    assert_eq!(counted.as_deref(), Some((16 * COUNTS).to_string().as_str()), "each counted once");

    let after = by_worker(gateway, "requests_total");
    let served: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    assert!(
        served.iter().all(|&count| count >= 4 * (48 + COUNTS)),
        "each serves its own clients: {served:?}"
    );
    let stats = stats(&mut clients[5]);
    let all = after.iter().sum::<u64>();
    let told: u64 = ["cmd_get", "cmd_set", "cmd_counter"].iter().map(|name| stats[*name]).sum();
    assert_eq!((stats["threads"], stats["curr_connections"], told), (4, 16, all), "stats are of all workers");
    let asked = samples(&get(gateway, "/metrics").text());
    let operations = asked.iter().filter(|(name, _)| name.starts_with("kumo_gateway_requests_total"));
    assert_eq!(operations.map(|(_, count)| *count as u64).sum::<u64>(), all);
    assert_eq!(clients[2].ask("stats reset\r\n").unwrap(), "RESET");
    assert_eq!(self::stats(&mut clients[3])["cmd_get"], 0, "reset for all");
    println!("4 workers served {served:?} requests of 16 clients");
}

#[test]
fn answers_come_in_the_order_of_requests() {
    let cluster = Cluster::start(1, 3, &["-TR", "2", "-TW", "4"]);
    let addresses = std::iter::repeat_n(cluster.gateway.address, 12);
    let threads: Vec<_> = addresses
        .enumerate()
        .map(|(number, address)| std::thread::spawn(move || pipeline(address, number)))
        .collect();
    let answers: usize = threads.into_iter().map(|thread| thread.join().expect("nothing was wrong")).sum();
    let served = by_worker(http(&cluster.gateway), "requests_total");
    assert!(served.len() == 4 && served.iter().all(|&count| count >= PIPELINE as u64), "{served:?}");
    println!("{answers} answers in order, of 4 workers that served {served:?}");
}

#[test]
fn a_server_is_killed_under_all_workers() {
    let mut cluster = Cluster::start(1, 3, &["-TR", "4"]);
    let gateway = http(&cluster.gateway);
    let load = Load::start(&cluster);
    load.further(OPERATIONS_BETWEEN);
    load.phase("kill -9");
    cluster.servers[0].kill();
    cluster.until_fault(0);
    load.further(OPERATIONS_BETWEEN);
    load.phase("back");
    cluster.servers[0].run();
    until("it is known", || (cluster.try_stat()?["not_attached"].as_array()?.len() == 1).then_some(()));
    cluster.attach();
    cluster.until_active(3);
    load.further(OPERATIONS_BETWEEN);
    let tally = load.finish();
    let served = by_worker(gateway, "requests_total");
    println!("kill -9 of a server under 4 workers that served {served:?}; {tally}");
    assert!(served.iter().all(|&count| count > 0), "{served:?}");
    assert!(tally.operations() >= 3 * OPERATIONS_BETWEEN);
}

#[test]
fn clients_are_counted_over_all_workers() {
    let cluster = Cluster::start(1, 1, &["-TR", "3", "--max-connections", "7"]);
    let gateway = http(&cluster.gateway);
    let mut inside = clients(&cluster, gateway, 7);
    for client in &mut inside {
        assert!(client.set("key", "value").unwrap());
    }
    let mut outside = Client::open(cluster.gateway.address).expect("the gateway listens");
    assert_eq!(outside.line().unwrap(), "ERROR Too many open connections");
    let end = outside.line().expect_err("it is closed");
    assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    let told = stats(&mut inside[0]);
    assert_eq!((told["curr_connections"], told["max_connections"]), (7, 7));
    assert!(told["rejected_connections"] >= 1);
    drop(inside.pop());
    until("there is room for another", || {
        let mut client = Client::open(cluster.gateway.address)?;
        client.get("key").ok()?.map(|value| assert_eq!(value, "value"))
    });
}

#[test]
fn requests_under_way_are_answered_before_the_end() {
    let mut cluster = Cluster::start(1, 3, &["-TR", "3"]);
    let gateway = http(&cluster.gateway);
    let mut asking = clients(&cluster, gateway, 6);
    // Every write needs all three servers.
    cluster.servers[0].signal(Signal::STOP);
    for (number, client) in asking.iter_mut().enumerate() {
        let version = client.ask(&format!("version\r\nset last-{number} 0 0 5\r\nwords\r\n")).unwrap();
        assert!(version.starts_with("VERSION "), "and what came with it was read too: {version}");
    }
    cluster.gateway.signal(Signal::TERM);
    cluster.servers[0].signal(Signal::CONT);
    for client in &mut asking {
        assert_eq!(client.line().unwrap(), "STORED");
        assert_eq!(client.line().expect_err("then it ends").kind(), ErrorKind::UnexpectedEof);
    }
    assert_eq!(cluster.gateway.wait(), Some(0));
    assert!(TcpStream::connect(cluster.gateway.address).is_err(), "nobody is let in any more");
    cluster.gateway.run();
    cluster.until_served();
    let mut client = Client::open(cluster.gateway.address).expect("the gateway listens");
    for number in 0..6 {
        assert_eq!(client.get(&format!("last-{number}")).unwrap().as_deref(), Some("words"));
    }
}

#[test]
fn a_number_of_workers_that_cannot_be_is_one_line() {
    let taken = TcpListener::bind((free_addresses(1)[0].ip(), 0)).unwrap();
    let port = taken.local_addr().unwrap().to_string();
    for (options, status, said) in [
        (["-TR", "0"], 2, "--read-threads"),
        (["-TW", "257"], 2, "--write-threads"),
        (["-TW", "many"], 2, "--write-threads"),
        (["-TR", "4"], 1, "is taken by another process"),
    ] {
        let output = Command::new("timeout")
            .args(["60", KUMO, "gateway", "-o", "-", "--http", "off", "-m", "127.0.0.1:1", "-t", &port])
            .args(options)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), error.lines().count()), (Some(status), 1), "{options:?}: {error}");
        assert!(error.contains(said), "{options:?}: {error}");
    }
}

#[test]
fn a_server_says_that_it_has_one_worker() {
    let folder = Folder::new();
    let addresses = free_addresses(2);
    let (listen, stream) = (addresses[0].to_string(), addresses[1].port().to_string());
    let arguments = ["server", "-l", &listen, "-L", &stream, "-m", "127.0.0.1:1", "-TR", "2", "-TW", "4"];
    let mut server = Node::new(&folder, "server".to_owned(), addresses[0], words(&arguments));
    server.run();
    until("it says so", || server.log().contains("a server has one worker").then_some(()));
    until("it listens", || TcpStream::connect(addresses[0]).ok());
    assert_eq!(server.log().matches("one worker").count(), 1, "{}", server.log());
}

/// So many clients, when nobody else is there any more.
fn clients(cluster: &Cluster, gateway: SocketAddr, count: usize) -> Vec<Client> {
    until("earlier clients are gone", || {
        let open = by_worker(gateway, "open_connections");
        (!open.is_empty() && open.iter().all(|&open| open == 0)).then_some(())
    });
    (0..count).map(|_| Client::open(cluster.gateway.address).expect("the gateway listens")).collect()
}

/// Sets and gets of one client, sent without waiting for answers, which must be those of the requests in turn.
fn pipeline(address: SocketAddr, number: usize) -> usize {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut sender = stream;
    let requests: String = (0..PIPELINE)
        .map(|count| {
            // One key in three is asked for again and again, the others once.
            let key = if count % 3 == 0 { "same".to_owned() } else { count.to_string() };
            let value = count.to_string();
            format!("set {number}-{key} 0 0 {}\r\n{value}\r\nget {number}-{key}\r\n", value.len())
        })
        .collect();
    let sending = std::thread::spawn(move || sender.write_all(requests.as_bytes()).unwrap());
    for count in 0..PIPELINE {
        let mut line = || answers.next().expect("an answer").unwrap();
        assert_eq!(line(), "STORED", "{number}: {count}");
        assert!(line().starts_with(&format!("VALUE {number}-")), "{number}: {count}");
        assert_eq!((line(), line()), (count.to_string(), "END".to_owned()), "{number}: {count}");
    }
    sending.join().unwrap();
    2 * PIPELINE
}

/// What memcached's `stats` says in numbers.
pub fn stats(client: &mut Client) -> BTreeMap<String, u64> {
    let mut stats = BTreeMap::new();
    let mut line = client.ask("stats\r\n").unwrap();
    while line != "END" {
        let words: Vec<&str> = line.split(' ').collect();
        let ["STAT", name, value] = words[..] else { panic!("{line}") };
        stats.extend(value.parse().ok().map(|value| (name.to_owned(), value)));
        line = client.line().unwrap();
    }
    stats
}

/// A metric of each worker.
fn by_worker(gateway: SocketAddr, name: &str) -> Vec<u64> {
    let samples = samples(&get(gateway, "/metrics").text());
    let count = samples["kumo_gateway_workers"] as usize;
    let sample = |worker| samples[&format!("kumo_gateway_worker_{name}{{worker=\"{worker}\"}}")] as u64;
    (0..count).map(sample).collect()
}

/// Where a process serves HTTP, as its log says.
fn http(node: &Node) -> SocketAddr {
    until("the log names the address of http", || {
        let log = node.log();
        let line = log.lines().find(|line| line.contains(" http "))?;
        line.split("address=").nth(1)?.split_whitespace().next()?.parse().ok()
    })
}

/// So that every fault meets a store at work.
const OPERATIONS_BETWEEN: u64 = 500;

/// Of each client.
const COUNTS: u64 = 50;
const PIPELINE: usize = 600;

const PATIENCE: Duration = Duration::from_secs(60);
